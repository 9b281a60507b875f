"""Ways to share network dims out among the axes of a plan, and the orders in which an axis may use its dims."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Container, Iterator, Sequence

import networkx as nx
import numpy as np

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.axes import AXES, Dims, groups
from dfopt.documents.dim_names import block_name, part_name, split_part_name
from dfopt.documents.graph import Graph
from dfopt.documents.system import NetworkDim, System
from dfopt.physics.collectives import Collective
from dfopt.physics.network import affine

Shared = dict[str, Dims]  # network dims, or parts of dims, that each axis has
_ON_SHARDS = (Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.ALL_TO_ALL)  # what shardings ask for


def shares(
    dims: Sequence[NetworkDim],
    parts: bool,
    nested: Container[str] = (),
    named: bool = False,
    axes: Sequence[str] = tuple(AXES),
) -> Iterator[tuple[dict[str, int], Shared]]:
    """Every way to share dims out: the degree of each axis, and the names of its dims or parts, in the order of `dims`.

    Inside a dim, neighbours go to the first axis, and the others follow; in those `nested` they go to each in turn.
    Of ways that differ only in which of some dims that are wired alike is which, one is given, unless dims are `named`.
    Axes other than those asked for have a degree of 1.

    Examples
    --------
    >>> x = NetworkDim(name="x", topology="switch", size=4, link_bandwidth=1e9)
    >>> three = "tp", "pp", "dp"
    >>> [tuple(degrees.values()) for degrees, _ in shares([x], parts=False, axes=three)]
    [(4, 1, 1, 1), (1, 1, 4, 1), (1, 1, 1, 4)]
    >>> len(list(shares([x], parts=True, axes=three)))
    6
    >>> y = x.model_copy(update={"name": "y"})
    >>> [tuple(shared.values()) for _, shared in shares([x, y], parts=False, axes=three)][:3]
    [(('x', 'y'), (), (), ()), (('x',), (), ('y',), ()), (('x',), (), (), ('y',))]
    >>> len(list(shares([x, y], parts=False, axes=three))), len(list(shares([x, y], parts=False)))
    (6, 10)
    """
    alike: list[list[int]] = []
    for number, dim in enumerate(dims):
        same = [] if named else [of for of in alike if dims[of[0]].model_copy(update={"name": dim.name}) == dim]
        same[0].append(number) if same else alike.append([number])
    ways = [
        itertools.combinations_with_replacement(_of_one(dims[of[0]].size, parts, len(axes)), len(of)) for of in alike
    ]
    place_of = np.argsort(list(itertools.chain(*alike))).tolist()
    for picked in itertools.product(*ways):
        of_kind = list(itertools.chain(*picked))
        choice = [of_kind[place] for place in place_of]
        degrees = dict.fromkeys(AXES, 1)
        degrees |= {axis: math.prod(sizes[place] for sizes in choice) for place, axis in enumerate(axes)}
        of_dims = [_named(dim, sizes, dim.name in nested) for dim, sizes in zip(dims, choice, strict=True)]
        for names in itertools.product(*of_dims):
            shared: Shared = dict.fromkeys(AXES, ())
            shared |= {axis: tuple(of[place] for of in names if place in of) for place, axis in enumerate(axes)}
            yield degrees, shared


def in_rank_order(
    dims: Sequence[NetworkDim], order: Sequence[str], axes: Sequence[str] = tuple(AXES)
) -> Iterator[tuple[dict[str, int], Shared]]:
    """Every way to share dims out in which axes take neighboring chips, one axis after the other from the first dim on.

    Axes that are none of ``axes`` have a degree of 1. An axis has whole dims, or a part of a dim whose other parts are
    those of the axes next to it, so that of a dim of 4 chips none has 3.

    Examples
    --------
    >>> x, y = (NetworkDim(name=name, topology="ring", size=4, link_bandwidth=1e9) for name in "xy")
    >>> ways = list(in_rank_order([x, y], ("tp", "pp"), ("tp", "pp")))
    >>> [(degree["tp"], degree["pp"]) for degree, _ in ways]
    [(1, 16), (2, 8), (4, 4), (8, 2), (16, 1)]
    >>> ways[1][1]["tp"], ways[1][1]["pp"]
    (('x[2]',), ('x[2@2]', 'y'))
    """
    named = [axis for axis in order if axis in axes]
    chips = math.prod(dim.size for dim in dims)

    def degrees_of(left: int, count: int) -> Iterator[tuple[int, ...]]:
        for first in sorted(divisors(left)) if count > 1 else [left]:
            yield from ((first, *others) for others in degrees_of(left // first, count - 1)) if count > 1 else [(left,)]

    for sizes in degrees_of(chips, len(named)):
        free = [(dim.name, dim.size, 1) for dim in dims]  # name, chips that are left, and how far they are apart
        shared: Shared = dict.fromkeys(AXES, ())
        for axis, size in zip(named, sizes, strict=True):
            while size > 1 and free:
                name, left, stride = free[0]
                taken = math.gcd(left, size)
                if taken < min(left, size):
                    break
                whole = stride == 1 and taken == left
                shared[axis] += (name if whole else part_name(name, taken, stride),)
                free[:1] = [] if taken == left else [(name, left // taken, stride * taken)]
                size //= taken
            if size > 1:
                break
        else:
            yield dict.fromkeys(AXES, 1) | dict(zip(named, sizes, strict=True)), shared


def _of_one(size: int, parts: bool, axes: int) -> Iterator[tuple[int, ...]]:
    """Every way to write the size of a dim as a product of one number per axis."""
    if axes == 1:
        yield (size,)
        return
    for own in divisors(size) if parts else sorted({size, 1}, reverse=True):
        yield from ((own, *others) for others in _of_one(size // own, parts, axes - 1))


def _named(dim: NetworkDim, sizes: Sequence[int], nested: bool) -> list[dict[int, str]]:
    """What each axis gets of a dim, by its place; one entry for each order of those that share it."""
    sharing = [place for place, size in enumerate(sizes) if size > 1]
    found = []
    for order in itertools.permutations(sharing) if nested else (sharing,):
        strides = itertools.accumulate((sizes[place] for place in order), lambda a, b: a * b, initial=1)
        parts = [part_name(dim.name, sizes[place], at) for place, at in zip(order, strides, strict=False)]
        found.append(dict(zip(order, parts if len(order) > 1 else [dim.name], strict=False)))
    return found


def divisors(n: int) -> list[int]:
    """All divisors, largest first.

    Examples
    --------
    >>> divisors(12)
    [12, 6, 4, 3, 2, 1]
    """
    low = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return sorted({*low, *(n // d for d in low)}, reverse=True)


class Orders:
    """Orders in which the axes of a plan use their dims, as far as one of them can be better than another.

    Every collective of a plan takes ``per_byte * volume + fixed`` seconds over the dims of an axis, and no time that
    is made of them falls when one of them rises. So of two orders with the same coefficients one is enough, and one
    with none larger and some smaller is better whatever the volumes are. What is left is what `of` gives.

    The graph's kernels' own communications, and whether gradients are added up, say which collectives there are.

    Two dims of an axis that are among `gridded` may also be used as one: the ring around the block of both
    (:meth:`dfopt.documents.network.NetworkDim.around`), which is an order like any other.
    """

    def __init__(self, graph: Graph, system: System, assumptions: Assumptions, gridded: Container[str] = ()) -> None:
        self._system, self._assumptions, self._gridded = system, assumptions, gridded
        ends = (Collective.REDUCE_SCATTER,) if assumptions.splits_tokens else ()
        asked = {"kernels": (*_ON_SHARDS, *ends), "layers": (Collective.POINT_TO_POINT,)}
        asked["modules"] = *_ON_SHARDS, Collective.REDUCE_SCATTER
        asked |= {"batch": (Collective.ALL_REDUCE,)} if graph.trains else {}
        # axes that collectives are over, which of the dims of each, collectives
        self._priced: list[tuple[tuple[str, ...], slice, tuple[Collective, ...]]] = [
            (tuple(axis.name for axis in AXES.values() if axis.splits == splits), slice(None), kinds)
            for splits, kinds in asked.items()
        ]
        self._priced += [  # tokens on their way to experts
            ((axis.name,), which, (Collective.ALL_TO_ALL,))
            for axis in AXES.values()
            if axis.splits == "modules"
            for which in (slice(1), slice(1, None))
        ]
        if graph.trains:  # gradients of what chips of the second axis have parts of
            both = tuple(axis.name for axis in AXES.values() if axis.splits in ("modules", "batch"))
            self._priced.append((both, slice(None), (Collective.ALL_REDUCE,)))
        for over, kind in sorted({(one.over, one.kind) for kernel in graph.kernels for one in kernel.communications}):
            axes, which = groups()[over]
            self._priced.append((tuple(axis.name for axis in axes), which, (Collective(kind),)))
        # axes that no collective has in common are put in order on their own
        drawn: nx.Graph[str] = nx.Graph()
        drawn.add_nodes_from(AXES)
        for names, _, _ in self._priced:
            nx.add_path(drawn, names)
        self._together = [tuple(axis for axis in AXES if axis in one) for one in nx.connected_components(drawn)]
        self._known: dict[tuple[tuple[str, Dims], ...], list[Shared]] = {}

    def of(self, shared: Shared, fixed: Collection[str] = ()) -> list[Shared]:
        """The orders of the axes' dims that none of the others is better than; of equal ones the first.

        ``fixed``: axes whose order was asked for.
        """
        found: list[Shared] = [{}]
        for axes in self._together:
            best = self._best(tuple((axis, shared[axis]) for axis in axes), fixed)
            found = [before | one for before in found for one in best]
        return found

    def _best(self, given: tuple[tuple[str, Dims], ...], fixed: Collection[str]) -> list[Shared]:
        if all(len(dims) < 2 or axis in fixed for axis, dims in given):
            return [dict(given)]
        if given not in self._known:
            kept: list[tuple[Shared, list[float]]] = []
            ways = [[dims] if axis in fixed else self.ways(dims) for axis, dims in given]
            for dims_of_axis in itertools.product(*ways):
                order = {axis: dims for (axis, _), dims in zip(given, dims_of_axis, strict=True)}
                price = self._price(order)
                if not any(_no_more(other, price) for _, other in kept):
                    kept = [(one, other) for one, other in kept if not _no_more(price, other)]
                    kept.append((order, price))
            self._known[given] = [order for order, _ in kept]
        return self._known[given]

    def ways(self, dims: Dims) -> list[Dims]:
        """All orders of some dims, those with blocks of two of them last."""
        used = [dims, *self._with_blocks(dims)]
        return [order for names in used for order in itertools.permutations(names)]

    def _with_blocks(self, dims: Dims) -> Iterator[Dims]:
        """Some dims with two of them, or each two of more, as a block."""
        for i, j in itertools.combinations(range(len(dims)), 2):
            if not all(split_part_name(dims[at])[0] in self._gridded for at in (i, j)):
                continue
            block = block_name((dims[i], dims[j]))
            try:
                self._system.dim(block)
            except ValueError:  # an odd number of chips, or links that have little in common
                continue
            before, rest = dims[:i], (*dims[i + 1 : j], *dims[j + 1 :])
            yield (*before, block, *rest)
            yield from ((*before, block, *more) for more in self._with_blocks(rest))

    def _price(self, order: Shared) -> list[float]:
        """Coefficients of all collectives over some axes; volumes grow with the chips that they are over."""
        price: list[float] = []
        for axes, which, kinds in self._priced:
            if axes and axes[0] in order:
                dims = tuple(name for axis in axes for name in order[axis][which])
                chips = math.prod(self._system.dim(name).size for name in dims)
                for kind in kinds:
                    per_byte, fixed = affine(kind, dims, self._system, self._assumptions)
                    price += per_byte * chips, fixed
        return price


def _no_more(some: Sequence[float], others: Sequence[float]) -> bool:
    return all(a <= b * (1 + 1e-12) for a, b in zip(some, others, strict=True))
