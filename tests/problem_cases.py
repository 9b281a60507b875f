"""Short spellings that the tests of the problems share."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from hypothesis import reject
from hypothesis import strategies as st
from sharded_cases import shard
from strategies import World, shardings, with_dram, with_sram, worlds

from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.mapping import Sharding
from dfopt.errors import Infeasible
from dfopt.fusion import intrachip
from dfopt.fusion.blocks import StageTables, part_of, price_blocks, stage_tables
from dfopt.fusion.downsets import down_sets
from dfopt.fusion.intrachip import IntraChipMapping
from dfopt.fusion.lattice import PathResult, ShortestPath
from dfopt.fusion.partitioning import IntraChipLimits, keeps
from dfopt.physics import ops
from dfopt.terms.chip import chip_of
from dfopt.terms.step.ledger import dram_left, sharded_states

EXACT = 1e-6


@st.composite
def fusion_cases(draw, most: int = 5, **fixed):
    """One stage to fuse: a world with one distinct stage, a sharding, p_max."""
    fixed = {"execution": ["dataflow", "dataflow", "library"], "max_pp": 1, "dims": 1, "pieces": False, **fixed}
    world = draw(worlds(most=most, **fixed))
    sharding = draw(shardings(world.graph, world.plan, world.assumptions))
    return world, sharding, draw(st.integers(1, 3))


def stage_of(world: World) -> dict[str, int]:
    return {k.name: 0 for k in world.graph.kernels}


def tables_of(world: World, sharding: dict[str, Sharding]) -> StageTables:
    """The whole graph as one stage. Raises Infeasible when a kernel does not fit even alone."""
    sharded = shard(world.instance, sharding)
    return stage_tables(sharded, chip_of(world.system, world.assumptions))


def limits_of(world: World, tables: StageTables, p_max: int) -> IntraChipLimits:
    graph, chosen = world.graph, world.assumptions
    left = dram_left(world.instance, {0: sharded_states(world.instance.setting, tables.sharded)})
    return IntraChipLimits(
        p_max=p_max,
        exactly=chosen.empty_partitions == "forbid",
        forward_backward=chosen.forward_backward if graph.trains else "shared",
        dram_left=left[0],
        saved_in_dram=chosen.gradients == "exact" and graph.trains,
    )


def searched(tables: StageTables, limits: IntraChipLimits, known: float = np.inf) -> tuple[ShortestPath, PathResult]:
    """A search of the lattice for something below a known time, and what it finds."""
    lattice = down_sets(tables, limits.forward_backward, 10_000)
    assert lattice is not None
    search = ShortestPath(tables, limits, lattice, known)
    return search, search.run()


def fused(
    world: World, sharding: dict[str, Sharding], p_max: int, formulation: str = "assignment", *, lattice: bool = False
) -> IntraChipMapping | None:
    """The answer of a form, by default the MILP's, None when it is infeasible; ``lattice``: with all down-sets."""
    try:
        tables = tables_of(world, sharding)
        limits = limits_of(world, tables, p_max)
        sets = down_sets(tables, limits.forward_backward, 10_000) if lattice else None
        return intrachip.optimize_intrachip(tables, limits, formulation=formulation, lattice=sets)
    except Infeasible:
        return None


