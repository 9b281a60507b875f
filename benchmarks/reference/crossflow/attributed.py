"""Seconds that know how much work they are, at which rates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import total_ordering


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Attributed:
    """Seconds: a constant, and amounts of work over the rates at which each kind is done.

    A formula of sums, positive multiples and the larger of two, such as a roofline, comes to ``seconds`` at the rates
    that it was computed with. With the same work it is a lower bound of that formula at any other rates, where the
    larger of two may be the other one.

    Examples
    --------
    >>> quick, slow = Rate(100.0, (1.0, 0.0)), Rate(10.0, (0.0, 1.0))
    >>> time = 2 * (max(50 / quick, 20 / slow) + 1.0)
    >>> time.seconds, time.work
    (6.0, (0.0, 40.0))
    """

    seconds: float
    work: tuple[float, ...]

    def __add__(self, other: Attributed | float) -> Attributed:
        if isinstance(other, Attributed):
            return Attributed(
                self.seconds + other.seconds, tuple(a + b for a, b in zip(self.work, other.work, strict=True))
            )
        return Attributed(self.seconds + other, self.work)

    __radd__ = __add__

    def __mul__(self, times: float) -> Attributed:
        return Attributed(self.seconds * times, tuple(part * times for part in self.work))

    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        return self.seconds == _seconds(other)

    def __lt__(self, other: Attributed | float) -> bool:
        return self.seconds < _seconds(other)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Rate:
    """Work per second; ``kind`` is 1 at the place that this work has among all kinds, 0 elsewhere."""

    value: float
    kind: tuple[float, ...]

    def __rtruediv__(self, work: float) -> Attributed:
        return Attributed(work / self.value, tuple(work * here for here in self.kind))

    def __truediv__(self, by: float) -> Rate:
        return Rate(self.value / by, self.kind)

    def __gt__(self, other: float) -> bool:
        return self.value > other

    def __le__(self, other: float) -> bool:
        return self.value <= other


def _seconds(value: object) -> float:
    return value.seconds if isinstance(value, Attributed) else float(value)  # type: ignore[arg-type]
