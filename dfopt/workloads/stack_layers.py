"""What a stack is made of: kinds of layers, and sections of them."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from dfopt.documents.base import Part, problem
from dfopt.documents.sections import Section
from dfopt.workloads.blocks import Block, FeedForward, Mixer


class LayerKind(Part):
    """A kind of layer: a mixer and a feed-forward, each added to the residual stream; one may be missing.

    Attributes
    ----------
    mixer : e.g. {kind: attention, heads: 32, head_dim: 128}
        Part of the layer in which tokens exchange information, such as attention or Mamba. None: the layer has none.
    feed_forward : e.g. {kind: mlp, ffn: 14336}
        Part of the layer that processes each token by itself, an MLP or experts. None: the layer has none.
    norms : e.g. pre
        Position of the norms of the layer. ``pre``: before mixer and feed-forward. ``pre_post``: before and after them,
        as in Gemma 2. ``post``: after them only, as in OLMo 2. ``after``: after the residual addition, as in BERT.
    parallel : e.g. none
        Whether mixer and feed-forward read the same residual stream. ``none``: one follows the other. ``shared``: they
        share one norm, as in GPT-J. ``own``: each has its own norm.
    modulated : e.g. true
        Whether a condition of the sample scales norms and additions, as in DiT. The norms then have no gains of their
        own.

    Examples
    --------
    >>> attention = {"kind": "attention", "heads": 4, "head_dim": 2}
    >>> LayerKind(mixer=attention, feed_forward={"kind": "mlp", "ffn": 32}).norms_of_layer
    2
    """

    mixer: Mixer | None = None
    feed_forward: FeedForward | None = None
    norms: Literal["pre", "pre_post", "post", "after"] = "pre"
    parallel: Literal["none", "shared", "own"] = "none"

    modulated: bool = False

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.mixer is None and self.feed_forward is None:
            raise problem("found neither a mixer nor a feed-forward", "a layer has one of them at least", "$.mixer")
        if self.parallel != "none":
            if self.mixer is None or self.feed_forward is None:
                raise problem(f"found {self.parallel}, but only one part", "leave it out", "$.parallel")
            if self.norms != "pre":
                raise problem(f"found norms {self.norms} of parallel parts", "write norms: pre", "$.norms")
        if self.modulated and (self.norms != "pre" or self.parallel != "none"):
            raise problem("found it of other norms than pre", "write norms: pre, and no parallel", "$.modulated")
        return self

    @property
    def parts(self) -> dict[int, Block]:
        """Mixer and feed-forward by place, without missing ones."""
        both = enumerate((self.mixer, self.feed_forward), start=1)
        return {number: part for number, part in both if part is not None}

    @property
    def norms_of_layer(self) -> int:
        """Number of norms of the layer itself."""
        each = {"pre": 1, "pre_post": 2, "post": 1, "after": 1}[self.norms]
        return 1 if self.parallel == "shared" else each * len(self.parts)


class StackSection(Section):
    """A pattern of layers with its repeats, of the model itself or of a prediction module.

    Attributes
    ----------
    predicts : e.g. true
        Whether the section consists of modules that predict further tokens, one for each repetition. They are left out
        unless ``predict`` is true.

    Examples
    --------
    >>> StackSection(layers=("dense", "sparse"), repeat=3).count
    6
    """

    predicts: bool = False
