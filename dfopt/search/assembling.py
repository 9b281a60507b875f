"""From solved plans to a result document: matrices, sensitivities, status and gap."""

from __future__ import annotations

import platform
import time
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Any

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.evaluation import drawn
from dfopt.documents.graph import Graph
from dfopt.documents.heat import HeatProof
from dfopt.documents.mapping import Mapping
from dfopt.documents.matrices import Matrices
from dfopt.documents.plan_records import DIFFERENT, Alternative, GraphRecord, Provenance, Sensitivity
from dfopt.documents.question import Question
from dfopt.documents.request import Request
from dfopt.documents.result import LOOSE, TOO_WIDE, Result, Status
from dfopt.documents.system import System
from dfopt.interrupts import SIGNALS
from dfopt.milp import highs_version
from dfopt.physics.window import by_window
from dfopt.search.kept import Kept, proven_gap
from dfopt.search.space import together
from dfopt.search.status_record import AnyRecord
from dfopt.search.unlisted import in_few_words
from dfopt.search.workload_search import WorkloadSearch
from dfopt.setting.placements import looked_at_later
from dfopt.setting.plans import not_asked_for, placed_dims
from dfopt.solving.solved import Solved

_ROUNDED = 1e-9  # relative: a gap that was asked for is reached to its last digits


def matrices(graph: Graph, mapping: Mapping) -> tuple[Matrices, ...]:
    """The assignment matrices A, B, D, L, H of every stage as sparse lists of ones (DFModel, section III.B).

    A tensor that leaves for, or comes from, another stage is cut at its end in this stage only.
    """
    place = {kernel.name: (kernel.stage, kernel.partition) for kernel in mapping.kernels}
    stages = []
    for stage in range(mapping.stages):
        names = tuple(k.name for k in mapping.kernels if k.stage == stage)
        row = {name: i for i, name in enumerate(names)}
        last = len(mapping.partitions(stage)) - 1
        tensors = tuple(t for t, x in enumerate(graph.tensors) if x.src in row or x.dst in row)
        ends = [(place[graph.tensors[t].src], place[graph.tensors[t].dst]) for t in tensors]
        cut = [(i, src, dst) for i, (src, dst) in enumerate(ends) if src != dst]
        A = sorted((row[name], place[name][1]) for name in names)
        B = [(i, src[1]) for i, (src, dst) in enumerate(ends) if src == dst]
        D = [(i, p) for i, *both in cut for s, p in both if s == stage]
        lives = [(i, p0 * (s0 == stage), p1 if s1 == stage else last) for i, (s0, p0), (s1, p1) in cut]
        L = [(i, p) for i, first, end in lives for p in range(first, end + 1)]
        H = [(i, p) for i, ((s, p), _) in enumerate(ends) if s == stage]
        pairs = dict(zip("ABDLH", map(tuple, (A, B, D, L, H)), strict=True))
        stages.append(Matrices(stage=stage, partitions=last + 1, kernels=names, tensors=tensors, **pairs))
    return tuple(stages)


_WORDS = {
    "solved": "solved",
    "pruned_by_bound": "excluded by a bound on every mapping",
    "pruned_per_level": "excluded under its sharding",
    "infeasible": "infeasible",
    "infeasible_per_level": "infeasible under its sharding",
    "limit": "left open by the gap or a limit",
    "not_reached": "not reached",
    TOO_WIDE: "open with too many down-sets to list",
    LOOSE: "open with nothing left to search",
}


def proven(value: float, records: Sequence[AnyRecord], graph_records: Sequence[GraphRecord]) -> tuple[float, float]:
    """Lower bounds on the step, s, of all mappings, and of those with the chosen sharding of each plan.

    Parameters
    ----------
    value : float, s
        Step of the best mapping.
    records, graph_records : sequences of records
        Bounds by plan, and of graphs whose plans are not listed.
    """
    of_graphs = [value, *(record.bound for record in graph_records)]
    bounds = [record.bound for record in records if record.bound is not None]
    levels = [record.level_bound for record in records if record.level_bound is not None]
    return min([*of_graphs, *bounds]), min([*of_graphs, *levels])


def status_of(gap: float, level_gap: float, asked: float, records: Sequence[AnyRecord]) -> Status:
    """Status of a result from its gaps and the records of its plans.

    Parameters
    ----------
    gap, level_gap : float
        Relative gap over all mappings, and over those with the chosen sharding.
    asked : float
        Requested gap.
    records : sequence of records
        Records of all plans.
    """
    if gap == 0.0:
        return "optimal"
    if level_gap == 0.0:
        return "optimal_per_level"
    if level_gap <= asked * (1 + _ROUNDED):  # as asked for, whatever ended the search
        return "gap_reached"
    if any(record.note in SIGNALS for record in records):
        return "interrupted_with_solution"
    return "limit_with_solution"


