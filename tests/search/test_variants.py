"""Several graphs in one search: the best of all with a proof over all, and those whose plans are given up together."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from strategies import LEVELS

import dfopt as df
from dfopt.documents.assumptions import profile
from dfopt.documents.graph import Graph
from dfopt.documents.plan import Plan
from dfopt.documents.request import Limit, Objective
from dfopt.documents.result import Result
from dfopt.documents.strict_yaml import dump_yaml
from dfopt.errors import Infeasible, NoSolution, PlanError
from dfopt.physics.pipeline import resolve
from dfopt.regions.relaxations import LeastOfGraph
from dfopt.search import state
from dfopt.search.graph_search import GraphSearch
from dfopt.search.verify import verify
from dfopt.setting.instance import Setting
from dfopt.terms.step.roofline import least_step
from dfopt.workloads import WORKLOADS, load_variants
from dfopt.workloads.stack import StackParameters, variants

SIZES = (1, 2, 4)


@pytest.fixture(scope="module")
def drawn() -> list[Graph]:
    return [df.load_graph("gpt2-small", mode="training", batch=64, microbatch=size) for size in SIZES]


@pytest.fixture(scope="module")
def result(drawn: list[Graph]) -> Result:
    return df.optimize(drawn[0], df.load_system("sn10-8-ring"), variants=drawn[1:], assumptions=LEVELS)


@pytest.fixture(scope="module")
def alone(drawn: list[Graph]) -> list[Result]:
    return [df.optimize(graph, df.load_system("sn10-8-ring"), assumptions=LEVELS) for graph in drawn]


def test_the_best_of_all_is_returned(alone: list[Result], result: Result) -> None:
    times = [one.step_time_s for one in alone]
    assert result.step_time_s == pytest.approx(min(times), rel=1e-9)
    assert result.level_gap == 0.0
    assert result.graph.microbatch == SIZES[times.index(min(times))]
    assert {graph.microbatch for graph in (result.graph, *result.variants)} == set(SIZES)


def test_every_plan_of_every_size_is_recorded(alone: list[Result], result: Result) -> None:
    assert len(result.plans) == sum(len(one.plans) for one in alone)
    assert result.space is not None
    assert result.space.plans == sum(one.space.plans for one in alone if one.space)


def test_the_result_holds_what_it_says(result: Result) -> None:
    assert verify(result).verdict.startswith("verified optimal")
    assert Result.from_data(result.to_data(), "again") == result


def test_sizes_in_one_search_are_the_best_of_all_whatever_the_order(drawn: list[Graph]) -> None:
    """Sharding and fusion together: bounds of one size exclude plans of another, whichever is listed first."""
    system, chosen = df.load_system("sn10-8-ring"), df.Assumptions(sequence_parallelism="none")
    few, many = (df.optimize(graph, system, assumptions=chosen) for graph in (drawn[0], drawn[-1]))
    assert few.value > many.value
    for first, other in ((drawn[0], drawn[-1]), (drawn[-1], drawn[0])):
        found = df.optimize(first, system, variants=[other], assumptions=chosen)
        assert (found.status, found.graph.microbatch) == ("optimal", SIZES[-1])
        assert found.value == pytest.approx(many.value, rel=1e-9)
        assert len(found.plans) == len(few.plans) + len(many.plans)
        # the size that is slower under every plan is excluded, but for what was found before the other was
        of_slower = [record for record in found.plans if record.plan in {record.plan for record in few.plans}]
        assert all(record.bound is None or record.bound > found.value for record in of_slower)
        assert sum(record.status == "solved" for record in of_slower) <= (first is drawn[0])
    assert verify(found).verdict == "verified optimal"


def test_a_worse_claim_is_found_out(drawn: list[Graph], alone: list[Result]) -> None:
    """A result of the slowest size alone, relabelled as if the others had been searched, is refuted."""
    worst = max(alone, key=lambda one: one.step_time_s)
    others = tuple(graph for graph in drawn if graph is not worst.graph)
    told = worst.provenance.model_copy(update={"variant_digests": tuple(graph.digest() for graph in others)})
    found = verify(worst.model_copy(update={"variants": others, "provenance": told}).sealed())
    assert not found.ok
    assert any("$.level_gap" in problem for problem in found.problems)


def test_another_workload_is_no_variant(drawn: list[Graph]) -> None:
    system = df.load_system("sn10-8-ring")
    with pytest.raises(PlanError, match="another workload"):
        df.optimize(drawn[0], system, variants=[df.load_graph("gpt3-175b")])
    with pytest.raises(PlanError, match="microbatch of 1 is there twice"):
        df.optimize(drawn[0], system, variants=[drawn[0]])
    with pytest.raises(PlanError, match="microbatch of 2 is there twice"):
        df.optimize(drawn[0], system, variants=[drawn[1], drawn[1]])


SIZES_OF_LATENTS = {"heads": 16, "rank": 512, "nope_dim": 128, "rotary_dim": 64, "value_dim": 128}


def latents(**phase: object) -> tuple[Graph, ...]:
    """Both ways to compute latent attention, less work first."""
    layer = {"mixer": {"kind": "mla", **SIZES_OF_LATENTS}, "feed_forward": {"kind": "mlp", "ffn": 4096}}
    sections = [{"layers": ["layer"], "repeat": 4}]
    p = {"hidden": 2048, "vocab": 32000, "layers": {"layer": layer}, "sections": sections, "seq": 1024, **phase}
    drawn = WORKLOADS["stack"]("latents", **p)
    (other,) = variants(StackParameters(**p))  # type: ignore[arg-type]
    return drawn, WORKLOADS["stack"]("latents", **p | other)


@pytest.mark.parametrize(
    ("phase", "way"), [({"phase": "prefill"}, "expanded"), ({"phase": "prefill", "hit": 1000}, "absorbed")]
)
def test_the_cheaper_way_to_compute_is_found_with_a_proof(phase: dict[str, object], way: str) -> None:
    """Of both forms of latent attention, whichever is listed first; each plan has a record for both."""
    graphs, system = latents(**phase), df.load_system("h100-8")
    alone = {
        graph.variant: df.optimize(graph, system, tp=4, pp=1, dp=2, sensitivity=False) for graph in _copied(graphs)
    }
    assert graphs[0].variant == way
    other, first = _copied(graphs)  # the one that loses is listed first
    found = df.optimize(first, system, variants=[other], tp=4, pp=1, dp=2, sensitivity=False, top=2)
    assert (found.status, found.graph.variant) == ("optimal", way)
    assert found.value == pytest.approx(min(one.value for one in alone.values()), rel=1e-9)
    assert sorted(str(one.variant) for one in found.plans) == ["absorbed", "expanded"]
    assert [one.variant for one in found.alternatives or ()] == [first.variant]
    assert "with 2 ways to compute" in found.proof
    assert verify(found).verdict == "verified optimal"
    assert Result.from_data(found.to_data(), "again") == found
    lost = max(alone.values(), key=lambda one: one.value)
    claimed = lost.model_copy(update={"variants": tuple(g for g in _copied(graphs) if g.variant == way)})
    assert not verify(claimed.sealed()).ok


def _copied(graphs: tuple[Graph, ...]) -> list[Graph]:
    """Of two copies of the machine, each works on one sequence."""
    return [graph.model_copy(update={"batch": 2}) for graph in graphs]


def test_a_graph_that_is_named_brings_its_other_way(tmp_path: Path) -> None:
    layer = {"mixer": {"kind": "mla", **SIZES_OF_LATENTS}}
    p = {"hidden": 64, "vocab": 100, "layers": {"layer": layer}, "sections": [{"layers": ["layer"]}], "seq": 8}
    (tmp_path / "latent.yaml").write_text(
        dump_yaml({"schema": "dfopt/graph/3", "name": "x", "workload": "stack", "parameters": p})
    )
    found = df.optimize(tmp_path / "latent.yaml", "sn10-8-ring", tp=8, sensitivity=False)
    assert {found.graph.variant, *(one.variant for one in found.variants)} == {"expanded", "absorbed"}
    assert load_variants(tmp_path / "latent.yaml", form="absorbed")[0].variant == "absorbed"
    assert len(load_variants(tmp_path / "latent.yaml", form="absorbed")) == 1
    assert len(load_variants(tmp_path / "latent.yaml", mode="training")) == 1
    with pytest.raises(PlanError, match="x, computed as absorbed, has no kernel 'KV_Up'"):
        df.optimize(tmp_path / "latent.yaml", "sn10-8-ring", pin_sharding={"KV_Up": "outer"})


def test_a_plan_may_be_one_for_some_sizes_only() -> None:
    """8 samples in microbatches of 8 go to one copy, in those of 1 to eight: both have one microbatch for each copy."""
    sizes = [df.load_graph("gpt2-small", batch=8, microbatch=size) for size in (8, 4, 2, 1)]
    result = df.optimize(sizes[0], df.load_system("sn10-8-ring"), variants=sizes[1:])
    infeasible = {record.plan for record in result.plans if record.status == "infeasible"}
    both = [record for record in result.plans if record.plan in infeasible and record.status != "infeasible"]
    assert both
    assert verify(result).verdict == "verified optimal"
    for one in (both[0], next(r for r in result.plans if r.plan == both[0].plan and r.status == "infeasible")):
        cut = result.model_copy(update={"plans": tuple(record for record in result.plans if record is not one)})
        found = verify(cut.sealed())
        assert any(f"no record of {one.plan.label}" in problem for problem in found.problems), found


# -- plans that are given up together, unlisted ------------------------------------------------


BATCH = 64
Data = dict[str, Any]


@cache
def decodings() -> tuple[Graph, ...]:
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
def of_decodings() -> Result:
    first, *others = decodings()
    return df.optimize(first, "h100-8", variants=others, sensitivity=False)


def list_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """No graph is excluded before its plans are listed."""
    monkeypatch.setattr(LeastOfGraph, "answers", lambda own, regions, *_: [0.0] * len(regions))


def test_small_microbatches_are_given_up_together_and_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    result = of_decodings()
    given_up = {one.microbatch: one for one in result.apart or ()}
    assert {1, 2, 4} <= set(given_up)
    assert all(one.status == "pruned_by_bound" and one.bound >= result.value for one in given_up.values())
    listed = {graph.microbatch for graph in decodings()} - set(given_up)
    assert result.graph.microbatch in listed
    assert f"and all of {len(given_up)} other graphs excluded unlisted" in result.proof
    list_all(monkeypatch)
    first, *others = decodings()
    each = df.optimize(first, "h100-8", variants=others, sensitivity=False)
    assert (each.apart, each.status, result.status) == (None, "optimal", "optimal")
    assert (each.value, each.plan) == (pytest.approx(result.value, rel=1e-12), result.plan)
    assert each.plan_counts.total() > result.plan_counts.total()


def test_what_is_said_of_them_is_checked() -> None:
    shown = verify(of_decodings())
    assert shown.verdict == "verified optimal"
    assert f"under any of {len(of_decodings().apart or ())} other graphs" in shown.checked[0]


def of_the_winner(data: Data) -> None:
    size = data["graph"]["microbatch"]
    best = next(graph for graph in decodings() if graph.microbatch == size)
    low = least_of(best)
    data["apart"].append({"microbatch": size, "status": "pruned_by_bound", "bound": low})
    data["plans"] = [one for one in data["plans"] if one.get("value") == data["value"]]


FORGED: dict[str, tuple[Callable[[Data], object], str]] = {
    "a higher bound": (lambda data: data["apart"][0].update(bound=2 * data["apart"][0]["bound"]), "$.apart[0].bound"),
    "a lower bound": (lambda data: data["apart"][0].update(bound=data["apart"][0]["bound"] / 2), "$.apart[0].bound"),
    "missing": (lambda data: data["apart"].pop(0), "$.plans: no record of"),
    "twice": (lambda data: data["apart"].append(data["apart"][0]), "two records of one graph"),
    "of another graph": (lambda data: data["apart"][0].update(microbatch=3), "of none of the graphs here"),
    "of the winner": (of_the_winner, "excludes nothing"),
}


@pytest.mark.parametrize(("forge", "said"), FORGED.values(), ids=FORGED)
def test_a_forged_record_is_caught(forge: Callable[[Data], object], said: str) -> None:
    data = json.loads(json.dumps(of_decodings().to_data()))
    forge(data)
    forged = Result.from_data(data)
    shown = verify(forged.sealed())
    assert not shown.ok
    assert any(said in problem for problem in shown.problems), shown.problems


def test_a_limit_that_all_chips_together_break_lists_no_plan() -> None:
    objective = Objective(limits=(Limit(metric="step_time", at_most=1e-6),))
    with pytest.raises(Infeasible, match="no mapping keeps the limit of the objective") as refused:
        df.optimize(decodings()[0], "h100-8", objective=objective)
    assert refused.value.least is None  # no memory is too small


def test_without_time_the_bound_of_all_plans_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_GRACE_S", 0.0)
    with pytest.raises(NoSolution) as stopped:
        df.optimize(decodings()[0], "h100-8", time_limit=0.0)
    assert stopped.value.bound == pytest.approx(least_of(decodings()[0]), rel=1e-12)


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
    other, first = decodings()[-2:]
    result = df.optimize(first, "h100-8", variants=[other], sensitivity=False)
    monkeypatch.undo()
    assert result.status == "interrupted_with_solution"
    assert [one.microbatch for one in result.apart or ()] == [BATCH // 2]
    assert verify(result).ok, verify(result)
