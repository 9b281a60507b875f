"""What must hold for every mapping, on random small graphs, machines and assumptions."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from judge_cases import gemm, machine, place, ring
from problem_cases import better, renamed
from strategies import layered

from dfopt.documents.assumptions import Assumptions, profile
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.mapping import KernelMapping, Mapping
from dfopt.documents.metrics import FORMULAS
from dfopt.documents.plan import Plan
from dfopt.documents.score import Score
from dfopt.documents.system import EfficiencyRow, System
from dfopt.judge import evaluate
from dfopt.physics import ops
from dfopt.physics.copies import obstacle

FEW = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@dataclass(frozen=True)
class World:
    """Everything that the judge is given."""

    mapping: Mapping
    graph: Graph
    system: System
    assumptions: Assumptions

    def score(self) -> Score:
        return evaluate(self.mapping, self.graph, self.system, self.assumptions)

    def with_(self, **changes: Any) -> World:
        return dataclasses.replace(self, **changes)

    def assuming(self, **changes: Any) -> World:
        return self.with_(assumptions=self.assumptions.with_(**changes))

    def with_partitions(self, partitions: dict[str, int]) -> World:
        kernels = (k.model_copy(update={"partition": partitions[k.name]}) for k in self.mapping.kernels)
        return self.with_(mapping=self.mapping.model_copy(update={"kernels": tuple(kernels)}))


CHOICES: dict[str, list[Any]] = {
    "compute_model": ["fixed", "efficiency"],
    "execution": ["auto", "dataflow"],
    "overlap": ["auto", "perfect", "none", "compute_memory"],
    "sharding_rules": ["exact", "dfmodel"],
    "collective_model": ["exact", "dfmodel", "two_stage"],
    "weights_from_dram": [True, False],
    "layer_boundary": ["dram", "free"],
    "forward_backward": ["separate", "halves", "shared"],
    "fanout": ["shared", "per_consumer"],
    "skew_buffers": ["depth", "double"],
    "weight_tiling": ["reread", "free", "forbid"],
    "gradients": ["exact", "dfmodel"],
    "gradient_overlap": [None, "backward"],  # where gradients are exact
    "gradient_traffic": [None, "written", "held"],
    "kernel_overhead": [None, 0.05],
    "step_overhead": [None, 0.5],
    "sequence_parallelism": ["none", "allow", "force"],
    "bubble": ["one_f_one_b", "interleaved", "stages"],
    "point_to_point": ["per_microbatch", "per_step", "per_neighbour"],
    "point_to_point_parts": [None, "scattered"],
}
SHARES = (
    EfficiencyRow(unit="matrix", flop=100.0, extent=3, share=0.8),
    EfficiencyRow(unit="vector", flop=16.0, share=0.2),
    EfficiencyRow(unit="matrix", flop=16.0, share=0.4),
    EfficiencyRow(unit="matrix", share=0.1),
    EfficiencyRow(unit="vector", share=0.05),
)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A small graph that trains or not, in order, on up to eight chips, legally sharded; now and then with pieces."""
    count = draw(st.integers(1, 7))
    repeat = draw(st.sampled_from([1, 4]))
    ends = [None, None, "first", "last"] if draw(st.booleans()) else [None]
    runs = [None, *(draw(st.sampled_from(ends)) for _ in range(count - 1))]
    forward = draw(st.integers(1, count))
    axis, later_pass = st.sampled_from([1, 2, 3, 8, 17]), st.sampled_from(["recompute", "backward"])
    kernels, tensors = [], []
    for number in range(count):
        later = number >= forward
        op = draw(st.sampled_from(["gemm", "matmul", "elementwise", *(["weight_update"] if later else [])]))
        kernels.append(
            Kernel(
                name=f"k{number}",
                op=op,
                outer=draw(st.sampled_from([1, 1, 4])),
                m=draw(axis),
                k=1 if op == "elementwise" else draw(axis),
                n=draw(axis),
                pass_=draw(later_pass) if later and op != "weight_update" else "update" if later else "forward",
                normalizes=op == "elementwise" and draw(st.booleans()),
                layer=runs[number],
            )
        )
        limit = {"gemm": 1, "elementwise": 3}.get(op, 2)
        sources = draw(st.lists(st.integers(0, number - 1), max_size=limit)) if number else []
        for operand, source in enumerate(sources, 1):
            src = kernels[source]
            if repeat > 1 and runs[source] != runs[number]:
                continue
            whole = src.outer * src.m * src.n * 2
            # With bytes and operand stated, any shapes go together, and the order of tensors says nothing.
            size = float(draw(st.sampled_from([whole, whole / 2])))
            known = 1 if op in ("gemm", "elementwise") else operand
            tensors.append(Tensor(src=src.name, dst=f"k{number}", bytes=size, operand=known))
    names = [kernel.name for kernel in kernels]
    layer = [name for name, where in zip(names, runs, strict=True) if repeat == 1 or where is None]
    carried = [
        Tensor(src=draw(st.sampled_from(layer)), dst=draw(st.sampled_from(layer)))
        for _ in range(draw(st.integers(0, 2)))
    ]
    tp, pp, dp = (draw(st.sampled_from([1, 2, 4])) for _ in range(3))
    microbatches = draw(st.integers(1, 3))
    graph = layered(
        repeat,
        name="random",
        batch=microbatches * dp,
        kernels=tuple(kernels),
        tensors=tuple(tensors),
        carried=tuple(carried),
    )
    plan = Plan(
        tp=tp,
        pp=pp,
        dp=dp,
        tp_dims=("t",),
        pp_dims=("p",),
        dp_dims=("d",),
        microbatches=microbatches,
        layers_per_stage=1 if repeat == 1 else -(-repeat // pp),
    )
    if len(graph.layers.kinds) > 1 and pp == 2:
        shares = [{"layers_per_stage": 3, "first_layers": first, "last_layers": 4 - first} for first in (1, 3)]
        plan = plan.model_copy(update=draw(st.sampled_from([{}, *shares])))
    chosen = {key: draw(st.sampled_from(values)) for key, values in CHOICES.items()}
    base = Assumptions(**chosen | ({"gradient_overlap": None} if chosen["gradients"] == "dfmodel" else {}))
    assumptions = draw(st.sampled_from([base, base, base, profile("default"), profile("dfmodel")]))
    levels = [level for level in (1, 2, 3) if not obstacle(plan, level, graph, assumptions)]
    plan = plan.model_copy(update={"zero": draw(st.sampled_from([None, *levels]))})
    stages = pp if repeat == 1 else 1
    stage = sorted(draw(st.integers(0, stages - 1)) for _ in names)
    if graph.folded:
        stage = [graph.kind_of(kernel) for kernel in kernels]
    partition = sorted(draw(st.integers(0, 3)) for _ in names)
    placed = tuple(
        KernelMapping(
            name=kernel.name,
            sharding=draw(st.sampled_from(ops.legal_schemes(kernel, tp, assumptions))),
            stage=stage[number],
            partition=partition[number],
            tiles=draw(st.integers(1, 3)),
        )
        for number, kernel in enumerate(kernels)
    )
    tile_count = draw(st.sampled_from([1, 4]))
    mapping = Mapping(graph="random", system="toy", plan=plan, kernels=placed, tile_count=tile_count)
    dims = [ring("t", tp), ring("p", pp), ring("d", dp)]
    sram = {"sram": draw(st.sampled_from([400.0, 3e3, 1e9])), "sram_bandwidth": draw(st.sampled_from([None, 100.0]))}
    return World(mapping, graph, machine(*dims, tiles=24, efficiency=SHARES, **sram), assumptions)


@FEW
@given(worlds())
def test_parts_of_a_step_add_up_to_it(world: World) -> None:
    score = world.score()
    parts, kinds = score.breakdown, {kernel.pass_ for kernel in world.graph.kernels}
    assert parts.total == pytest.approx(score.step_time_s, rel=1e-9)
    assert min(dict(parts).values()) >= 0
    assert ("recompute" in kinds) or parts.recompute_s == parts.recomputed_communication_s == 0
    assert parts.bubble_s == score.pipeline_fill_s and (score.gradient_reduction_s <= parts.data_parallel_s)
    if not any("network" in part.terms and part.network_s for part in score.partitions):
        assert parts.tensor_parallel_s == parts.exchange_s == 0
    assert parts in score.stage_breakdowns
    for one in score.stage_breakdowns:
        assert one.total == pytest.approx(score.step_time_s, rel=1e-9) and min(dict(one).values()) >= 0
        assert one.bubble_s >= parts.bubble_s * (1 - 1e-12)


@FEW
@given(worlds())
def test_links_are_busy_no_shorter_than_a_step_waits_for_them(world: World) -> None:
    score = world.score()
    exposed = dict(score.breakdown)
    for name, busy in dict(score.link_time).items():
        if name == "pipeline_parallel_s" or world.assumptions.collective_work is None:  # which a chip does besides
            assert exposed[name] <= busy * (1 + 1e-9) + 1e-12, name


@FEW
@given(worlds())
def test_links_of_twice_the_bandwidth_halve_all_but_their_latency(world: World) -> None:
    assume(world.mapping.stages == 1 and world.assumptions.gradients == "exact")
    # of two ways to send to the next stage, messages of no bytes may take the other one
    assume(world.assumptions.point_to_point_parts is None or world.mapping.plan.pp == 1)
    network = tuple(dim.model_copy(update={"latency": 0.5}) for dim in world.system.network)
    late = world.with_(system=world.system.model_copy(update={"network": network}))
    slow, fast = late.score(), better(late, "links").score()
    assert fast.link_latency_s == pytest.approx(slow.link_latency_s, rel=1e-9)
    sending = slow.link_time.total - slow.link_latency_s
    assert fast.link_time.total - slow.link_latency_s == pytest.approx(sending / 2, rel=1e-6, abs=1e-12)


def test_every_formula_is_of_a_figure() -> None:
    assert set(FORMULAS) <= set(Score.model_fields)


def figures(score: Score) -> dict[str, Any]:
    """All of a score except names and the order of what it lists."""
    data = score.model_dump(exclude={"partitions", "violations"})
    hidden = {"kernels", "tiles"}
    data["partitions"] = [part.model_dump(exclude=hidden) for part in score.partitions]
    data["sizes"] = [sorted(part.tiles) for part in score.partitions]
    return data


@FEW
@given(worlds(), st.sampled_from(["peak", "dram_bandwidth", "links"]))
def test_a_better_machine_is_never_slower(world: World, what: str) -> None:
    before, after = world.score(), better(world, what).score()
    assert after.step_time_s <= before.step_time_s * (1 + 1e-12)
    assert after.violations == before.violations


@pytest.mark.parametrize("what", ["peak", "dram_bandwidth", "links"])
def test_a_better_machine_can_be_faster(what: str) -> None:
    """The property above would hold for a judge blind to the machine: without overlap, each term counts."""
    graph = Graph(name="g", kernels=(gemm("a", 4, 8, 16),))
    mapping = place(graph, {"a": ("k", 0)}, Plan(tp=2, tp_dims=("t",)))
    world = World(mapping, graph, machine(ring("t", 2)), Assumptions(overlap="none"))
    assert better(world, what).score().step_time_s < world.score().step_time_s


@FEW
@given(worlds(), st.randoms(use_true_random=False))
def test_order_changes_no_digit(world: World, random: Any) -> None:
    def shuffled(items: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(random.sample(items, len(items)))

    lists = ("kernels", "tensors", "carried")
    graph = world.graph.model_copy(update={name: shuffled(getattr(world.graph, name)) for name in lists})
    mapping = world.mapping.model_copy(update={"kernels": shuffled(world.mapping.kernels)})
    before, after = world.score(), world.with_(graph=graph, mapping=mapping).score()
    assert figures(after) == figures(before)
    assert sorted(after.violations) == sorted(before.violations)


@FEW
@given(worlds())
def test_names_mean_nothing(world: World) -> None:
    new = {kernel.name: f"other-{99 - i}" for i, kernel in enumerate(world.graph.kernels)}
    graph = renamed(world.graph, new, [*range(len(new))], [*range(len(world.graph.tensors))])
    kernels = tuple(one.model_copy(update={"name": new[one.name]}) for one in world.mapping.kernels)
    mapping = world.mapping.model_copy(update={"kernels": kernels})
    before, after = world.score(), world.with_(graph=graph, mapping=mapping).score()
    assert figures(after) == figures(before)
    assert [p.kernels for p in after.partitions] == [tuple(new[n] for n in p.kernels) for p in before.partitions]


@FEW
@given(worlds(), st.integers(1, 3))
def test_empty_partitions_change_nothing(world: World, gap: int) -> None:
    assume(world.assumptions.empty_partitions == "allow" and world.assumptions.forward_backward != "halves")
    spread = {k.name: (gap + 1) * k.partition + gap for k in world.mapping.kernels}
    before, after = world.score(), world.with_partitions(spread).score()
    moved = figures(after)
    for part, old in zip(moved["partitions"], figures(before)["partitions"], strict=True):
        part["partition"] = old["partition"]
    assert moved == figures(before)
    assert len(after.violations) == len(before.violations)


@FEW
@given(worlds(), st.integers(1, 6))
def test_splitting_a_partition_never_saves_time_or_traffic(world: World, after_kernel: int) -> None:
    """The later kernels of each partition move to a new one right behind it."""
    split = {k.name: 2 * k.partition + (number >= after_kernel) for number, k in enumerate(world.mapping.kernels)}
    before, after = world.score(), world.with_partitions(split).score()
    more = {"dram_bytes"} | ({"network_s"} if world.assumptions.splits_tokens else set())  # gathered once more
    for key in ("flop", "dram_bytes", "network_s", "compute_s"):
        start = (world.assumptions.kernel_overhead or 0.0) if key == "network_s" else 0.0  # each partition starts once
        old, new = (sum(getattr(p, key) - start for p in s.partitions) for s in (before, after))
        assert new >= old * (1 - 1e-12) - 1e-12
        if key not in more:
            assert new == pytest.approx(old, rel=1e-12, abs=1e-12)
    mixed = any("mixes forward" in broken for broken in before.violations)
    if not mixed or world.assumptions.gradient_overlap is None:  # what is split off may hide gradients
        assert after.step_time_s >= before.step_time_s * (1 - 1e-12)


@FEW
@given(worlds())
def test_storing_a_tensor_once_is_never_worse(world: World) -> None:
    each, once = (world.assuming(fanout=fanout).score() for fanout in ("per_consumer", "shared"))
    # A kernel that cannot run at all is not charged for its weight parts.
    assume(not any("leaves no room" in sentence for sentence in each.violations))
    assert once.step_time_s <= each.step_time_s * (1 + 1e-12)
    for a, b in zip(once.partitions, each.partitions, strict=True):
        assert a.dram_bytes <= b.dram_bytes * (1 + 1e-12)
        assert a.network_s <= b.network_s * (1 + 1e-12)


@FEW
@given(worlds())
def test_the_figures_of_a_score_agree_with_each_other(world: World) -> None:
    score, graph, plan = world.score(), world.graph, world.mapping.plan
    assert sorted(n for p in score.partitions for n in p.kernels) == sorted(k.name for k in graph.kernels)
    assert all(p.kernels for p in score.partitions)
    slowest = max(stage.time_s for stage in score.stages)
    parts = score.pipeline_fill_s + score.point_to_point_s + score.gradient_reduction_s
    parts += world.assumptions.step_overhead or 0.0
    assert score.step_time_s == pytest.approx(slowest * plan.microbatches + parts)
    for stage in score.stages:
        mine = [p.time_s for p in score.partitions if p.stage == stage.holds[0]]
        assert stage.layer_time_s == pytest.approx(sum(mine))
        ends = [p.time_s for p in score.partitions if p.stage in stage.holds[1:]]
        assert stage.once_time_s == pytest.approx(sum(ends))
        assert stage.time_s >= stage.layers * sum(mine) + sum(ends) - 1e-9 * stage.time_s
    if len(graph.layers.kinds) > 1:
        layers = sum(stage.layers for stage in score.stages)
        times = max(plan.pp - 2, 1) if plan.pp > 2 else 0  # the one in the middle stands for so many
        layers += (times - 1) * score.stages[1].layers if times else 0
        assert graph.repeat <= layers < graph.repeat + plan.pp
    for part in score.partitions:
        terms = {"compute": part.compute_s, "memory": part.memory_s, "network": part.network_s}
        assert (part.sram_s is None) == (score.sram_share is None) == (world.system.chip.sram.bandwidth is None)
        terms["sram"] = part.sram_s or 0.0
        assert terms[part.bound_by] == max(terms.values())
        assert max(terms.values()) <= part.time_s <= sum(terms.values()) * (1 + 1e-12)
    shares = (score.compute_share, score.memory_share, score.network_share, score.sram_share or 0.0)
    assert sum(shares) == pytest.approx(1.0) or max(s.layer_time_s + s.once_time_s for s in score.stages) == 0
    # Shards are never smaller than an even split, so no mapping beats what a chip sustains.
    best = world.assumptions.compute_utilization or world.system.chip.compute_utilization
    if world.assumptions.compute_model == "efficiency":
        best = max(row.share for row in SHARES)
    if plan.pp == 1:
        assert score.utilization <= best * (1 + 1e-9)
    assert Score.from_data(score.to_data()) == score


@FEW
@given(worlds())
def test_a_simple_count_of_the_cut_bytes(world: World) -> None:
    """Per consumer, with nothing else in DRAM: every cut tensor is written once and read once."""
    assume(not world.mapping.plan.zero)
    free = {"weights_from_dram": False, "layer_boundary": "free", "weight_tiling": "free"}
    world = world.assuming(fanout="per_consumer", gradients="dfmodel", gradient_overlap=None, **free)
    here = {k.name: k for k in world.mapping.kernels}
    kernels = {k.name: k for k in world.graph.kernels}
    expected = 0.0
    for tensor in world.graph.tensors:
        src, dst = here[tensor.src], here[tensor.dst]
        if (src.stage, src.partition) != (dst.stage, dst.partition):
            rules = world.assumptions.sharding_rules
            share = ops.output_share(kernels[tensor.src], src.sharding, world.mapping.plan.tp, rules)
            expected += 2 * tensor.bytes * share  # type: ignore[operator]
    assert sum(p.dram_bytes for p in world.score().partitions) == pytest.approx(expected)


@FEW
@given(worlds())
def test_tensors_that_wait_in_dram(world: World) -> None:
    """The sweep over lifetimes against a count at every partition, one stage, each tensor by itself."""
    assume(len(world.graph.layers.kinds) == 1 and not world.mapping.plan.zero)
    kernels = tuple(k.model_copy(update={"stage": 0}) for k in world.mapping.kernels)
    mapping = world.mapping.model_copy(update={"kernels": kernels})
    world = world.with_(mapping=mapping).assuming(fanout="per_consumer", gradients="dfmodel", gradient_overlap=None)
    here = {k.name: k for k in mapping.kernels}
    kernels = {k.name: k for k in world.graph.kernels}
    waiting = dict.fromkeys(range(4), 0.0)
    for tensor, at in itertools.product(world.graph.tensors, waiting):
        first, last = here[tensor.src].partition, here[tensor.dst].partition
        if first != last and first <= at <= last:
            rules = world.assumptions.sharding_rules
            share = ops.output_share(kernels[tensor.src], here[tensor.src].sharding, mapping.plan.tp, rules)
            waiting[at] += tensor.bytes * share  # type: ignore[operator]
    held = world.score().stages[0].states.get("dram", {}).get("activations", 0.0)
    assert held == pytest.approx(max(waiting.values()))
