"""A record of a plan that says no more than a status and a bound: a search makes hundreds of thousands of them."""

from __future__ import annotations

from typing import NamedTuple

from dfopt.documents.plan import Plan
from dfopt.documents.plan_records import PlanRecord, PlanStatus, SolveRecord

_EMPTY = PlanRecord(plan=Plan(), status="not_reached", bound=None)


class StatusRecord(NamedTuple):
    """A compact plan record with only a status and a bound; attributes are those of a :class:`PlanRecord`."""

    plan: Plan
    tile_count: int | None
    variant: str | None
    status: PlanStatus
    bound: float | None
    level_bound: float | None
    note: str = ""
    value: None = None
    solves: tuple[SolveRecord, ...] = ()


AnyRecord = PlanRecord | StatusRecord
"""A record of a plan, for a result or not."""


def with_note(record: AnyRecord, note: str) -> PlanRecord:
    """A full plan record with ``note`` as the reason of its status."""
    if isinstance(record, PlanRecord):
        return record.model_copy(update={"note": note})
    return _EMPTY.model_copy(update={**record._asdict(), "note": note})  # nothing to validate, and there may be many
