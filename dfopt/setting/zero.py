"""Plans whose copies of the batch share out what each of them would hold: the levels of ZeRO, in groups of copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

from dfopt.divisors import divisors
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph
from dfopt.documents.hybrid import Hybrid, hybrid_of
from dfopt.documents.plan import Plan
from dfopt.documents.request import FREE_ZERO, Request
from dfopt.documents.system import System
from dfopt.errors import PlanError
from dfopt.physics.copies import obstacle

Replicas = Sequence[int] | str | None
"""Numbers of groups of copies that are asked for, ``all``, or none: one group."""


def shared_out(
    candidates: list[Plan],
    graph: Graph,
    system: System,
    assumptions: Assumptions,
    asked: Request,
    check_time: Callable[[], None] = lambda: None,
) -> list[Plan]:
    """Expand plans by all requested ZeRO levels that their replicas can use.

    In training all levels are tried unless one is requested. Each level is combined with every requested number of
    groups of replicas, each of which stores all states. Groups must be possible along the dims
    (:func:`dfopt.documents.hybrid.hybrid_of`), and along whole dims if no axis may use a part of one.

    Parameters
    ----------
    candidates
        Plans without a level.
    graph, system, assumptions
        The workload, the machine and the assumptions of the plans.
    asked
        Levels (``zero``) and numbers of groups (``zero_replicas``).
    check_time
        Called for each group of plans, so that it may end the listing by an exception.

    Raises
    ------
    PlanError
        If no plan can have any of the requested levels or numbers of groups; the message gives the reason.
    """
    groups = asked.zero_replicas
    levels: Sequence[int] = asked.zero or (FREE_ZERO if graph.trains else (0,))
    if groups not in (None, (1,)) and not any(levels):
        raise PlanError(f"zero_replicas: found {_listed(groups)}, but no level of ZeRO to share out by; add --zero 1")
    if tuple(levels) == (0,):
        return candidates
    if not graph.trains and 0 not in levels:
        names = ", ".join(f"ZeRO-{level}" for level in levels)
        raise PlanError(f"zero: {graph.name} keeps no gradients that copies could share out; drop {names}")
    kept, reasons = list[Plan](), dict[str, None]()
    for _, alike in groupby(candidates, key=lambda plan: (plan.axes, plan.modules)):  # what decides how they share out
        check_time()
        plans = [*alike]
        plan, ways = plans[0], list[dict[str, Any]]()
        if plan.copies == 1 and not (plan.modules and plan.modules.copies_weights):
            kept += plans
            continue
        for level in sorted(set(levels)):
            reason = obstacle(plan, level, graph, assumptions)
            groupings = list(grouped(plan, system, assumptions, groups)) if level else [None]
            if not reason and not groupings:
                reason = f"{plan.label_of('batch')} cannot be cut into {_listed(groups)} groups along {plan.copy_dims}"
            if reason:
                reasons[f"ZeRO-{level}: {reason}"] = None
            else:
                ways += [{"zero": level or None, "hybrid": each} for each in groupings]
        kept += [plan.variant(**way) if way["zero"] else plan for plan in plans for way in ways]
    if not kept:
        raise PlanError(f"no plan of {graph.name} shares its states out as asked for: {'; '.join(reasons)}")
    return kept


def grouped(plan: Plan, system: System, assumptions: Assumptions, asked: Replicas) -> Iterator[Hybrid | None]:
    """Ways to cut a plan's replicas into groups that each store all states; None is one group of all.

    Parameters
    ----------
    plan
        Its copies of the batch.
    system, assumptions
        Sizes of network dims, and whether a part of one may carry a group.
    asked
        Numbers of groups, ``all``, or none for one group.
    """
    counts = divisors(plan.copies)[:0:-1] if asked == "all" else sorted({int(n) for n in asked or (1,)})
    for count in counts:
        hybrid = hybrid_of(plan.copy_dims, count, lambda name: system.dim(name).size) if count > 1 else None
        cut = hybrid is not None and {*hybrid.over, *hybrid.across} != {*plan.copy_dims}
        if count == 1 or (hybrid is not None and not (cut and assumptions.network_dims == "whole")):
            yield hybrid


def _listed(groups: Replicas) -> str:
    return groups if isinstance(groups, str) else " or ".join(map(str, groups or ()))
