"""How plans name network dims, parts of dims, and blocks of two parts: ``x``, ``x[8]``, ``x[4@8]``, ``x[4]+y[2]``."""

from __future__ import annotations

import re
from collections.abc import Iterable


def part_name(name: str, size: int, stride: int = 1) -> str:
    """Name of a part of a network dim: ``x[8]``, or ``x[4@8]`` for four chips with stride eight.

    Parameters
    ----------
    name : str
        Name of the dim.
    size, stride : int
        Chips of the part, and how far they are apart in the dim.
    """
    return f"{name}[{size}]" if stride == 1 else f"{name}[{size}@{stride}]"


def split_part_name(name: str) -> tuple[str, int | None, int]:
    """Dim, size and stride of the name of a dim or of a part; the size of a whole dim is None.

    Raises
    ------
    ValueError
        If the name has another form.

    Examples
    --------
    >>> split_part_name("x"), split_part_name("x[8]"), split_part_name("x[4@8]")
    (('x', None, 1), ('x', 8, 1), ('x', 4, 8))
    """
    match = re.fullmatch(r"([^\[\]+]+)(?:\[(\d+)(?:@(\d+))?\])?", name)
    if match is None:
        raise ValueError(f"found {name!r}, expected a network dim such as x, or a part of it such as x[8] or x[4@8]")
    dim, size, stride = match.groups()
    return dim, int(size) if size else None, int(stride) if stride else 1


def block_name(parts: Iterable[str]) -> str:
    """Name of the ring around a block of parts of two dims, such as ``x[4]+y[2]``."""
    return "+".join(parts)


def parts_of(names: Iterable[str]) -> tuple[str, ...]:
    """Dims and parts among some names, with every block replaced by its parts.

    Examples
    --------
    >>> parts_of(["x[4]+y[2]", "z"])
    ('x[4]', 'y[2]', 'z')
    """
    return tuple(part for name in names for part in name.split("+"))
