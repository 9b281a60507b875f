"""The least DRAM that works: a MILP for every plan, written from the definitions alone, against the joint search.

Kernels run one by one, so what waits between partitions is settled by their order; what a chip holds is then linear in
the schemes. The MILP knows nothing of bounds, stages or tables of dfopt: it takes the legal schemes, the share of an
axis that a chip holds, and the order in which the kernels run.
"""

from __future__ import annotations

from collections.abc import Iterator

import pulp

import dfopt as df
from claims.rows import ALONE, Asked, Case, Row, warm
from dfopt.documents.assumptions import Assumptions
from dfopt.machines.compose import compose
from dfopt.physics import ops
from dfopt.setting.plans import asked_plans

NEAR = 1e-6  # of the least capacity: so much more works, so much less does not
SAME = 1e-9
MODEL, MACHINE = "llama-3.1-70b", "h100-256"
TRAINED = {"mode": "training", "ends": False}
Degrees = tuple[int, int, int, int]


def least_bytes(graph: df.Graph, rules: Assumptions, plan: df.Plan, order: list[str]) -> float:
    """Fewest bytes that a chip of the first pipeline stage, the fullest, holds under a plan; one kernel after another.

    Weights, gradients and optimizer state of its layers, what the forward pass saves for every microbatch that waits
    for its backward pass, and the most that waits between two kernels of a layer.
    """
    problem = pulp.LpProblem("least", pulp.LpMinimize)
    place = {name: number for number, name in enumerate(order)}
    kernels, take = {kernel.name: kernel for kernel in graph.kernels}, {}
    for kernel in graph.kernels:
        schemes = ops.legal_schemes(kernel, plan.tp, rules)
        take[kernel.name] = {z: pulp.LpVariable(f"s_{place[kernel.name]}_{i}", cat="Binary")
                             for i, z in enumerate(schemes)}  # fmt: skip
        problem += pulp.lpSum(take[kernel.name].values()) == 1
    for kernel in graph.kernels:  # partial sums are added up where the other ones are
        into = kernel.accumulates_into
        if into is not None and ops.leaves_partial_sums(kernel, "k", plan.tp, rules.sharding_rules):
            split = [one for z, one in take[kernel.name].items() if z in ("outer", "k")]
            problem += pulp.lpSum(split) <= pulp.lpSum(one for z, one in take[into].items() if z in ("k", "k>n"))

    layers = -(-graph.repeat // plan.pp)
    parameter_bytes = rules.optimizer_bytes_per_parameter + 2 * graph.word_bytes
    depth = plan.pp + (plan.pp - 1) / plan.interleave if plan.interleave > 1 else plan.pp
    waiting = min(depth, graph.batch // (graph.microbatch * plan.dp))
    held = [
        layers * parameter_bytes * ops.weight_elements(kernel) * ops.weight_share(kernel, z, plan.tp, "exact") * one
        for kernel in graph.kernels
        if kernel.pass_ == "forward" and kernel.op == "gemm"
        for z, one in take[kernel.name].items()
    ]
    between: list[list[pulp.LpAffineExpression]] = [[] for _ in order]
    taken: dict[tuple[str, float, str | None], list[str]] = {}  # all readers of a part share what is stored of it
    for tensor in graph.tensors:
        taken.setdefault(graph.taken(tensor), []).append(tensor.dst)
    for (src, size, _), readers in taken.items():
        source = kernels[src]
        stored = pulp.lpSum(
            size * ops.output_share(source, z, plan.tp, "exact") * one for z, one in take[src].items()
        )  # fmt: skip
        saved = source.pass_ == "forward" and any(kernels[name].pass_ != "forward" for name in readers)
        if saved:
            held.append(layers * waiting * stored)
        else:
            for step in range(place[src], max(place[name] for name in readers) + 1):
                between[step].append(stored)
    peak = pulp.LpVariable("peak", 0)
    for parts in between:
        problem += peak >= pulp.lpSum(parts)
    problem += pulp.lpSum(held) + peak
    problem.solve(pulp.PULP_CBC_CMD(msg=False, gapRel=0.0))
    if pulp.LpStatus[problem.status] != "Optimal":
        raise RuntimeError(f"{plan.label}: the MILP ended {pulp.LpStatus[problem.status]}")
    return float(pulp.value(problem.objective))


def over_plans(result: df.Result) -> tuple[float, df.Plan, int]:
    """The least over the plans of an answer, which plan that is, and how many MILPs were solved."""
    order = [one.name for one in sorted(result.mapping.kernels, key=lambda one: one.partition)]
    found: dict[Degrees, tuple[float, df.Plan]] = {}
    legal, rejected = asked_plans(result.graph, result.system, result.request, result.assumptions)
    for plan in (*legal, *(each.plan for each in rejected)):  # not all have a record in the answer
        degrees = plan.tp, plan.pp, plan.dp, plan.interleave
        if degrees not in found:  # what a chip holds does not depend on the dims
            found[degrees] = least_bytes(result.graph, result.assumptions, plan, order), plan
    least, plan = min(found.values(), key=lambda one: one[0])
    return least, plan, len(found)


def with_bytes(capacity: float | None) -> df.System:
    """The machine with chips of so much DRAM."""
    size = None if capacity is None else f"{capacity / 1e9!r} GB"
    return df.with_fields(df.load_system(MACHINE), {"chip.dram.capacity": size})


def infeasible(asked: Asked) -> Iterator[Row]:
    """The least DRAM that works against a MILP for every plan, and what a model that fits nowhere lacks."""
    warm()
    for rules in (ALONE, {"execution": "kernel_by_kernel"}):
        free = Case(MODEL, with_bytes(None), TRAINED, rules)
        result, _ = free.solved(asked.seconds)
        least, plan, count = over_plans(result)
        said = f"{MODEL} training, {MACHINE}, {', '.join(f'{key}={value}' for key, value in rules.items())}"
        seen, met = [f"{count} MILPs: {least / 1e9:.6f} GB ({plan.label})"], True
        for share, fits in ((1 - NEAR, False), (1 + NEAR, True)):
            case = Case(MODEL, with_bytes(least * share), TRAINED, rules)
            try:
                answer, seconds = case.solved(asked.seconds)
                most = max(stage.dram_bytes for stage in answer.score.stages)
                seen.append(f"{share:.6f} of it: solved ({most / 1e9:.6f} GB, {seconds:.1f} s)")
                met &= fits and most >= least * (1 - SAME)
            except df.Infeasible:
                seen.append(f"{share:.6f} of it: infeasible")
                met &= not fits
            except df.NoSolution:
                seen.append(f"{share:.6f} of it: nothing found in {asked.seconds:g} s")
                met = False
        yield Row("least capacity that works", said, "; ".join(seen), "that of the MILPs, to 1e-6", met)
    yield largest(asked)


def largest(asked: Asked) -> Row:
    """Llama 3.1 405B as it was trained, on chips too small for it: degrees of arXiv 2407.21783, table 4."""
    network = {"topology": "dgx_2", "sizes": [8, 2048], "links": ["nvlink-4-450", "infiniband-ndr"]}
    sizes = TRAINED | {"batch": 2048, "causal": True, "recompute": "attention"}
    degrees = {"tp": 8, "pp": 16, "dp": 128}
    case = Case("llama-3.1-405b", compose(chip="h100-sxm", network=network), sizes, {}, degrees)
    try:
        case.solved(asked.seconds)
        said = "solved"
    except df.Infeasible as error:
        said = str(error)
    named = [word for word in ("sharded states", "recomputation") if word in said]
    seen = f"infeasible, names {' and '.join(named) or 'neither'}" if said != "solved" else said
    limit = "infeasible, names sharded states and recomputation"
    return Row("what is missing", "llama-3.1-405b, 16,384 H100, TP8 PP16 DP128", seen, limit, len(named) == 2)
