"""A check by regions: honest results are verified, mappings that are not the best are not, nor are forged records."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

import dfopt as df
from dfopt.bnb import OutOfTime
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.plan import Plan
from dfopt.documents.result import Result
from dfopt.proof.plans import Proven
from dfopt.regions import relaxations
from dfopt.regions.space import MappingSpace
from dfopt.search import other_code
from dfopt.search.verify import verify


@cache
def honest(**asked: Any) -> Result:
    lists = {name: list(value) if isinstance(value, tuple) else value for name, value in asked.items()}
    return df.optimize("gpt2-small", "h100-8", sensitivity=False, **lists)


def sealed(result: Result, **changes: Any) -> Result:
    forged = result.model_copy(update=changes)
    return forged.model_copy(update={"seal": forged.unsealed_digest()})


@pytest.fixture(params=["by both", "by the search alone"])
def shown(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """By whom claims are shown: what the judge's figures show the search need not, and it could by itself."""
    if request.param == "by the search alone":
        monkeypatch.setattr(
            other_code, "proven", lambda graph, system, chosen, said, *_: Proven(dict.fromkeys(said, ""))
        )


def test_a_mapping_that_breaks_the_rule_of_halves_refutes_nothing() -> None:
    """Of two partitions the first is for the forward pass: both passes in one partition would need a third."""
    forward = Kernel(name="forward", op="elementwise", m=64, k=1, n=64)
    backward = forward.model_copy(update={"name": "backward", "pass_": "backward"})
    graph = Graph(name="two", batch=4, kernels=(forward, backward), tensors=(Tensor(src="forward", dst="backward"),))
    chosen = df.Assumptions(forward_backward="halves", empty_partitions="allow", kernel_overhead=1e-3, overlap="none")
    result = df.solve(graph, "sn10-8-ring", tp=8, assumptions=chosen.with_(sharding_objective="joint"))
    found = verify(result)
    assert found.ok, found.problems


SEVERAL: dict[str, Any] = {"distinct": "sharding", "tp": 4, "microbatch": (4,)}


@pytest.mark.parametrize("asked", [{}, {"gap": 0.05}, {"microbatch": (4, 8)}, {"tp": 2}, {"top": 5, **SEVERAL}])
def test_honest_results_are_verified(asked: dict[str, Any]) -> None:
    result = honest(**asked)
    found = verify(result)
    assert not found.problems
    assert found.gap is not None and found.gap <= result.gap + 1e-6


@pytest.mark.usefixtures("shown")
@pytest.mark.parametrize("top", [5, 5000])  # fewer and more than there are
def test_several_shardings_with_pins_are_verified(top: int) -> None:
    """What is kept is found again on the way, and does not refute that there is nothing else."""
    asked = {**SEVERAL, "tp": 8, "microbatch": 1, "p_max": 3, "pin_partition": {"FFN1": 2}}
    names = "Add_Prev_Layer", "LayerNorm_1", "DropOut_2", "Add_1", "LayerNorm_2", "GeLU", "DropOut_3", "Add_2"
    pins = dict.fromkeys(names, "n")
    result = df.optimize("gpt2-small", "sn10-8-ring", sensitivity=False, top=top, pin_sharding=pins, **asked)
    assert 5 <= 1 + len(result.alternatives or ()) < 5000 and result.status == "optimal"
    found = verify(result)
    assert found.verdict.startswith("verified optimal"), found.problems


@pytest.mark.usefixtures("shown")
def test_a_worse_mapping_cannot_claim_to_be_optimal() -> None:
    worse, free = honest(tp=2), honest()
    assert worse.value > free.value * 1.01
    found = verify(sealed(worse, request=free.request))
    assert found.problems and found.gap == pytest.approx(1 - free.value / worse.value, rel=1e-3)


@pytest.mark.usefixtures("shown")
def test_a_plan_that_fits_is_not_said_to_be_infeasible() -> None:
    result = honest()
    number, record = next((n, each) for n, each in enumerate(result.plans) if each.status == "pruned_by_bound")
    changes = {"status": "infeasible", "bound": None, "level_bound": None, "note": "nothing fits"}
    plans = [*result.plans]
    plans[number] = record.model_copy(update=changes)
    found = verify(sealed(result, plans=tuple(plans)))
    assert any(problem.startswith(f"$.plans[{number}].status") for problem in found.problems)


@pytest.mark.usefixtures("shown")
def test_a_graph_that_is_excluded_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its plans are left with what is shown of all of them, though none of them was looked at."""
    result = honest(tp=2, microbatch=4)
    monkeypatch.setattr(relaxations, "least_step", lambda setting: result.value)
    found = verify(result)
    assert found.verdict.startswith("verified optimal"), found.problems


def test_plans_rest_on_no_code_of_the_search(shown: None, request: pytest.FixtureRequest) -> None:
    found = verify(result := honest())
    own = [words for words in found.checked if "own code" in words]
    alone = "alone" in request.node.callspec.id
    count = len({record.plan for record in result.plans})
    assert own[0].startswith(f"{count} of {count} plans, " if alone else "0 of ")


def test_what_is_shown_stays_shown_where_listing_runs_out_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of plans that other code shows nothing is lost; of the others only what all chips have to do is left."""
    result = honest()

    def late(space: MappingSpace) -> dict[Plan, float]:
        raise OutOfTime

    monkeypatch.setattr(MappingSpace, "least", property(late))
    assert verify(result).verdict == "verified optimal"
    monkeypatch.setattr(other_code, "proven", lambda graph, system, chosen, said, *_: Proven(dict.fromkeys(said, "")))
    found = verify(result)
    assert found.gap is None or found.gap > 0
