"""A decoder of equal layers (Llama, Qwen, Mistral, Gemma, GPT), dense or of experts: the short form of a stack.

Against :mod:`dfopt.workloads.transformer`, which keeps to DFModel's list of kernels: grouped-query attention,
rotary position embedding, RMSNorm or LayerNorm, a gated or a plain MLP or experts, and no dropout but of scores.

A graph that repeats one layer cannot draw what a model has once: embedding, final norm and logits. With all layers
drawn, ``ends`` adds them; `counts` always counts them. Neither drawn nor priced are biases and norms of Q
and K. Scores are counted in full unless ``causal`` is set, as in ``transformer``.
"""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from dfopt.documents.base import problem
from dfopt.documents.graph import Graph
from dfopt.documents.published import Counts
from dfopt.workloads import stack
from dfopt.workloads.checks import check_routing
from dfopt.workloads.layer import LayerParameters
from dfopt.workloads.recompute import checkpointed, without_full
from dfopt.workloads.step import ServingParameters


class DecoderParameters(LayerParameters, ServingParameters):
    """Parameters of a decoder-only transformer.

    ``heads * head_dim`` may differ from ``hidden``, as it does in Qwen3, Gemma and Mistral Nemo. Fields that are only
    for the parameter count do not change the graph.

    Attributes
    ----------
    heads : heads, e.g. 32
        Number of query heads of each layer.
    kv_heads : heads, e.g. 8
        Number of heads of keys and of values, a divisor of ``heads`` (grouped-query attention). None: as many as query
        heads.
    rotary : e.g. true
        Whether queries and keys have a rotary position embedding.
    ffn : features, e.g. 14336
        Features inside the MLP of each layer, or inside each expert.
    experts : experts, e.g. 8
        Number of experts in the MLP of every layer. None: 1, a dense MLP.
    chosen : experts, e.g. 2
        Number of experts that the router selects for every token.
    gated_mlp : e.g. true
        Whether the MLP has a gate projection in addition to up and down projections.
    norm : e.g. rmsnorm
        Normalization that the layers use. ``rmsnorm``: root mean square, without a bias. ``layernorm``: mean and
        variance, with a bias.
    post_norm : e.g. false
        Whether a norm also follows attention and the MLP, as in Gemma 2.
    vocab : tokens, e.g. 128256
        Size of the vocabulary, which is the number of rows of the embedding.
    tie_embeddings : e.g. false
        Whether the logits use the matrix of the embedding.
    learned_positions : positions, e.g. 1024
        Rows of a learned position embedding. It changes the parameter count only.
    bias : e.g. none
        Projections that add a bias. It changes the parameter count only. ``none``: no projection. ``qkv``: those of
        queries, keys and values. ``all``: all projections.
    qk_norm : e.g. none
        Normalization of queries and keys, which exports to other tools need and the graph leaves out. ``none``: no
        normalization. ``head``: over each head. ``all``: over all heads together.
    rotary_base : no unit, e.g. 500000.0
        Base of the rotary position embedding (theta). Exports to other tools need it, and no cost depends on it. None:
        unknown.
    rotary_scaling : no unit, e.g. 8.0
        Factor by which rotary positions are scaled for long contexts. Exports to other tools need it, and no cost
        depends on it. None: unknown.
    window : tokens, e.g. 4096
        Tokens that local layers attend to at most. None: no layer is local.
    global_every : layers, e.g. 6
        Distance in layers from one layer with global attention to the next, in a model with a ``window``. 0 means no
        layer is global. None: unknown, so samples must fit into the window.

    Examples
    --------
    >>> DecoderParameters(hidden=64, heads=8, kv_heads=2, head_dim=8, ffn=192, vocab=1000, seq=32).layers
    1
    """

    heads: int = Field(ge=1, le=10**5)
    kv_heads: int | None = Field(default=None, ge=1, le=10**5)
    rotary: bool = True
    ffn: int = Field(ge=1, le=10**8)
    experts: int | None = Field(default=None, ge=1, le=10**6)
    chosen: int = Field(default=1, ge=1, le=10**6)
    gated_mlp: bool = True
    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    post_norm: bool = False
    vocab: int = Field(ge=1, le=10**9)
    tie_embeddings: bool = False
    learned_positions: int = Field(default=0, ge=0, le=10**9)
    bias: Literal["none", "qkv", "all"] = "none"
    qk_norm: Literal["none", "head", "all"] = "none"
    rotary_base: float | None = Field(default=None, gt=0)
    rotary_scaling: float | None = Field(default=None, gt=0)
    window: int | None = Field(default=None, ge=1, le=10**8)
    global_every: int | None = Field(default=None, ge=0, le=10**6)

    @property
    def looks_away(self) -> bool:
        """Whether a window hides tokens of a sample from each other."""
        return self.window is not None and self._keys > self.window

    @property
    def _keys(self) -> int:
        """Tokens of the longest sequence."""
        return max(segment.keys for segment in self.evaluation.segments)

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.heads % (self.kv_heads or self.heads):
            raise problem(
                f"found {self.kv_heads} K/V heads, expected a divisor of the {self.heads} query heads",
                "choose a divisor, or leave it out",
                "$.kv_heads",
            )
        if self.chosen > (self.experts or 1):
            message = f"found {self.chosen} experts for a token, of {self.experts or 1}"
            raise problem(message, "at most all of them: see experts", "$.chosen")
        check_routing(self.routing, self.tokens, [(self.experts, self.chosen)] if self.experts else [])
        if self.global_every is not None and self.window is None:
            raise problem("found it without a window", "leave it out, or write a window", "$.global_every")
        if self.looks_away:
            self._check_layers(self._keys)
        return self

    def _check_layers(self, keys: int) -> None:
        """Refuse samples longer than the window, if it is not known of which layers, or cannot be drawn."""
        if self.global_every is None:
            raise problem(
                f"found {keys} tokens in a sample, but local layers attend to {self.window}: layers would differ",
                "shorten seq, leave window out to let every layer attend to all tokens, or write global_every",
                "$.seq",
            )
        if any(segment.sees != "causal" for segment in self.evaluation.segments):
            message = f"found {keys} tokens, of which local layers attend to {self.window} before them, but no mask"
            raise problem(message, "write causal: true or a phase, or shorten seq", "$.seq")
        if self.at_once > 1:
            raise problem(f"found {self.at_once} drawn layers, but layers differ", "leave it out", "$.drawn")


