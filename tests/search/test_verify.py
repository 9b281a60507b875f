"""`dfopt check result.json`: true results are verified, and no other claim is, whoever seals it."""

from __future__ import annotations

import copy
import json
from contextlib import nullcontext
from functools import cache
from typing import Any
from unittest.mock import patch

import pytest
from covered import asked_of, covered
from hypothesis import assume, given, note, reject
from hypothesis import strategies as st
from strategies import World, share
from typer.testing import CliRunner

import dfopt as df
from dfopt.bnb import OutOfTime
from dfopt.cli import app
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.plan import Plan
from dfopt.documents.result import Result, status_words
from dfopt.errors import DocumentError, GraphError, Infeasible, NoSolution, PlanError, SystemSpecError
from dfopt.proof.plans import Proven
from dfopt.regions import lattices, relaxations
from dfopt.regions.space import MappingSpace
from dfopt.search import other_code, solve
from dfopt.search.verify import verify
from dfopt.setting.instance import Setting
from dfopt.terms.step.roofline import least_step

CASES = [
    ("gpt3-175b", {}, "sn10-8-torus", {}),
    ("gpt3-175b", {"mode": "training"}, "sn10-8-ring", {"tp": 8}),
    ("gpt3-175b", {}, "h100-8", {}),
    ("gpt2-small", {}, "sn10-8-ring", {"tp": 8, "p_max": 2, "pin_partition": {"FFN0": 1}}),
    ("gpt2-small", {}, "sn10-8-ring", {"tp": 8, "assumptions": "dfmodel", "p_max": 3}),
]


def solved(graph: str, parameters: dict[str, Any], system: str, options: dict[str, Any]) -> Result:
    return df.optimize(df.load_graph(graph, **parameters), df.load_system(system), **options)


RESULT = solved("gpt2-small", {}, "sn10-8-ring", {})
DATA = json.loads(json.dumps(RESULT.to_data()))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[2]}-{len(case[3])}")
def test_true_results_are_verified_optimal(case: Any) -> None:
    found = verify(Result.from_data(json.loads(json.dumps(solved(*case).to_data()))))
    assert found.ok, found.problems
    assert found.verdict.startswith("verified optimal")


