"""A first mapping of layers with many kernels, before their blocks are listed, which may take minutes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from dfopt.bnb import ENDED
from dfopt.documents.plan import Plan
from dfopt.errors import Infeasible, NoSolution
from dfopt.regions.space import MappingSpace
from dfopt.search.starts.textbook import VARIATIONS, shardings
from dfopt.search.state import SearchState
from dfopt.solving.priced import priced_plan
from dfopt.solving.solved import Solved, fused
from dfopt.terms.chip import chip_of
from dfopt.terms.sharded_graph import least_rows, tile_counts

_WIDE: Final = 64
"""Kernels of a layer from which on its blocks may be too many to list soon."""
_PLANS: Final = 4
"""Plans that are tried, those with the least bounds first, until one has a mapping."""
_WORK: Final = 50_000.0
"""Units of work for the partitions of one plan."""


def propose_greedily(state: SearchState, space: MappingSpace) -> None:
    """Give a search of a wide graph one mapping to start from: the usual sharding, with partitions by a greedy rule.

    Parameters
    ----------
    state : SearchState
        State of the search, which receives the mapping.
    space : MappingSpace
        The mapping space of the graph.
    """
    kernels = [len(of_kind) for of_kind in space.setting.graph.kernels_by_kind]
    if max(kernels) < _WIDE or not chip_of(space.setting.system, space.setting.assumptions).fused:
        return
    one_stage = [plan for plan in space.least if plan.stages == 1 or space.setting.graph.folded]
    for plan in sorted(one_stage, key=space.least.__getitem__)[:_PLANS]:
        found = _of_plan(state, space, plan)
        for mapping in found:
            state.accept(mapping)
        if found:
            return


def _of_plan(state: SearchState, space: MappingSpace, plan: Plan) -> list[Solved]:
    """Mappings of a plan in every number of tiles that suits the usual sharding, as far as they fit."""
    instance, options, found = space.setting.under(plan), state.options, list[Solved]()
    schemes = shardings(instance, state.request, VARIATIONS[0])
    if schemes is None:
        return []
    scheme_k = [schemes[kernel.name] for kernel in instance.graph.kernels]
    for tiles in tile_counts(instance.graph, instance.assumptions, least_rows(instance, scheme_k)):
        try:
            ready = priced_plan(instance, schemes, [0] * len(scheme_k), tiles, options)
            work = options.clock.allowance(_WORK)
            mapping = fused(ready, replace(options, clock=ENDED), [], math.inf, work)
        except (Infeasible, NoSolution):
            continue
        found += [mapping] if isinstance(mapping, Solved) else []
    return found
