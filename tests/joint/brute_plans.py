"""Every plan that a request leaves free, written out: all ways to share chips out, in all orders, and all that follows.

Nothing is left out because another plan is as good, so there are more of them than a search lists. Of graphs and
systems as tests draw them: no dims on which it is searched where chips lie.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph
from dfopt.documents.hybrid import Hybrid
from dfopt.documents.modules import Modules, ModuleScheme
from dfopt.documents.placement import Placement, items_of
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.documents.system import Chip, System
from dfopt.errors import PlanError
from dfopt.judge.members import issues

_Layers = tuple[int | None, int, int | None]  # of the first stage, of each in the middle, of the last; none: as most
AXES = "tp", "mp", "pp", "dp"  # neighbours of a dim that they share go to the first of them
_SHORT = {"ep": ("experts", "outer"), "cp": ("mixer", "context"), "attention_dp": ("mixer", "n")}


def resolved(assumptions: Assumptions, chip: Chip) -> Assumptions:
    """Assumptions with what they leave to a chip."""
    execution, overlap = assumptions.execution, assumptions.overlap
    if execution in ("auto", "chip"):
        one_by_one = chip.execution == "kernel_by_kernel" and execution == "auto"
        execution = "library" if one_by_one else chip.execution
    if overlap == "auto":
        overlap = "perfect" if execution == "dataflow" else "compute_memory"
    changes: dict[str, Any] = {"execution": execution, "overlap": overlap}
    if assumptions.compute_model == "fixed" and assumptions.compute_utilization is None:
        changes["compute_utilization"] = chip.compute_utilization
    return assumptions.with_(**changes)


def step_seconds(
    seconds: Sequence[float], places: Sequence[int], plan: Plan, chosen: Assumptions, *, trains: bool
) -> float:
    """A step of a pipeline that runs its distinct stages in these places, without what is sent and added up.

    The slowest stage stands for all; where the time of each is charged, the longest chain of passes of
    :mod:`dfopt.physics.fill` does.
    """
    overhead, rounds = chosen.step_overhead or 0.0, plan.microbatches // (2 if plan.two_batch_overlap else 1)
    if chosen.bubble != "stages":
        chunks = max(plan.layers_per_stage - 1, 1) if chosen.bubble == "interleaved" else plan.interleave
        return max(seconds) * (rounds + (plan.stages - 1) / chunks) + overhead
    each = [seconds[place] for place in places]
    turns = trains and chosen.schedule == "one_f_one_b"
    longest = 0.0
    for j, own in enumerate(each):
        before, after, behind = sum(each[:j]), sum(each[j + 1 :]), len(each) - 1 - j
        longest = max(longest, rounds * own + (before if turns else before + after) / plan.interleave)
        if turns and plan.interleave == 1 and behind <= rounds - 2:
            longest = max(longest, before + (rounds - behind) * own + 2 * after)
    return longest + overhead


def every_plan(graph: Graph, system: System, asked: Request, chosen: Assumptions) -> list[Plan]:
    """All plans of a graph on a system under resolved assumptions.

    Raises
    ------
    PlanError
        If there are none.
    """
    assert asked.offload is None and chosen.network_dims != "placed"
    assert all(dim.tier is None for dim in system.network)
    found = list(shared_out(graph, system, asked, chosen))
    if chosen.sequence_parallelism == "force" and chosen.tile_rows:  # every chip needs a row of a tile
        found = [plan for plan in found if plan.shards <= chosen.tile_rows]
    for step in (_with_layers, _with_places, _with_turns, _with_recomputed, _with_zero):
        found = [further for plan in found for further in step(plan, graph, system, asked, chosen)]
    if not found:
        raise PlanError("no plan has what is asked for")
    return found


# -- chips ----------------------------------------------------------------------------------------------------------


def shared_out(graph: Graph, system: System, asked: Request, chosen: Assumptions) -> Iterator[Plan]:
    """Every way to share the chips of all dims out among the axes, in every order of the dims of an axis."""
    wanted: dict[str, Any] = dict(asked.on_axes)
    schemes: dict[str, ModuleScheme] = {str(name): scheme for name, scheme in asked.modules.items()}
    for name, (module, scheme) in _SHORT.items():
        if (degree := getattr(asked, name)) is not None:
            wanted["mp"] = degree
            schemes |= {module: scheme} if degree > 1 else {}
    second = bool(schemes) or wanted.get("mp", 1) > 1 or bool(wanted.get("mp_dims"))
    second |= not {"mp", "mp_dims"} & {*wanted} and any(kernel.module == "experts" for kernel in graph.kernels)
    named = any("[" in name for key in wanted if key.endswith("_dims") for name in wanted[key])
    cuts = [list(_cuts(dim.name, dim.size, second, chosen.network_dims == "parts" or named)) for dim in system.network]
    for of_dims in itertools.product(*cuts):
        degree = {axis: math.prod(of[axis][0] for of in of_dims) for axis in AXES}
        names = {axis: [of[axis][1] for of in of_dims if of[axis][0] > 1] for axis in AXES}
        for order in itertools.product(*(itertools.permutations(names[axis]) for axis in AXES)):
            keys = degree | {f"{axis}_dims": dims for axis, dims in zip(AXES, order, strict=True)}
            if any(keys[key] != value for key, value in wanted.items()):
                continue
            yield from _with_modules(Plan(**keys), graph, system, schemes)


def _cuts(name: str, size: int, second: bool, parts: bool) -> Iterator[dict[str, tuple[int, str]]]:
    """Chips that each axis has of a dim, and what they are called."""
    for sizes in itertools.product(range(1, size + 1), repeat=len(AXES)):
        whole = sum(one > 1 for one in sizes) <= 1
        if math.prod(sizes) != size or (sizes[1] > 1 and not second) or not (parts or whole):
            continue
        found, stride = dict[str, tuple[int, str]](), 1
        for axis, one in zip(AXES, sizes, strict=True):
            part = f"{name}[{one}]" if stride == 1 else f"{name}[{one}@{stride}]"
            found[axis] = one, name if whole else part
            stride *= one
        yield found


def _with_modules(plan: Plan, graph: Graph, system: System, asked: Mapping[str, str]) -> Iterator[Plan]:
    """A plan with all schemes of modules that the judge allows: nothing shared only where a module cannot share.

    Sequences of the residual stream where a module has them, and tokens of it where the mixer has them.
    """
    if plan.members == 1:
        yield plan
        return
    names = sorted({kernel.module for kernel in graph.kernels if kernel.module})

    def judged(stream: str, **schemes: str) -> Plan | None:
        with suppress(ValueError):  # no scheme of such a module
            modules = Modules.model_validate({**dict.fromkeys(names, "none"), "stream": stream, **schemes})
            full = plan.model_copy(update={"modules": modules})
            return None if any(issues(full, graph, system)) else full
        return None

    for stream in ("n", "context", "none"):
        beside = {"stream": "context", "mixer": "context"} if stream == "context" else {"stream": "none"}
        keys = stream == "context" or any(kernel.role == "scores" for kernel in graph.kernels)
        offered = ("n", "outer", "m") + ("context",) * keys
        menus = [[one for one in offered if judged(**{**beside, name: one})] or ["none"] for name in names]
        for some in itertools.product(*menus):
            schemes = dict(zip(names, some, strict=True))
            if {stream, *some} == {"none"} or (stream == "none" and "n" in some):
                continue
            if stream == "context" and schemes.get("mixer") != "context":
                continue
            if all({"stream": stream, **schemes}[name] == scheme for name, scheme in asked.items()):
                yield from filter(None, [judged(stream, **schemes)])


# -- layers ---------------------------------------------------------------------------------------------------------


def _with_layers(plan: Plan, graph: Graph, system: System, asked: Request, chosen: Assumptions) -> Iterator[Plan]:
    """A plan with its microbatches, and every number of layers and chunks of its stages."""
    microbatches, rest = divmod(graph.batch, graph.microbatch * plan.copies)
    most_stages = graph.repeat if graph.folded else len(graph.kernels)
    if rest or plan.stages > most_stages:
        return
    chunked = graph.trains and chosen.schedule == "one_f_one_b" and chosen.bubble != "interleaved" and graph.folded
    chunked &= asked.schedule not in ("gpipe", "1f1b") and plan.stages > 1 and microbatches % plan.stages == 0
    layers, as_chunks = list(_layers(plan, graph, asked)), chosen.bubble == "interleaved"
    if as_chunks:  # chunks are layers of a stage: places that no layer needs are no chunks
        needed = [not any(_spares(graph, plan.stages, one, other) for other in layers) for one in layers]
        layers = [one for one, all_needed in zip(layers, needed, strict=True) if all_needed or one[0] is one[2] is None]
    for first, most, last in layers:
        fewer = [0 if own is None else most - own for own in (first, last)]
        for chunks in range(1, most + 1 if chunked else 2):
            chunk = most // chunks
            spare = min(plan.stages * most - graph.layers.count, 2 * chunk)  # that the first and last chunk go without
            sized = (asked.first_layers, asked.last_layers) != (None, None)
            if chunks == 1:
                fits = as_chunks or plan.stages == 2 or not _lacks(graph, fewer)
            else:
                even = graph.layers.counted == 1 and most == -(-graph.layers.count // plan.stages)  # as stated
                fits = even and sum(fewer) == spare
            wanted = asked.interleave in (None, chunks) and (asked.schedule != "interleaved" or chunks > 1)
            if most % chunks or max(fewer) > chunk or not (fits or sized or not any(fewer)) or not wanted:
                continue
            counts = {"microbatches": microbatches, "layers_per_stage": most, "interleave": chunks}
            yield plan.model_copy(update={**counts, "first_layers": first, "last_layers": last})


def _spares(graph: Graph, stages: int, layers: _Layers, other: _Layers) -> bool:
    """Whether other stages hold the same layers in fewer places: equal layers, or kinds that are cut alike.

    An end without kernels of its own has fewer layers only where there are no more: there any fewer places will do.
    """
    mine, theirs = (
        [most if first is None else first, *[most] * (stages - 2), most if last is None else last]
        for first, most, last in (layers, other)
    )
    cuts = [[min(sum(sizes[:at]), graph.layers.count) for at in range(stages)] for sizes in (mine, theirs)]
    alike = graph.layers.counted == 1 or not graph.folded or cuts[0] == cuts[1]
    alike |= stages > 2 and _lacks(graph, [layers[1] - mine[0], layers[1] - mine[-1]])
    return mine != theirs and all(map(int.__le__, theirs, mine)) and alike


def _lacks(graph: Graph, fewer: Sequence[int]) -> bool:
    """Whether the first or the last stage has fewer layers than the middle and no kernels of its own."""
    ends = {at for places in graph.layers.at for at in places}
    return any(less and at not in ends for less, at in zip(fewer, (0, graph.layers.count), strict=True))


def _layers(plan: Plan, graph: Graph, asked: Request) -> Iterator[_Layers]:
    """Layers of the first stage, of each in the middle and of the last; none: all alike.

    Where kernels run beside layers, every choice with fewer at the ends than in the middle; none only beside kernels.
    """
    layers, stages = graph.layers, plan.stages
    count = layers.count if graph.folded else 1
    even = -(-count // stages)
    ends = {at for places in layers.at for at in places} if graph.folded else set()
    said = asked.first_layers, asked.last_layers
    given = [own for own in said if own is not None]
    if not given:
        yield None, even, None
    if stages == 1 or not ends:
        return
    least = max([*given, -(-max(count - sum(given), 0) // (stages - len(given))) if stages > len(given) else 0])
    for first, most, last in itertools.product(range(count + 1), range(1, count + 1), range(count + 1)):
        lacks = zip((first, last), (0, count), said, strict=True)
        spare = first + last + (stages - 2) * most - count
        if not 0 <= spare < stages:
            continue
        if given:  # the others have equally many, the fewest that hold all
            right = most == least and all(own == (most if wanted is None else wanted) for own, _, wanted in lacks)
        elif first == most == last == even:
            continue
        else:
            right = most == max(first, last) and spare == 0 if stages == 2 else most >= max(first, last)
            right &= all(own or at in ends for own, at, _ in lacks)
        if right:
            yield first, most, last


def _with_recomputed(plan: Plan, graph: Graph, system: System, asked: Request, chosen: Assumptions) -> Iterator[Plan]:
    """A plan with every number of layers that are computed again, as many in each chunk."""
    if graph.recomputed is None:
        yield from () if asked.recomputed else (plan,)
        return
    for number in range(1, plan.layers_per_stage):
        if number % plan.interleave == 0 and asked.recomputed in (None, number):
            yield plan.model_copy(update={"recomputed": number})


def _with_turns(plan: Plan, graph: Graph, system: System, asked: Request, chosen: Assumptions) -> Iterator[Plan]:
    """A plan, and with two microbatches that take turns where these have something to send."""
    if not asked.two_batch_overlap:
        yield plan
    counted = asked.p_max or asked.pin_partition or chosen.empty_partitions == "forbid"
    apart = counted or asked.formulation == "assignment" or chosen.sharding_objective != "joint"
    barred = graph.trains or chosen.overlap == "perfect" or system.stack or apart or asked.two_batch_overlap is False
    alone = plan.shards == plan.interleave == 1 and plan.microbatches % 2 == 0 and (plan.stages == 1 or graph.folded)
    schemes = set(plan.modules.schemes.values()) if plan.modules else set()
    sends = len(schemes) > 1 or schemes - {"n", "none"} or any(kernel.communications for kernel in graph.kernels)
    if alone and sends and not barred:
        yield plan.model_copy(update={"two_batch_overlap": True})


# -- memory ---------------------------------------------------------------------------------------------------------


def _with_places(plan: Plan, graph: Graph, system: System, asked: Request, chosen: Assumptions) -> Iterator[Plan]:
    """A plan with everything in every memory; of a graph that trains where it is asked to be."""
    tiers, fixed = list(system.chip.tiers), asked.place or {}
    items = [item for item in items_of(graph) if not graph.trains or item in fixed]
    for some in itertools.product(tiers, repeat=len(items)):
        lies = {item: tier for item, tier in zip(items, some, strict=True) if tier != tiers[0]}
        if all(lies.get(item, tiers[0]) == tier for item, tier in fixed.items()):
            yield plan.model_copy(update={"placement": Placement.model_validate(lies)} if lies else {})


def _with_zero(plan: Plan, graph: Graph, system: System, asked: Request, chosen: Assumptions) -> Iterator[Plan]:
    """A plan with every level of ZeRO and every number of groups of copies."""
    levels = asked.zero or ((0, 1, 2, 3) if graph.trains else (0,))
    alone = plan.copies == 1 and not (plan.modules and plan.modules.copies_weights)
    if alone or not graph.trains:
        yield from (plan,) if alone or 0 in levels else ()
        return
    for level in levels:
        if level and (chosen.gradients == "dfmodel" or (level > 1 and plan.stages > 1)):
            continue
        if not level:
            yield plan.model_copy(update={"zero": None})
            continue
        for hybrid in _groups(plan, system, asked, whole=chosen.network_dims == "whole"):
            yield plan.model_copy(update={"zero": level, "hybrid": hybrid})


def _groups(plan: Plan, system: System, asked: Request, whole: bool) -> Iterator[Hybrid | None]:
    """Groups of copies, neighbours along the dims of these, of which one may be cut."""
    every = range(1, plan.copies) if asked.zero_replicas == "all" else asked.zero_replicas or (1,)
    for replicas in every:
        if replicas == 1:
            yield None
            continue
        left, rest = divmod(plan.copies, replicas)
        over, across, cut = list[str](), list[str](), False
        for name in plan.copy_dims:
            size, dim = system.dim(name).size, name.partition("[")[0]
            stride = int(name.rstrip("]").partition("@")[2] or 1)
            own = math.gcd(left, size)
            if own == size:
                over.append(name)
            elif own == 1 and left == 1:
                across.append(name)
            elif own == left:
                cut = True
                over.append(f"{dim}[{own}]" if stride == 1 else f"{dim}[{own}@{stride}]")
                across.append(f"{dim}[{size // own}@{stride * own}]")
            else:
                rest = 1
            left //= own
        if not rest and replicas < plan.copies and left == 1 and not (cut and whole):
            yield Hybrid(replicas=replicas, over=tuple(over), across=tuple(across))
