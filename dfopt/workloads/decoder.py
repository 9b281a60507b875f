"""A layer of a modern dense decoder (Llama, Qwen, Mistral, Gemma, GPT): prefill of a whole prompt, or a training step.

Against :mod:`dfopt.workloads.transformer`, which keeps to DFModel's list of kernels: grouped-query attention,
rotary position embedding, RMSNorm or LayerNorm, a gated or a plain MLP, and no dropout.

In grouped-query attention a K/V head serves ``heads / kv_heads`` query heads. The products of attention count
every query head, while the tensors that bring K and V to them are as large as the K/V heads: a head is read by
its whole group and copied for none. Over more tensor-parallel chips than K/V heads, a chip computes and holds
one whole K/V head, as implementations do. A single K/V head (multi-query attention) is split by its features
instead, and what collecting them on every chip costs is not counted.

A graph that repeats one layer cannot draw what a model has once: embedding, final norm and logits. With all layers
drawn, ``ends`` adds them; `parameter_count` always counts them. Neither drawn nor priced are biases and norms of Q
and K. Scores are counted in full unless ``causal`` is set, as in ``transformer``.

With ``experts`` the MLP is a grouped product: as wide as the experts that a token chooses, side by side, with weights
that are held for all and read for those that some token of an evaluation chooses. Chips share every expert; experts
that lie on different chips are not drawn.

``mode: training`` adds the backward pass and the weight updates, see :mod:`dfopt.workloads.backward`. With grouped
queries the gradients of K and V come out per query head and are then added up over each group (``K_Sum_bwd``,
``V_Sum_bwd``), which is how kernels for it work. Not drawn: gradients of the norms' gains.
"""

from __future__ import annotations

from dfopt.documents.graph import Graph, Role
from dfopt.workloads.backward import Gradient, backward_of
from dfopt.workloads.decoder_ends import with_ends
from dfopt.workloads.decoder_parameters import DecoderParameters, parameter_count
from dfopt.workloads.sketch import Read, Sketch
from dfopt.workloads.unroll import unroll

__all__ = ["DecoderParameters", "Parameters", "build", "parameter_count"]

Parameters = DecoderParameters


def build(p: DecoderParameters, **about: str) -> Graph:
    """One decoder layer as a graph that stands for all of them.

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
    if p.routed is not None:
        said = f"uniform routing: of {p.experts} experts an evaluation reads {p.routed.touched:.4g}"
        about["description"] = f"{about.get('description', '')} ({said})".strip()
    graph = p.graph(_forward(p), **about)
    if p.mode == "training":
        graph = p.trained(_trained(graph))
    drawn = graph if p.drawn == 1 else unroll(graph, p.drawn)
    return with_ends(drawn, p) if p.drawn_ends else drawn


def _forward(p: DecoderParameters) -> Sketch:
    hidden, head_dim, keys = p.hidden, p.head_dim, p.segment.keys
    sketch = Sketch()
    draw = sketch.draw

    def norm(which: str, source: str) -> str:
        return draw(p.pointwise(f"{p.norm_name}_{which}", hidden, normalizes=True, role="norm"), source)

    residual = draw(p.pointwise("Residual_In", hidden, role="residual"))
    normed = norm("1", residual)
    q = draw(p.linear("Q_Proj", head_dim, hidden, outer=p.heads), normed)
    k = draw(p.linear("K_Proj", head_dim, hidden, outer=p.groups), normed)
    v = draw(p.linear("V_Proj", head_dim, hidden, outer=p.groups), normed)
    if p.rotary:
        q, k = draw(p.by_head("Q_RoPE", p.heads), q), draw(p.by_head("K_RoPE", p.groups), k)
    # Stated, because a product that counts every query head would expect a K and a V of as many heads, and of all keys.
    shared = float(p.groups * head_dim * p.tokens * p.word_bytes) if p.group > 1 or p.segment.cached else None
    product = p.attention("QK", m=keys, k=head_dim, role="scores", states=p.cache("keys"))
    scores = draw(product, Read(q, 1), Read(k, 2, shared))
    weights = draw(p.scores("Softmax", "softmax", normalizes=True), scores)
    product = p.attention("AV", m=head_dim, k=keys, role="context", states=p.cache("values"))
    attended = draw(product, Read(v, 2, shared), Read(weights, 1))
    out = draw(p.linear("O_Proj", hidden, p.width), attended)
    out = norm("1_Post", out) if p.post_norm else out
    residual = draw(p.pointwise("Add_1", hidden, role="residual"), out, residual)
    normed = norm("2", residual)
    shares: tuple[Read, ...] = ()
    if p.experts is not None:  # the shares of a token's experts, with which their outputs are added up
        router = draw(p.linear("Router", p.experts, hidden, role="router"), normed)
        top = draw(p.pointwise("Top_K", p.experts, normalizes=True), router)
        shares = (Read(top, None, float(p.chosen * p.tokens * p.word_bytes)),)

    def into_mlp(name: str, role: Role) -> str:
        return draw(p.linear(name, p.inside, hidden, role=role, experts=p.routed), normed)

    gate = (into_mlp("Gate_Proj", "gate"),) if p.gated_mlp else ()
    up = into_mlp("Up_Proj", "up")
    name = "Act_Mul" if p.gated_mlp else "Act"
    inside = draw(p.pointwise(name, p.inside, role="activation"), *gate, up, *shares)
    out = draw(p.linear("Down_Proj", hidden, p.inside, experts=p.routed), inside)
    draw(p.pointwise("Add_2", hidden, role="residual"), norm("2_Post", out) if p.post_norm else out, residual)
    return sketch


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
