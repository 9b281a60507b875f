"""What blocks pay as sums over kernels and tensors: both ways against what the judge says of whole mappings."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles import judged, mapping_of
from strategies import Dice, World, share, with_sram, worlds

from dfopt import load_graph, load_system
from dfopt.documents.assumptions import Assumptions, profile
from dfopt.documents.graph import Graph
from dfopt.documents.mapping import KernelMapping, Mapping, TokenBlocks
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.documents.score import PartitionScore, Score
from dfopt.documents.system import System
from dfopt.judge import evaluate
from dfopt.judge.items import ItemCache, LayerItems, NotItems
from dfopt.physics import ops
from dfopt.setting.plans import asked_plans

CONVENTIONS: dict[str, Any] = {
    "compute_model": ["fixed", "efficiency"],
    "backward_gathers": [None, None, "layer", "kept", "kept_calculon"],
    "tensor_overlap": [None, None, "ring", "pipe", "waves"],
    "collective_work": [None, None, "every", "first"],
}
"""Beside those that every random world draws: what blocks pay depends on them, but not under the cycle model."""


@dataclass
class Judged:
    """A mapping, what the judge says of it, and what its partitions pay item by item."""

    items: LayerItems
    mapping: Mapping
    score: Score

    def __post_init__(self) -> None:
        index = self.items.graph.index()
        self.scheme_k = np.zeros(len(index), dtype=int)
        for one in self.mapping.kernels:
            self.scheme_k[index[one.name]] = self.items.schemes_k[index[one.name]].index(one.sharding)
        self.member_bk = np.zeros((len(self.score.partitions), len(index)), dtype=bool)
        for row, partition in zip(self.member_bk, self.score.partitions, strict=True):
            row[[index[name] for name in partition.kernels]] = True
        self.sums_br = np.zeros((len(self.member_bk), len(self.items.resources)))
        for item in self.items.items:
            pattern_b = self.member_bk[:, list(item.inside)] @ (1 << np.arange(len(item.inside)))
            self.sums_br += self.items.table(item)[tuple(self.scheme_k[k] for k in item.scope)][pattern_b]
        self.count_b = self.member_bk.sum(axis=1)
        legal = self.items.resources.index("legal")
        self.illegal = bool(np.isinf(self.sums_br[:, legal]).any())
        self.sums_br[:, legal] = 0.0

    def check(self) -> None:
        """Every partition takes what the judge says, and fits where it says nothing else."""
        blocks = {(one.stage, one.partition): one.blocks for one in self.mapping.token_blocks or ()}
        held = self.items.time.held(self.sums_br, self.count_b, decided=True)
        least_b = self.items.seconds(self.sums_br, self.count_b)
        said = self.score.violations
        for b, partition in enumerate(self.score.partitions):
            run, place = held, b
            if (count := blocks.get((partition.stage, partition.partition))) is not None:
                run, place = self.items.time.in_token_blocks(self.sums_br[b : b + 1], np.array([count])), 0
            fits = not any(_about_sram(sentence, partition) for sentence in said)
            assert math.isfinite(run.seconds[place]) == fits, (partition, said)
            if fits:
                assert run.sram[place] == pytest.approx(partition.sram_bytes, rel=1e-12)
                assert least_b[b] <= partition.time_s * (1 + 1e-12)
                if run is held or not self.items.time.by_bytes:
                    assert run.seconds[place] == pytest.approx(partition.time_s, rel=1e-12)
            kernels = np.flatnonzero(self.member_bk[b]).tolist()
            name = f"partition {partition.partition} of stage {partition.stage} "
            refused = (" kernels", " tiles, the chip has", "mixes forward")
            broken = any(name in sentence and any(word in sentence for word in refused) for sentence in said)
            assert self.items.allowed(kernels) == (not broken), said
        words = ("leaves partial sums", "hands on its output", "streamed axis is cut")
        assert self.illegal == any(word in sentence for sentence in said for word in words), said


def _about_sram(sentence: str, partition: PartitionScore) -> bool:
    """Whether a sentence says that a partition does not fit, or cannot take its tokens in blocks."""
    name = f"partition {partition.partition} of stage {partition.stage} "
    of_kernel = any(f"kernel {kernel!r} needs" in sentence for kernel in partition.kernels)
    return (" of SRAM" in sentence and (name in sentence or of_kernel)) or f"{name}takes its tokens" in sentence


def _judged(
    graph: Graph, system: System, chosen: Assumptions, plan: Plan, dice: Any, tiles: int = 1, *, blocks: bool = False
) -> Judged:
    """Any mapping, legal or not."""
    items = LayerItems(graph, system, chosen, plan, tiles)
    kernels, width = [], dice([1, 2, 3, len(items.graph.kernels)])
    for kernel, schemes in zip(items.graph.kernels, items.schemes_k, strict=True):
        stage = items.graph.kind_of(kernel) if items.graph.folded else 0
        partition = dice(range(max(len(items.graph.kernels) // width, 1)))
        kernels.append(KernelMapping(name=kernel.name, sharding=dice(schemes), stage=stage, partition=partition))
    places = dict.fromkeys((one.stage, one.partition) for one in kernels)
    token_blocks = [
        TokenBlocks(stage=stage, partition=partition, blocks=dice([1, 2, 3, 5]))
        for stage, partition in places
        if blocks and dice([True, False])
    ]
    mapping = Mapping(
        graph=graph.name, system=system.name, plan=plan, kernels=tuple(kernels), tile_count=tiles,
        token_blocks=tuple(token_blocks) or None,
    )  # fmt: skip
    return Judged(items, mapping, evaluate(mapping, graph, system, chosen))


def _of_world(world: World, dice: Any, **more: Any) -> Judged:
    assume(world.graph.folded or world.plan.stages == 1)
    return _judged(world.graph, world.system, world.assumptions, world.plan, dice, dice([1, 1, 2, 3]), **more)


@given(world=worlds(**CONVENTIONS), data=st.data())
def test_what_is_paid_at_least_in_several_numbers_of_tiles_is_the_least_of_each(
    world: World, data: st.DataObject
) -> None:
    dice = Dice(data.draw)
    of = world.graph, world.system, world.assumptions, world.plan
    assume(world.graph.folded or world.plan.stages == 1)
    counts = [dice([1, 2, 3]), dice([2, 5, 16])]
    each = [LayerItems(*of, count) for count in counts]
    try:
        together = LayerItems(*of, *counts)
    except NotItems:  # the cycle model
        assert not np.array_equal(each[0].time.latency_l, each[1].time.latency_l)
        return
    for item in {*each[0].items, *each[1].items}:
        tables = [items.table(item) if item in items.items else np.zeros(()) for items in each]
        at_least = together.table(item) if item in together.items else np.zeros(())
        assert (at_least <= np.minimum(*tables)).all(), item
    for own, first, second in zip(together.own_kz, each[0].own_kz, each[1].own_kz, strict=True):
        assert np.array_equal(own, np.minimum(first, second))


BLOCKS = {"execution": "dataflow", "token_blocks": "allow", "weights_from_dram": True}
BLOCKS["compute_model"] = ["fixed", "efficiency"]


@pytest.mark.parametrize(("rules", "blocks"), [(CONVENTIONS, False), (BLOCKS, True)], ids=["whole", "token blocks"])
@given(data=st.data())
def test_items_add_up_to_what_partitions_take(rules: dict[str, Any], blocks: bool, data: st.DataObject) -> None:
    world, dice = data.draw(worlds(**rules)), Dice(data.draw)
    found = _of_world(world, dice, blocks=blocks)
    found.check()
    # and with about as much SRAM as some partition needs
    need = dice([one.sram_bytes for one in found.score.partitions]) * dice([0.3, 0.6, 0.99, 1.01])
    tight = replace(world, system=with_sram(world.system, max(need, 1.0)))
    _of_world(tight, dice, blocks=blocks).check()


BY_SCHEMES = {"execution": "kernel_by_kernel", "operand_traffic": ["own", "own_tiled"], "compute_model": "fixed"}


@pytest.mark.parametrize(
    "rules",
    [{**BY_SCHEMES, "trains": True}, {"compute_model": "efficiency", "memory": True}],
    ids=["traffic by schemes", "bandwidth by bytes"],
)
@settings(share(0.3))
@given(data=st.data())
def test_items_add_up_under_other_prices_of_memory(rules: dict[str, Any], data: st.DataObject) -> None:
    _of_world(data.draw(worlds(**rules)), Dice(data.draw)).check()


@given(
    world=worlds(
        token_blocks=["none", "allow"],
        execution=["dataflow", "library"],
        overlap=["none", "perfect", "compute_memory"],
        compute_model=["fixed", "efficiency"],
        memory=True,
    ),
    data=st.data(),
)
def test_larger_sums_take_no_less_time(world: World, data: st.DataObject) -> None:
    dice = Dice(data.draw)
    found = _of_world(world, dice)
    more_br = found.sums_br.copy()
    for row in more_br:
        for r in range(len(row)):
            row[r] += dice([0.0, 0.0, 0.0, 0.5, 1.0]) * max(row[r] if math.isfinite(row[r]) else 0.0, dice([0.1, 10.0]))
    seconds_b = found.items.seconds(found.sums_br, found.count_b)
    fast, several_b = found.items.time.at_most_bandwidth, np.full(len(seconds_b), 2)
    assert (fast.seconds(found.sums_br, found.count_b) <= seconds_b * (1 + 1e-12)).all()
    tier = found.sums_br[:, found.items.resources.index(world.system.chip.fastest_tier), None]
    bytes_br = tier * (np.array(found.items.resources) == world.system.chip.fastest_tier)
    nothing_b = fast.seconds(0 * bytes_br, several_b)
    once_b, thrice_b = (fast.seconds(times * bytes_br, several_b) - nothing_b for times in (1, 3))
    if world.assumptions.overlap == "none":
        assert thrice_b == pytest.approx(3 * once_b, rel=1e-9, abs=1e-12)
    assert (found.items.seconds(more_br, found.count_b) >= seconds_b).all()


REAL = [
    ("gpt2-small", "h100-8", {"phase": "training", "batch": 64}),
    ("gpt3-175b", "sn10-8-ring", {"phase": "forward", "batch": 256}),
    ("gpt3-175b", "sn10-8-ring", {"phase": "training", "batch": 256, "microbatch": 1}),
    ("llama-3.1-8b", "h100-8", {"phase": "decode", "batch": 128, "context": 4096}),
    ("llama-3.1-8b", "a100-8", {"phase": "training", "batch": 64, "isl": 2048, "recompute": "full"}),
    ("mixtral-8x7b", "h100-8", {"phase": "decode", "batch": 64, "context": 4096}),
    ("gemma-2-9b", "h100-8", {"phase": "decode", "batch": 32, "context": 4096}),
    ("llama-3.1-70b", "sn40l-16-ddr", {"phase": "decode", "batch": 64, "context": 4096}),
    ("deepseek-v2-lite", "h100-8", {"phase": "training", "batch": 16, "isl": 2048, "microbatch": 1}),
]


@pytest.mark.parametrize(("model", "machine", "fields"), REAL)
@pytest.mark.parametrize("name", ["default", "dfmodel"])
def test_items_of_real_layers_add_up(model: str, machine: str, fields: dict[str, Any], name: str) -> None:
    graph, system, chosen = load_graph(model, **fields), load_system(machine), profile(name)
    plans, _ = asked_plans(graph, system, Request(), chosen)
    plans = sorted(plans, key=lambda plan: (-plan.shards, -plan.members))
    random = np.random.default_rng(1)
    for plan in (plans[0], plans[len(plans) // 2], *[plan for plan in plans if plan.members > 1][:1]):
        for _ in range(3):
            _judged(graph, system, chosen, plan, lambda options: options[int(random.integers(len(options)))]).check()


@pytest.mark.parametrize("model", ["gpt3-175b", "llama-3.1-8b"])
@pytest.mark.parametrize("phase", ["forward", "training"])
def test_items_of_real_layers_add_up_in_blocks_of_tokens(model: str, phase: str) -> None:
    graph = load_graph(model, phase=phase, batch=16, microbatch=1)
    sram = {"chip.sram.bandwidth": "1 TB/s", "chip.sram.capacity": "1 TB"}
    system, chosen = load_system("sn10-8-ring", sram), Assumptions(token_blocks="allow", overlap="none")
    plan = max(asked_plans(graph, system, Request(), chosen)[0], key=lambda plan: plan.shards)
    random, blocks = np.random.default_rng(1), 0
    for _ in range(12):
        dice = lambda options: options[int(random.integers(len(options)))]  # noqa: E731
        found = _judged(graph, system, chosen, plan, dice, blocks=True)
        found.check()
        said = found.score.violations
        blocks += sum(not any(_about_sram(sentence, each) for sentence in said) for each in found.score.partitions)
    assert blocks


def test_blocks_are_of_one_kind_of_layer() -> None:
    graph, system = load_graph("gemma-2-9b", phase="decode", batch=32, context=4096), load_system("sn10-8-ring")
    chosen = Assumptions(execution="dataflow")
    plan = max(asked_plans(graph, system, Request(), chosen)[0], key=lambda plan: plan.shards)
    items = LayerItems(graph, system, chosen, plan)
    kinds = [items.graph.kind_of(kernel) for kernel in items.graph.kernels]
    first, second = (kinds.index(kind) for kind in (0, 1))
    assert items.allowed((first, first + 1)) and kinds[first + 1] == 0
    assert not items.allowed((first, second))


def test_plans_that_are_alike_have_the_same_items() -> None:
    graph, system, chosen = load_graph("gpt2-small", phase="training", batch=64), load_system("h100-8"), Assumptions()
    plans, _ = asked_plans(graph, system, Request(), chosen)
    classes = {LayerItems.alike(plan, graph, chosen) for plan in plans}
    assert len(classes) < len(plans) / 3
    spread = {LayerItems.alike(plan, graph, chosen.with_(gradients="dfmodel")) for plan in plans}
    assert len(classes) < len(spread) < len(plans)


@given(world=worlds(compute_model="cycle"), data=st.data())
def test_items_add_up_under_the_cycle_model(world: World, data: st.DataObject) -> None:
    """Kernels with the compute tiles that suit their partition best, as an oracle shares them out."""
    assume(world.graph.folded or world.plan.stages == 1)
    dice, graph = Dice(data.draw), world.graph
    schemes = {
        kernel.name: dice(ops.legal_schemes(kernel, world.plan.tp, world.assumptions)) for kernel in graph.kernels
    }
    partition = {kernel.name: dice(range(dice([1, 2, len(graph.kernels)]))) for kernel in graph.kernels}
    mapping = mapping_of(world, schemes, dict.fromkeys(schemes, 0), partition)
    assume(mapping is not None)
    assert mapping is not None
    items = LayerItems(graph, world.system, world.assumptions, world.plan, mapping.tile_count)
    Judged(items, mapping, judged(world, mapping)).check()


def test_what_is_no_sum_is_refused() -> None:
    graph, system = load_graph("hpl-5m"), load_system("h100-8")
    plans = asked_plans(graph, system, Request(), Assumptions())[0]
    with pytest.raises(NotItems, match="several pipeline stages"):
        LayerItems(graph, system, Assumptions(), max(plans, key=lambda plan: plan.stages))


def test_what_numbers_of_tiles_share_is_the_same() -> None:
    """The cycle model has other seconds of kernels in another number of tiles."""
    graph, system = load_graph("gpt3-175b"), load_system("sn10-8-ring")
    chosen = Assumptions(compute_model="cycle", execution="dataflow")
    plan = max(asked_plans(graph, system, Request(), chosen)[0], key=lambda plan: plan.shards)
    together: ItemCache = {}
    for tiles in (1, 16, 64):
        shared, alone = (LayerItems(graph, system, chosen, plan, tiles, shared=known) for known in (together, None))
        assert shared.items == alone.items
        assert all(np.array_equal(shared.table(item), alone.table(item)) for item in alone.items)
