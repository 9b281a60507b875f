"""What a model has once: the embedding in front of its layers, the final norm and the logits behind them.

The embedding reads one row per token; its table is resident in DRAM. Logits are a product with a ``vocab x hidden``
matrix for every token, or in serving for those whose logits are wanted. A table that is tied to that matrix is held
once, as the matrix, also where a pipeline would need a second copy in its first stage.

Where all layers are drawn, the ends are kernels like all others. Where one drawn part stands for several, they run
before the first and after the last layer only (``Kernel.runs``); what passes between them and the layers then goes
through DRAM and counts as their ``dram_bytes``.

When training, the loss and its gradient are one elementwise kernel over the logits (the maximum and the sum that it
needs of every token's logits are small, and collecting them is not counted), and the gradients of looked-up rows
are added into a gradient of the table. That gradient is resident beside the table, and so is the optimizer's state;
adding the gradients of data-parallel copies up takes no time here.
"""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.workloads.backward import Gradient, backward_of
from dfopt.workloads.drawing import Drawing
from dfopt.workloads.step import ServingParameters

__all__ = ["NORMS", "EndsParameters", "with_ends"]

NORMS: Final = {"rmsnorm": "RMSNorm", "layernorm": "LayerNorm"}
"""What kernels of norms are called."""


class EndsParameters(ServingParameters):
    """What all layers of a model share, and its ends.

    Examples
    --------
    >>> EndsParameters(hidden=8, vocab=100, seq=16).end_parameters(active=False)
    1608
    """

    hidden: int = Field(ge=1, le=10**7, description="features of the residual stream")
    vocab: int = Field(ge=1, le=10**9, description="rows of the embedding")
    norm: Literal["rmsnorm", "layernorm"] = Field(default="rmsnorm", description="LayerNorm has a bias, RMSNorm none")
    tie_embeddings: bool = Field(default=False, description="logits with the embedding's matrix")
    learned_positions: int = Field(default=0, ge=0, le=10**9, description="rows of a learned position embedding")

    @property
    def gains(self) -> int:
        """Parameters of a norm."""
        return self.hidden * (2 if self.norm == "layernorm" else 1)

    def end_parameters(self, *, active: bool) -> int:
        """Parameters of the ends; active ones are those of the norm and the logits, as a token looks up a row only."""
        rows = self.vocab * (1 if self.tie_embeddings or active else 2) + (0 if active else self.learned_positions)
        return self.gains + self.hidden * rows

    def drawing(self) -> Drawing:
        """An empty drawing of a layer."""
        return Drawing(self.segment, self.word_bytes, keeps=self.keeps, page=self.page)


def with_ends(graph: Graph, p: EndsParameters, joints: tuple[str, str]) -> Graph:
    """Put embedding, final norm and logits around layers, all of them drawn or not.

    Parameters
    ----------
    graph
        The layers.
    p
        What the ends are as large as.
    joints
        The first and the last kernel of the layers.

    Examples
    --------
    >>> from dfopt.workloads import WORKLOADS
    >>> sizes = {"hidden": 64, "heads": 8, "head_dim": 8, "ffn": 192, "vocab": 1000, "seq": 32}
    >>> graph = WORKLOADS["decoder"](**sizes, layers=2, drawn=2, ends=True)
    >>> [graph.kernels[position].name for position in (0, 1, -2, -1)]
    ['Embedding', 'Residual_In.0', 'RMSNorm_Final', 'Logits']
    >>> graph = WORKLOADS["decoder"](**sizes, layers=2, ends=True)
    >>> [(graph.kernels[position].name, graph.kernels[position].runs) for position in (0, 1, -1)]
    [('Embedding', 'first'), ('Residual_In', 'every_layer'), ('Logits', 'last')]
    """
    row_bytes = float(p.tokens * p.hidden * p.word_bytes)  # one row per token
    ends = _forward(p, row_bytes)
    embedding, norm, logits = ends
    path = ((embedding.name, joints[0]), (joints[1], norm.name), (norm.name, logits.name))
    tensors = [Tensor(src=src, dst=dst) for src, dst in path]
    if p.wanted < p.tokens:
        tensors[-1] = tensors[-1].model_copy(update={"bytes": float(p.wanted * p.hidden * p.word_bytes)})
    back = list[Kernel]()
    if graph.trains:
        back, more = _backward(p, ends, joints, tensors)
        tensors += more
    if graph.repeat > 1:
        index = graph.index()
        crossing = [tensor for tensor in tensors if (tensor.src in index) != (tensor.dst in index)]
        tensors = [tensor for tensor in tensors if tensor not in crossing]

        def once(kernel: Kernel) -> Kernel:
            """With what it reads from the layers and writes for them as DRAM traffic."""
            exchanged = sum(kernel.name in (tensor.src, tensor.dst) for tensor in crossing) * row_bytes
            runs = "first" if kernel.name.startswith("Embedding") else "last"
            return kernel.model_copy(update={"runs": runs, "dram_bytes": kernel.dram_bytes + exchanged})

        embedding, norm, logits = map(once, ends)
        back = [once(kernel) for kernel in back]
    forward = [kernel for kernel in graph.kernels if kernel.phase == "forward"]
    layers_back = [kernel for kernel in graph.kernels if kernel.phase != "forward"]
    return Graph(
        **{
            **{name: getattr(graph, name) for name in Graph.model_fields if name != "schema_"},
            "kernels": (embedding, *forward, norm, logits, *back, *layers_back),
            "tensors": (*graph.tensors, *tensors),
            "carried": graph.carried if graph.repeat > 1 else (),  # or nothing repeats
        }
    )


