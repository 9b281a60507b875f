"""Ways to share network dims out among the axes of a plan."""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Iterator, Sequence

import numpy as np

from dfopt.divisors import divisors
from dfopt.documents.axes import AXES, Dims
from dfopt.documents.dim_names import part_name
from dfopt.documents.system import NetworkDim

AxisDims = dict[str, Dims]  # network dims, or parts of dims, that each axis has


def shares(
    dims: Sequence[NetworkDim],
    parts: bool,
    nested: Container[str] = (),
    named: bool = False,
    axes: Sequence[str] = tuple(AXES),
) -> Iterator[tuple[dict[str, int], AxisDims]]:
    """All ways to share network dims out over axes: degree of each axis, and names of its dims or parts.

    Inside a dim, neighbours go to the first axis, and the others follow. All axes that are not requested have degree 1.

    Parameters
    ----------
    dims
        Network dims of more than one chip.
    parts
        Whether several axes may share a dim.
    nested
        Names of dims in which neighbours go to each axis in turn.
    named
        Whether ways that differ only in which of several dims that are wired alike is which are all given, and not one.
    axes
        Axes that may have several chips.

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
        itertools.combinations_with_replacement(_factorizations(dims[of[0]].size, parts, len(axes)), len(of))
        for of in alike
    ]
    place_of = np.argsort(list(itertools.chain(*alike))).tolist()
    for picked in itertools.product(*ways):
        of_kind = list(itertools.chain(*picked))
        choice = [of_kind[place] for place in place_of]
        degrees = dict.fromkeys(AXES, 1)
        degrees |= {axis: math.prod(sizes[place] for sizes in choice) for place, axis in enumerate(axes)}
        of_dims = [_named(dim, sizes, dim.name in nested) for dim, sizes in zip(dims, choice, strict=True)]
        for names in itertools.product(*of_dims):
            shared: AxisDims = dict.fromkeys(AXES, ())
            shared |= {axis: tuple(of[place] for of in names if place in of) for place, axis in enumerate(axes)}
            yield degrees, shared


def in_rank_order(
    dims: Sequence[NetworkDim], order: Sequence[str], axes: Sequence[str] = tuple(AXES)
) -> Iterator[tuple[dict[str, int], AxisDims]]:
    """All ways to share dims out where each axis takes consecutive chips in rank order.

    An axis has whole dims, or a part of a dim whose other parts are
    those of the axes next to it, so that of a dim of 4 chips none has 3.

    Parameters
    ----------
    dims
        Network dims, from the inside out.
    order : sequence of str
        All axes in rank order: the first changes fastest.
    axes : sequence of str
        Axes that may share dims. All others have a degree of 1.

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
        shared: AxisDims = dict.fromkeys(AXES, ())
        for axis, size in zip(named, sizes, strict=True):
            while size > 1 and free:
                name, left, stride = free[0]
                taken = math.gcd(left, size)
                if taken < min(left, size):
                    break
                is_whole = stride == 1 and taken == left
                shared[axis] += (name if is_whole else part_name(name, taken, stride),)
                free[:1] = [] if taken == left else [(name, left // taken, stride * taken)]
                size //= taken
            if size > 1:
                break
        else:
            yield dict.fromkeys(AXES, 1) | dict(zip(named, sizes, strict=True)), shared


def _factorizations(size: int, parts: bool, axes: int) -> Iterator[tuple[int, ...]]:
    """Every way to write the size of a dim as a product of one number per axis."""
    if axes == 1:
        yield (size,)
        return
    for own in divisors(size) if parts else sorted({size, 1}, reverse=True):
        yield from ((own, *others) for others in _factorizations(size // own, parts, axes - 1))


def _named(dim: NetworkDim, sizes: Sequence[int], nested: bool) -> list[dict[int, str]]:
    """What each axis gets of a dim, by its place; one entry for each order of those that share it."""
    sharing = [place for place, size in enumerate(sizes) if size > 1]
    orders = []
    for order in itertools.permutations(sharing) if nested else (sharing,):
        strides = itertools.accumulate((sizes[place] for place in order), lambda a, b: a * b, initial=1)
        parts = [part_name(dim.name, sizes[place], at) for place, at in zip(order, strides, strict=False)]
        orders.append(dict(zip(order, parts if len(order) > 1 else [dim.name], strict=False)))
    return orders
