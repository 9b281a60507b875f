"""A model as a stack of layers: a language model, or any other that hands a residual stream from layer to layer.

A layer kind is a mixer (attention, ...) and a feed-forward (an MLP, experts, ...), each a module of
:mod:`dfopt.workloads.blocks`; sections say which kinds follow each other, and how often. What one evaluation works on
is asked of its segments (:mod:`dfopt.documents.phase`), so that prefill, decode and training are drawn by one builder.

``mode: training`` adds the backward pass and the weight updates, see :mod:`dfopt.workloads.backward`. With grouped
queries the gradients of K and V come out per query head and are then added up over each group (``K_Sum_bwd``,
``V_Sum_bwd``), which is how kernels for it work. Not drawn: gradients of the norms' gains.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Self

from pydantic import Field, model_validator

from dfopt.documents.base import Part, problem
from dfopt.documents.graph import Graph, Tensor
from dfopt.errors import did_you_mean, json_path
from dfopt.workloads.backward import backward_of
from dfopt.workloads.blocks import FeedForward, Mixer
from dfopt.workloads.blocks.ends import NORMS, EndsParameters, with_ends
from dfopt.workloads.drawing import Drawing
from dfopt.workloads.recompute import recomputed
from dfopt.workloads.unroll import unroll

__all__ = ["Counts", "Layer", "LayerSection", "Parameters", "StackParameters", "build", "counts"]


class Layer(Part):
    """A kind of layer: a mixer, then a feed-forward, each added to the residual stream.

    Examples
    --------
    >>> attention = {"kind": "attention", "heads": 4, "head_dim": 2}
    >>> Layer(mixer=attention, feed_forward={"kind": "mlp", "ffn": 32}).norms
    'pre'
    """

    mixer: Mixer = Field(description="what tokens exchange")
    feed_forward: FeedForward = Field(description="what is done with every token")
    norms: Literal["pre", "pre_post"] = Field(
        default="pre", description="norms in front of mixer and feed-forward, or behind them too, as in Gemma 2"
    )


class LayerSection(Part):
    """A pattern of layers, and how often it repeats.

    Examples
    --------
    >>> LayerSection(layers=("local", "global"), repeat=3).repeat
    3
    """

    layers: tuple[str, ...] = Field(min_length=1, max_length=10**4, description="kinds of layers, in their order")
    repeat: int = Field(default=1, ge=1, le=10**6, description="how often the pattern is there")


class StackParameters(EndsParameters):
    """What a stack of layers is built from.

    Examples
    --------
    >>> layer = {"mixer": {"kind": "attention", "heads": 4, "head_dim": 2}, "feed_forward": {"kind": "mlp", "ffn": 32}}
    >>> sections = [{"layers": ["layer"], "repeat": 3}]
    >>> p = StackParameters(hidden=8, vocab=100, seq=16, layers={"layer": layer}, sections=sections)
    >>> p.times
    {'layer': 3}
    """

    layers: dict[str, Layer] = Field(min_length=1, max_length=1000, description="kinds of layers by name")
    sections: tuple[LayerSection, ...] = Field(min_length=1, max_length=1000, description="the layers in their order")
    published_parameters: int | None = Field(
        default=None, ge=1, le=10**15, description="as published, to compare the parameter count with"
    )

    @property
    def times(self) -> dict[str, int]:
        """How often every kind of layer is there."""
        return {
            name: sum(section.layers.count(name) * section.repeat for section in self.sections) for name in self.layers
        }

    @model_validator(mode="after")
    def _are_layers(self) -> Self:
        for place, section in enumerate(self.sections):
            for number, name in enumerate(section.layers):
                if name not in self.layers:
                    where = json_path("sections", place, "layers", number)
                    raise problem(f"no layer is called {name!r}", did_you_mean(name, self.layers), where)
        for name, times in self.times.items():
            if not times:
                raise problem(f"no section has a layer {name!r}", "leave it out", json_path("layers", name))
        return self


Parameters = StackParameters


class Counts(NamedTuple):
    """How large a model is.

    Attributes
    ----------
    parameters : int
        All of them.
    active : int
        Those that one token is multiplied with: of experts the chosen ones, and no table in which it looks up a row.
    bytes_per_token : int
        What is kept of a token in all layers, as far as no window drops it.
    """

    parameters: int
    active: int
    bytes_per_token: int


def counts(p: StackParameters) -> Counts:
    """Count the parameters of a model, with what its graph does not draw, and what it keeps of a token.

    Examples
    --------
    Llama 3.1 8B:

    >>> attention = {"kind": "attention", "heads": 32, "kv_heads": 8, "head_dim": 128}
    >>> layer = {"mixer": attention, "feed_forward": {"kind": "mlp", "ffn": 14336}}
    >>> sections = [{"layers": ["layer"], "repeat": 32}]
    >>> counts(StackParameters(hidden=4096, vocab=128256, seq=8192, layers={"layer": layer}, sections=sections))
    Counts(parameters=8030261248, active=7504924672, bytes_per_token=131072)
    """
    whole, active, kept = p.end_parameters(active=False), p.end_parameters(active=True), 0
    for name, times in p.times.items():
        layer = p.layers[name]
        norms = p.gains * (4 if layer.norms == "pre_post" else 2)
        for part in (layer.mixer, layer.feed_forward):
            whole += times * part.parameters(p.hidden)
            active += times * part.active(p.hidden)
            kept += times * part.token_elements * p.word_bytes
        whole, active = whole + times * norms, active + times * norms
    return Counts(whole, active, kept)


def build(p: StackParameters, drawn: int = 1, **about: str) -> Graph:
    """The layers of a model as a graph, in which one drawn layer stands for all of its kind.

    Parameters
    ----------
    p
        The model, and what one evaluation works on.
    drawn
        Layers that are drawn one after another, of a model of equal ones.
    **about
        Name, description and source of the graph.

    Examples
    --------
    >>> layer = {"mixer": {"kind": "attention", "heads": 4, "head_dim": 2}, "feed_forward": {"kind": "mlp", "ffn": 32}}
    >>> sections = [{"layers": ["layer"], "repeat": 3}]
    >>> p = StackParameters(hidden=8, vocab=100, seq=16, layers={"layer": layer}, sections=sections)
    >>> graph = build(p, name="tiny")
    >>> len(graph.kernels), graph.repeat
    (18, 3)
    """
    (kind,), (times,) = p.layers.values(), p.times.values()
    said = [text for part in (kind.mixer, kind.feed_forward) if (text := part.said(p.tokens))]
    if said:
        about["description"] = f"{about.get('description', '')} ({'; '.join(said)})".strip()
    drawing = p.drawing()
    first, last = _draw(kind, p, drawing)
    graph = Graph(
        **about,
        **p.sized,
        repeat=times,
        kernels=tuple(drawing.kernels),
        tensors=tuple(drawing.tensors),
        carried=(Tensor(src=last, dst=first),),
    )
    if p.mode == "training":
        graph = _trained(graph, drawing)
        graph = graph if p.scores_kept else recomputed(graph, ("scores", "softmax"))
    if drawn > 1:
        graph, first, last = unroll(graph, drawn), f"{first}.0", f"{last}.{drawn - 1}"
    return with_ends(graph, p, (first, last)) if p.drawn_ends else graph


def _draw(layer: Layer, p: StackParameters, drawing: Drawing) -> tuple[str, str]:
    """Draw a layer; gives its first and its last kernel."""

    def norm(place: str, source: str) -> str:
        return drawing.pointwise(f"{NORMS[p.norm]}_{place}", p.hidden, source, normalizes=True, role="norm")

    first = residual = drawing.pointwise("Residual_In", p.hidden, role="residual")
    for number, part in enumerate((layer.mixer, layer.feed_forward), start=1):
        out = part.draw(drawing, p.hidden, norm(str(number), residual))
        out = norm(f"{number}_Post", out) if layer.norms == "pre_post" else out
        residual = drawing.pointwise(f"Add_{number}", p.hidden, out, residual, role="residual")
    return first, residual


def _trained(graph: Graph, drawing: Drawing) -> Graph:
    """The layer with its backward pass."""
    level, index = graph.levels(), graph.index()
    order = sorted(level, key=lambda name: (-level[name], index[name]))
    return backward_of(graph, drawing.rules, sums=drawing.sums, order=order)
