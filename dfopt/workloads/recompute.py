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

from dfopt.documents.graph import Graph, Kernel, Role

__all__ = ["RECOMPUTES", "Recompute", "recomputed", "recomputes"]

Recompute = Literal["none", "attention", "full", "full+attention"]

ATTENTION: Final[tuple[Role, ...]] = ("scores", "softmax", "scores_dropout")
_ROUNDS: Final[dict[Recompute, tuple[Callable[[Graph, Collection[str]], set[str]], ...]]] = {
    "none": (),
    "attention": (lambda graph, _: with_roles(graph, ATTENTION),),
    "full": (lambda graph, start: behind_its_input(graph).union(start),),
    "full+attention": (
        lambda graph, _: with_roles(graph, ATTENTION),
        lambda graph, start: behind_its_input(graph).union(start),
    ),
}


RECOMPUTES: Final[tuple[Recompute, ...]] = tuple(_ROUNDS)
"""All values, least recomputed first."""


def recomputes(graph: Graph, which: Recompute, start: Collection[str] = ()) -> Graph:
    """The training graph of a layer that keeps less for its backward pass, and computes that again.

    ``attention``: the scores, and what follows until they meet the values. ``full``: all but what is handed on from
    the layer before. ``full+attention``: all of it, and within that the scores once more, so that none are kept even
    while a layer's backward pass runs: what a library does whose kernel for attention keeps no scores.

    ``start``: kernels that take what is handed on and are computed again too, from that.

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
        graph = recomputed(graph, chosen(graph, start))
    return graph


def with_roles(graph: Graph, roles: Collection[Role]) -> set[str]:
    """Forward kernels of some roles."""
    return {kernel.name for kernel in graph.kernels if kernel.pass_ == "forward" and kernel.role in roles}


def behind_its_input(graph: Graph) -> set[str]:
    """Forward kernels but those that take what another layer hands on: their outputs are a layer's checkpoint."""
    first = {tensor.dst for tensor in graph.carried if tensor.direction == "forward"}
    return {kernel.name for kernel in graph.kernels if kernel.pass_ == "forward" and kernel.name not in first}


def recomputed(graph: Graph, names: Collection[str]) -> Graph:
    """A training graph that keeps no output of some forward kernels for its backward pass.

    Those that it reads are drawn again, as ``NAME_again`` in the stage of the first, with what they need of the others.

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
    again = read.union(*(nx.ancestors(feeds, name) for name in read))
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
    if graph.inputs:
        read_again = (one.model_copy(update={"dst": called[one.dst]}) for one in graph.inputs if one.dst in again)
        fields["inputs"] = (*graph.inputs, *read_again)
    return graph.model_copy(update=fields)


def _free(name: str, taken: Container[str]) -> str:
    """What a kernel is called when it is drawn again; the last of several is the first to run."""
    numbers = itertools.count(2)
    found = f"{name}_again"
    while found in taken:
        found = f"{name}_again_{next(numbers)}"
    return found
