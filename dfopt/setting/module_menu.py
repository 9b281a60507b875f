"""Which schemes the modules of a graph take over the second axis of plans."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Literal

from dfopt.documents.graph import Graph
from dfopt.documents.modules import MENU, Modules, ModuleScheme
from dfopt.setting.members import able

__all__ = ["menu", "refusal"]


def refusal(graph: Graph) -> str | None:
    """Why a graph has no second axis at all, if it has none."""
    if all(kernel.module is None for kernel in graph.kernels):
        return "no kernel says which module it belongs to"
    if graph.trains:
        return "gradients of what its chips hold copies of are not added up yet"
    if any(kernel.distributed or kernel.communications for kernel in graph.kernels):
        return "kernels that the workload itself spreads over chips have no scheme there"
    return None


def menu(graph: Graph, members: int, *, sparing: bool = False) -> Iterator[Modules]:
    """Schemes to try: all that modules can take, together; where one takes ``n``, the residual stream does too.

    ``sparing``: ends are split by features where they can be, and what another axis does as well is left out: copies of
    everything (``dp``), and features of everything (``tp``).

    Examples
    --------
    >>> from dfopt.documents.graph import Kernel
    >>> up = Kernel(name="up", op="gemm", m=8, k=4, n=6, module="dense")
    >>> graph = Graph(name="g", microbatch=2, kernels=(up,))
    >>> [modules.label for modules in menu(graph, 2)]
    ['n: stream dense', 'n: stream; m: dense', 'none: stream; m: dense']
    """
    names = [name for name in MENU if any(kernel.module == name for kernel in graph.kernels)]
    schemes_of: dict[str, list[ModuleScheme]] = {}
    for name in names:
        alone: dict[str, Any] = dict.fromkeys(names, "none")
        found = [one for one in MENU[name] if able(graph, Modules(**alone | {name: one}), members)]
        schemes_of[name] = (found[-1:] if sparing and name == "ends" else found) or ["none"]
    rows = able(graph, Modules(stream="n"), members)
    streams: tuple[Literal["n", "none"], ...] = ("n", "none") if rows else ("none",)
    for stream in streams:
        for schemes in itertools.product(*(schemes_of[name] for name in names)):
            picked: dict[str, Any] = dict(zip(names, schemes, strict=True))
            copies, parts = {*schemes} == {"n"}, "n" not in schemes and picked.get("experts") != "outer"
            if sparing and (copies or parts):
                continue
            if (stream == "n" or "n" not in schemes) and {stream, *schemes} != {"none"}:
                yield Modules(stream=stream, **picked)
