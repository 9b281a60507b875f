"""An exploration: what was asked of many designs, the best of them with its mapping, and the boxes that prove it."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.base import Part, digest_of
from dfopt.documents.design import Design
from dfopt.documents.graph import Graph
from dfopt.documents.mapping import Mapping
from dfopt.documents.result import Result
from dfopt.documents.sealed import Sealed
from dfopt.documents.stack import Stack
from dfopt.units import Seconds

ExplorationStatus = Literal["optimal", "gap_reached", "exhausted", "time_limit", "interrupted"]
ObjectiveName = Literal["time", "energy", "cost", "time*cost"]
HeatMode = Literal["throttle", "aware"]
BudgetName = Literal["area", "package", "power", "edge"]


class ExplorationRequest(Part):
    """What was asked."""

    objective: ObjectiveName = Field(
        default="time",
        description="time of a step in s; energy: power of the system all that time, in J; cost: price of the system in"
        " USD; time*cost in USD s",
    )
    heat: HeatMode | None = Field(
        default=None, description="mapped without heat and throttled by the judge, or around heat; none = no heat"
    )
    stack: Stack | None = Field(default=None, description="with heat: what designs do not say of their stacks of dies")
    gap: float = Field(default=0.01, ge=0, le=1, description="relative gap at which to stop; 0 proves the best design")
    time_limit: Seconds = Field(default=300.0, ge=0, description="the best design so far is told with its gap")
    seed: int = Field(default=0, ge=0, description="of the solver")
    top: int = Field(default=1, ge=1, le=1000, description="best designs kept; the gap is that of the last of them")
    sensitivity: bool = Field(default=True, description="what 10 % more of each budget would buy")


class WithoutHeat(Part):
    """The design that is best as long as nobody asks how hot it gets, and what it does on its stack of dies."""

    design: int = Field(default=0, ge=0, description="which of the designs")
    best: dict[str, float] = Field(description="its sizes: stacks, bytes, B/s, or W")
    predicted: float = Field(description="seconds of a step without heat")
    judged: float | None = Field(description="seconds of a step on its stack; none where no level keeps the limits")
    frequency: float = Field(description="share of the nominal clock that it is throttled to")


class DesignBox(Part):
    """Designs whose sizes are from ``low`` to ``high``, by component; none of their mappings is below ``bound``.

    A ``bound`` that is none says that no design of the box can be had: none fits the budgets, or no mapping fits it.
    """

    design: int = Field(default=0, ge=0, description="which of the designs")
    low: dict[str, float] = Field(description="stacks, bytes, B/s, or W")
    high: dict[str, float]
    bound: float | None = Field(description="in the unit of the objective")
    stage: str | None = Field(default=None, description="of earlier versions: how far it was bounded")


class OtherDesign(Part):
    """One of the next best designs, with its best mapping."""

    design: int = Field(default=0, ge=0, description="which of the designs")
    best: dict[str, float] = Field(description="its sizes: stacks, bytes, or B/s")
    value: float = Field(description="of the objective")
    mapping: Mapping


class BudgetSensitivity(Part):
    """A design and a mapping of it with 10 % more of one budget; there may be better ones.

    More area of the chip comes with as much more area of the package, as much edge as a square has at least, and a
    larger reticle if it takes one.
    """

    budget: BudgetName
    more: float = Field(gt=0, description="mm2 of chip or package, W, or mm of edge")
    value: float = Field(description="of the objective")
    best: dict[str, float] = Field(description="sizes: stacks, bytes, or B/s")
    mapping: Mapping


class Effort(Part):
    """What the search took."""

    designs: int = Field(description="that the choices allow, those that do not fit the budgets among them")
    boxes: int
    bounds: dict[str, int] = Field(description="that were computed, by stage")
    solves: int = Field(description="systems that were given to the optimiser")
    seconds: float


class Exploration(Sealed):
    """The best design for a workload, and the proof.

    No mapping of any design within the choices has a value of the objective below ``bound``: the least of the bounds of
    ``boxes``, which hold every design once, and of the best itself.
    """

    SCHEMA: ClassVar[str] = "dfopt/exploration/1"

    def asked_digest(self) -> str:
        """Digest of what was asked."""
        asked = (*self.designs, self.graph, self.assumptions, self.request)
        return digest_of({str(n): document.model_dump(mode="json") for n, document in enumerate(asked)})

    status: ExplorationStatus
    value: float = Field(description="of the objective, of the best design")
    bound: float
    gap: float
    best_design: int = Field(default=0, ge=0, description="which of the designs is the best one")
    best: dict[str, float] = Field(description="its sizes: stacks, bytes, B/s, or W")
    result: Result = Field(description="the best mapping of the best design")
    without_heat: WithoutHeat | None = Field(default=None, description="beside it, where heat was asked for")
    others: tuple[OtherDesign, ...] = Field(default=(), description="the next best designs, the better first")
    others_bound: float | None = Field(
        default=None,
        description="no design that is named neither best nor among the others is below; none: no other can be had",
    )
    boxes: tuple[DesignBox, ...]
    sensitivity: tuple[BudgetSensitivity, ...] = Field(default=(), description="as far as time sufficed")
    energy_range: EnergyRange | None = Field(
        default=None, description="the same at both ends of the energy of DRAM; none = not asked for, or interrupted"
    )
    effort: Effort
    designs: tuple[Design, ...] = Field(min_length=1, description="one design, in each technology")
    graph: Graph
    assumptions: Assumptions
    request: ExplorationRequest
    version: str
    asked: str | None = Field(default=None, description="digest of designs, graph, assumptions and request")
    seal: str = Field(default="", description="digest of all the rest: an exploration that was edited says so")


class EnergyRange(Part):
    """The same designs with the least and the most energy that sources give for their DRAM, each with its own proof.

    Sources are in ``technology.dram.energy_range`` of each design.
    """

    low: Exploration
    high: Exploration


Exploration.model_rebuild()
