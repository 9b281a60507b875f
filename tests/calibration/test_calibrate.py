"""``dfopt calibrate`` as a user has it: a profile with its provenance, and errors in words."""

from __future__ import annotations

import csv
import hashlib
import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dfopt.calibration.calibrate import calibrate
from dfopt.documents.calibration import Calibration
from dfopt.errors import DfoptError
from dfopt.library import load_system

DATA = Path(__file__).parents[2] / "benchmarks" / "reference" / "data"
PROFILE = DATA / "a100-calibrated.yaml"


def dfopt(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dfopt", "calibrate", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=DATA)


def table(tmp_path: Path, rows: int) -> Path:
    """The first rows of Korthikanti's table: a model of one stage."""
    lines = (DATA / "korthikanti_table5.csv").read_text(encoding="utf-8").splitlines()
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(lines[: rows + 1]) + "\n", encoding="utf-8")
    return path


def medians() -> list[float]:
    """Shares of the committed GEMMs by FLOP, from what the A100's datasheet says: 312 TFLOP/s, 2039 GB/s."""
    with (DATA / "a100_gemm.csv").open(encoding="utf-8") as lines:
        sizes = [(int(r["m"]), int(r["n"]), int(r["k"]), float(r["latency_ms"]) / 1e3) for r in csv.DictReader(lines)]
    flop = np.array([2.0 * m * n * k for m, n, k, _ in sizes])
    moved = np.array([2.0 * (m * k + k * n + m * n) / 2039e9 for m, n, k, _ in sizes])
    share = flop / 312e12 / (np.array([seconds for *_, seconds in sizes]) - moved)
    bound = flop / 312e12 >= moved
    limits = [np.inf, 128e9, 16e9, 1e9]
    pairs = itertools.pairwise(limits)
    return [float(np.median(share[bound & (flop < most) & (flop >= least)])) for most, least in pairs]


def test_a_profile_keeps_where_it_comes_from(tmp_path: Path) -> None:
    rows, out = table(tmp_path, 2), tmp_path / "mine.yaml"
    done = dfopt(rows, "--system", "a100-512", "--kernels", "a100_gemm.csv", "--label", "a100", "--fit", "node",
                 "-o", out)  # fmt: skip
    assert done.returncode == 0, done.stderr
    made = Calibration.load(out)
    assert (made.profile, [one.name for one in made.fitted]) == ("mine", ["node"])
    assert [one.rows for one in made.evidence] == [198, 2]
    assert made.evidence[1].sha256 == hashlib.sha256(rows.read_bytes()).hexdigest()
    (error,) = made.errors
    assert error.rows == 2 and error.left_out is None and error.mean <= error.most
    assert [row.share for row in made.efficiency[:4]] == pytest.approx([*medians(), 0.1], rel=1e-3)
    used = made.applied(load_system("a100-512"))
    assert used.network[0].efficiency == made.fitted[0].value and used.chip.efficiency == made.efficiency


@pytest.mark.parametrize(
    "given, said",
    [
        ({"names": ["node", "vector"]}, "found 2 rows for 2 numbers"),
        ({"names": ["cluster"]}, "no row's time depends on cluster"),
        ({"names": ["nodes"]}, "found 'nodes'"),
        ({"kernels": DATA / "a100_nccl.csv"}, "found no column m, n, k"),
        ({"collectives": DATA / "a100_nccl.csv", "label": "h100"}, "found no all_reduce of 8 chips"),
    ],
)
def test_what_cannot_be_fitted_is_refused(tmp_path: Path, given: dict[str, Any], said: str) -> None:
    with pytest.raises(DfoptError, match=said):
        calibrate([table(tmp_path, 2)], load_system("a100-512"), "mine", **given)


def test_an_error_is_one_message(tmp_path: Path) -> None:
    out = tmp_path / "mine.yaml"
    done = dfopt(table(tmp_path, 2), "--system", "a100-512", "--fit", "nodes", "-o", out)
    assert done.returncode == 2 and "found 'nodes'" in done.stderr and "Traceback" not in done.stderr
    assert not out.exists()


@pytest.mark.nightly
def test_the_committed_profile_is_what_its_command_gives(tmp_path: Path) -> None:
    out = tmp_path / PROFILE.name
    done = dfopt("korthikanti_table5.csv", "vtrain_175b.csv", "--system", "a100-512", "--kernels", "a100_gemm.csv",
                 "--collectives", "a100_nccl.csv", "-o", out)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert out.read_bytes() == PROFILE.read_bytes()


def test_the_committed_profile_names_the_committed_data() -> None:
    for one in Calibration.load(PROFILE).evidence:
        assert one.sha256 == hashlib.sha256((DATA / one.file).read_bytes()).hexdigest()
