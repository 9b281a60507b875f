"""What is hidden, as it is asked for: rings are never slower than pipes, and these never slower than nothing hidden."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles import judged, kinds, mapping_of
from strategies import World, busy, shardings, share, worlds
from typer.testing import CliRunner

import dfopt as df
from dfopt.cli import app
from dfopt.documents.request import Request
from dfopt.documents.result import Result
from dfopt.errors import PlanError


@share(0.6)
@given(
    world=worlds(
        roomy=True, weight_tiling="forbid", sequence_parallelism="allow", overlap=["none", "compute_memory", "perfect"],
        backward_gathers=[None, "layer"], collective_work=[None, "every", "first"], gradients="exact",
        gradient_overlap=[None, "backward"], empty_partitions="allow",
    ),
    usage=st.sampled_from([0.0, 0.15, 1.0]),
    data=st.data(),
)  # fmt: skip
def test_rings_dominate_pipes_and_these_what_is_not_hidden(world: World, usage: float, data: st.DataObject) -> None:
    """Of any mapping, so of the best ones too: the same holds of every plan."""
    world, graph = busy(world, usage), world.graph
    assume(world.plan.shards > 1 and (graph.folded or world.plan.stages == 1))
    sharding = data.draw(shardings(graph, world.plan, world.assumptions))
    stage = {k.name: kinds(graph).index(k.layer or "layer") if graph.folded else 0 for k in graph.kernels}
    order = sorted(graph.kernels, key=lambda k: (k.pass_ != "forward", graph.levels()[k.name]))
    mapping = mapping_of(world, sharding, stage, {k.name: place for place, k in enumerate(order)})
    assert mapping is not None
    ring, pipe, none = (
        judged(replace(world, assumptions=world.assumptions.with_(tensor_overlap=way)), mapping).step_time_s
        for way in ("ring", "pipe", None)
    )
    assert ring <= pipe * (1 + 1e-12) <= none * (1 + 1e-11)


STEP = {"mode": "training", "batch": 16}
BY_KERNEL = df.Assumptions(execution="kernel_by_kernel", overlap="none")


def test_any_is_the_best_of_all_and_the_proof_says_why() -> None:
    graph, fixed = df.load_graph("gpt2-small", **STEP), {"tp": 4, "pp": 1, "sensitivity": False}
    found = {
        (tensor, gradient): df.optimize(
            graph, "a100-8", assumptions=BY_KERNEL, tensor_overlap=tensor, gradient_overlap=gradient, **fixed
        )
        for tensor, gradient in (("none", "none"), ("ring", "backward"), ("pipe", "backward"), ("any", "any"))
    }
    best = found["any", "any"]
    assert best.step_time == min(one.step_time for one in found.values()) < found["none", "none"].step_time
    assert "in rings, which is never slower than in pipes" in best.proof and "never slower than after it" in best.proof
    assert "never slower" not in found["ring", "backward"].proof
    assert (best.assumptions.tensor_overlap, best.assumptions.gradient_overlap) == ("ring", "backward")


def test_what_is_asked_for_replaces_what_is_assumed() -> None:
    counted = df.Assumptions(tensor_overlap="pipe_twice", gradient_overlap="calculon")
    assert Request().assuming(counted) == counted
    asked = Request(tensor_overlap="none", gradient_overlap="any").assuming(counted)
    assert (asked.tensor_overlap, asked.gradient_overlap) == (None, "calculon_or_none")
    assert Request(gradient_overlap="none").assuming(counted).gradient_overlap is None
    assert Request(tensor_overlap="pipe").assuming(counted).tensor_overlap == "pipe_twice"
    tiled = counted.with_(collective_work="first_adds", operand_traffic="own_tiled")
    asked = Request(tensor_overlap="none").assuming(tiled)
    assert (asked.collective_work, asked.operand_traffic) == ("first", "own")


def test_weights_and_messages_are_hidden_as_asked_for() -> None:
    """Layers in chunks, whose copies share out the optimizer's state: each is faster, and the judge agrees."""
    graph = df.load_graph("gpt2-small", **STEP)
    fixed = {"assumptions": BY_KERNEL, "tp": 2, "pp": 2, "dp": 2, "interleave": 2, "zero": 1, "sensitivity": False}
    values = {}
    for weights, sent in itertools.product(("none", "any"), ("none", "any")):
        found = df.optimize(
            graph, "a100-8", gradient_overlap="backward", parameter_overlap=weights, point_to_point_overlap=sent,
            gap=0.01, **fixed,
        )  # fmt: skip
        assert ("behind the first forward pass" in found.proof) == (weights == "any")
        assert ("work while they send" in found.proof) == (sent == "any")
        values[weights, sent] = found.value
        stage = found.score.stages[0]
        work = stage.layers * stage.layer_time_s
        assert stage.time_s == pytest.approx(work + (stage.point_to_point_s if sent == "none" else 0.0))
    assert values["any", "any"] < min(values["any", "none"], values["none", "any"])
    assert max(values["any", "none"], values["none", "any"]) < values["none", "none"]


def test_weights_hide_where_gradients_do() -> None:
    with pytest.raises(PlanError, match="parameter_overlap: found any beside gradient_overlap: none, expected back"):
        df.optimize(df.load_graph("gpt2-small", **STEP), "a100-8", assumptions=BY_KERNEL, parameter_overlap="any")


def test_command_line_and_what_it_prints(tmp_path: Path) -> None:
    asked = ["solve", "gpt2-small", "a100-8", "--param", "mode=training", "--batch", "16", "--tp", "4", "--pp", "1"]
    asked += ["--kernel-by-kernel", "--tp-comm-overlap", "any", "--gradient-overlap", "backward"]
    asked += ["--no-sensitivity", "--gap", "100%", "--detail", "plan"]
    done = CliRunner().invoke(app, [*asked, "-q", "-o", str(tmp_path / "r.json")])
    assert done.exit_code == 0
    lines = {row[0]: row[1] for line in done.stdout.splitlines() if len(row := line.split(None, 1)) > 1}
    assert lines["products"] == "hide collectives tile by tile: ring"
    assert lines["gradients"].startswith("added up behind the backward pass: ")
    assert Result.load(tmp_path / "r.json").hides_gradients
    done = CliRunner().invoke(app, [*asked, "--tp-comm-overlap", "tree"])
    assert done.exit_code == 2 and "--tp-comm-overlap: expected one of none, ring, pipe, waves, any" in done.stderr


def test_what_a_step_has_once_is_not_charged_to_what_plans_share() -> None:
    """A world (of `tests/strategies.py`) whose best schemes do not hold the fewest weights, in 12 microbatches."""
    docs = json.loads((Path(__file__).parents[1] / "golden" / "once-a-step.json").read_text(encoding="utf-8"))
    graph, system = df.Graph.from_data(docs["graph"]), df.System.from_data(docs["system"])
    chosen = df.Assumptions.from_data(docs["assumptions"])
    for way in (None, "calculon"):
        found = df.optimize(graph, system, assumptions=chosen.with_(gradient_overlap=way))
        alone = df.optimize(graph, system, assumptions=chosen.with_(gradient_overlap=way), tp=4)
        [record] = [one for one in found.plans if one.plan.shards == 4]
        assert alone.status == "optimal" and found.bound <= alone.value
        assert record.bound is not None and record.bound <= alone.value * (1 + 1e-9)
