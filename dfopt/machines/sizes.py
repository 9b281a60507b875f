"""Systems in other sizes: so many chips or nodes of a system of the zoo or of a file, such as ``h100-256:64``."""

from __future__ import annotations

import math
import os
import re
from bisect import bisect
from typing import Any

from dfopt.documents.network import NetworkDim
from dfopt.documents.system import System
from dfopt.documents.zoo import families, zoo
from dfopt.errors import Issue, SystemSpecError
from dfopt.machines.topologies import expand

_NetworkDims = tuple[NetworkDim, ...]


def split_size(name_or_path: str | os.PathLike[str]) -> tuple[str, int | None]:
    """System name and number of chips in a text such as ``h100:64``; a family gives its representative.

    Examples
    --------
    >>> split_size("h100-256:64"), split_size("b200:4"), split_size("h100-8")
    (('h100-256', 64), ('b200-8', 4), ('h100-8', None))
    """
    text = os.fspath(name_or_path)
    parts = re.fullmatch(r"(.+):([0-9]{1,7})", text, re.DOTALL)
    if parts is None or os.path.exists(text):
        return text, None
    name = parts[1]
    return name if name in zoo("systems") or os.path.isfile(name) else families().get(name, name), int(parts[2])


def sized(system: System, chips: int | None = None, nodes: int | None = None) -> System:
    """A system with another number of chips, or nodes, or both.

    The outermost dim is cut first, also within a node. A dim between nodes may have any number of nodes. A ring or line
    has only sizes that its maker sells: those of the system's ``slices``, or else its own. A single node is extended to
    several by the system's link ``scale_out``.

    Parameters
    ----------
    system
        The system.
    chips : int, optional
        Number of chips; by default all of the nodes.
    nodes : int, optional
        Number of nodes; by default as many as the chips need.

    Raises
    ------
    SystemSpecError
        For a size that the system cannot have, with those that it can.

    Examples
    --------
    >>> from dfopt.machines.compose import load_system
    >>> [[dim.size for dim in sized(load_system("h100-256"), chips).network] for chips in (64, 4)]
    [[8, 8], [4]]
    >>> sized(load_system("h100-8"), nodes=2).chips, sized(load_system("tpu-v5e-256"), 8).network[1].topology
    (16, 'line')
    """
    if chips is None and nodes is None:
        return system
    node, between = _levels(system)
    most = math.prod(dim.size for dim in node)
    if nodes is None:
        inside = min(chips or 0, most)
        count, rest = divmod(chips or 0, inside or 1)
    else:
        count, (inside, rest) = nodes, (most, 0) if chips is None else divmod(chips, nodes or 1)
    inner, outer = _inside(system, node, inside), _cut(between, count)
    if rest or inner is None or outer is None:
        asked = [f"{number} {what}" for number, what in ((chips, "chips"), (nodes, "nodes")) if number is not None]
        message = f"found {' in '.join(asked)}, expected {_sizes(system, node, between, inside)}"
        remedy = "give another number, or change the dims by hand"
        raise SystemSpecError(system.name, [Issue("$.network", message, remedy)])
    network = tuple(dim for dim in (*inner, *outer) if dim.size > 1)
    if network == tuple(dim for dim in system.network if dim.size > 1):
        return system
    shape, name = " x ".join(str(dim.size) for dim in network) or "1", system.name.partition(":")[0]
    changes = {"network": network, "slices": None, "scale_out": None, "name": f"{name}:{inside * count}"}
    changes["description"] = f"{shape} {system.chip.name}: {system.name} in another size"
    return system.model_copy(update=changes)


def _levels(system: System) -> tuple[_NetworkDims, _NetworkDims]:
    """The dims inside a node, and those between nodes."""
    dims, link = system.network, system.scale_out
    if link is not None:
        return dims, expand("switch", (1,), (link.model_copy(update={"tier": "cluster"}),), ("cluster",))
    at = next((at for at, dim in enumerate(dims) if dim.tier == "cluster"), None)
    at = at or (len(dims) if system.slices or len(dims) < 2 or dims[-1].laid_out else len(dims) - 1)
    return dims[:at], dims[at:]


def _slices(system: System) -> dict[int, list[dict[str, Any]]]:
    """Size and wiring of each dim of what the maker sells, by number of chips; of equal numbers the first."""
    listed = [(shape, slices.topology) for slices in system.slices or () for shape in slices.sizes][::-1]
    keys = "size", "topology"
    return {math.prod(shape): [dict(zip(keys, pair, strict=True)) for pair in zip(shape, topology, strict=True)]
            for shape, topology in listed}  # fmt: skip


def _inside(system: System, node: _NetworkDims, chips: int) -> _NetworkDims | None:
    """A node, or a part of one, with so many chips; none if there is no such."""
    if chips == math.prod(dim.size for dim in node) or not system.slices:
        return _cut(node, chips)
    changed = zip(node, _slices(system).get(chips, ()), strict=False)
    return tuple(dim.model_copy(update=changes) for dim, changes in changed) or None


def _cut(dims: _NetworkDims, chips: int) -> _NetworkDims | None:
    """The dims with so many chips, the outermost cut first, those of one chip left out; none if that cannot be."""
    if not dims:
        return () if chips == 1 else None
    *inner, outer = dims
    count, rest = divmod(chips, math.prod(dim.size for dim in inner))
    if count == outer.size and not rest:
        return dims
    if outer.laid_out or (count > outer.size and (outer.tier, outer.topology) != ("cluster", "switch")):
        return None
    if count < 2:
        return _cut(tuple(inner), chips)
    if rest:
        return None
    factors = {kind: factor.of_fewer() for kind, factor in outer.factors.items()}
    return (*inner, outer.model_copy(update={"size": count, "factors": factors}))


def _sizes(system: System, node: _NetworkDims, between: _NetworkDims, asked: int) -> str:
    """Numbers of chips that a system can have, in words: those of a node, or the nearest of many, and of several."""
    most = math.prod(dim.size for dim in node)
    slices = _slices(system)
    fitting = sorted({*slices, most}) if slices else [n for n in range(1, most + 1) if _cut(node, n) is not None]
    words = [f"1 to {most}"] if len(fitting) == most > 1 else [str(n) for n in fitting]
    if len(words) > 12:
        at = bisect(fitting, asked)
        words = [*words[max(at - 2, 0) : at + 2], f"... ({len(fitting)} sizes, up to {most})"]
    if between:
        limit = "" if _cut(between, 10**6) else f" up to {most * math.prod(dim.size for dim in between)}"
        words[-1] += f", or a multiple of {most}{limit}"
    return ", ".join(words)
