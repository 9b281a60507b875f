"""Questions that no search could answer, refused before one begins: what was found, beside what, and a remedy."""

from __future__ import annotations

from collections.abc import Sequence

from dfopt.documents.graph import Graph
from dfopt.documents.request import Request
from dfopt.errors import Issue, PlanError, SystemSpecError, did_you_mean
from dfopt.physics.dtypes import arithmetic_of
from dfopt.physics.efficiency import memory_rows
from dfopt.physics.window import by_window
from dfopt.setting.instance import Setting


def check_variants(graph: Graph, variants: Sequence[Graph]) -> None:
    """Raise an error unless all variants of a graph are the same workload, and none is given twice.

    A variant is the same workload with another microbatch, or computed in another way (``variant`` of the graph). The
    function returns nothing.

    Parameters
    ----------
    graph
        The workload. It counts as one of its variants, so no variant may repeat it.
    variants
        Other graphs of the same workload; there may be none.

    Raises
    ------
    PlanError
        - If a variant has another name, batch or sections (drawn layers) than the graph.
        - If its kernels have other names, or another order of names, than those of the first graph with the same value
          of ``variant``.
        - If two graphs have the same microbatch and the same value of ``variant``.

        Nothing else is checked.
    """
    seen, first = {(graph.microbatch, graph.variant)}, {graph.variant: graph}
    for other in variants:
        alike = first.setdefault(other.variant, other)
        same = (other.name, other.batch, other.sections) == (graph.name, graph.batch, graph.sections)
        if not same or [k.name for k in other.kernels] != [k.name for k in alike.kernels]:
            raise PlanError(
                f"variants: {other.name} (batch {other.batch}, {len(other.kernels)} kernels) is another workload than"
                f" {graph.name} (batch {graph.batch}, {len(graph.kernels)} kernels); only the microbatch may differ"
            )
        if (key := (other.microbatch, other.variant)) in seen:
            way = "" if other.variant is None else f", computed with {other.variant},"
            raise PlanError(f"variants: a microbatch of {other.microbatch}{way} is there twice")
        seen.add(key)


def check_names(graph: Graph, request: Request) -> None:
    """Raise an error if a request fixes the partition or the sharding scheme of a kernel that the graph does not have.

    Parameters
    ----------
    graph
        The workload.
    request
        Only the names of kernels in ``pin_partition`` and ``pin_sharding`` are checked.

    Raises
    ------
    PlanError
        For the first name that no kernel has. The message suggests a similar name, or where to find the names.
    """
    kernels = graph.index()
    for option, names in (("pin", list(request.pin_partition)), ("shard", list(request.pin_sharding))):
        for name in names:
            if name not in kernels:
                close = did_you_mean(name, list(kernels), f"`dfopt show {graph.name}` lists them")
                way = f", computed as {graph.variant}," if graph.variant else ""
                raise PlanError(f"{option}: {graph.name}{way} has no kernel {name!r} ({close})")


def check(setting: Setting, request: Request) -> None:
    """Raise an error if machine, assumptions and request contradict each other, so that no search could answer.

    The message says how to change them. The function returns nothing if there is no contradiction.

    Parameters
    ----------
    setting
        Graph, machine and resolved assumptions: no ``auto`` is left.
    request
        The user's choices: pins (kernels whose partition or sharding scheme is fixed), formulation and others.

    Raises
    ------
    SystemSpecError
        - If the machine has a number too large or too small to compute times with.
        - If the chip lacks lanes, stages or frequency under ``compute_model: cycle``, or a table of shares under
          ``efficiency``.
        - If, under ``efficiency``, its table has rows of unit ``memory`` (shares of bandwidth by the bytes that a
          partition moves), together with ``execution: dataflow`` (unless ``formulation: assignment`` is asked for) or
          with a stack of dies.
        - If no data type of the chip holds the operands of some kernel.
    PlanError
        - If a pin names a kernel that the graph does not have, or a partition outside 0 to ``p_max`` - 1. If ``p_max``
          is None, the number of kernels is used in its place.
        - If choices of request and assumptions cannot be made together: such as ``heat: aware`` with ``formulation:
          assignment``, pins of partitions with ``execution: kernel_by_kernel``, or ``gradient_overlap`` with
          ``gradients: dfmodel``. The message says both.
    """
    graph, system, assumptions = setting.graph, setting.system, setting.assumptions
    chip, pin_partition, p_max = system.chip, request.pin_partition, request.p_max
    system.check_extremes()
    if assumptions.compute_model == "cycle" and None in (chip.lanes, chip.stages, chip.frequency):
        message = "the cycle model needs lanes, stages and frequency; found only peak"
        raise SystemSpecError(system.name, [Issue("$.chip", message, "give all three, or use compute_model: fixed")])
    if assumptions.compute_model == "efficiency" and chip.efficiency is None:
        message = "the efficiency model needs a table of shares of peak; found none"
        remedy = "give rows for both units, such as {unit: matrix, share: 0.8}, or use compute_model: fixed"
        raise SystemSpecError(system.name, [Issue("$.chip.efficiency", message, remedy)])
    if memory_rows(chip, assumptions):
        _check_memory_rows(setting, request)
    for kernel in graph.kernels:
        arithmetic_of(graph, kernel, chip)  # refuses what no type of the chip holds
    check_names(graph, request)
    most = p_max if p_max is not None else len(graph.kernels)
    for name, partition in pin_partition.items():
        if not 0 <= partition < most:
            raise PlanError(f"pin: kernel {name!r} in partition {partition}, expected 0 to {most - 1} (p_max {most})")
    for reason, barred in (_refused(setting, request) | _without_model(setting, request)).items():
        if barred:
            raise PlanError(reason)


