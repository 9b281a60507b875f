"""What a study lists: graphs, systems, assumptions, limits and values of axes, cells left out, and claims."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, field_validator, model_validator

from dfopt.documents.base import Part, problem
from dfopt.documents.question import AUTO
from dfopt.units import Ratio, Seconds, show_unit

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
    """A graph of the study: a zoo name or a path, with some parameters of its workload replaced.

    Attributes
    ----------
    graph : e.g. gpt3-175b
        Zoo name, pattern of zoo names such as qwen3-*, or path of the graph from the study's folder.
    label : e.g. GPT-3
        Name of the graph in the table of results. None: the name of the graph.
    parameters : e.g. {phase: decode, batch: 64}
        Parameters of the workload that replace those of its file.
    options : e.g. {tp: 8}
        Options of the search that replace those of the study, for this graph.
    """

    graph: str = Field(min_length=1)
    label: Label | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)
    options: dict[str, Any] = Field(default_factory=dict)

    @property
    def name(self) -> str:
        """Label of the graph in the data frame."""
        return self.label or self.graph


class SystemEntry(Part):
    """A system given as a whole, or a design that makes one, with some fields replaced.

    Attributes
    ----------
    system : e.g. h100-8
        Zoo name of the system or design, or its path from the study's folder.
    label : e.g. H100
        Name of the system in the table of results. None: the name of the system.
    set : e.g. {chip.sram.capacity: 100 MB}
        Fields of the system or design that this entry replaces, by their dotted paths.
    graphs : e.g. [gpt3]
        Labels of the graphs for which this entry counts. An empty list means all graphs.
    """

    system: str = Field(min_length=1)
    label: Label | None = None
    set: dict[str, Any] = Field(default_factory=dict)
    graphs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Label of the system in the data frame."""
        return self.label or self.system


class PartChoice(Part):
    """A labelled part of a system: a zoo part, or what a system file may state in its place.

    Attributes
    ----------
    label : e.g. fast HBM
        Name of the part in the table of results.
    use : e.g. hbm3
        Zoo name of the part, or the fields that a system file may give in its place.
    """

    label: Label
    use: str | dict[str, Any] | tuple[str | dict[str, Any], ...]


Choice = Label | PartChoice


class PartsEntry(Part):
    """All systems of a grid of parts: chips x memories x stacks x links x topologies.

    Attributes
    ----------
    chips : e.g. [sn30, h100-sxm]
        Chips of the systems that this entry combines.
    memories : e.g. [hbm3, ddr4]
        Memories of the systems that this entry combines. An empty list means every chip's own memory.
    stacks : e.g. [microbump-8]
        Stacks of dies of the systems that this entry combines. Their memory is that of the chip unless ``memories``
        gives one.
    links : e.g. [nvlink-4, pcie-4]
        Links of the systems that this entry combines. An empty list means those that the topologies name.
    topologies : e.g. [torus-2d-1024]
        Topologies of the systems that this entry combines.
    set : e.g. {chip.sram.capacity: 100 MB}
        Fields of these systems that this entry replaces, by their dotted paths.
    graphs : e.g. [gpt3]
        Labels of the graphs for which this entry counts. An empty list means all graphs.
    """

    chips: tuple[Choice, ...] = Field(min_length=1)
    memories: tuple[Choice, ...] = ()
    stacks: tuple[Choice, ...] = ()
    links: tuple[Choice, ...] = ()
    topologies: tuple[Choice, ...] = Field(min_length=1)
    set: dict[str, Any] = Field(default_factory=dict)
    graphs: tuple[str, ...] = ()


# No keys of an entry, so that a place in the file is not taken for one of them.
_WHOLE, _PARTS = "a whole system", "a product of parts"


def _kind_of_systems(value: Any) -> str:
    keys = value if isinstance(value, dict) else getattr(value, "model_fields_set", ())
    return _PARTS if "chips" in keys or ("system" not in keys and "topologies" in keys) else _WHOLE


Systems = Annotated[
    Annotated[SystemEntry, Tag(_WHOLE)] | Annotated[PartsEntry, Tag(_PARTS)], Discriminator(_kind_of_systems)
]


