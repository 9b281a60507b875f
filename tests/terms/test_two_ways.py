"""The table of charges against the judge, both ways: random mappings are legal there if and only if finite here.

Mappings come from all shardings and partitions, also from those that break a limit. Sums, seconds and words of the
judge are the oracle; the table shares physics of single operations with it, and nothing else.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles import judged, mapping_of
from strategies import Dice, World, assumptions, share, with_sram, worlds
from table_sums import sums_of

import dfopt as df
from dfopt.documents.mapping import KernelMapping, Mapping
from dfopt.documents.request import Request
from dfopt.documents.score import PartitionScore, Score
from dfopt.errors import PlanError
from dfopt.physics import ops
from dfopt.setting.instance import Instance, Setting
from dfopt.setting.plans import asked_plans
from dfopt.terms.blocks import BlockPrices, Blocks
from dfopt.terms.chip import chip_of
from dfopt.terms.layer import Layer
from dfopt.terms.rules import TERMS
from dfopt.terms.rules.held import HANDED_ON, PARTIAL_SUMS, TILE_ROWS
from dfopt.terms.step.ledger import held, states_of
from dfopt.terms.table import Table
from dfopt.terms.token_blocks import token_rows

CLOSE = {"rel": 1e-12, "abs": 1e-30}
Case = tuple[World, dict[str, str], dict[str, int], int]
"""A world, the scheme of every kernel and its partition, and the tiles of the streamed axis."""


def instance_of(world: World) -> Instance:
    return Setting(world.graph, world.system, world.assumptions, world.model).under(world.plan).shared


@st.composite
def placed(draw: st.DrawFn, world: World, steps: tuple[int, ...]) -> Case:
    """Any schemes of kernels, and for each a partition not before those of what it reads."""
    legal = {k.name: ops.legal_schemes(k, world.plan.shards, world.assumptions) for k in world.graph.kernels}
    dice = Dice(draw)
    sharding = {name: dice(schemes) for name, schemes in legal.items()}
    partition, level = dict[str, int](), world.graph.levels()
    for name in sorted(legal, key=level.__getitem__):
        read = [partition[t.src] for t in world.graph.tensors if t.dst == name]
        partition[name] = max(read, default=0) + dice(steps)
    rows = min((k.n if k.streamed == "n" else k.k for k in world.graph.kernels if k.streamed != "none"), default=1)
    most = -(-rows // (world.assumptions.tile_rows or 1))
    return world, sharding, partition, dice([most, 1, min(most, 2), -(-most // 2)])


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A random world, in most of which chips share kernels."""
    world = draw(worlds(most=6, dims=1, compute_model=["fixed", "efficiency"], tile_rows=[None, 1, 2, 4]))
    if draw(st.integers(0, 3)):
        assume(world.plan.shards > 1)
    return draw(placed(world, (0, 0, 1)))


MODELS = [
    *("llama-3.2-1b", "qwen3-30b-a3b", "deepseek-v2-lite", "gemma-2-9b", "jamba-1.5-mini", "mamba-130m"),
    *("gpt-oss-20b", "deepseek-v3", "kimi-k2.5", "llama-4-scout", "whisper-large-v3-turbo", "gpt-j-6b", "dlrm-a"),
]
PHASES: dict[str, dict[str, object]] = {
    "decode": {"batch": 8, "context": 64, "microbatch": 4},
    "prefill": {"batch": 8, "isl": 32, "microbatch": 2},
    "training": {"batch": 8, "isl": 32, "microbatch": 2},
}


@cache
def zoo_graph(model: str, phase: str) -> df.Graph | None:
    try:
        return df.load_graph(model, phase=phase, **PHASES[phase])
    except df.DfoptError:
        return None  # it has no such phase


