"""Data files of tables, whose entries may be like others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dfopt.documents.strict_yaml import load_strict

__all__ = ["Entries", "full_entry", "table"]

_FOLDER: Final = Path(__file__).with_name("model_types")
_GROWING: Final = ("words", "drop")
Entries = Mapping[str, Mapping[str, Any]]


def table(name: str) -> dict[str, Any]:
    """Contents of a data file of the frontend."""
    return load_strict(_FOLDER / f"{name}.yaml")


def full_entry(entries: Entries, name: str) -> dict[str, Any]:
    """An entry with everything that it inherits by ``like`` from others.

    Mappings are merged, without inherited keys that the entry drops; lists of words are joined; any other value is the
    entry's own, if it has one.

    Examples
    --------
    >>> entries = {"a": {"names": {"x": 1, "y": 2}, "words": ["p"], "steps": ["s"]}}
    >>> entries["b"] = {"like": ["a"], "drop": ["x"], "names": {"z": 3}, "words": ["q"]}
    >>> full_entry(entries, "b")
    {'names': {'y': 2, 'z': 3}, 'words': ['p', 'q'], 'steps': ['s'], 'drop': ['x']}
    """
    entry = dict[str, Any]()
    for other in entries[name].get("like", ()):
        _add(entry, full_entry(entries, other))
    dropped = entries[name].get("drop", ())
    for key, value in entry.items():
        if isinstance(value, Mapping):
            entry[key] = {field: given for field, given in value.items() if field not in dropped}
    _add(entry, {key: value for key, value in entries[name].items() if key != "like"})
    return entry


def _add(entry: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, Mapping):
            entry[key] = {**entry.get(key, {}), **value}
        else:
            entry[key] = [*entry.get(key, ()), *value] if key in _GROWING else value
