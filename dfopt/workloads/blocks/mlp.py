"""The feed-forward of every token: gated or plain."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from dfopt.documents.experts import Experts
from dfopt.documents.kernel import Role
from dfopt.workloads.backward import Gradient
from dfopt.workloads.blocks.block import Block
from dfopt.workloads.drawing import Drawing
from dfopt.workloads.sketch import Read

ALONE: Final = Experts(count=1, chosen=1, touched=1.0)
"""One expert that every token chooses."""


class Mlp(Block):
    """A multilayer perceptron.

    Attributes
    ----------
    kind : e.g. mlp
        Kind of the block: mlp, a multilayer perceptron for every token.
    ffn : features, e.g. 14336
        Number of features inside the MLP.
    gated : e.g. true
        Whether the MLP has a gate projection in addition to up and down projections.
    bias : e.g. false
        Whether the projections add a bias. It changes the parameter count only.
    typed : e.g. weights
        Class of data types that the weights have. ``weights``: that of matrix products. ``experts``: that of experts,
        one of which every token uses.

    Examples
    --------
    >>> Mlp(kind="mlp", ffn=10).parameters(hidden=4)
    120
    """

    kind: Literal["mlp"]
    ffn: int = Field(ge=1, le=10**8)
    gated: bool = True
    bias: bool = False
    typed: Literal["weights", "experts"] = "weights"

    def parameters(self, hidden: int) -> int:
        """Number of parameters of the projections."""
        return mlp_parameters(hidden, self.ffn, gated=self.gated, bias=self.bias)

    def draw(self, drawing: Drawing, hidden: int, source: str) -> str:
        """Draw projections and activation; return the name of the last kernel."""
        alone = ALONE if self.typed == "experts" else None
        return draw_mlp(drawing, hidden, self.ffn, source, gated=self.gated, experts=alone)


def mlp_parameters(hidden: int, ffn: int, *, gated: bool, bias: bool) -> int:
    """Number of parameters of the projections of an MLP.

    Parameters
    ----------
    hidden, ffn
        Features of a token outside and inside.
    gated
        Whether there is a third projection, the gate.
    bias
        Whether projections have biases.

    Examples
    --------
    >>> mlp_parameters(4, 10, gated=False, bias=True)
    94
    """
    into = 2 if gated else 1
    return (into + 1) * hidden * ffn + (into * ffn + hidden if bias else 0)


def draw_mlp(
    drawing: Drawing,
    hidden: int,
    inside: int,
    source: str,
    *,
    gated: bool,
    experts: Experts | None = None,
    shares: tuple[Read, ...] = (),
    called: str = "",
) -> str:
    """Draw projections and activation of an MLP, or of the experts of a token side by side.

    Parameters
    ----------
    drawing
        The layer so far.
    hidden, inside
        Features of a token outside and inside; inside those of all experts that it chooses.
    source
        Kernel whose output is read.
    gated
        Whether the activation is multiplied by a gate.
    experts
        Experts that hold the weights; none of a dense MLP.
    shares
        Reads of the weights of a token's experts.
    called
        Begin of the names of the kernels.

    Returns
    -------
    str
        The kernel of the projection down.
    """

    def into(name: str, role: Role) -> str:
        return drawing.linear(f"{called}{name}", inside, hidden, source, role=role, experts=experts)

    gate = (into("Gate_Proj", "gate"),) if gated else ()
    up = into("Up_Proj", "up")
    name = f"{called}Act_Mul" if gated else f"{called}Act"
    active = drawing.pointwise(name, inside, *gate, up, *shares, role="activation")
    weighed = tuple(share.src for share in shares)
    if gated or weighed:
        drawing.rules[name] = (
            *(Gradient(f"{name}_bwd_gate", of=gate, reads=(*gate, up, *weighed)) for _ in gate),
            Gradient(f"{name}_bwd_up", of=(up,), reads=(*(gate or (up,)), *weighed)),
            *(Gradient(f"{name}_bwd_shares", of=weighed, reads=(*gate, up)) for _ in weighed),
        )
    return drawing.linear(f"{called}Down_Proj", hidden, inside, active, experts=experts)
