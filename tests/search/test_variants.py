"""Several microbatch sizes in one search: the best of all, with a proof over all."""

from __future__ import annotations

from pathlib import Path

import pytest
from strategies import LEVELS

import dfopt as df
from dfopt.documents.graph import Graph
from dfopt.documents.result import Result
from dfopt.documents.strict_yaml import dump_yaml
from dfopt.errors import PlanError
from dfopt.search.verify import verify
from dfopt.workloads import WORKLOADS, load_variants
from dfopt.workloads.stack import StackParameters, variants

SIZES = (1, 2, 4)


@pytest.fixture(scope="module")
def drawn() -> list[Graph]:
    return [df.load_graph("gpt2-small", mode="training", batch=64, microbatch=size) for size in SIZES]


@pytest.fixture(scope="module")
def result(drawn: list[Graph]) -> Result:
    return df.optimize(drawn[0], df.load_system("sn10-8-ring"), variants=drawn[1:], assumptions=LEVELS)


def test_the_best_of_all_is_returned(drawn: list[Graph], result: Result) -> None:
    alone = [df.optimize(graph, df.load_system("sn10-8-ring"), assumptions=LEVELS).step_time_s for graph in drawn]
    assert result.step_time_s == pytest.approx(min(alone), rel=1e-9)
    assert result.level_gap == 0.0
    assert result.graph.microbatch == SIZES[alone.index(min(alone))]
    assert {graph.microbatch for graph in (result.graph, *result.variants)} == set(SIZES)


def test_every_plan_of_every_size_is_recorded(drawn: list[Graph], result: Result) -> None:
    alone = [df.optimize(graph, df.load_system("sn10-8-ring"), assumptions=LEVELS) for graph in drawn]
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


def test_a_worse_claim_is_found_out(drawn: list[Graph]) -> None:
    """A result of the slowest size alone, relabelled as if the others had been searched, is refuted."""
    system = df.load_system("sn10-8-ring")
    alone = [df.optimize(graph, system, assumptions=LEVELS) for graph in drawn]
    worst = max(alone, key=lambda one: one.step_time_s)
    others = tuple(graph for graph in drawn if graph is not worst.graph)
    told = worst.provenance.model_copy(update={"variant_digests": tuple(graph.digest() for graph in others)})
    claimed = worst.model_copy(update={"variants": others, "provenance": told})
    sealed = claimed.model_copy(update={"seal": claimed.unsealed_digest()})
    found = verify(sealed)
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
    assert not verify(claimed.model_copy(update={"seal": claimed.unsealed_digest()})).ok


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
        found = verify(cut.model_copy(update={"seal": cut.unsealed_digest()}))
        assert any(f"no record of {one.plan.label}" in problem for problem in found.problems), found
