"""The plans a system allows: which network dims, or parts of them, carry which axis, and the layers of stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dfopt.divisors import divisors
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.axes import AXES, MODULES, Dims, keys
from dfopt.documents.dim_names import parts_of
from dfopt.documents.graph import Graph
from dfopt.documents.modules import STREAM, Modules
from dfopt.documents.on_axes import OnAxes
from dfopt.documents.placement import items_of
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.documents.system import System
from dfopt.errors import PlanError, did_you_mean
from dfopt.physics.efficiency import memory_rows
from dfopt.physics.pipeline import layers_per_stage
from dfopt.setting.instance import Setting
from dfopt.setting.listing import PlanListing
from dfopt.setting.module_menu import menu, obstacles, refusal
from dfopt.setting.orders import Orders
from dfopt.setting.pinned import forbidden_pins
from dfopt.setting.placements import looked_at_later, offloads, placements
from dfopt.setting.reads import ByReads
from dfopt.setting.saved import BALANCED, left_out, saved_share
from dfopt.setting.schedules import in_turns, of_schedule, turns_left_out, with_recomputed
from dfopt.setting.shares import in_rank_order, shares
from dfopt.setting.uneven import uneven_chunks, uneven_layers, with_ends
from dfopt.setting.zero import shared_out

COMMON = "module_schemes common"
"""What is fixed where not every scheme of modules is listed."""
_LISTED: Final = 4  # rejected plans that a message lists: they mostly have one reason


@dataclass(frozen=True)
class Rejected:
    """A plan that this graph cannot use, with the reason."""

    plan: Plan
    reason: str


def asked_plans(
    graph: Graph, system: System, asked: Request, assumptions: Assumptions, listing: PlanListing | None = None
) -> tuple[list[Plan], list[Rejected]]:
    """All plans that a request allows, and those that were rejected with the reason.

    Where kernels run once per microbatch before the first or after the last layer, the pipeline stages at the ends may
    have fewer layers than the others, as the balance of the stages requires, and on up to 1,024 chips as the first
    stage saves more activations (:func:`dfopt.setting.uneven.uneven_layers`; for interleaved stages
    :func:`dfopt.setting.uneven.uneven_chunks`). Not searched are stages with different numbers of layers if no kernel
    runs once, and in the middle of a pipeline. On chips with several memories every plan is listed with every
    placement, see :mod:`dfopt.setting.placements`.

    The order in which an axis uses its dims is free; only orders that may be better than all others are listed
    (:class:`dfopt.setting.orders.Orders`). The order of dims in a system's file therefore makes no difference. Inside a
    dim that several axes share, groups of neighbours belong to the axis that communicates most often: tensor
    parallelism (every kernel), then pipeline parallelism (every microbatch), then data parallelism (every step). All
    parts of a switch or a fully connected dim are equal, so that there is nothing to choose. On rings and lines other
    orders would make three to nine times as many plans: they are searched if the request names parts of dims, and on
    the dims of :func:`placed_dims`. On these an axis may also run around the block of two of its dims
    (:meth:`dfopt.documents.network.NetworkDim.around`). DFModel (section IV.C) leaves dims whole.

    Parameters
    ----------
    asked
        Fixed values: degrees and dims of axes, schemes of modules, layers and chunks of stages, memories, and others;
        plans with other values are left out. If neither schemes of modules nor the degree of the second axis are
        requested, only models with experts have such an axis, with the schemes of ``module_schemes``, see
        :mod:`dfopt.setting.module_menu`.
    assumptions
        Resolved; they price the orders of dims.
    listing
        Restriction of the plans to list; by default none.

    Returns
    -------
    (plans, rejected)
        Legal plans, and those the graph cannot use with the reason: the batch must divide over data-parallel copies,
        and no more stages be than layers.

    Raises
    ------
    PlanError
        If nothing is left, saying which degrees the dims allow.
    """
    listing = listing or PlanListing()
    plans, rejected = _on_dims(graph, system, asked, assumptions, listing)
    places = placements(graph, system.chip, asked.place)
    mixed = not graph.trains and places != [None]  # bytes of a partition through several memories
    if mixed and memory_rows(system.chip, assumptions):
        raise PlanError(
            f"{system.name}: found several memories, which {graph.name} may lie in, beside shares of bandwidth by the"
            " bytes of a partition; expected all of it in the fastest: place it there"
            f" ({', '.join(f'{item}={system.chip.fastest_tier}' for item in items_of(graph))}), or leave out the rows"
        )
    plans = [plan.variant(placement=place) if place else plan for plan in plans for place in places]
    plans = of_schedule(_with_rows(plans, assumptions), graph, asked)
    if asked.two_batch_overlap is not False:
        more = in_turns(plans, graph, system, assumptions, asked)
        plans = more if asked.two_batch_overlap else plans + more
    plans = with_recomputed(plans, graph, asked.recomputed)
    plans = shared_out(plans, graph, system, assumptions, asked, listing.check_time)
    if asked.offload is not None:
        free = offloads(graph, system, assumptions, asked)  # of layers that repeat they are chosen later
        free = free[:1] if looked_at_later(graph, assumptions) else free
        plans = [plan.variant(placement=each) if each else plan for plan in plans for each in free]
    if pins := asked.pin_sharding:  # a second axis may leave a chip less of a kernel to share out
        setting, reason = Setting(graph, system, assumptions), ByReads()
        reasons = [reason.answer(p, lambda plan: forbidden_pins(setting.seen(plan), pins, plan.shards)) for p in plans]
        rejected += [Rejected(plan, reason) for plan, reason in zip(plans, reasons, strict=True) if reason]
        plans = [plan for plan, reason in zip(plans, reasons, strict=True) if not reason]
        if not plans:
            raise PlanError("; ".join(dict.fromkeys(reasons)))
    return plans, rejected


def _on_dims(
    graph: Graph, system: System, asked: Request, assumptions: Assumptions, listing: PlanListing
) -> tuple[list[Plan], list[Rejected]]:
    """Plans by the dims of axes, schemes of modules, and the layers and chunks of stages."""
    on_axes, schemes = asked.shared_out
    wanted = OnAxes(**on_axes)
    degrees, dims = wanted.asked_degrees, wanted.asked_dims
    _check_dims(system, dims)
    pinned = any("[" in name for names in dims.values() for name in names)
    parts, placed = pinned or assumptions.network_dims != "whole", placed_dims(system, assumptions)
    orders = Orders(graph, system, assumptions, placed, asked.zero_replicas)
    used = [dim for dim in system.network if dim.size > 1]
    several, sparing = may_share(graph, asked), _is_sparing(assumptions, asked)
    axes = [name for name, axis in AXES.items() if several or axis.splits != "modules"]
    if asked.rank_order is not None:
        ways = in_rank_order(used, asked.rank_order.split("-"), axes)
    else:
        nested = [dim.name for dim in used] if pinned else placed
        ways = shares(used, parts, nested, named=bool(dims), axes=axes)
    menus: dict[int, list[Modules | None]] = {1: [None]}
    plans, rejected = list[Plan](), list[Rejected]()
    for degree, shared in ways:
        if any(degree[axis] != value for axis, value in degrees.items()):
            continue
        if any(set(shared[axis]) != set(parts_of(names)) for axis, names in dims.items()):
            continue
        if not listing.shared(shared):
            continue
        for order in orders.of(shared | dims, fixed=dims if asked.rank_order is None else AXES):
            plan = listing.on_axes(degree, order)
            legal, reason = _of_order(graph, plan, asked, assumptions)
            if plan.members not in menus:
                alike = asked.parallelism == "expanded"
                few = (m for m in menu(graph, plan.members, sparing=sparing) if m.alike or not alike)
                menus[plan.members] = listing.picked([m for m in few if m.schemes.items() >= schemes.items()])
            picked = menus[plan.members]
            plans += [p if m is None else p.variant(modules=m) for p in legal for m in picked]
            if legal and not picked:
                why = obstacles(graph, schemes, plan.members)
                reason = Rejected(
                    plan, f"no module can share its work over {plan.label_of('modules')} as asked for{why}"
                )
            if reason:  # whatever the order
                rejected.append(reason)
                break
    if not plans:
        raise PlanError(_nothing_left(system, degrees, dims, rejected, parts, axes))
    return plans, rejected


def _with_rows(plans: list[Plan], assumptions: Assumptions) -> list[Plan]:
    """Plans whose chips that share kernels have a row of every tile each, where tokens must be split."""
    rows = assumptions.tile_rows
    if assumptions.sequence_parallelism != "force" or rows is None:
        return plans
    if kept := [plan for plan in plans if plan.shards <= rows]:
        return kept
    least = min(plans, key=lambda plan: plan.shards)
    raise PlanError(
        f"sequence_parallelism: found force beside tiles of {rows} rows (tile_rows) under {least.label_of('kernels')},"
        " whose chips need a row of every tile each; give fewer chips, more rows, or allow"
    )


def placed_dims(system: System, assumptions: Assumptions) -> tuple[str, ...]:
    """Names of the ring and line dims on which the search tries several positions for the chips of an axis.

    All rings and lines if the assumption says so; none if dims stay whole; otherwise those inside packages.

    Examples
    --------
    >>> from dfopt.machines.compose import load_system
    >>> placed_dims(load_system("sn10-8-torus"), Assumptions(network_dims="placed"))
    ('x', 'y')
    """
    tiers = {"whole": (), "parts": ("package",), "placed": None}[assumptions.network_dims]
    return tuple(
        dim.name for dim in system.network if dim.size > 1 and dim.laid_out and (tiers is None or dim.tier in tiers)
    )


def not_asked_for(graph: Graph, system: System, assumptions: Assumptions, asked: Request) -> tuple[str, ...]:
    """Sentences on parts of the space that exist and are searched only on request.

    Parameters
    ----------
    graph, system, assumptions, asked
        Workload, machine and resolved assumptions, and the request.
    """
    words, copied = [], graph.trains and asked.on_axes.get("dp") != 1 and asked.zero != (0,)
    several, named = may_share(graph, asked), MODULES in asked.shared_out[0]
    if not named and refusal(graph) is None and not several:
        words.append(f"{MODULES} 1")
    if several and _is_sparing(assumptions, asked) and system.chips > 1:
        words.append(COMMON)
    if copied and asked.zero_replicas is None:
        words.append("zero_replicas 1")
    if graph.trains and asked.offload is None and not asked.place and len(system.chip.memories or ()) > 1:
        words.append("offload none")
    sends = named or several or any(kernel.communications for kernel in graph.kernels)
    if sends and turns_left_out(graph, system, assumptions, asked):
        words.append("two_batch_overlap false")
    if left_out(graph, system.chips, asked, assumptions):
        words.append(BALANCED)
    return tuple(words)


def _is_sparing(assumptions: Assumptions, asked: Request) -> bool:
    """Whether only common schemes of modules are listed: nothing is asked of the second axis, and they are enough."""
    on_axes, schemes = asked.shared_out
    named = schemes or any(keys()[key][0].splits == "modules" for key in on_axes)
    return assumptions.module_schemes is None and not named


def may_share(graph: Graph, asked: Request) -> bool:
    """Whether plans with a second axis are listed: if the request says so, or if the graph has experts.

    Raises
    ------
    PlanError
        If they are requested and the graph has none.
    """
    on_axes, schemes = asked.shared_out
    of_modules = {key: what for key, what in on_axes.items() if keys()[key][0].splits == "modules"}
    if of_modules and not schemes and all(what in (1, ()) for what in of_modules.values()):
        return False
    if not of_modules and not schemes:
        return refusal(graph) is None and any(kernel.module == "experts" for kernel in graph.kernels)
    if reason := refusal(graph):
        raise PlanError(f"{graph.name} has no second axis: {reason}")
    own = {STREAM, *(kernel.module for kernel in graph.kernels if kernel.module is not None)}
    if missing := [name for name in schemes if name not in own]:
        remedy = f"it has {', '.join(sorted(own))}"
        raise PlanError(f"{graph.name} has no module {missing[0]!r}: {did_you_mean(missing[0], own, remedy)}")
    return True


def _of_order(graph: Graph, plan: Plan, asked: Request, assumptions: Assumptions) -> tuple[list[Plan], Rejected | None]:
    """Plans with the degrees and dims of one: microbatches, chunks and layers of their stages."""
    interleave, ends = asked.interleave, (asked.first_layers, asked.last_layers)
    layers, microbatches = layers_per_stage(graph.repeat, plan.stages), graph.batch // (graph.microbatch * plan.copies)
    plan = plan.variant(microbatches=max(microbatches, 1), layers_per_stage=layers)
    reason = _unusable(graph, plan)
    if ends != (None, None) and not reason:
        try:
            plan = plan.variant(**with_ends(graph, plan.stages, *ends))
        except ValueError as error:
            reason = str(error)
    chunks = [] if reason else [v for v in _chunks(graph, plan, assumptions) if interleave in (None, v)]
    if not chunks:
        return [], Rejected(plan, reason or f"its layers cannot be interleaved {interleave} times")
    plans = [plan.variant(interleave=v) for v in chunks]
    if plan.uneven:
        shrunk = plan.layers_per_stage - min(plan.stage_layers)
        plans = [p for p in plans if p.interleave == 1 or shrunk <= p.layers_per_stage // p.interleave]
        why = f"its first or last chunk of {interleave} cannot be {shrunk} layers smaller"
        return plans, None if plans else Rejected(plan, why)
    if 1 in chunks:
        as_chunks = assumptions.bubble == "interleaved"
        saved = saved_share(graph, plan, asked, assumptions)
        changes = uneven_layers(graph, plan.stages, as_chunks=as_chunks, saved=saved)
        plans += [plan.variant(**uneven) for uneven in changes]
    for v in chunks:
        plans += [plan.variant(**uneven) for uneven in uneven_chunks(graph, plan.stages, v)]
    return plans, None


def _chunks(graph: Graph, plan: Plan, assumptions: Assumptions) -> list[int]:
    """Chunks of layers that a stage may be cut into; the microbatches go around in groups of one per stage."""
    cut = graph.trains and assumptions.schedule == "one_f_one_b" and assumptions.bubble != "interleaved"
    if not cut or plan.stages == 1 or not graph.folded or plan.microbatches % plan.stages:
        return [1]
    return sorted(divisors(plan.layers_per_stage))


def _unusable(graph: Graph, plan: Plan) -> str | None:
    if graph.batch % (graph.microbatch * plan.copies):
        return (
            f"a batch of {graph.batch} samples in microbatches of {graph.microbatch} does not divide over"
            f" {plan.label_of('batch')} (needs a multiple of {graph.microbatch * plan.copies})"
        )
    if plan.stages > 1 and graph.folded and plan.stages > graph.repeat:
        return f"{plan.label_of('layers')} has more stages than the graph has layers ({graph.repeat})"
    if plan.stages > len(graph.kernels) * graph.repeat:
        return f"{plan.label_of('layers')} has more stages than the graph has kernels ({len(graph.kernels)})"
    return next(iter(plan.refused(graph).values()), None)


def _check_dims(system: System, wanted: Mapping[str, Dims]) -> None:
    for axis, names in wanted.items():
        for written in names:
            try:
                system.dim(written)
            except ValueError as error:
                raise PlanError(f"--{AXES[axis].name}-dims: {error}") from None


def _nothing_left(
    system: System,
    wanted: Mapping[str, int],
    wanted_dims: Mapping[str, Dims],
    rejected: list[Rejected],
    parts: bool,
    axes: Sequence[str],
) -> str:
    if rejected:
        return "no plan is usable: " + "; ".join(f"{r.plan.label}: {r.reason}" for r in rejected[:_LISTED])
    sizes = ", ".join(f"{dim.name} ({dim.topology} of {dim.size})" for dim in system.network) or "none"
    asked = [f"{AXES[axis].label} {value}" for axis, value in wanted.items()]
    asked += [f"{AXES[axis].label} on {'*'.join(names) or 'no dim'}" for axis, names in wanted_dims.items()]
    dims = [dim for dim in system.network if dim.size > 1]
    degrees = sorted({degree for degrees_of, _ in shares(dims, parts, axes=axes) for degree in degrees_of.values()})
    rule = "a dim may be shared, in divisors of its size" if parts else "each dim carries one parallelism whole"
    return (
        f"no plan on {system.name} has {', '.join(asked)}: the network dims are {sizes},"
        f" {system.chips} chips; {rule}, so a degree is one of {degrees},"
        f" and {' x '.join(AXES[name].label for name in axes)} must be {system.chips}"
    )
