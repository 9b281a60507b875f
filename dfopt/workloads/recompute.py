"""What a backward pass computes again instead of keeping it: kernels that are drawn a second time.

Sources: of attention alone, the scores and what follows until they meet the values (Korthikanti et al., MLSys 2023,
section 5, selective recomputation; FlashAttention, Dao et al., arXiv:2205.14135, does it inside one kernel); of a whole
layer, all that its input leads to (Chen et al., arXiv:1604.06174).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Container
from typing import Final, Literal

import networkx as nx

from dfopt.documents.graph import Graph, Input, Kernel, Output, Role, Tensor
from dfopt.documents.sections import LAYER

__all__ = ["RECOMPUTES", "SOME", "Recompute", "recomputed", "recomputes", "some_recomputed", "ways_of"]

Recompute = Literal[
    "none", "attention", "full", "full+attention", "full/none", "full/attention", "full+attention/attention"
]

ATTENTION: Final[tuple[Role, ...]] = ("scores", "softmax", "scores_dropout")


SOME: Final[tuple[Recompute, ...]] = ("full/none", "full/attention", "full+attention/attention")
"""Values for some layers of a stage, and behind the stroke those for the others."""
AGAIN: Final = "again."
"""What kinds of layers that are recomputed are called, and their kernels: this before the name."""


def ways_of(which: Recompute) -> tuple[Recompute, Recompute | None]:
    """What all layers do, and what some do instead, if any.

    Examples
    --------
    >>> ways_of("full"), ways_of("full/attention")
    (('full', None), ('attention', 'full'))
    """
    if which not in SOME:
        return which, None
    some, others = which.split("/")
    return others, some  # type: ignore[return-value]


def some_recomputed(graph: Graph, again: Graph) -> Graph:
    """A graph of both: every kind of layer that repeats is there as it is in the second one too (``Graph.recomputed``).

    Examples
    --------
    >>> from dfopt.workloads import WORKLOADS
    >>> sizes = {"hidden": 64, "heads": 8, "head_dim": 8, "ffn": 192, "vocab": 1000, "seq": 32, "layers": 4}
    >>> graph = WORKLOADS["decoder"](**sizes, mode="training", recompute="full/attention")
    >>> graph.recomputed, graph.layers.kinds, len(graph.kernels)
    ({'layer': 'again.layer'}, ('layer', 'again.layer'), 109)
    """
    layers = graph.layers
    kinds = layers.kinds[: layers.counted]
    mine = {kernel.name for kernel in again.kernels if (kernel.layer or LAYER) in kinds}

    def called(name: str | None) -> str | None:
        return None if name is None else f"{AGAIN}{name}"

    def copy(kernel: Kernel) -> Kernel:
        own = {name: called(getattr(kernel, name)) for name in ("name", "stage_with", "accumulates_into")}
        return kernel.model_copy(update={**own, "layer": called(kernel.layer or LAYER)})

    def moved(tensors: tuple[Tensor, ...]) -> list[Tensor]:
        mined = (one for one in tensors if one.src in mine)
        return [one.model_copy(update={"src": called(one.src), "dst": called(one.dst)}) for one in mined]

    drawn = [*graph.kernels, *(copy(kernel) for kernel in again.kernels if kernel.name in mine)]
    fields: dict[str, object] = {
        "kernels": tuple(k for back in (False, True) for k in drawn if (k.pass_ != "forward") == back),
        "tensors": (*graph.tensors, *moved(again.tensors)),
        "carried": (*graph.carried, *moved(again.carried)),
        "recomputed": {kind: f"{AGAIN}{kind}" for kind in kinds},
        "variant": f"recompute: {_said(again)}/{_said(graph)}",
    }
    for name, end in (("inputs", "dst"), ("outputs", "src")):
        own, more = getattr(graph, name), getattr(again, name)
        if own is not None:
            theirs = (one for one in more if getattr(one, end) in mine)
            fields[name] = (*own, *(one.model_copy(update={end: called(getattr(one, end))}) for one in theirs))
    return graph.model_copy(update=fields)


def _said(graph: Graph) -> str:
    return (graph.variant or "recompute: none").removeprefix("recompute: ")


def recomputes(graph: Graph, which: Recompute, as_it_stands: bool = False) -> Graph:
    """The training graph of a layer that keeps less for its backward pass, and computes that again.

    ``attention``: the scores, and what follows until they meet the values. ``full``: all but what is handed on from
    the layer before. ``full+attention``: all of it, and within that the scores once more, so that none are kept even
    while a layer's backward pass runs: what a library does whose kernel for attention keeps no scores.

    ``as_it_stands``: kernels run again as in the forward pass, whatever the backward pass reads of them, and ``full``
    begins with the layer's own input: so a function that PyTorch's ``torch.utils.checkpoint`` is called with runs as a
    whole, and so Calculon counts it.

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
    """
    for chosen in _ROUNDS[which]:
        whole = as_it_stands and chosen is behind_its_input
        graph = recomputed(graph, forward(graph) if whole else chosen(graph), as_it_stands)
    return graph


def forward(graph: Graph) -> set[str]:
    """All kernels of the forward pass."""
    return {kernel.name for kernel in graph.kernels if kernel.pass_ == "forward"}


def with_roles(graph: Graph, roles: Collection[Role]) -> set[str]:
    """Forward kernels of some roles."""
    return {kernel.name for kernel in graph.kernels if kernel.pass_ == "forward" and kernel.role in roles}


def behind_its_input(graph: Graph) -> set[str]:
    """Forward kernels but those that take what another layer hands on: their outputs are a layer's checkpoint."""
    first = {tensor.dst for tensor in graph.carried if tensor.direction == "forward"}
    return {kernel.name for kernel in graph.kernels if kernel.pass_ == "forward" and kernel.name not in first}


