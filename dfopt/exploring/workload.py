"""A workload on boxes of designs: bounds on its objective from the cheapest to the tightest, and designs to try.

A chip with more of anything runs every mapping at least as fast, and every mapping that fits it fits still. So what
bounds all mappings on the best corner of a box bounds them on every design of the box. Three such bounds: the FLOP
of the graph over the peak of all chips; the bounds of plans; and what the optimiser proves of all mappings. An
objective that is no time has the same bounds, with the least power and the least price of any design of the box; so
has heat that is ``lumped``, which lowers the clock by the power and the layers of a design.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from dfopt.bnb import Candidate
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.dtypes import Peaks
from dfopt.documents.exploration import LumpedHeat
from dfopt.documents.exploration_request import DesignLimits, HeatMode, ObjectiveName
from dfopt.documents.graph import Graph
from dfopt.documents.mapping import Mapping
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.documents.result import Result
from dfopt.documents.score import Score
from dfopt.documents.stack import Stack
from dfopt.documents.system import Dram, System
from dfopt.errors import DfoptError, PlanError, SystemSpecError
from dfopt.exploring.costs import cost_of
from dfopt.exploring.hiding import with_slowest_hiding
from dfopt.exploring.judged import layers_of, lumped_heat, value_of
from dfopt.exploring.least_plans import PlanLows, least_lows
from dfopt.exploring.solves import SolveResources, Solves
from dfopt.exploring.space import Box, DesignChoice, DesignSpace, downhill, smallest
from dfopt.judge import evaluate
from dfopt.machines.stacks import memory_of
from dfopt.physics.merits import MERITS, Merit, MeritFigures
from dfopt.physics.tiled import hides_less
from dfopt.physics.work import flop_of_step
from dfopt.setting.instance import Setting
from dfopt.setting.plans import asked_plans
from dfopt.setting.reads import memoized
from dfopt.technology.as_system import system_of
from dfopt.technology.chip_price import price_of

SOLVE = "solve"  # the bound that the optimiser proves: it leaves a mapping

_REPLACED = 1.5  # times the value of a mapping that does not fit a smaller design: what another one may have there


@dataclass
class ExplorationProblem:
    """Exploration problem of one batch: its bounds and trials; :mod:`dfopt.exploring.entries` searches it."""

    spaces: tuple[DesignSpace, ...]  # of one design in several technologies
    graphs: tuple[Graph, ...]  # the same work drawn in several ways
    assumptions: Assumptions
    request: Request
    run: SolveResources
    objective: ObjectiveName = "time"
    limits: DesignLimits | None = field(default=None, kw_only=True)
    within: tuple[Box, ...] = ()  # in place of all designs
    above: PlanLows | None = field(default=None, kw_only=True)  # of a machine that is no worse than any here
    heat: HeatMode | None = field(default=None, kw_only=True)
    on: Stack | None = field(default=None, kw_only=True)
    memory: Dram | None = None  # of chips that have none beside them
    refused: str = field(default="", init=False)  # why a design could not be had, for the case that none can
    _planned: dict[str, tuple[float, PlanLows]] = field(default_factory=dict, init=False)
    _above: dict[Box, Box] = field(default_factory=dict, init=False)  # the box that each was split from
    _listed: dict[int, list[Plan]] = field(default_factory=dict, init=False)  # plans by graph
    _descended: set[Mapping] = field(default_factory=set, init=False)
    _unfit: System | None = field(default=None, init=False)  # one whose memory is too small under every plan

    def __post_init__(self) -> None:
        if self.on is not None and self.on.dram_dies:
            self.memory = memory_of(self.on)

    @property
    def roots(self) -> Sequence[Box]:
        """Boxes of all designs, one for each technology, or the requested boxes."""
        batch = self.graph.batch
        return self.within or [space.root._replace(which=at, batch=batch) for at, space in enumerate(self.spaces)]

    @property
    def designs(self) -> int:
        """Number of designs, including those that exceed the budgets."""
        return sum(space.count for space in self.spaces)

    @cached_property
    def merit(self) -> Merit:
        """The metric to optimize."""
        return MERITS[self.objective].within(self.limits)

    @cached_property
    def bounds(self) -> dict[str, Callable[[Box, System, float], float]]:
        """Lower bounds on the objective over a box, by name, in order of cost; arguments: box, machine, cutoff."""
        return {
            "peak": lambda box, system, cutoff: self._valued(box, self._by_peak(system)),
            "plans": lambda box, system, cutoff: self._valued(box, self._by_plans(box)),
            SOLVE: self._solved,
        }

    def bound(self, name: str, box: Box, cutoff: float) -> float:
        """One lower bound, by name, on the objective over a box; infinite if the box has no machine.

        Parameters
        ----------
        name : str
            Name of the bound, a key of ``bounds``.
        box
            The box of designs.
        cutoff : float
            Objective at or above which no design is of interest.
        """
        system = self.bounding(box)
        return math.inf if system is None else self.bounds[name](box, system, cutoff)

    def split(self, box: Box) -> Sequence[Box]:
        """The two halves of a box, split where the mapping of its corner loses most; of equals the longest side.

        Without a mapping, the split is the one that raises the plan bounds most.
        """
        parts = self.spaces[box.which].halves(box)
        self._above.update((half, box) for halves in parts for half in halves)
        result = self.solver.mapping(self.bounding(box))
        value = math.inf if result is None else self.judged(box, result.mapping, self.solver.drawn_as(result))

        def expected(half: Box) -> float:
            if result is None:
                return self._valued(half, self._by_plans(half))
            # what does not fit any more is replaced, at some cost
            return min(self.judged(half, result.mapping, self.solver.drawn_as(result)), _REPLACED * value)

        return max(parts, key=lambda halves: sum(map(expected, halves)), default=())

    def candidates(self, box: Box, best: float) -> Iterator[Candidate]:
        """The design of a single-design box, or one where a known mapping beats ``best``."""
        nearby = None if box.single else self.solver.mapping(self.bounding(box)) or self.solver.latest
        tried = box if box.single else None if nearby is None else self.promising(box, nearby, best)
        if tried is None or (system := self.system(tried)) is None:
            return
        most = self._most(tried, best)
        result = self.mapped(tried, system, most) if nearby is None else self.adapted(tried, system, nearby)
        value = None if result is None else self.valued(tried, system, result.score)
        if result is not None and value is not None:
            yield Candidate(value, DesignChoice(tried, result))

    def promising(self, box: Box, result: Result, best: float) -> Box | None:
        """A design for the mapping of a corner, by descent from the smallest that fits; None unless below ``best``.

        Parameters
        ----------
        box : Box
            Box in which the corner was solved.
        result : Result
            Best mapping on the corner of the box.
        best : float
            Objective of the best design so far.
        """
        mapping, graph = result.mapping, self.solver.drawn_as(result)
        if mapping in self._descended:  # from other corners it comes to about the same
            return None
        self._descended.add(mapping)
        within = next(root for root in self.roots if root.holds(box))
        design = smallest(box, lambda part: math.isfinite(self.judged(part, mapping, graph)))
        value, design = downhill(design, within, lambda part: self.judged(part, mapping, graph))
        return design if value < best else None

    def adapted(self, tried: Box, system: System, nearby: Result) -> Result | None:
        """Mapping of a design under the plan known for the corner of its box.

        Parameters
        ----------
        tried : Box
            A single design.
        system : System
            Machine of the design.
        nearby : Result
            Best mapping known for the corner of the box.
        """
        return self.solver.fixed(system, nearby)

    def why_none(self) -> str:
        """A sentence on why no design has a mapping; empty if none fits the budgets."""
        if not (refused := self.refused or self.solver.refused) and self._unfit is not None:
            self.solver.solve(self._unfit, math.inf)  # the optimiser says it plan by plan
            return self.solver.refused
        return refused

    def mapped(self, box: Box, system: System, cutoff: float) -> Result | None:
        """The best mapping on a design's system if it is below ``cutoff``, else None.

        Parameters
        ----------
        box : Box
            A single design.
        system : System
            Machine of the design.
        cutoff : float, s
            Step from which on a mapping is of no interest.
        """
        return self.solver.solve(system, cutoff)[1]

    def valued(self, box: Box, system: System, score: Score) -> float | None:
        """Objective of a scored mapping on a design, as it is minimized.

        Parameters
        ----------
        box : Box
            A single design.
        system : System
            Machine of the design, with its price and power.
        score : Score
            Score of the mapping on that machine.
        """
        return value_of(self.merit, score, system, self.heat, self.lumped(box, system.chip.power_w or 0.0))

    def lumped(self, box: Box, watts: float) -> LumpedHeat | None:
        """Lumped temperature of the coolest design of a box at ``watts`` W; None under other heat models."""
        if self.heat != "lumped":
            return None
        space = self.spaces[box.which]
        return lumped_heat(watts, layers_of(space.design, space.named(box.low), self.on), self.limits)

    def narrowed(self, spaces: tuple[DesignSpace, ...]) -> ExplorationProblem:
        """The problem on some of the designs, whose bounds build on those of all."""
        (root,) = self.roots
        self._by_plans(root)
        system = self.bounding(root)
        above = None if system is None else self._planned[system.digest()][1]
        workload = replace(self, spaces=spaces, above=above, run=SolveResources())
        workload._listed, workload.solver.latest = self._listed, self.solver.latest
        return workload

    def judged(self, box: Box, mapping: Mapping, graph: Graph | None = None) -> float:
        """Objective of a mapping on a design; infinite if it does not fit or the design has no system.

        Parameters
        ----------
        box, mapping : Box, Mapping
            A design, and a mapping on its system.
        graph : Graph, optional
            The graph that it maps; by default any that fits.
        """
        system, least = self.system(box), math.inf
        if system is None:
            return least
        for drawn in self.graphs if graph is None else (graph,):
            try:
                score = evaluate(mapping, drawn, system, self._assumed)
            except DfoptError:
                continue
            value = self.valued(box, system, score)
            least = min(least, math.inf if score.violations or value is None else value)
        return least

    @cached_property
    def _assumed(self) -> Assumptions:
        return self.request.assuming(self.assumptions)

    @memoized  # every stage asks for it, and a design for its split
    def system(self, box: Box) -> System | None:
        """Machine of a design, or of the best corner of several; None without one."""
        return self._derived(box)

    def bounding(self, box: Box) -> System | None:
        """Machine whose mappings bound those of all designs in a box."""
        return self.system(box)

    def _derived(self, box: Box) -> System | None:
        space = self.spaces[box.which]
        chip, template = space.chip(box), space.design.template
        if chip is None or template is None:
            return None
        try:
            # the corner of several has no price: it is no chip that can be bought
            price = price_of(space.design, chip) if box.single else None
            usd, utilization = None if price is None else price.usd, space.design.technology.core.utilization
            system = system_of(space.design.name, chip, template, utilization, usd, self.memory)
            bounds = not box.single and hides_less(self._assumed, self.request.tensor_overlap)
            return with_slowest_hiding(system, chip, box, space) if bounds else system
        except SystemSpecError as error:
            self.refused = self.refused or str(error)
            return None

    @memoized
    def _least(self, box: Box) -> MeritFigures:
        """The least figures of the systems of a box, as far as the objective needs them."""
        return self._figures(box)

    def _figures(self, box: Box) -> MeritFigures:
        of = MeritFigures(tokens=self._tokens)
        if not self.merit.needs and self.heat != "lumped":
            return of
        system = self.system(box)
        cost = cost_of(self.spaces[box.which], box, system)
        if cost is None or system is None:
            return of
        device_w = (cost.w["accelerators"] or 0.0) / system.chips
        lumped = self.lumped(box, device_w)
        of = of._replace(w=cost.total_w or 0.0, usd=cost.total_usd or 0.0, device_w=device_w)
        return of if lumped is None else of._replace(clock=lumped.frequency)

    @cached_property
    def _tokens(self) -> float:
        """Tokens of a step."""
        return max(graph.batch * (graph.evaluation_tokens.processed / graph.microbatch) for graph in self.graphs)

    def _valued(self, box: Box, seconds: float) -> float:
        """A bound on the objective from one on the time of a step."""
        return seconds if math.isinf(seconds) else self.merit.value(seconds, self._least(box))

    def _by_peak(self, system: System) -> float:
        peak = system.chip.peak
        rates = [rate for _, rate in peak if rate is not None] if isinstance(peak, Peaks) else [system.chip.peak_flops]
        return self._flop / (system.chips * max(rates))

    def _by_plans(self, box: Box) -> float:
        system = self.bounding(box)
        if system is None:
            return math.inf
        if (key := system.digest()) not in self._planned:
            above, lows = self._above.get(box), self.above
            if above is not None and (better := self.bounding(above)) is not None:
                self._by_plans(above)
                lows = self._planned[better.digest()][1]
            settings = [self.setting(system, graph) for graph in self.graphs]
            self._planned[key] = least_lows(self.plans, settings, lows)
            self._unfit = self._unfit if self._planned[key][0] < math.inf else system
        return self._planned[key][0]

    def _solved(self, box: Box, system: System, cutoff: float) -> float:
        """The objective that no mapping on a machine is below on the designs of a box, or the cutoff."""
        if not (most := self._most(box, cutoff)):
            return cutoff
        seconds, _ = self.solver.solve(system, most)
        value = self._valued(box, seconds)
        return max(value, cutoff) if seconds >= most else value  # but for rounding they are the same there

    def _most(self, box: Box, cutoff: float) -> float:
        """Seconds of a step from which on nothing in a box is below a cutoff of the objective."""
        return self.merit.most_s(cutoff, self._least(box))

    def solve_ahead(self, boxes: Sequence[Box], cutoff: float) -> None:
        """Solve the best corners of several boxes in parallel, below one cutoff."""
        machines = ((self.bounding(box), self._most(box, cutoff)) for box in boxes)
        self.solver.ahead([(system, most) for system, most in machines if system is not None and most])

    @cached_property
    def solver(self) -> Solves:
        """The solves of the workload, with their cache."""
        alone = self.designs == 1
        return Solves(self.graphs, self.assumptions, self.request, self.run, self.plans, self._planned, alone)

    @property
    def graph(self) -> Graph:
        """The first graph of the workload."""
        return self.graphs[0]

    def setting(self, system: System, graph: Graph | None = None) -> Setting:
        """The workload on a system, for one of its graphs."""
        return Setting.resolved(graph or self.graph, system, self._assumed)

    def plans(self, number: int) -> list[Plan]:
        """Plans of the ``number``-th graph; all designs share them, as their networks differ in rates only."""
        if number not in self._listed:
            system = next((machine for root in self.roots if (machine := self.system(root)) is not None), None)
            self._listed[number] = [] if system is None else self._asked_plans(self.graphs[number], system)
        return self._listed[number]

    @property
    def listed(self) -> int:
        """Number of plans over all graphs whose plans were listed."""
        return sum(map(len, self._listed.values()))

    def _asked_plans(self, graph: Graph, system: System) -> list[Plan]:
        if self.request.offload is not None:
            raise PlanError("offload: found beside designs, whose memories have no bounds with it; use place")
        setting = self.setting(system, graph)
        try:
            return asked_plans(setting.graph, system, self.request, setting.assumptions)[0]
        except PlanError:
            if len(self.graphs) > 1:  # drawn in another way it may have some
                return []
            raise

    @cached_property
    def _flop(self) -> float:
        return min(map(flop_of_step, self.graphs))
