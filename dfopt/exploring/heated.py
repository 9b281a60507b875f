"""A workload on boxes of designs whose chips are stacks of dies: what heat lets them do, bounded and judged.

A chip at a level of its clock is a chip of lower peak at a lower voltage. So a mapping at a level is no faster than
both allow: the bound without heat of a chip with that much less compute, and the joules that a microbatch takes at
least over the watts that the stack can be rid of (`dfopt.heat.least_interval`), where kernels share the tiles in
balance, as their times take for granted (`dfopt.exploring.together`). The least of that over the levels
bounds a design. Of many designs the levels differ: there the voltage is cut into intervals, each with the clock of its
upper end and the energy of its lower one, and the most cores that any of the designs has.

Before that come the bounds without heat. A machine that bounds stacks has the rate of DRAM that the judge delivers at
most: refreshes and round trips take theirs (`dfopt.technology.layered_stack.most_delivered`).

With ``throttle`` a mapping is made without heat and the judge lowers the clock of the whole chip; with ``aware`` it is
mapped around its heat, each partition at a level of its own: compute time and joules of a mixture of levels are
mixtures.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np

from dfopt.documents.design import POWER
from dfopt.documents.exploration_request import HeatMode
from dfopt.documents.plan import Plan
from dfopt.documents.result import Result
from dfopt.documents.stack import Stack
from dfopt.documents.stack_parts import TileGrid
from dfopt.documents.system import System
from dfopt.errors import SystemSpecError
from dfopt.exploring.levels import Rung, intervals_of_voltage, levels_of_stack, mixture, slower
from dfopt.exploring.space import Box
from dfopt.exploring.together import Together, part_of, together
from dfopt.exploring.workload import ExplorationProblem
from dfopt.heat.least_interval import LeastJoules, least_interval_of
from dfopt.physics.merits import MeritFigures
from dfopt.physics.pipeline import least_step_s
from dfopt.setting.instance import Instance
from dfopt.setting.reads import memoized
from dfopt.technology.as_stack import derived_stack
from dfopt.technology.layered_stack import most_delivered
from dfopt.technology.stack_models import power_of
from dfopt.terms.bounds import PlanBounds

_PARTS = (1.0, 0.98, 0.95, 0.9, 0.8, 0.6, 0.3)  # of the time that a chip works
_LOOKED_AT = 64  # plans of a graph whose heat is looked at


@dataclass
class Heated(ExplorationProblem):
    """Exploration workload whose chips are stacks of dies, on the package of the stack ``on``."""

    on: Stack = field(kw_only=True)
    heat: HeatMode = field(kw_only=True)
    _tiled: dict[tuple[int, float | None], Stack] = field(default_factory=dict, init=False)  # by design and layers

    @cached_property
    def bounds(self) -> dict[str, Callable[[Box, System, float], float]]:
        """Bounds by name, in order of cost: without heat, under heat, and proven by the optimizer for given clocks."""
        return super().bounds | {"heat": self._by_heat, "levels": self._by_levels}

    def _derived(self, box: Box) -> System | None:
        """The machine of one design with its stack, or of the best corner of several without one."""
        system = super()._derived(box)
        if system is None or not box.single:
            return system if system is None else self._delivering(system, box)
        try:
            return system.model_copy(update={"stack": self.stack(box)})
        except SystemSpecError as error:
            self.refused = self.refused or str(error)
            return None

    def _delivering(self, system: System, box: Box) -> System:
        """A machine without a stack, whose DRAM has the rate that the judge's delivers at most."""
        design, corner = self.spaces[box.which].design, self.spaces[box.which].chip(box)
        if (part := design.technology.layers) is None or design.sizes is None or corner is None:
            return system.model_copy(update={"stack": None})
        dram = system.chip.fastest
        most = min(dram.bandwidth, most_delivered(part, corner, self.on.dram))
        chip = system.chip.model_copy(update={"dram": dram.model_copy(update={"bandwidth": most})})
        return system.model_copy(update={"chip": chip, "stack": None})

    def bounding(self, box: Box) -> System | None:
        """The machine without its stack; for a single design with the highest rate that its DRAM delivers."""
        system = self.system(box)
        return system if system is None or not box.single else self._slower(box, 1.0)

    @memoized
    def _slower(self, box: Box, share: float) -> System:
        """A machine that bounds those of a box at a share of their clock; that of many may have SRAM of any clock."""
        system = self.system(box)
        assert system is not None  # asked of boxes that have one
        return slower(self._delivering(system, box), share, box.single)

    @memoized
    def stack(self, box: Box) -> Stack:
        """Die stack of one design."""
        decisions = self.spaces[box.which]
        chip = decisions.chip(box)
        assert chip is not None  # asked of designs that fit their budgets
        return derived_stack(decisions.one_design(box.high), chip, self.on)

    def mapped(self, box: Box, system: System, cutoff: float) -> Result | None:
        """The best mapping without heat at the highest DRAM rate, or the heat-aware mapping.

        Parameters
        ----------
        box, system
            A box of designs, and the machine that stands for it.
        cutoff : float
            Objective at or above which no mapping is of interest.
        """
        _, result = self.solver.solve(self._slower(box, 1.0), cutoff)
        if result is None:
            return None
        if self.heat == "throttle":
            return self.solver.fixed(system, result)
        answer = self.solver.answer(system, self.graphs, self.request.model_copy(update={"heat": "aware"}))
        self.refused = self.refused or answer.refused
        return answer.result

    def adapted(self, tried: Box, system: System, nearby: Result) -> Result | None:
        """Mapping of a design: under the plan of the corner, or heat-aware under any plan.

        Parameters
        ----------
        tried, system
            The design as a box, and its machine.
        nearby
            The mapping of the corner.
        """
        if self.heat == "throttle":
            return super().adapted(tried, system, nearby)
        return self.mapped(tried, system, math.inf)

    # bounds

    def _figures(self, box: Box) -> MeritFigures:
        """The least of the systems of a box; of joules those of compute at the lowest voltage."""
        of, system = super()._figures(box), self.system(box)
        if "j" not in self.merit.needs or system is None:
            return of
        return of._replace(once_j=self._flop * min(rung.flop for rung in self._rungs(box)))

    def _by_heat(self, box: Box, system: System, cutoff: float) -> float:
        """Of all levels, plans and mappings: see the top of the file."""
        if not (box.single or self.heat == "throttle") or len(self.spaces[box.which].layers(box)) > 1:
            return 0.0  # prices of heat are those of a stack of dies
        return self._over(box)

    def _over(self, box: Box, step_s: float = 0.0) -> float:
        """The objective that no plan beats at any level, nor in a shorter step than this one."""
        if self.heat == "aware":
            return min(self._mixed_of(box, number, step_s) for number in range(len(self.graphs)))
        least, enough = math.inf, self._valued(box, self._by_plans(box))
        for rung in self._rungs(box):
            least = min(least, self._at(box, rung, step_s))
            if least <= enough:  # heat shows no more than plans do
                break
        return least

    def _by_levels(self, box: Box, system: System, cutoff: float) -> float:
        """What the optimiser proves of a design at each level that heat alone does not rule out."""
        if not box.single:
            return 0.0
        if "j" in self.merit.needs:  # the joules of each plan, in the time that all of them take
            seconds, _ = self.solver.solve(system, self._most(box, cutoff))
            return self._over(box, seconds)
        if self.heat == "aware":
            return 0.0
        least = cutoff
        for rung in self._rungs(box):
            bound = self._at(box, rung, 0.0)
            if bound < least:
                least = min(least, max(bound, self._solved(box, self._slower(box, rung.share), least)))
        return least

    def _rungs(self, box: Box) -> list[Rung]:
        """The levels of a design, or intervals of voltage that hold those of all designs of a box."""
        if box.single:
            return levels_of_stack(self.stack(box))
        corner, unit = self.spaces[box.which].chip(box), self.spaces[box.which].design.technology.core
        assert corner is not None  # asked of boxes that have a system
        return intervals_of_voltage(unit, corner.core)

    @memoized
    def _at(self, box: Box, rung: Rung, step_s: float) -> float:
        """The objective that no plan beats at one level."""
        return min(self._at_level(box, rung, step_s, number) for number in range(len(self.graphs)))

    def _at_level(self, box: Box, rung: Rung, step_s: float, number: int) -> float:
        """The same of one graph."""
        bounds = PlanBounds(self.setting(self._slower(box, rung.share), self.graphs[number]))
        at_plan = partial(self._at_plan, box, rung, bounds)
        return self._over_plans(box, number, step_s, rung, bounds, at_plan, _LOOKED_AT)

    def _over_plans(
        self, box: Box, number: int, step_s: float, rung: Rung, bounds: PlanBounds,
        at_plan: Callable[[Plan], float], most: int | None = None,
    ) -> float:  # fmt: skip
        """The least objective of the most promising plans of a graph, and without heat of all others.

        ``at_plan``: seconds of a step in which a chip gets rid of its heat under a plan.
        """
        setting, plans, least, system = bounds.setting, self.plans(number), math.inf, self.bounding(box)
        assert system is not None  # asked of boxes that have one
        enough = self._valued(box, self._by_plans(box))
        low_i = np.broadcast_to(self._planned[system.digest()][1][number], len(plans))
        places = np.argsort(low_i, kind="stable")
        places = places[np.isfinite(low_i[places])]  # of those that fit
        for looked_at, place in enumerate(places.tolist()):
            low, plan = max(float(low_i[place]), step_s), plans[place]
            others = self.merit.value(low, self._least(box))
            if others >= least or looked_at == most:
                return min(least, others)
            seconds, of = max(bounds.seconds(setting.under(plan)), low), self._spending(box, plan, rung, bounds)
            if self.merit.value(seconds, of) < least:
                least = min(least, self.merit.value(max(seconds, at_plan(plan)), of))
            if least <= enough:
                return least
        return least

    def _at_plan(self, box: Box, rung: Rung, bounds: PlanBounds, plan: Plan) -> float:
        """Seconds of a step in which a chip gets rid of its heat at one level.

        While it works it leaks at the voltage of the level: in a part of the time or more, if a microbatch takes no
        longer than it works at least over that part.
        """
        least = max(self._by_energy(box, plan, rung, bounds, self._waiting(box)), default=0.0)
        busy = least_step_s(plan, bounds.setting.assumptions, bounds.interval(bounds.setting.under(plan)))
        for part in _PARTS if rung.voltage else ():
            if busy / part > least:
                voltage = self._waiting(box) * (1 - part) + rung.voltage * part
                shown = max(self._by_energy(box, plan, rung, bounds, voltage), default=0.0)
                least = max(least, min(busy / part, shown))
        return least

    def _waiting(self, box: Box) -> float:
        """The voltage of what waits: that of the lowest level; 0 where it is not the same for all designs."""
        return self.stack(box).levels[-1].voltage if box.single else 0.0

    def _mixed_of(self, box: Box, number: int, step_s: float) -> float:
        """The objective of a graph on a design where every partition has a level of its own."""
        system, rungs, graph = self._slower(box, 1.0), self._rungs(box), self.graphs[number]
        bounds = PlanBounds(self.setting(system, graph))
        chip = system.chip.model_copy(
            update={
                "sram": system.chip.sram.model_copy(update={"bandwidth": None}),
                "dram": system.chip.fastest.model_copy(update={"bandwidth": math.inf}),
            }
        )
        alone = system.model_copy(update={"chip": chip})
        compute = [PlanBounds(self.setting(slower(alone, rung.share), graph)) for rung in rungs]

        def mixed(plan: Plan) -> float:
            times = [each.seconds(each.setting.under(plan)) for each in compute]
            spent = [self._by_energy(box, plan, rung, bounds, self._waiting(box)) for rung in rungs]
            by_price = [list(zip(times, joules, strict=True)) for joules in zip(*spent, strict=True)]
            return max(map(mixture, by_price), default=0.0)

        return self._over_plans(box, number, step_s, rungs[-1], bounds, mixed)

    def _by_energy(self, box: Box, plan: Plan, rung: Rung, bounds: PlanBounds, leaks: float) -> list[float]:
        """Seconds of a step under a plan in which a chip gets rid of its heat, by the prices that show it.

        ``leaks``: the voltage at which it leaks at least.
        """
        if plan.at_once > 1:
            return []
        instance, stack = bounds.setting.under(plan), self._priced(box)
        where, spent = self._together(box, instance), self._spent(box, plan, rung, bounds)
        even = 0.0 if self.heat == "aware" else part_of(instance.setting.model, where.alone)
        spent = replace(spent, compute=spent.compute * (1 - even), even=spent.compute * even, crowding=where.crowding)
        assumptions = bounds.setting.assumptions
        return [
            least_step_s(plan, assumptions, interval) for interval in least_interval_of(stack).by_price(spent, leaks)
        ]

    def _spent(self, box: Box, plan: Plan, rung: Rung, bounds: PlanBounds, mean: bool = False) -> LeastJoules:
        """What each chip spends on its stack for a microbatch at least under a plan.

        ``mean``: of all chips, with memory beside the stack, which is known of a design alone.
        """
        instance, stack = bounds.setting.under(plan), self._priced(box)
        dram_bytes, sram_bytes = bounds.traffic(instance, mean)
        dram = bool(stack.dram_dies) or (mean and box.single)
        of, model, waiting = stack.dram, power_of(stack), stack.levels[-1]  # what waits takes the lowest level
        burst = min(of.energies.read_burst, of.energies.write_burst) / of.burst
        idle = stack.logic.idle if box.single else 0.0
        return LeastJoules(
            compute=self._flop / (instance.system.chips * plan.microbatches) * rung.flop,
            sram=sram_bytes * rung.sram,
            dram=dram_bytes * (burst + of.energies.activate / of.row) * dram,
            way=dram_bytes * of.energies.io * dram,
            logic_w=idle * waiting.frequency * waiting.voltage**2,
            dram_w=model.background_w * dram,
            refresh_w=model.refresh_w(1.0) * dram,
        )

    def _spending(self, box: Box, plan: Plan, rung: Rung, bounds: PlanBounds) -> MeritFigures:
        """The least figures of the designs of a box under a plan at one level: joules are those of all chips.

        What leaks is at least as warm as its surroundings, and at the lowest level.
        """
        of = self._least(box)
        if "j" not in self.merit.needs or plan.at_once > 1:
            return of
        stack, chips = self._priced(box), bounds.setting.system.chips
        spent = self._spent(box, plan, rung, bounds, mean=True)
        leaks = power_of(stack).leakage(stack.ambient, self._waiting(box)).sum()
        return of._replace(
            once_j=chips * plan.microbatches * (spent.compute + spent.sram + spent.dram + spent.way),
            flows_w=chips * (spent.logic_w + spent.dram_w + spent.refresh_w + float(leaks)),
        )

    def _together(self, box: Box, instance: Instance) -> Together:
        """Which kernels are alone on a chip, where all designs of a box have the same tiles; none else.

        Where partitions have levels of their own, those of kernels that are alone may be others than the rest's: a
        mixture of levels is one of all kernels only if all are priced alike, so none counts as alone.
        """
        if not self._one_floorplan(box):
            return Together(frozenset(), math.inf)
        return together(instance, self.on.placement == "interleaved")

    def _one_floorplan(self, box: Box) -> bool:
        """Whether all designs of a box are known to have the same tiles."""
        decisions = self.spaces[box.which]
        if box.single or list(decisions.sizes) != [POWER]:
            return box.single
        ends = [self.stack(box.at(at)) for at in (box.low, box.high)]
        return ends[0].tiles == ends[1].tiles  # more power has no fewer units: so between them too

    def _priced(self, box: Box) -> Stack:
        """A stack whose prices hold for every design of a box: its own, or one with a tile for each thermal cell."""
        decisions = self.spaces[box.which]
        if self._one_floorplan(box):
            return self.stack(box.at(box.low))
        [layers] = decisions.layers(box)
        if (key := (box.which, layers)) not in self._tiled:
            corner = next(at for at in (box.low, box.high) if decisions.chip(box.at(at)) is not None)
            stack = self.stack(box.at(corner))
            grid = TileGrid(columns=stack.cells, rows=stack.cells)
            dies = tuple(
                die.model_copy(update={"floorplan": grid, "leakage": None}) if die.kind == "logic" else die
                for die in stack.dies
            )
            self._tiled[key] = stack.model_copy(update={"dies": dies})
        return self._tiled[key]
