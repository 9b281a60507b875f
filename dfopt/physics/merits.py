"""What designs are compared by: figures of the step time, the power and the price of a whole system.

Each is non-decreasing in all three, so the same figure of lower bounds is a lower bound. For one system the fastest
mapping is the best one under each, as power and price are those of the system.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from dfopt.documents.score import Score

__all__ = ["MERITS", "Merit"]


@dataclass(frozen=True)
class Merit:
    """One figure of a system and its mapping; ``unit`` such as ``s``.

    ``needs``: what of a system it needs beside the time of a step: ``w``, its power, or ``usd``, its price.
    ``value``: (seconds of a step, W, USD) -> the figure; non-decreasing in each.
    ``most_s``: (figure, W, USD) -> the longest step with which the figure is not exceeded; 0 where any step exceeds it.

    Examples
    --------
    >>> energy = MERITS["energy"]
    >>> energy.value(2.0, 700.0, 0.0), energy.most_s(1400.0, 700.0, 0.0)
    (1400.0, 2.0)
    """

    unit: str
    needs: Literal["w", "usd"] | None
    value: Callable[[float, float, float], float]
    most_s: Callable[[float, float, float], float]

    def of(self, score: Score) -> float | None:
        """The figure of a judged mapping; none where its system does not say what that takes."""
        if (self.needs == "w" and score.power_w is None) or (self.needs == "usd" and score.price_usd is None):
            return None
        return self.value(score.step_time_s, score.power_w or 0.0, score.price_usd or 0.0)


def _part(value: float, of: float) -> float:
    return value / of if of > 0 else math.inf


MERITS = {
    "time": Merit("s", None, lambda s, w, usd: s, lambda value, w, usd: value),
    # at full power all the time, as the judge's energy of a step
    "energy": Merit("J", "w", lambda s, w, usd: s * w, lambda value, w, usd: _part(value, w)),
    "cost": Merit("USD", "usd", lambda s, w, usd: usd, lambda value, w, usd: math.inf if usd <= value else 0.0),
    "time*cost": Merit("USD s", "usd", lambda s, w, usd: s * usd, lambda value, w, usd: _part(value, usd)),
}
"""By the name of the objective."""
