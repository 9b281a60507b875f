"""From solved plans to a result document: matrices, sensitivities, status and gap."""

from __future__ import annotations

import platform
import time
from dataclasses import replace

import numpy as np

from dfopt.documents.graph import Graph
from dfopt.documents.mapping import Mapping
from dfopt.documents.result import Matrices, PlanRecord, Provenance, Result, Sensitivity, Status
from dfopt.documents.system import System
from dfopt.errors import Infeasible, NoSolution
from dfopt.milp import solver_version
from dfopt.optimizer.one_plan import Options, Solved, finish, prepare


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


def sensitivities(graph: Graph, system: System, best: Solved, options: Options) -> tuple[Sensitivity, ...]:
    """The winning plan with 10 % more of one resource; sharding chosen anew too."""
    found = []
    for resource in ("compute", "dram_bandwidth", "link_bandwidth", "sram"):
        changed = more_of(system, resource, 1.1)
        budget = replace(
            options,
            p_max=best.p_max if options.assumptions.execution == "dataflow" else None,
            deadline=time.perf_counter() + 2.0,
            pin_sharding={k.name: k.sharding for k in best.mapping.kernels} if best.plan.tp > 1 else {},
            progress=None,
        )
        try:
            outcome = finish(prepare(graph, changed, best.plan, budget), budget, np.inf)
        except (Infeasible, NoSolution):
            continue
        assert isinstance(outcome, Solved)
        time_s = outcome.score.step_time_s
        found.append(
            Sensitivity(
                resource=resource,
                step_time_s=time_s,
                speedup=best.score.step_time_s / time_s,
                proven=not outcome.limited,
            )
        )
    return tuple(found)


def more_of(system: System, resource: str, factor: float) -> System:
    """A system with one resource scaled: ``compute``, ``dram_bandwidth``, ``link_bandwidth`` or ``sram``."""
    chip = system.chip
    if resource == "compute":
        chip = chip.model_copy(
            update={"peak": chip.peak_flops * factor, "frequency": (chip.frequency or 0) * factor or None}
        )
    elif resource == "dram_bandwidth":
        chip = chip.model_copy(
            update={"dram": chip.dram.model_copy(update={"bandwidth": chip.dram.bandwidth * factor})}
        )
    elif resource == "sram":
        chip = chip.model_copy(update={"sram": chip.sram.model_copy(update={"capacity": chip.sram.capacity * factor})})
    elif resource == "link_bandwidth":
        network = tuple(d.model_copy(update={"link_bandwidth": d.link_bandwidth * factor}) for d in system.network)
        return system.model_copy(update={"network": network})
    else:
        raise ValueError(f"unknown resource {resource!r}")
    return system.model_copy(update={"chip": chip})


def assemble(
    graph: Graph,
    system: System,
    best: Solved,
    records: list[PlanRecord],
    options: Options,
    began: float,
    interrupted: bool,
    sensitivity: tuple[Sensitivity, ...],
) -> Result:
    from dfopt import __version__

    time_s = best.score.step_time_s
    bound = min([time_s, *(record.bound_s for record in records if record.bound_s is not None)])
    gap = max(0.0, (time_s - bound) / time_s)
    if gap <= 1e-9:  # below the judge's rounding: nothing left to prove
        gap = 0.0
    open_plans = [record for record in records if record.status in ("limit", "not_reached")]
    status: Status = "optimal"
    if gap > 0.0:
        status = "interrupted_with_solution" if interrupted else "limit_with_solution" if open_plans else "gap_reached"
    count = {kind: sum(r.status == kind for r in records) for kind in ("solved", "pruned_by_bound", "infeasible")}
    many = f"{'exactly' if options.assumptions.empty_partitions == 'forbid' else 'at most'} {best.p_max} partitions"
    if best.p_max >= len(graph.kernels):
        many = "any number of partitions"
    proof = (
        f"{count['solved']} plans solved, {count['pruned_by_bound']} pruned by bound, {count['infeasible']} infeasible;"
        " per plan the sharding is optimal for the inter-chip problem and the fusion optimal for that sharding"
        f" ({many})"
    )
    return Result(
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
        plans=tuple(records),
        matrices=matrices(graph, best.mapping),
        sensitivity=sensitivity,
        assumptions=options.assumptions,
        p_max=best.p_max,
        provenance=Provenance(
            dfopt=__version__,
            highs=solver_version(),
            python=platform.python_version(),
            graph_digest=graph.digest(),
            system_digest=system.digest(),
            assumptions_digest=options.assumptions.digest(),
            seed=options.seed,
        ),
    )
