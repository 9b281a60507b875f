"""Units of work, which say what is tried next, and a deadline, which only ends a run.

Two runs that count the same work take the same steps, on an idle machine or a busy one, unless the deadline ends one.
"""

from __future__ import annotations

import math
import time

__all__ = ["Clock"]


class Clock:
    """Counts the work of a search, and says when the search has to end.

    An entry of a search charges the work that it does. One unit is about what a step in the middle of an inner loop
    costs; each entry says in its documentation what it charges.

    Parameters
    ----------
    deadline : float, s
        Reading of :func:`time.perf_counter` at which the run ends.
    work : float, units
        Work after which the run ends.

    Examples
    --------
    >>> clock = Clock(work=100.0)
    >>> part = clock.allowance(30.0)
    >>> part.charge(40.0)
    >>> part.over, clock.over, clock.spent
    (True, False, 40.0)
    """

    def __init__(self, deadline: float = math.inf, work: float = math.inf, *, within: Clock | None = None) -> None:
        self.deadline, self.work, self.spent = deadline, work, 0.0
        self._within = within

    def charge(self, units: float) -> None:
        """Count some work, here and in the clock that this one is a part of."""
        self.spent += units
        if self._within is not None:
            self._within.charge(units)

    @property
    def over(self) -> bool:
        """Whether the work is spent or the deadline has come, here or in the clock that this one is a part of."""
        if self._within is not None and self._within.over:
            return True
        return self.spent >= self.work or time.perf_counter() > self.deadline

    def allowance(self, work: float) -> Clock:
        """A part of this clock that is over after so many units of work."""
        return Clock(work=work, within=self)
