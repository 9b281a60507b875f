"""Weights of a kernel that are those of many experts, of which every token chooses a few."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, model_validator

from dfopt.documents.base import Part, problem
from dfopt.documents.routing import Routing


class Experts(Part):
    """Experts of a grouped GEMM, whose shape is that of the experts of one token side by side.

    ``m`` or ``k`` is ``chosen`` times that of one expert, so FLOP, output and partial sums are those of the tokens;
    weights are held for all experts, and read for those that some token of an evaluation chooses.

    Attributes
    ----------
    count : experts, e.g. 128
        Number of experts whose weights are stored.
    chosen : experts, e.g. 8
        Number of experts that the router selects for every token, at most all.
    touched : experts, e.g. 98.9
        Expected number of experts whose weights one evaluation reads, under the assumed routing.
    routing : e.g. power_law(1.2)
        Distribution of tokens over experts. None: uniform.
    always : experts, e.g. 1
        Number of the stored experts that every token uses, such as shared experts. None: 0.
    held : experts, e.g. 256
        Number of experts of the whole layer, where a chip stores only some of them. None: all experts are stored here.

    Examples
    --------
    >>> experts = routed(Routing(), 128, 8, 16)
    >>> experts.touched, experts.words
    (82.4..., 'uniform: 8 of 128 experts for a token, 82.42 read in an evaluation')
    """

    count: int = Field(ge=1, le=10**6)
    chosen: int = Field(ge=1, le=10**6)
    touched: float = Field(gt=0, le=10**6)
    routing: Routing | None = None
    always: int | None = Field(default=None, ge=1, le=10**6)
    held: int | None = Field(default=None, ge=1, le=10**6)

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.held is not None:  # a chip may hold fewer than a token chooses
            return self
        if not self.chosen <= self.touched * (1 + 1e-12) <= self.count * (1 + 2e-12):
            message = f"found {self.touched:g} of {self.count} experts, of which a token chooses {self.chosen}"
            raise problem(message, "as many as a token chooses at least, and all at most", "$.touched")
        return self

    def for_tokens(self, tokens: int) -> Experts:
        """The same experts in an evaluation of ``tokens`` tokens.

        Examples
        --------
        >>> Experts(count=8, chosen=2, touched=8.0).for_tokens(1).touched
        2.0
        """
        always, routing = self.always or 0, self.routing or Routing()
        touched = routing.touched(self.count - always, self.chosen - always, tokens) + always
        return self.model_copy(update={"touched": touched})

    @property
    def words(self) -> str:
        """The assumed routing in one line: law, experts per token, and experts read in an evaluation."""
        routing = self.routing or Routing()
        read = f"{self.chosen} of {self.count} experts for a token, {self.touched:.4g} read in an evaluation"
        return f"{routing.words}: {read}{', copies only where they lie on several chips' if routing.redundant else ''}"


def routed(routing: Routing, count: int, chosen: int, tokens: int, always: int = 0) -> Experts:
    """Experts of a kernel, with the expected number that the tokens of an evaluation select under a routing.

    Parameters
    ----------
    routing : Routing
        Distribution of tokens over experts.
    count, chosen : int
        Experts that tokens choose among, and how many each token chooses.
    tokens : int
        Tokens of an evaluation.
    always : int
        Number of further experts, which every token uses.
    """
    touched = routing.touched(count, chosen, tokens) + always
    stated = None if routing == Routing() else routing
    return Experts(count=count + always, chosen=chosen + always, touched=touched, routing=stated, always=always or None)


def routing_of(graph: Any) -> str:  # its module imports this one
    """Text on the assumed routing of a graph's experts, under which times and bounds hold; empty without experts."""
    return "; ".join(dict.fromkeys(kernel.experts.words for kernel in graph.kernels if kernel.experts is not None))
