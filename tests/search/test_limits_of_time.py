"""A solve that is cut short: what came out is said in the right words, with a bound that is one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from counted_clock import over_when
from small_systems import rings, small_system

import dfopt as df
import dfopt.search as optimizer
from dfopt.bnb import LeafAnswer, OutOfTime
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.plan import Plan
from dfopt.documents.plan_records import PlanRecord
from dfopt.documents.request import Request
from dfopt.documents.result import LOOSE, Result, status_words
from dfopt.documents.system import NetworkDim, System
from dfopt.errors import Infeasible, NoSolution, SolverFailure
from dfopt.fusion import intrachip
from dfopt.judge import evaluate
from dfopt.milp import Solution, Termination, worker
from dfopt.proof.plans import Proven
from dfopt.regions import branching, composed, heuristics, lattices, leaves, relaxations
from dfopt.search import other_code
from dfopt.search.graph_search import GraphSearch
from dfopt.search.space import together
from dfopt.search.starts import greedy, proposing
from dfopt.search.state import SearchState
from dfopt.search.verify import verify
from dfopt.search.workload_search import WorkloadSearch
from dfopt.setting.instance import Setting
from dfopt.sharding import interchip
from dfopt.solving.options import Options

LEVELS = Assumptions(sharding_objective="seconds", overlap="none")


def hard(count: int = 40, seed: int = 1) -> Graph:
    """A wide random DAG: its fusion takes far longer than the tests wait."""
    draw = np.random.default_rng(seed)
    kernels = [Kernel(name=f"k{i}", op="elementwise", m=64, n=int(draw.integers(4, 64))) for i in range(count)]
    ends = {(int(draw.integers(max(0, i - 12), i)), i) for i in range(1, count) for _ in range(2)}
    tensors = tuple(Tensor(src=f"k{a}", dst=f"k{b}") for a, b in sorted(ends))
    return Graph(name="hard", kernels=tuple(kernels), tensors=tensors, repeat=4)


def chip(*dims: NetworkDim) -> System:
    return small_system(*dims, tiles=100, peak=1e6, sram=6e4, bandwidth=5e4)


def ends_with_a_mapping(monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Time is up as soon as a mapping is found; gives whether that is so."""
    found, judged = [False], heuristics.judged

    def judge(*given: object) -> object:
        found[0] = True
        return judged(*given)

    monkeypatch.setattr(heuristics, "judged", judge)
    over_when(monkeypatch, lambda: found[0])
    return lambda: found[0]


@pytest.fixture(scope="module")
def cut_short() -> Result:
    with pytest.MonkeyPatch.context() as patched:
        ends_with_a_mapping(patched)
        return optimizer.solve(hard(), chip(), assumptions=LEVELS, p_max=20)


def test_a_limit_returns_the_best_found_with_its_gap(cut_short: Result) -> None:
    assert cut_short.status == "limit_with_solution"
    assert 0 < cut_short.level_gap <= 1
    assert cut_short.level_bound < cut_short.step_time_s
    assert cut_short.level_gap == pytest.approx((cut_short.step_time_s - cut_short.level_bound) / cut_short.step_time_s)
    assert not cut_short.score.violations
    record = cut_short.plans[0]
    assert record.status == "limit" and record.level_bound == cut_short.level_bound
    assert [s.termination for s in record.solves if s.problem == "intrachip"] == [Termination.LIMIT_WITH_SOLUTION.value]


def test_more_time_never_gives_a_worse_answer(cut_short: Result) -> None:
    """Nor does a solve that is cut short make a limit of time look like nothing left to do."""
    with suppress(NoSolution):  # a busy machine may have no time for any
        longer = optimizer.solve(hard(), chip(), assumptions=LEVELS, p_max=20, time_limit=3.0)
        assert longer.step_time_s <= cut_short.step_time_s * (1 + 1e-9)
        assert longer.step_time_s >= cut_short.level_bound * (1 - 1e-9)
        assert longer.level_gap == 0 or {record.note for record in longer.plans} == {"time limit"}


def test_it_comes_back_in_time() -> None:
    """With a mapping or without, if there was no time for any."""
    with suppress(NoSolution):
        assert optimizer.solve(hard(), chip(), assumptions=LEVELS, p_max=20, time_limit=0.1).seconds < 5


def test_a_gap_that_was_asked_for_is_not_called_optimal() -> None:
    result = optimizer.solve(hard(14), chip(), assumptions=LEVELS, p_max=6, gap=0.5, time_limit=20)
    assert result.gap <= 0.5 + 1e-9
    assert (result.status == "optimal") == (result.gap == 0.0)
    assert result.status in ("optimal", "gap_reached")


