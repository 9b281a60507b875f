"""The metrics of designs: what a system with its best mapping is judged by, and limited in.

Those of `dfopt.physics.metrics` are of mappings on one system, of which the time of a step is the one that mappings are
made for; with it these weigh systems against one another. Each goes linearly with the time of a step, with factors that
are non-decreasing in the watts and the USD of a system: the rule ``non-decreasing``. So of the least of each it is no
more than of any system, and on one system the fastest mapping is the best one. The rule ``least joules`` has a bound of
its own on the joules of a step, linear in its time as well; there the fastest mapping is no more than a good one.
Searches have the reciprocals of what is to be large. A limit makes a figure infinite beyond it.

Scores have most of them too: of `time`, `tokens_per_s`, `watts`, `cost`, `energy` the fields ``step_time_s``,
``tokens_per_s``, ``power_w``, ``price_usd``, ``energy_per_step_j``, and of `tokens_per_j` the reciprocal of
``physical.energy_per_token_j``.

Another metric takes five files: its name and sense in ``documents/exploration_request.py``, an entry here, its name in
``cli/technology_commands.py``, a line in ``guide/designs.md``, its figure in ``tests/exploring/test_objectives.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from dfopt.documents.exploration_request import DesignLimits, ObjectiveName, turned

NeededFigure = Literal["w", "usd", "device_w", "j"]
Rule = Literal["non-decreasing", "least joules"]
_ROUND = 1e-9
_CAP_W = 100.0  # of a device: what draws more is slowed down in DeepStack's merit


class MeritFigures(NamedTuple):
    """Inputs of a metric in addition to the step: power, price, energy and clock of a system and mapping.

    ``w``, ``usd``: power (W) and price (USD) of the system; ``device_w``: power of a chip; each in full use.
    ``once_j``, ``flows_w``: energy of a step (J), and constant power in addition (W). ``clock``: share of the nominal
    clock, which lengthens a step; the highest of several.

    ``tokens`` are those of a step.
    """

    tokens: float = 1.0
    w: float = 0.0
    usd: float = 0.0
    device_w: float = 0.0
    once_j: float = 0.0
    flows_w: float = 0.0
    clock: float = 1.0


@dataclass(frozen=True)
class Merit:
    """A metric of a design: name, unit (such as ``tokens/s``), formula in words, and its evaluation.

    ``needs``: data of a system that it needs in addition to the step time. ``parts``: its constant part and its part
    per second of a step, where less is better.

    Examples
    --------
    >>> energy = MERITS["energy"]
    >>> energy.value(2.0, MeritFigures(w=700.0)), energy.most_s(1400.0, MeritFigures(w=700.0))
    (1400.0, 2.0)
    >>> rate = MERITS["tokens_per_s"]
    >>> rate.value(2.0, MeritFigures(tokens=8.0)), rate.shown(0.25)
    (0.25, 4.0)
    """

    name: ObjectiveName
    unit: str
    formula: str
    needs: tuple[NeededFigure, ...]
    parts: Callable[[MeritFigures], tuple[float, float]]
    rule: Rule = "non-decreasing"
    limits: DesignLimits | None = None

    @property
    def sense(self) -> Literal["minimize", "maximize"]:
        """``minimize`` or ``maximize``."""
        return "minimize" if self.shown(2.0) == 2.0 else "maximize"

    def shown(self, figure: float) -> float:
        """Convert a value of the search to the unit of the metric, or back."""
        return turned(self.name, figure)

    def value(self, seconds: float, of: MeritFigures) -> float:
        """Value that a search minimizes, for a step of ``seconds`` at the nominal clock; infinite beyond limits."""
        if not of.clock or seconds / of.clock > self._most(0) or of.w > self._most(1) or of.usd > self._most(2):
            return math.inf
        once, each = self.parts(of)
        return once + (each * seconds / of.clock if each else 0.0)

    def most_s(self, value: float, of: MeritFigures) -> float:
        """Longest step at the nominal clock, s, with a value of at most ``value``; 0 if there is none.

        With a limit on the step it is slightly more than that limit, as slower steps break the limit.
        """
        once, each = self.parts(of)
        if once > value or of.w > self._most(1) or of.usd > self._most(2):
            return 0.0
        return min((value - once) / each if each else math.inf, self._most(0) * (1 + _ROUND)) * of.clock

    def _most(self, at: int) -> float:
        of = self.limits or DesignLimits()
        most = (of.step_time, of.power, of.price)[at]
        return math.inf if most is None else most * (1 + _ROUND)

    def within(self, limits: DesignLimits | None) -> Merit:
        """The metric restricted by limits: infinite for designs that exceed one.

        Examples
        --------
        >>> cheap, seventy = MERITS["cost"].within(DesignLimits(step_time=0.05, power=1000.0)), MeritFigures(usd=7e4)
        >>> cheap.needs, cheap.value(0.04, seventy), cheap.value(0.06, seventy)
        (('usd', 'w'), 70000.0, inf)
        """
        if limits is None:
            return self
        pairs: tuple[tuple[NeededFigure, float | None], ...] = (("w", limits.power), ("usd", limits.price))
        needed = [need for need, most in pairs if most is not None]
        return replace(self, limits=limits, needs=tuple(dict.fromkeys((*self.needs, *needed))))


def _scaled(of: MeritFigures) -> float:
    return float(max(1.0, of.device_w / _CAP_W) ** (1 / 3))


MERITS = {
    merit.name: merit
    for merit in (
        Merit("time", "s", "time of a step", (), lambda of: (0.0, 1.0)),
        Merit("tokens_per_s", "tokens/s", "tokens of a step / its time", (), lambda of: (0.0, 1 / of.tokens)),
        Merit("watts", "W", "power of the system in full use", ("w",), lambda of: (of.w, 0.0)),
        Merit("cost", "USD", "price of the system", ("usd",), lambda of: (of.usd, 0.0)),
        Merit("time*cost", "USD s", "time of a step x price", ("usd",), lambda of: (0.0, of.usd)),
        # at full power all the time, as the judge's energy of a step
        Merit("energy", "J", "time of a step x watts", ("w",), lambda of: (0.0, of.w)),
        Merit(
            "tokens_per_j",
            "tokens/J",
            "tokens of a step / joules of all chips on their stacks",
            ("j",),
            lambda of: (of.once_j / of.tokens, of.flows_w / of.tokens),
            "least joules",
        ),
        Merit(
            "power_scaled",
            "tokens/s",
            "tokens_per_s x (100 W / watts of a chip in full use)^(1/3) above 100 W",
            ("device_w",),
            lambda of: (0.0, _scaled(of) / of.tokens),
        ),
    )
}
"""By the name of the objective."""
