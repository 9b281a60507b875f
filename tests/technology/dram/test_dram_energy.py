"""The energy of DRAM commands: against the log of DRAMsim3, by hand, and its laws."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from dram_channel import DramEnergy, Timing, energy
from hypothesis import given
from hypothesis import strategies as st

from dfopt.errors import SystemSpecError

GOLDEN = Path(__file__).parents[2] / "golden" / "memory3d"
# HBM2_8Gb_x128 of DRAMsim3: currents in mA, 1.2 V.
HBM2 = DramEnergy.from_currents(
    Timing(), vdd=1.2, idd0=0.065, idd2n=0.04, idd3n=0.055, idd4r=0.39, idd4w=0.5, idd5ab=0.25
)
COUNTS = st.integers(0, 10**6)


@pytest.mark.parametrize("case", ["D01", "D02", "D23", "D26", "D61"])
def test_equal_to_dramsim3(case: str) -> None:
    with (GOLDEN / "dramsim3_results.csv").open(encoding="utf-8", newline="") as file:
        line = next(line for line in csv.DictReader(file) if line["case"] == case)
    counts: dict[str, Any] = {key: int(line[key]) for key in ("n_act", "n_rd", "n_wr", "n_ref")}
    # All banks are closed while a refresh lasts; the one before the first activate takes two clocks.
    split = energy(HBM2, seconds=200e-6, idle_seconds=274e-9 * counts["n_ref"] + 2e-9, **counts)
    for part, column in (("activate", "act"), ("read", "rd"), ("write", "wr"), ("refresh", "ref")):
        assert getattr(split, part) * 1e12 == pytest.approx(float(line[f"E_{column}_pJ"]), rel=1e-9), part
    assert split.background * 1e12 == pytest.approx(float(line["E_background_pJ"]), rel=0.02)
    assert split.total * 1e12 == pytest.approx(float(line["E_total_pJ"]), rel=0.005)


@given(COUNTS, COUNTS, COUNTS, COUNTS, st.floats(1e-6, 1.0), st.floats(0, 1), st.integers(2, 9))
def test_parts_add_up_and_scale(act: int, rd: int, wr: int, ref: int, seconds: float, idle: float, times: int) -> None:
    counts = {"n_act": act, "n_rd": rd, "n_wr": wr, "n_ref": ref, "seconds": seconds, "idle_seconds": idle * seconds}
    one = energy(HBM2, **counts)  # type: ignore[arg-type]
    assert one.total == one.activate + one.read + one.write + one.refresh + one.background
    many = energy(HBM2, **{key: times * value for key, value in counts.items()})  # type: ignore[arg-type]
    assert many.total == pytest.approx(times * one.total)
    assert energy(HBM2, **{**counts, "idle_seconds": 0.0}).total >= one.total  # type: ignore[arg-type]


def test_wires_by_hand() -> None:
    model = DramEnergy(0.0, 0.0, 0.0, 0.0, background_w=0.0, io_j_per_bit=1e-12)
    assert energy(model, n_act=0, n_rd=3, n_wr=2, seconds=1.0, burst_bytes=64).io == pytest.approx(5 * 512e-12)


@pytest.mark.parametrize(
    "make, path",
    [
        (lambda: DramEnergy(-1.0, 0, 0, 0, 0), "$.energy.activate_j"),
        (lambda: DramEnergy(0, 0, 0, 0, float("inf")), "$.energy.background_w"),
        (lambda: energy(HBM2, n_act=-1, n_rd=0, seconds=1), "$.energy.n_act"),
        (lambda: energy(HBM2, n_act=0, n_rd=0, seconds=1, idle_seconds=2), "$.energy.idle_seconds"),
        (lambda: energy(DramEnergy(0, 0, 0, 0, 0, 0, 1e-12), n_act=0, n_rd=1, seconds=1), "$.energy.burst_bytes"),
    ],
)
def test_one_clear_error(make: Any, path: str) -> None:
    with pytest.raises(SystemSpecError) as caught:
        make()
    assert [issue.where for issue in caught.value.issues] == [path]
