"""The formula of waves on measured kernels: as good as the model that came with them, with nothing fitted to them."""

from __future__ import annotations

import csv
from pathlib import Path

from by_path import module_at

ROOT = Path(__file__).resolve().parents[2]
FUSED = module_at(ROOT / "benchmarks" / "reference" / "fused.py")
BARS = {"ag_gemm": 0.040, "gemm_rs": 0.144, "moe_reduce": 0.072, "ulysses": 0.100}


def test_errors_of_44_kernels() -> None:
    with (ROOT / "tests" / "golden" / "deepstack" / "fig08_h100_kernels.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    errors = FUSED.errors(rows)
    assert {kind: count for kind, (count, _, _) in errors.items()} == {
        "ag_gemm": 12, "gemm_rs": 12, "moe_reduce": 8, "ulysses": 12,
    }  # fmt: skip
    assert all(errors[kind][1] <= bar for kind, bar in BARS.items()), errors
    # Where the shape says as many waves as the file, the plain formula is theirs.
    assert abs(errors["ag_gemm"][1] - errors["ag_gemm"][2]) < 1e-6
