"""Small studies for the tests of sweeps: cells that take a tenth of a second."""

from __future__ import annotations

from typing import Any

from dfopt.documents.study import Study

SMALL: dict[str, Any] = {
    "schema": "dfopt/study/1",
    "name": "small",
    "graphs": [{"graph": "gpt2-small", "parameters": {"batch": 8}}],
    "systems": [{"system": "sn10-8-ring", "label": "ring"}, {"system": "sn10-8-torus", "label": "torus"}],
    "options": {"tp": 8, "time_limit": "20 s"},
}


def study(**changes: Any) -> Study:
    """The small study with some keys replaced, validated as a file is."""
    return Study.from_data({**SMALL, **changes}, "study")
