"""Weights of a kernel that are those of many experts, of which every token chooses a few."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from pydantic import Field, model_validator

from dfopt.documents.base import Part, problem
from dfopt.documents.routing import Routing

if TYPE_CHECKING:
    from dfopt.documents.graph import Graph

__all__ = ["Experts", "routed", "routing_of"]


class Experts(Part):
    """What a grouped GEMM holds and reads: its shape is that of the experts that a token chooses, side by side.

    ``m`` or ``k`` is ``chosen`` times that of one expert, so FLOP, output and partial sums are those of the tokens;
    weights are held for all experts, and read for those that some token of an evaluation chooses.

    Examples
    --------
    >>> experts = routed(Routing(), 128, 8, 16)
    >>> experts.touched, experts.words
    (82.4..., 'uniform: 8 of 128 experts for a token, 82.42 read in an evaluation')
    """

    count: int = Field(ge=1, le=10**6, description="experts that are held")
    chosen: int = Field(ge=1, le=10**6, description="experts that every token is sent to, at most all")
    touched: float = Field(gt=0, le=10**6, description="experts that an evaluation reads, as expected under a routing")
    routing: Routing | None = Field(default=None, description="the routing; none = uniform")
    always: int | None = Field(default=None, ge=1, le=10**6, description="of these, those that every token chooses")
    held: int | None = Field(
        default=None, ge=1, le=10**6, description="of a chip that holds some: experts that there are; none = all here"
    )

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.held is not None:  # a chip may hold fewer than a token chooses
            return self
        if not self.chosen <= self.touched * (1 + 1e-12) <= self.count * (1 + 2e-12):
            message = f"found {self.touched:g} of {self.count} experts, of which a token chooses {self.chosen}"
            raise problem(message, "as many as a token chooses at least, and all at most", "$.touched")
        return self

    def for_tokens(self, tokens: int) -> Experts:
        """The same experts where so many tokens choose some.

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
        """What is assumed of them, in a line."""
        routing = self.routing or Routing()
        read = f"{self.chosen} of {self.count} experts for a token, {self.touched:.4g} read in an evaluation"
        return f"{routing.words}: {read}{', copies only where they lie on several chips' if routing.redundant else ''}"


def routed(routing: Routing, count: int, chosen: int, tokens: int, always: int = 0) -> Experts:
    """Experts, of which tokens touch as many as expected under a routing; ``always`` more are chosen by every token."""
    touched = routing.touched(count, chosen, tokens) + always
    told = None if routing == Routing() else routing
    return Experts(count=count + always, chosen=chosen + always, touched=touched, routing=told, always=always or None)


def routing_of(graph: Graph) -> str:
    """What is assumed of a graph's experts, if it has any: times and bounds hold under it, and under no other."""
    return "; ".join(dict.fromkeys(one.experts.words for one in graph.kernels if one.experts is not None))
