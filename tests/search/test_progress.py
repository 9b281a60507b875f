"""A search as it goes on: its starts, what it reports, what is said where it is stopped, and what comes after it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from io import StringIO
from itertools import chain
from typing import Any

import pytest
from counted_clock import over_when
from hypothesis import given
from hypothesis import strategies as st
from strategies import World, worlds

import dfopt as df
from dfopt.documents.graph import Graph
from dfopt.documents.request import Limit, Objective, Request
from dfopt.documents.result import Result, status_words
from dfopt.documents.system import System
from dfopt.errors import DfoptError, Infeasible
from dfopt.judge import evaluate
from dfopt.regions import lattices
from dfopt.search import heat_aware, optimization, workload_search
from dfopt.search.graph_search import GraphSearch
from dfopt.search.starts import begin, proposing
from dfopt.search.starts.textbook import VARIATIONS, shardings, textbook_plans
from dfopt.search.state import SearchState
from dfopt.search.verify import verify
from dfopt.search.workload_search import WorkloadSearch
from dfopt.setting.instance import Setting
from dfopt.setting.plans import asked_plans
from dfopt.show.progress import ProgressLine
from dfopt.solving import matrices
from dfopt.solving.options import Options, Progress
from dfopt.solving.solved import Solved


def started(
    graph: Graph, system: System, request: Request | None = None, assumptions: df.Assumptions | None = None
) -> tuple[list[Solved], WorkloadSearch, list[Progress]]:
    """The starts of a graph whatever the size of its space, their search, and what was reported of it."""
    request, reports = request or Request(), list[Progress]()
    chosen = request.assuming(assumptions or df.Assumptions())
    setting = Setting.resolved(graph, system, chosen)
    workload = WorkloadSearch([GraphSearch(setting, SearchState(Options(request, progress=reports.append)))])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(proposing, "_LARGE", -1)
        begin(workload.state, [graph.space for graph in workload.graphs])
    return workload.state.solutions, workload, [report for report in reports if not report.part]


@given(worlds(sharding_objective=["joint"], empty_partitions=["allow"]), st.sampled_from([1, 2]))
def test_a_start_is_legal_and_changes_no_optimum(world: World, top: int) -> None:
    mappings, workload, _ = started(world.graph, world.system, Request(top=top), world.assumptions)
    chosen = workload.graphs[0].setting.assumptions
    plans = asked_plans(world.graph, world.system, Request(top=top), chosen)[0] if mappings else []
    for solved in mappings:
        score = evaluate(solved.mapping, world.graph, world.system, chosen)
        assert not score.violations and score.step_time_s == pytest.approx(solved.value, rel=1e-12)
        assert solved.plan in plans
    values = []
    for large in (-1, float("inf")):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(proposing, "_LARGE", large)
            try:
                result = df.optimize(world.graph, world.system, assumptions=world.assumptions, top=top)
            except Infeasible:
                values.append([])
                assert not mappings
                continue
            assert result.gap == 0.0
            values.append([result.value, *(other.value for other in result.alternatives or ())])
    assert values[0] == pytest.approx(values[1], rel=1e-9)
    assert all(solved.value >= values[1][0] * (1 - 1e-9) for solved in mappings)


def dense(**parameters: Any) -> Graph:
    return df.load_graph("llama-3.1-8b", mode="training", **{"batch": 32, "microbatch": 1, **parameters})


REQUESTS: dict[str, dict[str, Any]] = {
    "degree": {"tp": 2},
    "pipeline": {"pp": 4, "interleave": 2},
    "dims": {"tp_dims": ("nvlink[2@4]",)},
    "ZeRO": {"zero": (3,)},
    "no ZeRO": {"zero": (0,), "pp": 2},
    "chunks": {"schedule": "interleaved"},
    "one chunk": {"schedule": "1f1b", "pp": 4},
    "ends": {"pp": 4, "first_layers": 6, "last_layers": 7},
    "no tokens": {"sequence_parallelism": "none", "tp": 4},
    "tokens": {"sequence_parallelism": "force", "tp": 4},
    "pins": {"pin_sharding": {"RMSNorm_1": "none", "O_Proj": "k"}, "tp": 4},
    "overlap": {"tensor_overlap": "ring", "tp": 8},
    "groups": {"zero": (1,), "zero_replicas": (2,)},
    "second axis": {"cp": 2, "tp": 2},
}


@pytest.mark.parametrize("asked", REQUESTS.values(), ids=REQUESTS)
def test_what_is_asked_for_is_kept(asked: dict[str, Any]) -> None:
    request, system, graph = Request(**asked), df.load_system("h100-8"), dense(recompute="full")
    mappings, workload, _ = started(graph, system, request)
    assert len(mappings) == 1
    plan, mapping = mappings[0].plan, mappings[0].mapping
    assert plan in asked_plans(graph, system, request, workload.graphs[0].setting.assumptions)[0]
    schemes = {kernel.name: kernel.sharding for kernel in mapping.kernels}
    assert schemes.items() >= request.pin_sharding.items()
    if asked.get("sequence_parallelism") == "none":
        assert "k>n" not in schemes.values() and schemes["RMSNorm_1"] == "none"


def test_several_are_different_plans_and_a_limit_is_kept() -> None:
    system, graph = df.load_system("h100-8"), dense(recompute="full")
    mappings, *_ = started(graph, system, Request(top=3))
    values = [solved.value for solved in mappings]
    assert len({solved.plan for solved in mappings}) == 3 and values == sorted(values)
    limit = Objective(limits=(Limit(metric="step_time", at_most=values[0] / 2),))
    assert not started(graph, system, Request(objective=limit))[0]


def test_pins_that_no_chip_can_take_are_no_start() -> None:
    mappings, *_ = started(dense(), df.load_system("h100-8"), Request(pin_sharding={"QK": "m"}, tp=4))
    assert not mappings


def test_what_fits_nowhere_has_no_start_and_says_so_soon() -> None:
    graph = df.load_graph("gpt3-1t", mode="training", batch=8)
    mappings, workload, reports = started(graph, df.load_system("h100-8"))
    assert not mappings and {report.incumbent for report in reports} == {math.inf}
    with pytest.raises(DfoptError, match="needs at least"):
        df.optimize(graph, "h100-8", variants=(), time_limit=20.0, assumptions="default")
    assert workload.graphs[0].refused is None


CASES = {
    "dense": (lambda: df.load_graph("gpt2-small", mode="training", batch=64, microbatch=8, recompute="attention"), {}),
    "experts": (lambda: decoding(), {"pp": 1}),
}


def decoding() -> Graph:
    return df.load_graph("mixtral-8x7b", phase="decode", batch=64, context=1024, microbatch=64)


@pytest.mark.parametrize(("drawn", "asked"), CASES.values(), ids=CASES)
def test_starts_are_near_the_optimum_and_reported(drawn: Callable[[], Graph], asked: dict[str, Any]) -> None:
    graph = drawn()
    mappings, _, reports = started(graph, df.load_system("h100-8"), Request(**asked))
    best = df.optimize(graph, "h100-8", assumptions="default", time_limit=900.0, **asked)
    assert best.gap == 0 and best.value * (1 - 1e-9) <= mappings[0].value <= best.value * 1.05
    assert {report.problem for report in reports} == {"no plans listed yet"}
    assert (reports[0].incumbent, reports[0].plan) == (math.inf, "no mapping yet")
    assert (reports[-1].incumbent, reports[-1].plan) == (mappings[0].value, mappings[0].plan.label)
    assert all(0 < report.bound <= best.value for report in reports)


def test_ctrl_c_returns_what_was_found_until_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposing, "_LARGE", -1)

    def pressed(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(proposing._Starts, "_vary", pressed)
    result = df.optimize(decoding(), "h100-8", pp=1)
    assert result.status == "interrupted_with_solution" and not result.score.violations
    monkeypatch.setattr(proposing._Starts, "_value", pressed)
    with pytest.raises(KeyboardInterrupt):
        df.optimize(decoding(), "h100-8", pp=1)


def test_ctrl_c_in_a_fusion_ends_the_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = list[object]()

    def cut_short(*given: object) -> None:
        calls.append(given)
        raise KeyboardInterrupt

    monkeypatch.setattr(proposing, "best_fused", cut_short)
    mappings, workload, _ = started(decoding(), df.load_system("h100-8"), Request(pp=1))
    assert len(calls) == 1 and not mappings and workload.state.stopped


def test_starts_are_as_good_where_blocks_are_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, system = df.load_graph("llama-3.1-8b", phase="prefill", batch=8, isl=512), df.load_system("sn10-8-ring")
    listed, *_ = started(graph, system, Request(tp=4))
    monkeypatch.setattr(lattices, "MOST_SETS", 10)
    unlisted, workload, _ = started(graph, system, Request(tp=4))
    layers = chain(*workload.graphs[0].space._arcs_of_setting.values())
    assert any(arcs is not None and not arcs.complete for arcs, _ in layers)
    assert [each.value for each in unlisted] == pytest.approx([each.value for each in listed], rel=1e-9)


def test_small_spaces_have_none() -> None:
    small = Setting.resolved(df.load_graph("gpt2-small"), df.load_system("sn10-8-ring"), df.Assumptions())
    workload = WorkloadSearch([GraphSearch(small, SearchState(Options(Request(tp=8))))])
    begin(workload.state, [graph.space for graph in workload.graphs])
    assert not workload.state.solutions and not proposing.is_large([small], Request(tp=8))
    sizes = (dense(microbatch=2**power, batch=512) for power in range(10))
    system = df.load_system("a100-4096")
    assert proposing.is_large([Setting.resolved(graph, system, df.Assumptions()) for graph in sizes], Request())


def test_axes_lie_inside_out() -> None:
    system, graph = df.load_system("h100-256"), dense()
    listing = textbook_plans(graph, system, Request())
    order = {"tp": ("node[4]",), "mp": (), "pp": ("node[2@4]", "cluster[2]"), "dp": ("cluster[16@2]",)}
    assert listing.shared(order)
    assert not listing.shared(order | {"tp": ("cluster[2]",), "pp": ("node",)})
    assert not listing.shared(order | {"tp": ("node", "cluster[4]"), "pp": (), "dp": ("cluster[8@4]",)})  # far too far


def test_a_variation_changes_what_it_says() -> None:
    graph, system = dense(recompute="attention"), df.load_system("h100-8")
    setting = Setting(graph, system, df.Assumptions(execution="library"))
    plan = asked_plans(graph, system, Request(tp=4, pp=1), setting.assumptions)[0][0]
    usual, *others = (shardings(setting.under(plan), Request(), variation) for variation in VARIATIONS)
    assert usual is not None and (usual["RMSNorm_1"], usual["Q_Proj"], usual["O_Proj"]) == ("n", "outer", "k>n")
    changed = [{name for name in usual if each and each[name] != usual[name]} for each in others]
    assert all(changed)
    assert "RMSNorm_1" not in changed[0] and {"RMSNorm_2", "RMSNorm_Final", "Embedding"} <= changed[0]
    assert {"RMSNorm_1", "RMSNorm_2"} <= changed[1]
    assert {"Q_Proj_bwd", "Q_Proj_bwd_weight_update"} <= changed[3]


# -- the best mapping so far, what is proven and what is open ----------------------------------


def counts(report: Progress) -> tuple[int, int]:
    """Plans that are open, and listed."""
    if report.problem == "no plans listed yet":
        return 0, 0
    words = re.fullmatch(r"([\d,]+) of ([\d,]+) plans open", report.problem)
    assert words is not None, report.problem
    return int(words[1].replace(",", "")), int(words[2].replace(",", ""))


@given(worlds(sharding_objective=["joint", "seconds"], empty_partitions=["allow"]), st.booleans())
def test_reports_never_claim_more_than_the_result_proves(world: World, by_levels: bool) -> None:
    """Also where stages are chosen with the sharding, whose plans have their turn after all others."""
    reports = list[Progress]()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(workload_search, "_REPORT_S", -math.inf)  # whenever the clock is asked
        patched.setattr(matrices, "_SMALL", 0 if by_levels else matrices._SMALL)
        try:
            result = df.optimize(world.graph, world.system, assumptions=world.assumptions, progress=reports.append)
        except Infeasible:
            assert all(report.incumbent == math.inf for report in reports if not report.part)
            return
    reports = [report for report in reports if not report.part]
    best = [report.incumbent for report in reports]
    assert best == sorted(best, reverse=True) and best[-1] == pytest.approx(result.value, rel=1e-12)
    assert reports[-1].plan == result.plan.label
    assert all(0 <= report.bound <= result.value * (1 + 1e-9) for report in reports)
    if world.assumptions.sharding_objective == "joint" and not result.apart:
        assert all(report.bound <= result.bound * (1 + 1e-9) for report in reports)
    open_and_listed = [counts(report) for report in reports]
    assert all(open_ <= listed for open_, listed in open_and_listed)
    assert open_and_listed[-1][1] <= len({record.plan for record in result.plans})


def test_plans_are_closed_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload_search, "_REPORT_S", -math.inf)
    reports = list[Progress]()
    result = df.optimize("gpt2-small", "sn10-8-ring", microbatch=1, sensitivity=False, progress=reports.append)
    known = [(*counts(report), report) for report in reports if not report.part]
    listed = len({record.plan for record in result.plans})
    assert [known[0][2].plan, known[0][2].incumbent] == ["no mapping yet", math.inf]
    assert max(open_ for open_, *_ in known) == listed and known[-1][:2] == (0, listed)
    assert 0 < known[0][2].bound < known[-1][2].bound


def lines(*reports: Progress) -> list[str]:
    """What is written of reports that come every ten seconds."""
    stream = StringIO()
    line = ProgressLine(stream)
    for report in reports:
        line._began -= 10
        line(report)
    return [written.split(" s  ", 1)[1] for written in stream.getvalue().splitlines()]


def test_lines_are_of_the_whole_search() -> None:
    """A solve under one plan says that the search is alive; its figures are of another problem."""
    part = Progress("TP8", "interchip", 1.0, 0.279081, -math.inf, part=True)
    searched = [
        Progress("no mapping yet", "no plans listed yet", 1.0, math.inf, 0.0),
        Progress("no mapping yet", "2 of 12,651 plans open", 1.0, math.inf, 1.5),
        Progress("TP8 PP1 DP4", "2 of 12,651 plans open", 1.0, 2.0, 1.5),
    ]
    assert lines(part, *searched, part) == [
        "no mapping yet, no bound yet, no plans listed yet",
        "no mapping yet, bound 1.5 s, 2 of 12,651 plans open",
        "best 2 s, bound 1.5 s, gap 25.00 %, 2 of 12,651 plans open: TP8 PP1 DP4",
        "best 2 s, bound 1.5 s, gap 25.00 %, 2 of 12,651 plans open: TP8 PP1 DP4",
    ]
    explored = Progress("n3", "5 boxes, 4 solves", 1.0, 3.0, 1.5, "USD")
    assert lines(explored) == ["best 3 USD, bound 1.5 USD, gap 50.00 %, 5 boxes, 4 solves: n3"]
    largest = Progress("n3", "5 boxes", 1.0, 1.5, 3.0, "tokens/s")  # a bound from above
    assert lines(largest) == ["best 1.5 tokens/s, bound 3 tokens/s, gap 50.00 %, 5 boxes: n3"]


# -- a search that is stopped after some steps -------------------------------------------------


STOPPED: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "seconds": ({"top": 3, "set": {"sharding_objective": "seconds"}}, (0, 8, 24)),
    "bytes": ({"top": 3, "set": {"sharding_objective": "bytes"}}, (0, 6)),
    "joint": ({"phase": "training", "microbatch": "1", "recompute": "none"}, (0, 8)),
    "next best": ({"top": 3, "distinct": "sharding", "pp": 1}, (20,)),
}


@pytest.mark.parametrize("name", STOPPED)
def test_a_plan_is_excluded_only_by_what_is_in_the_answer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By no start that was dropped when time was up, whenever that is."""
    (options, steps), cut_off = STOPPED[name], 0
    for number in steps:
        left, accept = [number], SearchState.accept
        found = list[Solved]()

        def kept(state: SearchState, outcome: Solved, accept=accept, found=found) -> None:
            accept(state, outcome)
            found.append(outcome)

        def is_over(left=left, found=found) -> bool:
            left[0] -= bool(found)
            return left[0] < 0

        with monkeypatch.context() as patched:
            patched.setattr(SearchState, "accept", kept)
            over_when(patched, is_over)
            result = df.optimize("gpt2-small", "sn10-8-torus", time_limit=600, **options)
        if result.status == "optimal":  # the time was enough
            break
        cut_off += 1
        assert result.status == "limit_with_solution"
        assert name != "next best" or (result.gap == 0 and "not all of the next best are proven" in str(result))
        checked = verify(result)
        assert checked.ok, "\n".join([str(number), *checked.problems])
    assert cut_off


