"""Gradients that copies of the batch add up while the backward pass still computes.

The gradients of a layer are whole when the last microbatch's backward pass through that layer is done. Copies then add
them up, one layer after another, while the layers before it still compute: so do PyTorch's DistributedDataParallel (Li
et al., VLDB 2020, section 3.2.3; its buckets are layers here) and Megatron-LM (``--overlap-grad-reduce``). Only what
outlasts the backward pass is a part of the step. Chips compute as fast meanwhile: no slow-down is modelled.

**Closed form.** Layer ``i`` of a pipeline stage, counted in the order of the backward pass, computes for ``b_i``
seconds and is added up in ``r_i``. All is added up ``max_j (b_1 + ... + b_j + r_j + ... + r_n)`` seconds after the pass
began: that is what ``finish_i = max(finish_(i-1), b_1 + ... + b_i) + r_i`` comes to.

**The step.** A pipeline is charged ``n`` times its slowest stage, which takes ``T`` seconds for a microbatch, its fill
included (:mod:`dfopt.physics.pipeline`). A stage of ``T_s`` seconds waits ``T - T_s`` of each of these times, and of
the last one too, so what it exchanges may outlast its own work by as much before the step gets longer: what is charged
to fill the pipeline is that much more than the last microbatch takes on its way through this stage. With ``e_s``
seconds in which stage ``s`` still adds up gradients when its work is done, ``o`` times in a step (once; after each
microbatch in ZeRO-2 and 3, which have one stage), and ``w_s`` in which it brings weights together, which nothing hides,
a step takes ``n T + max(0, max_s (w_s + o (T_s + e_s) - o T))`` beside what else is charged once. Where a stage waits
for messages that overlap with its work, the layer whose turn is last is added up after ``T_s`` all the same.

**Weights.** What copies share out is brought together after the optimizer's step; with ``parameter_overlap: forward``
layer by layer while the first forward pass of the next step computes, as Megatron-LM does with
``--overlap-param-gather``. It is the same closed form: layer ``i`` is there ``g_1 + ... + g_i`` seconds after the step,
and computes for ``f_i`` then. A first pass that takes ``a`` seconds longer for it adds ``a`` to ``e_s``, and its first
layer is waited for in any case. Only where gradients are added up once in a step.

**Monotone.** That is ``(n - o) T + max(o T, max_s (w_s + o (T_s + e_s)))`` with ``n >= o``, and by the closed form
``T_s + e_s`` is a maximum of sums of times of partitions, messages and exchanges. So it is non-decreasing in each: the
same function of lower bounds is a lower bound, and what is faster in every figure is never slower as a whole. Where
only ``T_s`` is known, ``T_s + e_s`` is at least ``T_s`` and the exchange of the layer whose turn is last, and at least
what the closed form gives for the least of each part.

Interleaved, the chunks of a stage are taken to follow one another at once; in truth microbatches of others pass between
them, and more is hidden.
"""

from __future__ import annotations

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph
from dfopt.documents.plan import Plan
from dfopt.physics.copies import reductions


def hides(assumptions: Assumptions, graph: Graph) -> bool:
    """Whether passes may hide exchanges of replicas: only in a folded graph, since an unrolled stage waits for all."""
    return assumptions.gradient_overlap == "backward" and graph.folded and graph.trains


def hides_weights(assumptions: Assumptions, graph: Graph, plan: Plan) -> bool:
    """Whether the first forward pass of a step hides the all-gather of weights.

    Parameters
    ----------
    assumptions, graph, plan
        Resolved assumptions, the workload, and the plan whose replicas share weights.

    Examples
    --------
    >>> from dfopt.documents.graph import Kernel
    >>> update = Kernel(name="a", op="weight_update", m=2, k=4, n=8, pass_="update")
    >>> graph = Graph(name="g", repeat=4, kernels=(update,))
    >>> behind = Assumptions(gradient_overlap="backward", parameter_overlap="forward")
    >>> [hides_weights(behind, graph, Plan(dp=4, microbatches=8, zero=level)) for level in (None, 1, 2)]
    [False, True, False]
    """
    some = assumptions.parameter_overlap is not None and hides(assumptions, graph)
    return some and plan.zero in (1, 2) and reductions(plan) == 1
