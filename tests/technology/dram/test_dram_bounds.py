"""The formulas of DRAM, its bandwidth and its energy: laws that hold for any timing, values by hand, logs, refusals."""

from __future__ import annotations

import csv
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from dram_channel import DramEnergy, Organisation, Policy, Stream, Timing, bounds, bounds_of_many, energy, why_simulate
from hypothesis import assume, given
from hypothesis import strategies as st

from dfopt.errors import SystemSpecError
from dfopt.technology.dram import LIMITS

CHIP = Organisation()
HBM2 = Timing()
NS = 1e-9


@st.composite
def timings(draw: st.DrawFn) -> Timing:
    """Whole clocks of 1 ns, with tRC above tRAS + tRP and the times within a group above those between groups."""
    clock = {k: draw(st.integers(1, 40)) * NS for k in ("tRCDRD", "tRCDWR", "tRP", "tRAS", "tWR", "tRTP", "CL")}
    short = {k: draw(st.integers(1, 12)) for k in ("tRRD", "tCCD", "tWTR")}
    more = {k: v + draw(st.integers(0, 6)) for k, v in short.items()}
    both = {f"{k}_S": v * NS for k, v in short.items()} | {f"{k}_L": v * NS for k, v in more.items()}
    return Timing(
        **clock, **both, CWL=draw(st.integers(0, 10)) * NS, tBL=draw(st.integers(1, 8)) * NS,
        tFAW=draw(st.integers(0, 60)) * NS, tRFC=draw(st.integers(0, 500)) * NS,
        tREFI=draw(st.integers(1500, 8000)) * NS,
    )  # fmt: skip


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    groups = draw(st.integers(1, 4))
    share = draw(st.sampled_from([0.0, 0.25, 0.5, 1.0]))
    return Stream(
        bytes=1e6, bursts_per_activation=draw(st.integers(1, 32)), banks=groups * draw(st.integers(1, 4)),
        groups=groups,
        random=draw(st.booleans()), read_share=share, bursts_per_turnaround=draw(st.integers(2, 128)),
        outstanding=draw(st.none() | st.integers(1, 300)), extra_latency=draw(st.integers(0, 300)) * NS,
    )  # fmt: skip


@given(streams(), timings(), st.sampled_from([0.0, 1.0, 2.0, 4.0]))
def test_never_above_any_bound(stream: Stream, timing: Timing, rate: float) -> None:
    found = bounds(stream, timing, CHIP, rate)
    most = min(v for k, v in found.limits.items() if k != "buffering")
    factors = found.factors["refresh"] * found.factors["turnaround"]
    assert 0 <= found.bandwidth <= most * factors * (1 + 1e-12)
    assert found.bandwidth <= CHIP.peak(timing) and 0 <= found.utilization <= 1
    assert found.bandwidth <= found.limits["buffering"] * (1 + 1e-12)
    assert found.binding in LIMITS


LONGER = [f.name for f in fields(Timing) if f.name not in ("tCK", "tREFI", "tRC", "tRTW")]


@given(streams(), timings(), st.sampled_from(LONGER), st.integers(1, 20))
def test_a_longer_time_never_helps(stream: Stream, timing: Timing, key: str, more: int) -> None:
    """Of streams without a window; with one, a refresh in a longer round trip is partly hidden."""
    stream = stream.with_(outstanding=None)
    slower = replace(timing, tRC=None, tRTW=None, **{key: getattr(timing, key) + more * NS})  # type: ignore[arg-type]
    assume(slower.tRTW >= timing.tRTW)  # a longer CWL shortens the turn from reads to writes
    limit = bounds(stream, timing, CHIP).bandwidth
    if stream.is_mix:  # relative to the time that a turn of the bus takes, slower bursts lose less
        limit *= 1 / bounds(stream, timing, CHIP).factors["turnaround"]
    assert bounds(stream, slower, CHIP).bandwidth <= limit * (1 + 1e-9)


@given(streams(), timings(), st.integers(1, 15))
def test_more_banks_never_hurt(stream: Stream, timing: Timing, more: int) -> None:
    stream = stream.with_(outstanding=None)
    wider = stream.with_(banks=min(16, stream.banks + more))
    assert bounds(wider, timing, CHIP).bandwidth >= bounds(stream, timing, CHIP).bandwidth * (1 - 1e-12)