class AssumptionsEntry(Part):
    """A profile of assumptions with some fields replaced; several of them are an axis.

    Attributes
    ----------
    profile : e.g. ideal
        Profile of assumptions, or the path of assumptions or of a calibration. ``calibrated`` is the calibration of
        each system's chip. ``auto`` uses it where the chip has one for the phase, otherwise ``default``.
    label : e.g. no losses
        Name of the assumptions in the table of results. None: the name of the profile.
    set : e.g. {overlap: perfect}
        Assumptions that this entry replaces.
    graphs : e.g. [gpt3]
        Labels of the graphs for which this entry counts. An empty list means all graphs.
    """

    profile: str = AUTO
    label: Label | None = None
    set: dict[str, Any] = Field(default_factory=dict)
    graphs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Label of the assumptions in the data frame."""
        return self.label or self.profile


class LimitsEntry(Part):
    """Limits of a solve and mapping; several are an axis. Unset fields are as in the options.

    Attributes
    ----------
    label : e.g. quick
        Name of these limits in the table of results. None: the limits in words.
    time_limit : e.g. 60 s
        Time for the search of one cell. None: as the options say.
    gap : e.g. 1%
        Relative gap at which the search of a cell may stop. None: as the options say.
    p_max : partitions, e.g. 4
        Largest number of on-chip partitions of a stage. None: as the options say.
    graphs : e.g. [gpt3]
        Labels of the graphs for which this entry counts. An empty list means all graphs.
    """

    label: Label | None = None
    time_limit: Seconds | None = Field(default=None, ge=0.1)
    gap: Ratio | None = Field(default=None, ge=0.0, le=1.0)
    p_max: int | None = Field(default=None, ge=1)
    graphs: tuple[str, ...] = ()

    @property
    def given(self) -> dict[str, Any]:
        """Options that it sets, as in a file."""
        return self.model_dump(mode="json", include=set(LIMITS))

    @property
    def name(self) -> str:
        """Label of the limits in the data frame."""
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
    """One value of a named axis: its label, and the fields that it sets.

    Attributes
    ----------
    label : no unit, e.g. fast
        Value of the axis in the table of results, as text or as a number.
    set : e.g. {system.chip.sram.capacity: 100 MB}
        Fields that this value sets: graph.PARAMETER, system.FIELD, design.FIELD, assumptions.FIELD or options.FIELD.
    """

    label: Label | int | float
    set: dict[str, Any] = Field(default_factory=dict)

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
    """Condition for cells that the study leaves out.

    Attributes
    ----------
    drop : e.g. batch > 64 and system == 'h100-8'
        Condition over the axes; cells that meet it are left out of the study.
    because : e.g. the batch does not fit
        Reason for leaving these cells out.
    """

    drop: str
    because: str = ""


class Claim(Part):
    """A figure computed from the data frame, the value of a source, and the criterion of reproduction.

    ``value`` is aggregated over the cells of ``over`` and divided by the same over those of ``against``. A
    ``mean_of_ratios`` divides the means of groups of cells equal in the columns ``match``, and takes the mean of the
    quotients; so do the other aggregates ``of_ratios``. ``argmax`` and ``argmin`` tell the value of ``of`` in the
    cell where ``value`` is extreme.

    Attributes
    ----------
    name : e.g. fig10-speedup
        Name of the claim, which reports show.
    figure : e.g. Fig. 10
        Place of the figure in the source.
    paper : unit of the value, e.g. 1.52
        Value that the source gives. None: the source gives only limits.
    value : e.g. tokens_per_s
        Column of the table of results, or an arithmetic expression of columns.
    over : e.g. system == 'sn30'
        Condition that selects the cells to aggregate. None: all cells.
    against : e.g. system == 'a100'
        Condition that selects the cells by whose aggregate the value is divided. None: no division.
    aggregate : e.g. geometric_mean
        Function that combines the cells: mean, geometric_mean, median, min or max. With the ending _of_ratios it
        divides matching groups of cells first. With argmax or argmin it returns the column ``of`` where the value is
        extreme.
    match : e.g. [graph]
        Columns that must be equal in both cells of a ratio.
    of : e.g. system
        Column to report where the value is extreme, for argmax and argmin. None: the aggregate is another one.
    within : share, e.g. 0.05
        Relative distance from ``paper`` within which the claim holds. None: ``at_least`` or ``at_most`` decide.
    at_least : unit of the value, e.g. 1.0
        Smallest value for which the claim holds. None: no lower limit.
    at_most : unit of the value, e.g. 2.0
        Largest value for which the claim holds. None: no upper limit.
    reason : e.g. the paper counts another FLOP rate
        Reason why the claim does not hold, if it does not.
    """

    name: str = Field(min_length=1)
    figure: str = ""
    paper: float | None = None
    value: str
    over: str | None = None
    against: str | None = None
    aggregate: Aggregate = "mean"
    match: tuple[str, ...] = ()
    of: str | None = None
    within: float | None = Field(default=None, ge=0)
    at_least: float | None = None
    at_most: float | None = None
    reason: str = ""

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
