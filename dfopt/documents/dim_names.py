"""How plans name network dims, parts of dims, and blocks of two parts: ``x``, ``x[8]``, ``x[4@8]``, ``x[4]+y[2]``."""

from __future__ import annotations

import re
from collections.abc import Iterable


def part_name(name: str, size: int, stride: int = 1) -> str:
    """How a part of a network dim is written: ``x[8]``, or ``x[4@8]`` for four chips, eight apart."""
    return f"{name}[{size}]" if stride == 1 else f"{name}[{size}@{stride}]"


def split_part_name(name: str) -> tuple[str, int | None, int]:
    """The dim, size and stride that the name of a dim or of a part means; a whole dim has no size.

    Raises `ValueError` if it is written otherwise.

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
    """How the ring around a block of parts of two dims is written, such as ``x[4]+y[2]``."""
    return "+".join(parts)


def parts_of(names: Iterable[str]) -> tuple[str, ...]:
    """The dims and parts of dims among some names, each block as its parts.

    Examples
    --------
    >>> parts_of(["x[4]+y[2]", "z"])
    ('x[4]', 'y[2]', 'z')
    """
    return tuple(part for name in names for part in name.split("+"))
