"""From a study document to its cells: every combination as concrete documents, each with a digest of its content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from dfopt.documents.assumptions import PROFILES, Assumptions
from dfopt.documents.base import Document
from dfopt.documents.graph import Graph
from dfopt.documents.question import AUTO, Question
from dfopt.documents.request import Request
from dfopt.documents.study import Study, label_of_value
from dfopt.documents.study_entries import GraphEntry
from dfopt.documents.study_expressions import names_in
from dfopt.documents.system import System
from dfopt.errors import DocumentError, Issue, PlanError, json_path, shown
from dfopt.questions import Resolved, Resolver, microbatches_of
from dfopt.studies.selection import selected
from dfopt.studies.systems import Machine, machines, of_study

Made = TypeVar("Made")

# Part of every digest: raise it when the same content would be solved for another figure.
_FORMAT = "dfopt/cell/2"
# Words about a document, which change no figure.
_PROSE = ("name", "description", "source", "profile")


@dataclass(frozen=True)
class Cell:
    """One solve of a study: question, labels and key.

    ``axes`` has the labels that distinguish it from other cells, by column; ``key`` is the digest of its question, so
    that equal cells of any studies have the same key. ``graphs``: the workload in all ways that the question leaves
    free. ``calibration``: name and digest of the calibration whose shares the system has. ``largest``: question for the
    largest batch, if requested.
    """

    axes: Mapping[str, str | int | float | None]
    graphs: Sequence[Graph]
    system: System
    assumptions: Assumptions
    options: Request
    seed: int
    key: str
    calibration: str | None = None
    largest: Question | None = None

    @property
    def graph(self) -> Graph:
        """The first graph of its workload."""
        return self.graphs[0]

    @property
    def label(self) -> str:
        """All axis labels in one line."""
        return " | ".join(str(value) for value in self.axes.values() if value is not None)


def expand(study: Study, folder: Path | None = None, path: str = "") -> tuple[Cell, ...]:
    """All cells of a study, in the order of the document.

    Parameters
    ----------
    study
        The study.
    folder : Path, optional
        Where relative paths of graphs and systems start; by default the working directory.
    path : str
        Name of the study in errors; by default its own.

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
    gpt2-small | sn10-8-ring | SambaNova SN10 RDU | ring 8 | auto 200000000000.0
    gpt2-small | sn10-8-torus | SambaNova SN10 RDU | ring 4 x ring 2 | auto 1000000000000.0
    """
    name = path or study.name
    grid = _CellProduct(study, folder or Path(), name)
    points = tuple(grid.points())
    for i, entry in enumerate(study.graphs):
        label = entry.name
        if not any(point.axes["graph"] == label for point in points):
            message = f"no system, no assumptions or no limits are for the graph {label!r}"
            raise DocumentError(
                name, [Issue(json_path("graphs", i), message, "add it to their graphs, or leave it out")]
            )
    issues: dict[Issue, None] = {}
    cells = []
    for point in _filtered(study, points, name):  # what a filter drops is never drawn
        drawn = grid.cell(point)
        if isinstance(drawn, Issue):
            issues[drawn] = None
        else:
            cells.append(drawn)
    if issues:
        raise DocumentError(name, list(issues))
    return tuple(cells)


class _Point(NamedTuple):
    """A value of a parameter, of the limits or of a named axis: what it is called, and what it sets.

    ``sets`` are fields such as ``options.tp``, each with its value and the place in the study that says so.
    """

    axis: str
    label: str | int | float
    sets: tuple[tuple[str, Any, str], ...]


class _Combination(NamedTuple):
    """A point of the grid, before anything is drawn: its labels, and entries of the study with the chosen points."""

    axes: Mapping[str, str | int | float | None]
    graph: int
    machine: Machine
    assumed: int
    chosen: Sequence[_Point]


class _CellProduct:
    """The product, with every document loaded once however many cells share it."""

    def __init__(self, study: Study, folder: Path, path: str) -> None:
        self.study, self.folder, self.path = study, folder, path
        self.resolver = Resolver(folder)
        self._digests: dict[int, tuple[str, object]] = {}

    def points(self) -> Iterator[_Combination]:
        study = self.study
        listed = machines(study.systems, self.folder, self.path)
        for (g, graph), machine in product(enumerate(study.graphs), listed):
            if machine.graphs and graph.name not in machine.graphs:
                continue
            ways = _ways(study, graph.name)
            for a, assumed in enumerate(study.assumptions):
                if not assumed.graphs or graph.name in assumed.graphs:
                    for chosen in product(*ways):
                        labels = {point.axis: point.label for point in chosen}
                        axes = {"graph": graph.name, **machine.labels, "assumptions": assumed.name, **labels}
                        yield _Combination(axes, g, machine, a, chosen)

    def cell(self, point: _Combination) -> Cell | Issue:
        """The documents of a combination; or what is wrong where a chip lacks the calibration that is asked for."""
        entry, assumed, chosen = self.study.graphs[point.graph], self.study.assumptions[point.assumed], point.chosen
        where = json_path("graphs", point.graph)
        options = self._options(entry, *_together(chosen, "options", json_path("graphs", point.graph, "options")))
        changed, at = _together(chosen, "assumptions", json_path("assumptions", point.assumed))
        fields, place = _together(chosen, "graph", where)
        question = Question(
            graph=entry.graph, parameters={**entry.parameters, **fields}, system=self._system(point.machine, chosen),
            set={**assumed.set, **changed}, assumptions=assumed.profile, options=options,
        )  # fmt: skip
        with of_study(self.path, place, f"graph {entry.graph}"):
            self.resolver.workload(question)
        with of_study(self.path, at, "assumptions"):
            try:
                resolved = self.resolver.resolve(question)
            except PlanError as error:
                if assumed.profile in (*PROFILES, AUTO):
                    raise
                return self._uncalibrated(error, point.axes, point.assumed)
        key = key_of(resolved, self.study.seed, self._digest)
        stamp = None if resolved.calibration is None else resolved.calibration.stamp
        return Cell(
            point.axes, resolved.graphs, resolved.system, resolved.assumptions, resolved.request, self.study.seed, key,
            stamp, None if resolved.largest is None else question,
        )  # fmt: skip

    def _once(self, what: str, identity: object, where: str, make: Callable[[], Made]) -> Made:
        """Make a document once; what is wrong with it becomes an issue of the study, at ``where``."""
        with of_study(self.path, where, what):
            document: Made = self.resolver.once(what, identity, None, make)
        return document

    def _system(self, machine: Machine, chosen: Sequence[_Point]) -> System:
        of_system, at = _together(chosen, "system", "")
        of_design, where = _together(chosen, "design", at)
        fields = of_system | {f"design.{key}": value for key, value in of_design.items()}
        if not fields:
            return machine.system
        what = f"system {machine.labels['system']}"
        return self._once(what, fields, where, lambda: machine.changed(fields, what))

    def _uncalibrated(self, error: PlanError, axes: Mapping[str, Any], a: int) -> Issue:
        """What is wrong where a calibration is asked for and is not of the system's chip."""
        message = str(error).removeprefix("calibrated: ").partition(";")[0]
        cells = f"assumptions == {axes['assumptions']!r} and chip == {axes['chip']!r}"
        remedy = f'calibrate it, or leave these cells out: filters: [{{drop: "{cells}"}}]'
        return Issue(json_path("assumptions", a, "profile"), message, remedy)

    def _options(self, entry: GraphEntry, fields: dict[str, Any], where: str) -> Request:
        changes = {**entry.options, **fields}
        if not changes:
            return self.study.options
        changed = {**self.study.options.model_dump(mode="json"), **changes}
        return self._once(
            "options", changed, where, lambda: Study.from_data({**_SMALLEST, "options": changed}, self.path).options
        )

    def _digest(self, document: Document) -> str:
        """Digest of a document; kept, because many cells share a document."""
        if id(document) not in self._digests:
            self._digests[id(document)] = _digest(document), document  # an id is unique only while the object lives
        return self._digests[id(document)][0]


