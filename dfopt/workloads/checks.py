"""What several workloads share: a check of parameters, and what DFModel leaves out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from dfopt.documents.base import problem
from dfopt.documents.routing import Routing

# DFModel's programs price no input and no output of a graph; its encodings of a workload say so.
NOTHING_FROM_DRAM: Final[dict[str, Any]] = {"inputs": (), "outputs": ()}


def check_batch(batch: int | None, microbatch: int) -> None:
    """Raise an error if a step has fewer samples than one microbatch.

    Examples
    --------
    >>> check_batch(None, 4)
    >>> check_batch(3, 4)
    Traceback (most recent call last):
    pydantic_core._pydantic_core.PydanticCustomError: found 3 samples in a step, fewer than the 4 of one microbatch
    """
    if batch is not None and batch < microbatch:
        raise problem(
            f"found {batch} samples in a step, fewer than the {microbatch} of one microbatch",
            "enlarge batch, or shrink microbatch",
            "$.batch",
        )


def check_routing(routing: Routing | None, tokens: int, layers: Sequence[tuple[int, int]]) -> None:
    """Raise an error for a routing without experts, or one that does not match the number of experts.

    Parameters
    ----------
    routing
        Distribution of tokens over experts; by default that of `Routing` itself.
    tokens
        Tokens of one evaluation.
    layers
        For each kind of layer with experts, their number and the number that a token chooses.

    Examples
    --------
    >>> check_routing(Routing(), 16, [(8, 2)])
    >>> check_routing(Routing(), 16, [])
    Traceback (most recent call last):
    pydantic_core._pydantic_core.PydanticCustomError: found a routing of a model without experts
    """
    if routing is not None and not layers:
        raise problem("found a routing of a model without experts", "leave it out", "$.routing")
    for experts, chosen in layers:
        (routing or Routing()).shares(experts, chosen, tokens)
