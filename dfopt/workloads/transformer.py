"""A GPT-style transformer layer, forward only or with its backward pass and weight updates.

The kernels, their shapes, the tensors and the order of both are those of DFModel's generator
(github.com/fengqian-ayce/DFModel, commit 04f93d5), so that results can be compared kernel by kernel: 18
kernels and 21 tensors forward, 41 and 53 with training. What it leaves out is left out here too: embedding,
the final classifier, biases, the optimizer, the backward pass of ``LayerNorm_1`` and the sums of residual
gradients.
"""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from dfopt.documents.base import Part, problem
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.workloads.backward import Gradient, backward_of
from dfopt.workloads.checks import check_batch, check_drawn
from dfopt.workloads.layer import Layer, Wire, wires
from dfopt.workloads.unroll import unroll

__all__ = ["Parameters", "TransformerParameters", "build"]


class TransformerParameters(Part):
    """What a transformer is built from.

    ``heads * head_dim`` may differ from ``hidden``: Q, K and V produce ``heads * head_dim`` features and the
    projection consumes them.

    Examples
    --------
    >>> TransformerParameters(hidden=768, heads=12, head_dim=64, seq=1024).ffn_features
    3072
    """

    hidden: int = Field(ge=1, le=10**7, description="features of the residual stream")
    heads: int = Field(ge=1, le=10**5, description="attention heads")
    head_dim: int = Field(ge=1, le=10**6, description="features of one head")
    ffn: int | None = Field(default=None, ge=1, le=10**8, description="features inside the MLP; 4 x hidden if left out")
    seq: int = Field(ge=1, le=10**8, description="tokens in a sample")
    microbatch: int = Field(default=1, ge=1, le=10**6, description="samples in one evaluation of the graph")
    layers: int = Field(default=1, ge=1, le=10**6, description="identical layers")
    drawn: int = Field(default=1, ge=1, le=10**4, description="layers drawn one after another, a divisor of layers")
    batch: int | None = Field(
        default=None, ge=1, le=10**12, description="samples in one step; one microbatch if left out"
    )
    mode: Literal["forward", "training"] = Field(default="forward", description="forward pass only, or a training step")
    word_bytes: int = Field(default=2, ge=1, le=16, description="bytes per element")

    @property
    def ffn_features(self) -> int:
        """Features inside the MLP."""
        return 4 * self.hidden if self.ffn is None else self.ffn

    @property
    def samples(self) -> int:
        """Samples in one step."""
        return self.microbatch if self.batch is None else self.batch

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        check_batch(self.batch, self.microbatch)
        check_drawn(self.drawn, self.layers)
        if self.mode == "training" and self.hidden % self.heads:
            # The backward kernels of Q and K give every head an equal share of hidden, see `_trained`.
            raise problem(
                f"found {self.heads} heads for {self.hidden} hidden features, training needs a divisor",
                "choose a hidden size that is a multiple of heads, or mode: forward",
                "$.heads",
            )
        return self


Parameters = TransformerParameters

# In the order of the consumers. Operands of a product: 1 is its k x n side, 2 its m x k side.
_FORWARD: tuple[Wire, ...] = (
    ("Add_Prev_Layer", "LayerNorm_1"),
    ("LayerNorm_1", "Q"),
    ("LayerNorm_1", "K"),
    ("LayerNorm_1", "V"),
    ("Q", "MHA_GEMM_1", 1),  # head_dim x queries
    ("K", "MHA_GEMM_1", 2),  # keys x head_dim
    ("MHA_GEMM_1", "SOFTMAX"),
    ("SOFTMAX", "DropOut_1"),
    ("V", "MHA_GEMM_2", 2),  # head_dim x keys
    ("DropOut_1", "MHA_GEMM_2", 1),  # keys x queries
    ("MHA_GEMM_2", "PROJ_GEMM"),
    ("PROJ_GEMM", "DropOut_2"),
    ("DropOut_2", "Add_1"),
    ("Add_Prev_Layer", "Add_1"),
    ("Add_1", "LayerNorm_2"),
    ("LayerNorm_2", "FFN0"),
    ("FFN0", "GeLU"),
    ("GeLU", "FFN1"),
    ("FFN1", "DropOut_3"),
    ("DropOut_3", "Add_2"),
    ("Add_1", "Add_2"),
)


