"""What a step takes beside its kernels, and what it hides: optimizers, gathers, gradients, starts, collectives."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from given_plans import check_agreed, drawn_mapping
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles import in_a_row, judged
from proven import check_proven
from small_systems import rings, small_system
from strategies import World, busy, share, worlds
from typer.testing import CliRunner

import dfopt as df
import dfopt.search as optimizer
from dfopt.cli import app
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.request import Request
from dfopt.documents.result import Result
from dfopt.errors import PlanError
from dfopt.physics.beside import optimizer_s
from dfopt.regions.facts import Facts
from dfopt.search.verify import verify
from dfopt.show.omissions import left_out

NEW: dict[str, Any] = {
    "backward_gathers": [None, "layer"],
    "collective_work": [None, "every", "first", "first_adds"],
    "optimizer_step": [None, "adam", "adam_once"],
    "tensor_overlap": [None, "ring", "pipe", "waves"],
}
PLAIN: dict[str, Any] = {"empty_partitions": "allow", "gradients": "exact", "trains": True}


@share(0.3)
@given(
    worlds(most=4, max_pp=2, sharding_objective="joint", sequence_parallelism="allow", tile_rows=[1, 4], **PLAIN, **NEW)
)
def test_the_best_of_all_mappings(world: World) -> None:
    world = busy(world, 0.25)
    check_proven(world.graph, world.system, world.assumptions, {"zero": (0, 1)})


@share(0.3)
@given(
    worlds(
        most=4, max_pp=2, sharding_objective="joint", sequence_parallelism="allow", execution="kernel_by_kernel",
        operand_traffic=["own", "own_tiled"], overlap=["none", "compute_memory"], tile_rows=[1, 4], trains=None,
        empty_partitions="allow", gradients="exact",
    )
)  # fmt: skip
def test_the_best_where_kernels_move_what_is_theirs(world: World) -> None:
    check_proven(world.graph, world.system, world.assumptions, {})


@share(0.6)
@given(
    world=worlds(
        roomy=True, zero=True, weight_tiling="forbid", compute_model=["fixed", "efficiency"], memory=True,
        gradient_overlap=[None, "backward"], **PLAIN, **NEW,
    ),
    data=st.data(),
)  # fmt: skip
def test_judge_search_and_bound_agree_on_what_is_beside_kernels(world: World, data: st.DataObject) -> None:
    world = busy(world, 0.25)
    graph, chosen = world.graph, world.assumptions
    assume(graph.trains and (graph.folded or chosen.gradient_overlap is None))
    assume(graph.folded or world.plan.pp == 1)
    mapping, score = drawn_mapping(world, data, in_a_row(world))
    assert score.breakdown.total == pytest.approx(score.step_time_s, rel=1e-9)
    assert score.breakdown.optimizer_s == (score.optimizer_step_s or 0.0)
    check_agreed(world, mapping, score)


CHIP = df.load_system("a100-8").chip
ADAM = Assumptions(overlap="none", compute_model="efficiency", optimizer_step="adam")


@pytest.mark.parametrize("step", ["adam", "adam_once"])
def test_fewer_parameters_never_take_longer(step: str) -> None:
    """Although the share of bandwidth rises with their bytes."""
    chosen = ADAM.with_(optimizer_step=step)
    seconds = [optimizer_s(float(count), 2.0, 2.0, CHIP, chosen) for count in np.geomspace(1, 1e10, 2000)]
    assert seconds == sorted(seconds)


def test_copies_share_the_step_out() -> None:
    graph = df.load_graph("gpt2-small", mode="training", batch=16)
    system, zero = df.load_system("a100-8"), []
    for level in (0, 1):
        fixed: dict[str, Any] = {"tp": 1, "pp": 1, "dp": 8, "zero": level}
        found = df.optimize(graph, system, assumptions=Assumptions(optimizer_step="adam"), **fixed)
        zero.append(found.score.breakdown.optimizer_s)
    assert zero[0] == pytest.approx(8 * zero[1], rel=0.01)


# -- gradients behind the backward pass --------------------------------------------------------


BEHIND = df.Assumptions(gradient_overlap="backward")
FIXED = {
    "gradient_overlap": None,
    "gradients": "exact",
    "empty_partitions": "allow",
    "weight_tiling": "forbid",
    "compute_model": "fixed",
}


def behind(world: World) -> World:
    return replace(world, assumptions=world.assumptions.with_(gradient_overlap="backward"))


def in_some_blocks(world: World, data: st.DataObject) -> dict[str, int]:
    """Partitions of kernels that follow one another, the forward pass first."""
    ahead = {kernel.name: kernel.pass_ == "forward" for kernel in world.graph.kernels}
    order = list(in_a_row(world))
    alone, number, places = world.assumptions.execution == "kernel_by_kernel", 0, dict[str, int]()
    for before, name in zip([order[0], *order], order, strict=False):
        number += alone or ahead[before] != ahead[name] or data.draw(st.integers(0, 1))
        places[name] = number
    return places


@share(0.4)
@given(world=worlds(trains=True, repeats=(2, 4), roomy=True, **FIXED), data=st.data())
def test_judge_search_and_bound_agree_on_gradients_that_hide(world: World, data: st.DataObject) -> None:
    """Of any mapping: the search says what the judge does, which no bound exceeds, and hiding never costs."""
    graph, hidden = world.graph, behind(world)
    assume(graph.trains and world.plan.copies > 1)
    mapping, after = drawn_mapping(world, data, in_some_blocks(world, data))
    score = judged(hidden, mapping)
    assert score.step_time_s <= after.step_time_s * (1 + 1e-12)
    assert score.gradient_link_s == after.gradient_reduction_s
    assert score.breakdown.data_parallel_s == score.gradient_reduction_s
    region = check_agreed(hidden, mapping, score)
    assert score.violations or Facts(region).by_all <= score.step_time_s * (1 + 1e-9)


def waits_as_by_hand(result: df.Result) -> bool:
    """Of 12 layers the first waits; of the others what takes longer than the backward pass of a layer, if it does."""
    score, passes = result.score, {k.name: k.pass_ for k in result.graph.kernels}
    assert score.gradient_link_s is not None
    back = sum(p.time_s for p in score.partitions if all(passes[name] != "forward" for name in p.kernels))
    added = score.gradient_link_s / 12
    assert score.gradient_reduction_s == pytest.approx(added + 11 * max(added - back, 0.0), rel=1e-9)
    assert verify(result).ok
    return added > back


def test_slow_links_by_hand() -> None:
    graph = df.load_graph("gpt2-small", mode="training", batch=16)
    system = df.load_system("a100-8", {"network.nvlink.link_bandwidth": "5 GB/s"})
    result = df.optimize(graph, system, assumptions=BEHIND, tp=1, pp=1)
    assert waits_as_by_hand(result) and result.gap < 1e-3
    assert "gradients reduced" not in left_out(result)


def test_command_line_and_fast_links_by_hand() -> None:
    words = "solve gpt2-small a100-8 --param mode=training --param batch=16 --tp 1 --assume ideal"
    asked = words.split()
    found = CliRunner().invoke(app, [*asked, "--pp", "1", "--set", "gradient_overlap=backward", "--json"])
    assert found.exit_code == 0
    assert not waits_as_by_hand(df.Result.from_data(json.loads(found.stdout)))
    found = CliRunner().invoke(app, [*asked, "--set", "gradient_overlap=forward"])
    assert found.exit_code == 3 and "gradient_overlap" in found.stderr


# -- what starting a partition takes, and a step: by hand --------------------------------------


PAIR = Graph(
    name="g",
    batch=3,
    kernels=tuple(Kernel(name=name, op="elementwise", m=10, n=10) for name in "ab"),
    tensors=(Tensor(src="a", dst="b"),),
)


@pytest.mark.parametrize(
    ("execution", "overlap", "partitions"),
    [("kernel_by_kernel", "none", 2), ("kernel_by_kernel", "compute_memory", 2), ("dataflow", "none", 1)],
)
def test_every_partition_of_every_microbatch_starts_once(execution: str, overlap: str, partitions: int) -> None:
    plain = Assumptions(execution=execution, overlap=overlap)
    both = plain.with_(kernel_overhead=0.25, step_overhead=7.0)
    system = small_system(tiles=4, bandwidth=1e3)
    without, found = (optimizer.solve(PAIR, system, assumptions=one) for one in (plain, both))
    assert found.status == without.status == "optimal"
    more = 3 * partitions * 0.25 + 7.0
    assert found.step_time_s - without.step_time_s == pytest.approx(more, rel=1e-9)
    assert found.score.breakdown.overhead_s == pytest.approx(more, rel=1e-9)
    assert found.score.breakdown.total == pytest.approx(found.step_time_s, rel=1e-9)


def test_what_hides_communication_hides_the_start() -> None:
    chosen = Assumptions(execution="dataflow", overlap="perfect", kernel_overhead=1e-3)
    found = optimizer.solve(PAIR, small_system(tiles=4, bandwidth=1e3), assumptions=chosen)
    assert found.score.partitions[0].network_s == 1e-3 < found.score.partitions[0].time_s
    assert found.score.breakdown.overhead_s == 0.0


def test_a_sharding_of_kernels_that_run_alone_counts_their_starts() -> None:
    """Of two kernels of 0.2 s on one chip each, sent in 0.3 s: 0.4 s together and 0.5 s apart, but for their starts."""
    system = small_system(*rings(2, rate=200.0 / 0.3), tiles=4, bandwidth=2e3)
    plain = Assumptions(execution="kernel_by_kernel", overlap="none", sharding_objective="seconds")
    for overhead, stages in ((None, 1), (0.2, 2)):
        found = optimizer.solve(PAIR, system, assumptions=plain.with_(kernel_overhead=overhead), pp=2)
        assert len({one.stage for one in found.mapping.kernels}) == stages, found.score


# -- what is hidden, as it is asked for --------------------------------------------------------


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
    order = sorted(graph.kernels, key=lambda k: (k.pass_ != "forward", graph.levels()[k.name]))
    mapping, _ = drawn_mapping(world, data, {kernel.name: place for place, kernel in enumerate(order)})
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


# -- what is refused beside what ---------------------------------------------------------------


OWN: dict[str, Any] = {"operand_traffic": "own"}
ALONE: dict[str, Any] = {"execution": "kernel_by_kernel"}
WINDOWS: dict[str, Any] = {**ALONE, "gradient_overlap": "calculon"}
REFUSED: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("operand_traffic: found own beside execution dataflow", "sn10-8-ring", OWN, {}),
    ("operand_traffic: found own beside heat", "h100-8-hybrid", OWN | ALONE, {"heat": "aware"}),
    (
        "gradient_overlap: found backward beside formulation: assignment",
        "sn10-8-ring", {"gradient_overlap": "backward"}, {"formulation": "assignment"},
    ),
    (
        "beside gradients: dfmodel spreads them",
        "a100-8", {"gradient_overlap": "backward", "gradients": "dfmodel"}, {},
    ),
    (
        "kernels that share partitions; use execution: kernel_by_kernel",
        "a100-8", WINDOWS | {"execution": "library"}, {},
    ),
    ("messages to other stages that are hidden", "a100-8", WINDOWS | {"point_to_point_overlap": "hidden"}, {}),
    ("gradients: dfmodel spreads them", "a100-8", WINDOWS | {"gradients": "dfmodel"}, {}),
    (  # ways are told apart where schemes and fusion are one problem
        "tensor_overlap: found any beside gradient_overlap: calculon",
        "a100-8", WINDOWS | {"sharding_objective": "seconds"}, {"tensor_overlap": "any"},
    ),
    (  # weights hide where gradients do
        "parameter_overlap: found any beside gradient_overlap: none, expected back",
        "a100-8", ALONE | {"overlap": "none"}, {"parameter_overlap": "any"},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("words", "system", "assumed", "asked"), REFUSED)
def test_what_is_refused_beside_what(words: str, system: str, assumed: dict[str, Any], asked: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match=words):
        df.optimize(df.load_graph("gpt2-small", **STEP), system, assumptions=df.Assumptions(**assumed), **asked)
