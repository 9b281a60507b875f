"""A mixture of experts: a router, and a feed-forward that is as wide as the experts which a token chooses.

Beside them there may be experts that every token uses, whose output a gate may weigh. Where they are as large as some
of the others, they are more experts that every token chooses (DeepSeek-V3, arXiv:2412.19437, section 3.4.2); else they
are an MLP of their own, also where their weights are of another type. In Gemma 4 norms stand behind
that MLP, in front of the experts and behind those. Latent experts work on fewer features, behind a projection and in
front of another one.

The experts' products are grouped ones: their weights are held for all experts, and read for those that some token of
an evaluation chooses. On which chips they lie is a matter of plans (:mod:`dfopt.documents.modules`). When training, the
shares of a token's experts have gradients too; what adding those up over chips costs is not counted.
"""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from dfopt.documents.base import problem
from dfopt.documents.experts import Experts, routed
from dfopt.documents.routing import Routing
from dfopt.workloads.backward import Gradient
from dfopt.workloads.blocks.block import Block
from dfopt.workloads.blocks.mlp import ALONE, draw_mlp, mlp_parameters
from dfopt.workloads.drawing import Drawing
from dfopt.workloads.sketch import Read


class MixtureOfExperts(Block):
    """Mixture of experts: a router selects some experts for each token.

    Attributes
    ----------
    kind : e.g. moe
        Kind of the block: moe, a mixture of experts.
    experts : experts, e.g. 128
        Number of routed experts of the layer.
    chosen : experts, e.g. 8
        Number of experts that the router selects for every token.
    ffn : features, e.g. 1536
        Number of features inside one expert.
    gated : e.g. true
        Whether an expert has a gate projection in addition to up and down projections.
    bias : e.g. false
        Whether the projections of experts add a bias. It changes the parameter count only.
    router_bias : e.g. false
        Whether the router adds a bias for every expert. It changes the parameter count only.
    shared : features, e.g. 2048
        Features inside all shared experts together, which every token uses. 0 means there are none.
    shared_gate : e.g. false
        Whether a gate multiplies the output of the shared experts.
    shared_apart : e.g. false
        Whether the shared experts are a separate MLP even if they have the size of routed experts.
    shared_typed : e.g. weights
        Class of data types of the shared experts, if they are a separate MLP. ``weights``: that of matrix products.
        ``experts``: that of experts.
    shared_norms : e.g. false
        Whether norms follow the shared experts and surround the routed ones, as in Gemma 4. The shared experts are then
        a separate MLP.
    latent : features, e.g. 1024
        Features that the experts work on after a projection. None: those of the residual stream.

    Examples
    --------
    >>> experts = MixtureOfExperts(kind="moe", experts=8, chosen=2, ffn=10)
    >>> experts.parameters(hidden=4), experts.active(hidden=4)
    (992, 272)
    """

    kind: Literal["moe"]
    experts: int = Field(ge=1, le=10**6)
    chosen: int = Field(ge=1, le=10**6)
    ffn: int = Field(ge=1, le=10**8)
    gated: bool = True
    bias: bool = False

    router_bias: bool = False
    shared: int = Field(default=0, ge=0, le=10**8)
    shared_gate: bool = False
    shared_apart: bool = False
    shared_typed: Literal["weights", "experts"] = "weights"
    shared_norms: bool = False
    latent: int | None = Field(default=None, ge=1, le=10**7)

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.chosen > self.experts:
            message = f"found {self.chosen} experts for a token, of {self.experts}"
            raise problem(message, "at most all of them: see experts", "$.chosen")
        if self.shared_gate and not self.shared:
            raise problem("found a gate of no shared expert", "say how large it is: shared", "$.shared_gate")
        for name in ("shared_apart", "shared_norms"):
            if getattr(self, name) and not self.shared:
                raise problem("found true, but no shared expert", "say how large it is: shared", f"$.{name}")
        return self

    def parameters(self, hidden: int) -> int:
        """Number of parameters of the router and all experts."""
        return self._parameters(hidden, self.experts)

    def active(self, hidden: int) -> int:
        """Number of parameters that one token uses: router and selected experts."""
        return self._parameters(hidden, self.chosen)

    def _parameters(self, hidden: int, experts: int) -> int:
        shape = {"gated": self.gated, "bias": self.bias}
        own = experts * mlp_parameters(self.latent or hidden, self.ffn, **shape)
        shared = mlp_parameters(hidden, self.shared, **shape) + hidden * self.shared_gate if self.shared else 0
        # norms have gains, and the one of the router, which is that of no other kernel, has some too
        norms = 4 * hidden * self.shared_norms
        return (hidden + self.router_bias) * self.experts + own + shared + norms + 2 * hidden * (self.latent or 0)

    @property
    def always(self) -> int:
        """Number of shared experts of the same size as routed ones, which every token uses."""
        alone = self.shared_apart or self.shared_norms
        alike = self.latent is None and self.shared % self.ffn == 0 and not alone
        return self.shared // self.ffn if alike else 0

    def routed(self, tokens: int, routing: Routing) -> Experts:
        """Experts that a chip stores and reads for ``tokens`` tokens under a routing."""
        return routed(routing, self.experts, self.chosen, tokens, self.always)

    def note(self, tokens: int, routing: Routing) -> str:
        """Remark on the assumed routing."""
        read = self.routed(tokens, routing).touched - self.always
        return f"{routing.words} routing: of {self.experts} experts an evaluation reads {read:.4g}"

    def draw(self, drawing: Drawing, hidden: int, source: str) -> str:
        """Draw router, routed experts and shared experts; return the name of the last kernel."""
        separate, routed = self.shared and not self.always, self.routed(drawing.tokens, drawing.routing)
        rows = self.experts + self.shared_gate
        router = drawing.linear("Router", rows, hidden, source, role="router")
        top = drawing.pointwise("Top_K", rows, router, normalizes=True)
        drawing.rules[top] = Gradient(reads=(top,))
        # the shares of a token's experts, with which their outputs are added up
        shares = Read(top, None, drawing.bytes(routed.chosen * drawing.tokens))
        worked_on, into = self.latent or hidden, source

        def normed(name: str, read: str) -> str:
            return drawing.pointwise(name, hidden, read, normalizes=True, role="norm") if self.shared_norms else read

        # drawn behind the norm of the layer, which is as large as the residual that it reads
        into = normed("Experts_Norm", into)
        if self.latent is not None:
            into = drawing.linear("Latent_Down", self.latent, hidden, into)
        inside = self.ffn * routed.chosen
        since = len(drawing.kernels)
        out = draw_mlp(drawing, worked_on, inside, into, gated=self.gated, experts=routed, shares=(shares,))
        drawing.of_module("experts", since)
        if self.latent is not None:
            out = drawing.linear("Latent_Up", hidden, self.latent, out)
        if not separate:
            return out
        out = normed("Experts_Norm_Post", out)
        gate = (Read(top, None, drawing.bytes(drawing.tokens), "shared"),) if self.shared_gate else ()
        typed = ALONE if self.shared_typed == "experts" else None
        shape: dict[str, Any] = {"gated": self.gated, "experts": typed, "shares": gate, "called": "Shared_"}
        shared = draw_mlp(drawing, hidden, self.shared, source, **shape)
        shared = normed("Shared_Norm_Post", shared)
        return drawing.pointwise("Shared_Add", hidden, out, shared)
