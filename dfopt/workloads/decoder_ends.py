"""What a decoder has once: the embedding in front of its layers, the final norm and the logits behind them.

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

from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.workloads.backward import Gradient, backward_of
from dfopt.workloads.decoder_parameters import DecoderParameters

__all__ = ["with_ends"]

_JOINTS = ("Residual_In", "Add_2")  # the first and the last kernel of the layers


def with_ends(graph: Graph, p: DecoderParameters) -> Graph:
    """Put embedding, final norm and logits around layers, all of them drawn or not.

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
    joints = [f"{name}.{copy}" if p.drawn > 1 else name for name, copy in zip(_JOINTS, (0, p.drawn - 1), strict=True)]
    row_bytes = float(p.tokens * p.hidden * p.word_bytes)  # one row per token
    rows = p.learned_positions + (0 if p.tie_embeddings else p.vocab)  # or the table is the logits' matrix
    embedding = p.pointwise(
        "Embedding",
        p.hidden,
        dram_bytes=(2 if p.learned_positions else 1) * row_bytes,
        resident_bytes=float(rows * p.hidden * p.word_bytes),
    )
    norm = p.pointwise(f"{p.norm_name}_Final", p.hidden, normalizes=True, role="norm")
    few = {"n": p.wanted, "stream": "none"}  # their tokens are no stream: they come from the ends of the sequences
    logits = p.linear("Logits", p.vocab, p.hidden).model_copy(update=few if p.wanted < p.tokens else {})
    path = ((embedding.name, joints[0]), (joints[1], norm.name), (norm.name, logits.name))
    tensors = [Tensor(src=src, dst=dst) for src, dst in path]
    if p.wanted < p.tokens:
        tensors[-1] = tensors[-1].model_copy(update={"bytes": float(p.wanted * p.hidden * p.word_bytes)})
    ends, back = (embedding, norm, logits), list[Kernel]()
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


def _backward(
    p: DecoderParameters, ends: tuple[Kernel, Kernel, Kernel], joints: list[str], tensors: list[Tensor]
) -> tuple[list[Kernel], list[Tensor]]:
    """What training adds to the ends, seen from a graph in which two kernels stand for the layers."""
    embedding, norm, logits = ends
    layers = [p.pointwise(name, p.hidden) for name in joints]
    loss = p.pointwise("Cross_Entropy", p.vocab)  # of a forward pass it is not drawn
    forward = Graph(
        name="ends",
        word_bytes=p.word_bytes,
        kernels=(embedding, *layers, norm, logits, loss),
        tensors=(*tensors, Tensor(src=logits.name, dst=loss.name)),
    )
    gradients = [joint.replace(name, f"{name}_bwd") for joint, name in zip(joints, _JOINTS, strict=True)]
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
