"""The transformer block of Calculon, forward only or with its backward pass and the gradients of its weights.

Source: Isaev et al., "Calculon: a methodology and tool for high-level co-design of systems and large language models",
SC23, and its program (github.com/calculon-ai/calculon, commit caa4b11, `calculon/llm/layers.py` and `llm.py`), of which
the kernels have the same FLOP and move the same bytes, layer by layer. Its block is a list of 24 layers:

==================  ============================  ============================================================
layer               kernel, forward               backward
==================  ============================  ============================================================
fork (3)            none                          a sum of the gradients of 2 or 3 readers: FLOP for each of them
layer norm (2)      9 FLOP per element            14 for the input, and 7 for its parameters
communication (4)   none: the sharding decides    none
linear (6)          GEMM                          GEMM, and a weight update
batched (2)         matmul                        one kernel for both operands
softmax             5 FLOP per element            8
GeLU                8                             13
dropout (3)         1, and writes a mask of 1 B   1, and reads the mask
residual (2)        1                             2, and writes a gradient for each of its inputs
==================  ============================  ============================================================

As there, a backward kernel reads the gradient of its output, the weights or the mask, and nothing else that the forward
pass made: not the operands of a batched product, nor the inputs of softmax, GeLU and norms. Weight updates and the
gradients of the norms' parameters read the layer's input. Calculon counts operands, softmax, GeLU and the block's input
as stored all the same, and so do kernels here (``output_saved``). What is recomputed runs as the first time, `full`
from the block's own input on. In types of one byte, a mask is taken for the output that it is as large as. Embedding,
classifier, biases, optimizer are not drawn.
"""

from __future__ import annotations

import math
from typing import Any, Final, Literal, Self

from pydantic import model_validator

from dfopt.documents.base import problem
from dfopt.documents.graph import Graph, Input, Kernel, Tensor
from dfopt.documents.published import Counts
from dfopt.documents.sections import repeated
from dfopt.workloads.drawing import Attending, Drawing
from dfopt.workloads.layer import PlainLayerParameters
from dfopt.workloads.recompute import recomputes
from dfopt.workloads.sketch import Read
from dfopt.workloads.unroll import unroll

# FLOP per element, forward and backward; of norms for the input, and for the parameters.
_NORM: Final = (9, 14, 7)
_SOFTMAX: Final = (5, 8)
_GELU: Final = (8, 13)
# Outputs that it counts as stored, beside those that tensors bring to the backward pass; the last is the next block's.
_KEPT: Final = ("QKV", "Query", "Key", "Value", "Scores", "Scores_Dropout", "MLP_Up", "MLP_Residual")


class CalculonParameters(PlainLayerParameters):
    """Parameters of Calculon's transformer block: multi-head attention with all scores.

    Attributes
    ----------
    qkv : e.g. apart
        Computation of queries, keys and values. ``apart``: one product each, whose gradients are added up. ``joined``:
        a single product, as Calculon has it where products overlap with communication.
    fused_activation : e.g. false
        Whether the activation function is fused into the product before it, so that training stores neither its input
        nor the gradient of its output. Time and traffic stay the same, as in Calculon.
    qkv_input_kept : e.g. true
        Whether training stores the input of queries, keys and values. False: it exists only during the backward pass of
        a block, as Calculon assumes with ``activation_recompute: attn_only`` and without sequence parallelism.

    Examples
    --------
    >>> CalculonParameters(hidden=768, heads=12, head_dim=64, seq=1024).ffn_features
    3072
    """

    qkv: Literal["apart", "joined"] = "apart"
    fused_activation: bool = False
    qkv_input_kept: bool = True

    @model_validator(mode="after")
    def _all_scores(self) -> Self:
        if self.causal:
            raise problem("found true, but Calculon computes all scores", "leave it out", "$.causal")
        if odd := {*self.recompute.replace("/", "+").split("+")} - {"none", "attention", "full"}:
            message = f"found {min(odd)!r}, but Calculon computes attention again, or all of a block"
            raise problem(message, "write none, attention or full", "$.recompute")
        if (self.checkpoint_every or 1) > 1:
            message = f"found {self.checkpoint_every}, but Calculon's blocks leave a checkpoint each"
            raise problem(message, "leave it out", "$.checkpoint_every")
        return self


