"""What could be shown once more of the plans of a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dfopt.documents.plan_records import PlanRecord

__all__ = ["PROOF", "Low", "least_of"]

Sizes = frozenset[int | None]
NONE: Sizes = frozenset()
PROOF = 1e-6  # relative: what judge and problems may differ by (architecture, law 5)


@dataclass(frozen=True)
class Low:
    """What could be shown of a plan.

    Attributes
    ----------
    every, level : float, optional, s
        What no mapping, and none with its sharding, is below; none: none fits.
    why : str
        Why no more could be shown, or why nothing fits.
    whole : bool
        Whether both are the same, since there is only one sharding, or it is chosen with the fusion.
    fits, open_ : set of int
        Tile counts (none where that is no choice) of which some mapping is known, and others of which it was not
        decided whether any fits.
    of_size : dict
        What could be shown of single tile counts, as ``level``; infinite where nothing fits.
    """

    every: float | None
    level: float | None
    why: str
    whole: bool = False
    fits: Sizes = NONE
    open_: Sizes = NONE
    of_size: Mapping[int | None, float] = field(default_factory=dict)

    def beside(self, record: PlanRecord, *, whole: bool) -> Low:
        """The same with what a record shows of another tile count."""
        bounds = [bound for bound in (self.every, record.bound) if bound is not None]
        levels = [level for level in (self.level, record.level_bound) if level is not None]
        shown, found = record.level_bound is not None, record.value is not None
        lowest = shown and record.level_bound == min(levels)
        size = frozenset({record.tile_count}) if shown else NONE
        return Low(
            every=min(bounds, default=None),
            level=min(levels, default=None),
            why=record.note or "a faster mapping may exist" if lowest else self.why,
            whole=self.whole and whole,
            fits=self.fits | (size if found else NONE),
            open_=self.open_ | (NONE if found else size),
            of_size={**self.of_size, record.tile_count: np.inf if record.level_bound is None else record.level_bound},
        )


def least_of(lows: Sequence[Low]) -> Low:
    """What is shown of several together: the least, unless none fits any."""
    if len(lows) == 1:
        return lows[0]
    levels = [one.level for one in lows if one.level is not None]
    some = [one for one in lows if one.every is not None]
    least = min(some, key=lambda one: one.every or 0.0, default=lows[0])
    fits, open_ = NONE.union(*(one.fits for one in lows)), NONE.union(*(one.open_ for one in lows))
    level, whole = min(levels, default=None), all(one.whole for one in lows)
    return replace(least, level=level, whole=whole, fits=fits, open_=open_, of_size={})
