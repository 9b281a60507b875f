"""The runner that holds Calculon's executions against the judge, on five of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
GOLDEN = REPOSITORY / "tests" / "golden" / "calculon" / "executions.csv"


def test_executions_are_compared_part_by_part() -> None:
    """Work of the passes is Calculon's with all-reduces; what cannot be said is told with the reason."""
    command = [sys.executable, REPOSITORY / "benchmarks" / "reference" / "calculon.py", GOLDEN, "--json"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    found = {line["table"]: line["seen"] for line in json.loads(run.stdout)}
    for variant in ("full_ar", "none_ar"):
        for part in ("fw_time_s", "bw_time_s"):
            told = found[f"{variant} (1 rows), {part} of the step"]
            most = float(told.split("max ")[1].split("%")[0])
            assert most < (0.01 if (variant, part) != ("full_ar", "fw_time_s") else 0.5)
    for variant in ("full_ar", "none_ar", "attn_rsag_redo", "attn_rsag_redo_int"):
        assert float(found[f"{variant} (1 rows), step time"].split("max ")[1].split("%")[0]) < 5
        # bytes are that program's, but for rounding
        assert found[f"{variant} (1 rows), tier-1 memory"].startswith("mean 0.00%, median 0.00%, max 0.00%")
    assert found["not taken"].startswith("1 rows: full_rsag_ovl: $.tensor_par_overlap: found 'ring'")
