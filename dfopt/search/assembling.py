"""From solved plans to a result document: matrices, sensitivities, status and gap."""

from __future__ import annotations

import platform
import time

from dfopt.documents.graph import Graph
from dfopt.documents.mapping import Mapping
from dfopt.documents.result import Alternative, Matrices, PlanRecord, Provenance, Result, Sensitivity, Space, Status
from dfopt.documents.system import System
from dfopt.milp import solver_version
from dfopt.search.options import Options
from dfopt.search.solved import Solved

_PROVEN = 1e-6  # relative: what MILP solvers call equal, and what judge and problems may differ by


def proven_gap(time_s: float, bound_s: float) -> float:
    """Relative distance of a time to its bound; 0 where nothing is left to prove."""
    gap = max(0.0, (time_s - bound_s) / time_s)
    return gap if gap > _PROVEN else 0.0


def matrices(graph: Graph, mapping: Mapping) -> tuple[Matrices, ...]:
    """The paper's A, B, D, L, H of every stage as sparse lists of ones (section III.B).

    A tensor that leaves for, or comes from, another stage is cut at its end in this stage only.
    """
    place = {kernel.name: (kernel.stage, kernel.partition) for kernel in mapping.kernels}
    found = []
    for stage in range(mapping.stages):
        names = tuple(k.name for k in mapping.kernels if k.stage == stage)
        row = {name: i for i, name in enumerate(names)}
        count = len(mapping.partitions(stage))
        tensors = tuple(t for t, x in enumerate(graph.tensors) if x.src in row or x.dst in row)
        B, D, L, H = [], [], [], []
        for i, t in enumerate(tensors):
            tensor = graph.tensors[t]
            (s0, p0), (s1, p1) = place[tensor.src], place[tensor.dst]
            if s0 == stage:
                H.append((i, p0))
            if (s0, p0) == (s1, p1):
                B.append((i, p0))
                continue
            D += [(i, p) for s, p in ((s0, p0), (s1, p1)) if s == stage]
            first, last = (p0 if s0 == stage else 0), (p1 if s1 == stage else count - 1)
            L += [(i, p) for p in range(first, last + 1)]
        A = sorted((row[name], place[name][1]) for name in names)
        found.append(
            Matrices(
                stage=stage,
                partitions=count,
                kernels=names,
                tensors=tensors,
                A=tuple(A),
                B=tuple(B),
                D=tuple(D),
                L=tuple(L),
                H=tuple(H),
            )
        )
    return tuple(found)


def _alternative(one: Solved) -> Alternative:
    return Alternative(microbatch=one.graph.microbatch, step_time_s=one.score.step_time_s, mapping=one.mapping)


def assemble(
    system: System,
    kept: list[Solved],
    variants: tuple[Graph, ...],
    records: list[PlanRecord],
    options: Options,
    began: float,
    interrupted: bool,
    sensitivity: tuple[Sensitivity, ...],
    space: Space,
) -> Result:
    """The result document: the best plan, every plan's record, status and gap over all of them, sealed."""
    from dfopt import __version__

    best = kept[0]
    graph, found = best.graph, matrices(best.graph, best.mapping)
    time_s = best.score.step_time_s
    bound = min([time_s, *(record.bound_s for record in records if record.bound_s is not None)])
    gap = proven_gap(time_s, bound)
    open_plans = [record for record in records if record.status in ("limit", "not_reached")]
    status: Status = "optimal"
    if gap > 0.0:
        status = "interrupted_with_solution" if interrupted else "limit_with_solution" if open_plans else "gap_reached"
        if gap <= options.gap:  # as asked for, whatever ended the search
            status = "gap_reached"
    words = {
        "solved": "solved",
        "pruned_by_bound": "excluded by a bound",
        "infeasible": "infeasible",
        "limit": "stopped by the limit",
        "not_reached": "not reached",
    }
    counts = [(sum(r.status == kind for r in records), word) for kind, word in words.items()]
    listed = ", ".join(f"{count} {word}" for count, word in counts if count)
    sizes = len({record.tile_count for record in records})
    what = "plan" if len(records) == 1 else "plans" if sizes == 1 else "plans and tile counts"
    if variants:
        what += f" with {1 + len(variants)} microbatch sizes"
    many = f"{'exactly' if options.assumptions.empty_partitions == 'forbid' else 'at most'} {best.p_max} partitions"
    if best.p_max >= max(len(one.kernels) for one in found):
        many = "any number of partitions"
    proof = (
        f"of {len(records)} {what}: {listed}; per plan the sharding is optimal for the inter-chip problem"
        f" and the fusion for that sharding ({many})"
    )
    result = Result(
        status=status,
        gap=gap,
        step_time_s=time_s,
        utilization=best.score.utilization,
        plan=best.plan,
        bound_s=bound,
        seconds=time.perf_counter() - began,
        proof=proof,
        mapping=best.mapping,
        score=best.score,
        alternatives=tuple(_alternative(one) for one in kept[1:]) or None,
        plans=tuple(records),
        space=space,
        matrices=found,
        sensitivity=sensitivity,
        assumptions=options.assumptions,
        p_max=best.p_max,
        request=options.request,
        graph=graph,
        variants=variants,
        system=system,
        provenance=Provenance(
            dfopt=__version__,
            highs=solver_version(),
            solver=options.solver,
            python=platform.python_version(),
            graph_digest=graph.digest(),
            system_digest=system.digest(),
            assumptions_digest=options.assumptions.digest(),
            seed=options.seed,
        ),
    )
    return result.model_copy(update={"seal": result.unsealed_digest()})
