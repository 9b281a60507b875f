"""What a backward pass computes again instead of keeping it: outputs of forward kernels, chosen by their roles."""

from __future__ import annotations

from collections.abc import Collection

import networkx as nx

from dfopt.documents.graph import Graph, Role

__all__ = ["recomputed"]


def recomputed(graph: Graph, roles: Collection[Role]) -> Graph:
    """A training graph that keeps no output of forward kernels of some roles for its backward pass.

    Those that it reads are drawn again, as ``NAME_again`` in the stage of the first, with what they need of such roles.

    Examples
    --------
    >>> from dfopt.workloads import WORKLOADS
    >>> sizes = {"hidden": 64, "heads": 8, "head_dim": 8, "ffn": 192, "vocab": 1000, "seq": 32, "layers": 4}
    >>> kept = WORKLOADS["decoder"](**sizes, mode="training")
    >>> again = recomputed(kept, ("scores", "softmax"))
    >>> [kernel.name for kernel in again.kernels if kernel not in kept.kernels]
    ['QK_again', 'Softmax_again']
    """
    kernels = {kernel.name: kernel for kernel in graph.kernels}
    mine = {kernel.name for kernel in graph.kernels if kernel.pass_ == "forward" and kernel.role in roles}
    feeds = graph.networkx().subgraph(mine)
    read = {t.src for t in graph.tensors if t.src in mine and kernels[t.dst].pass_ != "forward"}
    again = read.union(*(nx.ancestors(feeds, name) for name in read))

    def copy(name: str) -> str:
        return f"{name}_again" if name in again else name

    about = ({"name": copy(name), "pass_": "backward", "stage_with": name} for name in kernels if name in again)
    drawn = [kernels[one["stage_with"]].model_copy(update=one) for one in about]
    later = [t.model_copy(update={"src": copy(t.src), "dst": copy(t.dst)}) for t in graph.tensors if t.dst in again]
    forward = [t for t in graph.tensors if kernels[t.dst].pass_ == "forward"]
    back = [t.model_copy(update={"src": copy(t.src)}) for t in graph.tensors if kernels[t.dst].pass_ != "forward"]
    place = sum(kernel.pass_ == "forward" for kernel in graph.kernels)
    every = (*graph.kernels[:place], *drawn, *graph.kernels[place:])
    return graph.model_copy(update={"kernels": every, "tensors": (*forward, *later, *back)})