def key_of(resolved: Resolved, seed: int, digest: Callable[[Document], str] = lambda each: _digest(each)) -> str:
    """Key of a cell: digest of its graphs, system, assumptions, request and seed.

    Parameters
    ----------
    resolved
        Graphs, system, assumptions and request of the cell.
    seed : int
        Seed of the solver.
    digest : callable
        Digest of a document; a caller may remember them.
    """
    digests = [digest(document) for document in (*resolved.graphs, resolved.system, resolved.assumptions)]
    content = [_FORMAT, *digests, _request_fields(resolved.request), seed]
    largest = [] if resolved.largest is None else ["largest", *(microbatches_of(resolved.question) or ())]
    return _sha([*content, *largest])


def _digest(document: Document) -> str:
    """Digest of a document without its prose."""
    return _sha({key: value for key, value in document.to_data().items() if key not in _PROSE})


def _request_fields(options: Request) -> dict[str, Any]:
    """What a request says; keys that came later only where they say something, so that cells keep their keys."""
    first = {"p_max", "formulation", "gap", "time_limit", "solver", "pin_partition", "pin_sharding"}
    return options.model_dump(mode="json", include=first) | options.stated()


# The rest of a study, so that options of an axis go through the same validation as a file's.
_SMALLEST = {"schema": Study.SCHEMA, "name": "options", "graphs": [{"graph": "-"}], "systems": [{"system": "-"}]}


