"""A layer of a modern dense decoder (Llama, Qwen, Mistral, Gemma, GPT): prefill of a whole prompt, or a training step.

Against :mod:`dfopt.workloads.transformer`, which keeps to DFModel's list of kernels: grouped-query attention,
rotary position embedding, RMSNorm or LayerNorm, a gated or a plain MLP, and no dropout.

In grouped-query attention a K/V head serves ``heads / kv_heads`` query heads. The products of attention count
every query head, while the tensors that bring K and V to them are as large as the K/V heads: a head is read by
its whole group and copied for none. Over more tensor-parallel chips than K/V heads, a chip computes and holds
one whole K/V head, as implementations do. A single K/V head (multi-query attention) is split by its features
instead, and what collecting them on every chip costs is not counted.

A graph that repeats one layer cannot draw what a model has once: embedding, final norm and logits. With all layers
drawn, ``ends`` adds them; `parameter_count` always counts them. Neither drawn nor priced are biases, norms of Q and
K, and the causal mask: scores are counted in full, as in ``transformer``.

``mode: training`` adds the backward pass and the weight updates, see :mod:`dfopt.workloads.backward`. With grouped
queries the gradients of K and V come out per query head and are then added up over each group (``K_Sum_bwd``,
``V_Sum_bwd``), which is how kernels for it work. Not drawn: gradients of the norms' gains.
"""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from dfopt.documents.base import Part, problem
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.workloads.backward import Gradient, backward_of
from dfopt.workloads.checks import check_batch, check_drawn
from dfopt.workloads.decoder_ends import Ends, with_ends
from dfopt.workloads.layer import Layer, Wire, wires
from dfopt.workloads.unroll import unroll

__all__ = ["DecoderParameters", "Parameters", "build", "parameter_count"]


