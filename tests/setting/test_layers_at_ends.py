"""Embedding and head beside a repeated layer: how layers are shared out among stages, and what that brings."""

from __future__ import annotations

import io
import itertools
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import LEVELS, World, layered, plans_on, share, worlds

import dfopt as df
from dfopt.documents.experts import Experts
from dfopt.documents.graph import Graph, Kernel
from dfopt.documents.result import Result
from dfopt.documents.system import Chip, Dram, NetworkDim, Sram, System
from dfopt.errors import Infeasible, PlanError
from dfopt.physics.pipeline import step_time
from dfopt.search.dump import models
from dfopt.search.verify import verify
from dfopt.setting.stages import pipeline_stages
from dfopt.setting.uneven import cuts, fewest, handed_on, splits, uneven_layers, wider_splits
from dfopt.show.details import answer_report
from dfopt.show.grid import print_to
from dfopt.show.inputs import graph_report
from dfopt.workloads import WORKLOADS


def machine(chips: int, dram: float | None = None) -> System:
    """1000 FLOP/s and 100 B/s of DRAM per chip, on a ring of links so fast that they do not count."""
    chip = Chip(name="c", tiles=8, peak=1e3, compute_utilization=1.0, sram=Sram(capacity=1e9),
                dram=Dram(bandwidth=1e2, capacity=dram))  # fmt: skip
    links = NetworkDim(name="x", topology="ring", size=chips, link_bandwidth=1e12)
    return System(name="s", chip=chip, network=(links,))


