"""Graphs whose plans are given up together, unlisted: nothing is lost by it, and a forged record is caught."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest

import dfopt as df
from dfopt.documents.assumptions import profile
from dfopt.documents.graph import Graph
from dfopt.documents.plan import Plan
from dfopt.documents.request import Limit, Objective
from dfopt.documents.result import Result
from dfopt.errors import Infeasible, NoSolution
from dfopt.physics.pipeline import resolve
from dfopt.regions.relaxations import LeastOfGraph
from dfopt.search import state
from dfopt.search.graph_search import GraphSearch
from dfopt.search.verify import verify
from dfopt.setting.instance import Setting
from dfopt.terms.step.roofline import least_step

BATCH = 64
Data = dict[str, Any]


@cache
def drawn() -> tuple[Graph, ...]:
    """Decoding in all microbatches, the smallest first: each of these reads the weights again."""
    sizes = [size for size in range(1, BATCH + 1) if BATCH % size == 0]
    return tuple(
        df.load_graph("llama-3.1-8b", phase="decode", context=1024, batch=BATCH, microbatch=size) for size in sizes
    )


def least_of(graph: Graph) -> float:
    """What all chips have to do at least, in seconds."""
    system = df.load_system("h100-8")
    chosen = resolve(profile("default"), system.chip.execution, system.chip.compute_utilization)
    return least_step(Setting(graph, system, chosen))


@cache
def found() -> Result:
    first, *others = drawn()
    return df.optimize(first, "h100-8", variants=others, sensitivity=False)


def list_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """No graph is excluded before its plans are listed."""
    monkeypatch.setattr(LeastOfGraph, "answers", lambda own, regions, *_: [0.0] * len(regions))


def test_small_microbatches_are_given_up_together_and_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    result = found()
    given_up = {one.microbatch: one for one in result.apart or ()}
    assert {1, 2, 4} <= set(given_up)
    assert all(one.status == "pruned_by_bound" and one.bound >= result.value for one in given_up.values())
    listed = {graph.microbatch for graph in drawn()} - set(given_up)
    assert result.graph.microbatch in listed
    assert f"and all of {len(given_up)} other graphs excluded unlisted" in result.proof
    list_all(monkeypatch)
    first, *others = drawn()
    each = df.optimize(first, "h100-8", variants=others, sensitivity=False)
    assert (each.apart, each.status, result.status) == (None, "optimal", "optimal")
    assert (each.value, each.plan) == (pytest.approx(result.value, rel=1e-12), result.plan)
    assert each.plan_counts.total() > result.plan_counts.total()


def test_what_is_said_of_them_is_checked() -> None:
    shown = verify(found())
    assert shown.verdict == "verified optimal"
    assert f"under any of {len(found().apart or ())} other graphs" in shown.checked[0]


def raised(data: Data) -> None:
    data["apart"][0]["bound"] *= 2


def lowered(data: Data) -> None:
    data["apart"][0]["bound"] /= 2


def missing(data: Data) -> None:
    del data["apart"][0]


def twice(data: Data) -> None:
    data["apart"].append(data["apart"][0])


def of_another(data: Data) -> None:
    data["apart"][0]["microbatch"] = 3


def of_the_winner(data: Data) -> None:
    size = data["graph"]["microbatch"]
    best = next(graph for graph in drawn() if graph.microbatch == size)
    low = least_of(best)
    data["apart"].append({"microbatch": size, "status": "pruned_by_bound", "bound": low})
    data["plans"] = [one for one in data["plans"] if one.get("value") == data["value"]]


@pytest.mark.parametrize(
    ("forge", "said"),
    [
        (raised, "$.apart[0].bound"),
        (lowered, "$.apart[0].bound"),
        (missing, "$.plans: no record of"),
        (twice, "two records of one graph"),
        (of_another, "of none of the graphs here"),
        (of_the_winner, "excludes nothing"),
    ],
)
def test_a_forged_record_is_caught(forge: Callable[[Data], None], said: str) -> None:
    data = json.loads(json.dumps(found().to_data()))
    forge(data)
    forged = Result.from_data(data)
    shown = verify(forged.sealed())
    assert not shown.ok
    assert any(said in problem for problem in shown.problems), shown.problems


def test_a_limit_that_all_chips_together_break_lists_no_plan() -> None:
    objective = Objective(limits=(Limit(metric="step_time", at_most=1e-6),))
    with pytest.raises(Infeasible, match="no mapping keeps the limit of the objective") as refused:
        df.optimize(drawn()[0], "h100-8", objective=objective)
    assert refused.value.least is None  # no memory is too small


def test_without_time_the_bound_of_all_plans_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_GRACE_S", 0.0)
    with pytest.raises(NoSolution) as stopped:
        df.optimize(drawn()[0], "h100-8", time_limit=0.0)
    assert stopped.value.bound == pytest.approx(least_of(drawn()[0]), rel=1e-12)


def test_an_interrupt_before_all_plans_have_a_bound_leaves_no_record_of_a_graph_that_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever of its plans was bounded until then: `check` refuses records of single plans beside that of all."""
    real = GraphSearch._bound

    def interrupted(graph: GraphSearch, plans: Sequence[Plan]) -> None:
        real(graph, plans)
        if graph.setting.graph.microbatch < BATCH:
            raise KeyboardInterrupt

    list_all(monkeypatch)
    monkeypatch.setattr(GraphSearch, "_bound", interrupted)
    other, first = drawn()[-2:]
    result = df.optimize(first, "h100-8", variants=[other], sensitivity=False)
    monkeypatch.undo()
    assert result.status == "interrupted_with_solution"
    assert [one.microbatch for one in result.apart or ()] == [BATCH // 2]
    assert verify(result).ok, verify(result)
