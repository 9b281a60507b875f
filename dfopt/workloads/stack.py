"""A model as a stack of layers: a language model, or any other that hands a residual stream from layer to layer.

A layer kind is a mixer (attention, ...) and a feed-forward (an MLP, experts, ...), each a module of
:mod:`dfopt.workloads.blocks`; sections say which kinds follow each other, and how often. What one evaluation works on
is asked of its segments (:mod:`dfopt.documents.phase`), so that prefill, decode and training are drawn by one builder.

``mode: training`` adds the backward pass and the weight updates, see :mod:`dfopt.workloads.backward`. With grouped
queries the gradients of K and V come out per query head and are then added up over each group (``K_Sum_bwd``,
``V_Sum_bwd``), which is how kernels for it work. Not drawn: gradients of the norms' gains.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Set
from typing import Final, Self, get_args

from pydantic import Field, model_validator

from dfopt.documents.base import problem
from dfopt.documents.graph import Graph, Input, Tensor
from dfopt.documents.published import Counts
from dfopt.documents.routing import Routing
from dfopt.documents.sections import Section, repeated
from dfopt.errors import did_you_mean, json_path
from dfopt.workloads.architecture import architecture_of
from dfopt.workloads.backward import backward_of
from dfopt.workloads.blocks.conditioning import PARTS, modulation, modulation_parameters
from dfopt.workloads.blocks.ends import BACK, FRONT, NORMS, EndsParameters, with_ends
from dfopt.workloads.blocks.mla import LatentAttention
from dfopt.workloads.blocks.moe import MixtureOfExperts
from dfopt.workloads.blocks.predicting import ENTRY, EXIT, predictor_parameters, with_predictors
from dfopt.workloads.checks import check_routing
from dfopt.workloads.drawing import Drawing, Form
from dfopt.workloads.recompute import recomputes
from dfopt.workloads.stack_layers import LayerKind, StackSection
from dfopt.workloads.unroll import renamed, unroll

__all__ = ["Counts", "LayerKind", "Parameters", "StackParameters", "StackSection", "build", "counts"]

_PARTS: Final = ("mixer", "feed_forward")


class StackParameters(EndsParameters):
    """Parameters of a stack of layers of several kinds.

    Attributes
    ----------
    layers : e.g. {layer: {mixer: {kind: attention, heads: 32, head_dim: 128}, feed_forward: {kind: mlp, ffn: 14336}}}
        Kinds of layers of the model, by name.
    sections : e.g. [{layers: [layer], repeat: 32}]
        Layers of the model in order, as patterns that repeat.
    predict : e.g. true
        Whether the graph contains the sections that predict further tokens.

    Examples
    --------
    >>> layer = {"mixer": {"kind": "attention", "heads": 4, "head_dim": 2}, "feed_forward": {"kind": "mlp", "ffn": 32}}
    >>> sections = [{"layers": ["layer"], "repeat": 3}]
    >>> p = StackParameters(hidden=8, vocab=100, seq=16, layers={"layer": layer}, sections=sections)
    >>> p.times
    {'layer': 3}
    """

    layers: dict[str, LayerKind] = Field(min_length=1, max_length=1000)
    sections: tuple[StackSection, ...] = Field(min_length=1, max_length=1000)
    predict: bool = False

    @property
    def layers_in_order(self) -> tuple[StackSection, ...]:
        """Sections of the model itself, without prediction modules."""
        return tuple(section for section in self.sections if not section.predicts)

    @property
    def modules(self) -> list[tuple[str, ...]]:
        """Kinds of the layers in every multi-token prediction module."""
        asked = (section for section in self.sections if section.predicts and self.predict)
        return [section.layers for section in asked for _ in range(section.repeat)]

    @property
    def times(self) -> dict[str, int]:
        """Number of layers of every kind."""
        every = [(section.layers, section.repeat) for section in self.layers_in_order]
        every += [(module, 1) for module in self.modules]
        totals = {name: sum(layers.count(name) * repeat for layers, repeat in every) for name in self.layers}
        return {name: count for name, count in totals.items() if count}

    @property
    def open(self) -> tuple[LatentAttention, ...]:
        """Latent attentions whose form is open."""
        mixers = [mixer for layer in self.layers.values() if isinstance(mixer := layer.mixer, LatentAttention)]
        return tuple(mixer for mixer in mixers if mixer.form == "auto" and self.mode == "forward")

    @property
    def forms(self) -> tuple[Form, ...] | None:
        """Form of open latent attention for every segment: as requested, else that with fewer FLOP."""
        if not self.open:
            return None
        segments = self.evaluation.segments
        if isinstance(self.form, str):
            return (self.form,) * len(segments)
        return self.form or tuple(self.open[0].less_work(segment) for segment in segments)

    @property
    def variant(self) -> str | None:
        """Name of the graph among those that compute the same: forms of its segments, or what training recomputes."""
        return ", ".join(self.forms) if self.forms else super().variant

    def drawing(self) -> Drawing:
        """A new, empty drawing of a layer."""
        drawing = super().drawing()
        drawing.forms = self.forms
        return drawing

    @model_validator(mode="after")
    def _are_layers(self) -> Self:
        for place, section in enumerate(self.sections):
            for number, name in enumerate(section.layers):
                if name not in self.layers:
                    where = json_path("sections", place, "layers", number)
                    raise problem(f"no layer is called {name!r}", did_you_mean(name, self.layers), where)
        feed_forwards = (layer.feed_forward for layer in self.layers.values())
        experts = [(part.experts, part.chosen) for part in feed_forwards if isinstance(part, MixtureOfExperts)]
        check_routing(self.routing, self.tokens, experts)
        named = {name for section in self.sections for name in section.layers}
        if not self.layers_in_order:
            raise problem("found no section of the model itself", "leave predicts out of some", "$.sections")
        plain = ("pre", "none", False)
        odd = [name for name, layer in self.layers.items() if (layer.norms, layer.parallel, layer.modulated) != plain]
        if self.streams is not None and (odd or self.predict):
            where = json_path("layers", odd[0]) if odd else "$.predict"
            raise problem("found beside several streams, which is not drawn", "write norms: pre only", where)
        if self.predict and (self.mode == "training" or not self.drawn_ends or self.head.kind != "logits"):
            message = "found prediction without logits, or in a training step"
            raise problem(message, "leave it out, or serve with ends", "$.predict")
        for name in self.layers:
            if name in (FRONT, BACK, ENTRY, EXIT):
                raise problem(
                    f"found {name!r}, as the ends are called", "write another name", json_path("layers", name)
                )
            if self.layers[name].modulated and (self.condition is None or self.mode == "training"):
                message = (
                    "found it of a model without a condition, or in a training step, whose gradients are not drawn"
                )
                raise problem(message, "give a condition, and mode: forward", json_path("layers", name, "modulated"))
            if name not in named:
                raise problem(f"no section has a layer {name!r}", "leave it out", json_path("layers", name))
            for part, where in zip((self.layers[name].mixer, self.layers[name].feed_forward), _PARTS, strict=True):
                for segment in self.evaluation.segments:
                    if part and (misfit := part.misfit(segment, trains=self.mode == "training")):
                        raise problem(*misfit, json_path("layers", name, where))
        return self


Parameters = StackParameters


def counts(p: StackParameters) -> Counts:
    """Number of parameters of a model, undrawn ones included, and cached bytes per token.

    Examples
    --------
    Llama 3.1 8B:

    >>> attention = {"kind": "attention", "heads": 32, "kv_heads": 8, "head_dim": 128}
    >>> layer = {"mixer": attention, "feed_forward": {"kind": "mlp", "ffn": 14336}}
    >>> sections = [{"layers": ["layer"], "repeat": 32}]
    >>> counts(StackParameters(hidden=4096, vocab=128256, seq=8192, layers={"layer": layer}, sections=sections))
    Counts(parameters=8030261248, active=7504924672, bytes_per_token=131072, looked_up=525336576, logits=525336576)
    """
    total, active, kept = p.end_parameters(active=False), p.end_parameters(active=True), 0
    for name, times in p.times.items():
        layer = p.layers[name]
        norms = (
            modulation_parameters(p.hidden, PARTS * len(layer.parts))
            if layer.modulated
            else p.gains * layer.norms_of_layer
        )
        for part in layer.parts.values():
            total += times * part.parameters(p.hidden)
            active += times * part.active(p.hidden)
            kept += math.ceil(times * part.token_elements * p.words.kv)
        norms += 0 if p.streams is None else len(layer.parts) * p.streams.parameters(p.hidden)
        total, active = total + times * norms, active + times * norms
    predictors = len(p.modules) * predictor_parameters(p)
    logits = p.hidden * p.head.rows(p.vocab) if p.head.kind == "logits" else 0
    return Counts(total + predictors, active + predictors, kept, p.hidden * p.table_rows, logits)


def build(p: StackParameters, drawn: int = 1, **about: str) -> Graph:
    """Folded graph of a stack: one drawn layer for each kind.

    Of several kinds, kernels are called after theirs, ``KIND.NAME``.

    Parameters
    ----------
    p
        The model, and the tokens of one evaluation.
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
    several, routing, inner = len(p.times) > 1, p.routing or Routing(), p.layers_in_order
    parts = [part for name in p.times for part in p.layers[name].parts.values()]
    notes = dict.fromkeys(text for part in parts if (text := part.note(p.tokens, routing)))
    if notes:
        about["description"] = f"{about.get('description', '')} ({'; '.join(notes)})".strip()
    kinds = {name: _kind(name, p, several=several or bool(p.modules)) for name in p.times}
    names = [name for section in inner for name in section.layers]
    sections: tuple[Section, ...] | None = tuple(Section(layers=part.layers, repeat=part.repeat) for part in inner)
    if not several and not p.modules:
        sections = repeated(sum(section.count for section in inner))
    graphs, modules = ([kinds[name][0] for name in kinds if (name in names) == own] for own in (True, False))
    brought = set[tuple[str, int]]().union(*(operands for _, operands in kinds.values()))
    graph = Graph(
        **about,
        **p.sized,
        variant=p.variant,
        architecture=architecture_of(p, [layer.parts for layer in p.layers.values()]),
        sections=sections,
        kernels=[k for back in (False, True) for g in graphs for k in g.kernels if (k.pass_ != "forward") == back],
        tensors=[tensor for kind in graphs for tensor in kind.tensors],
        carried=[tensor for kind in graphs for tensor in kind.carried],
    )
    first, last = kinds[names[0]][0].carried[0].dst, kinds[names[-1]][0].carried[0].src
    if drawn > 1:
        graph, first, last = unroll(graph, drawn), f"{first}.0", f"{last}.{drawn - 1}"
    graph = with_ends(graph, p, (first, last)) if p.drawn_ends else graph
    return _without_inputs(with_predictors(graph, p, p.modules, modules), brought)


