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

import dfopt as dfopt_api
from dfopt.calibration.calibrate import calibrate
from dfopt.calibration.tables import attention_rows, gemm_rows, memory_rows
from dfopt.documents.calibration import Calibration
from dfopt.errors import DfoptError
from dfopt.library import load_system
from dfopt.machines.fields import with_fields
from dfopt.search import solve
from dfopt.workloads import WORKLOADS

DATA = Path(__file__).parents[2] / "benchmarks" / "reference" / "data"
build = WORKLOADS["decoder"]
SHIPPED = Path(__file__).parents[2] / "systems" / "calibrations"
PROFILE, OTHER = SHIPPED / "a100-calibrated.yaml", SHIPPED / "h100-calibrated.yaml"


def dfopt(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dfopt", "calibrate", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=DATA)


def table(tmp_path: Path, rows: int) -> Path:
    """The first rows of Korthikanti's table: a model of one stage."""
    lines = (DATA / "korthikanti_table5.csv").read_text(encoding="utf-8").splitlines()
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(lines[: rows + 1]) + "\n", encoding="utf-8")
    return path


def measured(name: str) -> list[dict[str, str]]:
    """Rows of a committed table."""
    with (DATA / name).open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def medians() -> list[float]:
    """Shares of the committed GEMMs by FLOP: 312 TFLOP/s and 2039 GB/s, of which a100-512 has shares by bytes."""
    rows = measured("a100_gemm.csv")
    m, n, k, milliseconds = (np.array([float(row[name]) for row in rows]) for name in ("m", "n", "k", "latency_ms"))
    flop = 2.0 * m * n * k
    moved = 2.0 * (m * k + k * n + m * n) / 2039e9
    size = moved * 2039e9
    sustained = np.select([size >= 100e6, size >= 10e6, size >= 1e6], [0.9, 0.75, 0.6], 0.3)
    left = milliseconds / 1e3 - moved / sustained
    share = flop / 312e12 / np.maximum(left, 1e-300)
    bound = flop / 312e12 >= moved
    limits = [np.inf, 4e12, 1e12, 512e9, 128e9, 16e9, 1e9]
    pairs = itertools.pairwise(limits)
    return [min(1.0, float(np.median(share[bound & (flop < most) & (flop >= least)]))) for most, least in pairs]


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
    assert [row.op for row in made.efficiency[:3]] == ["matmul", "attention", None]
    assert [row.share for row in made.efficiency[2:9]] == pytest.approx([*medians(), 0.1], rel=1e-3)
    used = made.applied(load_system("a100-512"))
    assert used.network[0].efficiency == made.fitted[0].value and used.chip.efficiency == made.efficiency


@pytest.mark.parametrize(
    "given, said",
    [
        ({"rows": 0, "kernels": [DATA / "a100_gemm.csv"]}, "found no rows to fit to"),
        ({"names": ["node", "vector"]}, "found 2 rows for 2 numbers"),
        ({"names": ["cluster"]}, "no row's time depends on cluster"),
        ({"names": ["nodes"]}, "found 'nodes'"),
        ({"kernels": [DATA / "a100_nccl.csv"]}, "found no column m, n, k"),
        ({"kernels": [DATA / "a100_gemm.csv"] * 2}, "found a second table of matrix"),
        ({"collectives": DATA / "a100_nccl.csv", "label": "h100"}, "found no collective of a system"),
    ],
)
def test_what_cannot_be_fitted_is_refused(tmp_path: Path, given: dict[str, Any], said: str) -> None:
    with pytest.raises(DfoptError, match=said):
        calibrate([table(tmp_path, 2)][: given.pop("rows", 1)], load_system("a100-512"), "mine", **given)


@pytest.mark.nightly
def test_the_committed_profile_is_what_its_command_gives(tmp_path: Path) -> None:
    out = tmp_path / PROFILE.name
    done = dfopt("korthikanti_table5.csv", "vtrain_175b.csv", "llm_foundry_a100_80gb.csv", "--system", "a100-512",
                 "--kernels", "a100_gemm.csv", "--collectives", "a100_nccl.csv", "--like", OTHER, "--fit",
                 "attention,memory", "-o", out)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert out.read_bytes() == PROFILE.read_bytes()


EAGER = DATA / "h100-eager.yaml"


@pytest.mark.parametrize("path, how", [(OTHER, "compiled"), (EAGER, "eager")])
def test_profiles_of_measured_kernels_are_what_their_commands_give(tmp_path: Path, path: Path, how: str) -> None:
    out = tmp_path / path.name
    done = dfopt("--system", "h100-4096", "--kernels", "h100_torch_gemm.csv", "--kernels",
                 "h100_torch_attention_flash.csv", "--kernels", f"h100_torch_memory_{how}.csv", "--kernels",
                 "h100_torch_optimizer.csv", "--collectives", "h100_nccl.csv", "-o", out)  # fmt: skip
    assert done.returncode == 0, done.stderr
    _, _, written = out.read_bytes().partition(b"\n")  # behind the line that says who wrote it
    assert written == path.read_bytes()
    assert Calibration.load(path).numbers() == {}


def test_what_no_table_says_is_taken_from_another_chip() -> None:
    donor = Calibration.load(PROFILE)
    mine = calibrate([], load_system("h100-4096"), "mine", kernels=[DATA / "h100_gemm.csv"], like=donor)
    assert mine.numbers() == donor.numbers() and not mine.fitted
    mine = calibrate([], load_system("h100-4096"), "mine", kernels=[DATA / "h100_torch_memory_eager.csv"], like=donor)
    assert set(mine.numbers()) == {"attention", "optimizer"}


