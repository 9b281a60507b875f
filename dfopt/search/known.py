"""What a search knows of plans and tile counts: their best mappings, what was given up, and the records of both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from dfopt.bnb import OutOfTime
from dfopt.documents.plan import Plan
from dfopt.documents.plan_records import PlanRecord
from dfopt.errors import Infeasible, NoSolution
from dfopt.interrupts import interruptible, shielded
from dfopt.search.branching import Search
from dfopt.search.matrices import by_matrices
from dfopt.search.node import SAME, Entry, Found, Node, Unit
from dfopt.search.nodes import Nodes
from dfopt.search.solved import Pruned, Solved, by_levels, refusal
from dfopt.setting.instance import Instance
from dfopt.terms.sharded_graph import Ints, tile_counts

_MOST_PLANS = 100_000  # that are listed of all graphs, where the first has no more: with their records, 0.7 gigabytes

_CLOSED = 0.3  # of the time that is left, at most, for the program of a plan
_LISTED = 1e-6  # relative: as near is a bound to a value, and a mapping that is fused again to one that is listed


class KnownSearch(Search):
    """A search that keeps what is found of every unit, and fuses schemes of all kernels once for all nodes."""

    levelled: frozenset[Plan] = frozenset()  # whose stages are chosen with the sharding
    busy: list[Entry]  # with which a step is taken
    closing: bool = True  # seconds without heat or budgets say all of a mapping
    steps_of: Counter[tuple[Plan, int]]  # that were taken, by plan and number of tiles
    closed: dict[tuple[Plan, int], float]  # what no mapping is below, by its program
    nodes: Nodes
    units: dict[Unit, Found]
    known: dict[tuple[Plan, int, tuple[int, ...]], Solved | Infeasible]  # by schemes that were fused

    @staticmethod
    def _unit(what: Plan | Node) -> Unit:
        return (what, None) if isinstance(what, Plan) else (what.plan, what.ready.tile_count)

    @cached_property
    def several_tiles(self) -> bool:
        """Whether there are several numbers of tiles, each with a record of its own."""
        return len(tile_counts(self.setting.graph, self.setting.assumptions)) > 1

    def unit_of(self, plan: Plan, tiles: int) -> Unit:
        """What has a record of its own."""
        return plan, tiles if self.several_tiles else None

    def _cut(self, unit: Unit) -> float:
        """Value that a mapping of a unit must beat: its own best, if one of a plan is kept, or the last of the best."""
        known = self.units.get(unit)
        own = known.value if known is not None and not self.several else np.inf
        return min(own, self._to_beat(unit))

    def _to_beat(self, unit: Unit) -> float:
        """Value from which on nothing of a unit is of interest: of the last that is kept, or of the same plan."""
        plan, graph = unit[0], self.setting.graph
        same = [each.value for each in self.found if each.plan == plan and each.graph is graph and not self.several]
        return min([self.incumbent, *same])

    @cached_property
    def several(self) -> bool:
        """Whether several mappings of one plan may be among the best: then what is on record of it is of all others."""
        return self.options.request.distinct_in != "plan"

    def best_of(self) -> Mapping[Hashable, float]:
        """The values of the best mappings, by what makes them different."""
        return {each.different(self.options.request.distinct_in): each.value for each in self.found}

    def is_listed(self, outcome: Solved, low: float) -> bool:
        """Whether a mapping, of which none like it is below a value, is among several of the best of its plan."""
        by = self.options.request.distinct_in
        return self.several and low >= self.best_of().get(outcome.different(by), np.inf) * (1 - _LISTED)

    def _looks(self, unit: Unit) -> bool:
        """Whether a mapping of a unit is looked for, or only bounds."""
        return True

    def _goal(self, unit: Unit) -> float:
        """Bound at which a unit is done with: as near to the value to beat as is asked for."""
        return self._cut(unit) * (1 - max(self.options.request.gap, SAME))

    def _give_up(self, unit: Unit, bound: float, *, late: bool = False, every: float = np.inf) -> None:
        """Leave something of a unit; ``every``: a lower bound that holds however products hide collectives."""
        found = self.units.setdefault(unit, Found())
        found.low, found.every = min(found.low, bound), min(found.every, bound, every)
        found.late |= late

    def _settle(self, unit: Unit, bound: float, outcome: Solved | Pruned, cut: float) -> None:
        """Leave schemes of all kernels that were fused exactly; what is among the best itself need not be beaten."""
        low, late = (outcome.bound, outcome.limited) if isinstance(outcome, Solved) else (cut, False)
        low = max(bound, low)
        listed = isinstance(outcome, Solved) and self.is_listed(outcome, low)
        self._give_up(unit, np.inf if listed else low, late=late, every=bound)

    def _give_up_graph(self, low: float, late: bool) -> None:
        """Leave all plans together, with a bound that holds under each."""
        request, self.records, self.levelled = self.options.request, [], frozenset()
        goal = self.incumbent * (1 - max(request.gap, SAME))
        given_up = Found(low=low, late=late)
        self.apart = given_up.of_graph(self.setting.graph, goal, self.incumbent, request.gap, self.stopped)

    @property
    def crowded(self) -> bool:
        """Whether the plans of one graph more would be too many."""
        listed = [len(peer.bounds) for peer in self.peers]
        return sum(listed) + max(listed, default=0) > _MOST_PLANS

    def proven(self) -> float:
        """The step time that no mapping of the search beats, as far as that is shown."""
        lows: list[float] = [node.bound for node in vars(self).get("waiting", ())]
        for each in vars(self).get("units", {}).values():  # other ways to hide collectives may follow
            lows.append(each.every if vars(self)["hiding"].menu else each.low)
        lows += [self.apart.bound] if self.apart is not None else []
        return min([self.least, *lows, *(self.bounds[plan] for plan in self.levelled)])

    def counts(self) -> tuple[int, int]:
        """How many of its plans may still be better than what is known, and how many are listed."""
        open_, listed = super().counts()
        entries = [*vars(self).get("busy", ()), *vars(self).get("heap", ())]
        goal = self.incumbent * (1 - max(self.options.request.gap, SAME))
        left = [entry.what for entry in entries if entry.bound < goal]
        left += vars(self).get("waiting", ())
        if entries or left:
            open_ = len({*self.levelled, *(self._unit(what)[0] for what in left)})
        return open_, listed

    def _count_plans(self) -> int:
        try:
            with interruptible():
                return len(self.legal)
        except OutOfTime:
            return 0
        except KeyboardInterrupt:
            self.stop()
            return 0

    def check_time(self) -> None:
        """Give up listing and bounding plans when the time is up."""
        if self._out_of_time(bool(self.found)):
            raise OutOfTime

    def _is_closed(self, node: Node, unit: Unit, steps: int) -> bool:
        """Whether the program of a plan shows that nothing of it is of interest; it is solved after so many steps."""
        key = node.plan, node.ready.sharded.tile_count  # a unit may have several numbers of tiles
        if self.closing and key not in self.closed and self.steps_of[key] >= steps and not self.several:
            if vars(self)["hiding"].menu:  # what is shown has to hold for other ways to hide collectives, too
                return False
            soon = replace(self.options, clock=self.options.clock.share(_CLOSED))
            self.closed[key], options_k = self.nodes.least_of_plan(node, soon, self._cut(unit))
            if self._looks(unit):
                self._try(node, unit, self._cut(unit), options_k)
        node.bound = max(node.bound, self.closed.get(key, 0.0))
        closed = key in self.closed and node.bound >= self._goal(unit)
        if closed:
            self._give_up(unit, node.bound)
        return closed

    def _try(self, node: Node, unit: Unit, cut: float, options_k: Ints | None) -> None:
        """Fuse such schemes, if there are any and they were not tried yet: a mapping, if not yet the best."""
        if options_k is None or tuple(options_k.tolist()) in node.tried:
            return
        node.tried.add(tuple(options_k.tolist()))
        try:
            outcome = self._once(node, options_k, cut)
        except (Infeasible, NoSolution):
            return
        if isinstance(outcome, Solved):
            self._keep(unit, outcome)

    def take_starts(self) -> None:
        """Count mappings of its graph that were found before as its own."""
        if not hasattr(self, "units"):  # they are, as soon as it lists its plans
            return
        for solved in [each for each in self.found if each.graph is self.setting.graph]:
            self._keep(self.unit_of(solved.plan, solved.mapping.tile_count), solved)

    def _first(self, node: Node) -> None:
        """A mapping level by level, under all schemes of a node's plan."""
        unit, tiles = self._unit(node), node.ready.sharded.tile_count
        found = by_levels(node.ready.instance, self.options, self.memo, tiles, self._to_beat(unit))
        if found is not None:
            self._keep(unit, found)

    def _unstated(self, what: Plan | Node) -> Solved | None:
        """The best mapping, if it is of a plan whose matrices were asked for and are not solved yet."""
        best, asked = self.best, self.options.request.formulation == "assignment"
        return best if asked and best and best.plan == what and best.graph is self.setting.model else None

    def _by_matrices(self, instance: Instance) -> None:
        """One MILP per tile count: as asked for, or where the stages of kernels that are drawn once are open too."""
        plan = instance.plan
        best, looks, values = self._unstated(plan), self._looks((plan, None)), [np.inf]

        def cut() -> float:  # the matrices show by themselves what is known of the best
            return self._to_beat((plan, None)) if best is None else min(values)

        for tiles, outcome in by_matrices(instance, self.options, self.memo, cut, looks, best):
            if isinstance(outcome, Solved):
                self._keep((plan, tiles), outcome)
                values.append(outcome.value)
            late = outcome.limited if isinstance(outcome, Solved) else outcome.bound < cut()
            self._give_up((plan, tiles), max(self.bounds[plan], outcome.bound), late=late)
            if best is not None:
                self.units[plan, tiles].solves = outcome.records
            if self.stopped:
                raise KeyboardInterrupt

    def exact(self, node: Node, options_k: Ints, cut: float) -> Solved | Pruned:
        """The best mapping under schemes of all kernels, as :meth:`Nodes.exact` finds it."""
        return self.nodes.exact(node, options_k, cut)

    def _once(self, node: Node, options_k: Ints, cut: float) -> Solved | Pruned:
        """The same, from another node that asked for these schemes."""
        key = node.plan, node.ready.sharded.tile_count, tuple(options_k.tolist())
        if key not in self.known:
            try:
                outcome: Solved | Pruned | Infeasible = self.exact(node, options_k, cut)
            except Infeasible as error:
                outcome = error
            if isinstance(outcome, Pruned):  # another cut may not
                return outcome
            self.known[key] = outcome
        found = self.known[key]
        if isinstance(found, Infeasible):
            raise found
        return found

    def _keep(self, unit: Unit, outcome: Solved) -> None:
        found = self.units.setdefault(unit, Found())
        if outcome.interrupted:
            self.stop()
        if outcome.value >= found.value and not self.several:
            return
        with shielded():  # what is on record of a plan is what is kept of it
            if outcome.value < found.value:
                found.value, found.solves = outcome.value, outcome.records
            self.accept(outcome)

    def tell(self) -> None:
        """Raise what is known of plans that are given to what was shown."""
        if self.apart is not None:
            self.given.update((plan, max(low, self.apart.bound or 0.0)) for plan, low in self.given.items())
            return
        hiding, placing = vars(self).get("hiding"), vars(self).get("placing")
        if (hiding and hiding.menu) or (placing and placing.menu):  # a plan may stand for others
            return
        shown: dict[Plan, float] = {}
        for record in self.records:
            low = np.inf if record.status == "infeasible" else record.bound or 0.0
            shown[record.plan] = min(low, shown.get(record.plan, np.inf))
        self.given.update((plan, max(low, shown.get(plan, 0.0))) for plan, low in self.given.items())

    def _told(self, unit: Unit, found: Found) -> None:
        """The record of a plan and tile count."""
        plan, tiles = unit
        fields: dict[str, Any] = {"solves": found.solves, "agreed": tuple(sorted(found.agreed))}
        if np.isinf(min(found.value, found.low)):
            note = found.note or refusal(self.setting.under(plan), self.options, self.memo, tiles)
            self.reasons.append(f"{plan.label}: {note}")
            fields |= {"status": "infeasible", "note": note}
        else:
            gap, beat = self.options.request.gap, self._to_beat(unit)
            fields |= found.status(self._goal(unit), beat, gap, self.stopped, beat if self.several else found.value)
        bound = None if fields["status"] == "infeasible" else min(found.low, found.value)
        fields |= {"variant": self.setting.graph.variant, "bound": bound, "level_bound": bound}
        self.records.append(PlanRecord(plan=plan, tile_count=tiles, **fields))
