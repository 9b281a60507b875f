"""Heat as a leaf: one plan and one sharding, which are re-optimised under the limits on heat.

Without heat nothing is slower, so what is shown of a region without it holds with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

import numpy as np

from dfopt.bnb import Candidate, LeafAnswer, Parameters, branch_and_bound
from dfopt.documents.plan import Plan
from dfopt.errors import Infeasible, PlanError
from dfopt.regions.facts import Memory
from dfopt.regions.leaves import Limited
from dfopt.regions.problem import one_by_one
from dfopt.regions.space import Space
from dfopt.setting.instance import Setting
from dfopt.solving.options import Options
from dfopt.solving.solved import Solved

__all__ = ["least_with_heat"]


class WithHeat(Protocol):
    """A mapping that keeps the limits on heat: its seconds of a step, and what none with its sharding is below."""

    @property
    def step_s(self) -> float:
        """Seconds of a step."""

    @property
    def bound_s(self) -> float:
        """What no mapping with the sharding is below."""


class Heat(Limited[WithHeat]):
    """The partitions, levels and pauses of one plan and sharding, from the mapping that is best without heat."""

    def __init__(self, aware: Callable[[Solved], WithHeat], options: Options) -> None:
        super().__init__(options)
        self._aware = aware

    def limited(self, free: Solved, low: float, cutoff: float) -> LeafAnswer:
        """The mapping with its bound; only the bound where its blocks are too many."""
        try:
            found = self._aware(free)
        except Infeasible:
            return LeafAnswer([])
        except PlanError:  # its blocks cannot be listed: nothing is shown
            return LeafAnswer([], low)
        return LeafAnswer([Candidate(found.step_s, found)], max(low, found.bound_s))


def least_with_heat(
    plans: Mapping[Setting, Sequence[Plan]],
    options: Options,
    aware: Callable[[Solved], WithHeat],
    best_s: float,
) -> float:
    """What no mapping under some plans is below, whatever the sharding; those that may be are asked about.

    Parameters
    ----------
    plans : dict
        Plans by setting; the pipeline stages of none are open.
    options : Options
        The gap and the clock of the search.
    aware : callable
        From the best mapping without heat of a plan and sharding to that which keeps the limits. It may raise
        Infeasible, and PlanError where nothing can be said.
    best_s : float, s
        Seconds of a step of the best mapping that is known.
    """
    memory = Memory()
    spaces = [Space(setting, options.request, partial(list, mine)) for setting, mine in plans.items()]
    problem = one_by_one(spaces, memory, Heat(aware, options))
    kept = [Candidate(best_s, None)] if np.isfinite(best_s) else []
    return branch_and_bound(problem, Parameters(gap=options.request.gap), clock=options.clock, kept=kept).bound
