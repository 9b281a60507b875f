"""What a training graph keeps for its backward pass beside what tensors say, and the size of gradients that are held.

A backward kernel may read less than a real one: DFModel draws no elementwise kernel that reads a saved tensor, and
Calculon's read nothing but gradients and masks. What real ones read is in memory all the same, so kernels say it:
``output_saved`` and ``mask_bytes``. No traffic follows from either.

Where products are computed in 8 bits, some libraries keep what those take, converted, and not what they were given:
Transformer Engine does (``Linear`` saves its quantized input), torchao does not (its ``Float8Linear`` saves the tensor
of 16 bits, and converts it once more), and torchtitan reports as many GiB with either. ``dtypes.saved`` says it. What
a kernel says of its own output holds beside that: kept, it is there with the copy; kept for a while only, it has none.
"""

from __future__ import annotations

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.dtypes import FORMATS, Dtype, weights_of
from dfopt.documents.graph import Graph, Tensor
from dfopt.documents.kernel import needed


def gradient_bytes(graph: Graph) -> float:
    """Bytes of an element of a stored (accumulated) weight gradient.

    Examples
    --------
    >>> from dfopt.documents.graph import Kernel
    >>> graph = Graph(name="g", kernels=(Kernel(name="a", op="gemm", m=4, k=8, n=16),))
    >>> gradient_bytes(graph), gradient_bytes(graph.model_copy(update={"main_gradients": "fp32"}))
    (2.0, 4.0)
    """
    if graph.main_gradients is None:
        return float(graph.words.activations)
    return float(FORMATS[graph.main_gradients].bytes)


def added_bytes(graph: Graph, assumptions: Assumptions) -> float:
    """Bytes of an element of a weight gradient that an evaluation adds to in memory."""
    return gradient_bytes(graph) if assumptions.gradient_traffic == "held" else float(graph.words.activations)


def reduced_bytes(graph: Graph) -> float:
    """Bytes of an element of a weight gradient as replicas reduce it."""
    if graph.trained is None or graph.trained.reduced is None:
        return float(graph.words.activations)
    return float(FORMATS[graph.trained.reduced].bytes)


def type_of_weights(graph: Graph) -> Dtype:
    """Data type of ordinary weights; for a graph without types, by its word size."""
    return graph.dtypes.weights if graph.dtypes is not None else "fp32" if graph.word_bytes == 4 else "bf16"


def optimizer_bytes(graph: Graph, stated: float) -> float:
    """Bytes of optimizer state per parameter: by types, or as ``stated``.

    Examples
    --------
    >>> from dfopt.documents.dtypes import Trained
    >>> from dfopt.documents.graph import Kernel
    >>> graph = Graph(name="g", kernels=(Kernel(name="a", op="gemm", m=4, k=8, n=16),), trained=Trained(moments="fp8"))
    >>> optimizer_bytes(graph, 12.0), optimizer_bytes(graph.model_copy(update={"trained": None}), 12.0)
    (6.0, 12.0)
    """
    return stated if graph.trained is None else graph.trained.optimizer_bytes(type_of_weights(graph), stated)


def updates_weights(graph: Graph) -> bool:
    """Whether the optimizer updates the weights in place, without a master copy."""
    types = graph.trained
    stated = types is not None and (types.main_weights, types.moments) != (None, None)
    return stated and types is not None and types.updates(type_of_weights(graph))


def is_kept(graph: Graph, tensor: Tensor) -> bool:
    """Whether a tensor is the whole output of a kernel that states how long it is kept."""
    source = graph.kernels[graph.index()[tensor.src]]
    return source.output_saved is not None and graph.bytes_of(tensor) == graph.output_bytes(tensor.src)


def saved_word(graph: Graph, tensor: Tensor) -> float | None:
    """Bytes of an element of the saved copy of a tensor, if its type differs from the tensor's; else None.

    The input of the logits is converted only if all weights have the same type.

    Examples
    --------
    >>> from dfopt.documents.dtypes import Dtypes
    >>> from dfopt.documents.graph import Kernel
    >>> made, taken = Kernel(name="a", op="elementwise", m=8, n=16), Tensor(src="a", dst="b", operand=2)
    >>> update = Kernel(name="b", op="weight_update", m=8, k=16, n=4, pass_="update")
    >>> for saved in (None, "mxfp8"):
    ...     types = Dtypes(operands="fp8", saved=saved)
    ...     print(saved_word(Graph(name="g", dtypes=types, kernels=(made, update), tensors=(taken,)), taken))
    None
    1.03125
    """
    if graph.dtypes is None or graph.dtypes.saved is None:
        return None
    index = graph.index()
    source, reader = graph.kernels[index[tensor.src]], graph.kernels[index[tensor.dst]]
    if reader.op != "weight_update" or source.pass_ != "forward":
        return None
    product = None if reader.stage_with is None else graph.kernels[index[reader.stage_with]]
    if product is not None and weights_of(product) == "ends" and graph.dtypes.ends is not None:
        return None
    return float(FORMATS[graph.dtypes.saved].bytes)


def kept_beside(graph: Graph) -> tuple[dict[str, float], dict[str, float]]:
    """Unsharded bytes that kernels keep in addition to saved tensors: until the backward pass, and while a layer runs.

    Bytes of forward kernels are kept until the backward pass of their microbatch (negative where saved tensors count
    too much). Bytes of kernels that are recomputed, or belong to the backward pass, are kept while the backward pass of
    their layer runs.

    Examples
    --------
    >>> from dfopt.documents.graph import Kernel
    >>> mask = Kernel(name="a", op="elementwise", m=8, n=16, output_saved=True, mask_bytes=1.0)
    >>> kept_beside(Graph(name="g", kernels=(mask,)))
    ({'a': 384.0}, {})
    """
    kept, working = dict[str, float](), dict[str, float]()
    passes = {"forward": kept, "recompute": working, "backward": working}
    some = [k for k in graph.kernels if k.pass_ in passes and (k.output_saved is not None or k.mask_bytes)]
    read = read_later(graph) if some else set[str]()
    for kernel in some:
        size = (kernel.mask_bytes or 0.0) * kernel.matrices * needed(kernel)
        if kernel.output_saved and kernel.name not in read:
            size += graph.output_bytes(kernel.name)
        elif kernel.output_saved is False and kernel.name in read and kernel.pass_ == "forward":
            working[kernel.name] = graph.output_bytes(kernel.name)
            size -= working[kernel.name]
        passes[kernel.pass_][kernel.name] = passes[kernel.pass_].get(kernel.name, 0.0) + size
    return kept, working


def read_later(graph: Graph) -> set[str]:
    """Names of kept kernels whose whole output some tensor carries to a later pass, which saves it anyway."""
    passes = {kernel.name: kernel.pass_ for kernel in graph.kernels}
    later = {"forward": ("recompute", "backward", "update"), "recompute": ("backward", "update")}
    return {
        tensor.src
        for tensor in graph.tensors
        if passes[tensor.dst] in later.get(passes[tensor.src], ()) and is_kept(graph, tensor)
    }


def beside_tensors(graph: Graph) -> list[bool]:
    """For every tensor, whether its kernel counts it, as kept for a pass that no tensor carries it to."""
    if not any(kernel.output_saved for kernel in graph.kernels):
        return [False] * len(graph.tensors)
    read = read_later(graph)
    kept = {kernel.name for kernel in graph.kernels if kernel.pass_ in ("forward", "recompute") and kernel.output_saved}
    return [t.src in kept and t.src not in read and is_kept(graph, t) for t in graph.tensors]
