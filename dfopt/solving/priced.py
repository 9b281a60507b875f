"""A plan with its sharding and stages, priced: which kernels are fused is all that is left to choose."""

from __future__ import annotations

from collections.abc import Mapping as Dict
from collections.abc import Sequence

import numpy as np

from dfopt.bnb import UNLIMITED, Clock
from dfopt.documents.mapping import Mapping, Sharding
from dfopt.errors import PlanError
from dfopt.fusion.blocks import StageTables, restrict, stage_tables
from dfopt.fusion.downsets import Lattice, down_sets
from dfopt.fusion.priced import PricedPlan, PricedStage
from dfopt.setting.instance import Instance, Setting
from dfopt.solving.fusing import limits_of
from dfopt.solving.options import Options
from dfopt.solving.work import PREPARED
from dfopt.terms.chip import chip_of
from dfopt.terms.sharded import LayerOptions
from dfopt.terms.sharded_graph import least_rows, tile_counts
from dfopt.terms.step.ledger import dram_left, sharded_states

_DOWN_SETS = 20_000
"""Down-sets of a stage that are listed, at most: pairs of them grow with the square."""


def priced_plan(
    instance: Instance,
    sharding: Dict[str, Sharding],
    stage_k: Sequence[int],
    tiles: int,
    options: Options,
    *,
    listed: bool = False,
) -> PricedPlan:
    """The stages of a plan under a sharding, priced.

    Parameters
    ----------
    instance : Instance
        Setting and plan.
    sharding : dict
        Scheme of every kernel, by its name.
    stage_k : sequence of int
        Pipeline stage of every kernel; not read for a folded graph, whose stages of the mapping are kinds of layers.
    tiles : int
        Tiles that the streamed axis is cut into.
    options : Options
        Limits on the partitions.
    listed : bool
        Also list the down-sets of every stage, where they are few enough.

    Raises
    ------
    Infeasible
        If a kernel, or data that must stay in DRAM, does not fit the chip.
    """
    options.clock.charge(PREPARED)
    layer, asked = LayerOptions.of(instance), options.request
    sharded = layer.least(tuple((number,) for number in layer.figures.numbers(sharding)), tiles)
    if instance.graph.folded:
        stage_k = [instance.graph.kind_of(kernel) for kernel in instance.graph.kernels]
    chip, places = chip_of(instance.system, instance.assumptions), np.array(stage_k, dtype=np.int64)
    members_of = {number: np.flatnonzero(places == number).astype(np.int64) for number in sorted(set(places.tolist()))}
    tables_of = {number: stage_tables(restrict(sharded, members), chip) for number, members in members_of.items()}
    left = dram_left(instance, {n: sharded_states(instance.setting, each.sharded) for n, each in tables_of.items()})
    stages = {}
    for number, tables in tables_of.items():
        lattice = lattice_of(instance, tables, options.clock) if listed and asked.formulation != "assignment" else None
        limits = limits_of(instance, tables, number, asked, left[number], options.clock)
        stages[number] = PricedStage(members_of[number], tables, limits, lattice)
    return PricedPlan(instance, dict(sharding), sharded, places, stages)


def priced_mapping(setting: Setting, mapping: Mapping, options: Options, *, listed: bool = False) -> PricedPlan:
    """The stages of a given mapping, priced.

    Parameters
    ----------
    setting
        Graph, system and assumptions.
    mapping
        Plan, tile count, and scheme and stage of each kernel; its partitions do not count.
    options
        The request under way.
    listed
        As of :func:`priced_plan`.

    Raises
    ------
    PlanError
        If the mapping's tile count is none that these assumptions try.
    Infeasible
        See :func:`priced_plan`.
    """
    instance, at = setting.under(mapping.plan), {kernel.name: kernel for kernel in mapping.kernels}
    kernels = [at[kernel.name] for kernel in instance.graph.kernels]
    rows = least_rows(instance, [kernel.sharding for kernel in kernels])
    if mapping.tile_count not in (counts := tile_counts(instance.graph, instance.assumptions, rows)):
        tried = ", ".join(map(str, counts))
        raise PlanError(
            f"the mapping has {mapping.tile_count} tiles of the streamed axis, expected {tried} under its assumptions;"
            " take the assumptions that it was found with, or solve again"
        )
    sharding, stage_k = {kernel.name: kernel.sharding for kernel in kernels}, [kernel.stage for kernel in kernels]
    return priced_plan(instance, sharding, stage_k, mapping.tile_count, options, listed=listed)


def lattice_of(instance: Instance, stage: StageTables, clock: Clock = UNLIMITED) -> Lattice | None:
    """Down-set lattice of a stage; None if the chip does not fuse kernels or there are too many.

    Parameters
    ----------
    instance, stage
        Graph, machine and plan, and the tables of one stage.
    clock
        The clock of the search.
    """
    if not stage.chip.fused:
        return None
    rule = instance.assumptions.forward_backward if instance.graph.trains else "shared"
    return down_sets(stage, rule, _DOWN_SETS, clock)
