"""What a layer is built from: a mixer and a feed-forward, each of which draws its kernels and counts what it holds."""

from __future__ import annotations

from dfopt.documents.base import Part
from dfopt.documents.phase import Segment
from dfopt.documents.routing import Routing
from dfopt.workloads.drawing import Drawing


class Block(Part):
    """A mixer or a feed-forward, as data.

    A new kind is a module with a class of its own: fields, a ``kind``, and what stands here.
    """

    def draw(self, drawing: Drawing, hidden: int, source: str) -> str:
        """Draw the kernels of a mixer or feed-forward.

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
        """Parameters of one layer: matrices, biases and gains."""
        raise NotImplementedError

    def active(self, hidden: int) -> int:
        """Parameters that one token uses."""
        return self.parameters(hidden)

    def misfit(self, segment: Segment, *, trains: bool) -> tuple[str, str] | None:
        """Why it cannot be drawn for a segment, or for training, and what to do; none if it can."""
        return None

    @property
    def token_elements(self) -> float:
        """Elements that are kept of every token, as far as no window drops it."""
        return 0

    def note(self, tokens: int, routing: Routing) -> str:
        """A note for the description of a graph; empty if there is nothing to say.

        Parameters
        ----------
        tokens
            Tokens of one evaluation.
        routing
            How tokens choose their experts.
        """
        return ""
