"""The search over plans, schemes and fusions together: one heap of nodes in the order of what is proven of them."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import count
from typing import Self

import numpy as np

from dfopt.bnb import Clock, OutOfTime
from dfopt.documents.plan import Plan
from dfopt.documents.uncollected import uncollected
from dfopt.errors import Infeasible, NoSolution, SolveError
from dfopt.fusion.downsets import Lattice
from dfopt.interrupts import cause, interruptible
from dfopt.joint.menu import Menu
from dfopt.search import work
from dfopt.search.branching import Search
from dfopt.search.families import Families
from dfopt.search.hiding import Hiding
from dfopt.search.known import KnownSearch
from dfopt.search.matrices import solved_together
from dfopt.search.node import CLOSE, SAME, Entry, Found, Node, Unit
from dfopt.search.nodes import Nodes
from dfopt.search.placing import Placing, place
from dfopt.search.racing import Steps, race
from dfopt.search.relaxed import covers
from dfopt.search.shortage import least_held
from dfopt.search.solved import Solved
from dfopt.terms.sharded_graph import Ints

_SHARE = 0.15  # of the work that is left, at most, for one step of one plan while others wait
_LEVELS = 0.15  # of the work, after which two levels make a start over all plans
_CLOSING = 12  # steps of a plan and tile count, after which its program may close it at once
_STEPS = 4e5, 3.2e6, np.inf  # units of work for a step, the first time and when it is taken up again


class JointSearch(KnownSearch):
    """Branch and bound over graphs, over plans and, within them, over what is open of schemes."""

    every: bool = False  # also schemes that another one replaces at no cost in time
    levels: bool = True  # what two levels find may be an answer
    at_once: bool = False  # what has to be proven is known: no deepening from below
    hints: Mapping[Plan, frozenset[str]] | None = None  # what blocks had to agree about in another search
    as_whole: bool = True  # nothing has to be known of each plan
    starts_later: bool = False  # they are looked for if there is no mapping after many steps

    def failure(self) -> SolveError | KeyboardInterrupt:
        """Why there is no mapping at all; of a memory that is too small, how much the best plan needs at least."""
        error = super().failure()
        if isinstance(error, Infeasible) and not self.apart and not any(one.bound is not None for one in self.records):
            held = (self.placing.every(plan)[-1] for plan in self.legal)
            return Infeasible(error.report, least_held(self.setting, list(held), self.options))
        return error

    @cached_property
    def placing(self) -> Placing:
        """What is open of placements."""
        return Placing(self.setting, self.options.request)

    def lattices(self) -> dict[int, Lattice | None]:
        """The down-sets of every stage."""
        return self.nodes.lattices or super().lattices()

    @classmethod
    def run_all(cls, searches: Sequence[Self]) -> None:
        """Go over the legal plans of several searches: always a step of the one with the least bound."""
        largest = max(searches, key=lambda one: one.setting.graph.microbatch)
        plans = 0 if largest.found else largest._count_plans() * len(searches)
        race(searches, [search._all_steps() for search in searches], plans)
        for search in searches:
            if search.levelled:  # their stages are chosen with the sharding
                Search.run(search, [*search.levelled])

    def run(self, legal: list[Plan]) -> None:
        """Go over some plans."""
        self.legal = legal
        self.run_all([self])

    def _all_steps(self) -> Steps:
        """Its steps; all plans are given up together, and not even listed, where all chips have too much to do."""
        graph, request, low = self.setting.graph, self.options.request, self.least
        if self.as_whole:
            yield False, low
            late = self._out_of_time(bool(self.found))
            if late or self.crowded or low >= self.incumbent * (1 - max(request.gap, SAME)):
                self._give_up_graph(low, late)
                return
        try:
            with interruptible():
                joint = {plan: solved_together(graph, plan, request) for plan in self.legal}
                self.levelled = frozenset(plan for plan in self.legal if not joint[plan])
                self._bound_all([*self.levelled])
            yield from self._steps([plan for plan in self.legal if joint[plan]], self.check_time)
        except (OutOfTime, KeyboardInterrupt) as ended:  # before all plans had a bound
            self.stopped = cause() if isinstance(ended, KeyboardInterrupt) else self.stopped
            self._give_up_graph(low, late=True)

    def together(self, legal: list[Plan]) -> None:
        """Those whose schemes and fusions are chosen together."""
        for _ in self._steps(legal):
            pass

    def _steps(self, legal: list[Plan], check_time: Callable[[], None] = lambda: None) -> Steps:
        """Go over plans a step at a time; before each: whether only what takes long is left, and the least bound."""
        with interruptible():
            self._bound_all(legal, check_time)
        self.nodes = Nodes(self.setting, self.options, self.every or self.several, self.at_once, self.hints)
        self.families = Families(self.nodes, self.plan_bounds, self.bounds, self.tables)
        self.units: dict[Unit, Found] = {}
        self.squeezed = Counter[Plan]()  # how closely is shown what it costs to fit them
        self.hiding = Hiding(self.setting, self.options.request)
        self.heap, self.waiting = list[Entry](), list[Node]()  # the latter: whose next step takes long
        self.number, self.steps_of, self.closed = count(), Counter(), {}
        self.started = set[tuple[Menu, int]]()
        clock = self.options.clock
        self.levels_at = clock.spent + _LEVELS * clock.work_left
        self.known: dict[tuple[Plan, int, tuple[int, ...]], Solved | Infeasible] = {}  # by schemes that were fused
        self.take_starts()
        low_of = {plan: max(self.bounds[plan], self.given.get(plan, 0.0)) for plan in legal}
        for plan in sorted(legal, key=lambda p: (low_of[p], p.label)):
            self._push(low_of[plan], plan)
        late = False
        while self.heap or self.waiting:
            if not self.heap:
                late = True
                for node in self.waiting:
                    self._push(node.bound, node)
                self.waiting = []
            yield late, self._least()
            self.busy = [heapq.heappop(self.heap)]
            self._next(self.busy[0])
            self.hiding.left(self, self.busy.pop().what)
        with uncollected():
            for (plan, tiles), found in self.units.items():
                found.low = min(found.low, self.units.get((plan, None), found).low)  # given up before it was opened
                self._told((plan, tiles), found)

    def _levels(self) -> None:
        """The best of two levels over all plans, as a start where schemes and fusions together take long."""
        self.levels_at = np.inf
        if any(one.graph is not self.setting.graph for one in self.found):  # another variant has a start
            return
        if self.found and self.squeezed:  # what families come to was tried
            return
        levels = Search(self.setting, replace(self.options, clock=self.options.clock.share(_SHARE)))
        levels.memo, levels.plan_bounds = self.memo, self.plan_bounds
        open_ = (plan for plan, low in self.bounds.items() if low < self._to_beat((plan, None)))
        levels.run([plan for plan in open_ if plan not in self.levelled and self._looks((plan, None))])
        tiles = {(record.plan, record.value): record.tile_count for record in levels.records}
        for one in levels.found:
            self._keep((one.plan, tiles[one.plan, one.value]), one)
        if levels.stopped:
            raise KeyboardInterrupt

    def _next(self, entry: Entry) -> None:
        """Take a step with what has the least bound."""
        self.options.clock.charge(work.STEP)
        unit = self._unit(entry.what)
        beaten = entry.bound >= self._goal(unit) and self._unstated(entry.what) is None
        late = not beaten and self._out_of_time(bool(self.found))
        if isinstance(entry.what, Plan) and not beaten and not late:
            try:
                with interruptible():
                    raised = self.families.raised(entry.what, entry.bound)
                if raised > entry.bound:
                    self._push(raised, entry.what)
                    return
            except KeyboardInterrupt:
                self.stop()
        if beaten or late or self.stopped:
            self._give_up(unit, entry.bound, late=late)
            if isinstance(entry.what, Plan) and np.isfinite(self.units[unit].value):
                self.units[unit].agreed |= self.families.agreed(entry.what)
            return
        try:
            try:
                with interruptible():
                    self._step(entry)
            except (OutOfTime, NoSolution):  # or too much memory
                self._interrupted(entry, unit)
        except KeyboardInterrupt:
            self.stop()
            self._give_up(unit, entry.bound, late=True)

    def _interrupted(self, entry: Entry, unit: Unit) -> None:
        """A step that took more than its share of the time: again when nothing else is left, or never."""
        node = entry.what
        if not isinstance(node, Node):
            self._give_up(unit, entry.bound, late=True)
            return
        if self._looks(unit):
            self._try(node, unit, self._cut(unit), self.nodes.options_of(node))
        self._by_levels(node)
        if node.patience == len(_STEPS) or self._out_of_time(True):
            self._give_up(unit, max(entry.bound, node.bound), late=True)
            return
        node.patience += 1
        self.waiting.append(node)

    def _step_clock(self, node: Node) -> Clock:
        """What a step may spend: all other plans shall have their turn too."""
        clock = self.options.clock
        return clock if node.patience == len(_STEPS) else clock.share(_SHARE, _STEPS[node.patience])

    def told_apart(self, others: Sequence[Plan]) -> bool:
        """Whether each of some ways to hide collectives has to be looked at."""
        return False

    def _push(self, bound: float, what: Plan | Node) -> None:
        self.hiding.entered(what)
        heapq.heappush(self.heap, Entry(bound, next(self.number), what))

    def _step(self, entry: Entry) -> None:
        if self.levels and self.options.clock.spent > self.levels_at:
            self._levels()
        if isinstance(entry.what, Plan):
            self._of_plan(entry)
            return
        node, unit = entry.what, self._unit(entry.what)
        self.steps_of[node.plan, node.ready.sharded.tile_count] += 1
        if self._is_closed(node, unit, _CLOSING):
            return
        if node.rooted and node.whole and self._looks(unit) and (node.met or np.isinf(self.incumbent)):
            self._start(node)
            if self.stopped:
                raise KeyboardInterrupt
        cut = self._cut(unit)
        try:
            # seconds of a stage that make a value make one that is rounded differently
            settled = self.nodes.improve(node, self._goal(unit) * (1 + SAME), self._step_clock(node))
        except Infeasible as error:  # in any number of blocks, whatever the schemes
            self._give_up(unit, np.inf)
            self.units[unit].note = str(error.report)
            return
        if node.agreed:
            self.units.setdefault(unit, Found()).agreed |= node.agreed
        if not settled:
            if self._looks(unit) and node.rooted:
                self._try(node, unit, cut, self.nodes.options_of(node))
            if node.exhausted:
                self._nothing_more(node, unit, cut)
            else:
                self._push(node.bound, node)
            return
        if node.bound > self._least():
            self._push(node.bound, node)
            return
        self._leaf(node, unit, cut)

    def _nothing_more(self, node: Node, unit: Unit, cut: float) -> None:
        """Leave a node of which no bound shows more; while there is no mapping at all, look among its schemes."""
        if self.nodes.fixed(node):
            self._leaf(node, unit, cut)
            return
        if self._is_closed(node, unit, 0):
            return
        self._by_levels(node)
        if self.found or not self._looks(unit):
            self._give_up(unit, node.bound)
            self.units[unit].wide |= node.bound < self._goal(unit)
            return
        options_k = self.nodes.options_of(node)
        self._split(node, unit, self.nodes.lean(node) if options_k is None else options_k)

    def _split(self, node: Node, unit: Unit, options_k: Ints) -> None:
        """Go on with the parts of a node."""
        self.units.setdefault(unit, Found())
        for child in self.nodes.split(node, options_k):
            self._push(max(child.bound, node.bound), child)

    def _least(self) -> float:
        return self.heap[0].bound if self.heap else np.inf

    def _of_plan(self, entry: Entry) -> None:
        """A step of a plan that has the least bound: what is cheap to show first, and what holds for others too."""
        plan, unit = entry.what, self._unit(entry.what)
        assert isinstance(plan, Plan)
        if self.placing.is_open(plan):
            place(self, plan, entry.bound)
            return
        if not self._fits(plan):
            return
        if self._unstated(plan):
            self._open(plan)
            return
        if self.families.heard(plan):
            low = self.families.raised(plan)
        elif not self.squeezed[plan]:
            low = self._squeeze(plan, unit)
        elif self.families.prove(plan, self._goal(unit)):
            low = self.families.raised(plan)
        elif self.squeezed[plan] == 1:
            low = self._squeeze(plan, unit)
        else:
            self._open(plan)
            return
        self._push(max(low, entry.bound), plan)

    def squeeze(self, plan: Plan) -> bool:
        """Look among the schemes that fit a plan's memory for a mapping; whether they are known."""
        if (family := self.families.of(plan)) is None or len(family.low_k) > 1:
            return False
        self._squeeze(plan, (plan, None))
        if np.isinf(self.incumbent):  # no mapping at all: with what hides behind what, too
            self._squeeze(plan, (plan, None))
        return True

    def _squeeze(self, plan: Plan, unit: Unit) -> float:
        """Show what it costs to fit a plan's memory; what comes to that is a mapping, if nothing else is short."""
        low, starts = self.families.squeezed(plan, listed=self.squeezed[plan] > 0)
        self.squeezed[plan] += 1
        for node, options_k in starts if self._looks(unit) and low < self._goal(unit) else []:
            self._as_there(plan, node, options_k)
        return low

    def _as_there(self, plan: Plan, node: Node, options_k: Ints) -> None:
        """Fuse the schemes of a plan of the same family under another one: a mapping, if they fit."""
        unit = plan, node.ready.tile_count
        ready = replace(node.ready, instance=self.setting.under(plan))
        self._try(replace(node, ready=ready, tried=set()), unit, self._cut(unit), options_k)

    def _open(self, plan: Plan) -> None:
        try:
            if self.options.request.formulation == "assignment" or not covers(self.setting.graph, plan):
                self._by_matrices(self.setting.under(plan))
                return
            nodes = self.nodes.open(plan)
        except Infeasible as error:  # whatever the schemes
            self._infeasible(plan, None, error, "infeasible")
            return
        for node in nodes:
            options_k, unit = self.families.taken_up(node), self._unit(node)
            node.bound = max(node.bound, self.bounds[plan], self.given.get(plan, 0.0))
            if node.agreed:
                self.units.setdefault(unit, Found()).agreed |= node.agreed
            if self._looks(unit) and node.bound < self._goal(unit):
                self._try(node, unit, self._cut(unit), options_k)
            self._push(node.bound, node)

    def _start(self, node: Node) -> None:
        """A first mapping of a layer: the best fusion for the sharding that is best by itself, or that holds least."""
        layer = self.nodes.menu(node.ready.instance), node.ready.sharded.tile_count
        if self.levels and layer not in self.started:
            self.started.add(layer)
            self._first(node)
        if not self.found:
            self._try(node, self._unit(node), np.inf, self.nodes.lean(node))

    def _by_levels(self, node: Node) -> None:
        """A mapping of a node of which nothing more can be proven."""
        unit = self._unit(node)
        if self.levels and self._looks(unit) and node.bound < self._cut(unit) and not self._out_of_time(True):
            self._first(node)

    def _fitting(self, node: Node, unit: Unit, options_k: Ints, cut: float) -> tuple[float, Ints]:
        """Where the best schemes do not fit: the value of those that do, if it is known, and schemes to split by."""
        closer_k = self.nodes.fitting(node, options_k)
        if closer_k is None:
            return np.inf, options_k
        try:
            outcome = self._once(node, closer_k, cut)
        except Infeasible:
            return np.inf, closer_k
        if isinstance(outcome, Solved):
            self._keep(unit, outcome)
            return outcome.value, closer_k
        return np.inf, closer_k

    def _leaf(self, node: Node, unit: Unit, cut: float) -> None:
        """The schemes that the stages ask for, fused exactly: the node's best if they reach its bound."""
        options_k, fixed = self.nodes.options_of(node), self.nodes.fixed(node)
        assert options_k is not None
        reached = np.inf
        try:
            outcome = self._once(node, options_k, cut)
            if isinstance(outcome, Solved):
                reached = outcome.value
                self._keep(unit, outcome)
            if fixed:  # nothing is left to choose
                self._settle(unit, node.bound, outcome, cut)
                return
        except Infeasible as error:
            self.units.setdefault(unit, Found()).note = str(error.report)
            if fixed:
                return
            if not node.tight:
                node.tight = True
                reached, options_k = self._fitting(node, unit, options_k, cut)
        if reached <= node.bound * (1 + CLOSE) and not self.several:
            self._give_up(unit, min(node.bound, reached))
            return
        if self.stopped:
            raise KeyboardInterrupt
        self._split(node, unit, options_k)
