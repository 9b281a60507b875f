"""A workload on boxes of designs: bounds on its objective from the cheapest to the tightest, and designs to try.

A chip with more of anything runs every mapping at least as fast, and every mapping that fits it fits still. So what
bounds all mappings on the best corner of a box bounds them on every design of the box. Three such bounds: the FLOP
of the graph over the peak of all chips; the bounds of plans; and what the optimiser proves of all mappings. An
objective that is no time has the same bounds, with the least power and the least price of any design of the box.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import dfopt
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.base import digest_of
from dfopt.documents.dtypes import Peaks
from dfopt.documents.exploration import DesignLimits, ObjectiveName
from dfopt.documents.graph import Graph
from dfopt.documents.mapping import Mapping
from dfopt.documents.plan import Plan
from dfopt.documents.question import Question
from dfopt.documents.request import Limit, Objective, Request
from dfopt.documents.result import Result
from dfopt.documents.score import Score
from dfopt.documents.store import Store
from dfopt.documents.system import Dram, System
from dfopt.errors import DfoptError, PlanError, SolverFailure, SystemSpecError
from dfopt.exploring.boxes import Stage
from dfopt.exploring.descent import downhill, smallest
from dfopt.exploring.space import Box, Space
from dfopt.judge import evaluate
from dfopt.physics.cost import SystemCost, system_cost
from dfopt.physics.merits import MERITS, Merit
from dfopt.physics.work import flop_of_step
from dfopt.processes.executor import Processes
from dfopt.processes.packing import pack
from dfopt.processes.worker import Bounded, bounded
from dfopt.setting.bounds import PlanBounds
from dfopt.setting.instance import Setting
from dfopt.setting.plans import asked_plans
from dfopt.technology.as_system import system_of
from dfopt.technology.chip_price import chip_price

__all__ = ["Choice", "Workload"]

Costs = tuple[float, float]  # W, USD
_WHOLE = ("optimal", "optimal_per_level", "gap_reached")  # of a solve that no limit cut short


@dataclass(frozen=True)
class Choice:
    """One design, and its best mapping; the same design is the same choice."""

    box: Box
    result: Result = field(compare=False)


@dataclass
class Workload:
    """The problem for `dfopt.exploring.boxes.search_boxes`."""

    spaces: tuple[Space, ...]  # of one design in several technologies
    graph: Graph
    assumptions: Assumptions
    request: Request
    objective: ObjectiveName = "time"
    limits: DesignLimits | None = field(default=None, kw_only=True)
    deadline: float = math.inf
    within: tuple[Box, ...] = ()  # in place of all designs
    store: Store | None = None  # of what was solved
    memory: Dram | None = None  # of chips that have none beside them
    processes: Processes | None = None  # that solve beside one another
    solves: int = 0
    refused: str = ""  # why a design could not be had, for the case that none can
    _systems: dict[Box, System | None] = field(default_factory=dict)
    _costs: dict[Box, Costs] = field(default_factory=dict)
    _prices: dict[tuple[int, float], float | None] = field(default_factory=dict)
    _solved: dict[str, tuple[float, Result | None]] = field(default_factory=dict)
    _planned: dict[str, float] = field(default_factory=dict)
    _unfit: System | None = None  # one whose memory is too small under every plan

    @property
    def roots(self) -> Sequence[Box]:
        """All designs, technology by technology; or those that are asked for."""
        return self.within or [one.whole._replace(which=number) for number, one in enumerate(self.spaces)]

    @property
    def designs(self) -> int:
        """How many there are, those that do not fit the budgets among them."""
        return sum(one.count for one in self.spaces)

    @cached_property
    def merit(self) -> Merit:
        """The figure that is made least."""
        return MERITS[self.objective].within(self.limits)

    @cached_property
    def stages(self) -> Sequence[Stage[Box]]:
        """Bounds on the objective of everything in a box."""
        return [
            Stage("peak", lambda box, cutoff: self._valued(box, self._by_peak(box))),
            Stage("plans", lambda box, cutoff: self._valued(box, self._by_plans(box))),
            Stage("solve", self._by_solve, self.solve_ahead),
        ]

    def split(self, box: Box) -> Sequence[Box]:
        """The box in the two halves whose bounds of plans rise most; of equals, along the longest side."""
        parts = self.spaces[box.which].halves(box)
        return max(
            parts, key=lambda halves: sum(self._valued(half, self._by_plans(half)) for half in halves), default=()
        )

    def candidates(self, box: Box, best: float) -> Iterator[tuple[float, Choice]]:
        """One design, if that is all; else one on which a mapping that is known is better than the best."""
        tried = box if box.single else self.promising(box, best)
        system = None if tried is None else self.system(tried)
        if tried is None or system is None:
            return
        result = self.mapped(system, self.merit.most_s(best, *self._least(tried)))
        value = None if result is None else self.valued(result.score)
        if result is not None and value is not None:
            yield value, Choice(tried, result)

    def promising(self, box: Box, best: float) -> Box | None:
        """Where the mapping of the corner of a box is best, from the smallest design on that it fits; if below best."""
        corner = self.system(box)
        found = self._solved.get(corner.digest()) if corner is not None else None
        if found is None or found[1] is None:
            return None
        mapping = found[1].mapping
        (within,) = (root for root in self.roots if root.which == box.which)
        design = smallest(box, lambda part: math.isfinite(self.judged(part, mapping)))
        value, design = downhill(design, within, lambda one: self.judged(one, mapping))
        return design if value < best else None

    def why_none(self) -> str:
        """Why a design could not be had; empty where none fits the budgets."""
        if not self.refused and self._unfit is not None:
            self._solve(self._unfit, math.inf)  # the optimiser says it plan by plan
        return self.refused

    def mapped(self, system: System, cutoff: float) -> Result | None:
        """The best mapping on a system, if it is below the cutoff."""
        return self._solve(system, cutoff)[1]

    def valued(self, score: Score) -> float | None:
        """The objective of a mapping."""
        return self.merit.of(score)

    def judged(self, box: Box, mapping: Mapping) -> float:
        """The objective of a mapping on a design; infinite where it does not fit, or the design cannot be had."""
        system = self.system(box)
        if system is None:
            return math.inf
        try:
            score = evaluate(mapping, self.graph, system, self.assumptions)
        except DfoptError:
            return math.inf
        value = self.valued(score)
        return math.inf if score.violations or value is None else value

    def system(self, box: Box) -> System | None:
        """The machine of a design, or of the best corner of several; none where there is none."""
        if box not in self._systems:  # every stage asks for it, and a design for its split
            self._systems[box] = self._derived(box)
        return self._systems[box]

    def _derived(self, box: Box) -> System | None:
        space = self.spaces[box.which]
        chip, template = space.chip(box), space.design.template
        if chip is None or template is None:
            return None
        try:
            # the corner of several has no price: it is no chip that can be bought
            usd = self._price(box.which, float(chip.dram.stacks)) if box.single else None
            return system_of(
                space.design.name, chip, template, space.design.technology.core.utilization, usd, self.memory
            )
        except SystemSpecError as error:
            self.refused = self.refused or str(error)
            return None

    def _price(self, which: int, stacks: float) -> float | None:
        """USD for a chip with so many stacks; none where the technology does not say."""
        if (which, stacks) not in self._prices:
            of = self.spaces[which].design
            price = chip_price(of.technology, of.budgets.chip_area_mm2, of.budgets.dies or 1, stacks)
            self._prices[which, stacks] = None if price is None else price.usd
        return self._prices[which, stacks]

    def cost(self, box: Box) -> SystemCost | None:
        """Power and price of the system of a design, or no more than those of any of several; none if there is none."""
        system, space = self.system(box), self.spaces[box.which]
        chip, template = space.chip(box), space.design.template
        if system is None or chip is None or template is None or box.single:
            return None if system is None else system_cost(system)
        low, high = space.named(box.low), space.named(box.high)
        counts = [n for n in space.sizes.get("dram", ()) if low["dram"] <= n <= high["dram"]]
        least, prices = space.least(box, chip), []
        for stacks in counts or [float(least.dram.stacks)]:
            with suppress(SystemSpecError):  # a package that no wafer has room for: such a design is no system
                prices.append(self._price(box.which, stacks))
        usd = None if None in prices else min((one for one in prices if one is not None), default=math.inf)
        utilization = space.design.technology.core.utilization
        return system_cost(system_of(space.design.name, least, template, utilization, usd))

    def _least(self, box: Box) -> Costs:
        """W and USD of the systems of a box, as far as the objective needs them."""
        if not self.merit.needs:
            return 0.0, 0.0
        if box not in self._costs:
            cost = self.cost(box)
            self._costs[box] = (0.0, 0.0) if cost is None else (cost.total_w or 0.0, cost.total_usd or 0.0)
        return self._costs[box]

    def _valued(self, box: Box, seconds: float) -> float:
        """A bound on the objective from one on the time of a step."""
        return seconds if math.isinf(seconds) else self.merit.value(seconds, *self._least(box))

    def _by_peak(self, box: Box) -> float:
        system = self.system(box)
        if system is None:
            return math.inf
        peak = system.chip.peak
        rates = [rate for _, rate in peak if rate is not None] if isinstance(peak, Peaks) else [system.chip.peak_flops]
        return self._flop / (system.chips * max(rates))

    def _by_plans(self, box: Box) -> float:
        system = self.system(box)
        if system is None:
            return math.inf
        if (key := system.digest()) not in self._planned:
            tables = PlanBounds(self.setting(system)).tables(self._plans)
            lows = [float(one.seconds()[one.used_i <= 1.0].min(initial=math.inf)) for one in tables]
            self._planned[key] = min(lows, default=math.inf)
            self._unfit = self._unfit if self._planned[key] < math.inf else system
        return self._planned[key]

    def _by_solve(self, box: Box, cutoff: float) -> float:
        system = self.system(box)
        if system is None:
            return math.inf
        if not (most := self._most(box, cutoff)):
            return cutoff
        seconds, _ = self._solve(system, most)
        value = self._valued(box, seconds)
        return max(value, cutoff) if seconds >= most else value  # but for rounding they are the same there

    def _most(self, box: Box, cutoff: float) -> float:
        """Seconds of a step from which on nothing in a box is below a cutoff of the objective."""
        return self.merit.most_s(cutoff, *self._least(box))

    def solve_ahead(self, boxes: Sequence[Box], cutoff: float) -> None:
        """Solve the best corners of some boxes below one cutoff: as many at once as there are processes.

        Without processes it is one after the other, below the same cutoff: so that the answers are the same.
        """
        todo: dict[str, tuple[System, float]] = {}
        for box in boxes:
            system = self.system(box)
            if system is not None and (most := self._most(box, cutoff)) and self._is_open(system, most):
                todo.setdefault(system.digest(), (system, most))
        apart = {key: one for key, one in todo.items() if self.processes is not None and not self._is_recorded(*one)}
        answers: dict[str, dict[str, Any]] = {}
        ended = ""
        if self.processes is not None and len(apart) > 1:
            tasks = [self._task(key, *one) for key, one in apart.items()]
            ended = self.processes.run(tasks, lambda answer: answers.update({answer["cell"]: answer}))
        for key, one in todo.items():  # in their order, whichever came first
            if key in answers:
                self.solves += 1
                self._solved[key] = self._keep(*one, _read(answers[key]))
            elif not ended:
                self._solve(*one)
        if ended:
            raise KeyboardInterrupt

    def _is_open(self, system: System, cutoff: float) -> bool:
        known = self._solved.get(system.digest())
        return known is None or (known[1] is None and known[0] < cutoff)

    def _solve(self, system: System, cutoff: float) -> tuple[float, Result | None]:
        """What no mapping is below on a system, or that none is below the cutoff; and the best mapping if one is."""
        key = system.digest()
        if self._is_open(system, cutoff):
            self._solved[key] = self._solve_anew(system, cutoff)
        return self._solved[key]

    def _solve_anew(self, system: System, cutoff: float) -> tuple[float, Result | None]:
        self.solves += 1
        if self._is_recorded(system, cutoff):
            assert self.store is not None
            known = self.store.records[self._key(system, self._asked(system, cutoff))]
            self.refused = self.refused or known["refused"]
            result = Result.from_data(known["result"]) if known["result"] else None
            return (math.inf if known["bound"] is None else known["bound"]), result
        documents = {"graph": self.graph, "system": system, "assumptions": self.assumptions}
        made = bounded(Question(**documents, options=self._timed(self._asked(system, cutoff))))
        return self._keep(system, cutoff, made)

    def _asked(self, system: System, cutoff: float) -> Request:
        """The request, limited where a limit rules out mappings of any sharding: in a search for the joint optimum."""
        if not self._is_limited(cutoff):
            return self.request
        objective = Objective(limits=(Limit(metric="step_time", at_most=cutoff),))
        return self.request.model_copy(update={"objective": objective})

    def _is_limited(self, cutoff: float) -> bool:
        return math.isfinite(cutoff) and self.assumptions.sharding_objective == "joint"

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return max(self.deadline - time.perf_counter(), 0.0)

    def _timed(self, request: Request) -> Request:
        return request.model_copy(update={"time_limit": min(request.time_limit, self.left)})

    def _is_recorded(self, system: System, cutoff: float) -> bool:
        return self.store is not None and self._key(system, self._asked(system, cutoff)) in self.store.records

    def _keep(self, system: System, cutoff: float, made: Bounded) -> tuple[float, Result | None]:
        """What a solve shows; it goes into the store, unless time was up."""
        bound = cutoff if made.status == "infeasible" and self._is_limited(cutoff) else made.bound
        self.refused = self.refused or made.refused
        if self.store is not None and made.status in ("infeasible", *_WHOLE):
            self.store.append(
                {
                    "cell": self._key(system, self._asked(system, cutoff)),
                    "status": made.status,
                    "bound": bound if math.isfinite(bound) else None,
                    "result": None if made.result is None else made.result.to_data(),
                    "refused": made.refused,
                }
            )
        return bound, made.result

    def _task(self, key: str, system: System, cutoff: float) -> dict[str, Any]:
        """A solve for a process."""
        request = self._timed(self._asked(system, cutoff))
        documents = {"graphs": self._packed, "system": system.to_data(), "assumptions": self.assumptions.to_data()}
        asked = {**documents, "options": request.said(), "seed": request.seed}
        # after twice the time limit the process is ended
        return {"cell": key, "asked": asked, "bounded": True, "options": {"time_limit": request.time_limit}}

    @cached_property
    def _packed(self) -> str:
        return pack(self.graph)

    def _key(self, system: System, request: Request) -> str:
        """What a solve depends on, in 16 hex digits; its time limit aside, as only what was not cut short is kept."""
        asked = {"request": request.said(), "dfopt": dfopt.__version__}
        documents = {"graph": self.graph, "system": system, "assumptions": self.assumptions}
        return digest_of({**asked, **{name: document.digest() for name, document in documents.items()}})

    def setting(self, system: System) -> Setting:
        """The workload on a system."""
        return Setting.resolved(self.graph, system, self.assumptions)

    @cached_property
    def _plans(self) -> list[Plan]:
        """Those of any of the systems: all have the same network but for its rates."""
        system = next((made for root in self.roots if (made := self.system(root)) is not None), None)
        if system is None:
            return []
        if self.request.offload is not None:
            raise PlanError("offload: found beside designs, whose memories have no bounds with it; use place")
        return asked_plans(self.graph, system, self.request, self.setting(system).assumptions)[0]

    @cached_property
    def _flop(self) -> float:
        return flop_of_step(self.graph)


def _read(answer: dict[str, Any]) -> Bounded:
    """The answer of a process."""
    if answer["status"] == "failed":
        raise SolverFailure(answer["message"])
    bound = math.inf if answer["bound"] is None else answer["bound"]
    result = None if answer["result"] is None else Result.from_data(answer["result"])
    return Bounded(answer["status"], bound, result, answer["refused"])
