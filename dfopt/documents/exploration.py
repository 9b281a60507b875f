"""An exploration: what was asked of many designs, the best of them with its mapping, and the boxes that prove it."""

from __future__ import annotations

import math
from functools import partial
from typing import ClassVar, Literal

from pydantic import Field

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.base import Part, Sealed, digest_of
from dfopt.documents.design import Design
from dfopt.documents.exploration_request import BudgetName, ComparisonName, ExplorationRequest, ObjectiveName, turned
from dfopt.documents.graph import Graph
from dfopt.documents.mapping import Mapping
from dfopt.documents.result import Result

ExplorationStatus = Literal["optimal", "gap_reached", "exhausted", "time_limit", "interrupted"]


class WithoutHeat(Part):
    """The best design without regard to heat, and what it does on its stack of dies.

    Attributes
    ----------
    design : no unit, e.g. 0
        Position of the design in the list of designs.
    best : stacks, B, B/s or W, e.g. {dram: 4, L2: 50000000.0}
        Sizes of the components of the design, by name.
    predicted : s, J, W, USD, USD s or tokens/s, e.g. 0.05
        Value of the objective for the design if heat does not count.
    judged : s, J, W, USD, USD s or tokens/s, e.g. 0.06
        Value of the objective for the design under heat. None: no operating point keeps the limits.
    frequency : share, e.g. 0.8
        Share of the nominal clock to which the design is throttled.
    """

    design: int = Field(default=0, ge=0)
    best: dict[str, float]
    predicted: float
    judged: float | None
    frequency: float


class Comparison(WithoutHeat):
    """The best design for another question, evaluated under the question that was asked.

    Attributes
    ----------
    question : e.g. tp_pp_dp
        Question that found the design. ``lumped``: heat counts by a formula. ``tp_pp_dp`` and ``expanded``: the menu of
        schedules is smaller.
    design : no unit, e.g. 0
        Position of the design in the list of designs.
    best : stacks, B, B/s or W, e.g. {dram: 4, L2: 50000000.0}
        Sizes of the components of the design, by name.
    predicted : s, J, W, USD, USD s, tokens/s or tokens/J, e.g. 0.05
        Value of the objective for the design in the other question.
    judged : s, J, W, USD, USD s, tokens/s or tokens/J, e.g. 0.06
        Value of the objective for the design in the question that was asked, with all its schedules. None: no mapping
        keeps the limits.
    frequency : share, e.g. 0.8
        Share of the nominal clock to which the design is throttled then.
    """

    question: ComparisonName


class LumpedHeat(Part):
    """Temperature of a chip of the best design by a single thermal resistance (`dfopt.physics.lumped`).

    Attributes
    ----------
    temperature_c : degC, e.g. 97.0
        Temperature at the nominal clock, in full use.
    frequency : share, e.g. 0.98
        Share of the nominal clock that keeps the limit.
    """

    temperature_c: float
    frequency: float


class DesignBox(Part):
    """A box of designs with sizes from ``low`` to ``high`` by component, and a bound on all their mappings.

    A ``bound`` that is none says that no design of the box can be had: none fits the budgets, or no mapping fits it.

    Attributes
    ----------
    design : no unit, e.g. 0
        Position of the design in the list of designs.
    low : stacks, B, B/s or W, e.g. {dram: 1}
        Smallest sizes of the components in the box, by name.
    high : stacks, B, B/s or W, e.g. {dram: 4}
        Largest sizes of the components in the box, by name.
    bound : s, J, W, USD, USD s, tokens/s or tokens/J, e.g. 0.05
        Proven bound: no mapping of a design in the box has a better value of the objective. None: no design of the box
        is possible.
    """

    design: int = Field(default=0, ge=0)
    low: dict[str, float]
    high: dict[str, float]
    bound: float | None

    def order(self, objective: ObjectiveName) -> tuple[float, int, tuple[float, ...]]:
        """Sort key of boxes: the best bound first, boxes without designs last."""
        bound = math.inf if self.bound is None else turned(objective, self.bound)
        return bound, self.design, tuple(self.low.values())


