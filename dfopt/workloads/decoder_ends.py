"""What a decoder has once: the embedding in front of its layers, the final norm and the logits behind them.

The embedding reads one row per token; its table is resident in DRAM. Logits are a product with a ``vocab x hidden``
matrix for every token. A table that is tied to that matrix is held once, as the matrix, also where a pipeline would
need a second copy in its first stage.

Where all layers are drawn, the ends are kernels like all others. Where one drawn part stands for several, they run
before the first and after the last layer only (``Kernel.runs``); what passes between them and the layers then goes
through DRAM and counts as their ``dram_bytes``.

When training, the loss and its gradient are one elementwise kernel over the logits (the maximum and the sum that it
needs of every token's logits are small, and collecting them is not counted), and the gradients of looked-up rows
are added into a gradient of the table. That gradient is resident beside the table, and so is the optimizer's state;
adding the gradients of data-parallel copies up takes no time here.
"""

from __future__ import annotations

from dataclasses import dataclass

from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.workloads.backward import Gradient, backward_of
from dfopt.workloads.layer import Layer, Wire, wires

__all__ = ["Ends", "with_ends"]


@dataclass(frozen=True)
class Ends:
    """Sizes of the ends, and how many layers are drawn between them."""

    layer: Layer
    vocab: int
    learned_positions: int
    tied: bool
    norm: str
    drawn: int


def with_ends(graph: Graph, ends: Ends) -> Graph:
    """Put embedding, final norm and logits around layers, all of them drawn or not.

    Examples
    --------
    >>> from dfopt.workloads.decoder import build
    >>> sizes = {"hidden": 64, "heads": 8, "head_dim": 8, "ffn": 192, "vocab": 1000, "seq": 32}
    >>> graph = build(**sizes, layers=2, drawn=2, ends=True)
    >>> [graph.kernels[position].name for position in (0, 1, -2, -1)]
    ['Embedding', 'Residual_In.0', 'RMSNorm_Final', 'Logits']
    >>> graph = build(**sizes, layers=2, ends=True)
    >>> [(graph.kernels[position].name, graph.kernels[position].runs) for position in (0, 1, -1)]
    [('Embedding', 'first'), ('Residual_In', 'every_layer'), ('Logits', 'last')]
    """
    first, last = (".0", f".{ends.drawn - 1}") if ends.drawn > 1 else ("", "")
    forward = [kernel for kernel in graph.kernels if kernel.phase == "forward"]
    back = [kernel for kernel in graph.kernels if kernel.phase != "forward"]
    in_front, behind, table = _forward(ends, graph.word_bytes, first, last)
    joints, ends_back = list(wires(table)), list[Kernel]()
    if graph.trains:
        ends_back, more = _backward(ends, graph.word_bytes, in_front, behind, table)
        joints += more
    carried: tuple[Tensor, ...] = ()  # nothing repeats
    if graph.repeat > 1:
        carried = graph.carried
        crossing = [joint for joint in joints if (joint.src in graph.index()) != (joint.dst in graph.index())]
        joints = [joint for joint in joints if joint not in crossing]
        once = _Once(crossing, ends.layer.tokens * ends.layer.hidden * graph.word_bytes)
        in_front, behind, ends_back = once.all(in_front), once.all(behind), once.all(ends_back)
    return Graph(
        **{
            **{name: getattr(graph, name) for name in Graph.model_fields if name != "schema_"},
            "kernels": (*in_front, *forward, *behind, *ends_back, *back),
            "tensors": (*graph.tensors, *joints),
            "carried": carried,
        }
    )


@dataclass(frozen=True)
class _Once:
    """Kernels at the ends of layers that repeat: when they run, and what they exchange with the layers."""

    crossing: list[Tensor]
    activation_bytes: float

    def all(self, kernels: list[Kernel]) -> list[Kernel]:
        """The kernels with what they read from the layers and write for them as DRAM traffic."""
        return [self._one(kernel) for kernel in kernels]

    def _one(self, kernel: Kernel) -> Kernel:
        exchanged = sum(kernel.name in (joint.src, joint.dst) for joint in self.crossing) * self.activation_bytes
        runs = "first" if kernel.name.startswith("Embedding") else "last"
        return kernel.model_copy(update={"runs": runs, "dram_bytes": kernel.dram_bytes + exchanged})


def _row_bytes(ends: Ends, word: int) -> float:
    """One row per token."""
    return float(ends.layer.tokens * ends.layer.hidden * word)


def _table_bytes(ends: Ends, word: int) -> float:
    """The tables of words, unless it is the logits' matrix, and of learned positions."""
    rows = ends.learned_positions + (0 if ends.tied else ends.vocab)
    return float(rows * ends.layer.hidden * word)


def _forward(ends: Ends, word: int, first: str, last: str) -> tuple[list[Kernel], list[Kernel], list[Wire]]:
    layer, hidden = ends.layer, ends.layer.hidden
    final = f"{ends.norm}_Final"
    lookups = 2 if ends.learned_positions else 1
    embedding = layer.pointwise("Embedding", hidden).model_copy(
        update={"dram_bytes": lookups * _row_bytes(ends, word), "resident_bytes": _table_bytes(ends, word)}
    )
    behind = [layer.pointwise(final, hidden, normalizes=True), layer.linear("Logits", ends.vocab, hidden)]
    table: list[Wire] = [("Embedding", f"Residual_In{first}"), (f"Add_2{last}", final), (final, "Logits")]
    return [embedding], behind, table


def _backward(
    ends: Ends, word: int, in_front: list[Kernel], behind: list[Kernel], table: list[Wire]
) -> tuple[list[Kernel], list[Tensor]]:
    """What training adds to the ends, seen from a graph in which two kernels stand for the layers."""
    embedding, (final, logits) = in_front[0], behind
    layers = [ends.layer.pointwise(name, ends.layer.hidden) for name in (table[0][1], table[1][0])]
    loss = ends.layer.pointwise("Cross_Entropy", ends.vocab)  # of a forward pass it is not drawn
    forward = Graph(
        name="ends",
        word_bytes=word,
        kernels=(embedding, *layers, final, logits, loss),
        tensors=wires([*table, (logits.name, loss.name)]),
    )
    gradients = [kernel.name.replace(name, f"{name}_bwd") for kernel, name in zip(layers, _JOINTS, strict=True)]
    # A row of the gradient is read, added to and written back; the gradient itself is as large as the table.
    adds = {"dram_bytes": 2 * embedding.dram_bytes, "resident_bytes": embedding.resident_bytes}
    rules = {
        embedding.name: Gradient(fields=adds),
        layers[0].name: Gradient(gradients[0], reads=()),
        layers[1].name: Gradient(gradients[1]),
        loss.name: Gradient("Loss", fields={"stage_with": logits.name}),
    }
    trained = backward_of(forward, rules)
    drawn = [kernel for kernel in trained.kernels[len(forward.kernels) :] if kernel.name not in gradients]
    return drawn, list(trained.tensors[len(forward.tensors) :])


_JOINTS = ("Residual_In", "Add_2")  # the first and the last kernel of the layers
