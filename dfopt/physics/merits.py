"""What designs are compared by: figures of the step time, the power and the price of a whole system.

Each is non-decreasing in all three, so the same figure of lower bounds is a lower bound. For one system the fastest
mapping is the best one under each, as power and price are those of the system. A limit on any of the three makes the
figure infinite beyond it, which is non-decreasing too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from dfopt.documents.exploration import DesignLimits
from dfopt.documents.score import Score

__all__ = ["MERITS", "Merit"]

Need = Literal["w", "usd"]
_ROUND = 1e-9


@dataclass(frozen=True)
class Merit:
    """One figure of a system and its mapping; ``unit`` such as ``s``.

    ``needs``: what of a system it needs beside the time of a step: ``w``, its power, ``usd``, its price, or both.
    ``value``: (seconds of a step, W, USD) -> the figure; non-decreasing in each.
    ``most_s``: (figure, W, USD) -> the longest step with which the figure is not exceeded; 0 where any step exceeds it.

    Examples
    --------
    >>> energy = MERITS["energy"]
    >>> energy.value(2.0, 700.0, 0.0), energy.most_s(1400.0, 700.0, 0.0)
    (1400.0, 2.0)
    """

    unit: str
    needs: tuple[Need, ...]
    value: Callable[[float, float, float], float]
    most_s: Callable[[float, float, float], float]

    def of(self, score: Score) -> float | None:
        """The figure of a judged mapping; none where its system does not say what that takes."""
        if ("w" in self.needs and score.power_w is None) or ("usd" in self.needs and score.price_usd is None):
            return None
        return self.value(score.step_time_s, score.power_w or 0.0, score.price_usd or 0.0)

    def within(self, limits: DesignLimits | None) -> Merit:
        """The figure of what keeps some limits; infinite for what does not.

        Examples
        --------
        >>> cheap = MERITS["cost"].within(DesignLimits(step_time=0.05, power=1000.0))
        >>> cheap.needs, cheap.value(0.04, 900.0, 7e4), cheap.value(0.06, 900.0, 7e4), cheap.value(0.04, 1100.0, 7e4)
        (('usd', 'w'), 70000.0, inf, inf)
        """
        if limits is None:
            return self
        most_s, most_w, most_usd = (
            math.inf if most is None else most * (1 + _ROUND) for most in (limits.step_time, limits.power, limits.price)
        )
        pairs: tuple[tuple[Need, float | None], ...] = (("w", limits.power), ("usd", limits.price))
        needed = [need for need, most in pairs if most is not None]

        def keeps(w: float, usd: float) -> bool:
            return w <= most_w and usd <= most_usd

        def value(s: float, w: float, usd: float) -> float:
            return self.value(s, w, usd) if s <= most_s and keeps(w, usd) else math.inf

        def longest_s(most: float, w: float, usd: float) -> float:
            # a little more than the limit: what is not faster than that does not keep it
            return min(self.most_s(most, w, usd), most_s * (1 + _ROUND)) if keeps(w, usd) else 0.0

        return Merit(self.unit, tuple(dict.fromkeys((*self.needs, *needed))), value, longest_s)


def _part(value: float, of: float) -> float:
    return value / of if of > 0 else math.inf


MERITS = {
    "time": Merit("s", (), lambda s, w, usd: s, lambda value, w, usd: value),
    # at full power all the time, as the judge's energy of a step
    "energy": Merit("J", ("w",), lambda s, w, usd: s * w, lambda value, w, usd: _part(value, w)),
    "cost": Merit("USD", ("usd",), lambda s, w, usd: usd, lambda value, w, usd: math.inf if usd <= value else 0.0),
    "time*cost": Merit("USD s", ("usd",), lambda s, w, usd: s * usd, lambda value, w, usd: _part(value, usd)),
}
"""By the name of the objective."""
