"""Which schemes the modules of a graph take over the second axis of plans."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from dfopt.documents.graph import Graph
from dfopt.documents.modules import MENU, Modules, ModuleScheme
from dfopt.setting.members import obstacle

_Stream = Literal["n", "context", "none"]


def refusal(graph: Graph) -> str | None:
    """A sentence on why a graph cannot have a second axis, or None."""
    if all(kernel.module is None for kernel in graph.kernels):
        return "no kernel says which module it belongs to"
    if any(kernel.pass_ == "update" and kernel.op != "weight_update" for kernel in graph.kernels):
        return "its optimizer is drawn as kernels, which have no scheme there"
    if any(kernel.distributed or kernel.communications for kernel in graph.kernels):
        return "kernels that the workload itself spreads over chips have no scheme there"
    return None


def obstacles(graph: Graph, schemes: Mapping[str, str], members: int) -> str:
    """End of a sentence on why modules cannot take the requested schemes; empty if they can.

    Parameters
    ----------
    graph
        The model.
    schemes
        Scheme by module; each is tried separately.
    members
        Chips of the second axis.
    """
    none: dict[str, Any] = {kernel.module: "none" for kernel in graph.kernels if kernel.module} | {"stream": "none"}
    asked = (none | {name: scheme} for name, scheme in schemes.items() if name in none and name != "stream")
    reasons = dict.fromkeys(obstacle(graph, Modules(**fields), members) for fields in asked)
    return "".join(f" ({reason})" for reason in reasons if reason)


def menu(graph: Graph, members: int, *, sparing: bool = False) -> Iterator[Modules]:
    """Combinations of schemes to try for all modules; where one takes ``n``, the residual stream is shared too.

    Parameters
    ----------
    graph
        The model.
    members
        Chips of the second axis.
    sparing
        Split ends by features where possible, and leave out schemes that another degree of the plan provides: copies of
        everything (``dp``), features of everything (``tp``), tokens of sequences if there are enough sequences, and
        together with such tokens a dense feed-forward by features and copies of experts.

    Examples
    --------
    >>> from dfopt.documents.graph import Kernel
    >>> up = Kernel(name="up", op="gemm", m=8, k=4, n=6, module="dense")
    >>> graph = Graph(name="g", microbatch=2, kernels=(up,))
    >>> [modules.label for modules in menu(graph, 2)]
    ['n: stream dense', 'n: stream; m: dense', 'none: stream; m: dense']
    """
    names = [name for name in MENU if any(kernel.module == name for kernel in graph.kernels)]
    for stream, schemes_of in _schemes(graph, members, names, sparing=sparing):
        for schemes in itertools.product(*(schemes_of[name] for name in names)):
            picked: dict[str, Any] = dict(zip(names, schemes, strict=True))
            copies = {*schemes} == {"n"}
            parts = not {"n", "context"} & {*schemes} and picked.get("experts") != "outer"
            if sparing and (copies or parts):
                continue
            if (stream != "none" or "n" not in schemes) and {stream, *schemes} != {"none"}:
                yield Modules(stream=stream, **picked)


def _schemes(
    graph: Graph, members: int, names: Sequence[str], *, sparing: bool
) -> Iterator[tuple[_Stream, dict[str, list[ModuleScheme]]]]:
    """Schemes of the residual stream, each with those that every module can take beside it."""
    none: dict[str, Any] = dict.fromkeys(("stream", *names), "none")

    def possible(name: str, others: dict[str, Any]) -> list[ModuleScheme]:
        schemes = [scheme for scheme in MENU[name] if not obstacle(graph, Modules(**others | {name: scheme}), members)]
        if sparing and (name == "ends" or others["stream"] == "context"):
            schemes = {"dense": schemes[:1], "experts": schemes[:2], "ends": schemes[-1:]}.get(name, schemes)
        return schemes or ["none"]

    rows = not obstacle(graph, Modules(stream="n"), members)
    context: dict[str, Any] = none | {"stream": "context", "mixer": "context"}
    tokens = "mixer" in names and not (sparing and rows) and not obstacle(graph, Modules(**context), members)
    schemes_of = {name: possible(name, none) for name in names}
    if sparing and (rows or tokens) and schemes_of.get("mixer") != ["context"]:
        schemes_of |= {name: [s for s in schemes if s != "context"] for name, schemes in schemes_of.items()}
    if rows:
        yield "n", schemes_of
    if tokens:
        yield "context", {name: possible(name, context) if name != "mixer" else ["context"] for name in names}
    yield "none", schemes_of
