"""From a study document to its cells: every combination as concrete documents, each with a digest of its content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dfopt.documents.assumptions import Assumptions, profile
from dfopt.documents.graph import Graph
from dfopt.documents.request import Request
from dfopt.documents.study import AssumptionsEntry, GraphEntry, Study, label_of_value
from dfopt.documents.system import System
from dfopt.errors import DocumentError, GraphError, Issue, SystemSpecError, json_path, shown
from dfopt.machines.fields import with_fields
from dfopt.studies.selection import Labels
from dfopt.studies.systems import Machine, machines
from dfopt.workloads import load_graph

__all__ = ["Cell", "expand"]

# Part of every digest: raise it when the same content would be solved for another figure.
_FORMAT = "dfopt/cell/1"
# Words about a document, which change no figure.
_PROSE = ("name", "description", "source", "profile")


@dataclass(frozen=True)
class Cell:
    """One solve of a study.

    ``axes`` holds the labels that tell it from the others, by column; ``key`` is the digest of what it asks, so
    equal cells of two studies, or of one, have the same key.
    """

    axes: Mapping[str, str | int | float | None]
    graph: Graph
    system: System
    assumptions: Assumptions
    options: Request
    seed: int
    key: str

    @property
    def label(self) -> str:
        """The labels in one line."""
        return " | ".join(str(value) for value in self.axes.values() if value is not None)


def expand(study: Study, folder: Path | None = None, path: str = "") -> tuple[Cell, ...]:
    """All cells of a study, in the order of the document.

    Parameters
    ----------
    study : Study
        What to expand.
    folder : Path, optional
        Where the paths of graphs and systems start; the working directory by default.
    path : str
        Name of the study in errors; its own name by default.

    Raises
    ------
    DocumentError
        With the place in the study: a graph, system or part that does not exist or does not fit together, a field
        that does not exist, a condition over the axes that selects nothing, or no cell left.

    Examples
    --------
    >>> study = Study(
    ...     name="two",
    ...     graphs=[{"graph": "gpt2-small"}],
    ...     systems=[{"system": "sn10-8-ring"}, {"system": "sn10-8-torus", "set": {"chip.dram.bandwidth": "1 TB/s"}}],
    ... )
    >>> for cell in expand(study):
    ...     print(cell.label, cell.system.chip.dram.bandwidth)
    gpt2-small | sn10-8-ring | SambaNova SN10 RDU | ring 8 | default 200000000000.0
    gpt2-small | sn10-8-torus | SambaNova SN10 RDU | ring 4 x ring 2 | default 1000000000000.0
    """
    name = path or study.name
    cells = tuple(_Grid(study, folder or Path(), name).cells())
    for i, entry in enumerate(study.graphs):
        label = entry.name
        if not any(cell.axes["graph"] == label for cell in cells):
            message = f"no system, no assumptions or no limits are for the graph {label!r}"
            raise DocumentError(
                name, [Issue(json_path("graphs", i), message, "add it to their graphs, or leave it out")]
            )
    kept = _filtered(study, cells, name)
    if not kept:
        raise DocumentError(name, [Issue("$.filters", "no cell is left", "drop a filter")])
    _check_conditions(study, kept, name)
    return kept


class _Grid:
    """The product, with every document loaded once however many cells share it."""

    def __init__(self, study: Study, folder: Path, path: str) -> None:
        self.study, self.folder, self.path = study, folder, path
        self._known: dict[str, Any] = {}
        self._digests: dict[int, str] = {}

    def cells(self) -> Iterator[Cell]:
        study = self.study
        listed = machines(study.systems, self.folder, self.path)
        for (g, graph), machine in product(enumerate(study.graphs), listed):
            label = graph.name
            if machine.graphs and label not in machine.graphs:
                continue
            ways = _ways(study, label)
            for a, assumed in enumerate(study.assumptions):
                if not assumed.graphs or label in assumed.graphs:
                    for chosen in product(*ways):
                        yield self._cell(g, graph, machine, a, assumed, chosen)

    def _cell(
        self,
        g: int,
        entry: GraphEntry,
        machine: Machine,
        a: int,
        assumed: AssumptionsEntry,
        chosen: Sequence[_Point],
    ) -> Cell:
        graph = self._graph(g, entry, _together(chosen, "graph"))
        system = self._system(machine, _together(chosen, "system"))
        assumptions = self._assumptions(a, assumed, _together(chosen, "assumptions"))
        options = self._options(g, entry, _together(chosen, "options"))
        axes: dict[str, str | int | float | None] = {
            "graph": entry.name,
            **machine.labels,
            "assumptions": assumed.name,
            **{point.axis: point.label for point in chosen},
        }
        key = self._key(graph, system, assumptions, options)
        return Cell(axes, graph, system, assumptions, options, self.study.seed, key)

    def _once(self, what: str, identity: object, where: str, make: Callable[[], Any]) -> Any:
        """Make a document once; what is wrong with it becomes an issue of the study, at ``where``."""
        known = f"{what} {json.dumps(identity, sort_keys=True, default=str)}"
        if known not in self._known:
            try:
                self._known[known] = make()
            except (DocumentError, GraphError, SystemSpecError) as error:
                issues = [
                    Issue(where, f"{issue.where} of {what}: {issue.message}", issue.remedy) for issue in error.issues
                ]
                raise DocumentError(self.path, issues) from None
            except ValidationError as error:  # of a workload's builder
                said = error.errors(include_url=False)[0]["msg"]
                raise DocumentError(self.path, [Issue(where, f"{what}: {said}", "correct it")]) from None
        return self._known[known]

    def _graph(self, index: int, entry: GraphEntry, sets: _Sets) -> Graph:
        parameters = {**entry.parameters, **sets.values}
        beside = self.folder / entry.graph
        name = beside if beside.is_file() else entry.graph
        where = sets.where or json_path("graphs", index)
        made: Graph = self._once(
            f"graph {entry.graph}", [str(name), parameters], where, lambda: load_graph(name, **parameters)
        )
        return made

    def _system(self, machine: Machine, sets: _Sets) -> System:
        if not sets.values:
            return machine.system
        what = f"system {machine.labels['system']}"
        made: System = self._once(what, sets.values, sets.where, lambda: with_fields(machine.system, sets.values, what))
        return made

    def _assumptions(self, index: int, entry: AssumptionsEntry, sets: _Sets) -> Assumptions:
        changes = {**entry.set, **sets.values}

        def make() -> Assumptions:
            chosen = profile(entry.profile)
            if not changes:
                return chosen
            return Assumptions.from_data({**chosen.to_data(), **changes, "profile": f"{chosen.profile} (changed)"})

        where = sets.where or json_path("assumptions", index)
        made: Assumptions = self._once("assumptions", [entry.profile, changes], where, make)
        return made

    def _options(self, index: int, entry: GraphEntry, sets: _Sets) -> Request:
        changes = {**entry.options, **sets.values}
        if not changes:
            return self.study.options
        changed = {**self.study.options.model_dump(mode="json"), **changes}

        def make() -> Request:
            whole = Study.from_data({**_SMALLEST, "options": changed}, self.path)
            return whole.options

        where = sets.where or json_path("graphs", index, "options")
        made: Request = self._once("options", changed, where, make)
        return made

    def _key(self, graph: Graph, system: System, assumptions: Assumptions, options: Request) -> str:
        content = [
            _FORMAT,
            *(self._digest(document) for document in (graph, system, assumptions)),
            _said(options),
            self.study.seed,
        ]
        return _sha(content)

    def _digest(self, document: Graph | System | Assumptions) -> str:
        """Digest of a document without its prose; kept, because many cells share a document."""
        if id(document) not in self._digests:
            data = {key: value for key, value in document.to_data().items() if key not in _PROSE}
            self._digests[id(document)] = _sha(data)
            self._known[f"alive {id(document)}"] = document  # an id is unique only as long as the object lives
        return self._digests[id(document)]


def _said(options: Request) -> dict[str, Any]:
    """What a request says; keys that came later only where they say something, so that cells keep their keys."""
    first = {"p_max", "formulation", "gap", "time_limit", "solver", "pin_partition", "pin_sharding"}
    return options.model_dump(mode="json", include=first) | options.said()


# The rest of a study, so that options of an axis go through the same validation as a file's.
_SMALLEST = {"schema": Study.SCHEMA, "name": "options", "graphs": [{"graph": "-"}], "systems": [{"system": "-"}]}


@dataclass(frozen=True)
class _Sets:
    """Fields of one target that the axes set, and the first place in the study that says so."""

    values: dict[str, Any]
    where: str


@dataclass(frozen=True)
class _Point:
    """A value of a parameter, of the limits or of a named axis: what it is called, and what it sets, by target."""

    axis: str
    label: str | int | float
    sets: Mapping[str, _Sets]


def _ways(study: Study, graph: str) -> list[list[_Point]]:
    """The axes of a graph beside system and assumptions; cells are the product of their points."""
    found = [
        [
            _Point(name, label_of_value(value), {"graph": _Sets({name: value}, json_path("parameters", name, i))})
            for i, value in enumerate(values)
        ]
        for name, values in study.parameters.items()
    ]
    if study.limits:
        found.append([
            _Point("limits", entry.name, {"options": _Sets(entry.given, json_path("limits", i))})
            for i, entry in enumerate(study.limits)
            if not entry.graphs or graph in entry.graphs
        ])  # fmt: skip
    found += [
        [_Point(name, point.label, _by_target(name, i, point.set)) for i, point in enumerate(values)]
        for name, values in study.axes.items()
    ]
    return found


def _by_target(name: str, index: int, fields: Mapping[str, Any]) -> dict[str, _Sets]:
    found: dict[str, _Sets] = {}
    for key, value in fields.items():
        target, _, field = key.partition(".")
        known = found.setdefault(target, _Sets({}, json_path("axes", name, index, "set", key)))
        known.values[field] = value
    return found


def _together(chosen: Sequence[_Point], target: str) -> _Sets:
    """What all points set of one target, the later ones first; the place is the first that says so."""
    mine = [point.sets[target] for point in chosen if target in point.sets]
    return _Sets({key: value for sets in mine for key, value in sets.values.items()}, mine[0].where if mine else "")


def _sha(content: object) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def _filtered(study: Study, cells: tuple[Cell, ...], path: str) -> tuple[Cell, ...]:
    kept = list(cells)
    table = Labels([cell.axes for cell in cells])
    for i, rule in enumerate(study.filters):
        dropped = table.select(rule.drop)
        if not any(dropped):
            raise DocumentError(path, [_selects_nothing(json_path("filters", i, "drop"), rule.drop, study, cells)])
        gone = {id(cell) for cell, drop in zip(cells, dropped, strict=True) if drop}
        kept = [cell for cell in kept if id(cell) not in gone]
    return tuple(kept)


def _check_conditions(study: Study, cells: tuple[Cell, ...], path: str) -> None:
    """A claim's condition over axes alone can be checked before anything is solved."""
    from dfopt.documents.study_expressions import names_in

    table = Labels([cell.axes for cell in cells])
    for i, claim in enumerate(study.claims):
        for key in ("over", "against"):
            text = getattr(claim, key)
            if text is None or not set(names_in(text)) <= set(study.axis_columns):
                continue
            if not any(table.select(text)):
                raise DocumentError(path, [_selects_nothing(json_path("claims", i, key), text, study, cells)])


def _selects_nothing(where: str, text: str, study: Study, cells: tuple[Cell, ...]) -> Issue:
    from dfopt.documents.study_expressions import names_in

    values = []
    for name in names_in(text):
        labels = dict.fromkeys(cell.axes[name] for cell in cells)
        values.append(f"{name}: {', '.join(map(str, labels))}")
    message = f"found {shown(text)}, which selects none of the {len(cells)} cells"
    return Issue(where, message, f"labels are {'; '.join(values)}")
