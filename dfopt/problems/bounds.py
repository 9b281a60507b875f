"""A lower bound on the step time of a plan that holds for every mapping under it."""

from __future__ import annotations

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel
from dfopt.documents.mapping import Sharding
from dfopt.documents.plan import Plan
from dfopt.documents.system import System
from dfopt.physics import ops
from dfopt.physics.pipeline import step_time
from dfopt.problems.tables import compute_seconds


def plan_bound(graph: Graph, system: System, plan: Plan, assumptions: Assumptions) -> float:
    """Seconds that no mapping under a plan beats.

    Compute of every kernel as short as under any of its legal schemes, when it has the whole chip,
    and the DRAM traffic that no mapping avoids (weights, gradients, KV caches), combined as the overlap
    assumption has it. Communication and cut tensors count as nothing.

    Parameters
    ----------
    graph, system, plan : Graph, System, Plan
        What runs where.
    assumptions : Assumptions
        Resolved: no ``auto`` left.

    Returns
    -------
    float
        Seconds per step.
    """
    rules, word = assumptions.sharding_rules, graph.word_bytes
    compute = traffic = 0.0
    for kernel in graph.kernels:
        schemes = ops.legal_schemes(kernel, plan.tp, rules)
        if assumptions.compute_model == "cycle":
            compute += min(_least_cycles_s(kernel, z, plan.tp, system, rules) for z in schemes)
        else:
            compute += float(compute_seconds([kernel] * len(schemes), schemes, plan.tp, system, assumptions).min())
        traffic += kernel.dram_bytes_per_chip
        if assumptions.weights_from_dram:
            traffic += (
                ops.weight_elements(kernel) * word * min(ops.weight_share(kernel, z, plan.tp, rules) for z in schemes)
            )
        if assumptions.gradients == "exact":
            least = min(ops.output_share(kernel, z, plan.tp, rules) for z in schemes)
            traffic += 2.0 * ops.gradient_elements(kernel) * word * least
    memory = traffic / system.chip.dram.bandwidth
    layer = compute + memory if assumptions.overlap == "none" else max(compute, memory)
    stages = plan.pp if graph.repeat == 1 else 1  # drawn once: the kernels are spread over the stages
    return step_time(plan, assumptions, plan.layers_per_stage * layer / stages).total


def _least_cycles_s(kernel: Kernel, scheme: Sharding, degree: int, system: System, rules: ops.Rules) -> float:
    """Time of a kernel's largest shard under the cycle model, when it wastes no unit of any tile."""
    chip = system.chip
    assert chip.lanes and chip.stages and chip.frequency  # optimize() refuses the cycle model without them
    rows, columns, depth = ops.shard_extents(kernel, scheme, degree, rules)
    # an elementwise kernel uses the lanes only, one element each per cycle
    cycles = (
        rows * columns / chip.lanes
        if kernel.op == "elementwise"
        else rows * columns * depth / (chip.lanes * chip.stages)
    )
    return cycles / (chip.tiles * chip.frequency)