def _kind(name: str, p: StackParameters, *, several: bool) -> tuple[Graph, set[tuple[str, int]]]:
    """One kind of layer by itself, and the operands that its states bring; of several, kernels are called after it."""
    drawing = p.drawing()
    first, last = _draw(p.layers[name], p, drawing)
    handed_on = (Tensor(src=last, dst=first),)
    graph = Graph(name=name, **p.sized, kernels=drawing.kernels, tensors=drawing.tensors, carried=handed_on)
    if p.mode == "training":
        graph = recomputes(_trained(_with_outputs_kept(graph, p), drawing), p.recompute)
    if not several:
        return graph, drawing.from_states

    def called(kernel: str) -> str:
        return f"{name}.{kernel}"

    kernels = tuple(renamed(kernel, called, layer=name) for kernel in graph.kernels)
    tensors, carried = (tuple(renamed(tensor, called) for tensor in some) for some in (graph.tensors, graph.carried))
    kind = graph.model_copy(update={"kernels": kernels, "tensors": tensors, "carried": carried})
    return kind, {(called(kernel), operand) for kernel, operand in drawing.from_states}


def variants(p: StackParameters) -> tuple[dict[str, Form | tuple[Form, ...]], ...]:
    """Parameter changes for graphs that compute the same: the other form of open latent attention.

    Examples
    --------
    >>> mixer = {"kind": "mla", "heads": 4, "rank": 4, "nope_dim": 2, "rotary_dim": 2, "value_dim": 2}
    >>> sections = [{"layers": ["layer"]}]
    >>> variants(StackParameters(hidden=8, vocab=9, seq=16, layers={"layer": {"mixer": mixer}}, sections=sections))
    ({'form': 'absorbed'},)
    """
    if p.forms is None or p.form is not None:
        return ()
    every = itertools.product(get_args(Form), repeat=len(p.forms))
    return tuple({"form": forms if len(forms) > 1 else forms[0]} for forms in every if forms != p.forms)


