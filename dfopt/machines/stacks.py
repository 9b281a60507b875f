"""Stacks of dies from files, and systems whose chip is one.

A stack is written out, or derived from another one::

    schema: dfopt/stack/1
    name: hybrid-4
    part: hybrid-vault                  # a name of the zoo, or a path
    set: {dies.dram.count: 3}           # paths as in overrides
    ambient: 45 degC                    # other keys replace those of the part

A system file says ``stack: hybrid-4``, or ``{part: hybrid-4, ambient: 45 degC}``, or has the stack's own fields.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from dfopt.documents.stack import Stack
from dfopt.documents.strict_yaml import load_strict
from dfopt.documents.system import Dram, System
from dfopt.documents.zoo import find
from dfopt.errors import DocumentError, Issue, SystemSpecError
from dfopt.machines.references import ReferenceResolver, folder_of, schema_in_terms
from dfopt.machines.replace import replaced, with_set
from dfopt.units import show_unit


def load_stack(name_or_path: str | os.PathLike[str], overrides: Mapping[str, Any] | None = None) -> Stack:
    """Load a stack of dies from the zoo or a file, explicit or derived.

    Parameters
    ----------
    name_or_path
        A name in the zoo, or a path.
    overrides
        Path -> value with its unit, as in a file: ``dies.dram.count`` or ``dies[1].count``, ``dram.channels``.

    Raises
    ------
    DocumentError
        With every issue of the file; `NotInZoo` for a name that is neither a file nor in the zoo; `SystemSpecError`
        (which is not a `DocumentError`) for dies, tiles or limits that do not fit each other.

    Examples
    --------
    >>> stack = load_stack("hybrid-vault")
    >>> len(stack.dram_dies), stack.dram.peak
    (8, 16384000000000.0)
    >>> len(load_stack("hybrid-vault", {"dies[1].count": 3}).dram_dies)
    4
    """
    path = find("stacks", name_or_path)
    stack = expand_stack(load_strict(path), path)
    return Stack.from_data(replaced(stack.to_data(), overrides, str(path)), str(path)) if overrides else stack


def expand_stack(data: Mapping[str, Any], path: str | os.PathLike[str] = "<data>") -> Stack:
    """Stack of a stack file's parsed data, explicit or derived.

    Parameters
    ----------
    data
        Parsed data of the file.
    path
        The file, for errors and for paths relative to it.

    Raises
    ------
    DocumentError
        With every issue; `SystemSpecError` as for `load_stack`.

    Examples
    --------
    >>> made = expand_stack({"schema": "dfopt/stack/1", "name": "warm", "part": "hbm2", "ambient": "45 degC"})
    >>> made.name, made.ambient
    ('warm', 318.15)
    """
    return _expanded(data, os.fspath(path), ())


def _expanded(data: Mapping[str, Any], file: str, above: tuple[str, ...]) -> Stack:
    if not isinstance(data, Mapping) or "part" not in data:
        return Stack.from_data(data, file)
    resolver = ReferenceResolver(folder_of(file))
    expanded = stack_data(resolver, data, "$", file, (*above, os.path.realpath(file)))
    if resolver.issues:
        raise DocumentError(file, resolver.issues)
    # What a file says about itself is its own: the part's name and description would be of another stack.
    for key in ("schema", "name", "description"):
        if key not in data:
            expanded.pop(key, None)
    return Stack.from_data(expanded, file)


def stack_at(value: Any, where: str, file: str) -> Stack:
    """Stack that a value in a system's data means: a name, a part with changes, or inline fields.

    Parameters
    ----------
    value, where
        Value in the system's data, and the place where it is.
    file : str
        Name of the system's file, whose folder relative paths start in.

    Raises
    ------
    DocumentError
        At that place, such as ``$.stack.part``.

    Examples
    --------
    >>> stack_at({"part": "hbm2", "set": {"dram.channels": 40}}, "$.stack", "mine").dram.peak
    1280000000000.0
    """
    resolver = ReferenceResolver(folder_of(file))
    data = stack_data(resolver, value, where, file)
    if resolver.issues:
        raise DocumentError(file, resolver.issues)
    try:
        return Stack.from_data(data, file)
    except (DocumentError, SystemSpecError) as error:
        issues = [Issue(where + issue.where[1:], issue.message, issue.remedy) for issue in error.issues]
        raise type(error)(file, issues) from None


def stack_data(resolver: ReferenceResolver, value: Any, where: str, file: str, above: tuple[str, ...] = ()) -> Any:
    """Data of the stack that a value in a file names; inline data is returned unchanged.

    Parameters
    ----------
    resolver
        Resolves names and collects issues.
    value, where
        Value in the file, and the place where it is.
    file : str
        Name of the file.
    above : tuple of str
        Paths of the files that are derived from this one.

    Examples
    --------
    >>> stack_data(ReferenceResolver(), {"part": "hbm2", "cells": 8}, "$.stack", "mine")["cells"]
    8
    """

    def load(name: str, at: str) -> dict[str, Any] | None:
        path = resolver.base("stacks", name, at, above)
        if path is None:
            return None
        return _expanded(load_strict(path), str(path), above).to_data()

    fields: Any = {}
    if isinstance(value, Mapping) and "part" in value:
        value = dict(value)
        fields = value.pop("set", {})
    data = resolver.part("stacks", value, where, load)
    if not isinstance(data, dict):
        return data
    return with_set(resolver, data, fields, where, file, "{dies.dram.count: 4}")


def memory_of(stack: Stack, priced: Dram | None = None) -> Dram:
    """Off-chip memory of a stacked chip: peak bandwidth of its buses, and capacity.

    Parameters
    ----------
    stack
        Stack of the chip.
    priced
        A memory whose price and power per GB/s it keeps.

    Examples
    --------
    >>> memory_of(load_stack("hbm2")).bandwidth
    1024000000000.0
    """
    figures = {"bandwidth": stack.dram.peak, "capacity": stack.dram.capacity}
    return Dram(**figures) if priced is None else priced.model_copy(update=figures)


def memory_issues(dram: Dram, stack: Stack, where: str) -> list[Issue]:
    """Issues of a memory that claims more than the stack provides.

    Parameters
    ----------
    dram, stack
        The memory, and the stack that has it.
    where : str
        Place of the memory in the system's file.
    """
    remedy = f"leave the memory to stack {stack.name!r}, lower the figure, or take another stack"
    pairs = (
        ("bandwidth", dram.bandwidth, stack.dram.peak, "bandwidth"),
        ("capacity", dram.capacity, stack.dram.capacity, "bytes"),
    )
    return [
        Issue(
            f"{where}.{key}",
            f"found {show_unit(ours, unit)}, expected at most the {show_unit(most, unit)} of stack {stack.name!r}",  # type: ignore[arg-type]
            remedy,
        )
        for key, ours, most, unit in pairs
        if ours is not None and ours > most * (1 + 1e-9)
    ]


def with_stack(system: System, stack: Stack | str | os.PathLike[str], memory: bool = True) -> System:
    """The system with its chip as a stack of dies.

    Parameters
    ----------
    system
        The system; an existing stack is replaced.
    stack
        The stack, or its name or path as of `load_stack`.
    memory
        Whether the chip's memory becomes the stack's: its peak bandwidth and its capacity; prices stay.

    Raises
    ------
    SystemSpecError
        If the memory is to stay and has more bandwidth or capacity than the stack.

    Examples
    --------
    >>> from dfopt.machines.compose import load_system
    >>> made = with_stack(load_system("sn30-8"), "hybrid-vault")
    >>> made.stack.name, made.chip.dram.bandwidth
    ('hybrid-vault', 16384000000000.0)
    """
    loaded = stack if isinstance(stack, Stack) else load_stack(stack)
    if len(system.chip.tiers) > 1:
        message = f"stack {loaded.name!r} has one memory, the chip has {len(system.chip.tiers)}"
        raise SystemSpecError(system.name, [Issue("$.chip.memories", message, "give the chip one memory, or no stack")])
    if not memory:
        issues = memory_issues(system.chip.fastest, loaded, "$.chip.dram")
        if issues:
            raise SystemSpecError(system.name, issues)
        return system.model_copy(update={"stack": loaded})
    own = memory_of(loaded, system.chip.dram)
    chip = system.chip.model_copy(update={"dram": own, "memories": None})
    return system.model_copy(update={"stack": loaded, "chip": chip})


def stack_schema() -> dict[str, Any]:
    """JSON Schema of a stack file, explicit or derived.

    Examples
    --------
    >>> [form["required"] for form in stack_schema()["anyOf"]][1]
    ['schema', 'name', 'part']
    """
    return schema_in_terms(Stack, "stack")
