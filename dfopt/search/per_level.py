"""Records of plans whose sharding came first: what is shown of mappings with it, and of all mappings."""

from __future__ import annotations

from dfopt.documents.plan_records import PlanRecord
from dfopt.interrupts import LIMIT
from dfopt.regions.sharded_first import ShardedFirst

__all__ = ["per_level"]


def per_level(record: PlanRecord, least: float, beat: float, chosen: ShardedFirst) -> PlanRecord:
    """A record of mappings with one sharding as one of the plan.

    Parameters
    ----------
    record : PlanRecord
        What is shown of mappings with the sharding that was chosen.
    least : float, s
        What no mapping of the plan is below.
    beat : float, s
        Value from which on nothing of the plan is of interest.
    chosen : ShardedFirst
        How the sharding was chosen.
    """
    if chosen.alone and chosen.proven:
        return record
    status, level, note = record.status, record.bound, record.note
    if not chosen.proven:  # another sharding may be the best by itself
        status, level = "solved" if record.value == least else "limit", least
        note = note or LIMIT * (status == "limit")  # nothing but time ends such a solve
    elif status == "infeasible":
        status = "infeasible_per_level"
    elif status == "pruned_by_bound" and least < beat:
        status = "pruned_per_level"
    gap = None if record.value is None or level is None else (record.value - level) / record.value
    least = least if record.value is None else min(least, record.value)
    return record.model_copy(update={"status": status, "bound": least, "level_bound": level, "gap": gap, "note": note})