def _forward(p: EndsParameters, row_bytes: float) -> tuple[Kernel, Kernel, Kernel]:
    drawing = p.drawing()
    rows = p.learned_positions + (0 if p.tie_embeddings else p.vocab)  # or the table is the logits' matrix
    few = {"n": p.wanted, "stream": "none"}  # their tokens are no stream: they come from the ends of the sequences
    looked_up = {
        "dram_bytes": (2 if p.learned_positions else 1) * row_bytes,
        "resident_bytes": float(rows * p.hidden * p.word_bytes),
    }
    drawing.pointwise("Embedding", p.hidden, **looked_up)
    norm = drawing.pointwise(f"{NORMS[p.norm]}_Final", p.hidden, normalizes=True, role="norm")
    drawing.linear("Logits", p.vocab, p.hidden, norm)
    embedding, final, logits = drawing.kernels
    return embedding, final, logits.model_copy(update=few if p.wanted < p.tokens else {})


def _backward(
    p: EndsParameters, ends: tuple[Kernel, Kernel, Kernel], joints: tuple[str, str], tensors: list[Tensor]
) -> tuple[list[Kernel], list[Tensor]]:
    """What training adds to the ends, seen from a graph in which two kernels stand for the layers."""
    embedding, norm, logits = ends
    drawing = p.drawing()
    for name in joints:
        drawing.pointwise(name, p.hidden)
    drawing.pointwise("Cross_Entropy", p.vocab)  # of a forward pass it is not drawn
    *layers, loss = drawing.kernels
    forward = Graph(
        name="ends",
        word_bytes=p.word_bytes,
        kernels=(embedding, *layers, norm, logits, loss),
        tensors=(*tensors, Tensor(src=logits.name, dst=loss.name)),
    )
    gradients = [_gradient_of(joint) for joint in joints]
    # A row of the gradient is read, added to and written back; the gradient itself is as large as the table.
    adds = {"dram_bytes": 2 * embedding.dram_bytes, "resident_bytes": embedding.resident_bytes}
    rules = {
        embedding.name: Gradient(fields=adds),
        joints[0]: Gradient(gradients[0], reads=()),
        joints[1]: Gradient(gradients[1]),
        loss.name: Gradient("Loss", fields={"stage_with": logits.name}),
    }
    trained = backward_of(forward, rules)
    drawn = [kernel for kernel in trained.kernels[len(forward.kernels) :] if kernel.name not in gradients]
    return drawn, list(trained.tensors[len(forward.tensors) :])


def _gradient_of(joint: str) -> str:
    """The gradient of a kernel of the layers, one of several drawn copies or not."""
    name, dot, copy = joint.partition(".")
    return f"{name}_bwd{dot}{copy}"