def _ways(study: Study, graph: str) -> list[list[_Point]]:
    """The axes of a graph beside system and assumptions; cells are the product of their points."""
    axes = [
        [
            _Point(name, label_of_value(value), ((f"graph.{name}", value, json_path("parameters", name, i)),))
            for i, value in enumerate(values)
        ]
        for name, values in study.parameters.items()
    ]
    if study.limits:
        axes.append([
            _Point("limits", entry.name, tuple((f"options.{key}", value, json_path("limits", i))
                                               for key, value in entry.given.items()))
            for i, entry in enumerate(study.limits)
            if not entry.graphs or graph in entry.graphs
        ])  # fmt: skip
    for name, points in study.axes.items():
        axes.append([
            _Point(name, point.label, tuple((key, value, json_path("axes", name, i, "set", key))
                                            for key, value in point.set.items()))
            for i, point in enumerate(points)
        ])  # fmt: skip
    return axes


def _together(chosen: Sequence[_Point], target: str, otherwise: str) -> tuple[dict[str, Any], str]:
    """The fields of a target that the points set, the later ones first, and the first place that says so."""
    settings = [setting for point in chosen for setting in point.sets if setting[0].startswith(f"{target}.")]
    return {key.partition(".")[2]: value for key, value, _ in settings}, settings[0][2] if settings else otherwise


def _sha(content: object) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def _filtered(study: Study, cells: tuple[_Combination, ...], path: str) -> tuple[_Combination, ...]:
    """The combinations that no filter drops; checks also what of the claims can be before anything is solved.

    Those are conditions over axes alone.
    """
    table = _Labels(cells)
    gone: set[int] = set()
    for i, rule in enumerate(study.filters):
        gone |= table.select(rule.drop, path, json_path("filters", i, "drop"))
    kept = tuple(cell for number, cell in enumerate(cells) if number not in gone)
    if not kept:
        raise DocumentError(path, [Issue("$.filters", "no cell is left", "drop a filter")])
    table = _Labels(kept)
    for i, claim in enumerate(study.claims):
        for key in ("over", "against"):
            text = getattr(claim, key)
            if text is not None and set(names_in(text)) <= set(study.axis_columns):
                table.select(text, path, json_path("claims", i, key))
    return kept


class _Labels:
    """The labels of cells, on which many conditions are asked."""

    def __init__(self, cells: tuple[_Combination, ...]) -> None:
        self._cells = cells
        self._frame: Any = None
        self._selected: dict[str, set[int]] = {}

    def select(self, condition: str, path: str, where: str) -> set[int]:
        """Positions of the cells in which a condition holds, of which there must be one."""
        if self._frame is None:
            import pandas as pd

            self._frame = pd.DataFrame([cell.axes for cell in self._cells])
        if condition not in self._selected:
            self._selected[condition] = set(selected(self._frame, condition).index)
        if not self._selected[condition]:
            values = (f"{name}: {', '.join(map(str, dict.fromkeys(cell.axes[name] for cell in self._cells)))}"
                      for name in names_in(condition))  # fmt: skip
            message = f"found {shown(condition)}, which selects none of the {len(self._cells)} cells"
            raise DocumentError(path, [Issue(where, message, f"labels are {'; '.join(values)}")])
        return self._selected[condition]
