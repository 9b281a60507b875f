"""A study: a grid of graphs, systems, parameters, assumptions and limits, and the claims to be checked on it."""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from dfopt.documents.assumptions import PROFILES
from dfopt.documents.axes import AXES
from dfopt.documents.base import Named, problem
from dfopt.documents.request import Request
from dfopt.documents.study_columns import ASKED, AXIS_COLUMNS, COLUMNS, TEXT_COLUMNS
from dfopt.documents.study_entries import (
    AssumptionsEntry,
    AxisValue,
    Claim,
    Filter,
    GraphEntry,
    LimitsEntry,
    PartChoice,
    PartsEntry,
    SystemEntry,
    Systems,
    Value,
    Values,
)
from dfopt.documents.study_expressions import check_expression
from dfopt.documents.zoo import matching
from dfopt.errors import did_you_mean, json_path, repeated


class Study(Named):
    """A grid of cells to solve, with claims to check on their results.

    The cells are the product graphs x systems x parameters x assumptions x limits x axes, without those that filters
    drop, and without systems, assumptions and limits meant for other graphs. Each parameter is one axis; a named axis
    sets several fields at once, or fields of systems, assumptions and options.

    Attributes
    ----------
    graphs : e.g. [{graph: gpt3-175b}]
        Graphs of the study, which are one axis of its grid.
    systems : e.g. [{system: h100-8}]
        Systems of the study, given whole or as combinations of parts. They are one axis of its grid.
    parameters : unit of the parameter, e.g. {batch: [8, 64]}
        Values of workload parameters; each parameter is an axis of the grid.
    assumptions : e.g. [{profile: ideal}]
        Sets of assumptions, which are one axis of the grid.
    limits : e.g. [{time_limit: 60 s, gap: 1%}]
        Sets of limits of the search, which are one axis of the grid. An empty list means the limits of ``options``.
    options : e.g. {tp: 8}
        Choices that all cells fix, and options of the search.
    axes : no unit, e.g. {degree: [{label: 4, set: {options.tp: 4}}]}
        Further axes of the grid by name, each of whose values sets one or more fields.
    filters : e.g. [{drop: batch > 64}]
        Rules that leave cells out.
    cost_counts : e.g. exact
        Links and switches that the price counts. ``exact``: the cables of the network. ``dfmodel``: as DFModel's
        program counts them.
    seed : no unit, e.g. 0
        Seed of the random numbers of the solver.
    claims : e.g. [{name: speedup, value: tokens_per_s, at_least: 1}]
        Claims that dfopt checks on the table of results.

    Examples
    --------
    >>> degrees = [{"label": degree, "set": {"options.tp": degree}} for degree in (4, 8)]
    >>> limits = [{"time_limit": "1 s", "label": "quick"}, {"time_limit": "60 s", "gap": 1e-3}]
    >>> over = {"parameters": {"batch": [8, 64]}, "limits": limits, "axes": {"degree": degrees}}
    >>> study = Study(name="ring", graphs=[{"graph": "gpt2-small"}], systems=[{"system": "sn10-8-ring"}], **over)
    >>> study.axis_columns[-4:], study.limits[1].name
    (('assumptions', 'batch', 'limits', 'degree'), '60 s, gap 0.1 %')
    """

    SCHEMA: ClassVar[str] = "dfopt/study/1"

    graphs: tuple[GraphEntry, ...] = Field(min_length=1)
    systems: tuple[Systems, ...] = Field(min_length=1)
    parameters: dict[str, Values] = Field(default_factory=dict)
    assumptions: tuple[AssumptionsEntry, ...] = Field(default=(AssumptionsEntry(),), min_length=1)
    limits: tuple[LimitsEntry, ...] = ()
    options: Request = Request()
    axes: dict[str, tuple[AxisValue, ...]] = Field(default_factory=dict)
    filters: tuple[Filter, ...] = ()
    cost_counts: Literal["exact", "dfmodel"] = "exact"
    seed: int = Field(default=0, ge=0)
    claims: tuple[Claim, ...] = ()

    @property
    def axis_columns(self) -> tuple[str, ...]:
        """Columns that identify cells: built-in ones, parameters, limits if given, and named axes."""
        return (*AXIS_COLUMNS, *self.parameters, *(("limits",) if self.limits else ()), *self.axes)

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns of the data frame; with that of calibrations if assumptions may be one."""
        calibrates = any(entry.profile not in PROFILES for entry in self.assumptions)
        columns = [name for name in COLUMNS if name != "calibrated_by" or calibrates]
        columns = [name for name in columns if name not in ASKED or name not in self.axis_columns]
        return (*self.axis_columns, *columns, *(axis for axis in AXES if axis not in COLUMNS))

    @property
    def figure_columns(self) -> tuple[str, ...]:
        """Numeric result columns."""
        return tuple(name for name in COLUMNS if name not in TEXT_COLUMNS)

    @field_validator("graphs", "systems", "assumptions", mode="before")
    @classmethod
    def _no_bare_names(cls, value: Any, info: ValidationInfo) -> Any:
        key = {"graphs": "graph", "systems": "system", "assumptions": "profile"}[str(info.field_name)]
        for i, entry in enumerate(value if isinstance(value, list | tuple) else ()):
            if isinstance(entry, str):
                raise problem(f"found {entry!r}, expected a mapping", f"write {{{key}: {entry}}}", f"$[{i}]")
        return value

    @field_validator("graphs", mode="before")
    @classmethod
    def _of_patterns(cls, value: Any) -> Any:
        """Every graph of the zoo that a pattern is the name of, in the order of names."""
        if not isinstance(value, list | tuple):
            return value
        every: list[Any] = []
        for i, entry in enumerate(value):
            names = matching("graphs", entry.get("graph")) if isinstance(entry, dict) else None
            if names is not None and (not names or "label" in entry):
                text = f"found {entry['graph']!r}, " + ("a label of several graphs" if names else "which no graph has")
                raise problem(text, "`dfopt list graphs` lists the names, which are the labels", f"$[{i}]")
            every += [entry] if names is None else [{**entry, "graph": name} for name in names]
        return every

    @model_validator(mode="after")
    def _holds_together(self) -> Self:
        self._check_axes()
        for where, by in self._given_twice():
            raise problem(f"{by} give it too", "leave it out here, or there", where)
        for where, group in self._labelled():
            _check_distinct(where, group)
        self._check_graphs()
        for i, rule in enumerate(self.filters):
            check_expression(rule.drop, "condition", self.axis_columns, (), json_path("filters", i, "drop"))
        self._check_claims()
        return self

    def _check_axes(self) -> None:
        """Names and labels of parameters and axes: each a column of the frame that sorts."""
        columns = self.columns
        for key, name, labels in self._named():
            where = json_path(key, name)
            remedy = "choose another name" if key == "axes" else f"make it an axis that sets graph.{name}"
            if not name.isidentifier() or keyword.iskeyword(name):
                raise problem(f"found the axis {name!r}, expected a word", "use letters, digits and _", where)
            if columns.count(name) > 1:
                raise problem(f"the frame has a column {name!r} already", remedy, where)
            if not labels:
                raise problem("an axis without values", "give one or more values, or leave it out", where)
            _check_distinct(where, labels)
            if len({isinstance(label, str) for label in labels}) > 1:
                raise problem("labels are text and numbers mixed", "use one kind, so that they sort", where)

    def _check_graphs(self) -> None:
        """Graphs that systems, assumptions and limits are for: the study has them."""
        graphs = {entry.name for entry in self.graphs}
        for key in ("systems", "assumptions", "limits"):
            for i, name in ((i, name) for i, entry in enumerate(getattr(self, key)) for name in entry.graphs):
                if name not in graphs:
                    remedy = did_you_mean(name, graphs, f"labels: {', '.join(sorted(graphs))}")
                    where = json_path(key, i, "graphs")
                    raise problem(f"found {name!r}, expected the label of a graph", remedy, where)

    def _check_claims(self) -> None:
        """Names and expressions of claims: they are of columns of the frame."""
        columns, texts = self.columns, set(TEXT_COLUMNS) | ({"limits"} if self.limits else set())
        texts |= {name for _, name, labels in self._named() if isinstance(labels[0], str)}
        for i, claim in enumerate(self.claims):
            at = partial(json_path, "claims", i)
            check_expression(claim.value, "value", columns, texts, at("value"))
            for key in ("over", "against"):
                if (text := getattr(claim, key)) is not None:
                    check_expression(text, "condition", columns, (), at(key))
            for position, column in enumerate(claim.match):
                if column not in columns:
                    remedy = did_you_mean(column, columns, f"columns: {', '.join(columns)}")
                    raise problem(f"there is no column {column!r}", remedy, at("match", position))
            if claim.of is not None:
                check_expression(claim.of, "value", columns, texts, at("of"))
        _check_distinct("$.claims", (claim.name for claim in self.claims))

    def _named(self) -> Iterator[tuple[str, str, list[str | int | float]]]:
        """Parameters and axes: the key of the document, the name, and the labels."""
        for name, values in self.parameters.items():
            yield "parameters", name, [label_of_value(value) for value in values]
        for name, points in self.axes.items():
            yield "axes", name, [point.label for point in points]

    def _given_twice(self) -> Iterator[tuple[str, str]]:
        """Places of what parameters or limits give too: which of them counts would be a guess."""
        limits = dict.fromkeys(name for entry in self.limits for name in entry.given)
        for name in limits:
            # a value as the default is what a file says that was written by dump
            if getattr(self.options, name) != Request.model_fields[name].default:
                yield json_path("options", name), "$.limits"
        for i, graph in enumerate(self.graphs):
            both = [("options", name, "$.limits") for name in limits if name in graph.options]
            both += [("parameters", name, "$.parameters") for name in self.parameters if name in graph.parameters]
            yield from ((json_path("graphs", i, key, name), by) for key, name, by in both)
        taken = {f"options.{name}": "$.limits" for name in limits}
        taken |= {f"graph.{name}": "$.parameters" for name in self.parameters}
        for axis, points in self.axes.items():
            for i, point in enumerate(points):
                place = json_path("axes", axis, i, "set")
                yield from ((f"{place}[{key!r}]", taken[key]) for key in point.set if key in taken)

    def _labelled(self) -> Iterator[tuple[str, list[str]]]:
        """Every list of labels with its place."""
        labels = [entry.name for entry in self.graphs]
        yield "$.graphs", labels
        written = [entry for entry in self.systems if isinstance(entry, SystemEntry)]
        for label in labels:
            for key, entries in (("assumptions", self.assumptions), ("limits", self.limits), ("systems", written)):
                yield f"$.{key}", [entry.name for entry in entries if not entry.graphs or label in entry.graphs]
        for i, entry in enumerate(self.systems):
            if isinstance(entry, PartsEntry):
                for key in ("chips", "memories", "links", "topologies"):
                    yield json_path("systems", i, key), [label_of(choice) for choice in getattr(entry, key)]


def label_of(choice: str | PartChoice) -> str:
    """Label of a part in the data frame: its label, or its name."""
    return choice if isinstance(choice, str) else choice.label


def label_of_value(value: Value) -> str | int | float:
    """Parameter value in the data frame: itself, with booleans as words."""
    return str(value).lower() if isinstance(value, bool) else value


def _check_distinct(where: str, labels: Iterable[str | int | float]) -> None:
    for _, label, _ in repeated(labels):
        raise problem(f"{label!r} is there twice", "give each a label of its own", where)