class OtherDesign(Part):
    """One of the next best designs, with its best mapping.

    Attributes
    ----------
    design : no unit, e.g. 0
        Position of the design in the list of designs.
    best : stacks, B or B/s, e.g. {dram: 3}
        Sizes of the components of the design, by name.
    value : s, J, W, USD, USD s, tokens/s or tokens/J, e.g. 0.052
        Value of the objective for the best mapping of this design.
    mapping
        Best mapping of this design.
    """

    design: int = Field(default=0, ge=0)
    best: dict[str, float]
    value: float
    mapping: Mapping


class BudgetSensitivity(Part):
    """A design with more of one budget, and a mapping of it; better ones may exist.

    More is 10 %, one DRAM layer, or 10 K. More area of the chip comes with as much more area of the package, as much
    edge as a square has at least, and a larger reticle if it takes one.

    Attributes
    ----------
    budget : e.g. area
        Budget of which the design gets more. ``area``: the chip. ``package``: the package. ``power``: the power.
        ``edge``: the perimeter of the chip. ``layers``: exactly one DRAM layer more than the best design. ``price``:
        the limit on the price. ``temperature``: the limits on the temperature of all dies.
    more : mm2, W, mm, layers, USD or K, e.g. 80.0
        Amount by which the budget grows: mm2 of chip or package, W, mm of edge, layers, USD, or K.
    value : s, J, W, USD, USD s, tokens/s or tokens/J, e.g. 0.047
        Value of the objective that the larger budget allows at least.
    best : stacks, B or B/s, e.g. {dram: 5}
        Sizes of the components with the larger budget, by name.
    mapping
        Mapping of the design with the larger budget.
    """

    budget: BudgetName
    more: float = Field(gt=0)
    value: float
    best: dict[str, float]
    mapping: Mapping


class Effort(Part):
    """Effort of the search: boxes, solves and seconds.

    Attributes
    ----------
    designs : designs, e.g. 240
        Number of designs that the choices allow, including those that break a budget.
    sizes : sizes, e.g. {dram_layers: 8}
        Number of sizes of each component that the search chooses from, in the space of the best design.
    plans : plans, e.g. 16654
        Number of plans for each design, in all batches, microbatches and variants whose plans were listed.
    boxes : boxes, e.g. 31
        Number of boxes of designs that the search examined.
    bounds : bounds, e.g. {peak: 31, plans: 12}
        Number of bounds that were computed, by the argument they rest on.
    solves : solves, e.g. 4
        Number of designs for which a complete search for a mapping ran.
    seconds : s, e.g. 42.0
        Time that the exploration took.
    """

    designs: int
    sizes: dict[str, int]
    plans: int
    boxes: int
    bounds: dict[str, int]
    solves: int
    seconds: float