class DecoderParameters(Part):
    """What a decoder is built from.

    ``heads * head_dim`` may differ from ``hidden``, as it does in Qwen3, Gemma and Mistral Nemo. What is said to
    be for the parameter count changes nothing in the graph.

    Examples
    --------
    >>> DecoderParameters(hidden=64, heads=8, kv_heads=2, head_dim=8, ffn=192, vocab=1000, seq=32).group
    4
    """

    hidden: int = Field(ge=1, le=10**7, description="features of the residual stream")
    heads: int = Field(ge=1, le=10**5, description="query heads")
    kv_heads: int | None = Field(
        default=None, ge=1, le=10**5, description="heads of K and of V, a divisor of heads; as many if left out"
    )
    head_dim: int = Field(ge=1, le=10**6, description="features of one head")
    rotary: bool = Field(default=True, description="rotary position embedding of Q and K")
    ffn: int = Field(ge=1, le=10**8, description="features inside the MLP")
    gated_mlp: bool = Field(default=True, description="gate, up and down projection, or up and down only")
    norm: Literal["rmsnorm", "layernorm"] = Field(default="rmsnorm", description="LayerNorm has a bias, RMSNorm none")
    post_norm: bool = Field(default=False, description="a norm behind attention and behind the MLP too, as in Gemma 2")
    layers: int = Field(default=1, ge=1, le=10**6, description="identical layers")
    drawn: int = Field(default=1, ge=1, le=10**4, description="layers drawn one after another, a divisor of layers")
    vocab: int = Field(ge=1, le=10**9, description="rows of the embedding; for ends and the parameter count")
    tie_embeddings: bool = Field(
        default=False, description="logits with the embedding's matrix; for ends and the parameter count"
    )
    learned_positions: int = Field(
        default=0, ge=0, le=10**9, description="rows of a learned position embedding; for the parameter count"
    )
    bias: Literal["none", "qkv", "all"] = Field(
        default="none", description="projections with a bias; for the parameter count"
    )
    published_parameters: int | None = Field(
        default=None, ge=1, le=10**15, description="as published, to compare the parameter count with"
    )
    mode: Literal["forward", "training"] = Field(default="forward", description="forward pass only, or a training step")
    ends: bool = Field(
        default=False, description="draw embedding, final norm and logits too; they load the first and last stage"
    )
    seq: int = Field(ge=1, le=10**8, description="tokens in a sample")
    window: int | None = Field(
        default=None, ge=1, le=10**8, description="tokens that local layers attend to; seq must fit, none if left out"
    )
    microbatch: int = Field(default=1, ge=1, le=10**6, description="samples in one evaluation of the graph")
    batch: int | None = Field(
        default=None, ge=1, le=10**12, description="samples in one step; one microbatch if left out"
    )
    word_bytes: int = Field(default=2, ge=1, le=16, description="bytes per element")

    @property
    def groups(self) -> int:
        """Heads of K and of V, each with a group of query heads."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def group(self) -> int:
        """Query heads that share a K/V head."""
        return self.heads // self.groups

    @property
    def norm_name(self) -> str:
        """What the norms are called."""
        return "RMSNorm" if self.norm == "rmsnorm" else "LayerNorm"

    @property
    def samples(self) -> int:
        """Samples in one step."""
        return self.microbatch if self.batch is None else self.batch

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.heads % self.groups:
            raise problem(
                f"found {self.groups} K/V heads, expected a divisor of the {self.heads} query heads",
                "choose a divisor, or leave it out",
                "$.kv_heads",
            )
        if self.window is not None and self.seq > self.window:
            raise problem(
                f"found {self.seq} tokens in a sample, but local layers attend to {self.window}: layers would differ",
                "shorten seq, or leave window out to let every layer attend to all tokens",
                "$.seq",
            )
        check_batch(self.batch, self.microbatch)
        check_drawn(self.drawn, self.layers)
        return self


Parameters = DecoderParameters


def parameter_count(parameters: DecoderParameters) -> int:
    """Parameters of the whole model, with what the graph does not draw.

    Embedding, logits unless tied to it, learned positions if any, the matrices of attention and MLP, their biases
    where ``bias`` says so, the norms of every layer and the final one. Norms of Q and K are left out: they hold
    ``2 * head_dim`` elements a layer.

    Examples
    --------
    Llama 3.1 8B:

    >>> llama = DecoderParameters(
    ...     hidden=4096, heads=32, kv_heads=8, head_dim=128, ffn=14336, layers=32, vocab=128256, seq=8192
    ... )
    >>> parameter_count(llama)
    8030261248
    """
    p = parameters
    width, kv_width, into_mlp = p.heads * p.head_dim, p.groups * p.head_dim, 2 if p.gated_mlp else 1
    attention = p.hidden * (width + 2 * kv_width) + width * p.hidden
    mlp = (into_mlp + 1) * p.hidden * p.ffn
    biases = 0 if p.bias == "none" else width + 2 * kv_width
    if p.bias == "all":
        biases += p.hidden + into_mlp * p.ffn + p.hidden
    norm = p.hidden * (2 if p.norm == "layernorm" else 1)
    layer = attention + mlp + biases + norm * (4 if p.post_norm else 2)
    embeddings = p.vocab * (1 if p.tie_embeddings else 2) + p.learned_positions
    return p.layers * layer + norm + p.hidden * embeddings


def build(name: str = "decoder", description: str = "", source: str = "", **parameters: Any) -> Graph:
    """One decoder layer as a graph that stands for all of them.

    Parameters
    ----------
    name, description, source
        As in `Graph`.
    **parameters
        Fields of `DecoderParameters`.

    Returns
    -------
    Graph
        18 kernels and 22 tensors per drawn layer; 2 kernels and 2 tensors less without rotary embedding, 1 and 2
        less with a plain MLP, 2 and 2 more with norms behind attention and MLP. With ``ends`` three kernels more in
        all. Training adds 28 kernels, 2 more for grouped queries, and less or more with the same options.

    Raises
    ------
    pydantic.ValidationError
        For a parameter that is unknown, missing or out of range.

    Examples
    --------
    >>> graph = build(hidden=64, heads=8, kv_heads=2, head_dim=8, ffn=192, vocab=1000, seq=32, layers=4)
    >>> len(graph.kernels), len(graph.tensors), graph.repeat
    (18, 22, 4)
    >>> [graph.output_bytes(name) for name in ("Q_Proj", "K_Proj", "V_Proj")]
    [4096.0, 1024.0, 1024.0]
    """
    p = DecoderParameters(**parameters)
    graph = Graph(
        name=name,
        description=description,
        source=source,
        repeat=p.layers,
        word_bytes=p.word_bytes,
        microbatch=p.microbatch,
        batch=p.samples,
        tokens_per_sample=p.seq,
        kernels=_kernels(p),
        tensors=_tensors(p),
        carried=(Tensor(src="Add_2", dst="Residual_In"),),
    )
    if p.mode == "training":
        graph = _trained(graph)
    drawn = graph if p.drawn == 1 else unroll(graph, p.drawn)
    if not p.ends:
        return drawn
    return with_ends(drawn, Ends(_layer(p), p.vocab, p.learned_positions, p.tie_embeddings, p.norm_name, p.drawn))


def _trained(graph: Graph) -> Graph:
    """The layer with its backward pass."""
    level, index = graph.levels(), graph.index()
    gate, up = ("Gate_Proj",), ("Up_Proj",)
    summed = "K_RoPE" if "K_RoPE" in index else "K_Proj"
    rules: dict[str, Gradient | tuple[Gradient, ...]] = {
        "Q_RoPE": Gradient(reads=()),
        "K_RoPE": Gradient(reads=()),
        "QK": (Gradient("QK_bwd_queries"), Gradient("QK_bwd_keys", turned=True)),
        "Softmax": Gradient(reads=("Softmax",)),
        "AV": (Gradient("AV_bwd_scores"), Gradient("AV_bwd_values", turned=False)),
        "Act_Mul": (
            Gradient("Act_Mul_bwd_gate", of=gate, reads=gate + up),
            Gradient("Act_Mul_bwd_up", of=up, reads=gate),
        ),
    }
    return backward_of(
        graph,
        {name: rule for name, rule in rules.items() if name in index},
        sums={summed: ("K_Sum_bwd", "K_Proj"), "V_Proj": ("V_Sum_bwd", "V_Proj")},
        order=sorted(level, key=lambda name: (-level[name], index[name])),
    )


def _layer(p: DecoderParameters) -> Layer:
    return Layer(p.hidden, p.heads, p.head_dim, p.ffn, p.seq, p.microbatch)


def _norm(p: DecoderParameters, which: str) -> str:
    return f"{p.norm_name}_{which}"


def _kernels(p: DecoderParameters) -> tuple[Kernel, ...]:
    layer = _layer(p)
    hidden, head_dim, seq = p.hidden, p.head_dim, p.seq

    def norm(which: str) -> Kernel:
        return layer.pointwise(_norm(p, which), hidden, normalizes=True)

    rotary = (layer.by_head("Q_RoPE", p.heads), layer.by_head("K_RoPE", p.groups)) if p.rotary else ()
    gate = (layer.linear("Gate_Proj", p.ffn, hidden),) if p.gated_mlp else ()
    return (
        layer.pointwise("Residual_In", hidden),
        norm("1"),
        layer.linear("Q_Proj", head_dim, hidden, outer=p.heads),
        layer.linear("K_Proj", head_dim, hidden, outer=p.groups),
        layer.linear("V_Proj", head_dim, hidden, outer=p.groups),
        *rotary,
        layer.attention("QK", m=seq, k=head_dim),
        layer.scores("Softmax", normalizes=True),
        layer.attention("AV", m=head_dim, k=seq),
        layer.linear("O_Proj", hidden, layer.width),
        *((norm("1_Post"),) if p.post_norm else ()),
        layer.pointwise("Add_1", hidden),
        norm("2"),
        *gate,
        layer.linear("Up_Proj", p.ffn, hidden),
        layer.pointwise("Act_Mul" if p.gated_mlp else "Act", p.ffn),
        layer.linear("Down_Proj", hidden, p.ffn),
        *((norm("2_Post"),) if p.post_norm else ()),
        layer.pointwise("Add_2", hidden),
    )


def _tensors(p: DecoderParameters) -> tuple[Tensor, ...]:
    """In the order of the consumers. Operands of a product: 1 is its k x n side, 2 its m x k side."""
    into, into_mlp = _norm(p, "1"), _norm(p, "2")
    q, k = ("Q_RoPE", "K_RoPE") if p.rotary else ("Q_Proj", "K_Proj")
    act = "Act_Mul" if p.gated_mlp else "Act"
    rotary: list[Wire] = [("Q_Proj", q), ("K_Proj", k)] if p.rotary else []
    gate: list[Wire] = [(into_mlp, "Gate_Proj")] if p.gated_mlp else []
    gated: list[Wire] = [("Gate_Proj", act)] if p.gated_mlp else []
    attended, mlp_out = "O_Proj", "Down_Proj"
    after: list[Wire] = []
    after_mlp: list[Wire] = []
    if p.post_norm:
        attended, mlp_out = _norm(p, "1_Post"), _norm(p, "2_Post")
        after, after_mlp = [("O_Proj", attended)], [("Down_Proj", mlp_out)]
    found = wires(
        [
            ("Residual_In", into),
            (into, "Q_Proj"),
            (into, "K_Proj"),
            (into, "V_Proj"),
            *rotary,
            (q, "QK", 1),  # head_dim x queries
            (k, "QK", 2),  # keys x head_dim
            ("QK", "Softmax"),
            ("V_Proj", "AV", 2),  # head_dim x keys
            ("Softmax", "AV", 1),  # keys x queries
            ("AV", "O_Proj"),
            *after,
            (attended, "Add_1"),
            ("Residual_In", "Add_1"),
            ("Add_1", into_mlp),
            *gate,
            (into_mlp, "Up_Proj"),
            *gated,
            ("Up_Proj", act),
            (act, "Down_Proj"),
            *after_mlp,
            (mlp_out, "Add_2"),
            ("Add_1", "Add_2"),
        ]
    )
    # Stated, because a product that counts every query head would expect a K and a V of as many heads.
    kv_bytes = p.groups * p.head_dim * p.seq * p.microbatch * p.word_bytes
    shared = {(k, "QK"), ("V_Proj", "AV")} if p.group > 1 else set()
    return tuple(t.model_copy(update={"bytes": float(kv_bytes)}) if (t.src, t.dst) in shared else t for t in found)
