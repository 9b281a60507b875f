"""Short spellings that the tests of the problems share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st
from strategies import World, shardings, worlds

from dfopt.documents.graph import Graph
from dfopt.documents.mapping import Sharding
from dfopt.errors import Infeasible
from dfopt.problems import intrachip
from dfopt.problems.blocks import StageTables, chip_of, stage_tables
from dfopt.problems.intrachip import IntraChipLimits, IntraChipMapping
from dfopt.problems.stages import stage_memory
from dfopt.problems.tables import shard

EXACT = 1e-6


@st.composite
def fusion_cases(draw, most: int = 5, **fixed):
    """One stage to fuse: a world with one distinct stage, a sharding, p_max."""
    fixed = {"execution": "dataflow", "max_pp": 1, "dims": 1, **fixed}
    world = draw(worlds(most=most, **fixed))
    sharding = draw(shardings(world.graph, world.plan, world.assumptions))
    return world, sharding, draw(st.integers(1, 3))


def stage_of(world: World) -> dict[str, int]:
    return {k.name: 0 for k in world.graph.kernels}


def tables_of(world: World, sharding: dict[str, Sharding]) -> StageTables:
    """The whole graph as one stage. Raises Infeasible when a kernel does not fit even alone."""
    sharded = shard(world.graph, world.system, world.plan, world.assumptions, sharding)
    return stage_tables(sharded, chip_of(world.system, world.assumptions))


def limits_of(world: World, tables: StageTables, p_max: int) -> IntraChipLimits:
    graph, chosen = world.graph, world.assumptions
    memory = stage_memory(graph, world.system, world.plan, chosen, tables.sharded, 0)
    return IntraChipLimits(
        p_max=p_max,
        exactly=chosen.empty_partitions == "forbid",
        forward_backward=chosen.forward_backward if graph.trains else "shared",
        dram_left=memory.left,
        saved_in_dram=chosen.gradients == "exact" and graph.trains,
    )


def fused(world: World, sharding: dict[str, Sharding], p_max: int) -> IntraChipMapping | None:
    """The MILP's answer, None when it is infeasible."""
    try:
        tables = tables_of(world, sharding)
        return intrachip.optimize_intrachip(tables, limits_of(world, tables, p_max))
    except Infeasible:
        return None


def partitions(world: World, found: IntraChipMapping) -> dict[str, int]:
    return {k.name: int(p) for k, p in zip(world.graph.kernels, found.partition_k, strict=True)}


def close(a: float, b: float, rel: float = EXACT) -> bool:
    return abs(a - b) <= rel * max(abs(a), abs(b), 1e-12)


def better(world: World, what: str, factor: float = 2.0) -> World:
    """The same on a machine with more of one thing."""
    chip, network = world.system.chip, world.system.network
    if what == "sram":
        chip = chip.model_copy(update={"sram": chip.sram.model_copy(update={"capacity": chip.sram.capacity * factor})})
    elif what == "dram_bandwidth":
        chip = chip.model_copy(
            update={"dram": chip.dram.model_copy(update={"bandwidth": chip.dram.bandwidth * factor})}
        )
    elif what == "dram_capacity":
        more = None if chip.dram.capacity is None else chip.dram.capacity * factor
        chip = chip.model_copy(update={"dram": chip.dram.model_copy(update={"capacity": more})})
    elif what == "peak":
        frequency = None if chip.frequency is None else chip.frequency * factor
        chip = chip.model_copy(update={"peak": chip.peak_flops * factor, "frequency": frequency})
    else:
        network = tuple(d.model_copy(update={"link_bandwidth": d.link_bandwidth * factor}) for d in network)
    return replace(world, system=world.system.model_copy(update={"chip": chip, "network": network}))


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
