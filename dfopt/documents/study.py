"""A study: a grid of graphs, systems, parameters, assumptions and limits, and the claims to be checked on it."""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, ValidationInfo, field_validator, model_validator

from dfopt.documents.assumptions import PROFILES
from dfopt.documents.axes import AXES
from dfopt.documents.base import Named, Part, problem
from dfopt.documents.question import AUTO
from dfopt.documents.request import Request
from dfopt.documents.study_columns import ASKED, AXIS_COLUMNS, COLUMNS, TEXT_COLUMNS
from dfopt.documents.study_expressions import check_expression
from dfopt.documents.zoo import matching
from dfopt.errors import did_you_mean, json_path, repeated
from dfopt.units import Ratio, Seconds
from dfopt.units import format as show_unit

Aggregate = Literal[
    "mean", "geometric_mean", "median", "min", "max",
    "mean_of_ratios", "geometric_mean_of_ratios", "min_of_ratios", "max_of_ratios", "argmax", "argmin",
]  # fmt: skip
Label = Annotated[str, Field(min_length=1, max_length=200)]
LIMITS = ("time_limit", "gap", "p_max")  # options that limits give too
TARGETS = ("graph", "system", "design", "assumptions", "options")
Value = str | bool | int | float
Values = Annotated[
    tuple[Value, ...], BeforeValidator(lambda value: [value] if isinstance(value, str | int | float) else value)
]


class GraphEntry(Part):
    """A graph of the study: a zoo name or a path, with some parameters of its workload replaced."""

    graph: str = Field(
        min_length=1,
        description="zoo name, a pattern of zoo names such as qwen3-* or *, or path from the study's folder",
    )
    label: Label | None = Field(default=None, description="in the frame; none = the graph's name")
    parameters: dict[str, Any] = Field(default_factory=dict)
    options: dict[str, Any] = Field(default_factory=dict, description="options of the study that this graph replaces")

    @property
    def name(self) -> str:
        """What the frame calls it."""
        return self.label or self.graph


class SystemEntry(Part):
    """A system given as a whole, or a design that makes one, with some fields replaced."""

    system: str = Field(min_length=1, description="zoo name, or path from the study's folder; also of a design")
    label: Label | None = Field(default=None, description="in the frame; none = the system's name")
    set: dict[str, Any] = Field(
        default_factory=dict, description="field such as chip.sram.capacity or design.budgets.power -> value"
    )
    graphs: tuple[str, ...] = Field(default=(), description="labels of the graphs that it is for; none = all")

    @property
    def name(self) -> str:
        """What the frame calls it."""
        return self.label or self.system


class PartChoice(Part):
    """A part of a system under a label: a name of the zoo of parts, or what a system file may say in its place."""

    label: Label
    use: str | dict[str, Any] | tuple[str | dict[str, Any], ...]


Choice = Label | PartChoice


class PartsEntry(Part):
    """All systems that a choice of parts makes: chips x memories x stacks x links x topologies."""

    chips: tuple[Choice, ...] = Field(min_length=1)
    memories: tuple[Choice, ...] = Field(default=(), description="none = every chip's own")
    stacks: tuple[Choice, ...] = Field(
        default=(), description="chips as stacks of dies; their memory is the chip's where no memory is given"
    )
    links: tuple[Choice, ...] = Field(default=(), description="none = those that the topologies name")
    topologies: tuple[Choice, ...] = Field(min_length=1)
    set: dict[str, Any] = Field(default_factory=dict, description="field such as chip.sram.capacity -> value")
    graphs: tuple[str, ...] = Field(default=(), description="labels of the graphs that it is for; none = all")


# No keys of an entry, so that a place in the file is not taken for one of them.
_WHOLE, _PARTS = "a whole system", "a product of parts"


def _kind_of_systems(value: Any) -> str:
    keys = value if isinstance(value, dict) else getattr(value, "model_fields_set", ())
    return _PARTS if "chips" in keys or ("system" not in keys and "topologies" in keys) else _WHOLE


Systems = Annotated[
    Annotated[SystemEntry, Tag(_WHOLE)] | Annotated[PartsEntry, Tag(_PARTS)], Discriminator(_kind_of_systems)
]


