"""The search of DeepFlow's authors, and the proof beside it, in ``benchmarks/reference``.

``tests/golden/deepflow/search/gd_search_trace.csv`` has 11 of the 47 designs that the program (github.com/nanocad-lab/
DeepFlow, commit 566c192 of 2021-09-11, Apache-2.0) went through: the first nine, and the two that rounding explains.
"""

from __future__ import annotations

import csv
import itertools
import json
import math
import random
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType

import benchmark_path  # noqa: F401
import pytest
from by_path import module_at
from crossflow.attributed import Rate
from crossflow.certificate import POWERED, Box, Halves, best_design, bound, corner, supplies
from crossflow.chip import Chip, Kind
from crossflow.descent import COMPONENTS, descent, start
from crossflow.gemm import products, products_at_least
from crossflow.language_model import Model, Parts, Ring, step_time_at_least
from crossflow.pattern import searched
from crossflow.schedule import backward, backward_at_least
from crossflow.tilings import NoTiles
from crossflow.traced import Shares, Traced, shares_of
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from dfopt.bnb import Bound, Incumbents

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "benchmarks" / "reference"
GOLDEN = ROOT / "tests" / "golden" / "deepflow"
TRACE = GOLDEN / "search" / "gd_search_trace.csv"
BASES = GOLDEN / "age_derived_parameters.json"


PROBLEM = Traced.of(json.loads(BASES.read_text(encoding="utf-8"))["base_inputs"]["exp_config"])
ROWS = list(csv.DictReader(TRACE.read_text(encoding="utf-8").splitlines()))
POWERS = st.tuples(*[st.floats(1e-3, 1.0)] * len(POWERED))
EDGES = st.floats(0.0, 1.0)


@cache
def good() -> tuple[float, Shares]:
    """What the search for a good design finds from one start."""
    seconds, shares = searched(PROBLEM, 0)
    assert shares is not None
    return seconds, shares


def near(seed: int, spread: float) -> Shares:
    """A random design that holds the workload: shares of the good one, each times something, within the budgets."""
    draw = random.Random(seed)
    found = {}
    for budget, shares in good()[1].items():
        drawn = {name: share * math.exp(draw.gauss(0, spread)) for name, share in shares.items()}
        if budget == "area":
            drawn["dram"] = PROBLEM.controllers * draw.uniform(1, 1.5)
        total = sum(drawn.values()) - (drawn["dram"] if budget == "area" else 0)
        left = 1 - (drawn["dram"] if budget == "area" else 0)
        used = draw.choice([1.0, draw.uniform(0.8, 1)])
        found[budget] = {
            name: share if budget == "area" and name == "dram" else share * left / total * used
            for name, share in drawn.items()
        }
    return found


def around(seed: int, edge: float) -> Box:
    """A random box with a share of the perimeter in it."""
    draw = random.Random(seed)
    return Box(edge * draw.choice([1.0, draw.random()]), edge + (1 - edge) * draw.choice([0.0, draw.random() ** 3]))


def test_the_descent_goes_where_the_program_went() -> None:
    first = {
        budget: {name: shares[name] for name in COMPONENTS[budget]} for budget, shares in shares_of(ROWS[0]).items()
    }
    for row, (shares, seconds) in zip(ROWS[:9], descent(PROBLEM, first, held=True), strict=False):
        assert seconds == pytest.approx(float(row["time_s"]), rel=3e-3)
        printed = shares_of(row)
        for budget, names in COMPONENTS.items():
            assert [shares[budget][name] for name in names] == pytest.approx(
                [printed[budget][name] for name in names], abs=1e-3
            )


def test_a_descent_that_is_held_keeps_room_for_the_workload() -> None:
    for shares, seconds in itertools.islice(descent(PROBLEM, start(2), held=True), 8):
        assert math.isfinite(seconds)
        assert all(sum(of.values()) == pytest.approx(1) for of in shares.values())
        assert shares["area"]["dram"] >= PROBLEM.controllers or shares == start(2)
    assert any(math.isinf(seconds) for _, seconds in itertools.islice(descent(PROBLEM, start(2), held=False), 8))


def test_a_design_must_hold_the_workload() -> None:
    assert (PROBLEM.stacks, PROBLEM.chip_area) == (5, 730)  # 1,230 mm2 less five stacks of 100
    shares = good()[1]
    assert PROBLEM.seconds({**shares, "area": {**shares["area"], "dram": PROBLEM.controllers * 0.99}}) == math.inf


@given(st.tuples(*[st.floats(1e-6, 1.0) | st.just(0.25)] * len(Parts._fields)), st.integers(1, 6), st.integers(1, 3))
def test_no_order_of_kernels_ends_before_the_bound(seconds: tuple[float, ...], steps: int, layers: int) -> None:
    model, parts = Model(1, steps, 1, 1, layers), Parts(*seconds)
    assert backward(model, parts) >= backward_at_least(model, parts) * (1 - 1e-12)


