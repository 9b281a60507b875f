"""`dfopt check` of results whose blocks were generated: the prices in the file are the proof, and only if they hold."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import LEVELS, share

import dfopt as df
from dfopt.documents.result import Result
from dfopt.documents.system import System
from dfopt.fusion import pieces
from dfopt.search import candidate as prepared
from dfopt.search.verify import Verification, verify


@pytest.fixture(autouse=True, scope="module")
def no_lattice() -> Iterator[None]:
    """Five down-sets are few enough to list: nothing but a single kernel or two is searched exhaustively.

    Every graph is too wide for its pieces to be listed.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepared, "_DOWN_SETS", 5)
        patch.setattr(pieces, "_LONG", 2.0)
        yield


def with_sram(name: str, sram: str | None) -> System:
    """A system of the zoo; with its SRAM cut, on links fast enough that they do not decide."""
    data = df.load_system(name).to_data()
    if sram is not None:
        data["chip"]["sram"]["capacity"] = sram
        data["network"][0]["link_bandwidth"] = "400 GB/s"
    return System.model_validate(data)


def solved(system: str = "sn10-8-ring", sram: str | None = None, **options: Any) -> Result:
    options = {"tp": 8, "formulation": "columns", "assumptions": LEVELS, **options}
    found = df.optimize(df.load_graph("gpt3-175b"), with_sram(system, sram), **options)
    return Result.from_data(json.loads(json.dumps(found.to_data())))


def prices(result: Result) -> list[tuple[int, int]]:
    """Plan and solve of every certificate in a result."""
    return [(i, j) for i, plan in enumerate(result.plans) for j, solve in enumerate(plan.solves) if solve.kernel_prices]


def forged(result: Result, at: tuple[int, int] | None = None, **changes: Any) -> Result:
    """A result with changes, of one solve where ``at`` says which, sealed again."""
    if at is not None:
        plans, (i, j) = list(result.plans), at
        solves = list(plans[i].solves)
        solves[j] = solves[j].model_copy(update=changes)
        plans[i] = plans[i].model_copy(update={"solves": tuple(solves)})
        changes = {"plans": tuple(plans)}
    return result.model_copy(update=changes).sealed()


def claiming(result: Result, level_bound: float) -> Result:
    """A result of one plan that claims another bound under its sharding, everywhere it says something of it."""
    gap = max(0.0, 1 - level_bound / result.value)
    (record,) = result.plans
    claimed = {"level_bound": level_bound, "status": "optimal_per_level" if gap == 0.0 else result.status}
    record = record.model_copy(update={"level_bound": level_bound, "gap": gap})
    return forged(result, plans=(record,), level_gap=gap, **claimed)


OPTIMAL = [
    {},
    {"sram": "60 MB"},
    {"sram": "60 MB", "p_max": 9},
    {"pin_partition": {"FFN0": 1}},
    {"tp": None, "system": "sn10-8-torus"},  # plans that the certificate of each excludes
]
WITH_A_GAP = [
    {"sram": "100 MB"},
    {"assumptions": "dfmodel", "p_max": 4},  # exactly 4 partitions: a partition has a price as well
]


@pytest.mark.parametrize("options", OPTIMAL, ids=str)
def test_what_generation_proved_is_verified_optimal(options: dict[str, Any]) -> None:
    result = solved(**options)
    assert result.level_gap == 0.0 and prices(result)
    found = verify(result)
    assert found.ok, found.problems
    assert found.verdict.startswith("verified optimal")


@pytest.mark.parametrize("options", WITH_A_GAP, ids=str)
def test_what_generation_bounded_is_verified_within_its_gap(options: dict[str, Any]) -> None:
    result = solved(**options)
    assert result.status == "limit_with_solution" and prices(result)
    found = verify(result)
    assert found.ok, found.problems
    assert found.level_gap == pytest.approx(result.level_gap, abs=2e-6)


def test_what_the_matrices_proved_after_generation_is_verified() -> None:
    result = solved(sram="100 MB", formulation="auto")
    assert result.level_gap == 0.0
    assert verify(result).ok


# -- forgeries --------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=WITH_A_GAP, ids=str)
def bounded(request: pytest.FixtureRequest) -> Result:
    return solved(**request.param)


