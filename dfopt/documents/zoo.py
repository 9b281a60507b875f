"""The zoos: graphs, systems and the parts of systems by name, and files by path."""

from __future__ import annotations

import fnmatch
import os
from functools import cache
from pathlib import Path
from typing import Final, Literal, get_args

from dfopt.documents.strict_yaml import load_strict
from dfopt.errors import NotInZoo, close_matches, did_you_mean, refuse

ZooKind = Literal[
    "graphs", "systems", "chips", "memories", "links", "topologies", "stacks", "technologies", "designs",
    "calibrations",
]  # fmt: skip
KINDS: Final[tuple[ZooKind, ...]] = get_args(ZooKind)
PART_KINDS: Final[tuple[ZooKind, ...]] = KINDS[2:7]  # what systems are made of
BELOW_SYSTEMS: Final[tuple[ZooKind, ...]] = KINDS[2:]  # in folders of systems/
_PACKAGE: Final = Path(__file__).resolve().parents[1]
_ONE: Final[dict[str, str]] = {"memories": "memory", "topologies": "topology", "technologies": "technology"}


def _zoo_folder(kind: ZooKind) -> Path:
    """The zoo inside the installed package, or else in the checkout around it."""
    inner = Path("systems", kind) if kind in BELOW_SYSTEMS else Path(kind)
    shipped = _PACKAGE / "_zoo" / inner
    return shipped if shipped.is_dir() else _PACKAGE.parent / inner


def singular(kind: ZooKind) -> str:
    """The word for one of a kind: ``system`` for ``systems``."""
    return _ONE.get(kind, kind[:-1])


def zoo(kind: ZooKind) -> list[str]:
    """Sorted names of the documents in one shelf of the zoo."""
    return sorted(path.stem for path in _zoo_folder(kind).glob("*.yaml"))


@cache
def families() -> dict[str, str]:
    """Representative system of each family, for names with a size such as ``h100:64``."""
    return load_strict(_zoo_folder("systems") / "tables" / "families.yaml")


def matching(kind: ZooKind, pattern: object) -> list[str] | None:
    """Zoo names that match a pattern with ``*``; None if the text is no pattern.

    Examples
    --------
    >>> matching("graphs", "gpt3-1*"), matching("graphs", "gpt2-small")
    (['gpt3-175b', 'gpt3-1t'], None)
    """
    if not isinstance(pattern, str) or os.sep in pattern or not set("*?[") & set(pattern):
        return None
    return fnmatch.filter(zoo(kind), pattern)


def is_path(text: str) -> bool:
    """Whether a text is a path: it has a separator or suffix, or exists and is no zoo name."""
    # Letters only: the '.3b' of the zoo name 'gpt3-1.3b' is no suffix.
    separators = {os.sep, os.altsep or os.sep}
    if separators & set(text) or Path(text).suffix[1:].isalpha():
        return True
    return os.path.exists(text) and not any(text in zoo(kind) for kind in KINDS)


def resolve_near(kind: ZooKind, folder: Path, name: str) -> str | Path:
    """Zoo name or path that a document means by a name: the zoo first, then files.

    Parameters
    ----------
    kind, name
        Kind of zoo entry, and the name.
    folder : Path
        Folder of the document.
    """
    return folder / name if name not in zoo(kind) and os.path.isfile(folder / name) else name


def find(kind: ZooKind, name_or_path: str | os.PathLike[str]) -> Path:
    """File of a zoo name or path; zoo names take precedence over files (write ``./NAME`` for a file).

    Raises `NotInZoo`, with close matches, for a name that is neither; `DocumentError` for something that is surely
    meant as a path (it has a separator or a suffix) but is no file.
    """
    text = os.path.expanduser(os.fspath(name_or_path))
    names = zoo(kind)
    if text in names:
        return _zoo_folder(kind) / f"{text}.yaml"
    if os.path.exists(text) and not os.path.isdir(text):
        return Path(text)
    if os.path.isdir(text) and is_path(text):
        lacks = kind == "graphs" and not os.path.exists(os.path.join(text, "config.json"))
        actual = f"a directory{' without the config.json of a model' if lacks else ''}"
        refuse(text, f"found {actual}, expected a file", f"name a file in it, or one of `dfopt list {kind}`")
    if isinstance(name_or_path, os.PathLike) or is_path(text):
        refuse(text, "no such file", f"check the spelling; zoo names have no suffix: `dfopt list {kind}`")
    # The graphs and systems first: a name such as gb200-nvl72 may be that of a part too.
    other = next((each for each in KINDS if each != kind and text in zoo(each)), None)
    if other is not None:
        close = did_you_mean(text, names)  # such as a system for the name of its chip
        remedy = f"{close} `dfopt list {kind}` lists them all" if close else f"`dfopt list {kind}`"
        remedy = "the order is GRAPH SYSTEM" if {kind, other} == {"graphs", "systems"} else remedy
        if kind == "systems" and text in families():
            remedy += f"; {text}:N is {families()[text]} with N chips"
        if kind == "systems" and text in zoo("designs"):
            remedy += f"; the design of this name is designs/{text}"
        refuse(text, f"found the name of a {singular(other)}, expected a {singular(kind)}", remedy)
    raise NotInZoo(text, close_matches(text, names, 0.5), kind)
