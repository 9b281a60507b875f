"""Check what was asked for, search all plans of all graphs, assemble the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar, cast

from dfopt.documents.graph import Graph
from dfopt.documents.heat import HeatProof
from dfopt.documents.request import Request
from dfopt.documents.result import Result, Sensitivity
from dfopt.errors import DfoptError, Issue, NoSolution, PlanError, SystemSpecError, did_you_mean
from dfopt.interrupts import FIRST_AFTER, LIMIT, SIGNALS, cause, interruptible, wall_limit
from dfopt.judge import evaluate
from dfopt.milp import check_solver
from dfopt.physics.dtypes import arithmetic_of
from dfopt.physics.efficiency import memory_rows
from dfopt.physics.library import as_computed
from dfopt.physics.pipeline import resolve
from dfopt.physics.window import by_window
from dfopt.questions import Resolved
from dfopt.search.assembling import assemble, left_open
from dfopt.search.branching import Search, failure_of
from dfopt.search.jointly import JointSearch
from dfopt.search.options import Options, Progress
from dfopt.search.placing import Placing
from dfopt.search.sensitivity import sensitivities
from dfopt.search.solved import Solved
from dfopt.search.space import search_space, together
from dfopt.search.starts import begin
from dfopt.setting.instance import Setting
from dfopt.technology.stack_models import power_of

T = TypeVar("T")
_SEARCH = 0.6  # of the time, where the best plan is then re-optimised with heat
_SENSITIVITY = 0.05, 1.0  # of the time, and seconds at most, that are kept for what more of a resource brings


def search(
    resolved: Resolved,
    began: float,
    progress: Callable[[Progress], None] | None = None,
    variants: Sequence[Graph] = (),
) -> Result:
    """Find, prove and judge the fastest mapping: the answer to a question whose names are looked up.

    ``began``: when that was, on the clock of :func:`time.perf_counter`; the time limit counts from there.
    ``variants``: the same workload drawn in other ways, which are searched too.

    Raises
    ------
    PlanError, Infeasible, NoSolution, SolverFailure, ScoreMismatch
        See :mod:`dfopt.errors`.
    """
    graph, *ways = resolved.graphs
    system = resolved.system
    request = resolved.request.model_copy(update={"solver": check_solver(resolved.request.solver)})
    aware = request.heat == "aware"
    if aware:
        from dfopt.search.heat_aware import made_aware, needs_stack  # scipy: not for those who never ask

        system = needs_stack(system, None)
    if system.stack is not None:
        power_of(system.stack)  # what is wrong with a stack is told before the search
    variants, chosen = (*ways, *variants), request.assuming(resolved.assumptions)
    chip, reserve = system.chip, system.chip.reserved(graph.trains)
    rules = resolve(chosen, chip.execution, chip.compute_utilization, reserve)
    graph, *variants = (as_computed(drawn, rules) for drawn in (graph, *variants))
    setting = Setting(graph, system, rules)
    _check_variants(graph, variants)
    _check(setting, request)
    for other in variants:
        _check_names(other, request)
    end = began + request.time_limit
    options = Options(request, began + _search_s(request), progress)
    found: list[Solved] = []
    kind = JointSearch if setting.assumptions.sharding_objective == "joint" else Search
    searches: list[Search] = []
    searches += [kind(replace(setting, graph=one), options, found, searches) for one in (graph, *variants)]
    with wall_limit(options.deadline - began, began):
        if kind is JointSearch:
            begin(cast("list[JointSearch]", searches))
        kind.run_all(searches)
    refused, searches = [by.refused for by in searches if by.refused], [by for by in searches if not by.refused]
    if not searches:
        raise refused[0]
    if not found:
        plain = resolved.question.graph is not None and resolved.largest is None
        start_s = searches[0].began - began if plain else 0.0
        raise _with_time_for_first(failure_of(searches), start_s, request.time_limit)
    spaces = [
        search_space(by.setting, by.legal, by.lattices(), len(Placing(by.setting, request).menu) or 1, request)
        for by in searches
        if by.apart is None
    ]
    best, options = found[0], searches[-1].options
    stopped, kept = next((search.stopped for search in searches if search.stopped), ""), searches[0].incumbent
    limits = kept, {each.different: each.value for each in found}, stopped or LIMIT
    records = [left_open(record, *limits) for search in searches for record in search.records]
    apart = tuple(left_open(search.apart, *limits) for search in searches if search.apart is not None)
    interrupted = stopped in SIGNALS
    within, drawn, later = replace(options, deadline=end), replace(setting, graph=best.graph), Later()
    extra: tuple[Sensitivity, ...] = ()
    if request.sensitivity and not interrupted:
        with wall_limit(request.time_limit, began):
            extra = later.step("sensitivity", lambda: sensitivities(drawn, best, within), extra)
    others = tuple(one for one in (graph, *variants) if one is not best.graph)
    shown: HeatProof | None = None
    if aware:
        cool, hot = partial(made_aware, best, drawn, within, found[1:]), (best, shown)
        best, shown = later.step("heat: aware", cool, hot, DfoptError)
        found = [best] if shown is not None else found
    if shown is None and system.stack is not None:
        found = [replace(best, score=evaluate(best.mapping, best.graph, system, setting.assumptions)), *found[1:]]
    result = assemble(
        system, found, others, records, apart, setting.assumptions, options, began, interrupted, extra, together(spaces)
    )
    question = resolved.question.named() if resolved.question.graph is not None else None
    changes = {
        "proof": result.proof + ("" if shown is None else f"; {shown.note}"),
        "heat": shown,
        "missing": tuple(later.missing) or None,
    }
    return result.model_copy(update={**changes, "question": question}).sealed()


def _with_time_for_first(error: BaseException, start_s: float, limit_s: float) -> BaseException:
    """Where a limit was too short for any first mapping, how long that takes about."""
    if not isinstance(error, NoSolution) or limit_s > FIRST_AFTER * start_s:
        return error
    known = f"{error.known}; a first mapping takes about {FIRST_AFTER * start_s:.0f} s"
    return NoSolution(error.bound, error.seconds, known, error.unit)


def _search_s(request: Request) -> float:
    """Seconds of the limit that the search has; what comes behind it has the rest."""
    part = request.time_limit * (_SEARCH if request.heat == "aware" else 1.0)
    return part - min(_SENSITIVITY[0] * part, _SENSITIVITY[1]) * request.sensitivity


class Later:
    """Steps after a search: where one fails or is stopped, the mapping goes out without what it adds, and says so."""

    def __init__(self) -> None:
        self.missing: list[str] = []

    def step(self, name: str, work: Callable[[], T], otherwise: T, *refusals: type[Exception]) -> T:
        """What some work adds; of errors only refusals are for those who asked."""
        try:
            with interruptible():
                return work()
        except refusals:
            raise
        except KeyboardInterrupt:
            self.missing.append(f"{name} (stopped by {cause()})")
        except Exception as error:  # a bug in what comes after the answer must not cost it
            self.missing.append(f"{name} ({type(error).__name__}: {error})")
        return otherwise


def _check_variants(graph: Graph, variants: Sequence[Graph]) -> None:
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
            raise PlanError(f"variants: a microbatch of {other.microbatch} is there twice")
        seen.add(key)


def _check_names(graph: Graph, request: Request) -> None:
    """Refuse pins of kernels that a graph does not have."""
    known = graph.index()
    for option, names in (("pin", list(request.pin_partition)), ("shard", list(request.pin_sharding))):
        for name in names:
            if name not in known:
                close = did_you_mean(name, list(known), f"`dfopt show {graph.name}` lists them")
                way = f", computed as {graph.variant}," if graph.variant else ""
                raise PlanError(f"{option}: {graph.name}{way} has no kernel {name!r} ({close})")


def _check(setting: Setting, request: Request) -> None:
    """Refuse what no search could answer, with a remedy."""
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
    _check_names(graph, request)
    _check_offload(setting, request)
    most = p_max if p_max is not None else len(graph.kernels)
    for name, partition in pin_partition.items():
        if not 0 <= partition < most:
            raise PlanError(f"pin: kernel {name!r} in partition {partition}, expected 0 to {most - 1} (p_max {most})")
    if assumptions.execution == "kernel_by_kernel" and (pin_partition or p_max is not None):
        raise PlanError(
            "pins of partitions and p_max have no meaning kernel by kernel, where every kernel has a partition of its"
            " own; leave them out, or use a dataflow chip (--set execution=dataflow)"
        )
    _check_overlap(setting, request)
    way = assumptions.backward_gathers
    if way == "kept" or (way == "kept_calculon" and assumptions.tensor_overlap is None):
        raise PlanError(
            f"backward_gathers: found {way}, which no search weighs against the memory that it takes; expected layer,"
            " or none; a mapping can be scored with it (dfopt score)"
        )
    if assumptions.operand_traffic is not None and request.heat == "aware":
        raise PlanError(
            f"operand_traffic: found {assumptions.operand_traffic} beside heat: aware, which knows tensors only; use"
            " heat: ignore"
        )
    if request.formulation == "assignment" and request.heat == "aware":
        raise PlanError(
            "heat: found aware beside formulation: assignment, which lists no blocks to cool; use formulation: auto"
        )
    if assumptions.bubble == "stages" and request.heat == "aware":
        raise PlanError(
            "bubble: found stages beside heat: aware, which knows the slowest stage only; use bubble: one_f_one_b, or"
            " heat: ignore"
        )
    if assumptions.empty_partitions == "forbid" and assumptions.execution != "kernel_by_kernel" and p_max is None:
        raise PlanError("empty_partitions: forbid means exactly p_max partitions; give p_max (--p-max)")


def _check_offload(setting: Setting, request: Request) -> None:
    """Refuse what moves between memories beside the work of layers where no model of it is made."""
    moved = {*(request.place or ()), *(request.offload or ())}
    if setting.graph.trains and moved - {"optimizer"} and request.formulation == "assignment":
        raise PlanError(
            "formulation: found assignment beside offload or place, whose matrices know no work that other layers hide;"
            " use formulation: auto"
        )


def _check_overlap(setting: Setting, request: Request) -> None:
    """Refuse gradients behind the backward pass where no model of them is made."""
    assumptions, graph = setting.assumptions, setting.graph
    if request.parameter_overlap not in (None, "none") and assumptions.gradient_overlap != "backward":
        raise PlanError(
            f"parameter_overlap: found {request.parameter_overlap} beside gradient_overlap:"
            f" {assumptions.gradient_overlap or 'none'}, expected backward, with which copies exchange layer by layer"
        )
    if assumptions.gradient_overlap is None:
        return
    windows = by_window(assumptions, graph)
    if windows and request.tensor_overlap == "any" and assumptions.sharding_objective != "joint":
        raise PlanError(
            f"tensor_overlap: found any beside gradient_overlap: {assumptions.gradient_overlap}, where a product that"
            f" takes longer may hide more, and sharding_objective: {assumptions.sharding_objective}; expected none,"
            " ring or pipe, or sharding_objective: joint"
        )
    reasons = {
        "gradients: dfmodel spreads them over the microbatches; use gradients: exact": assumptions.gradients != "exact",
        "formulation: assignment, whose matrices add them up after the step; use formulation: auto": (
            request.formulation == "assignment"
        ),
        "heat: aware, where clocks change what is hidden; use heat: ignore": request.heat == "aware",
        "kernels that share partitions; use execution: kernel_by_kernel": (
            windows and assumptions.execution != "kernel_by_kernel"
        ),
        "layers of several kinds; use gradient_overlap: backward": windows and len(graph.layers.kinds) > 1,
        "messages to other stages that are hidden, too; use point_to_point_overlap: exposed": (
            windows and (assumptions.hides_hops_in(1) or assumptions.hides_hops_in(2))
        ),
    }
    for reason, found in reasons.items():
        if found:
            raise PlanError(f"gradient_overlap: found {assumptions.gradient_overlap} beside {reason}")


def _check_memory_rows(setting: Setting, request: Request) -> None:
    """Refuse what shares of bandwidth by the bytes of a partition leave without a proof."""
    graph, system, assumptions = setting.graph, setting.system, setting.assumptions
    found, remedy = "", ""
    if assumptions.execution == "dataflow":
        found = "a chip that fuses any kernels (execution: dataflow)"
        remedy = "assume execution: library or kernel_by_kernel"
    elif system.stack is not None:
        found, remedy = "a stack of dies, whose bandwidth follows from its DRAM", "leave the rows out"
    elif request.formulation == "assignment":
        found, remedy = "formulation: assignment, whose times are linear", "leave it to auto, or choose columns"
    elif (
        assumptions.sharding_objective == "joint"
        and not graph.folded
        and system.chips > 1
        and request.on_axes.get("pp") != 1
    ):
        found = "a graph drawn once, whose pipeline stages are chosen in a MILP with linear times"
        remedy = "fix pp: 1, or assume sharding_objective: seconds"
    if found:
        message = f"rows of unit memory are not supported beside {found}"
        raise SystemSpecError(system.name, [Issue("$.chip.efficiency", message, remedy)])
