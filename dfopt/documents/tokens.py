"""Tokens of one evaluation: those that are processed, and those that sequences gain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import Field

from dfopt.documents.base import Part, problem
from dfopt.errors import shown

if TYPE_CHECKING:
    from dfopt.documents.graph import Graph

__all__ = ["Tokens", "asked", "of_evaluation", "phase_of", "segments_of", "sequences_of", "tokens_of"]


class Tokens(Part):
    """Tokens of one evaluation of a graph.

    Attributes
    ----------
    processed : tokens, e.g. 2048
        Tokens that one evaluation of the graph processes.
    produced : tokens, e.g. 16
        Tokens that all sequences of one evaluation gain at least, in serving. Speculative decoding counts one per
        sequence, whatever the model accepts. None: the graph does not serve.

    Examples
    --------
    A prompt of 512 tokens beside 16 decode steps:

    >>> Tokens(processed=528, produced=17)
    Tokens(processed=528, produced=17)
    """

    processed: int = Field(ge=1, le=10**15)
    produced: int | None = Field(default=None, ge=0, le=10**15)


def tokens_of(graph: Graph) -> Tokens:
    """Tokens of one evaluation of a graph; a graph that says nothing of them has one of every sample.

    Examples
    --------
    >>> from dfopt.documents.graph import Graph, Kernel
    >>> tokens_of(Graph(name="g", microbatch=8, kernels=(Kernel(name="a", op="gemm", m=4, k=8, n=8),))).processed
    8
    """
    return graph.tokens or Tokens(processed=graph.microbatch)


def segments_of(graph: Graph) -> dict[tuple[int, int], int]:
    """Cached tokens of a sequence, the most of any layer, by (sequences, new tokens of each) of an evaluation."""
    cached: dict[tuple[int, int], int] = {}
    for state in (state for kernel in graph.kernels for state in kernel.states or () if state.writes):
        key = state.sequences, state.writes
        cached[key] = max(cached.get(key, 0), state.tokens - state.writes)
    return cached


def phase_of(graph: Graph) -> str:
    """Training, prefill, decode, verify, mixed or forward, by what a graph computes and keeps.

    Examples
    --------
    >>> from dfopt.documents.graph import Graph, Kernel
    >>> phase_of(Graph(name="g", kernels=(Kernel(name="a", op="gemm", m=4, k=8, n=8),)))
    'forward'
    """
    segments, tokens = segments_of(graph), tokens_of(graph)
    if graph.trains:
        return "training"
    if tokens.produced is None:
        return "forward"
    if len(segments) > 1:
        return "mixed"
    ((sequences, new), cached), *_ = segments.items() or [((graph.microbatch, tokens.processed // graph.microbatch), 0)]
    if new == 1:
        return "decode"
    once = [one.n for one in graph.kernels if one.op == "gemm" and graph.kind_of(one) >= graph.layers.counted]
    wants_all = bool(cached) and min(once, default=sequences) >= sequences * new  # a draft is checked token by token
    return "verify" if wants_all else "prefill"


def sequences_of(graph: Graph) -> int:
    """Sequences of a step: samples, or those whose keys and values are kept."""
    served = sum(count for count, _ in segments_of(graph))
    return graph.batch // graph.microbatch * served if served else graph.batch


def asked(graph: Graph) -> dict[str, str | int]:
    """The columns of a frame that say what was asked of a graph, and the microbatch that it is drawn with."""
    return {"phase": phase_of(graph), "batch": graph.batch, "microbatch": graph.microbatch}


def drawn(graphs: Sequence[Graph]) -> tuple[str, ...]:
    """What graphs fix by the way they are drawn, where another way could be chosen."""
    sizes, ways = {graph.microbatch for graph in graphs}, {graph.variant for graph in graphs}
    words = [f"microbatch {size}" for size in sizes if len(sizes) == 1 and graphs[0].batch > 1]
    if graphs[0].trains and len(ways) == 1:
        words.append(graphs[0].variant or "recompute: none")
    return tuple(words)


def of_evaluation(data: Any) -> Any:
    """Data of a graph with tokens of an evaluation instead of those of a sample, ``tokens_per_sample``, as before."""
    if not isinstance(data, Mapping) or "tokens_per_sample" not in data:
        return data
    each, samples = data["tokens_per_sample"], data.get("microbatch", 1)
    kept = {key: value for key, value in data.items() if key != "tokens_per_sample"}
    each, samples = (int(one) if isinstance(one, float) and one.is_integer() else one for one in (each, samples))
    if isinstance(each, bool) or not isinstance(each, int) or not 1 <= each <= 10**9:
        message = f"found {shown(each)}, expected a whole number from 1 to 1000000000"
        raise problem(message, "write tokens: {processed: N}, those of an evaluation", "$.tokens_per_sample")
    if kept.get("tokens") is not None:
        raise problem("found both tokens_per_sample and tokens", "leave it out", "$.tokens_per_sample")
    whole = each * samples if isinstance(samples, int) else each  # or the microbatch is refused
    return kept if each == 1 else {**kept, "tokens": {"processed": whole}}
