"""What a layer is built from: a mixer and a feed-forward, each of which draws its kernels and counts what it holds."""

from __future__ import annotations

from dfopt.documents.base import Part
from dfopt.documents.phase import Segment
from dfopt.documents.routing import Routing
from dfopt.workloads.drawing import Drawing


class Block(Part):
    """Base of mixers and feed-forwards of a layer.

    A new kind is a module with a subclass: fields, a ``kind``, and these methods.
    """

    def draw(self, drawing: Drawing, hidden: int, source: str) -> str:
        """Draw the kernels of the block; return the name of the last one.

        Parameters
        ----------
        drawing
            The layer so far, which the kernels are added to.
        hidden
            Features of a token, of the residual stream.
        source
            Kernel whose output, ``hidden`` features of every token, is read.

        Returns
        -------
        str
            The kernel whose output, ``hidden`` features again, is added to the residual stream.
        """
        raise NotImplementedError

    def parameters(self, hidden: int) -> int:
        """Number of parameters of one layer: matrices, biases and gains."""
        raise NotImplementedError

    def active(self, hidden: int) -> int:
        """Number of parameters that one token uses."""
        return self.parameters(hidden)

    def misfit(self, segment: Segment, *, trains: bool) -> tuple[str, str] | None:
        """Reason and remedy if the block cannot process a segment or train, or None."""
        return None

    @property
    def token_elements(self) -> float:
        """Cached elements per token, as long as no window drops it."""
        return 0

    def note(self, tokens: int, routing: Routing) -> str:
        """A remark for the description of a graph; empty without one.

        Parameters
        ----------
        tokens
            Tokens of one evaluation.
        routing
            Distribution of tokens over experts.
        """
        return ""