@pytest.fixture(scope="module")
def truth(bounded: Result) -> float:
    """The gap that there really is, by the shortest path through the lattice that generation was kept from."""
    asked = bounded.request
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepared, "_DOWN_SETS", 20_000)
        best = df.optimize(
            bounded.graph, bounded.system, tp=asked.tp, p_max=asked.p_max, assumptions=bounded.assumptions
        )
    assert best.level_gap == 0.0
    gap = 1 - best.step_time_s / bounded.step_time_s
    assert gap < bounded.level_gap - 1e-3
    return gap


def harmless(found: Verification, truth: float) -> bool:
    """Whether a forgery is caught, or what it makes believe is true."""
    return not found.ok or (found.level_gap is not None and found.level_gap >= truth - 1e-6)


@pytest.mark.parametrize("part", [0.0, 0.5])
def test_a_bound_without_prices_behind_it_is_caught(bounded: Result, part: float) -> None:
    found = verify(claiming(bounded, bounded.value * (1 - part * bounded.level_gap)))
    assert [problem.partition(":")[0] for problem in found.problems] == ["$.plans[0].level_bound", "$.level_gap"]
    assert found.level_gap == pytest.approx(bounded.level_gap, abs=2e-6)


def test_a_bound_with_prices_made_up_for_it_is_caught(bounded: Result) -> None:
    (at,) = prices(bounded)
    solve = bounded.plans[at[0]].solves[at[1]]
    factor = 1 / (1 - bounded.level_gap) * 1.0001
    higher = tuple(factor * price for price in solve.kernel_prices)
    lie = forged(bounded, at, kernel_prices=higher, partition_price=factor * solve.partition_price)
    assert not verify(claiming(lie, lie.value)).ok


@share(0.05)
@given(data=st.data(), factor=st.sampled_from([1.0001, 1.1, 2.0]))
def test_a_raised_price_proves_no_more_than_is_true(
    bounded: Result, truth: float, data: st.DataObject, factor: float
) -> None:
    (at,) = prices(bounded)
    solve = bounded.plans[at[0]].solves[at[1]]
    k = data.draw(st.integers(0, len(solve.kernel_prices)))
    if k == len(solve.kernel_prices):
        lie = forged(bounded, at, partition_price=factor * (solve.partition_price + 1e-3 * solve.bound))
    else:
        higher = list(solve.kernel_prices)
        higher[k] += (factor - 1) * max(abs(higher[k]), 0.01 * solve.bound)
        lie = forged(bounded, at, kernel_prices=tuple(higher))
    assert harmless(verify(lie), truth)
    assert harmless(verify(claiming(lie, lie.value)), truth)


def test_prices_that_do_not_fit_the_stage_prove_nothing(bounded: Result) -> None:
    (at,) = prices(bounded)
    kept = bounded.plans[at[0]].solves[at[1]].kernel_prices
    for wrong in ((), kept[1:], (*kept, 0.0), kept[::-1], (float("nan"), *kept[1:])):
        found = verify(forged(bounded, at, kernel_prices=wrong))
        assert not found.ok and found.level_gap is not None and found.level_gap > bounded.level_gap


@pytest.mark.parametrize(("left", "holds"), [(np.inf, True), (1.0, False)])
def test_a_bound_shown_with_little_dram_left_is_kept_for_no_other_plan(
    monkeypatch: pytest.MonkeyPatch, left: float, holds: bool
) -> None:
    """Plans that give a chip the same layer may leave it different amounts of DRAM."""
    from types import SimpleNamespace

    from dfopt.search import proving as module

    def cut_off(*_: object, cutoff: float, **__: object) -> None:
        raise module.CutOff(cutoff, None, None)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "optimize_intrachip", cut_off)
    work = SimpleNamespace(low_s=1.0)
    tables, limits = SimpleNamespace(bytes_g=np.array([2.0, 3.0])), SimpleNamespace(dram_left=left)
    mine = module._Priced(tables, limits, work)  # type: ignore[arg-type]
    assert module._solved_low(mine, 1.0, 7.0) == (7.0, "")
    assert work.low_s == (7.0 if holds else 1.0)
