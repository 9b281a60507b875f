"""YAML and JSON text <-> plain Python data, with nothing silent.

PyYAML reads ``1e12`` as a string, ``on`` as true, ``1:30`` as 90, and keeps the last of two equal keys. This loader
composes with PyYAML and builds the data itself: scalars by the rules of YAML 1.2, mapping keys always text, and what
could mean something else to another reader is an issue with its line. Files have no anchors, so a small one cannot
stand for a huge one.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from dfopt.documents.files import MAX_BYTES, check_size, read_text
from dfopt.documents.scalars import NO_LIMIT, resolve
from dfopt.documents.uncollected import uncollected
from dfopt.errors import DocumentError, Issue, json_path, refuse, repeated, shown

MAX_DEPTH: Final = 64

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_BREAK = re.compile(r"[\x85\u2028\u2029]")  # line breaks to YAML 1.1 only: always escaped
_DEEP: Final = f"nested more than {MAX_DEPTH} levels deep", "flatten it, or is it the wrong file?"
_OWN: Final = re.compile(rb'\s*\{\s*"schema":\s*"dfopt/')  # a result has a record of every plan, which may be many
_Steps = tuple[str | int, ...]


def load_strict(source: str | Path, unbounded: Callable[[object], bool] | None = None) -> dict[str, Any]:
    """Read a YAML or JSON document into plain data; a `str` is the YAML text itself.

    A `Path` is a file: JSON if its suffix is ``.json``, YAML otherwise. Raises `DocumentError` with every issue found;
    parsing stops at the first one that makes the rest unreadable. ``unbounded`` decides for JSON data whether they may
    have infinite numbers, as files of other programs do.

    Examples
    --------
    >>> load_strict("{rate: 1e12, switch: on, when: 2024-01-01, clock: 1:30}")
    {'rate': 1000000000000.0, 'switch': 'on', 'when': '2024-01-01', 'clock': '1:30'}
    >>> load_strict("a: 1\\na: 2")
    Traceback (most recent call last):
    dfopt.errors.DocumentError: <text>: 1 problem
      $.a: line 2: duplicate key 'a', first on line 1 (keep one of them)
    """
    name = str(source) if isinstance(source, Path) else "<text>"
    as_json = isinstance(source, Path) and source.suffix.lower() == ".json"
    text = read_text(source, own=_OWN if as_json else None) if isinstance(source, Path) else source
    check_size(len(text), name, sys.maxsize if as_json else MAX_BYTES)
    if not text.strip():
        refuse(name, "the file is empty", "start it with a line such as 'schema: dfopt/graph/3'")
    if "\0" in text:
        refuse(name, "found a NUL byte, expected text", "this is a binary file; give a YAML or JSON file")
    with uncollected():
        data = _load_json(text, name, unbounded) if as_json else _Reader(text, name).read()
    if not isinstance(data, dict):
        kind = shown(data) if data is None or isinstance(data, list) else f"the single value {shown(data, 40)}"
        refuse(name, f"found {kind} at the top, expected a mapping", "start with 'key: value' lines")
    return data


def _load_json(text: str, name: str, unbounded: Callable[[object], bool] | None) -> Any:
    twice, limits = list[str](), list[str]()

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        mapping = dict(pairs)
        if len(mapping) != len(pairs):
            twice.extend(key for _, key, _ in repeated(key for key, _ in pairs))
        return mapping

    def not_finite(constant: str) -> float:
        limits.append(constant)
        return float(constant)

    try:
        data = json.loads(text, object_pairs_hook=unique, parse_constant=not_finite)
        if "\\u" in text:
            json.dumps(data, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        remedy = "check quotes, commas and brackets near this place; JSON has no comments"
        refuse(name, f"line {error.lineno}, column {error.colno}: {error.msg}", remedy)
    except RecursionError:
        refuse(name, *_DEEP)
    except UnicodeEncodeError:
        refuse(name, "found half a surrogate pair, expected text", "fix the \\u escape")
    except ValueError as error:  # an integer of more than 4300 digits
        refuse(name, f"found a number that is too long: {shown(str(error))}", "shorten it")
    if "NaN" in limits or (limits and not (unbounded and unbounded(data))):
        refuse(name, f"found {'NaN' if 'NaN' in limits else limits[0]}, expected a finite number", NO_LIMIT)
    if twice and len(text) < 1_000_000:  # JSON is almost YAML, whose reader knows path and line; it is slow
        _Reader(text, name).read()
    if twice:
        raise DocumentError(name, [Issue("$", f"duplicate key {shown(k)}", "keep one of them") for k in twice])
    return data


class _Reader:
    """Builds data from PyYAML's events, collecting issues."""

    def __init__(self, text: str, name: str) -> None:
        self._events: Iterator[Any] = yaml.parse(text, Loader=_LOADER)
        self._name = name
        self._issues: list[Issue] = []

    def read(self) -> Any:
        """The only document of the text."""
        data = None
        try:
            for event in self._events:
                if isinstance(event, yaml.NodeEvent):
                    data = self._value(event, ())
                elif isinstance(event, yaml.DocumentStartEvent) and data is not None:
                    self._complain(event, (), "a second document starts here ('---')", "put it into its own file", True)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
            problem = f"{place}{error.problem or error.context or 'cannot be parsed'}"
            remedy = "check indentation (spaces, no tabs), quotes and brackets; quote text that holds ': '"
            if "nesting depth" in problem:  # of PyYAML from 6.0.4 on, which looks ahead of the events
                problem, remedy = _DEEP
            self._issues.append(Issue("$", problem, remedy))
        except yaml.YAMLError as error:  # ReaderError: control characters
            problem = f"found a character that is no text: {shown(str(getattr(error, 'reason', error)))}"
            self._issues.append(Issue("$", problem, "remove it, or write it as an escape in double quotes"))
        if self._issues:
            raise DocumentError(self._name, self._issues)
        return data

    def _complain(self, event: Any, steps: _Steps, message: str, remedy: str, fatal: bool = False) -> None:
        self._issues.append(Issue(json_path(*steps), f"line {event.start_mark.line + 1}: {message}", remedy))
        if fatal or len(self._issues) >= 100:
            raise DocumentError(self._name, self._issues)

    def _value(self, event: Any, steps: _Steps) -> Any:
        """The scalar, list or mapping that starts with an event."""
        if isinstance(event, yaml.AliasEvent) or event.tag is not None or event.anchor is not None:
            what = "an alias" if isinstance(event, yaml.AliasEvent) else "a tag or an anchor"
            remedy = "write the value out, or quote text that starts with * & or !"
            self._complain(event, steps, f"found {what}, expected plain data", remedy, fatal=True)
        if isinstance(event, yaml.ScalarEvent):
            value = resolve(event.value) if event.implicit[0] else event.value  # quoted, or a block of text: as it is
            if isinstance(value, Issue):
                self._complain(event, steps, value.message, value.remedy)
            return value
        if len(steps) >= MAX_DEPTH:
            self._complain(event, steps, *_DEEP, fatal=True)
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(steps)
        items: list[Any] = []
        while not isinstance(inner := next(self._events), yaml.SequenceEndEvent):
            items.append(self._value(inner, (*steps, len(items))))
        return items

    def _mapping(self, steps: _Steps) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        lines: dict[str, int] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                message = "found a list, a mapping or an alias as a key, expected text"
                remedy = "write plain text; text that starts with { [ or * needs quotes"
                self._complain(event, steps, message, remedy, fatal=True)
            key, inner = str(event.value), (*steps, str(event.value))
            if key in lines:
                message = f"duplicate key {shown(key)}, first on line {lines[key]}"
                self._complain(event, inner, message, "keep one of them")
            lines.setdefault(key, event.start_mark.line + 1)
            mapping[key] = self._value(next(self._events), inner)
        return mapping


class _Dumper(_DUMPER):  # type: ignore[misc]  # the C class if there is one
    """Block mappings, one-line lists of scalars, quotes around all text our loader would not read as text."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _write_text(dumper: Any, text: str) -> Any:
    style = '"' if _BREAK.search(text) else None if isinstance(resolve(text), str) else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _write_list(dumper: Any, items: list[Any]) -> Any:
    flat = not any(isinstance(item, dict | list) for item in items)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=flat)


_Dumper.add_representer(str, _write_text)
_Dumper.add_representer(list, _write_list)


def dump_yaml(data: dict[str, Any]) -> str:
    """Plain data as YAML text that `load_strict` reads back to equal data.

    Examples
    --------
    >>> print(dump_yaml({"name": "1e3", "shape": [4, 1.5], "dims": [{"kind": "ring"}]}), end="")
    name: '1e3'
    shape: [4, 1.5]
    dims:
    - kind: ring
    """
    layout: Any = {"sort_keys": False, "allow_unicode": True, "width": 110, "default_flow_style": False}
    return str(yaml.dump(data, Dumper=_Dumper, **layout))
