"""Two levels, as the paper has them: the sharding that is best by itself, and then its best fusion."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from dfopt.bnb import ENDED, Clock
from dfopt.documents.plan_records import SolveRecord
from dfopt.errors import Infeasible, NoSolution
from dfopt.fusion.priced import PricedPlan
from dfopt.setting.instance import Instance
from dfopt.sharding.interchip import InterChipMapping, optimize_interchip
from dfopt.sharding.tables import InterChipTables
from dfopt.solving.options import Options, record_of, reporter
from dfopt.solving.priced import priced_plan
from dfopt.solving.solved import Solved, fused
from dfopt.terms.sharded_graph import least_rows, tile_counts

_SHARE = 0.5
"""Most of the work and seconds left that one sharding may take: a hard one must leave some for the fusion."""
_GRACE_S = 1.0
"""Seconds for partitions to start from, after Ctrl-C."""


def best_sharding(instance: Instance, tables: InterChipTables, options: Options) -> InterChipMapping:
    """First level: the best sharding of a plan regardless of fusion, with pipeline stages of its kernels.

    Parameters
    ----------
    instance
        The plan.
    tables
        Schemes of its kernels, and seconds of their communication.
    options
        The request under way; a part of its time is taken.

    Raises
    ------
    Infeasible, NoSolution
        See :func:`dfopt.sharding.interchip.optimize_interchip`.
    """
    return optimize_interchip(
        instance.setting,
        tables,
        gap=0.0,  # a gap is left to the fusion: what is optimal for a level has to be this sharding
        clock=options.clock.share(_SHARE).sooner(_SHARE),
        solver=options.request.solver,
        progress=reporter(options, instance.plan, "interchip"),
    )


def sharding_record(sharding: InterChipMapping) -> SolveRecord:
    """Solve record of a sharding."""
    low = sharding.objective * (1 - min(sharding.solution.gap, 1.0))
    return record_of("interchip", 0, "assignment", sharding.solution, sharding.objective, low, sharding.unit)


def of_sharding(
    instance: Instance, chosen: InterChipMapping, options: Options, tiles: int | None
) -> Iterator[PricedPlan]:
    """A plan with a sharding, priced for each number of tiles that suits both.

    Parameters
    ----------
    instance
        The plan.
    chosen
        Schemes and stages of its kernels.
    options
        The request under way.
    tiles
        Tiles of the streamed axis; all numbers if none.

    Raises
    ------
    Infeasible
        See :func:`dfopt.solving.priced.priced_plan`.
    """
    names = [kernel.name for kernel in instance.graph.kernels]
    schemes, stage_k = [chosen.sharding[name] for name in names], [chosen.stage[name] for name in names]
    for count in tile_counts(instance.graph, instance.assumptions, least_rows(instance, schemes)):
        if tiles in (None, count):
            yield priced_plan(instance, chosen.sharding, stage_k, count, options, listed=True)


def by_levels(
    instance: Instance, choose: Callable[[], InterChipMapping], options: Options, tiles: int
) -> Solved | None:
    """Second level: the best fusion for the sharding of the first level; None if time is up.

    Parameters
    ----------
    instance : Instance
        The plan.
    choose : callable
        Result of :func:`best_sharding`.
    options : Options
        The request under way.
    tiles : int
        Tiles that the streamed axis is cut into.

    Raises
    ------
    KeyboardInterrupt
        If an interrupt came before there was any mapping.
    """
    interrupted, begin = False, None
    try:
        chosen = choose()
        if interrupted := chosen.interrupted:  # partitions to start from are all that is looked for
            begin, options = Clock.of_limit(_GRACE_S), replace(options, clock=ENDED)
        for ready in of_sharding(instance, chosen, options, tiles):
            outcome = fused(ready, options, [sharding_record(chosen)], math.inf, begin)
            if isinstance(outcome, Solved):
                return replace(outcome, interrupted=outcome.interrupted or interrupted)
    except (Infeasible, NoSolution):
        pass
    if interrupted:
        raise KeyboardInterrupt
    return None