Parameters = DecoderParameters


def build(p: DecoderParameters, **about: str) -> Graph:
    """Folded graph of one decoder layer.

    Returns
    -------
    Graph
        18 kernels and 22 tensors per drawn layer; 2 kernels and 2 tensors less without rotary embedding, 1 and 2
        less with a plain MLP, 2 and 2 more with norms behind attention and MLP. With ``ends`` three kernels more in
        all. Training adds 28 kernels, 2 more for grouped queries, and less or more with the same options.

    Examples
    --------
    >>> sizes = DecoderParameters(
    ...     hidden=64, heads=8, kv_heads=2, head_dim=8, ffn=192, vocab=1000, seq=32, layers=4
    ... )
    >>> graph = build(sizes, name="small")
    >>> len(graph.kernels), len(graph.tensors), graph.repeat
    (18, 22, 4)
    >>> [graph.output_bytes(name) for name in ("Q_Proj", "K_Proj", "V_Proj")]
    [4096.0, 1024.0, 1024.0]
    """
    every = p.checkpoint_every or 1
    inside = p if every == 1 else p.model_copy(update={"recompute": without_full(p.recompute)})
    graph = stack.build(as_stack(inside), drawn=p.drawn if every == 1 else every, **about)
    normed = graph.architecture and graph.architecture.model_copy(update={"qk_norm": p.qk_norm})
    graph = graph.model_copy(update={"architecture": normed})
    return graph if every == 1 else checkpointed(graph, p.recompute, every)


def as_stack(p: DecoderParameters) -> stack.StackParameters:
    """A decoder as a stack of one kind of layer, or of two (local and global attention).

    Examples
    --------
    >>> sizes = DecoderParameters(hidden=64, heads=8, head_dim=8, ffn=192, vocab=1000, seq=32, layers=4)
    >>> as_stack(sizes).times
    {'layer': 4}
    >>> local = sizes.model_copy(update={"window": 16, "global_every": 3, "causal": True})
    >>> as_stack(local).times
    {'local': 3, 'global': 1}
    """
    inside: dict[str, Any] = {"ffn": p.ffn, "gated": p.gated_mlp, "bias": p.bias == "all"}
    experts = {"kind": "moe", "experts": p.experts, "chosen": p.chosen}
    layer: dict[str, Any] = {
        "mixer": {
            "kind": "attention",
            "heads": p.heads,
            "kv_heads": p.kv_heads,
            "head_dim": p.head_dim,
            "rotary_dim": None if p.rotary else 0,
            "bias": p.bias,
        },
        "feed_forward": inside | ({"kind": "mlp"} if p.experts is None else experts),
        "norms": "pre_post" if p.post_norm else "pre",
    }
    mixer = layer["mixer"]
    kinds: dict[str, Any] = {"layer": layer}
    pattern: list[str] = ["layer"]
    if p.looks_away:
        kinds = {"local": {**layer, "mixer": {**mixer, "window": p.window}}, "global": layer}
        pattern = ["local"] * ((p.global_every or 2) - 1) + ["global"] * (p.global_every != 0)
    times, rest = divmod(p.layers, len(pattern))
    sections = [(pattern, times), (pattern[:rest], 1)]
    used = {name for names, count in sections for name in names if count}
    shared = p.model_fields_set & stack.StackParameters.model_fields.keys() - {"layers"}
    return stack.StackParameters(
        **{name: getattr(p, name) for name in shared},
        layers={name: kind for name, kind in kinds.items() if name in used},
        sections=[{"layers": names, "repeat": count} for names, count in sections if names and count],
    )


def counts(p: DecoderParameters) -> Counts:
    """Sizes of a decoder, as :func:`dfopt.workloads.stack.counts` computes them.

    Examples
    --------
    Llama 3.1 8B:

    >>> llama = DecoderParameters(
    ...     hidden=4096, heads=32, kv_heads=8, head_dim=128, ffn=14336, layers=32, vocab=128256, seq=8192
    ... )
    >>> counts(llama).parameters
    8030261248
    """
    return stack.counts(as_stack(p))