@given(streams(), timings(), st.floats(0, 3), st.floats(0.1, 3))
def test_refreshing_more_never_helps(stream: Stream, timing: Timing, rate: float, more: float) -> None:
    stream = stream.with_(outstanding=None)
    assert bounds(stream, timing, CHIP, rate + more).bandwidth <= bounds(stream, timing, CHIP, rate).bandwidth


@given(st.lists(streams(), max_size=6), timings())
def test_many_are_each_alone(several: list[Stream], timing: Timing) -> None:
    many = bounds_of_many(several, timing, CHIP)
    for i, stream in enumerate(several):
        one = bounds(stream, timing, CHIP)
        assert many.bandwidth[i] == pytest.approx(one.bandwidth, rel=1e-12)
        assert LIMITS[many.binding[i]] == one.binding


def test_by_hand() -> None:
    """HBM2, no refresh: one bank a burst each tRC = 48 ns; random bursts 4 each tFAW = 30 ns; whole rows the bus."""
    one = bounds(Stream(1, 1, banks=1, groups=1), HBM2, CHIP, 0)
    assert one.bandwidth == pytest.approx(64 / 48e-9) and one.binding == "activation"
    four = bounds(Stream(1, 1), HBM2, CHIP, 0)
    assert four.bandwidth == pytest.approx(4 * 64 / 30e-9) and four.binding == "four_activate"
    rows = bounds(Stream(1, 32), HBM2, CHIP, 0)
    assert rows.bandwidth == pytest.approx(32e9)
    # A row of 32 bursts in one bank: 14 + 31 x 2 + 5 + 14 = 95 ns.
    bank = bounds(Stream(1, 32, banks=1, groups=1), HBM2, CHIP, 0)
    assert bank.bandwidth == pytest.approx(32 * 64 / 95e-9)
    # Written: 14 + 31 x 2 + 4 + 2 + 16 + 14 = 112 ns.
    wrote = bounds(Stream(1, 32, banks=1, groups=1, read_share=0.0), HBM2, CHIP, 0)
    assert wrote.bandwidth == pytest.approx(32 * 64 / 112e-9)
    # 260 + 14 + 14 + 14 of 3900 ns are lost to a refresh.
    assert bounds(Stream(1, 32), HBM2, CHIP).bandwidth == pytest.approx(32e9 * (1 - 302 / 3900))


def test_one_request_in_flight_waits_a_whole_trip() -> None:
    found = bounds(Stream(1, 1, outstanding=1, extra_latency=1e-6), HBM2, CHIP, 0)
    # 14 + 2 + 2 of a hit, 14 + 14 to close and open, 1000 outside.
    assert found.limits["buffering"] == pytest.approx(64 / 1046e-9) and found.binding == "buffering"


@pytest.mark.parametrize(
    "stream, policy, word",
    [
        (Stream(1, 32), Policy(cmd_queue_size=1, trans_queue_size=32), "hold fewer than"),
        (Stream(1, 1), Policy(cmd_queue_size=1, trans_queue_size=4), "too short"),
        (Stream(1, 1), Policy(interval=4), "intervals"),
        (Stream(1, 4, random=True), Policy("shared", trans_queue_size=32), "meet in the same banks"),
        (Stream(1, 32), Policy(), ""),
        (Stream(1, 32), Policy(page="closed"), "wants the same row"),
        (Stream(1, 6, banks=4, groups=4), Policy(), "little to spare"),
        (Stream(1, 32, outstanding=64), Policy(page="closed"), ""),
    ],
)
def test_why_simulate(stream: Stream, policy: Policy, word: str) -> None:
    why = why_simulate(stream, policy, bounds(stream, HBM2, CHIP))
    assert word in why and bool(why) == bool(word)


GOLDEN = Path(__file__).parents[2] / "golden" / "memory3d"
# HBM2_8Gb_x128 of DRAMsim3: currents in mA, 1.2 V.
CURRENTS = DramEnergy.from_currents(
    Timing(), vdd=1.2, idd0=0.065, idd2n=0.04, idd3n=0.055, idd4r=0.39, idd4w=0.5, idd5ab=0.25
)
COUNTS = st.integers(0, 10**6)


