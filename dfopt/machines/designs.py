"""Designs from files, whose technology may be named.

``technology`` is a name of the zoo, a path relative to the file, or what `dfopt.machines.technologies` says of such a
file: parts, scaling, fields.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from dfopt.documents.design import Design
from dfopt.documents.json_schema import schema_json
from dfopt.documents.strict_yaml import load_strict
from dfopt.documents.technology import Technology
from dfopt.documents.zoo import find
from dfopt.machines.technologies import technology_at, technology_schema


def load_design(name_or_path: str | os.PathLike[str]) -> Design:
    """Load a design from the zoo or a file.

    Raises `DocumentError` with every issue of the file; `NotInZoo` for a name that is neither a file nor in the zoo.

    Examples
    --------
    >>> load_design("h100").budgets.power, load_design("h100").technology.name
    (700.0, 'n5-hbm3-nvlink-4')
    """
    path = find("designs", name_or_path)
    return expand_design(load_strict(path), path)


def expand_design(data: Mapping[str, Any], path: str | os.PathLike[str] = "<data>") -> Design:
    """Design of a file's parsed data; ``path`` is used for errors and relative paths.

    Examples
    --------
    >>> shares = {"area": {"core": 0.3, "dram": 0.03}, "power": {"core": 0.4, "dram": 0.16}}
    >>> budgets = {"chip_area_mm2": 815, "package_area_mm2": 1230, "power": "300 W"}
    >>> made = {"schema": "dfopt/design/1", "name": "mine", "technology": "deepflow-v100"}
    >>> expand_design({**made, "budgets": budgets, "shares": shares}).technology.core.area_mm2
    0.38
    """
    file = os.fspath(path)
    if isinstance(data, Mapping) and "technology" in data:
        data = {**data, "technology": technology_at(data["technology"], "$.technology", file)}
    return Design.from_data(data, file)


def design_schema() -> dict[str, Any]:
    """JSON Schema of a design file, whose technology is explicit, derived or named.

    Examples
    --------
    >>> design_schema()["properties"]["technology"]["anyOf"][0]["type"]
    'string'
    """
    schema, own = schema_json(Design), technology_schema(Technology)
    schema["$defs"] |= own.pop("$defs")
    name = {"type": "string", "description": "Zoo name or path of the technology."}
    forms = [{**form, "required": ["name", *form["required"][2:]]} for form in own["anyOf"]]
    schema["properties"]["technology"] = {"anyOf": [name, *forms]}
    return schema
