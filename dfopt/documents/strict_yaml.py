"""YAML and JSON text <-> plain Python data, with nothing silent.

PyYAML reads ``1e12`` as a string, ``on`` as true, ``1:30`` as 90, and keeps the last of two equal keys. This
loader takes PyYAML's events only and builds the data itself: scalars by the rules of YAML 1.2, mapping keys
always text, and what could mean something else to another reader is an issue with its line.

The data is built with an explicit stack, so no input can exhaust the interpreter's stack, and shared nodes
(aliases) are counted as if they were written out, so a small file cannot stand for a huge one.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

import yaml

from dfopt.documents.scalars import NO_LIMIT, resolve
from dfopt.errors import DocumentError, Issue, json_path, shown

__all__ = ["dump_yaml", "load_strict"]

MAX_BYTES: Final = 20_000_000
MAX_DEPTH: Final = 64
MAX_ALIASED: Final = 100_000  # nodes that aliases may add

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

_DEEP: Final = f"nested more than {MAX_DEPTH} levels deep", "flatten it, or is it the wrong file?"

_HALF = re.compile(r"[\ud800-\udfff]")  # of a surrogate pair: no character, and not to be written as UTF-8
_BREAK = re.compile(r"[\x85\u2028\u2029]")  # line breaks to YAML 1.1 only: always escaped


def load_strict(source: str | Path, path: str | None = None) -> dict[str, Any]:
    """Read a YAML or JSON document into plain data.

    Parameters
    ----------
    source
        A `Path` is a file: JSON if its suffix is ``.json``, YAML otherwise. A `str` is the YAML text itself.
    path
        The name of the source in errors; the file's path, or ``<text>``, if not given.

    Raises
    ------
    DocumentError
        With every issue found; parsing stops at the first one that makes the rest unreadable.

    Examples
    --------
    >>> load_strict("{rate: 1e12, switch: on, when: 2024-01-01, clock: 1:30}")
    {'rate': 1000000000000.0, 'switch': 'on', 'when': '2024-01-01', 'clock': '1:30'}
    >>> load_strict("a: 1\\na: 2")
    Traceback (most recent call last):
    dfopt.errors.DocumentError: <text>: 1 problem
      $.a: line 2: duplicate key 'a', first on line 1 (keep one of them)
    """
    if isinstance(source, Path):
        name = path or str(source)
        text = _read(source, name)
        as_json = source.suffix.lower() == ".json"
    else:
        name, text, as_json = path or "<text>", source, False
        if len(source) > MAX_BYTES:
            _stop(name, *_too_large(len(source)))
    if not text.strip():
        _stop(name, "the file is empty", "start it with a line such as 'schema: dfopt/graph/1'")
    if "\0" in text:
        _stop(name, "found a NUL byte, expected text", "this is a binary file; give a YAML or JSON file")
    data = _load_json(text, name) if as_json else _load_yaml(text, name)
    if not isinstance(data, dict):
        kind = shown(data) if data is None or isinstance(data, list) else f"the single value {shown(data, 40)}"
        _stop(name, f"found {kind} at the top, expected a mapping", "start with 'key: value' lines")
    return data


def _stop(path: str, message: str, remedy: str) -> NoReturn:
    raise DocumentError(path, [Issue("$", message, remedy)])


def _too_large(size: int) -> tuple[str, str]:
    return (
        f"{size:,} bytes or more, at most {MAX_BYTES:,} are read",
        "split the file, or is it the wrong one?",
    )


def _read(path: Path, name: str) -> str:
    try:
        size = os.stat(path).st_size
        if size > MAX_BYTES:  # before a byte of it is in memory
            _stop(name, *_too_large(size))
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)  # a pipe or a device has no size beforehand
    except FileNotFoundError:
        _stop(name, "no such file", "check the spelling and the folder you are in")
    except IsADirectoryError:
        _stop(name, "found a directory, expected a file", "name a file in it")
    except PermissionError:
        _stop(name, "permission denied", "make the file readable, e.g. with chmod +r")
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        _stop(name, f"cannot be read: {error}", "check the path")
    if len(raw) > MAX_BYTES:
        _stop(name, *_too_large(len(raw)))
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        _stop(name, f"line {line}: found bytes that are not UTF-8, expected text", "save the file as UTF-8")


# --- JSON: the C parser of the standard library, then one walk over the data ----------------------


def _load_json(text: str, name: str) -> Any:
    twice: list[str] = []

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            twice.extend(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        return made

    try:
        data = json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        remedy = "check quotes, commas and brackets near this place; JSON has no comments"
        _stop(name, f"line {error.lineno}, column {error.colno}: {error.msg}", remedy)
    except RecursionError:
        _stop(name, *_DEEP)
    except ValueError as error:  # an integer of more than 4300 digits
        _stop(name, f"found a number that is too long: {shown(str(error))}", "shorten it")
    if twice:
        # json drops positions. JSON is almost YAML: unless it is large, the slow reader finds path and line.
        try:
            _load_yaml(text if len(text) < 1_000_000 else "{}", name)
        except DocumentError as error:
            if any("duplicate key" in issue.message for issue in error.issues):
                raise
        raise DocumentError(name, [Issue("$", f"duplicate key {shown(k)}", "keep one of them") for k in twice])
    issues = list(_walk(data, check_text="\\u" in text))
    if issues:
        raise DocumentError(name, issues)
    return data


def _walk(data: Any, check_text: bool) -> Iterator[Issue]:
    """What the JSON parser lets pass: infinite numbers (1e999), half surrogate pairs, deep nesting."""
    half = "found half a surrogate pair, expected text", "fix the \\u escape"
    stack: list[tuple[tuple[str | int, ...], Any]] = [((), data)] if isinstance(data, dict | list) else []
    while stack:
        steps, node = stack.pop()
        if len(steps) >= MAX_DEPTH:
            yield Issue(json_path(*steps[:3]), *_DEEP)
            return
        for step, value in node.items() if isinstance(node, dict) else enumerate(node):
            if check_text and isinstance(step, str) and _HALF.search(step):
                yield Issue(json_path(*steps), *half)
            if isinstance(value, dict | list):
                stack.append(((*steps, step), value))
            elif isinstance(value, float) and not math.isfinite(value):
                yield Issue(json_path(*steps, step), f"found {value}, expected a finite number", NO_LIMIT)
            elif check_text and isinstance(value, str) and _HALF.search(value):
                yield Issue(json_path(*steps, step), *half)


# --- YAML: PyYAML's events, our own construction --------------------------------------------------


@dataclass(slots=True)
class _Open:
    """A list or mapping that is being filled."""

    value: list[Any] | dict[str, Any]
    anchor: str | None
    key: str | None = None  # of a mapping: the key whose value comes next
    lines: dict[str, int] = field(default_factory=dict)  # of a mapping: where each key stands
    count: int = 1  # nodes inside, aliases written out
    height: int = 1


class _Builder:
    """Builds data from the events of one document, collecting issues."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.root: Any = None
        self.stack: list[_Open] = []
        self.issues: list[Issue] = []
        # Value, nodes and height of each anchored node; None while it is still open.
        self.anchors: dict[str, tuple[Any, int, int] | None] = {}
        self.aliased = 0
        self.documents = 0

    def where(self) -> str:
        steps: list[str | int] = []
        for frame in self.stack:
            if isinstance(frame.value, list):
                steps.append(len(frame.value))
            elif frame.key is not None:
                steps.append(frame.key)
        return json_path(*steps)

    def complain(self, event: Any, message: str, remedy: str, fatal: bool = False) -> None:
        self.issues.append(Issue(self.where(), f"line {event.start_mark.line + 1}: {message}", remedy))
        if fatal or len(self.issues) >= 100:
            raise DocumentError(self.name, self.issues)

    def feed(self, event: Any) -> None:
        if isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                self.complain(event, "a second document starts here ('---')", "put it into its own file", True)
            return
        if getattr(event, "tag", None) is not None:
            tag = str(event.tag).replace("tag:yaml.org,2002:", "!!")
            self.complain(event, f"found the tag {shown(tag)}, expected plain data", "remove the tag")
        if isinstance(event, yaml.CollectionEndEvent):
            done = self.stack.pop()
            if done.anchor is not None:
                self.anchors[done.anchor] = (done.value, done.count, done.height)
            self.place(done.value, done.count, done.height)
        elif isinstance(event, yaml.NodeEvent):
            if self.stack and isinstance(self.stack[-1].value, dict) and self.stack[-1].key is None:
                self.take_key(event, self.stack[-1])
            elif isinstance(event, yaml.ScalarEvent):
                value = self.scalar(event)
                if event.anchor is not None:
                    self.anchors[event.anchor] = (value, 1, 0)
                self.place(value, 1, 0)
            elif isinstance(event, yaml.AliasEvent):
                self.place(*self.alias(event))
            else:
                if len(self.stack) >= MAX_DEPTH:
                    self.complain(event, *_DEEP, fatal=True)
                if event.anchor is not None:
                    self.anchors[event.anchor] = None
                empty: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
                self.stack.append(_Open(empty, event.anchor))

    def place(self, value: Any, count: int, height: int) -> None:
        if not self.stack:
            self.root = value
            return
        frame = self.stack[-1]
        frame.count += count
        frame.height = max(frame.height, height + 1)
        if isinstance(frame.value, list):
            frame.value.append(value)
        else:
            assert frame.key is not None
            frame.value[frame.key] = value
            frame.key = None

    def take_key(self, event: Any, frame: _Open) -> None:
        if not isinstance(event, yaml.ScalarEvent):
            remedy = "write plain text; text that starts with { [ or * needs quotes"
            self.complain(event, "found a list, a mapping or an alias as a key, expected text", remedy, True)
        key, line = str(event.value), event.start_mark.line + 1
        frame.key = key
        if event.anchor is not None:
            self.anchors[event.anchor] = (key, 1, 0)
        if key == "<<" and event.implicit[0]:
            self.complain(event, "found the merge key '<<', expected plain keys", "write the merged keys out")
        elif key in frame.lines:
            message = f"duplicate key {shown(key)}, first on line {frame.lines[key]}"
            self.complain(event, message, "keep one of them")
        frame.lines.setdefault(key, line)

    def alias(self, event: Any) -> tuple[Any, int, int]:
        name = event.anchor
        if name not in self.anchors:
            message = f"alias '*{name}' has no anchor '&{name}' before it"
            self.complain(event, message, "quote text that starts with *", True)
        known = self.anchors[name]
        if known is None:
            self.complain(event, f"alias '*{name}' stands inside its own anchor", "write the value out", True)
        assert known is not None
        self.aliased += known[1]
        if self.aliased > MAX_ALIASED:
            message = f"aliases stand for more than {MAX_ALIASED:,} values"
            self.complain(event, message, "write the values out, or is it the wrong file?", True)
        if len(self.stack) + known[2] > MAX_DEPTH:
            self.complain(event, *_DEEP, fatal=True)
        return known

    def scalar(self, event: Any) -> Any:
        text = str(event.value)
        if not event.implicit[0]:  # quoted, or a block of text
            return text
        value = resolve(text)
        if isinstance(value, Issue):
            self.complain(event, value.message, value.remedy)
        return value


def _load_yaml(text: str, name: str) -> Any:
    builder = _Builder(name)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.feed(event)
    except yaml.MarkedYAMLError as error:
        problem = str(error.problem or error.context or "cannot be parsed")
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        remedy = "check indentation, quotes and brackets near this place"
        at_mark = "".join(text.split("\n")[mark.line : mark.line + 1])[mark.column :] if mark else ""
        if "\\t" in problem or at_mark.startswith("\t"):
            problem, remedy = "found a tab where YAML wants spaces", "indent with spaces"
        elif "mapping values are not allowed" in problem:
            remedy = "one 'key: value' per line; quote text that holds ': '"
        raise DocumentError(name, [*builder.issues, Issue("$", place + problem, remedy)]) from None
    except yaml.YAMLError as error:  # ReaderError: control characters
        message = f"found a character that is no text: {shown(str(getattr(error, 'reason', error)))}"
        remedy = "remove it, or write it as an escape in double quotes"
        raise DocumentError(name, [*builder.issues, Issue("$", message, remedy)]) from None
    if builder.issues:
        raise DocumentError(name, builder.issues)
    return builder.root


# --- writing --------------------------------------------------------------------------------------


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
    text: str = yaml.dump(data, Dumper=_Dumper, **layout)
    return text