def test_the_share_of_an_optimizers_step_is_of_its_table_or_of_another_chips() -> None:
    rows = [row for row in measured("h100_torch_optimizer.csv") if row["regime"] == "beside"]
    share = np.median([float(row["bytes"]) / (float(row["latency_ms"]) * 1e-3) / 3.35e12 for row in rows])
    mine = calibrate([], load_system("h100-4096"), "mine", kernels=[DATA / "h100_torch_optimizer.csv"],
                     like=Calibration.load(PROFILE))  # fmt: skip
    (row,) = (row for row in mine.efficiency if row.op == "optimizer")
    assert (row.unit, row.share) == ("memory", pytest.approx(share, rel=1e-3))
    assert "optimizer" not in mine.numbers()  # it is not taken over
    taken = Calibration.load(PROFILE).numbers()["optimizer"]
    assert taken == pytest.approx(share, rel=1e-3)


def test_attention_is_both_ways_of_a_shape_by_the_flop_of_a_product() -> None:
    rows, count = attention_rows(DATA / "h100_torch_attention_cudnn.csv", "h100", load_system("h100-4096"))
    seconds: dict[tuple[str, ...], list[float]] = {}
    for row in measured("h100_torch_attention_cudnn.csv"):
        if row["regime"] == "sustained":
            key = tuple(row[name] for name in ("batch", "heads", "kv_heads", "seq", "head_dim", "causal"))
            seconds.setdefault(key, []).append(float(row["latency_ms"]) / 1e3)
    shares = []
    for (batch, heads, _, seq, dim, causal), both in seconds.items():
        flop = 2.0 * int(batch) * int(heads) * int(seq) ** 2 * int(dim) * (0.5 if causal == "True" else 1.0)
        if 128e9 <= flop < 512e9:
            shares.append((2 + 5) * flop / 989.4e12 / sum(both))
    found = next(row for row in rows if row.flop == 128e9)
    assert (count, found.op) == (len(seconds), "attention")
    assert found.share == pytest.approx(float(np.median(shares)), rel=1e-3)
    assert rows[-1].flop is None and all(row.flop is not None for row in rows[:-1])


def test_memory_never_sustains_less_of_more_bytes_and_bursts_are_asked_for() -> None:
    system = load_system("h100-4096")
    rows, count = memory_rows(DATA / "h100_torch_memory_eager.csv", "", system)
    assert count == 52 and [row.bytes for row in rows] == [100e6, 10e6, 1e6, None]
    assert sorted((row.share for row in rows), reverse=True) == [row.share for row in rows]
    with pytest.raises(DfoptError, match="found no kernel of a system"):
        memory_rows(DATA / "h100_torch_memory_eager.csv", "", system, "burst")
    sustained, _ = gemm_rows(DATA / "h100_torch_gemm.csv", "", system)
    burst, _ = gemm_rows(DATA / "h100_torch_gemm.csv", "", system, "burst")
    assert all(one.share <= other.share for one, other in zip(sustained, burst, strict=True))


def test_a_peak_below_what_was_measured_is_refused() -> None:
    slow = with_fields(load_system("a100-512"), {"chip.peak": "250 TFLOP/s"})
    with pytest.raises(DfoptError, match=r"found a share of 1.* of the peak"):
        gemm_rows(DATA / "a100_gemm.csv", "", slow)


@pytest.mark.parametrize("path", [PROFILE, OTHER, EAGER])
def test_shipped_profiles_are_physical_and_name_the_committed_data(path: Path) -> None:
    made = Calibration.load(path)
    assert not any(one.at_bound for one in (*made.fitted, *(made.taken_over or ())))
    assert all(0 < row.share <= 1 for row in made.efficiency)
    assert len(made.numbers()) <= 12
    for one in made.evidence:
        assert one.sha256 == hashlib.sha256((DATA / one.file).read_bytes()).hexdigest()
    for error in made.errors:  # bar B8: no source is twice as far off without it
        assert error.left_out is not None and error.left_out <= 2 * error.mean


def test_calibrated_is_the_profile_of_the_chip() -> None:
    asked = {"tp": 8, "gap": 0.1, "sensitivity": False}
    small = {"hidden": 512, "heads": 8, "head_dim": 64, "ffn": 2048, "vocab": 1000, "seq": 256, "layers": 2}
    graph = build(**small, mode="training", name="small")
    found = solve(graph, "h100-8", assumptions="calibrated", **asked)
    made = Calibration.load(OTHER)
    assert found.assumptions.profile == "h100-calibrated" and found.system.chip.efficiency == made.efficiency
    assert solve(graph, "h100-8", assumptions=made, **asked).step_time_s == found.step_time_s
    score = dfopt_api.evaluate(found, graph, "h100-8", "calibrated")
    assert score.step_time_s == pytest.approx(found.step_time_s, rel=1e-9)
    with pytest.raises(DfoptError, match=r"no calibration of 'NVIDIA B200.*nearest by peak rate: 'NVIDIA H100"):
        solve(graph, "b200-8", assumptions="calibrated", **asked)
    with pytest.raises(DfoptError, match="the calibration h100-calibrated is of"):
        solve(graph, "a100-8", assumptions=made, **asked)
