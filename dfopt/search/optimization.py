"""``optimize``: check what was asked for, search, assemble the result."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from dfopt.documents.assumptions import Assumptions, profile
from dfopt.documents.axes import keys, spelled_out
from dfopt.documents.graph import Graph
from dfopt.documents.mapping import Sharding
from dfopt.documents.result import PlanRecord, Request, Result, Space
from dfopt.documents.stack import Stack
from dfopt.documents.system import System
from dfopt.errors import Issue, PlanError, SystemSpecError, did_you_mean
from dfopt.judge import evaluate
from dfopt.library import as_graph, as_system
from dfopt.machines.stacks import with_stack
from dfopt.milp import check_solver
from dfopt.physics.pipeline import resolve
from dfopt.search.assembling import assemble
from dfopt.search.branching import Search
from dfopt.search.options import Formulation, Heat, Options, Progress
from dfopt.search.sensitivity import sensitivities
from dfopt.search.solved import Solved
from dfopt.search.space import search_space, together
from dfopt.setting.instance import Setting
from dfopt.setting.plans import asked_plans
from dfopt.technology.stack_models import power_of

_SEARCH = 0.6  # of the time, where the best plan is then re-optimised with heat


@spelled_out("interleave", lambda axis, dims: tuple[str, ...] | None if dims else int | None)
def optimize(
    graph: Graph | str | os.PathLike[str],
    system: System | str | os.PathLike[str],
    *,
    assumptions: Assumptions | str = "default",
    interleave: int | None = None,
    variants: Sequence[Graph] = (),
    p_max: int | None = None,
    formulation: Formulation = "auto",
    gap: float = 0.0,
    time_limit: float = 60.0,
    solver: str = "highs",
    pin_sharding: dict[str, Sharding] | None = None,
    pin_partition: dict[str, int] | None = None,
    sensitivity: bool = False,
    progress: Callable[[Progress], None] | None = None,
    seed: int = 0,
    top: int = 1,
    stack: Stack | None = None,
    heat: Heat = "ignore",
    **axes: Any,
) -> Result:
    """Find, prove and judge the fastest mapping of a graph onto a system.

    Parameters
    ----------
    graph, system : Graph and System, or names or paths of them
        What to map, and onto what.
    assumptions : Assumptions or str
        A document, or the name of a profile.
    interleave : int, optional
        Chunks of layers that a pipeline stage holds; all that divide its layers if left out.
    variants : sequence of Graph
        The same workload drawn for other microbatch sizes: they are searched too, and the best of all is returned.
    p_max : int, optional
        On-chip partitions at most (exactly, under ``empty_partitions: forbid``). Default: any number in
        the columns form; in the assignment form two more than the best cut of a topological order needs.
    formulation : str
        Of the intra-chip problem: ``columns`` (blocks of kernels: a path through the lattice of down-sets, or where
        there are too many blocks generated on demand), ``assignment`` (the paper's matrices), or ``auto``: columns,
        and the matrices where those leave a gap that a MILP of that size may close.
    gap : float
        Relative gap at which a solve may stop; 0 asks for a proof.
    time_limit : float
        Seconds for everything; the best mapping found by then is returned with its gap.
    pin_sharding, pin_partition : dict, optional
        Kernel name -> scheme or partition that the user fixes.
    sensitivity : bool
        Also optimise the winning plan with 10 % more of each resource.
    progress : callable, optional
        Called with a :class:`Progress` now and then while a solve runs.
    solver : str
        Of the MILPs: ``highs``, or ``pulp:NAME`` for one that PuLP knows, such as ``pulp:CBC``. With another solver
        than HiGHS the intra-chip problem is solved as a MILP in any case, as a cross-check of the shortest path.
    seed : int
        Seed of the solver.
    stack : Stack, optional
        The chip as a stack of dies with its memory; the system's own if left out.
    heat : str
        ``ignore``: the judge says how hot the best mapping is, and throttles it. ``aware``: partitions of the best
        plan, an operating point for each of them and pauses are chosen anew, so that the stack keeps its limits.
    top : int
        How many mappings to keep: beside the best, those of the next best plans (or tile counts, or microbatch sizes),
        proven to be these, in ``result.alternatives``. With ``heat="aware"`` so many of the fastest plans are
        optimised again, and the fastest answer is kept.

    **axes
        Degrees of tensor, pipeline and data parallelism, such as ``tp=8``; all that the network dims allow if left out.
        Network dims that carry them, or parts of dims, in their order: ``tp_dims=("x[8]",)`` are groups of eight
        neighbours.

    Returns
    -------
    Result
        Best mapping, its score and the proof.

    Raises
    ------
    PlanError, Infeasible, NoSolution, SolverFailure, ScoreMismatch
        See :mod:`dfopt.errors`.

    Examples
    --------
    >>> import dfopt as df
    >>> result = df.optimize("gpt2-small", "sn10-8-ring", tp=8)
    >>> result.status, result.gap
    ('optimal', 0.0)
    """
    began = time.perf_counter()
    if unknown := sorted(axes.keys() - keys().keys()):
        raise TypeError(f"optimize() got an unexpected keyword argument {unknown[0]!r}")
    graph, system = as_graph(graph), as_system(system)
    if stack is not None:
        system = with_stack(system, stack)
    if heat == "aware":
        from dfopt.heat.answers import made_aware, needs_stack  # scipy: not for those who never ask

        system = needs_stack(system, None)
    elif heat != "ignore":
        raise PlanError(f"heat: found {heat!r}, expected 'ignore' or 'aware'")
    if system.stack is not None:
        power_of(system.stack, system.chip.tiles)  # what is wrong with a stack is told before the search
    chosen = profile(assumptions) if isinstance(assumptions, str) else assumptions
    resolved = resolve(chosen, system.chip.execution, system.chip.compute_utilization)
    _check_variants(graph, variants)
    _check(graph, system, resolved, pin_partition or {}, pin_sharding or {}, p_max, top)
    try:
        request = Request(
            **axes,
            interleave=interleave,
            p_max=p_max,
            gap=gap,
            pin_sharding=pin_sharding or {},
            pin_partition=pin_partition or {},
        )
    except ValidationError as error:
        told = error.errors(include_url=False)[0]
        raise PlanError(f"{told['loc'][0]}: found {told['input']!r}, {told['msg'].lower()}") from None
    options = Options(
        request=request,
        assumptions=resolved,
        p_max=p_max,
        formulation=formulation,
        gap=gap,
        deadline=began + time_limit * (_SEARCH if heat == "aware" else 1.0),
        pin_sharding=pin_sharding or {},
        pin_partition=pin_partition or {},
        progress=progress,
        seed=seed,
        solver=check_solver(solver),
        top=top,
    )
    drawn = (graph, *variants)
    found: list[Solved] = []
    searches: list[Search] = []
    spaces: list[Space] = []
    refused: list[PlanError] = []
    for one in drawn:
        try:
            legal, rejected = asked_plans(one, system, request, resolved)
        except PlanError as error:
            refused.append(error)
            continue
        search = Search(Setting(one, system, resolved), options, found)
        search.records += [PlanRecord(plan=r.plan, status="infeasible", bound_s=None, note=r.reason) for r in rejected]
        search.run(legal)
        found, options = search.found, search.options
        searches.append(search)
        lattices = next((work.lattices for work in search.memo.values()), {})
        spaces.append(search_space(one, legal, resolved, lattices))
    if not searches:
        raise refused[0]
    if not found:
        raise searches[0].failure()
    best = found[0]
    records = [record for search in searches for record in search.records]
    stopped = any(search.stopped for search in searches)
    extra = sensitivities(best.graph, system, best, options) if sensitivity and not stopped else ()
    others = tuple(one for one in drawn if one is not best.graph)
    shown, note = None, ""
    if heat == "aware":
        within = replace(options, deadline=max(options.deadline, began + time_limit))
        best, shown, note = made_aware(best, system, within, found[1:])
        found = [best]
    elif system.stack is not None:
        found = [replace(best, score=evaluate(best.mapping, best.graph, system, resolved)), *found[1:]]
    result = assemble(system, found, others, records, options, began, stopped, extra, together(spaces))
    if shown is not None:
        result = result.model_copy(update={"proof": result.proof + note, "heat": shown})
        result = result.model_copy(update={"seal": result.unsealed_digest()})
    return result


def _check_variants(graph: Graph, variants: Sequence[Graph]) -> None:
    seen = {graph.microbatch}
    for other in variants:
        same = (other.name, other.batch, other.repeat) == (graph.name, graph.batch, graph.repeat)
        if not same or [k.name for k in other.kernels] != [k.name for k in graph.kernels]:
            raise PlanError(
                f"variants: {other.name} (batch {other.batch}, {len(other.kernels)} kernels) is another workload than"
                f" {graph.name} (batch {graph.batch}, {len(graph.kernels)} kernels); only the microbatch may differ"
            )
        if other.microbatch in seen:
            raise PlanError(f"variants: a microbatch of {other.microbatch} is there twice")
        seen.add(other.microbatch)


def _check(
    graph: Graph,
    system: System,
    assumptions: Assumptions,
    pin_partition: dict[str, int],
    pin_sharding: dict[str, Sharding],
    p_max: int | None,
    top: int,
) -> None:
    chip = system.chip
    if assumptions.compute_model == "cycle" and None in (chip.lanes, chip.stages, chip.frequency):
        message = "the cycle model needs lanes, stages and frequency; found only peak"
        raise SystemSpecError(system.name, [Issue("$.chip", message, "give all three, or use compute_model: fixed")])
    if assumptions.compute_model == "efficiency" and chip.efficiency is None:
        message = "the efficiency model needs a table of shares of peak; found none"
        remedy = "give rows for both units, such as {unit: matrix, share: 0.8}, or use compute_model: fixed"
        raise SystemSpecError(system.name, [Issue("$.chip.efficiency", message, remedy)])
    known = graph.index()
    for option, names in (("pin", list(pin_partition)), ("shard", list(pin_sharding))):
        for name in names:
            if name not in known:
                close = did_you_mean(name, list(known), f"`dfopt show {graph.name}` lists them")
                raise PlanError(f"{option}: {graph.name} has no kernel {name!r} ({close})")
    if top < 1:
        raise PlanError(f"top must be at least 1, found {top}")
    if p_max is not None and p_max < 1:
        raise PlanError(f"p_max must be at least 1, found {p_max}")
    most = p_max if p_max is not None else len(graph.kernels)
    for name, partition in pin_partition.items():
        if not 0 <= partition < most:
            raise PlanError(f"pin: kernel {name!r} in partition {partition}, expected 0 to {most - 1} (p_max {most})")
    if assumptions.execution == "kernel_by_kernel" and (pin_partition or p_max is not None):
        raise PlanError(
            "pins of partitions and p_max have no meaning kernel by kernel, where every kernel has a partition of its"
            " own; leave them out, or use a dataflow chip (--set execution=dataflow)"
        )
    if assumptions.empty_partitions == "forbid" and assumptions.execution == "dataflow" and p_max is None:
        raise PlanError("empty_partitions: forbid means exactly p_max partitions; give p_max (--p-max)")