@st.composite
def zoo_cases(draw: st.DrawFn) -> Case:
    """A model of the zoo with any plan of it, a second axis included, under any assumptions."""
    graph = zoo_graph(draw(st.sampled_from(MODELS)), draw(st.sampled_from(sorted(PHASES))))
    assume(graph is not None)
    chosen = draw(assumptions(compute_model="fixed", tile_rows=[None, 1, 4]))
    system = df.load_system(draw(st.sampled_from(["h100-8", "sn10-8-ring"])))
    setting = Setting.resolved(graph, system, chosen)
    shared_out = draw(st.sampled_from([{"tp": 8}, {"tp": 4}, {"tp": 2}, {"mp": 2, "tp": 4}, {"mp": 4, "tp": 2}]))
    try:
        listed, _ = asked_plans(setting.graph, system, Request(**shared_out), setting.assumptions)
    except PlanError:
        assume(False)
    seen = setting.seen(plan := draw(st.sampled_from(listed)))
    world = World(seen.graph, system, plan, seen.assumptions, setting.graph)
    return draw(placed(world, draw(st.sampled_from([(0, 0, 0, 0, 1), (0, 1), (1,)]))))


def mapped(case: Case) -> Mapping:
    """The mapping of a case, a compute tile for every kernel."""
    world, sharding, partition, tiles = case
    graph = world.graph
    kernels = tuple(
        KernelMapping(
            name=kernel.name, sharding=sharding[kernel.name], partition=partition[kernel.name], tiles=1,
            stage=graph.kind_of(kernel) if graph.folded else 0,
        )
        for kernel in graph.kernels
    )  # fmt: skip
    return Mapping(graph=graph.name, system=world.system.name, plan=world.plan, kernels=kernels, tile_count=tiles)


def options(case: Case, layer: Layer) -> np.ndarray:
    """The schemes of a case as a vector of options."""
    pairs = zip(layer.kernels, layer.schemes_k, strict=True)
    return np.array([[schemes.index(case[1][kernel.name]) for kernel, schemes in pairs]])


def blocks_of(case: Case, score: Score, *, token_blocks: bool = False) -> tuple[Layer, np.ndarray, Blocks]:
    """The layer, the amounts under a sharding, and as blocks the partitions that the judge scored."""
    world, _, _, tiles = case
    layer = Layer(instance_of(world), tiles)
    table, index = Table.of(layer, TERMS), world.graph.index()
    member = np.zeros((len(score.partitions), len(layer.kernels)), dtype=bool)
    for number, partition in enumerate(score.partitions):
        member[number, [index[name] for name in partition.kernels]] = True
    rows = [token_rows(layer)] if token_blocks else []
    blocks = Blocks(table, chip_of(world.system, world.assumptions), member, layer.latency_l, *rows)
    return layer, table.exact(options(case, layer)), blocks


def agrees(prices: BlockPrices, number: int, said: PartitionScore) -> None:
    """Hold the price of a partition against what the judge says of it."""
    assert prices.dram_bytes[0, number] == pytest.approx(said.dram_bytes, **CLOSE)
    assert prices.sram_bytes[0, number] == pytest.approx(said.sram_bytes, **CLOSE)
    seconds = [said.compute_s, said.memory_s, said.network_s, *([] if said.sram_s is None else [said.sram_s])]
    assert prices.seconds[:, 0, number].tolist() == pytest.approx(seconds, **CLOSE)
    assert prices.time[0, number] == pytest.approx(said.time_s, **CLOSE)


HELD = [
    *("weights", "weights_copied", "experts", "experts_copied", "parameters", "parameters_copied"),
    *("saved_bytes", "cached_bytes", "working_bytes"),
]
"""Resources of a layer in the order of :data:`dfopt.terms.rules.HELD`."""


def tight(case: Case, dice: Dice, mapping: Mapping | None = None) -> Case:
    """The case on a chip with about as much SRAM as some partition needs; of its own mapping, or of kernels alone."""
    world, sharding, partition, tiles = case
    level = world.graph.levels()
    alone = {name: place for place, name in enumerate(sorted(partition, key=level.__getitem__))}
    roomy = replace(world, system=with_sram(world.system, 1e18))
    mapping = mapping or mapped((roomy, sharding, dice([partition, alone]), tiles))
    room = dice([one.sram_bytes for one in judged(roomy, mapping).partitions]) * dice([1.01, 0.99, 0.7, 1.5])
    return replace(world, system=with_sram(world.system, max(room, 1.0))), sharding, partition, tiles


OF_OPTIONS = {"leaves partial sums": PARTIAL_SUMS, "hands on its output": HANDED_ON, "streamed axis is cut": TILE_ROWS}
"""What the judge says where options cannot be together, and the rule that says so here."""
OF_BLOCKS = re.compile(r" of SRAM|uses \d+ tiles|kernel by kernel allows")
"""What it says of a partition, or of a kernel in it. All other sentences are of the space, or of memory."""