def _forward_pass(layer: Layer) -> tuple[Kernel, ...]:
    hidden, head_dim, seq = layer.hidden, layer.head_dim, layer.seq
    return (
        layer.pointwise("Add_Prev_Layer", hidden),
        layer.pointwise("LayerNorm_1", hidden, normalizes=True),
        *(layer.linear(name, head_dim, hidden, outer=layer.heads) for name in ("Q", "K", "V")),
        layer.attention("MHA_GEMM_1", m=seq, k=head_dim),
        layer.scores("SOFTMAX", normalizes=True),
        layer.scores("DropOut_1"),
        layer.attention("MHA_GEMM_2", m=head_dim, k=seq),
        layer.linear("PROJ_GEMM", hidden, layer.width),
        layer.pointwise("DropOut_2", hidden),
        layer.pointwise("Add_1", hidden),
        layer.pointwise("LayerNorm_2", hidden, normalizes=True),
        layer.linear("FFN0", layer.ffn, hidden),
        layer.pointwise("GeLU", layer.ffn),
        layer.linear("FFN1", hidden, layer.ffn),
        layer.pointwise("DropOut_3", hidden),
        layer.pointwise("Add_2", hidden),
    )


def _trained(graph: Graph, layer: Layer) -> Graph:
    """The layer with its backward pass, as DFModel draws it.

    Nothing elementwise reads a saved tensor, residual gradients are not added, and the gradient ends in front of
    ``LayerNorm_1``, where ``V_bwd`` stands for the sum of all three.
    """
    level = graph.levels() | {"V": graph.levels()["MHA_GEMM_2"] - 0.5}  # DFModel lists V behind the product
    # The heads' contributions to the gradient of the layer's input are sums over all heads. DFModel draws them as
    # `heads` GEMMs that each produce an equal share of the hidden features from the gradients of all heads.
    by_head = Gradient(fields={"outer": layer.heads, "m": layer.hidden // layer.heads})
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


# Tensors that DFModel lists one place later.
_LATER = (("DropOut_1", "MHA_GEMM_2_bwd2"), ("MHA_GEMM_2_bwd2", "V_bwd"), ("K", "MHA_GEMM_1_bwd1"))


def build(name: str = "transformer", description: str = "", source: str = "", **parameters: Any) -> Graph:
    """One transformer layer as a graph that stands for all of them.

    Parameters
    ----------
    name, description, source
        As in `Graph`.
    **parameters
        Fields of `TransformerParameters`.

    Returns
    -------
    Graph
        18 kernels and 21 tensors forward, 41 and 53 when training, per drawn layer.

    Raises
    ------
    pydantic.ValidationError
        For a parameter that is unknown, missing or out of range.

    Examples
    --------
    >>> graph = build(hidden=768, heads=12, head_dim=64, seq=1024, layers=12, mode="training")
    >>> len(graph.kernels), len(graph.tensors), graph.repeat, graph.trains
    (41, 53, 12, True)
    """
    p = TransformerParameters(**parameters)
    layer = Layer(p.hidden, p.heads, p.head_dim, p.ffn_features, p.seq, p.microbatch)
    graph = Graph(
        name=name,
        description=description,
        source=source,
        repeat=p.layers,
        word_bytes=p.word_bytes,
        microbatch=p.microbatch,
        batch=p.samples,
        tokens_per_sample=p.seq,
        kernels=_forward_pass(layer),
        tensors=wires(_FORWARD),
        carried=(Tensor(src="Add_2", dst="Add_Prev_Layer"),),
    )
    if p.mode == "training":
        graph = _trained(graph, layer)
    return graph if p.drawn == 1 else unroll(graph, p.drawn)
