"""First mappings of layers with many kernels, before their blocks are listed, which may take minutes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from dfopt.bnb import ENDED
from dfopt.documents.plan import Plan
from dfopt.errors import Infeasible, NoSolution
from dfopt.regions.space import MappingSpace
from dfopt.search.starts.textbook import VARIATIONS, shardings
from dfopt.search.state import SearchState
from dfopt.setting.instance import Setting
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


def is_wide(setting: Setting) -> bool:
    """Whether a layer has so many kernels that a mapping without listed blocks is worth its time."""
    most = max(map(len, setting.graph.kernels_by_kind))
    return most >= _WIDE and chip_of(setting.system, setting.assumptions).fused


def propose_greedily(state: SearchState, space: MappingSpace) -> None:
    """Give a search of a wide graph a mapping under the plan with the least bound that has one in a single stage.

    Parameters
    ----------
    state : SearchState
        State of the search, which receives the mapping.
    space : MappingSpace
        The mapping space of the graph, whose plans are listed.
    """
    folded, least = space.setting.graph.folded, space.least
    plans = sorted((plan for plan in least if folded or plan.stages == 1), key=least.__getitem__)
    for plan in plans[:_PLANS]:
        if accept_greedily(state, space.setting, plan):
            return


def accept_greedily(state: SearchState, setting: Setting, plan: Plan) -> bool:
    """Keep the mappings of a plan with the usual sharding and greedy partitions; whether there are any.

    Parameters
    ----------
    state : SearchState
        State of the search, which receives the mappings.
    setting, plan
        The graph on the system, and a plan with one pipeline stage if the graph is unrolled.
    """
    mappings = [*_mappings(state, setting, plan)]
    for mapping in mappings:
        state.accept(mapping)
    return bool(mappings)


def _mappings(state: SearchState, setting: Setting, plan: Plan) -> Iterator[Solved]:
    """A mapping in every number of tiles that suits the sharding, as far as they fit."""
    instance, options = setting.under(plan), state.options
    schemes = shardings(instance, state.request, VARIATIONS[0])
    if schemes is None:
        return
    scheme_k = [schemes[kernel.name] for kernel in instance.graph.kernels]
    for tiles in tile_counts(instance.graph, instance.assumptions, least_rows(instance, scheme_k)):
        try:
            ready = priced_plan(instance, schemes, [0] * len(scheme_k), tiles, options)
            start = options.clock.allowance(_WORK)
            mapping = fused(ready, replace(options, clock=ENDED), [], math.inf, start)
        except (Infeasible, NoSolution):
            continue
        if isinstance(mapping, Solved):
            yield mapping
