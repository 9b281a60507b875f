"""Scalars as strict as their fields say, in lists and tuples that are as lax as files are."""

from __future__ import annotations

import operator
from typing import Any, Final

from pydantic_core import core_schema

_TIGHT: Final = "dfopt_tight"  # among the metadata of the schema of a part that is strict
_NODES: Final = (dict, list, tuple)
_NO_SCHEMAS: Final = {"metadata", "serialization", "keys_schema", "default", "expected"}


def _as_integer(value: object) -> object:
    """An integral float, or an index such as a numpy integer, as an int; the rest is left to fail."""
    if isinstance(value, bool):
        return value
    if isinstance(value, float):
        # Above 2**53 a float no longer names one integer: 1e23 is 99999999999999991611392.
        return int(value) if value.is_integer() and abs(value) <= 2**53 else value
    return operator.index(value) if hasattr(value, "__index__") else value


def tighten(node: Any) -> None:
    """Make the scalars of a pydantic core schema strict, in place; containers stay lax.

    Pydantic's own ``strict=True`` is all or nothing: it would refuse every list where a field says tuple.
    Keys of mappings are always text in a file, so they stay lax: ``dict[int, float]`` works.
    """
    if isinstance(node, (list, tuple)):
        for item in node:
            tighten(item)
    elif isinstance(node, dict):
        kind = node.get("type")
        if kind == "model":
            marks = node.setdefault("metadata", {})
            if _TIGHT in marks:
                return  # a part that was made before, as every part inside a document was
            marks[_TIGHT] = True
        if isinstance(kind, str) and kind in ("int", "float", "bool", "str"):
            if "strict" in node:
                return  # done before, or the author decided
            node["strict"] = True
            if kind == "int":
                inner = dict(node)
                node.clear()
                node.update(core_schema.no_info_before_validator_function(_as_integer, core_schema.int_schema()))
                node["schema"] = inner
        else:
            for key, value in node.items():
                if isinstance(value, _NODES) and key not in _NO_SCHEMAS:
                    tighten(value)
