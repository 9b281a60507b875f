"""Plans of which it is open what lies in which memory of the chips, and what they become when it is chosen.

A plan stands for all of its placements until something faster than all of them is not known any more
(:mod:`dfopt.setting.offloads` says why that is sound); then for that with least in slower memories.
"""

from __future__ import annotations

import heapq
import itertools
from functools import cached_property
from typing import TYPE_CHECKING, Final

from dfopt.documents.placement import Placement
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.errors import Infeasible
from dfopt.setting.instance import Setting
from dfopt.setting.offloads import looked_at_later, offloads

if TYPE_CHECKING:
    from dfopt.search.jointly import JointSearch

__all__ = ["Placing", "place"]

_TOGETHER: Final = 64
_ROUNDED: Final = 1e-9


class Placing:
    """The placements of the plans of one setting, as far as they are chosen while the search goes on."""

    def __init__(self, setting: Setting, request: Request) -> None:
        self.setting, self.request = setting, request
        self.chosen = set[Plan]()  # plans that no longer stand for all placements
        self.refused = set[Plan]()  # plans that fit with none
        self._every, self._base = dict[Plan, list[Plan]](), dict[Plan, Plan]()

    @cached_property
    def menu(self) -> tuple[Placement | None, ...]:
        """What each plan may have; nothing where there is no choice."""
        setting = self.setting
        if self.request.offload is None or not looked_at_later(setting.graph, setting.assumptions):
            return ()
        found = tuple(offloads(setting.graph, setting.system, setting.assumptions, self.request))
        return found if len(found) > 1 else ()

    def is_open(self, plan: Plan) -> bool:
        """Whether a plan stands for all of its placements."""
        return bool(self.menu) and plan not in self.chosen and plan.placement == self.menu[0]

    def every(self, plan: Plan) -> list[Plan]:
        """A plan with each of its placements, itself first."""
        if not self.menu:
            return [plan]
        if plan not in self._every:
            found = self._every[plan] = [self._with(plan, one) for one in self.menu]
            self._base.update((one, found[0]) for one in found[1:])
        return self._every[plan]

    def base(self, plan: Plan) -> Plan:
        """The plan that stood for one with a placement."""
        if not self.menu:
            return plan
        return self._base[plan] if plan in self._base else self._with(plan, self.menu[0])

    def _with(self, plan: Plan, placement: Placement | None) -> Plan:
        return plan if plan.placement == placement else plan.model_copy(update={"placement": placement})


def place(search: JointSearch, plan: Plan, bound: float) -> None:
    """Go on with every placement of a plan with which it may fit the memories, or show that there is none.

    Others that come next anyhow are bounded with it: many at a time are not much more work than one.
    """
    if search.families.heard(plan):  # of all of them at once
        search._push(max(search.families.raised(plan), bound), plan)
        return
    if plan in search.placing.refused:
        _nothing_fits(search, plan)
        return
    every, used = _every(search, plan)
    fitting = [child for children in every.values() for child in children if used[child] <= 1.0 + _ROUNDED]
    tables, lows = search.plan_bounds.tables(fitting), dict[Plan, float]()
    for table in tables:
        lows.update(zip(table.plans, table.seconds().tolist(), strict=True))
    for one, children in every.items():
        least = max(search.bounds[one], bound)
        search.bounds.update((child, max(lows.get(child, 0.0), least)) for child in children)
        search.used.update((child, used[child]) for child in children)
    search.families.add(tables)
    for one, children in every.items():
        if not any(child in lows for child in children):
            search.placing.refused.add(one)  # others have their turn
            if one == plan:
                _nothing_fits(search, plan)
            continue
        search.placing.chosen.add(one)
        for child in children:
            if child not in lows and child != one:
                note = f"a chip holds {used[child]:.4g} times what one of its memories has at least"
                search._note(child, None, status="infeasible", note=note)
            elif child != one or one == plan:  # the other plans are there already
                search._push(search.bounds[child], child)


def _every(search: JointSearch, plan: Plan) -> tuple[dict[Plan, list[Plan]], dict[Plan, float]]:
    """A plan and others that come next, with all placements of each; the share of a memory that each of these takes."""
    goal, placing = search._goal((plan, None)), search.placing
    next_ = (entry.what for entry in heapq.nsmallest(_TOGETHER, search.heap) if entry.bound < goal)
    others = (one for one in next_ if isinstance(one, Plan) and placing.is_open(one) and one not in placing.refused)
    every = {one: placing.every(one) for one in (plan, *others)}
    used = dict[Plan, float]()
    for table in search.plan_bounds.tables(itertools.chain(*every.values())):
        used.update(zip(table.plans, table.used_i.tolist(), strict=True))
    return every, used


def _nothing_fits(search: JointSearch, plan: Plan) -> None:
    """Put on record that a plan fits with no placement, with what it holds where most lies in slower memories."""
    least = search.placing.every(plan)[-1]
    try:
        search.plan_bounds.check_dram(search.setting.under(least))
        note = "no placement keeps all memories"
    except Infeasible as error:
        note = str(error.report)
    search.reasons.append(f"{plan.label}: {note}")
    search._note(plan, None, status="infeasible", note=note)
