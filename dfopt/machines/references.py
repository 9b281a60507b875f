"""References to parts in a system's data: a name, a path, or ``{part: NAME, KEY: VALUE}``, replaced by what they name.

What comes out has the shape of what went in, so that later errors are at the places where the user wrote them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any, Final

from dfopt.documents.base import Document
from dfopt.documents.json_schema import schema_json
from dfopt.documents.parts import PARTS
from dfopt.documents.strict_yaml import load_strict
from dfopt.documents.system import IN_A_DIM
from dfopt.documents.zoo import PART_KINDS, ZooKind, find, is_path, resolve_near, singular, zoo
from dfopt.errors import DocumentError, Issue, close_matches, shown
from dfopt.units import exact, parse

Load = Callable[[str, str], dict[str, Any] | None]  # of a name, at a place

# What a part file says about itself and a system has no field for.
_ABOUT: Final = {kind: ("schema", "description", "source", *(["name"] if kind != "chips" else [])) for kind in PARTS}


class ReferenceResolver:
    """Replaces references to parts in document data, and collects issues.

    Relative paths start at ``folder``, that of the file that has the references, or at the current folder.

    Examples
    --------
    >>> resolver = ReferenceResolver()
    >>> resolver.memory({"part": "hbm3-stack", "count": 2}, "$.memory")["capacity"], resolver.issues
    ('48 GB', [])
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.issues: list[Issue] = []

    def memory(self, value: Any, where: str) -> Any:
        """Data of a `Dram` reference; ``count`` multiplies the part, such as stacks of a package."""
        count = 1
        if isinstance(value, Mapping) and "part" in value and "count" in value:
            value = dict(value)
            count = value.pop("count")
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                remedy = "how many of the part make up the memory of one chip"
                self.wrong(f"{where}.count", f"found {shown(count)}, expected a whole number of 1 or more", remedy)
                count = 1
        data = self.part("memories", value, where)
        if count > 1 and isinstance(data, dict):
            for key, dimension in (("bandwidth", "bandwidth"), ("capacity", "bytes")):
                if isinstance(data.get(key), str):
                    data[key] = exact(count * parse(data[key], dimension), dimension)  # type: ignore[arg-type]
        return data

    def network(self, value: Any, where: str) -> Any:
        """Data of network dims with links resolved, or of a topology with sizes and links."""
        if isinstance(value, list | tuple):
            return [self._dim(dim, f"{where}[{i}]") for i, dim in enumerate(value)]
        if isinstance(value, str):
            value = {"part": value}
        if not isinstance(value, Mapping):
            return value
        data = self.part("topologies", dict(value), where)
        if isinstance(data, dict) and "links" in data:
            data["links"] = self._links(data["links"], data.get("roles"), f"{where}.links")
        return data

    def _dim(self, value: Any, where: str) -> Any:
        if not isinstance(value, Mapping) or "link" not in value:
            return value
        link = self.part("links", value["link"], f"{where}.link")
        if not isinstance(link, Mapping):
            self.wrong(f"{where}.link", f"found {shown(link)}, expected a link", "name one, or give its fields")
            return value
        renamed = {IN_A_DIM.get(key, key): item for key, item in link.items()}
        return {**renamed, **{key: item for key, item in value.items() if key != "link"}}

    def _links(self, value: Any, roles: Any, where: str) -> Any:
        if isinstance(value, list | tuple):
            return [self.part("links", item, f"{where}[{i}]") for i, item in enumerate(value)]
        if isinstance(value, Mapping) and isinstance(roles, list) and not {"part", "bandwidth"} & set(value):
            return {role: self.part("links", item, f"{where}.{role}") for role, item in value.items()}
        return self.part("links", value, where)

    def part(self, kind: ZooKind, value: Any, where: str, load: Load | None = None) -> Any:
        """Data of a named part with the reference's other keys merged over it; inline data is returned unchanged.

        Parameters
        ----------
        kind
            Kind of zoo entry.
        value, where
            Value in the file, and the place where it is.
        load : callable, optional
            Data of the file of a part's name or path, or None; by default the file as it is.
        """
        load = load or partial(self._load, kind)
        if isinstance(value, str):
            return load(value, where)
        if not isinstance(value, Mapping) or "part" not in value:
            return value
        name = value["part"]
        if not isinstance(name, str):
            self.wrong(
                f"{where}.part",
                f"found {shown(name)}, expected the name of a {singular(kind)}",
                f"see `dfopt list {kind}`",
            )
            return value
        data = load(name, f"{where}.part")
        changes = {key: item for key, item in value.items() if key != "part"}
        return merged(data, changes) if isinstance(data, dict) else data

    def _load(self, kind: ZooKind, name: str, where: str) -> dict[str, Any] | None:
        path = self.find(kind, name, where)
        if path is None:
            return None
        data = load_strict(path)
        PARTS[kind].from_data(data, str(path))  # what is wrong in the part's file is told with that file's name
        return {key: item for key, item in data.items() if key not in _ABOUT[kind]}

    def find(self, kind: ZooKind, name: str, where: str) -> Path | None:
        """File of a part's name or path; None, with an issue, if there is none.

        Parameters
        ----------
        kind, name
            Kind of zoo entry, and its name or path.
        where : str
            Place in the file that names it, for an issue.
        """
        try:
            return find(kind, name if self.folder is None else resolve_near(kind, self.folder, name))
        except DocumentError as error:
            here = zoo(kind)
            elsewhere = next((other for other in PART_KINDS if other != kind and name in zoo(other)), None)
            if is_path(name):
                self.issues += [Issue(where, f"{issue.message}: {name!r}", issue.remedy) for issue in error.issues]
            elif elsewhere is not None:
                message = f"found the name of a {singular(elsewhere)}, expected a {singular(kind)}"
                self.wrong(where, f"{message}: {name!r}", f"{kind}: {_listed(here)}")
            else:
                close = " or ".join(map(repr, close_matches(name, here, 0.5)))
                message = f"no {singular(kind)} of this name and no file: {name!r}"
                self.wrong(where, message, f"did you mean {close}?" if close else f"{kind}: {_listed(here)}")
            return None

    def base(self, kind: ZooKind, name: str, where: str, above: tuple[str, ...]) -> Path | None:
        """File that another file is derived from; None, with an issue, if it is missing or cyclic.

        Parameters
        ----------
        kind, name
            Kind of zoo entry, and its name or path.
        where : str
            Place in the file that names it, for an issue.
        above : tuple of str
            Paths of the files that are derived from this one.
        """
        path = self.find(kind, name, where)
        real = os.path.realpath(path) if path is not None else None
        if real is None or real not in above:
            return path
        chain = " -> ".join(Path(each).name for each in (*above[above.index(real) :], real))
        it = singular(kind)
        self.wrong(where, f"a {it} cannot be derived from itself: {chain}", f"name another {it}")
        return None

    def wrong(self, where: str, message: str, remedy: str) -> None:
        """Add an issue.

        Parameters
        ----------
        where : str
            Place in the file.
        message, remedy : str
            What is wrong, and what helps.
        """
        self.issues.append(Issue(where, message, remedy))


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Deep merge of ``changes`` over ``base``.

    Examples
    --------
    >>> merged({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}})
    {'a': {'b': 1, 'c': 3}}
    """
    combined = deepcopy(dict(base))
    for key, value in changes.items():
        inner = combined.get(key)
        combined[key] = merged(inner, value) if isinstance(inner, dict) and isinstance(value, Mapping) else value
    return combined


def _listed(names: list[str], most: int = 8) -> str:
    return ", ".join(names[:most]) + (f", ... {len(names) - most} more" if len(names) > most else "")


def folder_of(path: str | os.PathLike[str]) -> Path | None:
    """Folder of a file; None for data without a file."""
    return Path(path).parent if os.path.isfile(path) else None


def schema_in_terms(kind: type[Document], terms: str) -> dict[str, Any]:
    """JSON Schema of a document's file: explicit, or derived with the keys that terms.yaml lists.

    Examples
    --------
    >>> from dfopt.documents.stack import Stack
    >>> [form["required"] for form in schema_in_terms(Stack, "stack")["anyOf"]][1]
    ['schema', 'name', 'part']
    """
    explicit, own = schema_json(kind), load_strict(Path(__file__).with_name("terms.yaml"))[terms]
    top = {key: explicit.pop(key) for key in ("$schema", "$id", "$defs")}
    loose = {**explicit, "properties": {**explicit["properties"], **own["properties"]}, "required": own["required"]}
    return {"title": kind.__name__, **top, "anyOf": [explicit, loose]}
