"""A GPT-style transformer layer, forward only or with its backward pass and weight updates.

The kernels, their shapes, the tensors and the order of both are those of DFModel's generator
(github.com/fengqian-ayce/DFModel, commit 04f93d5), so that results can be compared kernel by kernel: 18
kernels and 21 tensors forward, 41 and 53 with training. What it leaves out is left out here too: embedding,
the final classifier, biases, the optimizer, the backward pass of ``LayerNorm_1`` and the sums of residual
gradients.
"""

from __future__ import annotations

import math
from typing import Any, Final, Self

from pydantic import model_validator

from dfopt.documents.architecture import Architecture
from dfopt.documents.base import problem
from dfopt.documents.graph import Graph, Tensor
from dfopt.documents.published import Counts
from dfopt.documents.sections import repeated
from dfopt.workloads.backward import Gradient, backward_of
from dfopt.workloads.drawing import Attending, Drawing
from dfopt.workloads.layer import PlainLayerParameters
from dfopt.workloads.recompute import checkpointed, recomputes, without_full
from dfopt.workloads.sketch import Read
from dfopt.workloads.unroll import unroll


class TransformerParameters(PlainLayerParameters):
    """Parameters of a GPT-style transformer.

    ``heads * head_dim`` may differ from ``hidden``: Q, K and V produce ``heads * head_dim`` features and the
    projection consumes them.

    Examples
    --------
    >>> TransformerParameters(hidden=768, heads=12, head_dim=64, seq=1024).ffn_features
    3072
    """

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.mode == "training" and self.hidden % self.heads:
            # The backward kernels of Q and K give every head an equal share of hidden, see `_trained`.
            raise problem(
                f"found {self.heads} heads for {self.hidden} hidden features, training needs a divisor",
                "choose a hidden size that is a multiple of heads, or mode: forward",
                "$.heads",
            )
        return self


Parameters = TransformerParameters


def counts(p: TransformerParameters) -> Counts:
    """Number of parameters of the drawn matrices, and KV-cache bytes per token.

    Examples
    --------
    >>> counts(TransformerParameters(hidden=768, heads=12, head_dim=64, seq=1024, layers=12)).parameters
    84934656
    """
    matrices = p.layers * 2 * p.hidden * (2 * p.width + p.ffn_features)
    return Counts(matrices, matrices, p.layers * math.ceil(2 * p.width * p.words.kv))


def build(p: TransformerParameters, **about: str) -> Graph:
    """Folded graph of one transformer layer: 18 kernels, or 41 in training, for each drawn layer.

    Examples
    --------
    >>> sizes = TransformerParameters(hidden=768, heads=12, head_dim=64, seq=1024, layers=12, mode="training")
    >>> graph = build(sizes, name="gpt")
    >>> len(graph.kernels), len(graph.tensors), graph.repeat, graph.trains
    (41, 53, 12, True)
    """
    layer = _forward(p)
    kernels, tensors = tuple(layer.kernels), tuple(layer.tensors)
    carried = (Tensor(src=kernels[-1].name, dst=kernels[0].name),)
    graph = Graph(
        **about,
        **p.sized,
        variant=p.variant,
        architecture=Architecture(norm="layernorm"),
        sections=repeated(p.layers),
        kernels=kernels,
        tensors=tensors,
        carried=carried,
    )
    if p.mode == "training":
        graph = _keeping(_trained(graph, p))
        every = p.checkpoint_every or 1
        graph = recomputes(graph, p.recompute if every == 1 else without_full(p.recompute))
        if every > 1:
            return checkpointed(unroll(graph, every), p.recompute, every)
    return graph if p.drawn == 1 else unroll(graph, p.drawn)