def conclusions(
    graphs: Sequence[Graph],
    system: System,
    assumptions: Assumptions,
    best: Solved | Result,
    records: Sequence[AnyRecord],
    graph_records: Sequence[GraphRecord],
    kept: Kept,
    heat: HeatProof | None,
) -> dict[str, Any]:
    """Fields of the result document that follow from the records: bounds, gaps, status and the proof in words.

    Parameters
    ----------
    graphs, system, assumptions
        The documents of the question.
    best : Solved or Result
        The best mapping.
    records, graph_records : sequences of records
        Bounds by plan, and of graphs whose plans are not listed.
    kept : Kept
        Values of the best mappings.
    heat : HeatProof, optional
        Proof of the heat-aware mapping.
    """
    (bound, level), request = proven(best.value, records, graph_records), kept.request
    gap, level_gap = proven_gap(best.value, bound), proven_gap(best.value, level)
    later, level_later = kept.gap(records, graph_records), kept.gap(records, graph_records, "level_bound")
    proof = proof_of(graphs, system, records, graph_records, assumptions, best.p_max, gap, request)
    next_best = f"; {DIFFERENT[request.distinct_in]}" + ", not all of them shown to be the next best" * (
        level_later > 0
    )
    return {
        "status": status_of(max(gap, later), max(level_gap, level_later), request.gap, records),
        **{"bound": bound, "gap": gap, "level_bound": level, "level_gap": level_gap},
        "proof": proof + next_best * (request.top > 1) + ("" if heat is None else f"; {heat.note}"),
        "fixed": fixed_of(graphs, system, assumptions, request),
    }


def digests_of(graphs: Sequence[Graph], system: System, assumptions: Assumptions) -> dict[str, Any]:
    """Digests of the documents that a result was computed for.

    Parameters
    ----------
    graphs
        The graph, and then its variants.
    system, assumptions
        The machine, and resolved assumptions.
    """
    graph, *variants = (each.digest() for each in graphs)
    of = {"graph_digest": graph, "system_digest": system.digest(), "assumptions_digest": assumptions.digest()}
    return {**of, "variant_digests": tuple(variants)}


def fixed_of(graphs: Sequence[Graph], system: System, assumptions: Assumptions, request: Request) -> tuple[str, ...]:
    """Restrictions of the search space, as sentences: values that the request fixes, and choices not searched.

    Parameters
    ----------
    graphs
        The graph, and then its variants.
    system, assumptions, request
        The machine, resolved assumptions, and what the request fixes.
    """
    return (*request.fixed, *drawn(graphs), *not_asked_for(graphs[0], system, assumptions, request))


def proof_of(
    graphs: Sequence[Graph],
    system: System,
    records: Sequence[AnyRecord],
    graph_records: Sequence[GraphRecord],
    assumptions: Assumptions,
    p_max: int,
    gap: float,
    request: Request,
) -> str:
    """One sentence on how the plans were treated and what the proof assumes.

    Parameters
    ----------
    graphs, system, assumptions, request
        The documents of the question.
    records, graph_records : sequences of records
        Bounds by plan, and of graphs whose plans are not listed.
    p_max : int
        Largest number of partitions that the request allows.
    gap : float
        Relative gap that is proven.
    """
    kinds = Counter(record.note if record.note in (TOO_WIDE, LOOSE) else record.status for record in records)
    listed = ", ".join(f"{kinds[kind]} {word}" for kind, word in _WORDS.items() if kinds[kind])
    for verb, state in (("excluded", "pruned_by_bound"), ("left open", "limit")):
        if graph_count := sum(record.status == state for record in graph_records):
            listed += f", and all of {graph_count} other graphs {verb} unlisted, by what all chips have to do at least"
    listed = listed.removeprefix(", and ")
    sizes = len({record.tile_count for record in records})
    what = "plan" if len(records) == 1 else "plans" if sizes <= 1 else "plans and tile counts"
    if len(graphs) > 1:
        each, ways = (len({getattr(graph, name) for graph in graphs}) for name in ("microbatch", "variant"))
        counts = [f"{each} microbatch sizes"] * (each > 1) + [f"{ways} ways to compute"] * (ways > 1)
        what += f" with {' and '.join(counts)}"
    many = f"{'exactly' if assumptions.empty_partitions == 'forbid' else 'at most'} {p_max} partitions"
    if p_max >= max(len(graph.kernels) for graph in graphs):
        many = "any number of partitions"
    if gap == 0.0:
        proof = "no plan, sharding and fusion together is better"
    elif assumptions.sharding_objective == "joint":
        kept = sum(any(solve.problem == "interchip" for solve in record.solves) for record in records)
        why = f"; under {kept} the sharding came first: with the pipeline stages of many kernels a MILP is too large"
        proof = f"sharding and fusion are found together{why if kept else ''}"
    else:
        proof = "per plan the sharding is optimal for the inter-chip problem and the fusion for that sharding"
    alike = "all layers alike"
    if graphs[0].layers.counted > 1:
        alike = "layers of a kind alike, in one layout between all of them"
    if any(record.plan.recomputed for record in records):
        alike += ", as many of every stage recomputed, its first ones"
    if any(record.plan.modules is not None for record in records):
        alike += ", modules with one scheme each over the second axis"
    apart_count = sum(record.plan.tensor_overlap is not None for record in records)
    rings = "products hide collectives in rings, which is never slower than in pipes or not at all"
    if by_window(assumptions, graphs[0]):
        rings = "plans excluded in rings with every way to hide collectives, as less is counted of none"
        rings += f" but {apart_count} that were told apart" if apart_count else ""
    dominating = {
        rings: request.tensor_overlap,
        "gradients are added up behind the backward pass, which is never slower than after it": (
            request.gradient_overlap if assumptions.gradient_overlap == "backward" else None
        ),
        "weights are brought together behind the first forward pass, which is never slower than after the step": (
            request.parameter_overlap
        ),
        "stages of several chunks work while they send, which is never slower than waiting for it": (
            request.point_to_point_overlap
        ),
    }
    alike += "".join(f", {lemma}" for lemma, choice in dominating.items() if choice == "any")
    if request.offload is not None and looked_at_later(graphs[0], assumptions):
        alike += ", plans excluded as they are with every placement"
    placed = placed_dims(system, assumptions)
    others = f"a shared dim but {', '.join(placed)}" if placed else "a shared dim"
    if not placed or any(dim.size > 1 and dim.name not in placed for dim in system.network):
        alike += f", and in {others} tensor before pipeline before data parallelism"
    fixed = ", ".join((*fixed_of(graphs, system, assumptions, request), alike))
    return f"of {len(records)} {what}: {listed}; {proof} ({many}; fixed: {fixed})"


