"""Stages by hand: kernels on one chip that fuses them, a graph of the zoo, and their down-sets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import reject
from problem_cases import limits_of, tables_of
from small_systems import small_system
from strategies import World, plans_on

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.mapping import Sharding
from dfopt.documents.plan import Plan
from dfopt.errors import Infeasible
from dfopt.fusion.blocks import StageTables
from dfopt.fusion.downsets import Lattice, down_sets
from dfopt.fusion.partitioning import IntraChipLimits
from dfopt.machines.compose import load_system
from dfopt.physics.pipeline import resolve


def on_one_chip(
    kernels: Iterable[Kernel],
    tensors: Iterable[Tensor] = (),
    *,
    sram: float = 1e6,
    tiles: int = 8,
    peak: float = 1e6,
    ends: bool = True,
    **assumed: Any,
) -> World:
    """Kernels on a chip that fuses them; without ``ends`` nothing is read for the first or written by the last."""
    free: dict[str, Any] = {} if ends else {"inputs": (), "outputs": ()}
    graph = Graph(name="g", kernels=tuple(kernels), tensors=tuple(tensors), **free)
    chosen = Assumptions(**{"execution": "dataflow", "compute_utilization": 1.0, **assumed})
    return World(graph, small_system(sram=sram, tiles=tiles, peak=peak), Plan(), chosen)


def unsharded(world: World) -> StageTables:
    """The whole graph as one stage, of which each chip has all."""
    return tables_of(world, {kernel.name: "none" for kernel in world.graph.kernels})


def fitting(world: World, sharding: dict[str, Sharding]) -> StageTables:
    """The whole graph as one stage, or another world is drawn where a kernel does not fit even alone."""
    try:
        return tables_of(world, sharding)
    except Infeasible:
        reject()


def limited(world: World, sharding: dict[str, Sharding], p_max: int) -> tuple[StageTables, IntraChipLimits]:
    """The same with its limits, or another world is drawn where the DRAM is too small, too."""
    tables = fitting(world, sharding)
    try:
        return tables, limits_of(world, tables, p_max)
    except Infeasible:
        reject()


def gemms(widths: list[int], ends: list[tuple[int, int]], sram: float, tiles: int = 100) -> StageTables:
    """GEMMs with weights of 64 words times their width."""
    kernels = [Kernel(name=f"k{i}", op="gemm", m=width, k=64, n=4) for i, width in enumerate(widths)]
    tensors = [Tensor(src=f"k{a}", dst=f"k{b}") for a, b in ends]
    return unsharded(on_one_chip(kernels, tensors, sram=sram, tiles=tiles, peak=1e9, overlap="perfect", tile_rows=1))


def on_eight_chips(graph: Graph) -> StageTables:
    """A layer on each of eight stages, or a graph that is drawn once on eight chips."""
    system = load_system("sn10-8-ring")
    chosen = resolve(Assumptions(), system.chip.execution, system.chip.compute_utilization)
    plan = plans_on(graph, system, **({"pp": 8} if graph.repeat > 1 else {"tp": 8}))[0][0]
    return unsharded(World(graph, system, plan, chosen))


def lattice_of(tables: StageTables, rule: str = "shared") -> Lattice:
    """All down-sets of a small stage."""
    lattice = down_sets(tables, rule, 10_000)
    assert lattice is not None
    return lattice
