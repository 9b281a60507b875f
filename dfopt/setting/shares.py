"""Ways to share network dims out among the axes of a plan."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from dfopt.documents.axes import AXES, Dims
from dfopt.documents.system import NetworkDim, part_name

Shared = dict[str, Dims]  # network dims, or parts of dims, that each axis has


def shares(dims: Sequence[NetworkDim], parts: bool) -> Iterator[tuple[dict[str, int], Shared]]:
    """Every way to share dims out: the degree of each axis, and the names of its dims or parts, in the order of `dims`.

    Examples
    --------
    >>> x = NetworkDim(name="x", topology="switch", size=4, link_bandwidth=1e9)
    >>> [tuple(degrees.values()) for degrees, _ in shares([x], parts=False)]
    [(4, 1, 1), (1, 4, 1), (1, 1, 4)]
    >>> len(list(shares([x], parts=True)))
    6
    """
    for choice in itertools.product(*(list(_of_one(dim.size, parts, len(AXES))) for dim in dims)):
        names = [_named(dim, sizes) for dim, sizes in zip(dims, choice, strict=True)]
        degrees = {axis: math.prod(sizes[place] for sizes in choice) for place, axis in enumerate(AXES)}
        yield degrees, {axis: tuple(of[place] for of in names if of[place]) for place, axis in enumerate(AXES)}


def _of_one(size: int, parts: bool, axes: int) -> Iterator[tuple[int, ...]]:
    """Every way to write the size of a dim as a product of one number per axis."""
    if axes == 1:
        yield (size,)
        return
    for own in divisors(size) if parts else sorted({size, 1}, reverse=True):
        yield from ((own, *others) for others in _of_one(size // own, parts, axes - 1))


def _named(dim: NetworkDim, sizes: Sequence[int]) -> list[str]:
    """What each axis gets of a dim, empty for nothing: neighbours go to the first axis."""
    strides = itertools.accumulate(sizes, lambda a, b: a * b, initial=1)
    return [
        "" if size == 1 else dim.name if size == dim.size else part_name(dim.name, size, stride)
        for size, stride in zip(sizes, strides, strict=False)
    ]


def divisors(n: int) -> list[int]:
    """All divisors, largest first.

    Examples
    --------
    >>> divisors(12)
    [12, 6, 4, 3, 2, 1]
    """
    low = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return sorted({*low, *(n // d for d in low)}, reverse=True)
