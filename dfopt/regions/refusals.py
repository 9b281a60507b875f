"""Why nothing fits under a plan: what is short, by how much, and what would help."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from dfopt.documents.plan import Plan
from dfopt.errors import Infeasible, NoSolution
from dfopt.fusion.intrachip import IntraChipMapping
from dfopt.fusion.partitioning import most_alive
from dfopt.fusion.priced import PricedStage
from dfopt.fusion.shortfalls import dram_report
from dfopt.regions.region import Region
from dfopt.regions.space import MappingSpace
from dfopt.setting.instance import Instance
from dfopt.setting.stages import is_cut
from dfopt.sharding.interchip import InterChipMapping
from dfopt.sharding.tables import build
from dfopt.solving.levels import best_sharding, of_sharding
from dfopt.solving.options import Options
from dfopt.solving.solved import best_partitions
from dfopt.terms.step.ledger import dram_left, sharded_states


class Refusals:
    """Explains why no mapping fits under plans; plans with the same sharding share its solve.

    Parameters
    ----------
    space : MappingSpace
        The mappings of a graph.
    options : Options
        The request under way.
    """

    def __init__(self, space: MappingSpace, options: Options) -> None:
        self._space, self._options = space, options
        self._shardings = dict[Instance, InterChipMapping]()
        self._known = dict[Hashable, IntraChipMapping | Infeasible]()  # with any room for what waits

    def of(self, plan: Plan, tiles: int | None) -> str:
        """A sentence on why nothing fits under a plan: under any schemes, or under those of the first level.

        ``tiles`` is the only number of tiles considered; None considers all.
        """
        try:
            if self._space.jointly and not is_cut(self._space.setting.graph, plan):
                _whatever_schemes(self._space, plan)
            self._by_level(self._space.setting.under(plan), tiles)
        except Infeasible as error:
            return str(error.report)
        except NoSolution:
            pass
        return "no sharding and partitioning keeps all limits together"

    def _by_level(self, instance: Instance, tiles: int | None) -> None:
        """Raise Infeasible if nothing fits with the sharding that is best by itself."""
        shared, options = instance.shared, self._options
        if shared not in self._shardings:
            tables = build(shared, options.request.pin_sharding)
            self._shardings[shared] = best_sharding(instance, tables, options)
        chosen = self._shardings[shared]
        for ready in of_sharding(instance, chosen, options, tiles):
            for number, stage in ready.stages.items():
                self._check((shared, ready.sharded.tile_count, number), stage)

    def _check(self, key: Hashable, stage: PricedStage) -> None:
        """Raise Infeasible if a stage has no partitions; ``key``: what plans share that give a chip the same stage."""
        if key not in self._known:
            try:
                self._known[key] = best_partitions(stage, self._options, np.inf)
            except Infeasible as error:
                self._known[key] = error
        if isinstance(fusion := self._known[key], Infeasible):
            raise fusion
        if most_alive(stage.tables, stage.limits, fusion.partition_k) > stage.limits.dram_left:
            best_partitions(stage, self._options, stage.limits.dram_left)


def _whatever_schemes(space: MappingSpace, plan: Plan) -> None:
    """Raise Infeasible if nothing fits in any number of tiles, with every figure at its least."""
    refused: Infeasible | None = None
    for region in space.in_classes([plan]):
        assert isinstance(region, Region)
        try:
            _check_least(region)
        except Infeasible as error:
            refused = refused or error
        else:
            return
    if refused is not None:
        raise refused


def _check_least(region: Region) -> None:
    """Raise Infeasible for a region of one plan if a kernel does not fit SRAM, nor states DRAM, nor what waits."""
    of, instance = region.of, region.of.instance(region.plans[0])
    tables_k = [of.stage(kind, region.domain) for kind in range(of.kinds)]
    states = {kind: sharded_states(of.setting, tables.sharded) for kind, tables in enumerate(tables_k)}
    left, chip = dram_left(instance, states), of.chip
    if not chip.library and chip.fused:  # any kernels may share a block: there may be nothing that waits
        return
    for kind in range(of.kinds):
        need = of.least_waiting(kind, of.table.least(region.domain))
        if left[kind] < need < np.inf:
            raise Infeasible(dram_report(need, left[kind], "at least "))
