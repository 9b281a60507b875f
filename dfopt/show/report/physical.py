"""What the judge says of a mapping on a stack of dies, in a report."""

from __future__ import annotations

from dfopt.documents.physical import PhysicalScore
from dfopt.show.html import Html, facts, mark, paragraph, section, table
from dfopt.show.physical import physical_facts, physical_sheets

__all__ = ["physical_section"]

_HOTTEST = 20


def physical_section(physical: PhysicalScore, drawn: dict[str, Html], per: str = "token") -> Html:
    """Times, memory, energy and temperatures, with the map of the tiles; energy is told ``per`` token or sample."""
    sheets = physical_sheets(physical, _HOTTEST, per)
    return section(
        "heat",
        "On the stack",
        *(paragraph(mark("limit broken", "bad"), f" {sentence}") for sentence in physical.violations),
        facts(physical_facts(physical, per)),
        drawn["temperature"],
        *(table(one.title, list(one.columns), one.rows) for one in sheets),
    )