def test_a_step_without_gaps_takes_what_the_bound_says() -> None:
    parts = Parts(0, 0, 0, cell_back=2, softmax_back=3, embedding_back=1, cell_gradients=1, softmax_gradients=4,
                  embedding_gradients=4)  # fmt: skip
    assert (
        backward(Model(1, 5, 1, 1, 2), parts)
        == 5 * (3 + 2 * 2 + 1) + 4
        == backward_at_least(Model(1, 5, 1, 1, 2), parts)
    )


@given(
    st.tuples(*[st.integers(1, 3000)] * 3),
    st.tuples(*[st.floats(100, 1e5)] * 2, st.floats(1e3, 1e7)),
    st.tuples(*[st.floats(-3, 3)] * 5),
    st.sampled_from(["wst", "ast", "ost"]),
)
@settings(max_examples=60)
def test_no_tiling_beats_the_bound(shape: tuple, room: tuple, powers: tuple, flow: str) -> None:
    compute, *memories = (10**power for power in powers)
    chip = Chip(1e12 * compute, tuple(1e11 * rate for rate in memories), room, PROBLEM.kind)
    try:
        found = products(chip, [shape], flow)
    except NoTiles:
        assume(False)
    assert products_at_least(chip, [shape], flow)[0] <= found[0] * (1 + 1e-12)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from([0.02, 0.2, 1.0]))
@settings(max_examples=100, deadline=None)
def test_no_design_in_a_box_beats_its_corner(seed: int, other: int, spread: float) -> None:
    shares = near(seed, spread)
    box = around(other, shares["perimeter"]["dram"])
    assert box.low <= shares["perimeter"]["dram"] <= box.high
    powers = tuple(shares["power"][name] for name in POWERED)
    seconds = PROBLEM.seconds(shares)
    assert corner(PROBLEM, box, powers)[0] <= seconds * (1 + 1e-9)
    derived = PROBLEM.derived(shares)
    rates = derived.core.rate, derived.dram.rate, derived.links["in_package"].rate, derived.sram["registers"].rate
    best = supplies(PROBLEM, box, powers)
    assert all(rate <= supply.rate * (1 + 1e-9) for rate, supply in zip(rates, best, strict=True))


@given(POWERS, POWERS, EDGES, EDGES)
@settings(max_examples=100, deadline=None)
def test_the_corner_is_above_its_tangent_planes(at: tuple, other: tuple, one: float, two: float) -> None:
    box = Box(min(one, two), max(one, two))
    seconds, slope = corner(PROBLEM, box, at)
    assume(math.isfinite(seconds))
    plane = seconds + sum(rise * (there - here) for rise, here, there in zip(slope, at, other, strict=True))
    assert corner(PROBLEM, box, other)[0] >= plane * (1 - 1e-9) - 1e-12


@given(POWERS)
@settings(max_examples=50, deadline=None)
def test_the_slope_is_that_of_the_seconds(at: tuple) -> None:
    """The slope lies between those of a small step up and of one down: it may be at a corner of the function."""
    box = Box(0.1, 0.2)
    seconds, slope = corner(PROBLEM, box, at)
    for place, rise in enumerate(slope):
        step = at[place] * 1e-6
        up, down = (
            (corner(PROBLEM, box, (*at[:place], at[place] + sign * step, *at[place + 1 :]))[0] - seconds)
            / (sign * step)
            for sign in (1, -1)
        )
        slack = 1e-4 * abs(rise) + 1e-9 * seconds / step
        assert down - slack <= rise <= up + slack


def step_of_rates(core: float, dram: float, links: float, registers: float, kind: Kind = PROBLEM.kind) -> float:
    """Least seconds of a step on a chip that only these rates hold back."""
    chip = Chip(core, (registers, math.inf, math.inf, dram), (math.inf,) * 3, kind)
    return step_time_at_least(chip, PROBLEM.model, Ring(64, links, 5e-6))


@given(
    st.tuples(st.floats(11, 15), st.floats(8, 11), st.floats(10, 13), st.floats(11, 16)),
    st.integers(0, 3),
    st.floats(0, 3),
)
@example((12.0, 8.0, 12.0, 12.75), 0, 1.0)  # registers come to bind, and their latency with them
@settings(max_examples=100, deadline=None)
def test_the_bound_falls_with_every_rate_whatever_the_latencies(powers: tuple, place: int, more: float) -> None:
    slow = replace(PROBLEM.kind, latencies=(1e-2,) * 4)
    rates = [10**power for power in powers]
    faster = [rate * 10 ** (more * (at == place)) for at, rate in enumerate(rates)]
    assert step_of_rates(*faster, kind=slow) <= step_of_rates(*rates, kind=slow) * (1 + 1e-12)