def _without_inputs(graph: Graph, brought: Set[tuple[str, int]]) -> Graph:
    """A graph that does not read from DRAM what states bring: operands as pairs of a kernel and its place."""
    if not brought:
        return graph
    read = [(graph.kernels[place].name, operand, size) for place, operand, size in graph.reads()]
    kept = ((dst, o, size) for dst, o, size in read if (dst, o) not in brought)
    return graph.model_copy(update={"inputs": tuple(Input(dst=dst, operand=o, bytes=size) for dst, o, size in kept)})


def _draw(layer: LayerKind, p: StackParameters, drawing: Drawing) -> tuple[str, str]:
    """Draw a layer; gives its first and its last kernel."""

    def norm(number: int, source: str, behind: str = "") -> str:
        name, scales = f"{NORMS[p.norm]}_{number}{behind}", scaled.get(number, ())
        return drawing.pointwise(name, p.hidden, source, *scales, normalizes=True, role="norm")

    def add(number: int, *summands: str) -> str:
        added = drawing.pointwise(f"Add_{number}", p.hidden, *summands, *gated.get(number, ()), role="residual")
        if "hidden" in drawing.drops:  # in the same kernel
            drawing.masked(added)
        return added

    def draw(number: int, source: str) -> str:
        since = len(drawing.kernels)
        out = layer.parts[number].draw(drawing, p.hidden, source)
        drawing.of_module("mixer" if number == 1 else "dense", since)
        return out

    first = residual = drawing.pointwise("Residual_In", p.residual, role="residual")
    scaled, gated = modulation(drawing, p.hidden, len(layer.parts)) if layer.modulated else ({}, {})
    if layer.parallel != "none":
        normed = {1: norm(1, residual)}
        normed[2] = norm(2, residual) if layer.parallel == "own" else normed[1]
        return first, add(1, *(draw(n, normed[n]) for n in layer.parts), residual)
    for number in layer.parts:
        if p.streams is not None:
            read = norm(number, p.streams.read(drawing, number, p.hidden, residual))
            residual = p.streams.write(drawing, number, p.hidden, draw(number, read), residual)
            continue
        before, behind = layer.norms in ("pre", "pre_post"), layer.norms in ("pre_post", "post")
        out = draw(number, norm(number, residual) if before else residual)
        out = norm(number, out, "_Post" if before else "") if behind else out
        residual = add(number, out, residual)
        residual = norm(number, residual) if layer.norms == "after" else residual
    return first, residual


def _with_outputs_kept(graph: Graph, p: StackParameters) -> Graph:
    """Where products keep converted copies, what attention gives is kept beside them if no scores are.

    A kernel for all of attention makes gradients of scores from it (FlashAttention-2, arXiv:2307.08691, algorithm 2).
    """
    if p.dtypes is None or p.dtypes.saved is None or "attention" not in p.recompute:
        return graph
    kept = (k.model_copy(update={"output_saved": True}) if k.role == "context" else k for k in graph.kernels)
    return graph.model_copy(update={"kernels": tuple(kept)})


def _trained(graph: Graph, drawing: Drawing) -> Graph:
    """The layer with its backward pass."""
    level, index = graph.levels(), graph.index()
    order = sorted(level, key=lambda name: (-level[name], index[name]))
    return backward_of(graph, drawing.rules, sum_kernels=drawing.sum_kernels, order=order)
