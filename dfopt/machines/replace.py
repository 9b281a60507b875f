"""Fields of a document's data replaced at paths, as sweeps, overrides and derived stacks name them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Final, NoReturn

from dfopt.errors import DocumentError, Issue, did_you_mean, json_path, shown
from dfopt.machines.references import ReferenceResolver

# What the entries of a list are called, one and several.
_ENTRIES: Final = {
    "network": ("network dim", "dims"), "dies": ("die", "dies"), "floorplan": ("tile", "tiles"),
    "sram": ("level", "levels"),
}  # fmt: skip
_STEP: Final = re.compile(r"([^\[\]]+)((?:\[\d+\])*)")


def replaced(data: Mapping[str, Any], fields: Mapping[str, Any], file: str) -> dict[str, Any]:
    """Copy of a document's data with some fields replaced by path; not validated yet.

    Parameters
    ----------
    data
        Parsed data, as of a file.
    fields
        Path -> value. An entry of a list is meant by its name or position: ``dies.dram.count``, ``dies.1.count`` and
        ``dies[1].count`` can be the same.
    file
        Name of the data in errors.

    Raises
    ------
    DocumentError
        For a path that leads through something that is not there. A field that is unknown at the end of its path is
        put in, for the validation to find.

    Examples
    --------
    >>> replaced({"dies": [{"name": "logic"}, {"name": "dram", "count": 8}]}, {"dies[1].count": 4}, "mine")
    {'dies': [{'name': 'logic'}, {'name': 'dram', 'count': 4}]}
    """
    document = deepcopy(dict(data))
    for field, value in fields.items():
        holder, key = place_of(document, field, file)
        holder[key] = value
    return document


def with_set(
    resolver: ReferenceResolver, data: dict[str, Any], fields: Any, where: str, file: str, example: str
) -> dict[str, Any]:
    """Data of a part with the replacements in its ``set`` applied; the resolver collects issues.

    Parameters
    ----------
    resolver
        Collects the issues; where there are any the data is as it was.
    data
        Data of the part.
    fields
        The value of ``set``.
    where, file
        Path of the mapping that has ``set``, and the name of its file in errors.
    example
        A right value, for the remedy.

    Examples
    --------
    >>> resolver = ReferenceResolver()
    >>> with_set(resolver, {"cells": 8}, {"cells": 16}, "$", "mine", "{cells: 4}")
    {'cells': 16}
    >>> with_set(resolver, {"cells": 8}, 16, "$", "mine", "{cells: 4}")
    {'cells': 8}
    >>> print(resolver.issues[0])
    $.set: found 16, expected a mapping of paths to values (write {cells: 4}, or leave it out)
    """
    where = f"{where}.set"
    if not isinstance(fields, Mapping):
        message = f"found {shown(fields)}, expected a mapping of paths to values"
        resolver.wrong(where, message, f"write {example}, or leave it out")
        return data
    try:
        return replaced(data, fields, file)
    except DocumentError as error:
        for issue in error.issues:
            resolver.wrong(where, f"{issue.where}: {issue.message}", issue.remedy)
        return data


def place_of(data: Mapping[str, Any], field: str, file: str) -> tuple[Any, Any]:
    """Container (mapping or list) that a path refers to, and the key in it.

    Parameters
    ----------
    data
        Plain data of a document.
    field : str
        Path of the field, such as ``chip.sram.capacity``. Entries of lists are called by name or number.
    file : str
        Name of the document, for messages.

    Raises
    ------
    DocumentError
        As `replaced` does.

    Examples
    --------
    >>> place_of({"dies": [{"name": "dram", "count": 8}]}, "dies.dram.count", "mine")
    ({'name': 'dram', 'count': 8}, 'count')
    """
    here: Any = data
    path: list[str | int] = []
    *above, last = _steps(field, file)
    for step in above:
        path.append(_key(here, step, path, file))
        if isinstance(here, dict) and step not in here:
            remedy = did_you_mean(step, [key for key, item in here.items() if isinstance(item, dict | list)])
            _fail(file, path, "there is no such part", remedy)
        here = here[path[-1]]
    return here, _key(here, last, path, file)


def _steps(field: str, file: str) -> list[str]:
    """The keys, names and positions of a path."""
    steps: list[str] = []
    for word in field.split("."):
        match = _STEP.fullmatch(word)
        if match is None:
            _fail(file, [], f"found the path {field!r}, expected one such as chip.sram.capacity or dies[1].count", "")
        steps += [match[1], *re.findall(r"\d+", match[2])]
    return steps


def _key(here: Any, step: str, above: Sequence[str | int], file: str) -> str | int:
    """The key or the position that a step means."""
    if isinstance(here, list):
        names = [str(item["name"]) for item in here if isinstance(item, dict) and "name" in item]
        if len(names) == len(here) and step in names:
            return names.index(step)
        if step.isdigit() and int(step) < len(here):
            return int(step)
        word, several = _ENTRIES.get(str(above[-1]) if above else "", ("entry", "entries"))
        listed = ", ".join(names) or (f"0 to {len(here) - 1}" if here else "none")
        _fail(file, [*above, step], f"there is no such {word}", did_you_mean(step, names, f"{several}: {listed}"))
    if not isinstance(here, dict):
        _fail(file, [*above, step], f"{json_path(*above)} has no fields of its own", "check the spelling")
    return step


def _fail(file: str, steps: Sequence[str | int], message: str, remedy: str) -> NoReturn:
    raise DocumentError(file, [Issue(json_path(*steps), message, remedy)])
