"""The search over plans that a test gives, whatever else a question allows; and one mapping by arrays and judge."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st
from oracles import judged, mapping_of
from strategies import World, shardings

from dfopt.documents.mapping import Mapping
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.documents.score import Score
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


def drawn_mapping(world: World, data: st.DataObject, partition: dict[str, int]) -> tuple[Mapping, Score]:
    """Some mapping with these partitions, and what the judge says of it."""
    sharding = data.draw(shardings(world.graph, world.plan, world.assumptions))
    mapping = mapping_of(world, sharding, {kernel.name: 0 for kernel in world.graph.kernels}, partition)
    assume(mapping is not None)
    assert mapping is not None
    return mapping, judged(world, mapping)


def check_agreed(world: World, mapping: Mapping, score: Score) -> Region:
    """Arrays have the seconds of the judge, and no bound on a plan is above them; all fusions beside the mapping."""
    region = region_of(world.instance.setting, mapping)
    assume(region is not None)
    assert region is not None
    priced = by_arrays(region, mapping)
    assume(priced is not None)
    assert priced is not None and priced.step_s == pytest.approx(score.step_time_s, rel=1e-9)
    check_bound(world, score)
    return region


def check_bound(world: World, score: Score) -> None:
    """The bound of a plan is not above what a legal mapping under it takes."""
    if not score.violations:
        assert PlanBounds(world.instance.setting).seconds(world.instance) <= score.step_time_s * (1 + 1e-9)