def _attention(graph: Graph) -> set[str]:
    return with_roles(graph, ATTENTION)


_ROUNDS: Final[dict[Recompute, tuple[Callable[[Graph], set[str]], ...]]] = {
    "none": (),
    "attention": (_attention,),
    "full": (behind_its_input,),
    "full+attention": (_attention, behind_its_input),
}
RECOMPUTES: Final[tuple[Recompute, ...]] = tuple(_ROUNDS)
"""Values for all layers of a stage alike, least recomputed first."""


def recomputed(graph: Graph, names: Collection[str], as_it_stands: bool = False) -> Graph:
    """A training graph that keeps no output of some forward kernels for its backward pass.

    Those that it reads are drawn again, as ``NAME_again`` in the stage of the first, with what they need of the others;
    ``as_it_stands``: all of them, and what they make is written as the first time, where the graph lists what is.

    Examples
    --------
    >>> from dfopt.workloads import WORKLOADS
    >>> sizes = {"hidden": 64, "heads": 8, "head_dim": 8, "ffn": 192, "vocab": 1000, "seq": 32, "layers": 4}
    >>> kept = WORKLOADS["decoder"](**sizes, mode="training")
    >>> again = recomputed(kept, {"QK", "Softmax"})
    >>> [kernel.name for kernel in again.kernels if kernel not in kept.kernels]
    ['QK_again', 'Softmax_again']
    """
    kernels, mine = {kernel.name: kernel for kernel in graph.kernels}, set(names)
    feeds = graph.networkx().subgraph(mine)
    read = {t.src for t in graph.tensors if t.src in mine and kernels[t.dst].pass_ != "forward"}
    again = mine if as_it_stands else read.union(*(nx.ancestors(feeds, name) for name in read))
    called = {name: _free(name, kernels) for name in again}

    # what is kept is the copies', but for what the next layer starts from
    handed = {tensor.src for tensor in graph.carried if tensor.direction == "forward"}

    def copy(name: str) -> Kernel:
        # a table lies there once, and its gradient is that of the first reading
        fields = {"name": called[name], "pass_": "recompute", "stage_with": name, "resident_bytes": 0.0}
        fields |= {"output_saved": None} if name in handed else {}
        return kernels[name].model_copy(update=fields)

    def dropped(kernel: Kernel) -> Kernel:
        if kernel.name not in mine:
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
        read_again = (one for one in (*graph.inputs, *given) if one.dst in again)
        copies = (one.model_copy(update={"dst": called[one.dst]}) for one in read_again)
        fields["inputs"] = (*graph.inputs, *copies)
    if as_it_stands and graph.outputs is not None:
        first = {graph.taken(one) for one in (*forward, *graph.carried) if one.src in again}
        second = {graph.taken(one) for one in (*(t for t in forward if t.dst in again), *rest) if one.src in again}
        written = [(src, size) for src, size, _ in sorted(second - first, key=str)]
        written += [(called[src], size) for src, size, _ in sorted(first - second, key=str)]
        fields["outputs"] = (*graph.outputs, *(Output(src=src, bytes=size) for src, size in written))
    return graph.model_copy(update=fields)


def _free(name: str, taken: Container[str]) -> str:
    """What a kernel is called when it is drawn again; the last of several is the first to run."""
    numbers = itertools.count(2)
    found = f"{name}_again"
    while found in taken:
        found = f"{name}_again_{next(numbers)}"
    return found