class AssumptionsEntry(Part):
    """A profile of assumptions with some fields replaced; several of them are an axis."""

    profile: str = Field(
        default=AUTO,
        description="name, or file from the study's folder, of assumptions or of a calibration; calibrated: that of"
        " each system's chip; auto: that where the chip has one for the phase, else default. Systems of a cell then"
        " have its shares",
    )
    label: Label | None = Field(default=None, description="in the frame; none = the profile's name")
    set: dict[str, Any] = Field(default_factory=dict, description="field -> value")
    graphs: tuple[str, ...] = Field(default=(), description="labels of the graphs that it is for; none = all")

    @property
    def name(self) -> str:
        """What the frame calls it."""
        return self.label or self.profile


class LimitsEntry(Part):
    """Limits of a solve and of its mapping; several of them are an axis. What one leaves out is as in the options."""

    label: Label | None = Field(default=None, description="in the frame; none = the limits in words")
    time_limit: Seconds | None = Field(default=None, ge=0.1, description="of the solve of a cell")
    gap: Ratio | None = Field(default=None, ge=0.0, le=1.0, description="relative gap at which a solve may stop")
    p_max: int | None = Field(default=None, ge=1, description="on-chip partitions at most")
    graphs: tuple[str, ...] = Field(default=(), description="labels of the graphs that it is for; none = all")

    @property
    def given(self) -> dict[str, Any]:
        """The options that it sets, as in a file."""
        return self.model_dump(mode="json", include=set(LIMITS))

    @property
    def name(self) -> str:
        """What the frame calls it."""
        words = [] if self.time_limit is None else [show_unit(self.time_limit, "time")]
        words += [] if self.gap is None else [f"gap {show_unit(self.gap, 'ratio')}"]
        words += [] if self.p_max is None else [f"p_max {self.p_max}"]
        return self.label or ", ".join(words)

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.name:
            raise problem("no limit and no label", f"give {', '.join(LIMITS)} or a label")
        return self


class AxisValue(Part):
    """One value of a named axis: what the frame shows, and the fields it sets."""

    label: Label | int | float
    set: dict[str, Any] = Field(
        default_factory=dict,
        description="graph.PARAMETER, system.FIELD, design.FIELD, assumptions.FIELD or options.FIELD -> value",
    )

    @field_validator("set")
    @classmethod
    def _says_what_it_belongs_to(cls, value: dict[str, Any]) -> dict[str, Any]:
        for key in value:
            target, _, field = key.partition(".")
            if target not in TARGETS or not field:
                message = f"found the field {key!r}, expected one of {', '.join(f'{t}.FIELD' for t in TARGETS)}"
                raise problem(message, "say what it belongs to, as in system.chip.sram.capacity")
        return value


class Filter(Part):
    """Cells that the study leaves out."""

    drop: str = Field(description="condition over the axes")
    because: str = ""


class Claim(Part):
    """A figure that follows from the frame, what a source says it is, and when it counts as reproduced.

    ``value`` is aggregated over the cells of ``over`` and divided by the same over those of ``against``. A
    ``mean_of_ratios`` divides the means of groups of cells equal in the columns ``match``, and takes the mean of the
    quotients; so do the other aggregates ``of_ratios``. ``argmax`` and ``argmin`` tell the value of ``of`` in the
    cell where ``value`` is extreme.
    """

    name: str = Field(min_length=1)
    figure: str = Field(default="", description="where the source says so, such as Fig. 10")
    paper: float | None = Field(default=None, description="what the source says")
    value: str = Field(description="column, or arithmetic of columns")
    over: str | None = Field(default=None, description="condition; none = all cells")
    against: str | None = Field(default=None, description="condition; none = no division")
    aggregate: Aggregate = "mean"
    match: tuple[str, ...] = Field(default=(), description="of the aggregates of_ratios: columns equal in both cells")
    of: str | None = Field(default=None, description="of argmax and argmin: the column to tell")
    within: float | None = Field(default=None, ge=0, description="holds within this relative distance of paper")
    at_least: float | None = None
    at_most: float | None = None
    reason: str = Field(default="", description="why it does not hold, where it does not")

    @model_validator(mode="after")
    def _says_what_it_needs(self) -> Self:
        if self.within is not None and self.paper is None:
            raise problem("within is a distance from paper, which is missing", "add paper, or use at_least, at_most")
        if self.within is None and self.at_least is None and self.at_most is None:
            raise problem("a claim that cannot fail says nothing", "add within, at_least or at_most")
        ratios, extreme = self.aggregate.endswith("_of_ratios"), self.aggregate in ("argmax", "argmin")
        if ratios and (self.against is None or not self.match):
            raise problem(f"{self.aggregate} needs against and match", "say which cells are divided by which")
        if self.match and not ratios:
            raise problem("match belongs to an aggregate of_ratios", "leave it out", "$.match")
        if extreme and (self.of is None or self.against is not None):
            raise problem(f"{self.aggregate} needs of, and no against", "of names the column to tell")
        if self.of is not None and not extreme:
            raise problem("of belongs to aggregate: argmax or argmin", "leave it out", "$.of")
        return self


