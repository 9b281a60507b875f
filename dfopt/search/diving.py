"""A first mapping where memory is short: of plans with room to spare.

Plans are looked at in the order of what is proven of them, and where memory is short the first thousands may hold too
much, each of which has to be shown. Without any mapping nothing else excludes them. So after some steps without one,
plans that hold little at least, and of those the ones that look fastest, are mapped with the schemes that take the
least in the room that they leave (:meth:`dfopt.search.families.Families.squeezed`), or level by level.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from dfopt.bnb import Clock
from dfopt.documents.plan import Plan
from dfopt.search.solved import by_levels
from dfopt.search.starts.estimates import estimated
from dfopt.terms.sharded_graph import tile_counts
from dfopt.terms.step.ledger import usable_bytes

if TYPE_CHECKING:
    from dfopt.search.jointly import JointSearch

__all__ = ["dive"]

_ROOM: Final = 0.9, 0.7, 0.5  # shares of a memory that a plan may hold at least
_SHARE: Final = 0.1  # of the time, at most, to look for plans, and as much for each mapping


def dive(searches: Sequence[JointSearch]) -> None:
    """Look for a first mapping of some searches that have begun; what is found is theirs."""
    end = searches[0].options.clock.share(_SHARE)
    found = [(about, number, plan) for number, search in enumerate(searches) for about, plan in _roomy(search, end)]
    for about, number, plan in sorted(found, key=lambda one: (*one[:2], one[2].label)):
        search = searches[number]
        if about >= search.incumbent or search.stopped:
            return
        if search.squeeze(plan):
            continue
        options = replace(search.options, clock=search.options.clock.share(_SHARE))
        counts = tile_counts(search.setting.graph, search.setting.assumptions)
        for tiles in counts:
            outcome = by_levels(search.setting.under(plan), options, search.memo, tiles, search.incumbent)
            if outcome is not None:
                search._keep(search.unit_of(plan, tiles), outcome)
                break


def _roomy(search: JointSearch, end: Clock) -> Iterator[tuple[float, Plan]]:
    """For every group of chips that share kernels, and for every share of a memory, a plan that holds no more at least.

    It is the one that may be the fastest of these.
    """
    limits = usable_bytes(search.setting)
    joint = {plan: low for plan, low in search.bounds.items() if plan not in search.levelled}
    about = estimated(search.setting, joint) if limits else {}
    wanted = {plan.shard_dims: list(_ROOM) for plan in about}
    for plan in sorted(about, key=lambda one: (about[one], one.label)):
        if not wanted or end.over:
            return
        end.charge(1.0)
        if plan.shard_dims not in wanted:
            continue
        share, rooms = search.used[plan], wanted[plan.shard_dims]
        if share <= rooms[0]:
            yield about[plan], plan
        if left := [most for most in rooms if share > most]:
            wanted[plan.shard_dims] = left
        else:
            del wanted[plan.shard_dims]
