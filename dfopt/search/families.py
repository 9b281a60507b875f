"""What is proven of the work of a chip, for all plans that give it the same work.

Thousands of plans differ in how many layers a stage holds, how many copies of the batch there are and what those share
out, but not in what a chip does in one evaluation of a layer (:attr:`dfopt.setting.instance.Instance.shared`). So that
is bounded once: as under a plan of one layer, one stage and one microbatch, with no limit on what DRAM is left and no
gradients to add up. No schemes and partitions take less under any other plan of the family, which only adds to that
what it has of its own (:meth:`dfopt.terms.bounds.PlanBounds.seconds`). A step at a time, and only while the plan that
is the most promising of all is not excluded by it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dfopt.bnb import OutOfTime
from dfopt.documents.plan import Plan
from dfopt.errors import Infeasible
from dfopt.physics.pipeline import step_time
from dfopt.search.faster import Faster
from dfopt.search.node import Node
from dfopt.search.nodes import Nodes
from dfopt.search.relaxed import covers
from dfopt.setting.instance import Instance
from dfopt.setting.reads import ByReads
from dfopt.terms.bounds import PlanBounds, PlanTable
from dfopt.terms.sharded_graph import Floats, Ints
from dfopt.terms.step.hops import chunk_hops
from dfopt.terms.step.offload import moves
from dfopt.terms.step.overlap import hides_any

__all__ = ["Families", "Family"]

_SAME, _ROUND = 1e-12, 1e-9
_MANY = 16  # plans of a family whose layers are of several kinds, from which on it is looked at by itself
_NEAR = 0.2  # share of what is proven of other chips, from which on they are looked at first
_STEP = 3.2e6  # units of work for a step, at most


@dataclass(eq=False)
class Family:
    """Plans that give a chip the same work, and what is proven of it: seconds that a layer takes at least.

    ``nodes``: by tile count and layout that layers hand on; ``low_k``: by kind of layer; ``settled``: those of which no
    step shows more; ``curve``: what each takes where little room is left for what the backward pass needs.
    """

    nodes: list[Node]
    low_k: Floats
    settled: set[Node] = field(default_factory=set)
    curve: dict[tuple[Node, bool], list[_Kept]] = field(default_factory=dict)

    @property
    def low_s(self) -> float:
        """Seconds of the only kind of layer."""
        return float(self.low_k[0])

    def take_up(self) -> None:
        """What is proven of every node holds for the family."""
        self.low_k = np.maximum(self.low_k, np.min([one.lows for one in self.nodes], axis=0))

    @property
    def least(self) -> Node | None:
        """The node that may take the least; none where nothing fits a plan of one layer."""
        return min(self.nodes, key=lambda one: one.lows[0], default=None)

    @property
    def done(self) -> bool:
        """Whether nothing more can be proven of all of it."""
        return len(self.low_k) > 1 or self.least is None or self.least in self.settled


class _Kept(NamedTuple):
    """The least seconds of a layer with so much room for what it keeps; it is the same with as much as it keeps."""

    room: float
    bytes: float
    seconds: float
    option_k: Ints | None


class Families:
    """The families of the plans of one setting, as far as their layers are of one kind.

    Parameters
    ----------
    nodes : Nodes
        Opens and bounds them.
    plan_bounds : PlanBounds
        The bounds of plans, from the work of their chips.
    bounds : dict
        What is proven of each plan, which is raised here.
    tables : sequence of PlanTable
        The same plans as arrays.
    """

    def __init__(
        self, nodes: Nodes, plan_bounds: PlanBounds, bounds: dict[Plan, float], tables: Sequence[PlanTable]
    ) -> None:
        self.nodes, self.plan_bounds, self.bounds = nodes, plan_bounds, bounds
        self._tables: dict[Instance, list[PlanTable]] = {}
        hints = {plan: told for plan, told in nodes.hints.items() if told}  # of some plans, for all of their family
        for plan, told in hints.items():
            shared = nodes.setting.under(plan).shared.plan
            nodes.hints = {**nodes.hints, shared: nodes.hints.get(shared, frozenset()) | told}
        self._of: dict[Instance, Family] = {}
        self._known: dict[Hashable, Family | None] = {}
        self._taken: dict[Instance, Floats] = {}  # of families, what the bounds of their plans hold already
        self._hops = defaultdict[Family, ByReads](ByReads)
        self._order = Faster(self._tables)
        self.add(tables)

    def add(self, tables: Sequence[PlanTable]) -> None:
        """Take up further plans, of which the bounds are known."""
        for table in tables:
            for shared in table.shared:
                self._tables.setdefault(shared, []).append(table)
                if shared in self._taken:
                    self._raise(shared, self._taken[shared], table)

    def of(self, plan: Plan) -> Family | None:
        """The family of a plan; none where its stages are no runs of equal layers, or few plans are in it."""
        key = plan.apart_from_stages
        if key not in self._known:
            shared = self._in_family(plan)
            self._known[key] = None if shared is None else self._opened(shared)
        return self._known[key]

    def _in_family(self, plan: Plan) -> Instance | None:
        """What all plans of the family of one give a chip, if it has one."""
        instance = self.nodes.setting.under(plan)
        graph, shared = instance.graph, instance.shared
        if not graph.folded or plan.two_batch_overlap or not covers(graph, plan):
            return None
        if shared in self._of or instance.mapped_stages == 1:
            return shared
        many = sum(len(one.of_shared(shared)) for one in self._tables[shared]) >= _MANY
        return shared if many else None

    def _opened(self, shared: Instance) -> Family:
        if shared not in self._of:
            try:
                nodes = self.nodes.of(shared, every=True)
            except (
                Infeasible
            ):  # by itself, not all of it fits: of other plans, which may share more out, it proves nothing
                nodes = []
            self._of[shared] = Family(nodes, np.min([one.lows for one in nodes] or [[0.0] * shared.mapped_stages], 0))
        return self._of[shared]

    def raised(self, plan: Plan, known: float = np.inf) -> float:
        """What is proven of a plan with all that is known of its family, and so of all plans of that.

        Its family is opened only where nothing else shows more than is ``known``.
        """
        if plan.apart_from_stages not in self._known and self.bounds[plan] <= known:
            self._by_faster(plan)
        if self.bounds[plan] > known:
            return self.bounds[plan]
        family = self.of(plan)
        if family is not None:
            shared = self.nodes.setting.under(plan).shared
            self._take(shared, family.low_k)
        return self.bounds[plan]

    def _by_faster(self, plan: Plan) -> None:
        """Take up what other families prove of a plan whose own is not opened; for that the fastest is."""
        shared = self._in_family(plan)
        if shared is None or shared in self._of:
            return
        first, shares = self._order.first(shared), self._order.than(shared)
        if shares.get(first, 0.0) >= _NEAR:
            self._hear(self._opened(first))
        for one, share in shares.items():
            if one in self._of:
                self._take(shared, share * self._of[one].low_k)

    def _take(self, shared: Instance, low_k: Floats) -> None:
        """Raise the bounds of a family's plans by the seconds that layers take at least, if that is new."""
        taken = self._taken.get(shared, np.zeros_like(low_k))
        if (low_k > taken).any():
            self._taken[shared] = np.maximum(low_k, taken)
            for table in self._tables[shared]:
                self._raise(shared, self._taken[shared], table)

    def _raise(self, shared: Instance, low_k: Floats, table: PlanTable) -> None:
        """The same of one table."""
        mine, bounds, family = table.of_shared(shared), self.bounds, self._of.get(shared)
        alike = [table.plans[number] for number in mine.tolist()]
        hop_i, end_i = np.array([(0.0, 0.0) if family is None else self._hop_s(one, family) for one in alike]).T
        found = table.seconds(mine, low_k, hop_i, end_i).tolist()
        bounds.update((one, low) for one, low in zip(alike, found, strict=True) if low > bounds[one])

    def _hop_s(self, plan: Plan, family: Family) -> tuple[float, float]:
        """Seconds at least in which a chunk of layers hands on what other stages get of a microbatch; at the ends."""

        def least(plan: Plan) -> tuple[float, float]:
            instance, ready = self.nodes.setting.under(plan), (node.ready for node in family.nodes)
            both = list(zip(*(chunk_hops(instance, one.sharded, one.stage_k) for one in ready), strict=True))
            return (min(both[0]), min(both[1])) if both else (0.0, 0.0)

        found: tuple[float, float] = self._hops[family].answer(plan, least)
        return found

    def heard(self, plan: Plan) -> bool:
        """Prove of a plan's family what its communication shows; whether that was not known."""
        family = self.of(plan)
        return family is not None and self._hear(family)

    def _hear(self, family: Family) -> bool:
        new = [node for node in family.nodes if not node.heard]
        for node in new:
            self.nodes.hear(node, np.inf)  # bounds of plans have what their exchanges hide behind
        if new:
            family.take_up()
        return bool(new)

    def squeezed(self, plan: Plan, *, listed: bool = False) -> tuple[float, list[tuple[Node, Ints]]]:
        """What is proven of a plan where its memory is short, and options that come to it for nodes of its family.

        Each layer keeps what its backward pass needs, of every microbatch under way. What room is left for that beside
        the least of everything else limits the schemes. Each resource by itself says what a layer takes at least under
        this limit: a valid bound, as it leaves out all other limits, and partitions. What is shown of more room holds
        for less, so plans with about the same share it. ``listed``: with blocks that are listed, which shows more.
        """
        family, found = self.of(plan), list[tuple[float, Node, Ints | None]]()
        if family is None or len(family.low_k) > 1:
            return self.bounds[plan], []
        room = self.plan_bounds.room(self.nodes.setting.under(plan)) * (1 + _SAME)
        for node in family.nodes:
            if listed and self._ample(node, room):  # nothing more is shown than without a limit
                return self.bounds[plan], []
            kept = self._kept(family, node, room, listed)
            found.append((kept.seconds, node, kept.option_k))
        low_s = max(family.low_s, min((seconds for seconds, _, _ in found), default=0.0))
        if low_s > family.low_s:
            low = np.inf
            if np.isfinite(low_s):
                [table] = self.plan_bounds.tables([plan])
                [low] = table.seconds(None, low_s, *self._hop_s(plan, family)).tolist()
            self.bounds[plan] = max(self.bounds[plan], low)
        return self.bounds[plan], [(node, options_k) for _, node, options_k in found if options_k is not None]

    def _ample(self, node: Node, room: float) -> bool:
        """Whether all schemes keep no more than there is room."""
        menu = self.nodes.menu(node.ready.instance)
        return bool(-menu.least(-menu.by_option("saved_bytes"), node.allowed_o).sum() <= room)

    def _kept(self, family: Family, node: Node, room: float, listed: bool) -> _Kept:
        curve, shown = family.curve.setdefault((node, listed), []), self.nodes.shown
        for one in curve:
            if one.bytes <= room <= one.room or (room <= one.room and np.isinf(one.seconds)):
                return one
        menu = self.nodes.menu(node.ready.instance)
        shows = (shown.listed_within if listed else shown.within)(node, room)
        saved_o, held = menu.by_option("saved_bytes"), room
        if shows.option_k is not None:
            held = min(float(saved_o[shows.option_k].sum()), room)
        curve.append(_Kept(room, held, shows.seconds, shows.option_k))
        return curve[-1]

    def prove(self, plan: Plan, goal: float) -> bool:
        """Prove more of a plan's family, a step at a time, while the plan is not excluded; whether there is more."""
        family = self.of(plan)
        if family is None or family.done:
            return False
        node = family.least
        assert node is not None
        cut, before = node.ready.value_of([self._most(plan, family, goal)]), (node.rooted, node.met, node.lows[0])
        try:
            settled = self.nodes.improve(node, cut, self.nodes.options.clock.allowance(_STEP))
        except (Infeasible, OutOfTime):
            settled = True
        if settled or node.exhausted or (before == (node.rooted, node.met, node.lows[0])):
            family.settled.add(node)
        family.take_up()
        return True

    def _most(self, plan: Plan, family: Family, goal: float) -> float:
        """Seconds of a layer from which on a plan is excluded, or more."""
        instance = self.nodes.setting.under(plan)
        once = plan.at_once * step_time(plan, instance.assumptions, 1.0).total * instance.pipeline[0].runs[0][1]
        # then what is beside the layers depends on them
        beside = hides_any(instance.assumptions, instance.graph) or moves(instance)
        most = goal / once if beside else family.low_s + (goal - self.bounds[plan]) / once
        return most * (1 + _ROUND)

    def agreed(self, plan: Plan) -> frozenset[str]:
        """Kernels about whose outputs blocks had to agree in a plan's family."""
        family = self.of(plan)
        return frozenset[str]().union(*(node.agreed for node in family.nodes)) if family is not None else frozenset()

    def taken_up(self, node: Node) -> Ints | None:
        """Give a node of a plan what is proven of its family; the options of the best that is known of that."""
        family = self.of(node.plan)
        if family is None or family.least is None:
            return None
        if len(family.low_k) > 1:
            node.lows = np.maximum(node.lows, family.low_k).tolist()
            node.proven()
            return None
        node.lows[0], node.heard = max(node.lows[0], family.low_s), True
        node.agreed |= family.least.agreed
        node.proven()
        same = node.ready.tile_count == family.least.ready.tile_count
        if not same or (node.allowed_o != family.least.allowed_o).any():
            return None
        return self.nodes.options_of(family.least)