class Study(Named):
    """A grid of cells to solve, and claims to check on the frame of their results.

    The cells are the product graphs x systems x parameters x assumptions x limits x axes, less what the filters
    drop, and less systems, assumptions and limits that are for other graphs. Each parameter is an axis of its own;
    a named axis sets several fields at once, or fields of systems, assumptions and options.

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
    parameters: dict[str, Values] = Field(default_factory=dict, description="of workloads: name -> values, or one")
    assumptions: tuple[AssumptionsEntry, ...] = Field(default=(AssumptionsEntry(),), min_length=1)
    limits: tuple[LimitsEntry, ...] = Field(default=(), description="none = as the options say")
    options: Request = Request()
    axes: dict[str, tuple[AxisValue, ...]] = Field(default_factory=dict)
    filters: tuple[Filter, ...] = ()
    cost_counts: Literal["exact", "dfmodel"] = Field(
        default="exact", description="links and switches that the price counts: the cables, or as DFModel's program"
    )
    seed: int = Field(default=0, ge=0)
    claims: tuple[Claim, ...] = ()

    @property
    def axis_columns(self) -> tuple[str, ...]:
        """Columns that tell the cells apart: the built-in ones, parameters, limits if given, and the named axes."""
        return (*AXIS_COLUMNS, *self.parameters, *(("limits",) if self.limits else ()), *self.axes)

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns of the frame; that of calibrations where assumptions may be one."""
        mine = [name for name in COLUMNS if name != "calibrated_by" or self._calibrates]
        mine = [name for name in mine if name not in ASKED or name not in self.axis_columns]
        return (*self.axis_columns, *mine, *(axis for axis in AXES if axis not in COLUMNS))

    @property
    def _calibrates(self) -> bool:
        return any(one.profile not in PROFILES for one in self.assumptions)

    @property
    def figure_columns(self) -> tuple[str, ...]:
        """Columns that are numbers, found by the solves."""
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
        columns = self.columns
        texts = set(TEXT_COLUMNS) | ({"limits"} if self.limits else set())
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
            if isinstance(labels[0], str):
                texts.add(name)
        for where, by in self._given_twice():
            raise problem(f"{by} give it too", "leave it out here, or there", where)
        for where, group in self._labelled():
            _check_distinct(where, group)
        known = {entry.name for entry in self.graphs}
        for key in ("systems", "assumptions", "limits"):
            for i, entry in enumerate(getattr(self, key)):
                for name in entry.graphs:
                    if name not in known:
                        remedy = did_you_mean(name, known, f"labels: {', '.join(sorted(known))}")
                        where = json_path(key, i, "graphs")
                        raise problem(f"found {name!r}, expected the label of a graph", remedy, where)
        for i, rule in enumerate(self.filters):
            check_expression(rule.drop, "condition", self.axis_columns, (), json_path("filters", i, "drop"))
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
        return self

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
        whole = [entry for entry in self.systems if isinstance(entry, SystemEntry)]
        for label in labels:
            for key, entries in (("assumptions", self.assumptions), ("limits", self.limits), ("systems", whole)):
                yield f"$.{key}", [entry.name for entry in entries if not entry.graphs or label in entry.graphs]
        for i, entry in enumerate(self.systems):
            if isinstance(entry, PartsEntry):
                for key in ("chips", "memories", "links", "topologies"):
                    yield json_path("systems", i, key), [label_of(choice) for choice in getattr(entry, key)]


def label_of(choice: str | PartChoice) -> str:
    """What the frame calls a part: its label, or its name."""
    return choice if isinstance(choice, str) else choice.label


def label_of_value(value: Value) -> str | int | float:
    """What the frame calls a value of a parameter: itself, and true and false in words."""
    return str(value).lower() if isinstance(value, bool) else value


def _check_distinct(where: str, labels: Iterable[str | int | float]) -> None:
    for _, label, _ in repeated(labels):
        raise problem(f"{label!r} is there twice", "give each a label of its own", where)
