"""What a step takes and what chips hold under a plan, at least in any of several numbers of tiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dfopt.documents.mapping import Sharding
from dfopt.judge.steps import Domain, PlanSteps

__all__ = ["TileSteps"]


class TileSteps(NamedTuple):
    """Steps of a plan, one for each number of tiles; see :class:`~dfopt.judge.steps.PlanSteps`."""

    each: Sequence[PlanSteps]

    @property
    def by_total(self) -> bool:
        """Whether only what the passes of a layer take together matters."""
        return all(steps.by_total for steps in self.each)

    def least(self, pass_s: Mapping[tuple[int, bool], float], domain_k: Domain) -> float:
        """Seconds that no mapping undercuts."""
        return min(steps.least(pass_s, domain_k) for steps in self.each)

    def may_fit(self, domain_k: Domain) -> bool:
        """Whether memories may hold a mapping."""
        return any(steps.may_fit(domain_k) for steps in self.each)

    def replaces(self, number: int, scheme: Sharding, other: Sharding) -> bool:
        """Whether a kernel with a scheme is nowhere more than with another."""
        return all(steps.replaces(number, scheme, other) for steps in self.each)
