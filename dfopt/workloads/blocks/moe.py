"""A mixture of experts: a router, and a feed-forward that is as wide as the experts which a token chooses.

The experts' products are grouped ones: their weights are held for all experts, and read for those that some token of
an evaluation chooses. Chips share every expert; experts that lie on different chips are not drawn.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from dfopt.documents.base import problem
from dfopt.documents.experts import Experts, touched_experts
from dfopt.workloads.blocks.block import Block
from dfopt.workloads.blocks.mlp import draw_mlp, mlp_parameters
from dfopt.workloads.drawing import Drawing
from dfopt.workloads.sketch import Read

__all__ = ["MixtureOfExperts"]


class MixtureOfExperts(Block):
    """Experts of which every token chooses some.

    Examples
    --------
    >>> experts = MixtureOfExperts(kind="moe", experts=8, chosen=2, ffn=10)
    >>> experts.parameters(hidden=4), experts.active(hidden=4)
    (992, 272)
    """

    kind: Literal["moe"]
    experts: int = Field(ge=1, le=10**6, description="experts of a layer")
    chosen: int = Field(ge=1, le=10**6, description="experts that a token is sent to")
    ffn: int = Field(ge=1, le=10**8, description="features inside one expert")
    gated: bool = Field(default=True, description="gate, up and down projection, or up and down only")
    bias: bool = Field(default=False, description="the experts' projections have a bias; for the parameter count")

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.chosen > self.experts:
            message = f"found {self.chosen} experts for a token, of {self.experts}"
            raise problem(message, "at most all of them: see experts", "$.chosen")
        return self

    def parameters(self, hidden: int) -> int:
        """Parameters of the router and of all experts."""
        return self._parameters(hidden, self.experts)

    def active(self, hidden: int) -> int:
        """Parameters of the router and of the experts that a token chooses."""
        return self._parameters(hidden, self.chosen)

    def _parameters(self, hidden: int, experts: int) -> int:
        return hidden * self.experts + experts * mlp_parameters(hidden, self.ffn, gated=self.gated, bias=self.bias)

    def routed(self, tokens: int) -> Experts:
        """What so many tokens hold and read of experts: under uniform routing."""
        read = touched_experts(self.experts, self.chosen, tokens)
        return Experts(count=self.experts, chosen=self.chosen, touched=read)

    def said(self, tokens: int) -> str:
        """The routing that is assumed."""
        return f"uniform routing: of {self.experts} experts an evaluation reads {self.routed(tokens).touched:.4g}"

    def draw(self, drawing: Drawing, hidden: int, source: str) -> str:
        """Draw the router and the experts' products."""
        router = drawing.linear("Router", self.experts, hidden, source, role="router")
        top = drawing.pointwise("Top_K", self.experts, router, normalizes=True)
        # the shares of a token's experts, with which their outputs are added up
        shares = Read(top, None, drawing.bytes(self.chosen * drawing.tokens))
        inside, routed = self.ffn * self.chosen, self.routed(drawing.tokens)
        return draw_mlp(drawing, hidden, inside, source, gated=self.gated, experts=routed, shares=(shares,))