def assemble(
    workload: WorkloadSearch,
    solved: Sequence[Solved],
    sensitivity: tuple[Sensitivity, ...],
    heat: HeatProof | None,
    missing: tuple[str, ...],
    question: Question | None,
    began: float,
) -> Result:
    """The result document of a finished search: best mapping, records of all plans, status and gaps.

    Parameters
    ----------
    workload : WorkloadSearch
        The finished search.
    solved : sequence of Solved
        The best mappings, in ascending order of their step.
    sensitivity : tuple of Sensitivity
        Effects of more of each resource.
    heat : HeatProof, optional
        Proof of the heat-aware mapping.
    missing : tuple of str
        Sentences on steps that failed or were stopped.
    question : Question, optional
        The question as it was asked.
    began : float, s
        Reading of :func:`time.perf_counter` at the start.
    """
    from dfopt import __version__

    best, state, searches = solved[0], workload.state, workload.usable
    graph, value, asked = best.graph, best.value, state.request
    system, assumptions = workload.graphs[0].setting.system, workload.graphs[0].setting.assumptions
    variants = tuple(each.setting.graph for each in workload.graphs if each.setting.graph is not graph)
    records = list(chain.from_iterable(each.records for each in searches))
    graph_records = tuple(
        sorted((each.apart for each in searches if each.apart is not None), key=lambda each: each.order)
    )
    of = (graph, *variants), system, assumptions
    concluded = conclusions(*of, best, records, graph_records, state.kept, heat)
    if state.stopped in SIGNALS and concluded["status"] == "limit_with_solution":
        concluded["status"] = "interrupted_with_solution"
    others = [
        Alternative(
            microbatch=alternative.graph.microbatch,
            variant=alternative.graph.variant,
            value=alternative.value,
            mapping=alternative.mapping,
        )
        for alternative in solved[1:]
    ]
    plans, unlisted = in_few_words(searches)
    seconds = time.perf_counter() - began
    return Result(
        **concluded, value=value, utilization=best.score.utilization, plan=best.plan, mapping=best.mapping,
        score=best.score, p_max=best.p_max, heat=heat, missing=missing or None,
        seconds=seconds, trace=(*workload.trace, (seconds, value, concluded["bound"])),
        alternatives=tuple(sorted(others, key=lambda other: other.order)) or None, plans=plans, unlisted=unlisted,
        apart=graph_records or None, space=together([each.size(asked) for each in searches if each.apart is None]),
        matrices=matrices(graph, best.mapping), sensitivity=sensitivity, assumptions=assumptions, request=asked,
        question=question, graph=graph, variants=variants, system=system,
        provenance=Provenance(
            dfopt=__version__, highs=highs_version(), solver=asked.solver, python=platform.python_version(),
            **digests_of(*of), seed=asked.seed,
        ),
    ).sealed()  # fmt: skip
