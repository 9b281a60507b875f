"""The simulators: schedules worked out by hand, conservation, the bounds of the formula, and the logs of two tools."""

from __future__ import annotations

import csv
import doctest
import importlib
import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dram_channel import Organisation, Policy, Request, Stream, Timing, bounds, simulate
from dram_channel.patterns import (
    address_map,
    interleaved_groups,
    random_visits,
    read_write,
    round_robin,
    sequential_rows,
    stride,
    take_turns,
)  # fmt: skip
from hypothesis import given, settings
from hypothesis import strategies as st

from dfopt.errors import SystemSpecError

GOLDEN = Path(__file__).parents[2] / "golden" / "memory3d"
CHIP, HBM2, NS = Organisation(), Timing(), 1e-9
STILL = Policy(refresh=False)
SHARED = Policy("shared", trans_queue_size=32, refresh=False)
few = settings(max_examples=12)


def reads(*banks_rows: tuple[int, int]) -> list[Request]:
    return [Request(bank, row, column) for column, (bank, row) in enumerate(banks_rows)]


def test_one_read_by_hand() -> None:
    """Offered at clock 1, in the queue at its end, ACT at 2, RD 14 later, data 14 + 2 later, so done at 32."""
    done = simulate(reads((0, 0)), HBM2, CHIP, STILL)
    assert (done.n_act, done.n_rd, done.row_hits, done.accepted, done.in_flight) == (1, 1, 0, 1, 0)
    assert done.latency == pytest.approx(31 * NS)


def test_a_row_hit_and_a_conflict_by_hand() -> None:
    """Two bursts of one row, then another row: RD 16, 18; PRE at 36, tRAS after the ACT; ACT 50, RD 64, done 80."""
    done = simulate(reads((0, 0), (0, 0), (0, 1)), HBM2, CHIP, STILL)
    assert (done.n_act, done.n_rd, done.row_hits) == (2, 3, 1)
    # Accepted at 1, 2, 3; done at 32, 34, 80.
    assert done.latency == pytest.approx((31 + 32 + 77) / 3 * NS)


@pytest.mark.parametrize("policy", [STILL, SHARED], ids=["per_bank", "shared"])
def test_one_bank_goes_at_its_row_cycle_and_all_at_four_activates_a_window(policy: Policy) -> None:
    one = simulate(round_robin(CHIP, 1 << 15, 1, [0]), HBM2, CHIP, policy, cycles=48 * 400, warmup=480)
    assert one.n_act == pytest.approx(390, abs=1) and one.bandwidth == pytest.approx(64 / 48e-9, rel=0.01)
    every = round_robin(CHIP, 1 << 15, 1, take_turns(CHIP))
    assert simulate(every, HBM2, CHIP, policy, cycles=30_000, warmup=3_000).n_act == pytest.approx(3600, abs=8)


def test_refreshes_come_each_interval() -> None:
    done = simulate(sequential_rows(CHIP, 1 << 15), HBM2, CHIP, cycles=39_100)
    assert done.n_ref == 10
    quick = simulate(sequential_rows(CHIP, 1 << 15), replace(HBM2, tREFI=1950e-9), CHIP, cycles=39_100)
    still = simulate(sequential_rows(CHIP, 1 << 15), HBM2, CHIP, STILL, cycles=39_100)
    assert quick.n_ref == 20 and still.n_ref == 0
    assert quick.bandwidth < done.bandwidth < still.bandwidth


def test_a_closed_page_activates_for_each_burst() -> None:
    done = simulate(sequential_rows(CHIP, 64), HBM2, CHIP, Policy(page="closed", refresh=False), cycles=20_000)
    assert done.row_hits == 0 and done.n_act - done.n_rd in range(-1, CHIP.banks)