@st.composite
def stages(draw, limited: bool = False, copies: tuple[int, ...] = (1,), **fixed) -> tuple[StageTables, IntraChipLimits]:
    """A stage that fits the chip kernel by kernel, and the limits on its partitionings.

    ``limited``: now and then with a pinned kernel and with little DRAM; ``copies``: its graph drawn so often side by
    side, see :func:`side_by_side`.
    """
    world, sharding, _ = draw(fusion_cases(**fixed))
    count = draw(st.sampled_from(copies))
    if count > 1:
        sharding = {f"{name}.{copy}": z for name, z in sharding.items() for copy in range(count)}
        world = replace(world, graph=side_by_side(world.graph, count))
        first, *_, last = world.graph.kernels
        legal = (ops.legal_schemes(end, world.plan.shards, world.assumptions)[0] for end in (first, last))
        sharding |= dict(zip((first.name, last.name), legal, strict=True))
    try:
        tables = tables_of(world, sharding)
        n = tables.kernels
        p_max = draw(st.sampled_from([1, *range(-(-n // tables.chip.tiles), n + 2)]))
        limits = limits_of(world, tables, p_max)
    except Infeasible:
        reject()
    if copies == (1,) and draw(st.integers(0, 3)) == 0:  # some of its kernels: tensors come and go to other stages
        members = draw(st.sets(st.integers(0, n - 1), min_size=1))
        tables, n = part_of(tables, np.array(sorted(members))), len(members)
    if copies == (1,) and draw(st.integers(0, 3)) == 0:  # skips deeper than those of small graphs
        depths = np.random.default_rng(draw(st.integers(0, 99))).integers(2, 9, len(tables.sharded.b_t))
        tables = replace(tables, sharded=replace(tables.sharded, depth_t=depths.astype(float)))
    if draw(st.integers(0, 2)) == 0:  # tolls of any kernels with all their copies
        dice = np.random.default_rng(draw(st.integers(0, 99)))
        base = [name.partition(".")[0] for name in tables.sharded.names]
        alike = np.unique(base, return_inverse=True)[1]
        paying = dice.random((2, alike.max() + 1)) < 0.5
        paying[:, dice.integers(alike.max() + 1)] = True
        payers_xk, toll_x = paying[:, alike], dice.integers(1, 5, 2) / 10
        tolls = {"toll_x": toll_x, "sent_x": toll_x, "payers_xk": payers_xk}
        tables = replace(tables, sharded=replace(tables.sharded, **tolls))
    if limited:
        pins = draw(st.sampled_from([(), (), ((draw(st.integers(0, n - 1)), draw(st.integers(0, 1))),)]))
        share = draw(st.sampled_from([np.inf, np.inf, 0.6, 0.3]))
        short = share * tables.bytes_g.sum() if np.isfinite(share) else np.inf
        limits = replace(limits, pins=pins, dram_left=min(limits.dram_left, short))
    return tables, limits


@st.composite
def tight_stages(draw, **fixed) -> tuple[StageTables, IntraChipLimits]:
    """Stages of a chip that has little more SRAM than the largest kernel needs alone."""
    tables, limits = draw(stages(roomy=True, least=2, **fixed))
    largest = price_blocks(tables, np.eye(tables.kernels, dtype=bool)).sram_bytes.max()
    room = largest * draw(st.sampled_from([1.0, 1.2, 1.5, 2.0]))
    return replace(tables, chip=replace(tables.chip, sram=max(float(room), 1.0))), limits


def side_by_side(graph: Graph, copies: int) -> Graph:
    """Copies of a graph between a common source and a common sink."""
    first = {k.name for k in graph.kernels} - {t.dst for t in graph.tensors}
    last = {k.name for k in graph.kernels} - {t.src for t in graph.tensors}
    passes = {k.pass_ for k in graph.kernels}
    source = Kernel(name="source", op="elementwise", m=4, n=4, pass_="forward" if "forward" in passes else "backward")
    sink = Kernel(name="sink", op="elementwise", m=4, n=4, pass_="backward" if graph.trains else "forward")
    half = 8 * graph.words.of_output(source)
    kernels, tensors, carried = [source], [], []
    for copy in range(copies):
        names = {k.name: f"{k.name}.{copy}" for k in graph.kernels}
        drawn = renamed(graph, names, list(range(len(graph.kernels))), list(range(len(graph.tensors))))
        kernels += drawn.kernels
        tensors += [Tensor(src="source", dst=names[name], bytes=half, operand=1) for name in sorted(first)]
        tensors += [
            *drawn.tensors,
            *(Tensor(src=names[name], dst="sink", bytes=graph.output_bytes(name)) for name in sorted(last)),
        ]
        carried += drawn.carried
    fields = {"kernels": (*kernels, sink), "tensors": tuple(tensors), "carried": tuple(carried)}
    return Graph(**{**{name: getattr(graph, name) for name in type(graph).model_fields if name != "schema_"}, **fields})


class Priced(NamedTuple):
    """Every set of kernels, numbered by its bits, with its price as a block (inf if illegal), and who is in it."""

    member: np.ndarray
    seconds: np.ndarray


def all_blocks(tables: StageTables, forward_backward: str) -> Priced:
    """Price every set of kernels. The empty one is free."""
    member = np.array(list(itertools.product([False, True], repeat=tables.kernels)))[:, ::-1]
    prices = price_blocks(tables, member)
    forward = tables.sharded.forward_k
    mixed = (member & forward).any(axis=1) & (member & ~forward).any(axis=1)
    legal = prices.legal & ~(mixed if forward_backward == "separate" else False)
    seconds = np.where(legal, prices.time, np.inf)
    seconds[0] = 0.0
    return Priced(member, seconds)


def block_numbers(partition_k: np.ndarray, partitions: int) -> np.ndarray:
    """Number in :func:`all_blocks` of every partition of every partitioning; shape (partitionings, partitions)."""
    bits = 2 ** np.arange(partition_k.shape[1])
    return np.stack([(partition_k == p) @ bits for p in range(partitions)], axis=1)


def partitionings(tables: StageTables, limits: IntraChipLimits) -> tuple[np.ndarray, np.ndarray]:
    """Brute force: every legal partitioning, shape (partitionings, kernels), and its seconds.

    Those that differ only by empty partitions are there once, unless a number has a meaning (``halves``).
    """
    sharded, n, p_max = tables.sharded, tables.kernels, limits.p_max
    found = np.array(list(itertools.product(range(p_max), repeat=n)), dtype=np.int64)
    own = (sharded.src_t < n) & (sharded.dst_t < n)
    found = found[(found[:, sharded.src_t[own]] <= found[:, sharded.dst_t[own]]).all(axis=1)]
    forward, rule = sharded.forward_k, limits.forward_backward
    if rule != "shared" and forward.any() and not forward.all():
        last, first = found[:, forward].max(axis=1), found[:, ~forward].min(axis=1)
        found = found[(last < first) if rule == "separate" else (last < (p_max + 1) // 2) & (first >= p_max // 2)]
    for k, p in limits.pins:
        found = found[found[:, k] == p]
    used = np.stack([(found == p).any(axis=1) for p in range(p_max)], axis=1)
    if limits.exactly:
        found = found[used.all(axis=1)]
    elif rule != "halves":
        found = found[(used[:, :-1] >= used[:, 1:]).all(axis=1)]
    seconds = all_blocks(tables, limits.forward_backward).seconds[block_numbers(found, p_max)].sum(axis=1)
    legal = np.isfinite(seconds)
    if np.isfinite(limits.dram_left):
        legal &= np.array([keeps(tables, limits, partition_k) for partition_k in found], dtype=bool)
    return found[legal], seconds[legal]


def partitions(world: World, found: IntraChipMapping) -> dict[str, int]:
    return {k.name: int(p) for k, p in zip(world.graph.kernels, found.partition_k, strict=True)}


def close(a: float, b: float, rel: float = EXACT) -> bool:
    return abs(a - b) <= rel * max(abs(a), abs(b), 1e-12)


def better(world: World, what: str, factor: float = 2.0) -> World:
    """The same on a machine with more of one thing."""
    system, chip = world.system, world.system.chip
    if what == "sram":
        system = with_sram(system, chip.sram.capacity * factor)
    elif what == "dram_bandwidth":
        dram = chip.dram.model_copy(update={"bandwidth": chip.dram.bandwidth * factor})
        system = system.model_copy(update={"chip": chip.model_copy(update={"dram": dram})})
    elif what == "dram_capacity":
        system = with_dram(system, None if chip.dram.capacity is None else chip.dram.capacity * factor)
    elif what == "peak":
        system = system.model_copy(update={"chip": chip.faster(factor)})
    else:
        network = (d.model_copy(update={"link_bandwidth": d.link_bandwidth * factor}) for d in system.network)
        system = system.model_copy(update={"network": tuple(network)})
    return replace(world, system=system)


def renamed(graph: Graph, names: dict[str, str], kernel_order: list[int], tensor_order: list[int]) -> Graph:
    """The same graph with other names, kernels and tensors listed in another order."""

    def kernel(k):
        changes = {"name": names[k.name]}
        for key in ("accumulates_into", "stage_with"):
            if getattr(k, key) is not None:
                changes[key] = names[getattr(k, key)]
        return k.model_copy(update=changes)

    def tensor(t):
        return t.model_copy(update={"src": names[t.src], "dst": names[t.dst]})

    return graph.model_copy(
        update={
            "kernels": tuple(kernel(graph.kernels[i]) for i in kernel_order),
            "tensors": tuple(tensor(graph.tensors[i]) for i in tensor_order),
            "carried": tuple(tensor(t) for t in graph.carried),
        }
    )


def dense(pairs, shape) -> np.ndarray:
    found = np.zeros(shape, dtype=int)
    for row, column in pairs:
        found[row, column] += 1
    return found