@given(st.tuples(*[st.floats(10, 16)] * 4), st.tuples(*[st.floats(10, 16)] * 4))
@settings(max_examples=50, deadline=None)
def test_attributed_seconds_are_the_seconds_and_a_bound_at_other_rates(powers: tuple, others: tuple) -> None:
    rates, elsewhere = [10**power for power in powers], [10**power for power in others]
    kinds = [tuple(float(place == one) for place in range(4)) for one in range(4)]
    found = step_of_rates(*(Rate(rate, kind) for rate, kind in zip(rates, kinds, strict=True)))
    assert found.seconds == step_of_rates(*rates)
    constant = found.seconds - sum(work / rate for work, rate in zip(found.work, rates, strict=True))
    there = constant + sum(work / rate for work, rate in zip(found.work, elsewhere, strict=True))
    assert there <= step_of_rates(*elsewhere) * (1 + 1e-9) + 1e-9 * found.seconds


@pytest.mark.parametrize("seed", range(4))
def test_no_design_in_a_box_is_below_its_bound(seed: int) -> None:
    draw = random.Random(seed)
    edge = good()[1]["perimeter"]["dram"]
    box = around(seed, edge * draw.choice([1, 1, 0.7, 3]))
    least, seen = bound(PROBLEM, box), 0
    for other, spread in itertools.product(range(30), (0.02, 0.3, 1.0)):
        shares = near(1000 * seed + other, spread)
        within = draw.uniform(*box)
        shares = {**shares, "perimeter": {"dram": within, "in_package": 1 - within}}
        seconds = PROBLEM.seconds(shares)
        assert seconds >= least
        seen += math.isfinite(seconds)
    assert seen > 20


def test_corner_and_bound_are_hardly_below_the_best_design_at_its_perimeter() -> None:
    seconds, shares = good()
    box = Box(shares["perimeter"]["dram"], shares["perimeter"]["dram"])
    corner_s = corner(PROBLEM, box, tuple(shares["power"][name] for name in POWERED))[0]
    assert seconds * (1 - 1e-3) < corner_s <= seconds
    assert seconds * (1 - 1e-3) < bound(PROBLEM, box) <= seconds


def test_a_bound_stops_at_its_cutoff_and_knows_what_cannot_be_had() -> None:
    assert bound(PROBLEM, Box(0.0, 1.0), 0.1) >= 0.1
    assert bound(PROBLEM, Box(0.0, 0.0)) == math.inf  # DRAM has no edge
    assert bound(PROBLEM, Box(1.0, 1.0)) == math.inf  # links have none


def test_halves_of_a_box_are_all_of_it() -> None:
    ((low, middle), _), ((again, high), _) = Halves().children(Box(0.25, 0.75), Bound(0.0), Incumbents(1, 0.0))
    assert (low, middle, again, high) == (0.25, 0.5, 0.5, 0.75)


def test_the_best_design_is_proven() -> None:
    found = best_design(PROBLEM, gap=2e-3, time_limit=60, starts=1)
    assert found.best < 0.2574 < min(float(row["time_s"]) for row in ROWS)
    assert found.gap <= 2e-3 and found.solution is not None
    assert PROBLEM.seconds(found.solution) == found.best
    assert all(sum(shares.values()) <= 1 + 1e-9 for shares in found.solution.values())
    whole = sorted(leaf.region for leaf in found.leaves)
    assert whole[0].low == 0 and whole[-1].high == 1
    assert all(one.high == other.low for one, other in itertools.pairwise(whole))


def beside(folder: Path, lines: list[str]) -> Path:
    """A trace with its configurations."""
    shutil.copy(BASES, folder)
    (folder / TRACE.name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / TRACE.name


@pytest.fixture
def tables() -> ModuleType:
    return module_at(REFERENCE / "search_tables.py")


def test_what_rounding_explains_is_said(tables: ModuleType, tmp_path: Path) -> None:
    trace = beside(tmp_path, TRACE.read_text(encoding="utf-8").splitlines())
    designs, again = tables.traced(trace)
    assert designs.met and designs.seen.startswith("9 of 11 within 0.3%, worst 4.1%; 2 of the other 2")
    assert again.seen.startswith("its first 9 of 11")


def test_a_time_that_is_off_is_seen(tables: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "TRIES", 20)
    head, row, *rest = TRACE.read_text(encoding="utf-8").splitlines()
    fields = row.split(",")
    fields[1] = str(float(fields[1]) * 1.05)
    designs, _ = tables.traced(beside(tmp_path, [head, ",".join(fields), *rest]))
    assert designs.met is False and "2 of the other 3" in designs.seen


def test_every_start_has_its_line(tables: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SEARCHES": 1, "STARTS": 2, "STEPS": 3, "GAP": 5e-3}.items():
        monkeypatch.setattr(tables, name, value)
    best, *descents = tables.searched(beside(tmp_path, TRACE.read_text(encoding="utf-8").splitlines()))
    assert best.seen.startswith("0.2573") and "theirs 0.25790 s" in best.seen
    assert [line.table.split(", ")[-1] for line in descents] == ["start 0", "start 1", "all starts"] * 2
    assert all("31 evaluations" in line.seen for line in descents if "start " in line.table)  # 3 designs, 2 gradients
