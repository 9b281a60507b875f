"""Rings around blocks of two network dims, walked: what they load, and the dim that they are to the formulas.

The judge draws the ring of every group itself, follows each edge of it over the links, and counts. The formulas are
then told of a ring with the share of the most loaded link, which is what
:meth:`dfopt.documents.network.NetworkDim.around` says without a walk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from dfopt.documents.dim_names import parts_of, split_part_name
from dfopt.documents.network import CollectiveFactor, NetworkDim
from dfopt.documents.plan import Plan
from dfopt.documents.system import System
from dfopt.physics.identity import Same


class Side(NamedTuple):
    """Chips of one network dim in a block of two dims.

    Attributes
    ----------
    chips : int
        Chips along the whole dim.
    closes : bool
        Whether the dim is a ring.
    size : int
        Chips of the block along the dim.
    stride : int
        Distance of neighbouring chips of the block along the dim.
    """

    chips: int
    closes: bool
    size: int
    stride: int


def cycle(wide: int, high: int) -> list[tuple[int, int]]:
    """A Hamiltonian cycle through a block of ``wide`` x ``high`` chips by single steps: coordinates in order.

    One of the sides is even.

    Examples
    --------
    >>> cycle(3, 2)
    [(0, 0), (0, 1), (1, 1), (2, 1), (2, 0), (1, 0)]
    """
    if high % 2:
        return [(x, y) for y, x in cycle(high, wide)]
    home = [(x, y) for y in reversed(range(high)) for x in (range(1, wide) if y % 2 else reversed(range(1, wide)))]
    return [(0, y) for y in range(high)] + home


@lru_cache(maxsize=1024)
def loads(x: Side, y: Side) -> tuple[tuple[float, int], tuple[float, int]]:
    """Load of the rings around blocks in two dims: for each, edges on the busiest link, and links of the longest edge.

    All groups run their ring at once; an edge takes the shortest way, and half each where two are as short.

    Examples
    --------
    >>> loads(Side(4, False, 2, 1), Side(4, False, 2, 2))
    ((1.0, 1), (2.0, 2))
    """
    ring = cycle(x.size, y.size)
    count: tuple[Counter[tuple[int, int]], ...] = Counter(), Counter()
    hops = [0, 0]
    for first_x in _firsts(x):
        for first_y in _firsts(y):
            seats = [(first_x + i * x.stride, first_y + j * y.stride) for i, j in ring]
            for a, b in zip(seats, [*seats[1:], seats[0]], strict=True):
                along = 0 if a[1] == b[1] else 1
                ways = _ways(a[along], b[along], (x, y)[along])
                hops[along] = max(hops[along], len(ways[0]))
                for way in ways:
                    for link in way:
                        count[along][a[1 - along], link] += 1 / len(ways)  # type: ignore[assignment]
    most_x, most_y = (max(each.values()) for each in count)
    return (most_x, hops[0]), (most_y, hops[1])


def _firsts(side: Side) -> Iterator[int]:
    """The chips of a dim at which a group starts."""
    return (at for at in range(side.chips) if at // side.stride % side.size == 0)


def _ways(start: int, end: int, side: Side) -> list[list[int]]:
    """The shortest ways between two chips of a dim: links, each by the chip before it."""
    low, high = min(start, end), max(start, end)
    straight, back = [*range(low, high)], [*range(high, side.chips), *range(low)]
    if not side.closes or len(straight) < len(back):
        return [straight]
    return [back] if len(back) < len(straight) else [straight, back]


@lru_cache(maxsize=256)
def _with_blocks(key: Same[System], blocks: tuple[str, ...]) -> tuple[System, dict[str, str]]:
    """A system with one more dim for every block, and what that is called."""
    system = key.document
    dim_by_name = {dim.name: dim for dim in system.network}
    called, dims = dict[str, str](), list[NetworkDim]()
    for block in blocks:
        both, sides = [], []
        for part in block.split("+"):
            name, size, stride = split_part_name(part)
            dim = dim_by_name[name]
            both.append(dim)
            sides.append(Side(dim.size, dim.topology == "ring" and dim.size > 2, size or dim.size, stride))
        loaded = list(zip(both, loads(*sides), strict=True))
        kinds = dict.fromkeys(kind for dim in both for kind in dim.factors)
        plain = CollectiveFactor()
        called[block] = "_".join(("around", *dim_by_name, str(len(dims))))  # longer than the name of any other dim
        dims.append(
            NetworkDim(
                name=called[block],
                topology="ring",
                size=sides[0].size * sides[1].size,
                link_bandwidth=min(dim.sustained / most for dim, (most, _) in loaded),
                latency=max(dim.latency * hops for dim, (_, hops) in loaded),
                factors={
                    kind: CollectiveFactor(
                        bandwidth_share=min(dim.factors.get(kind, plain).bandwidth_share for dim in both)
                    )
                    for kind in kinds
                },
                processor_usage=max(dim.processor_usage or 0.0 for dim in both) or None,
                packet_payload=both[0].packet_payload,
                packet_header=both[0].packet_header,
            )
        )
    return system.model_copy(update={"network": (*system.network, *dims)}), called


def walked(system: System, plan: Plan) -> tuple[System, dict[str, str]]:
    """The system with one further dim for every block of a plan, and the name of that dim by block.

    Examples
    --------
    >>> from dfopt.documents.system import Chip, Dram, Sram
    >>> x, y = (NetworkDim(name=n, topology="line", size=2, link_bandwidth=25e9) for n in "xy")
    >>> chip = Chip(name="c", tiles=1, peak=1e12, sram=Sram(capacity=1e6), dram=Dram(bandwidth=1e9))
    >>> system = System(name="s", chip=chip, network=(x, y))
    >>> extended, called = walked(system, Plan(tp=4, tp_dims=("x+y",)))
    >>> extended.dim(called["x+y"]).size
    4
    """
    named = [name for _, _, dims in plan.axes for name in dims]
    blocks = tuple(dict.fromkeys(name for name in named if len(parts_of([name])) > 1))
    return _with_blocks(Same(system), blocks) if blocks else (system, {})