def is_broken(partition: PartitionScore, sentence: str) -> bool:
    """Whether a sentence of the judge is about a partition, or about a kernel that fits in no partition."""
    here = re.search(rf"partition {partition.partition} of stage {partition.stage}\b", sentence)
    stuck = "leaves no room" in sentence and any(f"kernel {name!r} " in sentence for name in partition.kernels)
    return OF_BLOCKS.search(sentence) is not None and (here is not None or stuck)


@share(1.0)
@given(case=st.one_of(cases(), zoo_cases()), data=st.data())
def test_blocks_are_legal_and_take_what_the_judge_says(case: Case, data: st.DataObject) -> None:
    if data.draw(st.booleans()):
        case = tight(case, Dice(data.draw))
    score = judged(case[0], mapped(case))
    layer, amount_vc, blocks = blocks_of(case, score)
    prices = blocks.prices(amount_vc)
    for words, term in OF_OPTIONS.items():
        alone = Table.of(layer, [term])
        finite = np.isfinite(alone.totals(alone.exact(options(case, layer)), "legal")).all()
        assert finite == (not any(words in sentence for sentence in score.violations)), words
    for number, said in enumerate(score.partitions):
        broken = [sentence for sentence in score.violations if is_broken(said, sentence)]
        assert bool(prices.legal[0, number]) == (not broken), broken
        if not broken:
            agrees(prices, number, said)


def waiting(table: Table, amount_vc: np.ndarray, run: list[np.ndarray]) -> float:
    """The most that waits while one of some blocks runs, which run one after another."""
    before, most = np.zeros_like(run[0]), 0.0
    for block in run:
        open_ = sums_of(table, amount_vc, np.array([before, block]), "waiting_bytes")
        most, before = max(most, float(open_.sum())), before | block
    return most


@share(1.0)
@given(case=st.one_of(cases(), zoo_cases()))
def test_layers_hold_what_the_judge_says(case: Case) -> None:
    """By state and memory, in every pipeline stage, with what waits between partitions."""
    world = case[0]
    mapping = mapped(case)
    score = judged(world, mapping)
    _, amount_vc, blocks = blocks_of(case, score)
    table = blocks.table
    instance = Setting(world.graph, world.system, world.assumptions, world.model).under(world.plan)
    states, waits = {}, {}
    for number in sorted({each.stage for each in mapping.kernels}):
        place = np.array([each.partition if each.stage == number else -1 for each in mapping.kernels])
        sizes = [sums_of(table, amount_vc, (place >= 0)[None], name)[0, 0] for name in HELD]
        here = [kernel for kernel, at in zip(world.graph.kernels, place, strict=True) if at >= 0]
        states[number] = states_of(instance.setting, here, sizes)
        waits[number] = waiting(table, amount_vc, [place == at for at in sorted({*place.tolist()} - {-1})])
    for stage, said in zip(instance.pipeline, score.stages, strict=True):
        books = held(instance, stage, states)
        fastest = world.system.chip.fastest_tier
        books[fastest]["activations"] += max((waits[number] for number, _ in stage.runs if number in waits), default=0)
        for tier, sizes_of in said.states.items():
            for state, size in sizes_of.items():
                assert books[tier][state] == pytest.approx(size, rel=1e-12, abs=1e-9), (stage, tier, state)


@share(1.0)
@given(world=worlds(compute_model="cycle"), data=st.data())
def test_blocks_take_the_cycles_of_the_best_allocation(world: World, data: st.DataObject) -> None:
    """The oracle tries every allocation of compute tiles to the kernels of a partition."""
    _, sharding, partition, _ = data.draw(placed(world, (0, 1)))
    mapping = mapping_of(world, sharding, dict.fromkeys(partition, 0), partition)
    if mapping is None:
        return
    case = world, sharding, partition, mapping.tile_count
    score = judged(world, mapping)
    _, amount_vc, blocks = blocks_of(case, score)
    prices = blocks.prices(amount_vc)
    for number, said in enumerate(score.partitions):
        assert prices.seconds[0, 0, number] == pytest.approx(said.compute_s, **CLOSE)
