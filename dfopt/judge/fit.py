"""Whether a mapping belongs to a graph and a system at all: names, degrees, dims, legal shardings.

What does not fit cannot be timed, so it is an error. What fits but breaks a capacity or an order is
timed and reported, see `dfopt.judge.limits`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.dim_names import part_name, parts_of, split_part_name
from dfopt.documents.graph import Graph
from dfopt.documents.hybrid import hybrid_of
from dfopt.documents.mapping import Mapping
from dfopt.documents.plan import Plan
from dfopt.documents.stack import Stack
from dfopt.documents.system import Chip, System
from dfopt.errors import DocumentError, Issue, PlanError, SystemSpecError, did_you_mean, repeated
from dfopt.judge import members, types
from dfopt.physics import copies, ops, pipeline

_SAME: Final = 1e-9  # of the nominal frequency: levels are written with fewer digits


def check(mapping: Mapping, graph: Graph, system: System, assumptions: Assumptions, stack: Stack | None = None) -> None:
    """Check that a mapping is valid for its graph and system; all problems are raised together.

    Parameters
    ----------
    mapping, graph, system, assumptions
        The mapping, and the workload, machine and assumptions that it is for.
    stack : Stack, optional
        Stack of dies that it is judged on.

    Raises
    ------
    PlanError
        If the plan does not fit the system or the graph; the message lists the kernels' issues too.
    DocumentError
        If only kernels do not fit. The path is ``mapping.graph``.
    SystemSpecError
        If the chip lacks data that the compute model needs: lanes and stages of its tiles, a table of efficiencies, or
        a peak rate for the data type of a kernel.
    """
    plan = [
        *_plan_issues(mapping.plan, graph, system, assumptions),
        *_turn_issues(mapping.plan, graph, system, assumptions, stack),
    ]
    seen = graph if plan else members.seen_by_a_chip(graph, mapping.plan, system)
    kernels = [*_kernel_issues(mapping, seen, assumptions), *_rate_issues(mapping, stack)]
    if plan:
        count = len(plan) + len(kernels)
        head = f"{mapping.graph} on {mapping.system}: {count} problem{'' if count == 1 else 's'}"
        raise PlanError("\n".join([head, *(f"  {issue}" for issue in [*plan, *kernels])]))
    if kernels:
        raise DocumentError(mapping.graph, kernels)
    missing = [*_chip_issues(system.chip, assumptions.compute_model), *types.issues(graph, system.chip)]
    if missing:
        raise SystemSpecError(system.name, missing)


def _chip_issues(chip: Chip, model: str) -> Iterator[Issue]:
    """What a compute model needs of the chip and does not find."""
    needs = {"cycle": ("lanes", "stages", "frequency"), "efficiency": ("efficiency",)}
    for key in needs.get(model, ()):
        if getattr(chip, key) is None:
            message = f"the key is missing, but the {model} model needs it"
            yield Issue(f"$.chip.{key}", message, "give it, or assume compute_model: fixed")


def _plan_issues(plan: Plan, graph: Graph, system: System, assumptions: Assumptions) -> Iterator[Issue]:
    shown = [share for share in plan.axes if share.degree > 1 or not share.axis.optional]
    names, degrees = [share.axis.name for share in shown], [share.degree for share in shown]
    if math.prod(degrees) != system.chips:
        product = f"{' x '.join(names)} is {' x '.join(map(str, degrees))} = {math.prod(degrees)}"
        message = f"{product}, but the system has {system.chips} chips"
        yield Issue("$.plan", message, "choose degrees that multiply to the chips")
    dims = list(_dim_issues(plan, system))
    yield from dims or members.issues(plan, graph, system)
    if plan.placement is not None:
        yield from plan.placement.issues(graph, system.chip)
    for name, reason in plan.refused(graph).items():
        yield Issue(f"$.plan.{name}", reason, "choose another degree")
    copied = [share.axis.name for share in plan.axes if share.axis.splits == "batch"]
    share = graph.microbatch * plan.copies
    wanted, rest = divmod(graph.batch, share)
    if rest:
        yield Issue(
            f"$.plan.{copied[0]}",
            f"a batch of {graph.batch} cannot be cut into microbatches of {graph.microbatch} on {plan.copies} copies",
            f"batch must be a multiple of microbatch x {' x '.join(copied)} = {share}",
        )
    elif plan.microbatches != wanted:
        yield Issue(
            "$.plan.microbatches",
            f"found {plan.microbatches}, but batch / (microbatch x {' x '.join(copied)}) is {wanted}",
            f"write {wanted}",
        )
    if plan.zero and (reason := copies.obstacle(plan, plan.zero, graph, assumptions)):
        yield Issue("$.plan.zero", f"found {plan.zero}, but {reason}", "leave it out, or choose another level")
    yield from _hybrid_issues(plan, system)
    chunks = graph.folded and plan.stages > 1 and plan.layers_per_stage % plan.interleave == 0
    if plan.interleave > 1 and (not chunks or plan.microbatches % plan.stages):
        yield Issue(
            "$.plan.interleave",
            f"found {plan.interleave} chunks of {plan.layers_per_stage} layers, {plan.microbatches} microbatches on"
            f" {plan.stages} stages",
            "it must divide the layers of a stage, and the stages must divide the microbatches",
        )
    if plan.recomputed and graph.recomputed is None:
        message = f"found {plan.recomputed} layers of a stage, but the graph draws none that is computed again"
        yield Issue("$.plan.recomputed", message, "leave it out, or draw some (recompute: full/none)")
    elif plan.recomputed and (plan.recomputed >= plan.layers_per_stage or plan.recomputed % plan.interleave):
        message = f"found {plan.recomputed} of {plan.layers_per_stage} layers in {plan.interleave} chunks"
        yield Issue("$.plan.recomputed", message, "fewer than a stage has, as many in every chunk")
    layers = pipeline.layers_per_stage(graph.repeat, plan.stages)
    if plan.uneven:
        yield from _uneven_issues(plan, graph)
    elif plan.layers_per_stage != layers:
        yield Issue(
            "$.plan.layers_per_stage",
            f"found {plan.layers_per_stage}, but {graph.repeat} repeats on {plan.stages} stages are {layers} each",
            f"write {layers}",
        )


def _hybrid_issues(plan: Plan, system: System) -> Iterator[Issue]:
    """Groups of copies that share nothing out, or that do not lie as groups do."""
    if plan.hybrid is None:
        return
    if not plan.zero:
        yield Issue("$.plan.hybrid", "found groups of copies that share nothing out", "give zero, or leave it out")
        return
    try:
        expected = hybrid_of(plan.copy_dims, plan.hybrid.replicas, lambda name: system.dim(name).size)
    except ValueError:  # a dim that is not there is told elsewhere
        return
    if expected != plan.hybrid:
        wanted = (
            "none" if expected is None else f"over {', '.join(expected.over)} and across {', '.join(expected.across)}"
        )
        message = f"found groups over {', '.join(plan.hybrid.over)} and across {', '.join(plan.hybrid.across)}"
        yield Issue("$.plan.hybrid", message, f"{plan.hybrid.replicas} groups of the copies are {wanted}")


def _turn_issues(
    plan: Plan, graph: Graph, system: System, assumptions: Assumptions, stack: Stack | None
) -> Iterator[Issue]:
    """What keeps two microbatches from taking turns."""
    if not plan.two_batch_overlap:
        return
    chip = system.chip
    overlap = pipeline.resolve(assumptions, chip.execution, chip.compute_utilization).overlap
    reasons = {
        "the workload trains: this is for what has no backward pass": graph.trains,
        "under overlap: perfect what a microbatch sends is hidden already": overlap == "perfect",
        f"{plan.microbatches} microbatches cannot be taken in twos": plan.microbatches % 2,
        f"{plan.shards} chips share kernels, whose messages would meet those of the other half": plan.shards > 1,
        "layers in several chunks": plan.interleave > 1,
        "kernels drawn once on several pipeline stages": plan.stages > 1 and not graph.folded,
        "on a stack of dies the heat of two halves is not modelled": stack is not None,
    }
    for reason, applies in reasons.items():
        if applies:
            yield Issue("$.plan.two_batch_overlap", f"found true, but {reason}", "leave it out")


def _uneven_issues(plan: Plan, graph: Graph) -> Iterator[Issue]:
    """Whether stages with different numbers of layers suit the graph and hold it."""
    if len(graph.layers.kinds) == graph.layers.counted:
        where = "$.plan.first_layers" if plan.first_layers is not None else "$.plan.last_layers"
        message = "all stages of this graph are alike: it has nothing before the first or after the last layer"
        yield Issue(where, message, "leave it out")
        return
    first, most, last = plan.stage_layers
    if plan.stages == 1 or (plan.interleave > 1 and graph.layers.counted > 1):
        message = f"found {plan.stages} stages in {plan.interleave} chunks, whose layers cannot differ"
        remedy = "leave it out, or take more stages; layers of several kinds without interleave"
        yield Issue("$.plan.first_layers", message, remedy)
        return
    if plan.interleave > 1 and most - min(first, last) > most // plan.interleave:
        message = f"found {first} and {last} of {most} layers in {plan.interleave} chunks"
        remedy = f"the first and the last chunk of all may be smaller, by {most // plan.interleave} at most"
        yield Issue("$.plan.first_layers", message, remedy)
    if max(first, last) > most or (plan.stages == 2 and max(first, last) < most):
        message = f"found {most}, but the first stage has {first} layers and the last {last}"
        yield Issue("$.plan.layers_per_stage", message, "write the most layers that a stage has")
    total = first + (plan.stages - 2) * most + last
    if not 0 <= total - graph.repeat < plan.stages:
        between = f" + {plan.stages - 2} x {most}" if plan.stages > 2 else ""
        message = f"stages of {first}{between} + {last} layers hold {total}, the graph has {graph.repeat}"
        yield Issue("$.plan.layers_per_stage", message, "hold every layer, and less than one too many per stage")


def _dim_issues(plan: Plan, system: System) -> Iterator[Issue]:
    """Whether every dim or part of one is known, used once, and the parts of a dim make up the whole."""
    sizes = {dim.name: dim.size for dim in system.network}
    used: dict[str, dict[int, tuple[int, str]]] = {}  # dim -> stride -> (size, axis)
    for axis, degree, dims in plan.axes:
        product, named = 1, []
        for position, written in ((at, part) for at, name in enumerate(dims) for part in parts_of([name])):
            where = f"$.plan.{axis.dims_key}[{position}]"
            try:
                name, size, stride = split_part_name(written)
            except ValueError as error:
                yield Issue(where, str(error))
                return
            if name not in sizes:
                have = ", ".join(sizes) or "none"
                yield Issue(where, f"no network dim is called {name!r}", f"the system's dims: {have}")
                return
            size = sizes[name] if size is None else size
            product *= size
            named.append(f"{written} {size}")
            parts = used.setdefault(name, {})
            if stride in parts:
                yield Issue(where, f"dim {written!r} already carries {parts[stride][1]}", "use every dim once")
            parts.setdefault(stride, (size, axis.name))
        if product != degree:
            shown = " x ".join(named) or "no dims"
            yield Issue(
                f"$.plan.{axis.dims_key}",
                f"{shown} give {product} chips, but {axis.name} is {degree}",
                f"name dims whose sizes multiply to {degree}",
            )
        for position, written in enumerate(dims):
            if len(parts_of([written])) > 1:
                yield from _block_issues(f"$.plan.{axis.dims_key}[{position}]", written, system)
    for name, parts in used.items():
        reach = 1
        for stride, (size, _) in sorted(parts.items()):
            if stride != reach:
                break
            reach *= size
        if reach != sizes[name]:
            listed = ", ".join(part_name(name, size, stride) for stride, (size, _) in sorted(parts.items()))
            yield Issue(
                "$.plan",
                f"the parts {listed} do not make up dim {name!r} of {sizes[name]}",
                f"parts follow one another, such as {name}[a] and {name}[b@a] with a x b = {sizes[name]}",
            )


def _block_issues(where: str, block: str, system: System) -> Iterator[Issue]:
    """What keeps a ring from going around a block of parts of two dims, each of which is known."""
    named = [split_part_name(part) for part in parts_of([block])]
    sizes = {dim.name: dim for dim in system.network}
    dims = [sizes[name] for name, _, _ in named]
    if len(dims) > 2 or dims[0] is dims[1]:
        yield Issue(where, f"found {block!r}, expected parts of two dims", "name them one by one: x[4], y[2]")
        return
    counts = [dim.size if size is None else size for dim, (_, size, _) in zip(dims, named, strict=True)]
    shown = f"a block of {counts[0]} {dims[0].topology} chips by {counts[1]} {dims[1].topology} chips"
    if any(dim.topology not in ("ring", "line") for dim in dims):
        yield Issue(where, f"found {shown}, expected rings or lines", "blocks are of dims whose chips have neighbours")
    elif min(counts) < 2 or math.prod(counts) % 2:
        message = f"found {shown}: no ring of single steps goes through all of them"
        yield Issue(where, message, "one of the sides must be even, and both more than one")
    elif (dims[0].packet_payload, dims[0].packet_header) != (dims[1].packet_payload, dims[1].packet_header):
        yield Issue(where, f"found {shown}, whose links have other packets each", "name the dims one by one")


def _kernel_issues(mapping: Mapping, graph: Graph, assumptions: Assumptions) -> Iterator[Issue]:
    kernel_by_name = {kernel.name: kernel for kernel in graph.kernels}
    mapped = {entry.name for entry in mapping.kernels}
    missing = [name for name in kernel_by_name if name not in mapped]
    for name in missing:
        yield Issue("$.kernels", f"kernel {name!r} of the graph has no place", "add an entry for it")
    plan = mapping.plan
    for position, entry in enumerate(mapping.kernels):
        kernel = kernel_by_name.get(entry.name)
        if kernel is None:
            meant = did_you_mean(entry.name, missing or kernel_by_name, "remove the entry")
            yield Issue(f"$.kernels[{position}].name", f"the graph has no kernel {entry.name!r}", meant)
            continue
        legal = ops.legal_schemes(kernel, plan.shards, assumptions)
        if entry.sharding not in legal:
            yield Issue(
                f"$.kernels[{position}].sharding",
                f"{kernel.op} kernel {entry.name!r} cannot be split by {entry.sharding!r} over {plan.shards} chips",
                f"choose {' or '.join(legal)}",
            )
        if graph.folded:
            place = graph.kind_of(kernel)
            if entry.stage != place:
                stands = f"one drawn layer stands for all {graph.repeat}, whatever their stage"
                several = len(graph.layers.kinds) > 1
                stands = f"kernel {entry.name!r} belongs to {graph.layers.kinds[place]!r}" if several else stands
                yield Issue(f"$.kernels[{position}].stage", f"found {entry.stage}, but {stands}", f"write {place}")
        elif entry.stage >= plan.stages:
            yield Issue(
                f"$.kernels[{position}].stage",
                f"found {entry.stage}, but the plan has {plan.stages} stage{'' if plan.stages == 1 else 's'}",
                f"use 0 to {plan.stages - 1}, or a plan with more pipeline stages",
            )


def _rate_issues(mapping: Mapping, stack: Stack | None) -> Iterator[Issue]:
    """Clocks and pauses of places that do not exist, given twice, or at a frequency that the stack cannot run at."""
    places = {(entry.stage, entry.partition) for entry in mapping.kernels}
    stages = {stage for stage, _ in places}
    clocks = [((c.stage, c.partition), f"partition {c.partition} of stage {c.stage}") for c in mapping.clocks or ()]
    pauses = [(pause.stage, f"stage {pause.stage}") for pause in mapping.pauses or ()]
    blocks = [
        ((b.stage, b.partition), f"partition {b.partition} of stage {b.stage}") for b in mapping.token_blocks or ()
    ]
    yield from _place_issues("clock", "partition", clocks, places)
    yield from _place_issues("token_block", "partition", blocks, places)
    for position, clock in enumerate(mapping.clocks or ()):
        if stack is not None and not any(abs(level.frequency - clock.frequency) <= _SAME for level in stack.levels):
            levels = ", ".join(f"{level.frequency:.6g}" for level in stack.levels)
            message = f"found {clock.frequency:.6g}, which is no level of stack {stack.name}"
            yield Issue(f"$.clocks[{position}].frequency", message, f"its levels: {levels}")
    yield from _place_issues("pause", "stage", pauses, stages)


def _place_issues(
    what: str, of: str, listed: Sequence[tuple[object, str]], places: Collection[object]
) -> Iterator[Issue]:
    """What is given for a place, with its name, that holds no kernel, or for a place that has one already."""
    for position, (place, name) in enumerate(listed):
        if place not in places:
            yield Issue(f"$.{what}s[{position}]", f"{name} holds no kernel", f"leave the {what} out")
    for position, _, first in repeated(place for place, _ in listed):
        message = f"{listed[position][1]} has a {what} already, $.{what}s[{first}]"
        yield Issue(f"$.{what}s[{position}]", message, f"give each {of} one {what} at most")