class Exploration(Sealed):
    """The best design for a workload, with its proof.

    No mapping of any design within the choices has a better value of the objective than ``bound``: the best of the
    bounds of ``boxes``, which hold every design once, and of the best itself.

    Attributes
    ----------
    status : e.g. gap_reached
        Proof that the exploration reached. ``optimal``: no design is better. ``gap_reached``: it stopped at the
        requested gap. ``exhausted``: it examined all designs, but bounds stay below the best. ``time_limit``: the time
        limit ended it. ``interrupted``: Ctrl-C ended it.
    value : s, J, W, USD, USD s, tokens/s or tokens/J, e.g. 0.05
        Value of the objective for the best design.
    bound : s, J, W, USD, USD s, tokens/s or tokens/J, e.g. 0.0495
        Proven bound: no mapping of any design has a better value of the objective.
    gap : share, e.g. 0.01
        Relative distance of ``value`` to ``bound``.
    best_design : no unit, e.g. 0
        Position of the best design in the list of designs.
    best : stacks, B, B/s or W, e.g. {dram: 4, L2: 50000000.0}
        Sizes of the components of the best design, by name.
    result
        Best mapping of the best design, with its score and proof.
    without_heat
        Design that is best if heat does not count, for comparison. None: heat was not requested, or the objective is of
        stacks of dies alone.
    comparisons
        Designs that other questions find best, as far as the time sufficed.
    lumped : e.g. {temperature_c: 97.0, frequency: 0.98}
        Temperature of the best design by a formula. None: heat is not ``lumped``.
    others
        Next best designs, the better ones first.
    others_bound : s, J, W, USD, USD s, tokens/s or tokens/J, e.g. 0.051
        Proven bound for all designs that are neither the best nor listed in ``others``. None: no other design is
        possible.
    boxes : e.g. [{low: {dram: 1}, high: {dram: 4}, bound: 0.05}]
        Boxes of designs whose bounds prove the result. They contain every design once.
    sensitivity
        Effects of more of each budget and of looser limits, as far as the time sufficed. Under heat: of layers and
        limits alone.
    energy_range
        Explorations with the least and the most energy that sources give for the DRAM. None: not requested, or
        interrupted.
    effort
        Work that the search took.
    fixed : e.g. ["tp 4", "module_schemes common"]
        Restrictions that hold for all mappings of all designs: what the request fixed, and what is searched only on
        request.
    designs
        Designs that were explored, one for each technology.
    graph
        Workload that the designs run, with the best batch.
    other_batches
        Workload with each of the other batches that it chose from, in every way in which it is drawn.
    assumptions : e.g. {profile: ideal}
        Assumptions under which times were computed.
    request : e.g. {objective: time, gap: 0.01}
        Objective and options of the exploration.
    version : e.g. 1.0.0
        Version of dfopt that wrote the exploration.
    asked : e.g. 0123456789abcdef
        Digest of designs, graph, assumptions and request.
    seal : e.g. 0123456789abcdef
        Digest of the whole exploration, which shows whether someone edited the file.
    """

    SCHEMA: ClassVar[str] = "dfopt/exploration/2"

    def asked_digest(self) -> str:
        """Digest of the question."""
        graphs = (self.graph, *self.result.variants, *self.other_batches)
        asked = (*self.designs, *graphs, self.assumptions, self.request)
        return digest_of({str(n): document.model_dump(mode="json") for n, document in enumerate(asked)})

    @property
    def widest_gap(self) -> float:
        """Relative gap of the last requested design to the bound on all designs not reported."""
        turn = partial(turned, self.request.objective)
        last = turn(self.value) if self.request.top == 1 else math.inf
        if self.others and len(self.others) == self.request.top - 1:
            last = turn(self.others[-1].value)
        rest = math.inf if self.others_bound is None else turn(self.others_bound)
        return max(self.gap, 0.0 if rest >= last else 1 - rest / last)

    status: ExplorationStatus
    value: float
    bound: float
    gap: float
    best_design: int = Field(default=0, ge=0)
    best: dict[str, float]
    result: Result
    without_heat: WithoutHeat | None = None
    comparisons: tuple[Comparison, ...] = ()
    lumped: LumpedHeat | None = None
    others: tuple[OtherDesign, ...] = ()
    others_bound: float | None = None
    boxes: tuple[DesignBox, ...]
    sensitivity: tuple[BudgetSensitivity, ...] = ()
    energy_range: EnergyRange | None = None
    effort: Effort
    fixed: tuple[str, ...]
    designs: tuple[Design, ...] = Field(min_length=1)
    graph: Graph
    other_batches: tuple[Graph, ...] = ()
    assumptions: Assumptions
    request: ExplorationRequest
    version: str
    asked: str = ""
    seal: str = ""


class EnergyRange(Part):
    """The exploration with the least and with the greatest DRAM energy of sources, each with its own proof.

    Sources are in ``technology.dram.energy_range`` of each design.

    Attributes
    ----------
    low
        Exploration with the least energy that sources give for the DRAM.
    high
        Exploration with the most energy that sources give for the DRAM.
    """

    low: Exploration
    high: Exploration


Exploration.model_rebuild()
