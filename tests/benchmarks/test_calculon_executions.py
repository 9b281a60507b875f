"""The runner that holds Calculon's executions against the judge, on five of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
GOLDEN = REPOSITORY / "tests" / "golden" / "calculon" / "executions.csv"


def test_executions_are_compared_part_by_part() -> None:
    """Without overlap steps are those of Calculon, with all-reduces in every part; with overlap they are near."""
    command = [sys.executable, REPOSITORY / "benchmarks" / "reference" / "calculon.py", GOLDEN, "--json"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    found = {line["table"]: line["seen"] for line in json.loads(run.stdout)}
    most = {name: float(told.split("max ")[1].split("%")[0]) for name, told in found.items() if "max " in told}
    for variant in ("full_ar", "none_ar"):
        parts = {name: error for name, error in most.items() if name.startswith(f"A2, {variant} ")}
        # there what a chip does for a collective counts as time on a link
        work = [parts.pop(name) for name in list(parts) if "tp_comm_link_time_s" in name]
        assert len(parts) > 5 and max(parts.values()) < 0.02 and max(work) < 2.2
        assert most[f"A1, {variant} (1 rows), step time"] < 0.02
    for variant in ("attn_rsag_redo", "attn_rsag_redo_int"):
        assert most[f"A1, {variant} (1 rows), step time"] < 0.5
    assert most["A4, full_rsag_ovl (1 rows), step time"] < 1
    assert "not taken" not in found
    for variant in ("full_ar", "none_ar", "attn_rsag_redo", "attn_rsag_redo_int"):
        # bytes are that program's, but for rounding
        assert found[f"A3, {variant} (1 rows), tier-1 memory"].startswith("mean 0.00%, median 0.00%, max 0.00%")
