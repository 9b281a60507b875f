"""Values of an ONNX model as something that kernels produce and read: whose elements they are, and along which axes.

Every dim of a value is made of factors, each with a letter: ``m`` features, ``n`` tokens, ``h`` heads and ``s`` samples
of a product within each of them, ``?`` nothing yet. They follow the axes of :mod:`dfopt.documents.graph` through
reshapes and transpositions, so that a batch of matrices is one of heads where it was cut out of features, and one of
samples where it was cut out of tokens.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from dfopt.documents.graph import SequenceState
from dfopt.frontends.onnx.model import Type

Axes = tuple[tuple[tuple[str, int], ...], ...]
_PRODUCT: Final = {"m": "h", "h": "h", "n": "s", "s": "s", "?": "s"}
"""What a factor of a batch of products is, by what it was."""


@dataclass(frozen=True)
class OnnxValue:
    """A value: elements of a kernel's output, of a model input, or a constant.

    ``part`` selects elements: the name of the value that was cut out, empty for all elements. ``elements`` is their
    number. Values of a ``cache`` are from earlier evaluations, and are in DRAM.
    """

    name: str
    type: Type
    axes: Axes
    source: str = ""
    elements: int = 0
    part: str = ""
    constant: bool = False
    made_of: frozenset[str] = frozenset()
    cache: SequenceState | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the dims."""
        return self.type.shape

    def seen_as(self, name: str, kind: Type, axes: Axes) -> OnnxValue:
        """A value with the same elements, or a part of them, under another name and shape.

        Parameters
        ----------
        name, kind
            Name and type of the new value.
        axes
            Axes of its elements in the kernel that makes it.
        """
        kind = kind if self.source else Type(self.type.kind, kind.shape)
        if kind.size < self.elements:
            return replace(self, name=name, type=kind, axes=axes, elements=kind.size, part=name)
        return replace(self, name=name, type=kind, axes=axes)


def one_each(letters: Iterable[str], shape: Sequence[int]) -> Axes:
    """Axes with one factor per dim.

    Examples
    --------
    >>> one_each("nm", (2, 3))
    ((('n', 2),), (('m', 3),))
    """
    return tuple(((letter, size),) for letter, size in zip(letters, shape, strict=True))


def extents(axes: Axes) -> dict[str, Any]:
    """Kernel extents for an output with these axes.

    Examples
    --------
    >>> extents(((("s", 2),), (("h", 4),), (("n", 16),), (("m", 8),)))
    {'outer': 4, 'samples': 2, 'm': 8, 'n': 16}
    """
    size = dict.fromkeys("hsmn?", 1)
    for letter, count in (factor for dim in axes for factor in dim):
        size[letter] *= count
    samples = {"samples": size["s"]} if size["s"] > 1 else {}
    return {"outer": size["h"], **samples, "m": size["m"], "n": size["n"] * size["?"]}


def of_products(dim: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """Factors of a dim along which products are independent: heads, or samples of tokens."""
    return tuple((_PRODUCT[letter], size) for letter, size in dim)


def normalized(axes: Axes, dims: Collection[int]) -> Axes:
    """Axes after a normalization along some dims: these become features, former features become heads.

    Examples
    --------
    >>> normalized(one_each("nnmm", (2, 16, 4, 8)), [3])
    ((('n', 2),), (('n', 16),), (('h', 4),), (('m', 8),))
    """
    renames = {"m": "h"}
    return tuple(
        tuple(("m" if place in dims else renames.get(letter, letter), size) for letter, size in dim)
        for place, dim in enumerate(axes)
    )


def regrouped(axes: Axes, shape: Sequence[int]) -> Axes:
    """Axes reshaped to another shape of as many elements; factors are split at dim boundaries.

    Examples
    --------
    >>> regrouped(one_each("nm", (16, 768)), (2, 8, 12, 64))
    ((('n', 2),), (('n', 8),), (('m', 12),), (('m', 64),))
    >>> regrouped(one_each("nm", (16, 768)), (16, 1, 768))[1]
    (('?', 1),)
    """
    left = [factor for dim in axes for factor in dim if factor[1] != 1]
    left.reverse()
    dims = []
    for size in shape:
        dim: list[tuple[str, int]] = []
        while (got := math.prod(count for _, count in dim)) != size and left:
            letter, count = left.pop()
            wanted = size // got if size % got == 0 else 0
            if wanted and wanted % count == 0:
                dim.append((letter, count))
            elif wanted and count % wanted == 0:
                dim.append((letter, wanted))
                left.append((letter, count // wanted))
            else:  # they do not divide: both become one factor, of which a part is taken
                dim = [(_main([*(tag for tag, _ in dim), letter]), size)]
                rest = got * count // math.gcd(got * count, size)
                if rest > 1:
                    left.append((letter, rest))
        dims.append(tuple(dim) or (("?", 1),) if size == math.prod(c for _, c in dim) else (("?", size),))
    return tuple(dims)


def _main(letters: Collection[str]) -> str:
    """The letter of a dim that mixes several."""
    return next((letter for letter in "mhns" if letter in letters), "?")


def resized(axes: Axes, shape: Sequence[int]) -> Axes:
    """Axes of a slice of a value, or of a value expanded along some dims; new dims come first."""
    old = [(("?", 1),)] * (len(shape) - len(axes)) + list(axes)
    dims = []
    for dim, size in zip(old, shape, strict=True):
        same = math.prod(count for _, count in dim) == size
        dims.append(dim if same else ((_main([letter for letter, _ in dim]), size),))
    return tuple(dims)


def broadcast(shape: Sequence[int], values: Iterable[OnnxValue]) -> Axes:
    """Axes of an elementwise result: each dim from the largest value that has it in full."""
    axes: list[tuple[tuple[str, int], ...]] = []
    ordered = sorted((value for value in values if not value.constant), key=lambda value: -value.type.size)
    for place, size in enumerate(shape):
        dims = ((v.shape[at], v.axes[at]) for v in ordered for at in (place - len(shape) + len(v.shape),) if at >= 0)
        axes.append(next((dim for count, dim in dims if count == size != 1), (("?", size),)))
    return tuple(axes)
