"""How products of a plan hide collectives, where it is not known beforehand which way is the fastest.

Rings never cost more than pipes or nothing hidden, of any mapping: what a communication adds to the work is less
(:mod:`dfopt.physics.tiled`), and so is what chips hold and move, where less of it is counted behind a product. So what
no mapping beats in rings none beats in another way, in the same schemes and partitions, wherever a step is
non-decreasing in the time of a layer.

Where exchanges are hidden behind the backward pass as Calculon counts it (:mod:`dfopt.physics.window`) it is, but for
one thing: how many messages to other stages are in the way of a chunk's exchange is a whole number, which falls as the
backward pass gets longer, and then a step is shorter by as much. What is proven of figures at their least counts none
of them, so it holds in every way; what one mapping takes in rings does not. A plan therefore stands for all ways, of
which the ring is looked at. If what is proven of all of them is not enough in the end, the others follow, each as a
plan of its own. With one chunk of layers in a stage, or exchanges on another network than messages, there is nothing in
the way, and no other way is better.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.physics.window import by_window
from dfopt.search.node import Node
from dfopt.setting.instance import Setting
from dfopt.terms.sharded_graph import tile_counts
from dfopt.terms.step.overlap import in_the_way

if TYPE_CHECKING:
    from dfopt.search.jointly import JointSearch

__all__ = ["Hiding"]

_BESIDE_RINGS: Final[tuple[Literal["pipe_twice", "none"], ...]] = ("pipe_twice", "none")


class Hiding:
    """The ways to hide collectives that plans of one setting stand for while a search goes on."""

    def __init__(self, setting: Setting, request: Request) -> None:
        self.setting = setting
        some = request.tensor_overlap == "any" and by_window(setting.assumptions, setting.graph)
        self.menu = _BESIDE_RINGS if some else ()
        self._waiting = Counter[Plan]()  # entries of the heap

    @cached_property
    def _counts(self) -> tuple[int | None, ...]:
        return None, *tile_counts(self.setting.graph, self.setting.assumptions)

    def others(self, plan: Plan) -> list[Plan]:
        """Plans that differ in the way only, which may be faster than in rings."""
        alone = plan.shards == 1 or plan.copies == 1 or plan.interleave == 1
        if not self.menu or plan.tensor_overlap is not None or alone or not in_the_way(plan):
            return []
        return [plan.model_copy(update={"tensor_overlap": way}) for way in self.menu]

    def base(self, plan: Plan) -> Plan:
        """The plan that stood for one with a way of its own."""
        return plan if plan.tensor_overlap is None else plan.model_copy(update={"tensor_overlap": None})

    def entered(self, what: Plan | Node) -> None:
        """A plan, or a node of it, is in the heap."""
        if self.menu:
            self._waiting[what if isinstance(what, Plan) else what.plan] += 1

    def left(self, search: JointSearch, what: Plan | Node) -> None:
        """A step was taken: if it was the last of a plan in rings, what is left of the other ways follows."""
        if not self.menu:
            return
        plan = what if isinstance(what, Plan) else what.plan
        self._waiting[plan] -= 1
        if self._waiting[plan] or any(one.plan == plan for one in search.waiting):
            return
        others = self.others(plan)
        units = [search.units[plan, tiles] for tiles in self._counts if (plan, tiles) in search.units]
        if not others or not units:  # nothing fits: in no other way a chip holds less
            return
        every = min(one.every for one in units)
        goal = max(search._goal((one, None)) for one in others)
        if search._out_of_time(True) or np.isinf(every) or (every >= goal and not search.told_apart(others)):
            for unit in units:
                unit.low = min(unit.low, unit.every)
            return
        tables = search.plan_bounds.tables(others)
        for table in tables:
            search.used.update(zip(table.plans, table.used_i.tolist(), strict=True))
            lows = np.maximum(table.seconds(), every).tolist()
            search.bounds.update(zip(table.plans, lows, strict=True))
        search.families.add(tables)
        for one in others:
            search._push(search.bounds[one], one)
