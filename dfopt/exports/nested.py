"""Arguments with dots in their names as mappings inside each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def nested(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Nested sections of a configuration, from dotted names.

    Examples
    --------
    >>> nested({"a.b": 1, "a.c": 2, "d": 3})
    {'a': {'b': 1, 'c': 2}, 'd': 3}
    """
    tree: dict[str, Any] = {}
    for name, value in arguments.items():
        *sections, key = name.split(".")
        place = tree
        for section in sections:
            place = place.setdefault(section, {})
        place[key] = value
    return tree
