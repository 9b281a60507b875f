"""Technologies from files, made of parts and of each other.

A technology is written out, or made of parts, or derived from another one factor by factor::

    schema: dfopt/technology/1
    name: n3-hbm3
    parts: [hbm3, nvlink-4]             # names of the zoo, or paths: every section from one of them
    scaling:                            # and what this technology has, times these factors
      from: n5
      steps: {core.area_mm2: 0.625, sram.L2.bit_area_mm2: 0.95}
    set: {dram.frequency: 5.6 GHz}      # then these fields are replaced; paths as in overrides

What no part has can stand beside them as it is: ``wafer: {usd: 19865, ...}``. A part (``dfopt/technology-part/1``) is
written in the same ways. Where a technology is wanted a design has such a file's name, its path, or its keys.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Final

from dfopt.documents.base import DocumentT
from dfopt.documents.kinds import kind_of
from dfopt.documents.strict_yaml import load_strict
from dfopt.documents.technology import SECTIONS, Technology, TechnologyPart
from dfopt.documents.zoo import find
from dfopt.errors import DocumentError, Issue, json_path, shown
from dfopt.machines.references import ReferenceResolver, folder_of, schema_in_terms
from dfopt.machines.replace import place_of, with_set

_TERMS: Final = ("parts", "scaling", "set")
_QUANTITY: Final = re.compile(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)(\s.*)")  # as documents write them


def load_technology(name_or_path: str | os.PathLike[str]) -> Technology:
    """Load a technology from the zoo or a file, explicit or derived.

    Raises `DocumentError` with every issue of the file; `NotInZoo` for a name that is neither a file nor in the zoo.

    Examples
    --------
    >>> load_technology("deepflow-14nm").core.power, load_technology("deepflow-10nm").core.power
    (0.13, 0.0702)
    """
    path = find("technologies", name_or_path)
    return expand_technology(load_strict(path), path)


def technology_in(base: Technology, name_or_path: str | os.PathLike[str]) -> Technology:
    """A technology of the zoo or a file, or the base technology with some of its parts replaced.

    Parameters
    ----------
    base
        The technology that parts go into.
    name_or_path
        Name or path as of `load_technology`; or that of one part, or of several as in ``n3+hbm4``. Their sections, and
        for links their roles, replace those of the base; the technology has the name given here.

    Raises
    ------
    DocumentError
        For names that are not found, and for parts with the same section.

    Examples
    --------
    >>> made = technology_in(load_technology("deepflow-v100"), "n3+hbm4")
    >>> made.name, made.core.flop_per_cycle, made.dram.links_per_stack, list(made.links)
    ('n3+hbm4', 1024.0, 2048, ['in_package', 'between_packages'])
    """
    text = os.fspath(name_or_path)
    names = [text] if os.path.exists(text) else text.split("+")
    if len(names) == 1:
        path = find("technologies", name_or_path)
        if kind_of(load_strict(path), str(path)) != "technology-part":
            return load_technology(name_or_path)
    resolver = ReferenceResolver()
    parts = _written_out(resolver, {"parts": names}, "$", text, ())
    if resolver.issues:
        raise DocumentError(text, resolver.issues)
    data = {**base.to_data(), **parts, "name": text, "description": f"{base.name} with {text}", "source": base.source}
    data["links"] = {**base.to_data()["links"], **parts.get("links", {})}
    return Technology.from_data(data, text)


def expand_technology(data: Mapping[str, Any], path: str | os.PathLike[str] = "<data>") -> Technology:
    """Technology of a file's parsed data; ``path`` is used for errors and relative paths.

    Raises `DocumentError` with every issue, at places such as ``$.scaling.from``.
    """
    return _expanded(Technology, data, os.fspath(path), ())


def expand_part(data: Mapping[str, Any], path: str | os.PathLike[str] = "<data>") -> TechnologyPart:
    """Technology part of parsed data, with references resolved."""
    return _expanded(TechnologyPart, data, os.fspath(path), ())


def technology_at(value: Any, where: str, file: str) -> Any:
    """Data of the technology that a value in a file means; inline data is returned unchanged.

    Parameters
    ----------
    value, where
        Value in the file, and the place where it is.
    file : str
        Name of the file, whose folder relative paths start in.

    Raises
    ------
    DocumentError
        For names that are not found.

    Examples
    --------
    >>> technology_at("deepflow-p4", "$.technology", "mine")["core"]["power"]
    '370 mW'
    """
    resolver = ReferenceResolver(folder_of(file))
    if isinstance(value, str):
        data = _base(resolver, value, where, ())
    elif isinstance(value, Mapping) and in_terms(value):
        data = _written_out(resolver, value, where, file, ())
    else:
        return value
    if resolver.issues:
        raise DocumentError(file, resolver.issues)
    return data


def in_terms(data: Mapping[str, Any]) -> bool:
    """Whether a technology's data is derived from others."""
    return any(key in data for key in _TERMS)


def technology_schema(kind: type[Technology] | type[TechnologyPart]) -> dict[str, Any]:
    """JSON Schema of a technology file or part file, explicit or derived.

    Examples
    --------
    >>> [form["required"] for form in technology_schema(Technology)["anyOf"]][1]
    ['schema', 'name']
    """
    return schema_in_terms(kind, "technology")


