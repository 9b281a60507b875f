"""Hardware configurations of DeepFlow (github.com/nanocad-lab/DeepFlow, 566c192) as a technology and a design.

Read are ``tech_param`` and the breakdowns of area, power and perimeter. What its generator of chips does not use is
left out: latencies, the area of a DRAM bit, the power of a controller's link, the width of the arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from dfopt.documents.base import issues_of
from dfopt.documents.design import Design
from dfopt.documents.strict_yaml import load_strict
from dfopt.errors import DocumentError, Issue, json_path, shown

_UNITS: Final = {"B": 1, "KB": 1024, "MB": 1024**2, "GB": 1024**3}
_KINDS: Final = ("bytes of ", "if there ")


def read_design(config: Mapping[str, Any], name: str, path: str = "<data>") -> tuple[Design, list[str]]:
    """Import a DeepFlow configuration as a design with its technology, and list the keys that it ignores.

    SRAM levels are ``registers``, ``L1`` and ``L2``; the first two belong to a cluster.

    Parameters
    ----------
    config : mapping
        Parsed configuration.
    name : str
        Name of the design.
    path : str
        File of the configuration, for errors.

    Raises
    ------
    DocumentError
        If a value is missing or no number.
    """
    file = _Configuration(config, path)
    figures = file.filled(load_strict(Path(__file__).with_suffix(".yaml")), ())
    technology = figures["technology"]
    levels = [{"name": level, **fields} for level, fields in technology["sram"].items()]
    about = {"name": name, "source": "DeepFlow configuration"}
    data = {**figures, "name": name, "technology": technology | about | {"sram": levels}, "profile": "deepflow"}
    try:
        design = Design.model_validate(data)
    except ValidationError as error:
        raise DocumentError(path, issues_of(Design, data, error)) from None
    return design, sorted(file.unused())


class _Configuration:
    """A parsed configuration, whose numbers are asked for by their keys."""

    def __init__(self, config: Mapping[str, Any], path: str) -> None:
        self.config, self.path = config, path
        self.used: set[tuple[str, ...]] = set()

    def unused(self) -> Iterator[str]:
        """Keys that nobody asked for, the topmost only."""

        def walk(value: Any, *keys: str) -> Iterator[str]:
            if keys in self.used:
                return
            if isinstance(value, Mapping) and any(used[: len(keys)] == keys for used in self.used):
                for key, inner in value.items():
                    yield from walk(inner, *keys, str(key))
            else:
                yield ".".join(keys)

        return walk(self.config)

    def filled(self, entry: Any, above: tuple[str, ...]) -> Any:
        """An entry of the table with figures of the file for their keys; none for a key that need not be there."""
        if isinstance(entry, Mapping):
            above = (*above, *entry["of"].split(".")) if "of" in entry else above
            parts = {name: self.filled(part, above) for name, part in entry.items() if name != "of"}
            return {name: part for name, part in parts.items() if part is not None}
        if not isinstance(entry, str):
            return entry
        kind, key = next(((kind, entry.removeprefix(kind)) for kind in _KINDS if entry.startswith(kind)), ("", entry))
        if kind == "bytes of ":
            return self._size(*above, key)
        if kind == "if there " and key not in self._at(*above):
            return None
        first, *others = key.split(" ")
        figure = self._number(first, above)
        for sign, other in zip(others[::2], others[1::2], strict=True):
            figure = figure / self._number(other, above) if sign == "/" else figure * self._number(other, above)
        return figure

    def _at(self, *keys: str) -> Any:
        value: Any = self.config
        for depth, key in enumerate(keys):
            if not isinstance(value, Mapping) or key not in value:
                where = json_path(*keys[: depth + 1])
                raise DocumentError(self.path, [Issue(where, "the key is missing", "give a configuration of DeepFlow")])
            value = value[key]
        if not isinstance(value, Mapping):
            self.used.add(keys)
        return value

    def _number(self, text: str, above: tuple[str, ...]) -> float:
        """A number of the table, or that of a key below others."""
        if text.isdecimal():
            return int(text)
        value = self._at(*(keys := (*above, *text.split("."))))
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise DocumentError(self.path, [Issue(json_path(*keys), f"found {shown(value)}, expected a number")])
        return float(value)

    def _size(self, *keys: str) -> float:
        """Bytes of a size such as ``32 KB``, in powers of 1024."""
        value = self._at(*keys)
        count, _, unit = value.partition(" ") if isinstance(value, str) else ("", "", "")
        try:
            return float(count) * _UNITS[unit.strip()]
        except (ValueError, KeyError):
            message = f"found {shown(value)}, expected a size such as '32 KB'"
            raise DocumentError(self.path, [Issue(json_path(*keys), message)]) from None
