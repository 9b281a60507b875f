"""The search over plans that a test gives, whatever else a question allows; and the arrays of one mapping."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dfopt.documents.mapping import Mapping
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.regions.arcs import chain_of
from dfopt.regions.pricing import Priced, best_of
from dfopt.regions.region import Region
from dfopt.regions.space import MappingSpace
from dfopt.search.graph_search import GraphSearch
from dfopt.search.state import SearchState
from dfopt.search.workload_search import WorkloadSearch
from dfopt.setting.instance import Setting
from dfopt.solving.options import Options
from dfopt.terms.bounds import PlanBounds


def searched(setting: Setting, plans: Sequence[Plan], options: Options) -> GraphSearch:
    """What is found and known of some plans; the mappings are in its ``state``."""
    graph = GraphSearch(setting, SearchState(options), plans)
    WorkloadSearch([graph]).run()
    return graph


def least_of(setting: Setting, plans: Sequence[Plan]) -> dict[Plan, float]:
    """Seconds of a step that no mapping under each of some plans beats, by plan."""
    tables = PlanBounds(setting).tables(plans)
    return {plan: low for table in tables for plan, low in zip(table.plans, table.least_i.tolist(), strict=True)}


def region_of(setting: Setting, mapping: Mapping) -> Region | None:
    """All fusions under the plan, the sharding and the number of tiles of a mapping; none if it has other tiles."""
    space = MappingSpace.of_plans(setting, Request(), [mapping.plan])
    menu, [table] = space.menu(setting.under(mapping.plan)), space.bounds.tables([mapping.plan])
    tiled = menu.tiled({kernel.name: kernel.sharding for kernel in mapping.kernels})
    regions = (one for one in space.regions_of(table, menu, tiled) if isinstance(one, Region))
    return next((one for one in regions if one.of.tiles == mapping.tile_count), None)


def by_arrays(region: Region, mapping: Mapping) -> Priced | None:
    """A mapping of such a region with what a step of it takes by arrays; none if it does not fit."""
    of, at = region.of, {kernel.name: kernel.partition for kernel in mapping.kernels}
    partition_k = np.array([at[kernel.name] for kernel in of.layer.kernels])
    chain_k = [chain_of(arcs, partition_k[arcs.kernels]) for arcs in region.arcs_k]
    found = best_of(of, region.plan_i, chain_k, of.table.vectors(region.domain), np.array([np.inf]))
    return next(iter(found.kept), None)
