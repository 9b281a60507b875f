"""What a backward pass computes again instead of keeping it: kernels that are drawn a second time.

A value of ``recompute`` names what of a layer is computed again, several joined by ``+`` (:data:`PARTS`); behind a
stroke what the other layers of a stage do instead. Names are Megatron-LM's (``--recompute-modules``), but for its
``core_attn``, which is ``attention`` here, for ``full``, and for ``op`` of torchtitan.

Sources: of attention alone, the scores and what follows until they meet the values (Korthikanti et al., MLSys 2023,
section 5, selective recomputation; FlashAttention, Dao et al., arXiv:2205.14135, does it inside one kernel); of a whole
layer, all that its input leads to (Chen et al., arXiv:1604.06174); of modules, ``megatron/core/transformer`` of
Megatron-LM; of ``op``, ``torchtitan/distributed/activation_checkpoint.py``.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from typing import Annotated, Final

from pydantic import AfterValidator

from dfopt.documents.base import problem
from dfopt.documents.graph import Graph, Input, Kernel, Output
from dfopt.documents.kernel import Role
from dfopt.documents.passes import way_of
from dfopt.documents.sections import LAYER
from dfopt.errors import did_you_mean
from dfopt.workloads.unroll import renamed

ATTENTION: Final[tuple[Role, ...]] = ("scores", "softmax", "scores_dropout")
NONE: Final = "none"
AGAIN: Final = "again."
"""What kinds of layers that are recomputed are called, and their kernels: this before the name."""


def recompute_of(text: str) -> str:
    """Normalized value of ``recompute``, with names in the order of `PARTS`.

    Raises
    ------
    ValueError
        For an unknown name, or one that is given twice.

    Examples
    --------
    >>> recompute_of("attention+full/attention"), recompute_of("moe_act+layernorm"), recompute_of("none")
    ('full+attention/attention', 'moe_act+layernorm', 'none')
    """
    ways = text.split("/")
    if len(ways) > 2 or len({*ways}) < len(ways):
        raise problem(f"found {text!r}", "write SOME, or SOME/OTHERS of layers that are not alike", "$")
    return "/".join(_ordered(way) for way in ways)


def _ordered(way: str) -> str:
    names = way.split("+")
    if way == NONE:
        return way
    for name in names:
        if name not in PARTS or names.count(name) > 1:
            expected = f"expected {NONE} or some of {', '.join(PARTS)}, joined by +, each once"
            raise problem(f"found {way!r}, {expected}", did_you_mean(name, (*PARTS, NONE), "choose some"), "$")
    return "+".join(name for name in PARTS if name in names)


def ways_of(which: str) -> tuple[str, str | None]:
    """Recomputation of all layers, and the further one of some layers or None.

    Examples
    --------
    >>> ways_of("full"), ways_of("full/attention")
    (('full', None), ('attention', 'full'))
    """
    some, _, others = which.partition("/")
    return (others, some) if others else (some, None)


def some_recomputed(graph: Graph, again: Graph) -> Graph:
    """Graph with both variants of every repeated layer: with and without recomputation (``Graph.recomputed``).

    Examples
    --------
    >>> from dfopt.workloads import WORKLOADS
    >>> sizes = {"hidden": 64, "heads": 8, "head_dim": 8, "ffn": 192, "vocab": 1000, "seq": 32, "layers": 4}
    >>> graph = WORKLOADS["decoder"](**sizes, mode="training", recompute="full/attention")
    >>> graph.recomputed, graph.layers.kinds, len(graph.kernels)
    ({'layer': 'again.layer'}, ('layer', 'again.layer', 'embedding', 'head'), 117)
    """
    layers = graph.layers
    kinds = layers.kinds[: layers.counted]
    names = {kernel.name for kernel in again.kernels if (kernel.layer or LAYER) in kinds}

    called = f"{AGAIN}{{}}".format
    copied = (kernel for kernel in again.kernels if kernel.name in names)
    drawn = [*graph.kernels, *(renamed(kernel, called, layer=called(kernel.layer or LAYER)) for kernel in copied)]
    fields: dict[str, object] = {
        "kernels": tuple(k for back in (False, True) for k in drawn if (k.pass_ != "forward") == back),
        "recomputed": {kind: f"{AGAIN}{kind}" for kind in kinds},
        "variant": f"recompute: {way_of(again.variant)}/{way_of(graph.variant)}",
    }
    for name, end in (("tensors", "src"), ("carried", "src"), ("inputs", "dst"), ("outputs", "src")):
        own, more = getattr(graph, name), getattr(again, name)
        if own is not None:
            fields[name] = (*own, *(renamed(part, called) for part in more if getattr(part, end) in names))
    return graph.model_copy(update=fields)


def recomputes(graph: Graph, which: str, as_it_stands: bool = False) -> Graph:
    """Training graph of a layer with activation recomputation.

    ``attention``: the scores, and all kernels up to their product with the values. ``full``: everything except the
    input from the layer before. Several are applied in ascending order: ``full+attention`` recomputes the layer, and
    within it the scores again, so that no scores are stored even while the backward pass of a layer runs, as in a
    library whose attention kernel keeps no scores.

    ``as_it_stands``: all kernels run again as in the forward pass, even if the backward pass does not read their
    outputs, and ``full`` begins with the layer's input. PyTorch's ``torch.utils.checkpoint`` runs a function again in
    this way, and Calculon counts it so.

    Examples
    --------
    >>> from dfopt.workloads import WORKLOADS
    >>> sizes = {"hidden": 64, "heads": 8, "head_dim": 8, "ffn": 192, "vocab": 1000, "seq": 32, "layers": 4}
    >>> def again(which):
    ...     graph = WORKLOADS["decoder"](**sizes, mode="training", recompute=which)
    ...     return [kernel.name for kernel in graph.kernels if kernel.pass_ == "recompute"]
    >>> again("attention")
    ['QK_again', 'Softmax_again']
    >>> len(again("full")), [name for name in again("full+attention") if name.startswith("QK")]
    (15, ['QK_again_2', 'QK_again'])
    >>> again("layernorm")
    ['RMSNorm_1_again', 'RMSNorm_2_again']
    >>> [name for name in again("op+attention") if "Proj" in name]  # of seven products with weights the second, ...
    ['K_Proj_again', 'O_Proj_again', 'Up_Proj_again']
    """
    for name in reversed(PARTS):
        if name in which.split("+"):
            chosen = PARTS[name]
            all_forward = as_it_stands and chosen is behind_its_input
            graph = recomputed(graph, forward(graph) if all_forward else chosen(graph), as_it_stands)
    return graph


def without_full(which: str) -> str:
    """What a layer recomputes within a fully recomputed one.

    Examples
    --------
    >>> without_full("full"), without_full("full+attention")
    ('none', 'attention')
    """
    return "+".join(name for name in which.split("+") if name != "full") or NONE


def checkpointed(graph: Graph, which: str, every: int) -> Graph:
    """Training graph of several layers with one checkpoint: only the first layer's input is kept.

    Examples
    --------
    >>> from dfopt.workloads import WORKLOADS
    >>> sizes = {"hidden": 64, "heads": 8, "head_dim": 8, "ffn": 192, "vocab": 1000, "seq": 32, "layers": 4}
    >>> graph = WORKLOADS["decoder"](**sizes, mode="training", recompute="full", checkpoint_every=2)
    >>> graph.repeat, graph.variant, sum(kernel.pass_ == "recompute" for kernel in graph.kernels)
    (2, 'recompute: full, every 2 layers', 33)
    """
    names = {kernel.name for kernel in _forward(graph) if (kernel.layer or LAYER) == LAYER}
    redrawn = recomputed(graph, behind_its_input(graph) & names)
    return redrawn.model_copy(update={"variant": f"recompute: {which}, every {every} layers"})


def unused(graph: Graph, which: str) -> list[str]:
    """Names in a ``recompute`` value that match no kernel of a graph, except attention.

    Examples
    --------
    >>> from dfopt.workloads import WORKLOADS
    >>> sizes = {"hidden": 64, "heads": 8, "head_dim": 8, "ffn": 192, "vocab": 1000, "seq": 32, "layers": 4}
    >>> unused(WORKLOADS["decoder"](**sizes, mode="training"), "moe_act+layernorm/attention")
    ['moe_act']
    """
    names = [name for way in which.split("/") for name in way.split("+") if name not in (NONE, "attention")]
    return [name for name in dict.fromkeys(names) if not PARTS[name](graph)]


def forward(graph: Graph) -> set[str]:
    """Names of all forward kernels."""
    return {kernel.name for kernel in _forward(graph)}


def _forward(graph: Graph) -> Iterator[Kernel]:
    return (kernel for kernel in graph.kernels if kernel.pass_ == "forward")


def with_roles(graph: Graph, roles: Collection[str]) -> set[str]:
    """Names of the forward kernels with given roles."""
    return {kernel.name for kernel in _forward(graph) if kernel.role in roles}


def behind_its_input(graph: Graph) -> set[str]:
    """Names of the forward kernels that do not read another layer's output, which is the layer's checkpoint."""
    first = {tensor.dst for tensor in graph.carried if tensor.direction == "forward"}
    return forward(graph) - first


def _but_every_second_product(graph: Graph) -> set[str]:
    """All but the first, third, ... product with a weight and what attention gives, as torchtitan's policy has it.

    What is saved there and no kernel of the backward pass reads, such as a last product, is not kept: so a compiler
    does; without one it is.
    """
    products = [kernel.name for kernel in _forward(graph) if kernel.op == "gemm"]
    return behind_its_input(graph) - {*products[::2]} - with_roles(graph, ("context",))


def _feed_forward(experts: bool) -> Callable[[Graph], set[str]]:
    """Kernels of the feed-forward of layers that have experts, or of those that have none."""

    def chosen(graph: Graph) -> set[str]:
        sparse = {kernel.layer for kernel in _forward(graph) if kernel.module == "experts"}
        kernels = (kernel for kernel in _forward(graph) if kernel.module in ("dense", "experts"))
        return {kernel.name for kernel in kernels if (kernel.layer in sparse) == experts}

    return chosen


def _of_experts(graph: Graph) -> set[str]:
    return {kernel.name for kernel in _forward(graph) if kernel.module == "experts" and kernel.role == "activation"}


def _from_latents(graph: Graph) -> set[str]:
    """What queries, keys and values become from latents until they meet in the scores or are weighed up."""
    shut = with_roles(graph, (*ATTENTION, "context", "latent", "norm"))
    behind = _reached(with_roles(graph, ("latent",)), [(tensor.src, tensor.dst) for tensor in graph.tensors])
    before = _reached(with_roles(graph, ("scores", "context")), [(tensor.dst, tensor.src) for tensor in graph.tensors])
    return (behind & before & forward(graph)) - shut


def _reached(names: Collection[str], steps: Iterable[tuple[str, str]]) -> set[str]:
    """All that one step or more leads to from some kernels; to import networkx for this takes 0.15 s."""
    next_of = defaultdict[str, set[str]](set)
    for here, there in steps:
        next_of[here].add(there)
    reached, waiting = set[str](), list(names)
    while waiting:
        new = next_of[waiting.pop()] - reached
        reached |= new
        waiting += new
    return reached


PARTS: Final[dict[str, Callable[[Graph], set[str]]]] = {
    "full": behind_its_input,
    "op": _but_every_second_product,
    "moe": _feed_forward(experts=True),
    "mlp": _feed_forward(experts=False),
    "moe_act": _of_experts,
    "mla_up_proj": _from_latents,
    "layernorm": lambda graph: with_roles(graph, ("norm",)),
    "attention": lambda graph: with_roles(graph, ATTENTION),
}
"""What can be computed again of a layer, the largest first, and which forward kernels that is."""
Recompute = Annotated[str, AfterValidator(recompute_of)]


def recomputed(graph: Graph, names: Collection[str], as_it_stands: bool = False) -> Graph:
    """Training graph in which the backward pass recomputes the outputs of given forward kernels.

    Kernels whose outputs it reads are drawn again, as ``NAME_again`` in the stage of the original, with the other
    kernels that they need. ``as_it_stands``: all of them are drawn again, and their outputs are written as the first
    time, if the graph lists its outputs.

    Examples
    --------
    >>> from dfopt.workloads import WORKLOADS
    >>> sizes = {"hidden": 64, "heads": 8, "head_dim": 8, "ffn": 192, "vocab": 1000, "seq": 32, "layers": 4}
    >>> kept = WORKLOADS["decoder"](**sizes, mode="training")
    >>> again = recomputed(kept, {"QK", "Softmax"})
    >>> [kernel.name for kernel in again.kernels if kernel not in kept.kernels]
    ['QK_again', 'Softmax_again']
    """
    kernels, unsaved = {kernel.name: kernel for kernel in graph.kernels}, set(names)
    read = {t.src for t in graph.tensors if t.src in unsaved and kernels[t.dst].pass_ != "forward"}
    feeds = [(tensor.dst, tensor.src) for tensor in graph.tensors if {tensor.src, tensor.dst} <= unsaved]
    again = unsaved if as_it_stands else read | _reached(read, feeds)
    called = {name: _free(name, kernels) for name in again}

    # what is kept is the copies', but for what the next layer starts from
    handed = {tensor.src for tensor in graph.carried if tensor.direction == "forward"}

    def copy(name: str) -> Kernel:
        # a table lies there once, and its gradient is that of the first reading
        fields = {"name": called[name], "pass_": "recompute", "stage_with": name, "resident_bytes": 0.0}
        fields |= {"output_saved": None} if name in handed else {}
        return kernels[name].model_copy(update=fields)

    def dropped(kernel: Kernel) -> Kernel:
        if kernel.name not in unsaved:
            return kernel
        stays = kernel.output_saved if kernel.name in handed else None
        return kernel.model_copy(update={"output_saved": stays, "mask_bytes": None})

    drawn = [copy(name) for name in kernels if name in again]
    forward = [t for t in graph.tensors if kernels[t.dst].pass_ == "forward"]
    later = [
        t.model_copy(update={"src": called.get(t.src, t.src), "dst": called[t.dst]}) for t in forward if t.dst in again
    ]
    rest = [t for t in graph.tensors if kernels[t.dst].pass_ != "forward"]
    back = [t.model_copy(update={"src": called.get(t.src, t.src)}) for t in rest]
    place = sum(kernel.pass_ == "forward" for kernel in graph.kernels)
    fields: dict[str, object] = {
        "kernels": (*map(dropped, graph.kernels[:place]), *drawn, *graph.kernels[place:]),
        "tensors": (*forward, *later, *back),
    }
    if graph.inputs is not None:  # what another layer handed on is a checkpoint then, read from DRAM
        given = (Input(dst=t.dst, bytes=graph.bytes_of(t)) for t in graph.carried if t.direction == "forward")
        read_again = (port for port in (*graph.inputs, *given) if port.dst in again)
        copies = (port.model_copy(update={"dst": called[port.dst]}) for port in read_again)
        fields["inputs"] = (*graph.inputs, *copies)
    if as_it_stands and graph.outputs is not None:
        first = {graph.taken(t) for t in (*forward, *graph.carried) if t.src in again}
        second = {graph.taken(t) for t in (*(t for t in forward if t.dst in again), *rest) if t.src in again}
        written = [(src, size) for src, size, _ in sorted(second - first, key=str)]
        written += [(called[src], size) for src, size, _ in sorted(first - second, key=str)]
        fields["outputs"] = (*graph.outputs, *(Output(src=src, bytes=size) for src, size in written))
    return graph.model_copy(update=fields)


def _free(name: str, taken: Container[str]) -> str:
    """What a kernel is called when it is drawn again; the last of several is the first to run."""
    numbers = itertools.count(2)
    candidate = f"{name}_again"
    while candidate in taken:
        candidate = f"{name}_again_{next(numbers)}"
    return candidate
