"""Cases of DFModel in ``tests/golden/dfmodel``, and what the optimiser makes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dfopt as df
from dfopt.frontends.dfmodel import DFModelCase

GOLDEN = Path(__file__).parent.parent / "golden" / "dfmodel"


def golden(name: str = "table6_dfmodel_8x1") -> dict[str, Any]:
    """The data of a case."""
    found: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text())
    return found


def solve(case: DFModelCase, **changes: Any) -> df.Result:
    """The best mapping of a case, with other sharding or other assumptions."""
    asked = case.options()
    if "pin_sharding" in changes:
        asked["pin_sharding"] = changes.pop("pin_sharding")
    return df.solve(case.graph, case.system, **{**asked, "assumptions": case.assumptions.with_(**changes)})