def test_a_closed_loop_of_one_is_latency() -> None:
    policy = Policy(refresh=False, outstanding=1, extra_latency=100)
    done = simulate(round_robin(CHIP, 1 << 15, 1, [0]), HBM2, CHIP, policy, cycles=50_000, warmup=1_000)
    # A conflict each time: PRE, ACT 14, RD 14, data 16, two clocks of queues, 100 outside.
    assert 64 / done.bandwidth == pytest.approx((14 + 14 + 16 + 2 + 100) * NS, rel=0.01)


def test_the_client_offers_at_its_interval() -> None:
    done = simulate(sequential_rows(CHIP, 64), HBM2, CHIP, Policy(refresh=False, interval=10), cycles=20_000)
    assert done.accepted == 2000 and done.bandwidth == pytest.approx(6.4e9, rel=0.01)


@st.composite
def finite(draw: st.DrawFn) -> list[Request]:
    bursts = st.builds(Request, st.integers(0, 15), st.integers(0, 5), st.integers(0, 31), st.booleans())
    return draw(st.lists(bursts, max_size=150))


POLICIES = st.builds(
    Policy, page=st.sampled_from(["open", "closed"]), cmd_queue_size=st.integers(1, 8),
    trans_queue_size=st.integers(9, 40), dual_issue=st.booleans(), refresh=st.booleans(),
    interval=st.integers(1, 5), outstanding=st.none() | st.integers(1, 40), extra_latency=st.integers(0, 50),
)  # fmt: skip


@given(finite(), POLICIES)
def test_bursts_are_conserved(stream: list[Request], policy: Policy) -> None:
    done = simulate(stream, HBM2, CHIP, policy, cycles=60_000)
    assert done.accepted == len(stream)
    assert done.n_rd == sum(not r.write for r in stream)
    left = sum(r.write for r in stream) - done.n_wr
    assert 0 <= left <= policy.trans_queue_size - 1  # the last writes wait for more, as nobody asks for them
    assert done.in_flight == 0
    assert done.n_act <= done.n_rd + done.n_wr + 16 * done.n_ref + 16
    assert 0 <= done.idle_seconds <= done.seconds + 1e-12
    assert simulate(stream, HBM2, CHIP, policy, cycles=60_000) == done


@given(finite(), st.integers(1, 64))
def test_the_shared_buffer_conserves_bursts(stream: list[Request], room: int) -> None:
    stream = [r._replace(write=False) for r in stream]
    done = simulate(stream, HBM2, CHIP, Policy("shared", trans_queue_size=room), cycles=60_000)
    assert (done.accepted, done.n_rd, done.in_flight) == (len(stream), len(stream), 0)
    assert simulate(stream, HBM2, CHIP, Policy("shared", trans_queue_size=room), cycles=60_000) == done


