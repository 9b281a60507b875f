"""Many plans in few words: records that say only a status are written together, and read again plan by plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cache, lru_cache
from typing import Any, Final

import numpy as np
from pydantic_core import to_json

from dfopt.documents.axes import keys
from dfopt.documents.plan import Plan
from dfopt.documents.plan_records import OPEN, GroupRecord, PlanRecord, UnlistedPlans
from dfopt.documents.uncollected import uncollected
from dfopt.search.graph_search import GraphSearch
from dfopt.search.status_record import AnyRecord, StatusRecord, with_note
from dfopt.setting.plans import Rejected

LISTED: Final = 200
"""Records that a result has at most before some are written together."""

_NEAREST = 40  # records that stay, of the plans with the least bounds
_EXCLUDED = "pruned_by_bound"
_ENTRIES: Final = {
    **{key: None if axis.optional else [1, ()][dims] for key, (axis, dims) in keys().items()},
    **{name: None for name in Plan.model_fields if name != "schema_"},
}
"""What files say of a plan behind its schema, in their order, and where it says nothing itself."""


@uncollected()
def in_few_words(searches: Sequence[GraphSearch]) -> tuple[tuple[PlanRecord, ...], tuple[UnlistedPlans, ...] | None]:
    """The plan records of a result: all, or a selection with the others in compressed form.

    The selection has all records with more than a status, the nearest ones, and for every degree of every axis the
    nearest with it. Where the sharding comes first all stay.
    """
    records = [record for search in searches for record in search.records]
    jointly = searches[0].setting.assumptions.sharding_objective == "joint"
    stay, unlisted = {id(record) for record in records}, list[UnlistedPlans]()
    if jointly and len(records) > LISTED:
        stay = {id(record) for record in _nearest(records)}
        text = cache(_text)  # graphs have most plans in common
        unlisted = [plans for search in searches if (plans := _of_graph(search, stay, text)) is not None]
    kept = (
        with_note(record, search.reason(record))
        for search in searches
        for record in search.records
        if id(record) in stay
    )
    return tuple(sorted(kept, key=lambda each: each.order)), tuple(
        sorted(unlisted, key=lambda each: each.order)
    ) or None


def _of_graph(search: GraphSearch, stay: set[int], text: Callable[[Plan], str]) -> UnlistedPlans | None:
    """The plans of a graph whose records say no more than a status; those of the others are told to stay."""
    if search.apart is not None:  # it lists none
        return None
    places = {key: place for place, key in enumerate(_in_order(search.legal, search.rejected, text))}
    several = Counter(record.plan for record in search.records)
    groups: list[GroupRecord | None] = [None] * len(places)
    group_of = cache(lambda status, note: GroupRecord(status=status, note=note))  # there are few
    for record in search.records:
        if (place := places.get((record.plan, ""))) is None:
            place = places.get((record.plan, record.note))
        if place is None or several[record.plan] > 1 or not _says_status(record):
            stay.add(id(record))
        elif id(record) not in stay:
            groups[place] = group_of(record.status, record.note if record.status in OPEN else "")
    return UnlistedPlans.of(search.setting.graph, groups) if any(groups) else None


def expanded(
    plans: UnlistedPlans, legal: Sequence[Plan], rejected: Sequence[Rejected], to_beat: float, bound: float
) -> Iterator[PlanRecord]:
    """A record of every plan of a compressed list.

    Parameters
    ----------
    plans : UnlistedPlans
        The compressed list.
    legal, rejected : sequences of Plan and Rejected
        The plans, listed again.
    to_beat, bound : float, s
        Bound of excluded plans, and of open ones.

    Raises
    ------
    ValueError
        If these are not the plans that were written.
    """
    bounds = {_EXCLUDED: to_beat, **dict.fromkeys(OPEN, bound)}
    for (plan, reason), group in zip(_in_order(legal, rejected), plans.group_of_each, strict=True):
        if group is not None:
            low = bounds.get(group.status)
            yield PlanRecord(
                plan=plan, variant=plans.variant, status=group.status, bound=low, level_bound=low,
                note=group.note or reason,
            )  # fmt: skip


def _text(plan: Plan) -> str:
    """What files say of a plan behind its schema."""
    values = _ENTRIES | plan.__dict__ | plan.__pydantic_extra__
    return ",".join([_entry(name, values[name]) for name in _ENTRIES if values[name] is not None]) + "}"


@lru_cache(maxsize=4096)  # plans have most of them in common
def _entry(name: str, value: Any) -> str:
    return f'"{name}":{to_json(value).decode()}'


def _in_order(
    legal: Sequence[Plan], rejected: Sequence[Rejected], text: Callable[[Plan], str] = _text
) -> list[tuple[Plan, str]]:
    """All plans of a graph in the order of their text; with each that is rejected, the reason."""
    every = [(plan, "") for plan in legal] + [(each.plan, each.reason) for each in rejected]
    return sorted(every, key=lambda each: (text(each[0]), each[1]))


def _chosen(plan: Plan) -> set[object]:
    """Every value of what plans choose, with its axis or field."""
    return {*enumerate(axis.degree for axis in plan.axes), ("chunks", plan.interleave), ("zero", plan.zero)}


def _nearest(records: Sequence[AnyRecord]) -> Iterator[AnyRecord]:
    """Records of the plans with the least bounds, and of the first one with every value of what plans choose."""
    seen, alike = set[object](), set[Hashable]()  # plans with the same axes share them
    least = sorted(records, key=lambda r: np.inf if r.bound is None else r.bound)
    for number, record in enumerate(least):
        plan, is_new = record.plan, False
        if (key := (id(plan.axes), plan.interleave, plan.zero)) not in alike:
            alike.add(key)
            is_new = not _chosen(plan) <= seen
            seen |= _chosen(plan)
        if number < _NEAREST or is_new:
            yield record


def _says_status(record: AnyRecord) -> bool:
    """Whether a record says no more of its plan than a status, and a bound that holds for all shardings."""
    if isinstance(record, StatusRecord):
        return record.tile_count is None
    says = record.tile_count, record.value, *record.solves
    bounded = record.status == "infeasible" or record.level_bound == record.bound
    return bounded and set(says) <= {None} and record.status in (_EXCLUDED, "infeasible", *OPEN)