def simd(name: str, flop: int, layer: str | None = None, **more: Any) -> Kernel:
    return Kernel(name=name, op="elementwise", m=1, n=10, flop_per_element=flop // 10, layer=layer, **more)


def workload(*ends: Kernel, repeat: int = 12, layer: int = 1000, batch: int = 100) -> Graph:
    return layered(repeat, (simd("layer", layer), *ends), batch=batch)


def report(of: Any) -> str:
    stream = io.StringIO()
    print_to(stream, of)
    return stream.getvalue()


# -- how layers are shared out ------------------------------------------------------------------


@given(
    st.integers(2, 40), st.integers(2, 9), st.tuples(st.integers(0, 12), st.integers(0, 12)),
    st.tuples(st.booleans(), st.booleans()), st.tuples(st.floats(0, 1), st.floats(0, 1)),
)  # fmt: skip
def test_the_best_numbers_of_layers_are_among_those_that_are_tried(
    repeat: int, stages: int, spared: tuple[int, int], alone: tuple[bool, bool], part: tuple[float, float]
) -> None:
    """Against all numbers, for work at the ends of up to so many layers; none that is tried holds too few."""
    if stages > repeat:
        return
    found = splits(repeat, stages, *spared, alone)
    assert len(found) == len(set(found)) <= (spared[0] + 4) * (spared[1] + 4)
    assert all(first + (stages - 2) * middle + last >= repeat for first, middle, last in found)
    ends = [a * share for a, share in zip(spared, part, strict=True)]

    def slowest(first: int, middle: int, last: int) -> float:
        return max(first + ends[0], middle, last + ends[1])

    least = [0 if own else 1 for own in alone]
    middles = range(-(-repeat // stages), repeat + 1) if stages > 2 else (0,)
    every = (
        slowest(first, middle, max(repeat - first - (stages - 2) * middle, least[1]))
        for middle in middles
        for first in range(least[0], repeat + 1 - (least[1] if stages == 2 else 0))
    )
    assert min(slowest(*layers) for layers in found) <= min(every) + 1e-9


@given(
    st.integers(2, 60), st.integers(2, 6), st.tuples(*[st.tuples(*[st.floats(0, 5)] * 2)] * 2), st.floats(0, 3),
    st.floats(0.3, 1.5),
)  # fmt: skip
def test_the_best_numbers_of_layers_that_fit_are_among_those_that_are_tried(
    repeat: int, stages: int, ends: tuple[tuple[float, float], tuple[float, float]], saved: float, room: float
) -> None:
    """In 1F1B, against all numbers: ends have seconds and bytes, a layer has one of both, and saves activations."""
    if stages > repeat:
        return
    spared = [math.ceil(max(end)) for end in ends]
    capacity = room * (ends[0][1] + -(-repeat // stages) * (1 + saved * stages))

    def step(layers: tuple[int, int, int]) -> float:
        first, middle, last = layers
        held = [ends[0][1] + first * (1 + saved * stages), ends[1][1] + last * (1 + saved)]
        held += [middle * (1 + saved * (stages - 1))] if stages > 2 else []
        return max(first + ends[0][0], middle, last + ends[1][0]) if max(held) <= capacity * (1 + 1e-9) else math.inf

    every = [
        (first, middle, last)
        for middle in (range(-(-repeat // stages), repeat + 1) if stages > 2 else (0,))
        for first in range((middle if stages > 2 else repeat) + 1)
        if (last := max(repeat - first - (stages - 2) * middle, 0)) >= 0 and (stages == 2 or last <= middle)
    ]
    tried = splits(repeat, stages, spared[0], spared[1], (True, True), saved)
    assert min(map(step, tried)) <= min(map(step, every)) + 1e-9


def test_a_first_stage_that_saves_more_activations_may_have_far_fewer_layers() -> None:
    """Of 120 layers of a small model with long samples: with about as many in every stage nothing fits."""
    sizes = {"hidden": 512, "heads": 8, "head_dim": 64, "ffn": 2048, "vocab": 1000, "seq": 4096, "layers": 120}
    graph = WORKLOADS["decoder"](**sizes, mode="training", batch=64)
    asked = {"tp": 2, "pp": 4, "zero": 0, "schedule": "1f1b", "sensitivity": False, "assumptions": "ideal"}
    result = df.optimize(graph, "h100-8", set={"chip.dram.capacity": "19.5 GB"}, **asked)
    assert result.status == "optimal" and result.plan.stage_layers == (24, 32, 32)


@given(
    st.integers(2, 14), st.integers(2, 6), st.tuples(st.integers(3, 8), st.integers(3, 8)),
    st.tuples(st.booleans(), st.booleans()), st.tuples(st.floats(0, 1), st.floats(0, 1)), st.integers(1, 8),
)  # fmt: skip
def test_where_layers_are_chunks_the_best_numbers_are_tried(
    repeat: int, stages: int, spared: tuple[int, int], alone: tuple[bool, bool], part: tuple[float, float], rounds: int
) -> None:
    """Against all numbers in which no place is without a layer that another choice would not need."""
    if stages > repeat:
        return
    ends = [a * share for a, share in zip(spared, part, strict=True)]

    def step(layers: tuple[int, int, int]) -> float:
        first, middle, last = layers
        return max(first + ends[0], middle, last + ends[1]) * (rounds + (stages - 1) / max(max(layers) - 1, 1))

    least = [0 if own else 1 for own in alone]
    every = [
        (first, middle, last)
        for middle in (range(repeat + 1) if stages > 2 else (0,))
        for first, last in itertools.product(*(range(low, repeat + 1) for low in least))
        if first + (stages - 2) * middle + last >= repeat and (stages == 2 or max(first, last) <= middle)
    ]
    needed = [
        one for one in every
        if not any(other != one and all(map(int.__le__, other, one)) for other in every)
    ]  # fmt: skip
    tried = wider_splits(repeat, stages, *spared, alone)
    assert min(map(step, tried)) <= min(map(step, needed)) * (1 + 1e-9)
    assert {*tried} <= {*needed} | {*splits(repeat, stages, *spared, alone)}


@given(st.lists(st.integers(1, 9), min_size=3, max_size=9), st.integers(3, 5), st.tuples(*[st.integers(0, 20)] * 2))
def test_layers_of_several_kinds_are_cut_in_every_way(weights: list[int], stages: int, ends: tuple[int, int]) -> None:
    """The slowest stage is as fast as with any numbers of layers, though some stages have places to spare."""
    repeat = len(weights)

    def slowest(layers: tuple[int, int, int]) -> int:
        first, middle, last = layers
        at = [0, *itertools.accumulate([first, *[middle] * (stages - 2), last])]
        shares = [sum(weights[low:high]) for low, high in itertools.pairwise(at)]
        return max(shares[0] + ends[0], *shares[1:-1], shares[-1] + ends[1])

    every = [
        (first, middle, last)
        for middle in range(repeat + 1)
        for first, last in itertools.product(range(middle + 1), repeat=2)
        if repeat <= first + (stages - 2) * middle + last < repeat + stages
    ]
    tried = fewest(cuts(repeat, stages, repeat, repeat, (True, True)), repeat, stages)
    assert {*tried} <= {*every}
    assert min(map(slowest, tried)) == min(map(slowest, every))


def test_a_head_is_worth_what_layers_of_experts_read() -> None:
    """One token reads two of 64 experts: the head, which is read whole, weighs against those and not against all."""
    experts = Experts(count=64, chosen=2, touched=2.0)
    layer = [Kernel(name="up", op="gemm", m=2 * 100, k=100, n=1, experts=experts)]
    head = [Kernel(name="head", op="gemm", m=2000, k=100, n=1, layer="last")]
    graph = layered(8, (*layer, *head))
    assert handed_on(graph, head, [layer] * 40) == 20


def test_a_heavy_head_is_worth_many_layers() -> None:
    """Six layers and more: the last stage is left with the head alone."""
    graph = workload(simd("head", 6000, "last"), repeat=42)
    assert {"layers_per_stage": 6, "first_layers": 6, "last_layers": 0} in uneven_layers(graph, 8)
    result = df.solve(graph, machine(8), pp=8)
    assert result.plan.stage_layers == (6, 6, 0)
    assert [stage.layers for stage in result.score.stages] == [6, 6, 0]
    assert "6 layers in the first stage" in report(answer_report(result, detail=["all"])) or result.plan.label.endswith(
        "L6+6..6+0"
    )


def test_an_end_may_be_worth_more_layers_than_stages_have_where_these_are_alike() -> None:
    """By its work, or by weights where layers have none."""
    heavy, weighted = simd("head", 10**6, "last"), Kernel(name="head", op="gemm", m=1, k=1, n=1, layer="last")
    for end in (heavy, weighted):
        assert {"layers_per_stage": 6, "first_layers": 6, "last_layers": 0} in uneven_layers(
            workload(end, repeat=12), 3
        )


def test_no_stage_spares_more_layers_than_there_are() -> None:
    """Ends may be worth millions of layers that keep almost nothing."""
    assert splits(43, 8, 10**9, 10**9, (True, True)) == splits(43, 8, 43, 43, (True, True))


def test_plans_with_uneven_layers_are_there_only_with_ends() -> None:
    system = machine(4)
    legal, _ = plans_on(workload(), system, pp=4)
    assert not any(plan.uneven for plan in legal)
    trained = workload(simd("head", 10, "last", pass_="backward"))
    legal, _ = plans_on(trained, system, pp=4)
    assert {plan.interleave for plan in legal if not plan.uneven} == {1, 3}
    assert [(plan.label, plan.stage_layers) for plan in legal if plan.uneven] == [
        ("TP1 PP4(x) DP1 L4+4..4+1", (4, 4, 1))
    ]
    legal, _ = plans_on(trained, system, pp=4, interleave=3)
    assert [plan.interleave for plan in legal] == [3]
    assert not any(plan.uneven for plan in plans_on(workload(simd("head", 10, "last"), repeat=1), machine(2), pp=2)[0])


@given(worlds(most=4, max_pp=9))
def test_pipeline_stages_hold_every_layer_and_each_piece_once(world: World) -> None:
    graph, plan = world.graph, world.plan
    stages = pipeline_stages(graph, plan)
    assert [stage.number for stage in stages] == sorted({stage.number for stage in stages})
    assert all(number < world.instance.mapped_stages for stage in stages for number, _ in stage.runs)
    runs = [number for stage in stages for number, _ in stage.runs]
    if not graph.folded:
        assert runs == list(range(plan.pp))
    elif graph.layers.counted > 1:
        assert {*runs} == {*range(len(graph.layers.kinds))}
    elif len(graph.layers.kinds) > 1:
        assert all(runs.count(kind) == 1 for kind in range(1, len(graph.layers.kinds)))
        copies = [plan.pp - 2 if stage.number == 1 and plan.pp > 2 else 1 for stage in stages]
        layers = sum(copy * dict(stage.runs)[0] for copy, stage in zip(copies, stages, strict=True))
        assert graph.repeat <= layers < graph.repeat + plan.pp
    else:
        assert stages[0].runs == ((0, plan.layers_per_stage),)


# -- what it brings -----------------------------------------------------------------------------


def test_a_heavy_head_gets_fewer_layers() -> None:
    """A head of 3 layers' work on 2 stages: 7 layers in the first make the slowest 8 s, 6 make it 9 s."""
    result = df.solve(workload(simd("head", 3000, "last")), machine(2), pp=2)
    even, *_ = (record for record in result.plans if not record.plan.uneven)
    assert result.plan.stage_layers in ((7, 7, 5), (8, 8, 4))
    assert result.step_time_s == pytest.approx(8.0 * 101)
    assert even.level_bound == pytest.approx(9.0 * 101)
    assert result.level_gap == 0.0
    found = verify(Result.from_data(json.loads(json.dumps(result.to_data()))))
    assert found.verdict.startswith("verified optimal"), found


@pytest.fixture(scope="module")
def between_ends() -> Result:
    """14 layers on 4 stages, between ends that are as long as a layer."""
    ends = simd("embed", 1000, "first"), simd("head", 1000, "last")
    return df.solve(workload(*ends, repeat=14), machine(4), pp=4, assumptions=LEVELS)


def test_both_ends_get_fewer_layers_than_the_middle(between_ends: Result) -> None:
    """3, 4, 4, 3 make every stage as long as 4 layers."""
    result = between_ends
    assert result.plan.stage_layers == (3, 4, 3)
    assert result.step_time_s == pytest.approx(4.0 * 103)
    assert result.score.utilization == pytest.approx(16 * 100 / (4 * 4.0 * 103))


@share(1)
@given(
    worlds(
        most=4, max_pp=4, pieces=False, repeats=(4,), roomy=True, execution="dataflow", empty_partitions="allow",
        compute_model="fixed", compute_utilization=0.5, kernel_overhead=None,
        # where stages differ they may be charged less than equal ones: of layers that are missing, and of messages
        bubble=["one_f_one_b", "interleaved"], point_to_point=["per_microbatch", "per_step"],
    ),
    st.sets(st.sampled_from(["first", "last"]), min_size=1),
)  # fmt: skip
def test_ends_that_cost_nothing_change_nothing(world: World, runs: set[str]) -> None:
    """One operation before and after the layers adds the time of two, at most, to that of each microbatch.

    And of the element that each of them reads and the one that it writes.

    On one chip per stage: several shardings of a layer may be equally good, and one more kernel picks another.
    """
    ends = tuple(Kernel(name=name, op="elementwise", m=1, n=1, stream="none", layer=name) for name in sorted(runs))
    kept = {name: getattr(world.graph, name) for name in Graph.model_fields if name not in ("schema_", "sections")}
    large = layered(4, **{**kept, "kernels": (*world.graph.kernels, *ends)})
    assert len(large.layers.kinds) > 1
    try:
        alone = df.solve(world.graph, world.system, assumptions=world.assumptions, tp=1)
    except (Infeasible, PlanError):
        return
    both = df.solve(large, world.system, assumptions=world.assumptions, tp=1)
    chip, moved = world.system.chip, 4 * large.words.activations
    each = 2 / (0.5 * chip.peak_flops) + moved / chip.dram.bandwidth + moved / (chip.sram.bandwidth or math.inf)
    most = step_time(alone.plan, alone.assumptions, each).total
    # where one stage stands for all, the last one is charged a hop too
    hop = alone.score.stages[0].point_to_point_s
    assert alone.step_time_s * (1 - 1e-9) - hop <= both.step_time_s <= (alone.step_time_s + most) * (1 + 1e-9)


def test_a_stage_that_is_too_full_is_named() -> None:
    """A table of 600 B does not fit beside nothing: the first stage is short of DRAM, not the others."""
    table = simd("embed", 10, "first", resident_bytes=600.0)
    with pytest.raises(Infeasible, match=r"the first stage \(6 layers\) needs at least 6e-07 GB of DRAM"):
        df.solve(workload(table), machine(2, dram=599.0), pp=2)
    assert df.solve(workload(table), machine(2, dram=600.0), pp=2).level_gap == 0.0


def test_weights_of_layers_move_away_from_a_full_stage() -> None:
    """12 layers of 200 B and a head of 800 B on two chips of 1.7 kB: 8 layers and 4 with the head are all that fits."""
    layer = Kernel(name="layer", op="gemm", m=10, k=10, n=10)
    head = Kernel(name="head", op="gemm", m=40, k=10, n=1, layer="last")
    graph = layered(12, (layer, head), batch=100)
    rules = df.Assumptions(weights_from_dram=False)  # else the head is as slow as it is large
    result = df.solve(graph, machine(2, dram=1700.0), pp=2, assumptions=rules)
    assert result.plan.stage_layers == (8, 8, 4)
    assert [stage.states["dram"]["weights"] for stage in result.score.stages] == [1600.0, 1600.0]
    refused = [record for record in result.plans if record.status == "infeasible"]
    assert any("the last stage (6 layers)" in record.note for record in refused)


def test_the_report_shows_pieces_and_layers(between_ends: Result) -> None:
    text = report(answer_report(between_ends, detail=["all"]))
    assert "layers: 3 in the first stage, 4 in each between, 3 in the last" in " ".join(text.split())
    assert "L3+4..4+3" in text
    rows = [line.split()[0] for line in text.splitlines() if " 0  " in line]
    assert rows == ["layer", "first", "last"]
    assert [name for name, _ in models(between_ends)] == ["interchip", "intrachip-0", "intrachip-1", "intrachip-2"]


# -- verification ---------------------------------------------------------------------------------


@share(0.6)
@given(worlds(most=4, max_pp=4, repeats=(1, 4, 4), empty_partitions="allow"))
def test_results_are_verified_optimal(world: World) -> None:
    """With pieces, or drawn once over several stages, as much as of one layer alone."""
    try:
        result = df.solve(world.graph, world.system, assumptions=world.assumptions)
    except Infeasible:
        return
    found = verify(Result.from_data(json.loads(json.dumps(result.to_data()))))
    assert found.ok, found.problems
    assert found.verdict.startswith("verified optimal")


@pytest.mark.parametrize("slow", ["layer", "embed", "head"])
def test_a_slower_piece_cannot_claim_to_be_optimal(slow: str) -> None:
    """Two kernels with a large tensor between them, kept apart by a pin: fused they are faster."""

    def pair(name: str, runs: str | None) -> list[Kernel]:
        return [simd(f"{name}{i}", 10, runs) for i in (1, 2)]

    kernels = [k for name, runs in (("layer", None), ("embed", "first"), ("head", "last"))
               for k in pair(name, runs)]  # fmt: skip
    tensors = tuple(df.Tensor(src=f"{name}1", dst=f"{name}2") for name in ("layer", "embed", "head"))
    graph = layered(4, kernels, batch=10, tensors=tensors)
    for pp in (1, 2):
        free = df.solve(graph, machine(2), pp=pp, tp=1)
        worse = df.solve(graph, machine(2), pp=pp, tp=1, pin_partition={f"{slow}1": 0, f"{slow}2": 1})
        if worse.step_time_s == free.step_time_s:  # not the end that decides
            assert pp == 2
            continue
        assert verify(worse).verdict.startswith("verified optimal")
        lie = worse.model_copy(update={"request": free.request})
        lie = lie.model_copy(update={"seal": lie.unsealed_digest()})
        found = verify(lie)
        assert not found.ok
        assert found.gap == pytest.approx(1 - free.step_time_s / worse.step_time_s, rel=1e-5)


def test_the_space_counts_the_fusions_of_each_piece() -> None:
    """Two kernels in a row have two fusions, three have four."""
    kernels = [simd(f"k{i}", 10) for i in range(3)] + [simd(f"h{i}", 10, "last") for i in range(2)]
    ends = [("k0", "k1"), ("k1", "k2"), ("h0", "h1")]
    tensors = tuple(df.Tensor(src=a, dst=b) for a, b in ends)
    result = df.solve(layered(4, kernels, tensors=tensors), machine(1))
    assert result.space is not None and result.space.exact
    assert 10**result.space.log10_fusions == pytest.approx(8)


def test_the_report_of_a_graph_counts_what_runs_once_once() -> None:
    graph = workload(simd("head", 500, "last"))
    text = report(graph_report(graph))
    assert "1.25 MFLOP per step" in text, "(12 x 1000 + 500) x 100"
    assert "12 x layer, last" in text and "2 B per element" in text