@pytest.mark.parametrize("case", ["D01", "D02", "D23", "D26", "D61"])
def test_equal_to_dramsim3(case: str) -> None:
    with (GOLDEN / "dramsim3_results.csv").open(encoding="utf-8", newline="") as file:
        line = next(line for line in csv.DictReader(file) if line["case"] == case)
    counts: dict[str, Any] = {key: int(line[key]) for key in ("n_act", "n_rd", "n_wr", "n_ref")}
    # All banks are closed while a refresh lasts; the one before the first activate takes two clocks.
    split = energy(CURRENTS, seconds=200e-6, idle_seconds=274e-9 * counts["n_ref"] + 2e-9, **counts)
    for part, column in (("activate", "act"), ("read", "rd"), ("write", "wr"), ("refresh", "ref")):
        assert getattr(split, part) * 1e12 == pytest.approx(float(line[f"E_{column}_pJ"]), rel=1e-9), part
    assert split.background * 1e12 == pytest.approx(float(line["E_background_pJ"]), rel=0.02)
    assert split.total * 1e12 == pytest.approx(float(line["E_total_pJ"]), rel=0.005)


@given(COUNTS, COUNTS, COUNTS, COUNTS, st.floats(1e-6, 1.0), st.floats(0, 1), st.integers(2, 9))
def test_parts_add_up_and_scale(act: int, rd: int, wr: int, ref: int, seconds: float, idle: float, times: int) -> None:
    counts = {"n_act": act, "n_rd": rd, "n_wr": wr, "n_ref": ref, "seconds": seconds, "idle_seconds": idle * seconds}
    one = energy(CURRENTS, **counts)  # type: ignore[arg-type]
    assert one.total == one.activate + one.read + one.write + one.refresh + one.background
    many = energy(CURRENTS, **{key: times * value for key, value in counts.items()})  # type: ignore[arg-type]
    assert many.total == pytest.approx(times * one.total)
    assert energy(CURRENTS, **{**counts, "idle_seconds": 0.0}).total >= one.total  # type: ignore[arg-type]


def test_wires_by_hand() -> None:
    model = DramEnergy(0.0, 0.0, 0.0, 0.0, background_w=0.0, io_j_per_bit=1e-12)
    assert energy(model, n_act=0, n_rd=3, n_wr=2, seconds=1.0, burst_bytes=64).io == pytest.approx(5 * 512e-12)


@pytest.mark.parametrize(
    "make, path",
    [
        (lambda: Timing(tRAS=-1.0), "$.timing.tRAS"),
        (lambda: Timing(tREFI=0.0), "$.timing.tREFI"),
        (lambda: Timing(tCK=float("nan")), "$.timing.tCK"),
        (lambda: Timing(tRC=1e-9), "$.timing.tRC"),
        (lambda: Organisation(bank_groups=0), "$.organisation.bank_groups"),
        (lambda: Organisation(row_bytes=100), "$.organisation.row_bytes"),
        (lambda: Organisation(burst_bytes=True), "$.organisation.burst_bytes"),
        (lambda: Stream(-1.0), "$.stream.bytes"),
        (lambda: Stream(1, 0.5), "$.stream.bursts_per_activation"),
        (lambda: Stream(1, banks=2, groups=4), "$.stream.groups"),
        (lambda: Stream(1, read_share=0.5), "$.stream.bursts_per_turnaround"),
        (lambda: Stream(1, read_share=1.5), "$.stream.read_share"),
        (lambda: Stream(1, outstanding=0), "$.stream.outstanding"),
        (lambda: bounds(Stream(1, banks=64), HBM2, CHIP), "$.stream.banks"),
        (lambda: bounds(Stream(1), HBM2, CHIP, -1), "$.refresh_rate.value"),
        (lambda: DramEnergy(-1.0, 0, 0, 0, 0), "$.energy.activate_j"),
        (lambda: DramEnergy(0, 0, 0, 0, float("inf")), "$.energy.background_w"),
        (lambda: energy(CURRENTS, n_act=-1, n_rd=0, seconds=1), "$.energy.n_act"),
        (lambda: energy(CURRENTS, n_act=0, n_rd=0, seconds=1, idle_seconds=2), "$.energy.idle_seconds"),
        (lambda: energy(DramEnergy(0, 0, 0, 0, 0, 0, 1e-12), n_act=0, n_rd=1, seconds=1), "$.energy.burst_bytes"),
    ],
)
def test_one_clear_error(make: Any, path: str) -> None:
    with pytest.raises(SystemSpecError) as caught:
        make()
    assert [issue.where for issue in caught.value.issues] == [path]
    assert "expected" in caught.value.issues[0].message
