"""Tokens of one evaluation: those that are processed, and those that sequences gain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from dfopt.documents.base import Part, problem
from dfopt.errors import shown


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


def of_evaluation(data: Any) -> Any:
    """Data of a graph with tokens of an evaluation in place of the former ``tokens_per_sample``."""
    if not isinstance(data, Mapping) or "tokens_per_sample" not in data:
        return data
    each, samples = data["tokens_per_sample"], data.get("microbatch", 1)
    kept = {key: value for key, value in data.items() if key != "tokens_per_sample"}
    each, samples = (int(n) if isinstance(n, float) and n.is_integer() else n for n in (each, samples))
    if isinstance(each, bool) or not isinstance(each, int) or not 1 <= each <= 10**9:
        message = f"found {shown(each)}, expected a whole number from 1 to 1000000000"
        raise problem(message, "write tokens: {processed: N}, those of an evaluation", "$.tokens_per_sample")
    if kept.get("tokens") is not None:
        raise problem("found both tokens_per_sample and tokens", "leave it out", "$.tokens_per_sample")
    processed = each * samples if isinstance(samples, int) else each  # or the microbatch is refused
    return kept if each == 1 else {**kept, "tokens": {"processed": processed}}