def leaves(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of all numbers and quantities with units."""
    if isinstance(data, dict):
        return [leaf for key, value in data.items() for leaf in leaves(value, (*path, key))]
    if isinstance(data, list):
        return [leaf for i, value in enumerate(data) for leaf in leaves(value, (*path, i))]
    quantity = isinstance(data, str) and data[:1].isdigit()
    return [path] if (isinstance(data, int | float) and not isinstance(data, bool)) or quantity else []


def at(data: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        data = data[step]
    return data


def changed(path: tuple[Any, ...], factor: float) -> dict[str, Any]:
    data = copy.deepcopy(DATA)
    value = at(data, path)
    if isinstance(value, str):
        number, _, unit = value.partition(" ")
        new: Any = f"{float(number) * factor or 1:.9g} {unit}".strip() if unit else "0" + value
    else:
        new = value * factor if isinstance(value, float) and value else value + 1
    at(data, path[:-1])[path[-1]] = new
    return data


def tampered(path: tuple[Any, ...], factor: float) -> Result:
    """The result with another number; another one is drawn where the document itself no longer holds together."""
    try:
        return Result.from_data(changed(path, factor))
    except (DocumentError, GraphError, SystemSpecError):
        reject()


@given(path=st.sampled_from(leaves(DATA)), factor=st.sampled_from([0.5, 0.999, 1.001, 2.0]))
def test_no_number_can_be_changed_unnoticed(path: tuple[Any, ...], factor: float) -> None:
    assert not verify(tampered(path, factor)).ok, path


FORGED = [p for p in leaves(DATA) if p[0] in ("value", "utilization", "score", "mapping", "matrices", "plan")]


@given(path=st.sampled_from(FORGED), factor=st.sampled_from([0.5, 0.999, 1.001, 2.0]))
def test_a_forger_who_seals_again_is_caught_by_the_judge(path: tuple[Any, ...], factor: float) -> None:
    forged = tampered(path, factor).sealed()
    # fewer or more compute tiles of a kernel change nothing under the fixed model, within the chip's tiles
    if path[0] == "mapping" and path[-1] in ("tiles", "tile_count"):
        return
    assert not verify(forged).ok, path


def test_check_says_what_it_found(tmp_path: Any) -> None:
    path = tmp_path / "result.json"
    RESULT.dump(path)
    done = CliRunner().invoke(app, ["check", str(path)])
    assert done.exit_code == 0
    assert "verified optimal" in done.stdout
    data = changed(("value",), 0.5)
    path.write_text(json.dumps(data))
    done = CliRunner().invoke(app, ["check", str(path)])
    assert done.exit_code == 3
    assert "$.value" in done.stderr
    assert "$.seal" in done.stderr


def test_what_is_fixed_is_in_the_words_and_in_the_count() -> None:
    """Also in those of the check: an optimum under pins is none without them."""
    asked = {
        "pin_sharding": {"FFN0": "k"},
        "p_max": 2,
        "objective": {"limits": [{"metric": "step_time", "at_most": 9}]},
    }
    free, result = (df.optimize("gpt2-small", "sn10-8-ring", tp=8, microbatch=1, **more) for more in ({}, asked))
    assert result.value > 2 * free.value and free.space is not None and result.space is not None
    assert status_words(result) == "optimal: no mapping in the space with p_max 2, sharding of FFN0 k is better"
    assert status_words(free) == "optimal: no mapping in the space is better"
    assert "at most 2 partitions; fixed: tp 8, p_max 2, sharding of FFN0 k, step_time at most 9 s" in result.proof
    assert 10**free.space.log10_shardings == pytest.approx(3 * 10**result.space.log10_shardings)
    assert 10**result.space.log10_fusions == pytest.approx(25)  # one cut, between two of 26 down-sets, or none
    checked = verify(result).checked[-1]
    fixed = "have tp 8, p_max 2, sharding of FFN0 k, step_time at most 9 s, microbatch 1"
    assert checked.endswith(fixed) and str(result.space) in checked


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "no partition": ({"score": {**DATA["score"], "partitions": []}}, r"\$.score.partitions: found none of stage 0"),
    "no stage": ({"score": {**DATA["score"], "stages": []}}, r"\$.score.stages: found none, expected"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_does_not_hold_together_is_refused_when_it_is_read(name: str) -> None:
    """One error of its own: tables and pictures look nothing up that is not there."""
    change, says = BROKEN[name]
    with pytest.raises(DocumentError, match=says):
        Result.from_data({**DATA, **change})


@pytest.mark.parametrize("path", ["chip.dram.bandwidth", "chip.sram.capacity", "network[0].link_bandwidth"])
def test_rates_that_no_time_follows_from_are_refused(path: str) -> None:
    unit = "B" if path.endswith("capacity") else "B/s"
    with pytest.raises(SystemSpecError, match="found 1e-300 in SI units, expected 0 or a number from 1e-40"):
        df.optimize("gpt2-small", "sn10-8-ring", set={path: f"1e-300 {unit}"})


def test_graphs_that_there_was_no_time_for_are_named() -> None:
    """What all chips have to do is all that holds of their plans, and neither the plans nor the space are wrong."""
    result = df.optimize("gpt2-small", "sn10-8-ring", tp=8, microbatch=[1, 2, 4], sensitivity=False)
    assert result.variants
    late = verify(result, time_limit=0.0)
    least = min(least_step(Setting(one, result.system, result.assumptions)) for one in (result.graph, *result.variants))
    assert late.ok and late.gap == pytest.approx(1 - least / result.value, rel=1e-9) and late.problems == ()
    said = " ".join(late.unchecked)
    assert "which there was no time to show" in said and "no time to count all mappings" in said
    assert verify(result).verdict == "verified optimal"


# -- what answers of random worlds claim of plans ----------------------------------------------


OBJECTIVES = "joint", "joint", "seconds", "bytes"
FEW = dict.fromkeys(("MOST_SETS", "MOST_OF_LIBRARY", "_SOME"), 1)
"""Down-sets of a layer that are listed at most: then blocks are generated on demand."""
MANY = 50
"""Mappings that are asked for, more than there are plans: then every plan under which something fits has a value."""


def answered(world: World, objective: str, asked: dict[str, Any]) -> Result:
    """The answer, if there is one."""
    try:
        return solve(
            world.graph, world.system, assumptions=world.assumptions.with_(sharding_objective=objective), **asked
        )
    except (Infeasible, NoSolution, PlanError):
        assume(False)
        raise


def forged(result: Result, **changes: Any) -> Result:
    """An answer with changes, sealed again; the question is not in it."""
    return result.model_copy(update={"question": None, **changes}).sealed()


@share(2)
@given(
    covered(most=4), st.data(), st.sampled_from(OBJECTIVES), st.integers(1, 4), st.sampled_from(["plan", "sharding"])
)
def test_what_answers_claim_is_verified(
    world: World, data: st.DataObject, objective: str, top: int, distinct: str
) -> None:
    asked = asked_of(world, data.draw, ways=1)
    several = {"top": top, "distinct": distinct if objective == "joint" and top > 1 else "plan"}
    result = answered(world, objective, {**asked, **several})
    note(f"{result.proof} {[(r.plan.label, r.status, r.bound, r.level_bound) for r in result.plans]}")
    found = verify(result)
    assert found.ok, found.problems
    assert (found.gap, found.level_gap) == (
        pytest.approx(result.gap, abs=2e-6),
        pytest.approx(result.level_gap, abs=2e-6),
    )


@share(1)
@given(covered(most=4), st.data(), st.sampled_from(OBJECTIVES), st.sampled_from(["plan", "sharding"]), st.booleans())
def test_a_plan_under_which_something_fits_is_not_said_to_be_infeasible(
    world: World, data: st.DataObject, objective: str, distinct: str, shown: bool
) -> None:
    """Whether its mappings are in the file or not."""
    several = {"top": MANY, "distinct": distinct if objective == "joint" else "plan"}
    result = answered(world, objective, {**asked_of(world, data.draw, ways=1), **several})
    number = data.draw(st.sampled_from([n for n, record in enumerate(result.plans) if record.value is not None]))
    record, plans = result.plans[number], [*result.plans]
    empty = {"status": "infeasible", "bound": None, "level_bound": None, "value": None, "gap": None, "solves": ()}
    if objective != "joint" and data.draw(st.booleans()):
        empty |= {"status": "infeasible_per_level", "bound": record.bound}
    plans[number] = record.model_copy(update=empty)
    others = [one for one in result.alternatives or () if shown or one.mapping.plan != record.plan]
    plans.sort(key=lambda each: each.order)
    found = verify(forged(result, plans=tuple(plans), alternatives=tuple(others) or None))
    note(f"{record} {found}")
    assert any(".status: " in problem for problem in found.problems)


@share(1)
@given(covered(most=4), st.data(), st.sampled_from(OBJECTIVES))
def test_a_worse_answer_is_not_the_best(world: World, data: st.DataObject, objective: str) -> None:
    """The best with one partition, which claims that it is the best with any number."""
    asked = {"two_batch_overlap": False} if world.graph.folded else {"two_batch_overlap": False, "pp": 1}
    assume(world.assumptions.empty_partitions == "allow" and world.assumptions.execution != "kernel_by_kernel")
    worse, best = (answered(world, objective, {**asked, "p_max": most}) for most in (1, None))
    with patch.multiple(lattices, **FEW) if data.draw(st.booleans()) else nullcontext():
        found = verify(forged(worse, request=best.request, fixed=best.fixed, space=best.space, p_max=best.p_max))
    note(f"{worse.value} {best.value} {found}")
    if worse.value > best.value * (1 + 1e-5):
        assert found.level_gap is not None and found.level_gap >= 1 - best.level_bound / worse.value - 1e-5
        assert any("bound" in one or "gap" in one or "status" in one for one in found.problems)


# -- by the judge's figures and the search, or by the search alone -----------------------------


@cache
def honest(**asked: Any) -> Result:
    return df.optimize("gpt2-small", "h100-8", sensitivity=False, **asked)


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


@pytest.mark.usefixtures("shown")
@pytest.mark.parametrize("top", [5, 5000])  # fewer and more than there are
def test_several_shardings_with_pins_are_verified(top: int) -> None:
    """What is kept is found again on the way, and does not refute that there is nothing else."""
    asked: dict[str, Any] = {"tp": 8, "microbatch": 1, "p_max": 3, "pin_partition": {"FFN1": 2}}
    names = "Add_Prev_Layer", "LayerNorm_1", "DropOut_2", "Add_1", "LayerNorm_2", "GeLU", "DropOut_3", "Add_2"
    asked |= {"pin_sharding": dict.fromkeys(names, "n"), "distinct": "sharding", "sensitivity": False}
    result = df.optimize("gpt2-small", "sn10-8-ring", top=top, **asked)
    assert 5 <= 1 + len(result.alternatives or ()) < 5000 and result.status == "optimal"
    found = verify(result)
    assert found.verdict.startswith("verified optimal"), found.problems


@pytest.mark.usefixtures("shown")
def test_a_worse_mapping_cannot_claim_to_be_optimal() -> None:
    worse, free = honest(tp=2), honest()
    assert worse.value > free.value * 1.01
    found = verify(forged(worse, request=free.request))
    assert found.problems and found.gap == pytest.approx(1 - free.value / worse.value, rel=1e-3)


@pytest.mark.usefixtures("shown")
def test_a_plan_that_fits_is_not_said_to_be_infeasible() -> None:
    result = honest()
    number, record = next((n, each) for n, each in enumerate(result.plans) if each.status == "pruned_by_bound")
    changes = {"status": "infeasible", "bound": None, "level_bound": None, "note": "nothing fits"}
    plans = [*result.plans]
    plans[number] = record.model_copy(update=changes)
    found = verify(forged(result, plans=tuple(plans)))
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
