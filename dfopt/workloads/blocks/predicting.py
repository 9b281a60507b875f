"""Layers that predict further tokens: a module behind the head, which a phase may leave out.

A module puts what the layers in front say of a token beside the embedding of the token that follows, each with a norm
of its own, and takes both to the residual of some layers more, behind which stand a norm and the logits. Embedding and
logits are those of the model: their matrix is read again, and held once.

Source: DeepSeek-V3 (arXiv:2412.19437), section 2.2.
"""

from __future__ import annotations

from collections.abc import Sequence

from dfopt.documents.graph import Graph, Kernel
from dfopt.documents.sections import Section
from dfopt.workloads.blocks.ends import NORMS, EndsParameters
from dfopt.workloads.drawing import Drawing
from dfopt.workloads.sketch import Read

ENTRY, EXIT = "predictor", "prediction"
"""Names of the layers in front of those of a module, and behind them."""


def predictor_parameters(p: EndsParameters) -> int:
    """Number of parameters of a multi-token prediction module, without its layers.

    Examples
    --------
    >>> predictor_parameters(EndsParameters(hidden=8, vocab=100, seq=16))
    152
    """
    return 2 * p.hidden**2 + 3 * p.gains


def with_predictors(
    graph: Graph, p: EndsParameters, modules: Sequence[Sequence[str]], kinds: Sequence[Graph] = ()
) -> Graph:
    """The graph with multi-token prediction modules after its last layer.

    Parameters
    ----------
    graph
        The model.
    p
        Sizes of the model, and the tokens of one evaluation.
    modules
        Kinds of the layers of each module, in order.
    kinds
        Graphs of kinds of layers that only modules have.
    """
    if not modules:
        return graph
    entry, end = p.drawing(), p.drawing()
    row = p.tokens * p.hidden * p.words.activations  # of the residual, which is read and written at both ends
    looked_up = p.tokens * p.hidden * p.words.weights
    concatenated = entry.pointwise("Predict_In", 2 * p.hidden, normalizes=True, role="norm", dram_bytes=row + looked_up)
    entry.linear("Predict_Proj", p.hidden, 2 * p.hidden, concatenated, dram_bytes=row)
    normed = end.pointwise(f"{NORMS[p.norm]}_Predict", p.hidden, normalizes=True, role="norm", dram_bytes=row)
    few = {"n": p.wanted} | ({"stream": "none"} if p.wanted < p.tokens else {})
    logits = Kernel(name="Predict_Logits", op="matmul", m=p.vocab or 1, k=p.hidden, **few)
    end.draw(logits, Read(normed, 1, end.bytes(p.wanted * p.hidden) if p.wanted < p.tokens else None))
    layer_kernels = [kernel for kind in kinds for kernel in kind.kernels]
    kernels = (*graph.kernels, *_named(entry, ENTRY), *layer_kernels, *_named(end, EXIT))
    own = [[Section(layers=(ENTRY,)), Section(layers=tuple(module)), Section(layers=(EXIT,))] for module in modules]
    sections = (*(graph.sections or ()), *(section for parts in own for section in parts))
    tensors = (*graph.tensors, *entry.tensors, *(tensor for kind in kinds for tensor in kind.tensors), *end.tensors)
    carried = (*graph.carried, *(tensor for kind in kinds for tensor in kind.carried))
    fields = {"kernels": kernels, "tensors": tensors, "carried": carried, "sections": sections}
    return Graph(**{**{name: getattr(graph, name) for name in Graph.model_fields if name != "schema_"}, **fields})


def _named(drawing: Drawing, layer: str) -> list[Kernel]:
    return [kernel.model_copy(update={"layer": layer}) for kernel in drawing.kernels]
