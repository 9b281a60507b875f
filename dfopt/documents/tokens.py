"""Tokens of one evaluation: those that are processed, and those that sequences gain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import Field

from dfopt.documents.base import Part, problem
from dfopt.errors import shown

if TYPE_CHECKING:
    from dfopt.documents.graph import Graph

__all__ = ["Tokens", "of_evaluation", "tokens_of"]


class Tokens(Part):
    """Tokens of one evaluation of a graph.

    Examples
    --------
    A prompt of 512 tokens beside 16 decode steps:

    >>> Tokens(processed=528, produced=17)
    Tokens(processed=528, produced=17)
    """

    processed: int = Field(ge=1, le=10**15, description="that are worked on")
    produced: int | None = Field(
        default=None,
        ge=0,
        le=10**15,
        description="that its sequences gain at least, in serving: of a draft that is verified one, whatever is"
        " accepted; none = it is no serving",
    )


def tokens_of(graph: Graph) -> Tokens:
    """Tokens of one evaluation of a graph; a graph that says nothing of them has one of every sample.

    Examples
    --------
    >>> from dfopt.documents.graph import Graph, Kernel
    >>> tokens_of(Graph(name="g", microbatch=8, kernels=(Kernel(name="a", op="gemm", m=4, k=8, n=8),))).processed
    8
    """
    return graph.tokens or Tokens(processed=graph.microbatch)


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