# -- what comes after a search may fail --------------------------------------------------------


def failing(error: BaseException) -> Any:
    """A step that ends so."""

    def step(*_: object) -> None:
        raise error

    return step


@pytest.mark.parametrize(
    ("error", "said"), [(ValueError("a bug"), "ValueError: a bug"), (KeyboardInterrupt(), "stopped by Ctrl-C")]
)
def test_a_sensitivity_that_fails_costs_no_mapping(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, said: str
) -> None:
    right = df.optimize(df.load_graph("gpt2-small"), "sn10-8-ring", tp=8, sensitivity=False)
    monkeypatch.setattr(optimization, "sensitivities", failing(error))
    result = df.optimize(df.load_graph("gpt2-small"), "sn10-8-ring", tp=8, sensitivity=True)
    assert (result.mapping, result.value, result.status) == (right.mapping, right.value, "optimal")
    assert result.sensitivity == () and result.missing == (f"sensitivity ({said})",)
    assert status_words(result).endswith(f"; without sensitivity ({said})")
    assert verify(Result.from_data(result.to_data())).ok


def test_heat_that_fails_costs_no_mapping_but_a_refusal_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {"tp": 8, "heat": "aware", "stack": df.load_stack("hybrid-vault"), "sensitivity": False}
    monkeypatch.setattr(heat_aware, "made_aware", failing(KeyboardInterrupt()))
    result = df.optimize(df.load_graph("gpt2-small"), "sn10-8-ring", **asked)
    assert result.missing == ("heat: aware (stopped by Ctrl-C)",)
    assert result.heat is None and result.score.physical is not None
    monkeypatch.setattr(heat_aware, "made_aware", failing(Infeasible("too hot")))
    with pytest.raises(Infeasible, match="too hot"):
        df.optimize(df.load_graph("gpt2-small"), "sn10-8-ring", **asked)