Parameters = CalculonParameters


def counts(p: CalculonParameters) -> Counts:
    """Number of parameters of the drawn matrices and norms.

    Examples
    --------
    >>> counts(CalculonParameters(hidden=768, heads=12, head_dim=64, seq=1024, layers=12)).parameters
    84971520
    """
    parameters = p.layers * (2 * p.hidden * (2 * p.width + p.ffn_features) + 4 * p.hidden)
    return Counts(parameters, parameters, p.layers * math.ceil(2 * p.width * p.words.kv))


def build(p: CalculonParameters, **about: str) -> Graph:
    """Folded graph of one Calculon block: 17 kernels, or 45 in training, for each drawn block.

    Examples
    --------
    >>> sizes = CalculonParameters(hidden=768, heads=12, head_dim=64, seq=1024, layers=12, mode="training")
    >>> graph = build(sizes, name="gpt")
    >>> len(graph.kernels), len(graph.tensors), graph.repeat, graph.trains
    (45, 60, 12, True)
    """
    block = _Block(p)
    block.forward()
    carried, again = [Tensor(src="MLP_Residual", dst="Attention_Norm")], ["Attention_Residual"]
    if p.mode == "training":
        block.backward()
        carried.append(Tensor(src="Attention_Fork_bwd", dst="MLP_Residual_bwd", direction="backward"))
        again.append("Attention_Norm_bwd_weight_update")
    # The block's input comes from DRAM: it is handed on once, and read again.
    inputs = tuple(Input(dst=reader, bytes=block.stream) for reader in again)
    kernels = block.drawn.kernels
    if p.mode == "training":
        saved = {**dict.fromkeys(_KEPT, True), **({} if p.qkv_input_kept else {"Attention_Norm": False})}
        if p.fused_activation:
            del saved["MLP_Up"]
        kernels = [kernel.model_copy(update={"output_saved": saved.get(kernel.name)}) for kernel in kernels]
        if p.qkv == "joined" and p.recompute == "attention":  # tensors bring the other two parts to what runs again
            values = {"output_saved": None, "mask_bytes": p.words.activations / 3}
            kernels = [kernel.model_copy(update=values) if kernel.name == "QKV" else kernel for kernel in kernels]
    drawn = {"kernels": tuple(kernels), "tensors": tuple(block.drawn.tensors), "carried": tuple(carried)}
    graph = Graph(
        **about, **p.sized, variant=p.variant, sections=repeated(p.layers), **drawn, inputs=inputs, outputs=()
    )
    if p.mode == "training":
        graph = recomputes(graph, p.recompute, as_it_stands=True)
    return graph if p.drawn == 1 else unroll(graph, p.drawn)