JOINT = LEVELS.with_(sharding_objective="joint")


@pytest.mark.parametrize("asked", [0.0, 0.9])
def test_too_many_down_sets_are_not_called_the_gap_that_was_asked_for(asked, monkeypatch) -> None:
    """Where blocks are made on demand the answer is that of all blocks, unless a gap is asked for."""
    graph, system, whole = df.load_graph("gpt3-175b"), df.load_system("sn10-8-ring"), JOINT.with_(token_blocks="none")
    best = optimizer.solve(graph, system, tp=8, assumptions=whole, sensitivity=False)
    for name in ("MOST_SETS", "MOST_OF_LIBRARY"):
        monkeypatch.setattr(lattices, name, 10)
    result = optimizer.solve(graph, system, tp=8, assumptions=whole, gap=asked, sensitivity=False)
    assert result.bound * (1 - 1e-9) <= best.value <= result.value * (1 + 1e-9)
    if asked:
        assert result.gap < asked and result.status == ("gap_reached" if result.gap else "optimal")
    else:
        assert result.status == best.status == "optimal" and verify(result).ok


@pytest.mark.parametrize("during", ["proof", "search"])
def test_ctrl_c_during_a_check_finds_nothing_wrong(during, monkeypatch) -> None:
    """What was not shown because nobody waited for it is no false claim."""
    result = optimizer.solve(hard(14), chip(RING), tp=2, assumptions=JOINT, sensitivity=False)

    def pressed(*given: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(relaxations.LeastStep, "answers", pressed)

    def nothing(graph: Graph, system: System, chosen: Assumptions, said: dict, *_: object) -> Proven:
        return Proven(dict.fromkeys(said, "left to the search"))

    monkeypatch.setattr(other_code, "proven", pressed if during == "proof" else nothing)
    with pytest.raises(KeyboardInterrupt):
        verify(result)


TWO = Graph(
    name="two",
    kernels=tuple(Kernel(name=n, op="gemm", m=8, k=8, n=8) for n in "ab"),
    tensors=(Tensor(src="a", dst="b"),),
    repeat=4,
)
[RING] = rings(2, rate=1e4)


def ended(solution: Solution, how: Termination) -> Solution:
    lost = how in (Termination.LIMIT_NO_SOLUTION, Termination.INTERRUPTED_NO_SOLUTION, Termination.FAILED)
    changes = (
        {"x": None, "objective": float("inf"), "bound": -float("inf"), "gap": float("inf")} if lost else {"gap": 0.5}
    )
    return replace(solution, termination=how, **changes)


@pytest.mark.parametrize("how", [Termination.LIMIT_NO_SOLUTION, Termination.FAILED])
def test_a_sharding_that_was_not_found_in_time_is_not_called_infeasible(how, monkeypatch) -> None:
    """A limit proves nothing: the plan must not be recorded as one that no mapping fits."""
    real = interchip.solve
    monkeypatch.setattr(interchip, "solve", lambda *a, **k: ended(real(*a, **k), how))
    wanted = NoSolution if how is Termination.LIMIT_NO_SOLUTION else SolverFailure
    with pytest.raises(wanted):
        optimizer.solve(TWO, chip(RING), tp=2, assumptions=LEVELS.with_(overlap="auto"))


@pytest.mark.parametrize("how", [Termination.LIMIT_NO_SOLUTION, Termination.INTERRUPTED_NO_SOLUTION])
def test_a_fusion_that_the_solver_did_not_even_begin_returns_its_start(how, monkeypatch) -> None:
    """Completing a start takes the solver time too; when there is none, the start is still an answer."""
    monkeypatch.setattr(intrachip, "solve", lambda *a, **k: ended(intrachip.closed_form(1.0, 0.0, ""), how))
    result = optimizer.solve(hard(), chip(), assumptions=LEVELS, formulation="assignment", p_max=20)
    assert result.status in ("limit_with_solution", "interrupted_with_solution")
    assert 0 < result.gap <= 1


def test_a_sharding_cut_short_is_not_called_optimal(monkeypatch) -> None:
    """`optimal` says that the sharding of every plan is optimal for the inter-chip problem."""
    real = interchip.solve
    monkeypatch.setattr(interchip, "solve", lambda *a, **k: ended(real(*a, **k), Termination.LIMIT_WITH_SOLUTION))
    result = optimizer.solve(TWO, chip(RING), tp=2, assumptions=LEVELS.with_(overlap="auto"))
    assert result.status == "limit_with_solution"


@pytest.mark.parametrize(
    ("formulation", "objective"), [("columns", "seconds"), ("assignment", "seconds"), ("assignment", "joint")]
)
def test_ctrl_c_during_any_solve_stops_the_search(formulation, objective, monkeypatch) -> None:
    """Whichever solve hears it, of sharding, of its ties, of fusion or of both: none begins with time left after it."""
    assumptions = LEVELS.with_(sharding_objective=objective)
    real = worker._wait
    wide = (8, 16, 4, 32, 8, 16, 8)
    row = tuple(Kernel(name=f"k{i}", op="gemm", m=wide[i + 1], k=wide[i], n=8) for i in range(6))
    graph = Graph(name="row", kernels=row, tensors=tuple(Tensor(src=f"k{i}", dst=f"k{i + 1}") for i in range(5)))
    calls: list[float] = []
    answered: list[bool] = []

    def pressed_at(number: int) -> Callable[..., str]:
        def wait(thread: worker.Worker, deadline: float, look: Callable[[bool], None]) -> str:
            calls.append(deadline - time.perf_counter())
            if len(calls) == number:
                raise KeyboardInterrupt
            return real(thread, deadline, look)

        return wait

    def solved(number: int) -> bool:
        calls.clear()
        monkeypatch.setattr(worker, "_wait", pressed_at(number))
        known = None
        with suppress(KeyboardInterrupt):  # nothing was known yet
            known = optimizer.solve(
                graph, chip(RING), assumptions=assumptions, formulation=formulation, sensitivity=False
            )
        pressed = number <= len(calls)
        assert not pressed or known is None or known.level_gap == 0 or known.status == "interrupted_with_solution"
        answered.append(pressed and known is not None)
        return pressed

    number = 1
    while solved(number):
        assert all(left < 1.5 for left in calls[number:]), number
        number += 1
    assert number > 4 and any(answered)


def test_no_size_fits_only_if_that_is_known_of_each() -> None:
    """One plan that is open is enough; then the answer is what no mapping of any size is below."""
    system, record = chip(RING), PlanRecord(plan=Plan(tp=2), status="infeasible", bound=None, note="too big")
    settings = [Setting(TWO.model_copy(update={"batch": 2, "microbatch": size}), system, JOINT) for size in (1, 2)]
    shared = SearchState(Options(Request(tp=2)))
    workload = WorkloadSearch([GraphSearch(setting, shared) for setting in settings])
    one, other = workload.graphs
    for graph in (one, other):
        graph.records = [record]
    assert "TP2 PP1 DP1: too big" in str(workload.failure()) and isinstance(workload.failure(), Infeasible)
    for graph, bound in ((one, 2.0), (other, 1.0)):
        graph.records = [record, record.model_copy(update={"status": "limit", "bound": bound})]
        failure = workload.failure()
        assert isinstance(failure, NoSolution) and failure.bound == bound
    workload.state.stopped = "Ctrl-C"
    assert isinstance(workload.failure(), KeyboardInterrupt)


def test_all_plans_of_all_graphs_are_counted_where_none_has_a_solution(monkeypatch: pytest.MonkeyPatch) -> None:
    """When time is up as soon as all are bounded, and when it is before any is listed."""
    monkeypatch.setattr(proposing, "_LARGE", np.inf)
    alone = df.optimize("gpt2-small", "sn10-8-ring", microbatch=1, sensitivity=False)
    plans = len({record.plan for record in alone.plans})  # in each of four sizes
    monkeypatch.setattr(heuristics.Rounding, "due", lambda *_: False)
    monkeypatch.setattr(leaves.Enumeration, "solve", lambda leaf, region, low, *_: LeafAnswer([], low.value))
    listed, real = [0], branching.Listing.children

    def children(rule: branching.Listing, region: branching.Branch, *given: object) -> object:
        found = real(rule, region, *given)
        listed[0] += isinstance(region, branching.Unlisted)
        return found

    monkeypatch.setattr(branching.Listing, "children", children)
    over_when(monkeypatch, lambda: listed[0] == 4)
    with pytest.raises(NoSolution, match=f"; {4 * plans} of {4 * plans} plans are open\\)"):
        df.optimize("gpt2-small", "sn10-8-ring")
    listed[0] = 0
    over_when(monkeypatch, lambda: listed[0] == 1)
    words = f"{plans} of {plans} plans are open, and of 3 of 4 graphs not all plans are listed"
    with pytest.raises(NoSolution, match=words):
        df.optimize("gpt2-small", "sn10-8-ring")
    over_when(monkeypatch, lambda: True)
    with pytest.raises(NoSolution, match="0 of 0 plans are open, and of 4 of 4 graphs not all plans are listed"):
        df.optimize("gpt2-small", "sn10-8-ring")


def test_ctrl_c_while_plans_are_bounded_loses_no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def pressed(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(proposing, "_LARGE", -1)
    monkeypatch.setattr(GraphSearch, "_bound", pressed)
    result = df.optimize("gpt2-small", "sn10-8-ring", tp=8)
    assert result.status == "interrupted_with_solution" and 0 < result.bound <= result.value
    assert result.proof.startswith("of 0 plans with 4 microbatch sizes: all of 4 other graphs left open unlisted, by")


def test_a_wide_graph_has_a_mapping_before_its_blocks_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Listing may take minutes, and proves; a first mapping takes a moment, of one plan in every number of tiles."""

    def listing(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(lattices, "arcs_among", listing)
    assumptions = Assumptions(overlap="none")
    with pytest.raises(KeyboardInterrupt):
        optimizer.solve(hard(greedy._WIDE - 1), chip(*rings(2)), assumptions=assumptions)
    found = optimizer.solve(hard(greedy._WIDE), chip(*rings(2)), assumptions=assumptions)
    assert found.status == "interrupted_with_solution" and 0 < found.gap < 1
    assert evaluate(found.mapping, found.graph, found.system, found.assumptions).step_time_s == found.value


def test_the_clock_is_asked_before_more_is_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    """When time is up no plan is looked at again, however many are left, and each keeps its bound."""
    late, answers = ends_with_a_mapping(monkeypatch), relaxations.PathBound.answers

    def asked(*given: object) -> object:
        assert not late()
        return answers(*given)

    monkeypatch.setattr(relaxations.PathBound, "answers", asked)
    graph = df.load_graph("gpt2-small", mode="training", batch=64)
    result = df.optimize(graph, "sn10-8-torus", sensitivity=False)
    assert late() and result.status == "limit_with_solution" and 0 < result.gap < 1
    assert {record.note for record in result.plans if record.status == "limit"} >= {"time limit"}


@pytest.mark.parametrize("checks", [0, 10**6])
def test_a_graph_whose_plans_are_not_all_bounded_in_time_is_given_up_whole(checks, monkeypatch) -> None:
    """Wherever the time ends: with a bound that holds, no record of single plans, and a space of what was listed."""
    real, left = GraphSearch._bound, [checks]

    def bound(graph: GraphSearch, plans: Sequence[Plan]) -> None:
        if graph.setting.graph.microbatch == 1:
            left[0] -= 1
            if left[0] < 0:
                raise OutOfTime
        real(graph, plans)

    drawn = [df.load_graph("llama-3.1-8b", batch=2, microbatch=size) for size in (2, 1)]
    alone = df.optimize(drawn[0], "h100-8", sensitivity=False, tp=8)
    monkeypatch.setattr(GraphSearch, "_bound", bound)
    result = df.optimize(drawn[0], "h100-8", variants=drawn[1:], sensitivity=False, tp=8)
    assert result.value >= alone.value * (1 - 1e-9)
    given_up = {(one.microbatch, one.status): one.bound for one in result.apart or ()}
    assert len(given_up) == (checks < 10**6)
    assert all(0 < low <= alone.value for low in given_up.values())
    monkeypatch.undo()
    assert verify(result).ok, verify(result)


def test_no_plan_listed_is_an_empty_space() -> None:
    assert (together([]).plans, together([]).log10_total, together([]).exact) == (0, 0.0, False)


def test_a_search_with_nothing_left_to_do_says_so_and_blames_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where paths through a layer that may matter are too many to list."""
    monkeypatch.setattr(composed, "_MOST", 5)
    graph = df.load_graph("llama-3.1-8b", mode="training", batch=64)
    result = df.optimize(graph, "sn40l-16-ddr", dp=16, zero=0, offload="any", time_limit=500, sensitivity=False)
    open_ = [record for record in result.plans if record.status == "limit"]
    assert result.gap > 0 and {record.note for record in open_} == {LOOSE}
    assert status_words(result).startswith(LOOSE)
    assert f"{len(open_)} open with nothing left to search" in result.proof
    # of one that was cut off when all of its time was spent
    late = tuple(record.model_copy(update={"note": "time limit"}) for record in open_)
    stopped = result.model_copy(update={"plans": late, "seconds": 500.0})
    assert status_words(stopped).startswith("stopped by the time limit")