def _expanded(kind: type[DocumentT], data: Mapping[str, Any], file: str, above: tuple[str, ...]) -> DocumentT:
    if not isinstance(data, Mapping) or not in_terms(data):
        return kind.from_data(data, file)
    resolver = ReferenceResolver(folder_of(file))
    expanded = _written_out(resolver, data, "$", file, (*above, os.path.realpath(file)))
    if resolver.issues:
        raise DocumentError(file, resolver.issues)
    return kind.from_data(expanded, file)


def _written_out(
    resolver: ReferenceResolver, data: Mapping[str, Any], where: str, file: str, above: tuple[str, ...]
) -> dict[str, Any]:
    """Data with what it says in terms of others written out; what is wrong is left with the resolver."""
    expanded = {key: deepcopy(value) for key, value in data.items() if key not in _TERMS}
    parts, fields = data.get("parts", []), data.get("set", {})
    if not isinstance(parts, list | tuple) or not all(isinstance(name, str) for name in parts):
        resolver.wrong(f"{where}.parts", f"found {shown(parts)}, expected a list of names", "write [n5, hbm3]")
        parts = []
    bases = [(f"{where}.parts[{at}]", name, _base(resolver, name, f"{where}.parts[{at}]", above))
             for at, name in enumerate(parts)]  # fmt: skip
    if "scaling" in data:
        bases.append(
            (f"{where}.scaling", "scaling", _scaled(resolver, data["scaling"], f"{where}.scaling", file, above))
        )
    taken = dict.fromkeys([*_claims(expanded)], "this document")
    for at, name, base in bases:
        for section in _claims(base):
            if section in taken:
                message = f"found {section} in {name} and in {taken[section]}, expected it once"
                resolver.wrong(at, message, "take it from one of them; single fields are replaced with set")
            taken[section] = name
        for key in SECTIONS:
            if key in base:
                expanded[key] = {**expanded.get(key, {}), **base[key]} if key == "links" else base[key]
    return with_set(resolver, expanded, fields, where, file, "{dram.frequency: 5.6 GHz}")


def _claims(data: Mapping[str, Any]) -> list[str]:
    """The sections that data has; of links those of every role are one of their own."""
    roles = data.get("links")
    links = [f"links.{role}" for role in roles] if isinstance(roles, Mapping) else []
    return [*(key for key in SECTIONS if key in data and (key != "links" or not links)), *links]


def _base(resolver: ReferenceResolver, name: str, where: str, above: tuple[str, ...]) -> dict[str, Any]:
    """The data of a technology or a part that is named; empty, with an issue, where there is none."""
    path = resolver.base("technologies", name, where, above)
    if path is None:
        return {}
    data = load_strict(path)
    kind = TechnologyPart if kind_of(data, str(path)) == "technology-part" else Technology
    return _expanded(kind, data, str(path), above).to_data()


def _scaled(resolver: ReferenceResolver, value: Any, where: str, file: str, above: tuple[str, ...]) -> dict[str, Any]:
    """The data of the technology that ``scaling`` starts from, times its factors."""
    name = value.get("from") if isinstance(value, Mapping) else None
    if not isinstance(name, str):
        given = shown(value) if not isinstance(value, Mapping) else shown(name) if "from" in value else "no from"
        resolver.wrong(where, f"found {given}, expected the name of a technology and factors",
                       "write {from: n5, steps: {core.area_mm2: 0.6}}")  # fmt: skip
        return {}
    for key in value:
        if key not in ("from", "steps"):
            resolver.wrong(f"{where}{json_path(key)[1:]}", "unknown key", "scaling has from and steps")
    base, steps = _base(resolver, name, f"{where}.from", above), value.get("steps", {})
    if not isinstance(steps, Mapping):
        resolver.wrong(f"{where}.steps", f"found {shown(steps)}, expected a mapping of paths to factors",
                       "write {core.area_mm2: 0.6}")  # fmt: skip
        return base
    for field, factor in steps.items() if base else ():
        try:
            holder, key = place_of(base, field, file)
            holder[key] = _product(holder, key, factor)
        except DocumentError as error:
            for issue in error.issues:
                at = f"{where}.steps{json_path(field)[1:]}"
                resolver.wrong(at, f"{issue.where}: {issue.message}" if issue.where else issue.message, issue.remedy)
    return base


def _product(holder: Any, key: Any, factor: Any) -> Any:
    """A number of a document, or a quantity with its unit, times a factor."""
    number = isinstance(factor, int | float) and not isinstance(factor, bool)
    if not number or not math.isfinite(factor) or factor <= 0:
        message = f"found {shown(factor)}, expected a factor above 0"
        raise DocumentError("", [Issue("", message, "1 leaves the figure as it is; set gives a value")])
    if isinstance(holder, dict) and key not in holder:
        near = ", ".join(holder)
        raise DocumentError("", [Issue("", f"{key!r} is not there, expected one of {near}", "scale a figure it has")])
    value = holder[key]
    quantity = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if quantity:
        return f"{float(quantity[1]) * factor!r}{quantity[2]}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DocumentError("", [Issue("", f"it is {shown(value)}, expected a number or a quantity", "name a figure")])
    return value * factor