def _forward(p: TransformerParameters) -> Drawing:
    hidden, ffn, dim = p.hidden, p.ffn_features, p.head_dim
    layer = Drawing(p.evaluation.segments, p.words)
    draw, pointwise, linear = layer.draw, layer.pointwise, layer.linear
    # DFModel's program splits heads of all samples as one axis
    scores = Attending(p.heads * p.microbatch, 1, p.seq, p.seq, layer.segment.pairs())
    residual = pointwise("Add_Prev_Layer", hidden, role="residual")
    normed = pointwise("LayerNorm_1", hidden, residual, normalizes=True, role="norm")
    q, k, v = (linear(name, dim, hidden, normed, outer=p.heads) for name in ("Q", "K", "V"))
    attention = draw(scores.product("MHA_GEMM_1", p.seq, dim, "scores"), Read(q, 1), Read(k, 2))
    softmax = draw(scores.pointwise("SOFTMAX", "softmax", normalizes=True), attention)
    dropped = draw(scores.pointwise("DropOut_1", "scores_dropout"), softmax)
    attended = draw(scores.product("MHA_GEMM_2", dim, p.seq, "context"), Read(v, 2), Read(dropped, 1))
    projected = linear("PROJ_GEMM", hidden, p.width, attended)
    dropped = pointwise("DropOut_2", hidden, projected, role="dropout")
    residual = pointwise("Add_1", hidden, dropped, residual, role="residual")
    normed = pointwise("LayerNorm_2", hidden, residual, normalizes=True, role="norm")
    inside = pointwise("GeLU", ffn, linear("FFN0", ffn, hidden, normed, role="up"), role="activation")
    outside = linear("FFN1", hidden, ffn, inside)
    dropped = pointwise("DropOut_3", hidden, outside, role="dropout")
    pointwise("Add_2", hidden, dropped, residual, role="residual")
    return layer


def _trained(graph: Graph, p: TransformerParameters) -> Graph:
    """The layer with its backward pass, as DFModel draws it.

    Nothing elementwise reads a saved tensor, residual gradients are not added, and the gradient ends in front of
    ``LayerNorm_1``, where ``V_bwd`` stands for the sum of all three.
    """
    level = graph.levels() | {"V": graph.levels()["MHA_GEMM_2"] - 0.5}  # DFModel lists V behind the product
    # The heads' contributions to the gradient of the layer's input are sums over all heads. DFModel draws them as
    # `heads` GEMMs that each produce an equal share of the hidden features from the gradients of all heads.
    by_head = Gradient(fields={"outer": p.heads, "m": p.hidden // p.heads})
    pointwise = ("SOFTMAX", "DropOut_1", "DropOut_2", "LayerNorm_2", "GeLU", "DropOut_3")
    trained = backward_of(
        graph,
        {
            **dict.fromkeys(pointwise, Gradient(reads=())),
            "Add_2": Gradient("Loss_bwd", of=("DropOut_3",)),
            "Add_1": Gradient(drawn=False, of=("DropOut_2",)),
            "MHA_GEMM_2": (Gradient(), Gradient(turned=False)),
            "MHA_GEMM_1": (Gradient(), Gradient(turned=True)),
            "Q": by_head,
            "K": by_head,
            "LayerNorm_1": Gradient(drawn=False),
            "Add_Prev_Layer": Gradient(drawn=False),
        },
        order=sorted(level, key=lambda name: (-level[name], graph.index()[name])),
    )
    tensors = list(trained.tensors)
    for src, dst in _LATER:
        place = next(place for place, tensor in enumerate(tensors) if (tensor.src, tensor.dst) == (src, dst))
        tensors[place : place + 2] = reversed(tensors[place : place + 2])
    return trained.model_copy(update={"tensors": tuple(tensors)})


def _keeping(graph: Graph) -> Graph:
    """A graph that keeps in memory what real backward kernels read, although DFModel draws no tensor for it.

    Together with the tensors it is what Korthikanti et al. count, arXiv:2205.05198, section 4.1: s b h (34 + 5 a s / h)
    bytes in half precision.
    """
    kernels = (kernel.model_copy(update=_KEPT.get(kernel.name, {})) for kernel in graph.kernels)
    return graph.model_copy(update={"kernels": tuple(kernels)})


_OUTPUT: Final[dict[str, Any]] = {"output_saved": True}
_MASK: Final[dict[str, Any]] = {"mask_bytes": 1.0}
_KEPT: Final = {
    **dict.fromkeys(("Add_Prev_Layer", "Add_1"), _OUTPUT),  # inputs of norms
    **dict.fromkeys(("SOFTMAX", "FFN0"), _OUTPUT),  # output of softmax, input of GeLU
    **dict.fromkeys(("DropOut_1", "DropOut_2", "DropOut_3"), _MASK),
}

# Tensors that DFModel lists one place later.
_LATER = (("DropOut_1", "MHA_GEMM_2_bwd2"), ("MHA_GEMM_2_bwd2", "V_bwd"), ("K", "MHA_GEMM_1_bwd1"))
