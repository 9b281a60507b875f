"""Plans solved as one MILP each: schemes, stages and partitions together (:mod:`dfopt.formulation`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from dfopt.arrays import Floats, Ints
from dfopt.bnb import Clock, OutOfTime
from dfopt.documents.graph import Graph
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.errors import Infeasible
from dfopt.formulation.plan_model import Large, PlanModel, Unstated, plan_model
from dfopt.fusion.blocks import restrict, stage_tables
from dfopt.fusion.partitioning import IntraChipLimits, most_alive, numbered
from dfopt.fusion.priced import PricedPlan
from dfopt.milp import Termination, TracePoint, solve, unanswered
from dfopt.setting.instance import Instance
from dfopt.setting.stages import is_cut
from dfopt.sharding.interchip import InterChipMapping
from dfopt.solving.fusing import limits_of
from dfopt.solving.levels import by_levels
from dfopt.solving.menu import Menu
from dfopt.solving.options import Options, record_of, reporter
from dfopt.solving.priced import priced_plan
from dfopt.solving.solved import Pruned, Solved, scored
from dfopt.terms.chip import chip_of
from dfopt.terms.sharded_graph import tile_counts

_LATE = "the time limit came first"
_NOTE = "shardings, stages and partitions as one MILP"
_SHARE = 0.5  # of the time that is left, at most, for a mapping to start from, or without one for the MILP
_SMALL = 5000  # binaries: with more of these a MILP that nobody asked for would take all of the time


def solved_together(graph: Graph, plan: Plan, request: Request) -> bool:
    """Whether schemes and fusion of a plan are one MILP; with open stages only if that is small.

    Parameters
    ----------
    graph, plan, request
        The workload, the plan, and what is asked for.
    """
    small = len(graph.kernels) ** 2 * plan.stages <= _SMALL
    return not is_cut(graph, plan) or small or request.formulation == "assignment"


def from_levels(
    instance: Instance,
    options: Options,
    menu: Menu,
    tiles: int,
    incumbent: float,
    choose: Callable[[], InterChipMapping],
) -> Solved | Pruned:
    """The best mapping with ``tiles`` tiles by one MILP, started from the two-level mapping, or a bound on all.

    Parameters
    ----------
    instance, options : Instance, Options
        The plan, and the request under way.
    menu : Menu
        Options and figures of its layers.
    tiles : int
        Tiles that the streamed axis is cut into.
    incumbent : float
        Value that a mapping must beat to be of interest.
    choose : callable
        Finds the sharding that is best alone.

    Returns
    -------
    Solved or Pruned
        The mapping, or a bound on all; the two-level mapping if the MILP finds none in time.

    Raises
    ------
    Infeasible
        If no mapping keeps the limits under any schemes.
    """

    def levels(share: Clock) -> Solved | None:
        """The best fusion for the sharding that is best by itself, if it is found soon enough."""
        soon = replace(options, clock=share).asking(formulation="auto")
        return by_levels(instance, choose, soon, tiles)

    first = levels(options.clock.share(_SHARE))
    within = replace(options, clock=options.clock.share(_SHARE)) if first is None else options
    try:
        outcome = from_start(instance, within, menu, tiles, first, incumbent)
    except OutOfTime:
        outcome = Pruned(0.0, (), _LATE)
    if first is None and isinstance(outcome, Pruned) and outcome.bound < incumbent:
        late = levels(options.clock)
        outcome = outcome if late is None else _instead(late, outcome)
    return outcome


def from_start(
    instance: Instance, options: Options, menu: Menu, tiles: int, first: Solved | None, incumbent: float
) -> Solved | Pruned:
    """The best mapping with ``tiles`` tiles by one MILP, started from a known mapping, or a bound on all.

    The MILP is first solved without tensors that wait between partitions. That is a relaxation if blocks can be listed:
    its mapping is the best if it fits.

    Parameters
    ----------
    instance, options : Instance, Options
        The plan, and the request under way.
    menu : Menu
        Options and figures of its layers.
    tiles : int
        Tiles that the streamed axis is cut into.
    first : Solved, optional
        A mapping to start from.
    incumbent : float
        Value from which on a mapping is of no interest.

    Raises
    ------
    Infeasible
        If no mapping keeps the limits under any schemes.
    OutOfTime
        There was not enough time, and no mapping to start from.
    """
    try:
        if first is not None and first.interrupted:
            raise KeyboardInterrupt
        given = instance, options, menu, tiles, first, incumbent
        rounds = (_round(*given, relaxed=relaxed) for relaxed in (True, False))
        outcome = next(each for each in rounds if each is not None)
    except (Large, Unstated) as reason:
        outcome = Pruned(0.0, (), str(reason))
    except OutOfTime:
        if first is None:
            raise
        outcome = Pruned(0.0, (), _LATE)
    except KeyboardInterrupt:
        if first is None:
            raise
        first, outcome = replace(first, interrupted=True), Pruned(0.0, (), _LATE)
    return outcome if first is None or isinstance(outcome, Solved) else _instead(first, outcome)


def _instead(solved: Solved, pruned: Pruned) -> Solved:
    """A mapping that is known, where a program found none, with what that has shown."""
    return replace(solved, bound=min(pruned.bound, solved.value), records=(*solved.records, *pruned.records))


def assignment_of(
    instance: Instance, options: Options, menu: Menu, tiles: int, least: int = 1, *, relaxed: bool = False
) -> tuple[PlanModel, list[IntraChipLimits]]:
    """The assignment MILP of a plan with at least ``least`` partitions, and the limits of its stages.

    Parameters
    ----------
    instance, options, menu : Instance, Options, Menu
        The plan, the request under way, and the sharding options.
    tiles, least : int
        Number of tiles, and least number of partitions that there is room for.
    relaxed : bool
        Whether to leave out limits on tensors that wait between partitions.

    Raises
    ------
    Infeasible
        A kernel fits the chip under none of its schemes.
    OutOfTime, Large, Unstated
        There is no time to build it, it is too large to be solved, or rows do not state all that the plan does.
    """
    if not menu.is_listed:
        raise Unstated("a tensor has too many readers to state what its conversion takes")
    graph, chip = instance.graph, chip_of(instance.system, instance.assumptions)
    # with more tiles than these not every chip has rows of its own in each
    shared = tiles <= max(tile_counts(graph, instance.assumptions, instance.plan.shards))
    if not all(domain := menu.domain if shared else menu.unshared):
        raise Infeasible(f"a kernel that is pinned to be split by tokens allows fewer tiles than {tiles}")
    least_stage = menu.layer.least(domain, tiles)
    free, limits = is_cut(graph, instance.plan), []
    place_k = np.array([graph.kind_of(kernel) for kernel in graph.kernels])
    for number in range(instance.mapped_stages):
        members = np.arange(len(place_k)) if free else np.flatnonzero(place_k == number)
        if not len(members):
            limits.append(IntraChipLimits(0))
            continue
        # what is most easily fused says how many partitions may be of use
        stage = stage_tables(restrict(least_stage, members), chip)
        own = limits_of(instance, stage, number, options.request, clock=options.clock)
        p_max = own.p_max if options.request.p_max is not None else min(max(own.p_max, least), len(members))
        pins = tuple((int(members[k]), p) for k, p in own.pins)
        limits.append(replace(own, p_max=p_max, pins=pins))
    layer, table = menu.priced(tiles)
    form = plan_model(instance, layer, table, menu.domain, limits, options.clock, relaxed=relaxed)
    if tiles not in tile_counts(graph, instance.assumptions):  # tiles so large are for those who share them
        columns = [
            form.choices.s_ko[k][place]
            for k, left in enumerate(menu.domain)
            for place, o in enumerate(left)
            if layer.shares_rows_ko[k][o]
        ]
        form.model.rows("shared_tiles", [(np.array(columns)[None, :], 1.0)], lower=1)
    return form, limits


def _round(
    instance: Instance, options: Options, menu: Menu, tiles: int, first: Solved | None, incumbent: float, *,
    relaxed: bool,
) -> Solved | Pruned | None:  # fmt: skip
    """Solve one form of the program; nothing if the mapping of a relaxed one holds more than a memory has."""
    asked = options.request
    used = 1 + max((kernel.partition for kernel in first.mapping.kernels), default=0) if first is not None else 1
    form, limits = assignment_of(instance, options, menu, tiles, used, relaxed=relaxed)
    p_max, unit = max(each.p_max for each in limits), form.unit_s
    start = _start(form, first) if first is not None and first.value <= incumbent and used <= p_max else None
    report = reporter(options, instance.plan, "joint")
    solution = solve(
        form.model,
        gap=asked.gap,
        clock=options.clock,
        start=start,
        cutoff=incumbent / unit if np.isfinite(incumbent) else None,
        progress=report and (lambda p: report(TracePoint(p.seconds, p.objective * unit, p.bound * unit))),
        seed=asked.seed,
        solver=asked.solver,
    ).in_units(unit)
    bound = max(solution.bound, 0.0)
    record = record_of("joint", 0, "assignment", solution, None, bound, _NOTE)
    if solution.x is not None:
        ready, partition_k = _mapped(instance, options, form, solution.x, tiles)
        if form.relaxed and not _fits(ready, partition_k):
            if solution.interrupted:
                raise KeyboardInterrupt
            return None
        # of a solve that was stopped the columns of the times tell nothing: they may be larger than needed
        expected = solution.objective if solution.termination is Termination.OPTIMAL and not form.bounding else None
        solved = scored(ready, partition_k, expected, bound, (record,), p_max)
        record = record.model_copy(update={"objective": solved.value})
        return replace(solved, bound=min(bound, solved.value), records=(record,))
    if solution.termination is not Termination.INFEASIBLE:
        if solution.termination is not Termination.LIMIT_NO_SOLUTION:
            raise unanswered(solution)
        return Pruned(bound, (record,), _LATE)
    if np.isinf(incumbent):
        raise Infeasible(
            "no sharding and no partitioning of it keeps SRAM, DRAM, the number of partitions and the pins; levers:"
            " another plan, more chips, weight_tiling allowed, fewer pins"
        )
    return Pruned(incumbent, (record.model_copy(update={"bound": incumbent}),), _NOTE)


def _start(form: PlanModel, first: Solved) -> Floats | None:
    """A known mapping as values of columns."""
    at = {kernel.name: kernel for kernel in first.mapping.kernels}
    here = [at[kernel.name] for kernel in form.layer.kernels]
    stage_k, partition_k = (np.array([getattr(kernel, of) for kernel in here]) for of in ("stage", "partition"))
    return form.start({kernel.name: kernel.sharding for kernel in here}, stage_k, partition_k)


def _mapped(instance: Instance, options: Options, form: PlanModel, x: Floats, tiles: int) -> tuple[PricedPlan, Ints]:
    """The mapping of a solution, priced, and the partition of every kernel."""
    sharding, stage_k, partition_k = form.decode(x)
    ready = priced_plan(instance, sharding, stage_k.tolist(), tiles, options)
    for stage in ready.stages.values():
        partition_k[stage.members] = numbered(stage.tables, stage.limits, partition_k[stage.members])
    return ready, partition_k


def _fits(ready: PricedPlan, partition_k: Ints) -> bool:
    """Whether what waits between the partitions of every stage fits beside what stays."""
    return all(
        most_alive(stage.tables, stage.limits, partition_k[stage.members]) <= stage.limits.dram_left
        for stage in ready.stages.values()
    )
