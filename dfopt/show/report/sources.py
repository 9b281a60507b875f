"""Where the inputs of a result come from: what documents and the files of the zoo say of their own numbers.

Remarks in a YAML file are lost when it is read, so that a result cannot know them. Those of files in the zoo are read
again from there: the lines that say ``unconfirmed``, ``estimate`` or ``assumption`` of a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dfopt.documents.strict_yaml import load_strict
from dfopt.documents.zoo import BELOW_SYSTEMS, ZooKind, find, zoo
from dfopt.show.html import Html, facts, mark, paragraph, subtitle, table
from dfopt.show.report.page import PagePart

_WORDS: Final = re.compile(r"\b(unconfirmed|assum(?:ed|es|ption|ptions)|estimated?|from memory)\b", re.IGNORECASE)
# Keys of a system under which a part's name stands, and the shelf that has it.
_SHELVES: Final[dict[str, ZooKind]] = {
    "chip": "chips", "memory": "memories", "network": "topologies", "links": "links", "link": "links",
    "stack": "stacks", "technology": "technologies",
}  # fmt: skip


@dataclass(frozen=True)
class Remark:
    """Remark of a zoo file on a number that is not confirmed.

    ``kind`` is its keyword, ``line`` the setting that it is about, and ``text`` the remark.
    """

    file: str
    number: int
    kind: str
    line: str
    text: str


def remarks(kind: ZooKind, name: str) -> tuple[Remark, ...]:
    """Remarks of a zoo file and of its parts on numbers that are not confirmed."""
    if name not in zoo(kind):
        return ()
    return tuple(remark for path, label in _files(kind, name, set()) for remark in _of_file(path, label))


def _files(kind: ZooKind, name: str, seen: set[tuple[ZooKind, str]]) -> Iterator[tuple[Path, str]]:
    """A file of the zoo and, after it, the files of the parts that it names."""
    if (kind, name) in seen:
        return
    seen.add((kind, name))
    path = find(kind, name)
    shelf = f"systems/{kind}" if kind in BELOW_SYSTEMS else kind
    yield path, f"{shelf}/{name}.yaml"
    for part_kind, part in _named(load_strict(path), kind):
        if part in zoo(part_kind):
            yield from _files(part_kind, part, seen)


def _named(data: Any, shelf: ZooKind, roles: bool = False) -> Iterator[tuple[ZooKind, str]]:
    """Parts that a file names: ``key: NAME``, or ``part: NAME`` under such a key or at the top of a part.

    ``roles``: what stands under ``links``, where each role has a name, and under ``parts`` of a technology.
    """
    for key, value in data.items() if isinstance(data, dict) else (("", item) for item in data):
        inner = _SHELVES.get(key, shelf)
        if isinstance(value, dict | list | tuple):
            yield from _named(value, inner, key in ("links", "parts"))
        elif isinstance(value, str) and (roles or key in ("part", "from") or key in _SHELVES):
            yield inner, value


def _of_file(path: Path, label: str) -> Iterator[Remark]:
    for number, raw in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        before, sharp, comment = raw.partition(" #" if not raw.startswith("#") else "#")
        word = _WORDS.search(comment) if sharp else None
        if word is not None:
            yield Remark(label, number, word[1].lower(), before.strip(), comment.strip())


def inputs_section(rows: Sequence[tuple[str, object]], remarks: Sequence[Remark], notes: Sequence[str]) -> PagePart:
    """Page section on inputs: facts, remarks of zoo files, and notes on other numbers.

    Parameters
    ----------
    rows
        Facts on the inputs, each with its name.
    remarks
        Remarks of zoo files on numbers that are not confirmed.
    notes
        Sentences on other numbers.
    """
    parts: list[Html | None] = [facts(rows) if rows else None, subtitle("Unconfirmed inputs")]
    if remarks:
        listed = [
            [f"{remark.file}:{remark.number}", mark(remark.kind, "note"), remark.line, remark.text]
            for remark in remarks
        ]
        parts.append(table("Lines of zoo files that do not take their number for confirmed",
                           ["file", "word", "sets", "remark"], listed))  # fmt: skip
    return PagePart("inputs", "Inputs and sources", [*parts, *(paragraph(sentence) for sentence in notes)])