@few
@given(
    st.sampled_from(["per_bank", "shared"]), st.integers(1, 16), st.integers(1, 32), st.integers(1, 8),
    st.integers(0, 30), st.integers(10, 60), st.booleans(),
)  # fmt: skip
def test_never_beats_the_bounds(
    structure: Any, banks: int, u: int, ccd: int, faw: int, ras: int, refresh: bool
) -> None:
    timing = Timing(tCCD_L=ccd * NS, tFAW=faw * NS, tRAS=ras * NS)
    order = take_turns(CHIP, banks)
    done = simulate(
        round_robin(CHIP, 1 << 15, u, order), timing, CHIP,
        Policy(structure, refresh=refresh), cycles=14_000, warmup=2_000,
    )  # fmt: skip
    groups = len({b // 4 for b in order})
    limits = bounds(Stream(1, u, banks=banks, groups=groups), timing, CHIP, 0).limits
    # A burst or two a bank may be counted on the wrong side of the ends of the run.
    assert done.bandwidth <= min(limits.values()) * 1.01 + 2 * banks * u * 64 / done.seconds


LONGER = ["tRCDRD", "tRP", "tRAS", "tFAW", "tRFC", "tCCD_L", "tRRD_S", "tRTP"]


@few
@given(st.sampled_from(LONGER), st.integers(8, 40), st.sampled_from([1, 4]), st.sampled_from([1, 8, 16]))
def test_much_longer_times_do_not_help(key: str, more: int, u: int, banks: int) -> None:
    """Within 2 %: in a given phase a longer time can set the banks in a better order."""
    slower = replace(HBM2, tRC=None, **{key: getattr(HBM2, key) + more * NS})  # type: ignore[arg-type]

    def rate(timing: Timing) -> float:
        rows = round_robin(CHIP, 1 << 15, u, take_turns(CHIP, banks))
        return simulate(rows, timing, CHIP, cycles=16_000).bandwidth

    assert rate(slower) <= rate(HBM2) * 1.02


def golden(name: str) -> list[dict[str, str]]:
    with (GOLDEN / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# HBM2_8Gb_x128 is the default of `Timing`. Every count and figure of DRAMsim3, over the 200000 clocks of its run.
LOGS: dict[str, tuple[Any, Policy]] = {
    "D08": (lambda: round_robin(CHIP, 32768, 1, [0]), Policy()),
    "D14": (lambda: round_robin(CHIP, 32768, 32, take_turns(CHIP, 2)), Policy()),
    "D23": (lambda: read_write(CHIP, 32768, 3, 1), Policy()),
    "D29": (lambda: random_visits(CHIP, 32768, 1), Policy(trans_queue_size=1, cmd_queue_size=1)),
    "D54": (lambda: random_visits(CHIP, 32768, 1), Policy(interval=16)),
    "D61": (lambda: random_visits(CHIP, 32768, 1), Policy(page="closed")),
}


@pytest.mark.parametrize("case", LOGS)
def test_equal_to_dramsim3(case: str) -> None:
    line = next(line for line in golden("dramsim3_results.csv") if line["case"] == case)
    source, policy = LOGS[case]
    done = simulate(source(), HBM2, CHIP, policy, cycles=200_000)
    for key in ("n_act", "n_rd", "n_wr", "n_ref", "row_hits"):
        assert getattr(done, key) == int(line[key]), key
    assert done.bandwidth / 1e9 == pytest.approx(float(line["bw_GBs"]), abs=5e-4)
    assert done.latency / NS == pytest.approx(float(line["avg_read_latency_cycles"]), abs=0.06)


@pytest.mark.parametrize("case", ["L01", "L03", "L13"])
def test_equal_to_dramsim3_in_a_closed_loop(case: str) -> None:
    line = next(line for line in golden("dramsim3_closed_loop.csv") if line["case"] == case)
    policy = Policy(
        cmd_queue_size=32, trans_queue_size=128, outstanding=int(line["outstanding_requests"]),
        extra_latency=int(line["extra_latency_cycles"]),
    )  # fmt: skip
    done = simulate(sequential_rows(CHIP, 32768), HBM2, CHIP, policy, cycles=200_000)
    assert done.bandwidth / 1e9 == pytest.approx(float(line["bw_GBs"]), rel=1e-4)


@pytest.mark.parametrize("case, u, room", [("R26", 1, 1), ("R33", 32, 4)])
def test_near_ramulator_with_a_short_buffer(case: str, u: int, room: int) -> None:
    line = next(line for line in golden("ramulator_hbm3_results.csv") if line["case"] == case)
    ck = json.loads((GOLDEN / "ramulator_hbm3_cases.json").read_text())["timing_ck"]
    t = ck["tCK_ps"] * 1e-12
    timing = Timing(
        tCK=t, tRCDRD=ck["nRCDRD"] * t, tRP=ck["nRP"] * t, tRAS=ck["nRAS"] * t, tRC=ck["nRC"] * t,
        tRTP=ck["nRTP"] * t, tRRD_S=ck["nRRDS"] * t, tRRD_L=ck["nRRDL"] * t,
        tFAW=ck["nFAW"] * t, tCCD_S=ck["nCCDS"] * t, tCCD_L=ck["nCCDL"] * t, CL=ck["nCL"] * t, CWL=ck["nCWL"] * t,
        tBL=ck["nBL"] * t, tRFC=ck["nRFC"] * t, tREFI=ck["nREFI"] * t,
    )  # fmt: skip
    chip = Organisation(row_bytes=1024, burst_bytes=32)
    source = random_visits(chip, 16384, 1) if u == 1 else sequential_rows(chip, 16384)
    done = simulate(source, timing, chip, Policy("shared", trans_queue_size=room), 31_200, 3_120)
    assert done.bandwidth / 1e9 == pytest.approx(float(line["ramulator_bw_GBs"]), rel=0.025)


def test_patterns_visit_what_they_say() -> None:
    first = list(itertools.islice(sequential_rows(CHIP, 4), 64))
    assert [r.column for r in first] == [*range(32)] * 2 and {r.bank for r in first} == {0, 4}
    mixed = list(itertools.islice(read_write(CHIP, 4, 3, 1), 400))
    assert sum(r.write for r in mixed) == 100
    assert not {r.bank for r in mixed if r.write} & {r.bank for r in mixed if not r.write}
    rotating = list(itertools.islice(interleaved_groups(CHIP, 4), 8))
    assert [r.bank // 4 for r in rotating] == [0, 1, 2, 3] * 2
    steps = list(itertools.islice(stride(CHIP, 32768, 256, "rorachcobabg"), 5))  # 256 B = 4 bursts = the bank groups
    assert [(r.bank, r.column) for r in steps] == [(0, 0), (1, 0), (2, 0), (3, 0), (0, 1)]
    for u in (1, 3, 32):
        for request in itertools.islice(random_visits(CHIP, 9, u), 200):
            assert request.row < 9 and request.column < 32 and request.bank < 16


@given(st.permutations(["ch", "ra", "bg", "ba", "ro", "co"]), st.integers(0, 2**31))
def test_an_address_map_is_one_to_one(order: list[str], number: int) -> None:
    fields = address_map(CHIP, 32768, "".join(order))
    address = number % (CHIP.banks * 32768 * CHIP.row_bytes) // 64 * 64
    parts = {name: address >> low & size - 1 for name, (low, size) in fields.items()}
    assert sum(value << fields[name][0] for name, value in parts.items()) == address


@pytest.mark.parametrize(
    "make, path",
    [
        (lambda: Policy(page="half"), "$.policy.page"),  # type: ignore[arg-type]
        (lambda: Policy(structure="heap"), "$.policy.structure"),  # type: ignore[arg-type]
        (lambda: Policy(cmd_queue_size=0), "$.policy.cmd_queue_size"),
        (lambda: Policy(outstanding=0), "$.policy.outstanding"),
        (lambda: simulate([], HBM2, CHIP, cycles=10, warmup=10), "$.simulate.cycles"),
        (lambda: simulate(reads((16, 0)), HBM2, CHIP), "$.request.bank"),
        (lambda: simulate(reads((-1, 0)), HBM2, CHIP, SHARED), "$.request.bank"),
        (lambda: simulate([], HBM2, CHIP, Policy("shared", outstanding=1)), "$.policy.structure"),
        (lambda: take_turns(CHIP, 17), "$.pattern.banks"),
        (lambda: address_map(CHIP, 32768, "rorabgbach"), "$.pattern.address_mapping"),
        (lambda: address_map(CHIP, 1000, "rorabgbachco"), "$.pattern.ro"),
    ],
)
def test_one_clear_error(make: Any, path: str) -> None:
    with pytest.raises(SystemSpecError) as caught:
        make()
    assert [issue.where for issue in caught.value.issues] == [path]


@pytest.mark.parametrize("name", ["bounds", "energy", "patterns", "simulate", "types"])
def test_the_examples_in_the_docs(name: str) -> None:
    found = doctest.testmod(importlib.import_module(f"dram_channel.{name}"))
    assert found.attempted and not found.failed