class _Block:
    """The layers of a block, drawn one after the other, and then in reverse."""

    def __init__(self, p: CalculonParameters) -> None:
        self.p, self.drawn = p, Drawing(p.evaluation.segments, p.words)
        self.scores = Attending(p.heads, p.microbatch, p.seq, p.seq, p.seq * p.seq)
        self.stream = self.drawn.bytes(p.hidden * self.drawn.tokens)  # bytes of the residual stream
        self.of_heads = self.drawn.bytes(p.width * self.drawn.tokens)  # of queries, keys or values
        self.updates: list[tuple[Kernel, tuple[str | Read, ...]]] = []

    def forward(self) -> None:
        """Draw the forward pass."""
        p, scores, linear, pointwise = self.p, self.scores, self.drawn.linear, self.drawn.pointwise
        self._norm("Attention_Norm")
        if p.qkv == "joined":
            linear("QKV", 3 * p.width, p.hidden, "Attention_Norm")
            query, key, value = (Read("QKV", None, self.of_heads, part) for part in ("query", "key", "value"))
        else:
            for name in ("Query", "Key", "Value"):
                linear(name, p.width, p.hidden, "Attention_Norm")
            query, key, value = Read("Query"), Read("Key"), Read("Value")
        operands = query._replace(operand=1), key._replace(operand=2)
        self.drawn.draw(scores.product("Scores", p.seq, p.head_dim, "scores"), *operands)
        softmax = scores.pointwise("Softmax", "softmax", normalizes=True)
        self.drawn.draw(softmax.model_copy(update={"flop_per_element": _SOFTMAX[0]}), "Scores")
        self.drawn.draw(scores.pointwise("Scores_Dropout", "scores_dropout"), "Softmax")
        context = scores.product("Context", p.head_dim, p.seq, "context")
        self.drawn.draw(context, value._replace(operand=2), Read("Scores_Dropout", 1))
        linear("Projection", p.hidden, p.width, "Context")
        pointwise("Attention_Dropout", p.hidden, "Projection", role="dropout")
        pointwise("Attention_Residual", p.hidden, "Attention_Dropout", role="residual")
        self._norm("MLP_Norm", "Attention_Residual")
        linear("MLP_Up", p.ffn_features, p.hidden, "MLP_Norm", role="up")
        role = "fused_activation" if p.fused_activation else "activation"
        pointwise("GeLU", p.ffn_features, "MLP_Up", role=role, flop_per_element=_GELU[0])
        linear("MLP_Down", p.hidden, p.ffn_features, "GeLU")
        pointwise("MLP_Dropout", p.hidden, "MLP_Down", role="dropout")
        pointwise("MLP_Residual", p.hidden, "MLP_Dropout", "Attention_Residual", role="residual")

    def backward(self) -> None:
        """Draw the backward pass, and behind it what only the weights need."""
        p = self.p
        branch, stream = self._back_of_residual("MLP_Residual")
        self._back_of_dropout("MLP_Dropout", branch)
        self._back_of_linear("MLP_Down", "MLP_Dropout_bwd", "GeLU")
        self._back("GeLU", "MLP_Down_bwd", flop_per_element=_GELU[1])
        self._back_of_linear("MLP_Up", "GeLU_bwd", "MLP_Norm")
        self._back_of_norm("MLP_Norm", "MLP_Up_bwd", "Attention_Residual")
        self._sum("MLP_Fork_bwd", "MLP_Norm", "MLP_Norm_bwd", stream)
        branch, stream = self._back_of_residual("Attention_Residual", "MLP_Fork_bwd")
        self._back_of_dropout("Attention_Dropout", branch)
        self._back_of_linear("Projection", "Attention_Dropout_bwd", "Context")
        # One kernel has the work of both products. Its output is the larger gradient, most often that of the scores,
        # and the other one is beside it as a part; two of one size are side by side, as then parts need names.
        larger, smaller = max(p.seq, p.head_dim), min(p.seq, p.head_dim)
        m, k = (2 * larger, larger) if larger == smaller else (larger, 2 * smaller)
        self._back("Context", Read("Projection_bwd", 1, self.of_heads), m=m, k=k)
        scores = self.drawn.bytes(p.heads * p.microbatch * p.seq * p.seq)
        self._back_of_dropout("Scores_Dropout", Read("Context_bwd", None, scores, "scores"))
        self._back("Softmax", "Scores_Dropout_bwd", flop_per_element=_SOFTMAX[1])
        # This one gives those of queries and keys side by side.
        self._back("Scores", Read("Softmax_bwd", 1), m=2 * p.head_dim, k=p.seq)
        if p.qkv == "joined":
            self._back_of_joined(stream)
            return
        for name, giver in (("Query", "Scores"), ("Key", "Scores"), ("Value", "Context")):
            # their sum needs one collective, whatever splits them
            into = {} if name == "Query" else {"accumulates_into": "Query_bwd"}
            gradient = Read(f"{giver}_bwd", None, self.of_heads, name.lower())
            self._back_of_linear(name, gradient, "Attention_Norm", **into)
        self._sum("Heads_Fork_bwd", "Attention_Norm", "Query_bwd", "Key_bwd", "Value_bwd")
        self._back_of_stream("Heads_Fork_bwd", stream)

    def _back_of_joined(self, stream: Read) -> None:
        """Draw the backward pass of a joined QKV product: its gradient is in two parts, and so is its update."""
        kernel, width = self._kernel("QKV"), self.p.width
        parts = Read("Scores_bwd", None, 2 * self.of_heads), Read("Context_bwd", None, self.of_heads, "value")
        self._back("QKV", *parts, m=kernel.k, k=kernel.m)
        for name, part, features in zip(("QK", "V"), parts, (2 * width, width), strict=True):
            sizes = {"op": "weight_update", "pass_": "update", "m": kernel.k, "k": kernel.n, "n": features}
            update = kernel.model_copy(update={"name": f"{name}_bwd_weight_update", "stage_with": "QKV", **sizes})
            self.updates.append((update, (part._replace(operand=1), Read("Attention_Norm", 2))))
        self._back_of_stream("QKV_bwd", stream)

    def _back_of_stream(self, gradient: str, stream: Read) -> None:
        """The first norm and the block's input, and then what only the weights need."""
        self._back_of_norm("Attention_Norm", gradient)
        self._sum("Attention_Fork_bwd", "Attention_Norm", "Attention_Norm_bwd", stream)
        for kernel, inputs in reversed(self.updates):
            self.drawn.draw(kernel, *inputs)

    def _kernel(self, name: str) -> Kernel:
        return next(kernel for kernel in self.drawn.kernels if kernel.name == name)

    def _back(self, of: str, *inputs: str | Read, name: str = "", **changes: Any) -> None:
        kernel = self._kernel(of)
        back = {"name": name or f"{of}_bwd", "pass_": "backward", "stage_with": of, "normalizes": False, **changes}
        self.drawn.draw(kernel.model_copy(update=back), *inputs)

    def _norm(self, name: str, *inputs: str) -> None:
        fields = {"flop_per_element": _NORM[0], "dram_bytes_per_chip": self._gains, "resident_bytes": self._gains}
        self.drawn.pointwise(name, self.p.hidden, *inputs, role="norm", normalizes=True, resident_over=(), **fields)

    @property
    def _gains(self) -> float:
        """Bytes of the scales and shifts of a norm."""
        return 2 * self.p.hidden * self.p.words.weights

    def _back_of_norm(self, name: str, gradient: str, *sources: str) -> None:
        self._back(name, gradient, flop_per_element=_NORM[1], resident_bytes=0.0)
        update = {"name": f"{name}_bwd_weight_update", "pass_": "update", "flop_per_element": _NORM[2]}
        kernel = self._kernel(name).model_copy(update={**update, "stage_with": name, "normalizes": False})
        self.updates.append((kernel, (gradient, *sources)))

    def _back_of_linear(self, name: str, gradient: str | Read, source: str, **changes: Any) -> None:
        kernel = self._kernel(name)
        self._back(name, gradient, m=kernel.k, k=kernel.m, **changes)
        sizes = {"op": "weight_update", "pass_": "update", "m": kernel.k, "k": kernel.n, "n": kernel.m}
        update = kernel.model_copy(update={"name": f"{name}_bwd_weight_update", "stage_with": name, **sizes})
        first = Read(gradient, 1) if isinstance(gradient, str) else gradient._replace(operand=1)
        self.updates.append((update, (first, Read(source, 2))))

    def _back_of_dropout(self, name: str, gradient: str | Read) -> None:
        kernel = self._kernel(name)
        self._back(name, gradient, Read(name, None, float(kernel.matrices * kernel.m * kernel.n), "mask"))

    def _back_of_residual(self, name: str, *gradients: str) -> tuple[Read, Read]:
        """Two gradients that are equal and written apart: of the branch and of the stream."""
        self._back(name, *gradients, m=2 * self.p.hidden)
        branch, stream = (Read(f"{name}_bwd", None, self.stream, part) for part in ("branch", "stream"))
        return branch, stream

    def _sum(self, name: str, of: str, *gradients: str | Read) -> None:
        bare = {"dram_bytes_per_chip": 0.0, "resident_bytes": 0.0, "resident_over": None}
        self._back(of, *gradients, name=name, flop_per_element=len(gradients), **bare)
