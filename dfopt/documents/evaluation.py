"""What one evaluation of a graph works on: sequences, cached tokens, and the phase that follows from them."""

from __future__ import annotations

from collections.abc import Sequence

from dfopt.divisors import divisors
from dfopt.documents.graph import Graph
from dfopt.documents.passes import way_of


def segments_of(graph: Graph) -> dict[tuple[int, int], int]:
    """Cached tokens of a sequence, at most over layers, by (sequences, new tokens of each) of an evaluation."""
    cached: dict[tuple[int, int], int] = {}
    for state in (state for kernel in graph.kernels for state in kernel.states or () if state.writes):
        key = state.sequences, state.writes
        cached[key] = max(cached.get(key, 0), state.tokens - state.writes)
    return cached


def phase_of(graph: Graph) -> str:
    """Phase of a graph: training, prefill, decode, verify, mixed or forward.

    Examples
    --------
    >>> from dfopt.documents.graph import Kernel
    >>> phase_of(Graph(name="g", kernels=(Kernel(name="a", op="gemm", m=4, k=8, n=8),)))
    'forward'
    """
    segments, tokens = segments_of(graph), graph.evaluation_tokens
    if graph.trains:
        return "training"
    if tokens.produced is None:
        return "forward"
    if len(segments) > 1:
        return "mixed"
    ((sequences, new), cached), *_ = segments.items() or [((graph.microbatch, tokens.processed // graph.microbatch), 0)]
    if new == 1:
        return "decode"
    once = [kernel for kernel in graph.kernels if graph.kind_of(kernel) >= graph.layers.counted]
    columns = min((kernel.n for kernel in once if kernel.op == "gemm"), default=sequences)
    wants_all = bool(cached) and columns >= sequences * new  # a draft is checked token by token
    return "verify" if wants_all else "prefill"


def sequences_of(graph: Graph) -> int:
    """Number of sequences of a step: samples, or sequences with a KV cache."""
    served = sum(count for count, _ in segments_of(graph))
    return graph.batch // graph.microbatch * served if served else graph.batch


def asked(graph: Graph) -> dict[str, str | int]:
    """Columns of a data frame that describe the question of a graph, and its microbatch."""
    return {"phase": phase_of(graph), "batch": graph.batch, "microbatch": graph.microbatch}


def drawn(graphs: Sequence[Graph]) -> tuple[str, ...]:
    """Choices that graphs fix by how they are drawn, as sentences.

    Microbatches are free only if every divisor of the batch is drawn. Recomputation in training never is: beside the
    drawn ways there are others, of single kernels and of some layers.

    Examples
    --------
    >>> from dfopt.workloads.executions import load_executions
    >>> drawn(load_executions("gpt2-small", [1, 2], ["none", "full"], mode="training", batch=4))
    ('microbatch 1/2', 'recompute: full or none')
    >>> drawn(load_executions("gpt2-small", "all", batch=4))
    ()
    """
    first, sizes = graphs[0], sorted({graph.microbatch for graph in graphs})
    words = []
    if len(sizes) < len(divisors(first.batch)):
        words.append(f"microbatch {'/'.join(map(str, sizes))}")
    if first.trains:
        words.append(f"recompute: {' or '.join(sorted({way_of(graph.variant) for graph in graphs}))}")
    return tuple(words)