def _refused(setting: Setting, request: Request) -> dict[str, bool]:
    """Choices that no search makes together: why not, and whether they are asked for."""
    chosen, p_max, several = setting.assumptions, request.p_max, request.several
    aware, matrices = request.heat == "aware", request.formulation == "assignment"
    way, alone = chosen.backward_gathers, chosen.execution == "kernel_by_kernel"
    moved = {*(request.place or ()), *(request.offload or ())} - {"optimizer"}
    one_each = {
        f"sharding_objective: {chosen.sharding_objective}; use joint": chosen.sharding_objective != "joint",
        "formulation: assignment; use auto": matrices,
        "heat: aware; use ignore": aware,
        "a graph drawn once, whose pipeline stages a MILP chooses; fix pp: 1": (
            not setting.graph.folded and setting.system.chips > 1 and request.on_axes.get("pp") != 1
        ),
    }
    return {
        f"distinct: found {request.distinct}, expected plan beside {reason}": several and barred
        for reason, barred in one_each.items()
    } | {
        "formulation: found assignment beside offload or place, whose matrices know no work that other layers hide; use"
        " formulation: auto": setting.graph.trains and bool(moved) and matrices,
        "pins of partitions and p_max have no meaning kernel by kernel, where every kernel has a partition of its own;"
        " leave them out, or use a dataflow chip (--set execution=dataflow)": (
            alone and (bool(request.pin_partition) or p_max is not None)
        ),
        f"backward_gathers: found {way}, which no search weighs against the memory that it takes; expected layer, or"
        " none; a mapping can be scored with it (dfopt score)": (
            way == "kept" or (way == "kept_calculon" and not chosen.by_tiles)
        ),
        f"operand_traffic: found {chosen.operand_traffic} beside heat: aware, which knows tensors only; use heat:"
        " ignore": chosen.operand_traffic is not None and aware,
        "heat: found aware beside formulation: assignment, which lists no blocks to cool; use formulation: auto": (
            matrices and aware
        ),
        "bubble: found stages beside heat: aware, which knows the slowest stage only; use bubble: one_f_one_b, or heat:"
        " ignore": chosen.bubble == "stages" and aware,
        "empty_partitions: forbid means exactly p_max partitions; give p_max (--p-max)": (
            chosen.empty_partitions == "forbid" and not alone and p_max is None
        ),
    }


def _without_model(setting: Setting, request: Request) -> dict[str, bool]:
    """The same of gradients behind the backward pass where no model of them is made."""
    chosen, graph = setting.assumptions, setting.graph
    way, objective, windows = chosen.gradient_overlap, chosen.sharding_objective, by_window(chosen, graph)
    alone, hops = chosen.execution == "kernel_by_kernel", chosen.hides_hops_in(1) or chosen.hides_hops_in(2)
    conflicts = {
        "gradients: dfmodel spreads them over the microbatches; use gradients: exact": chosen.gradients != "exact",
        "formulation: assignment, whose matrices know what listed partitions and equal stages hide; use formulation:"
        " auto": (
            request.formulation == "assignment"
            and (windows or chosen.execution == "dataflow" or chosen.bubble == "stages")
        ),
        "heat: aware, where clocks change what is hidden; use heat: ignore": request.heat == "aware",
        "kernels that share partitions; use execution: kernel_by_kernel": windows and not alone,
        "layers of several kinds; use gradient_overlap: backward": windows and len(graph.layers.kinds) > 1,
        "messages to other stages that are hidden, too; use point_to_point_overlap: exposed": windows and hops,
    }
    return {
        f"parameter_overlap: found {request.parameter_overlap} beside gradient_overlap: {way or 'none'}, expected"
        " backward, with which copies exchange layer by layer": (
            request.parameter_overlap not in (None, "none") and way != "backward"
        ),
        f"tensor_overlap: found any beside gradient_overlap: {way}, where a product that takes longer may hide more,"
        f" and sharding_objective: {objective}; expected none, ring or pipe, or sharding_objective: joint": (
            windows and request.tensor_overlap == "any" and objective != "joint"
        ),
        **{
            f"gradient_overlap: found {way} beside {reason}": way is not None and barred
            for reason, barred in conflicts.items()
        },
    }


def _check_memory_rows(setting: Setting, request: Request) -> None:
    """Refuse what shares of bandwidth by the bytes of a partition leave without a proof."""
    system, assumptions = setting.system, setting.assumptions
    conflict, remedy = "", ""
    if assumptions.execution == "dataflow" and request.formulation != "assignment":
        conflict = "a chip that fuses any kernels (execution: dataflow)"
        remedy = "assume execution: library or kernel_by_kernel, or ask for formulation: assignment"
    elif system.stack is not None:
        conflict, remedy = "a stack of dies, whose bandwidth follows from its DRAM", "leave the rows out"
    if conflict:
        message = f"rows of unit memory are not supported beside {conflict}"
        raise SystemSpecError(system.name, [Issue("$.chip.efficiency", message, remedy)])
