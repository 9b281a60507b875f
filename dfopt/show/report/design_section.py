"""What an exploration chose, in the report of its best design."""

from __future__ import annotations

from io import StringIO

from dfopt.documents.exploration import Exploration
from dfopt.documents.html import escape
from dfopt.show.exploration import exploration_report
from dfopt.show.grid import print_to
from dfopt.show.html import Html, paragraph
from dfopt.show.report.page import PagePart

_WIDE = 120  # characters of a line


def designs_section(exploration: Exploration) -> PagePart:
    """Page section on the designs of an exploration: sizes, proof and worth of budgets."""
    output = StringIO()
    print_to(output, exploration_report(exploration), _WIDE)
    above = paragraph("What follows is the mapping of the best design.")
    return PagePart("designs", "The best of many designs", [Html(f"<pre>{escape(output.getvalue())}</pre>"), above])
