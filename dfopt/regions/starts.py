"""Mappings of textbooks as first solutions: :mod:`dfopt.search.starts` for a search over regions."""

from __future__ import annotations

from dataclasses import dataclass, field

from dfopt.bnb import Candidate, Clock
from dfopt.regions.judged import JudgedMapping
from dfopt.regions.space import Space
from dfopt.search.options import Options
from dfopt.search.solved import Solved
from dfopt.search.starts import begin
from dfopt.setting.instance import Setting
from dfopt.terms.bounds import PlanBounds

__all__ = ["textbook_starts"]


@dataclass(eq=False)
class _Collected:
    """What :func:`dfopt.search.starts.begin` is given instead of a search: it keeps the best mapping."""

    setting: Setting
    options: Options
    plan_bounds: PlanBounds
    found: list[Solved] = field(default_factory=list)
    starts_later: bool = False
    stopped: bool = False

    @property
    def incumbent(self) -> float:
        """The value to beat."""
        return self.found[0].value if self.found else float("inf")

    def accept(self, outcome: Solved) -> None:
        """Keep a mapping that is better."""
        if outcome.value < self.incumbent:
            self.found[:] = [outcome]

    def report(self) -> None:
        """Nobody is told."""

    def take_starts(self) -> None:
        """They are read from ``found``."""

    def stop(self) -> None:
        """An interrupt: the search that follows ends by it, too."""
        self.stopped = True


def textbook_starts(space: Space, clock: Clock) -> list[Candidate]:
    """The best textbook mapping of a large space, valued by the judge; none of a small one, which needs none.

    Parameters
    ----------
    space : Space
        All mappings of a question.
    clock : Clock
        Of the search that follows.

    Raises
    ------
    KeyboardInterrupt
        If an interrupt came meanwhile.
    """
    collected = _Collected(space.setting, Options(space.request, clock), space.bounds)
    begin([collected])
    if collected.stopped:
        raise KeyboardInterrupt
    return [Candidate(one.value, JudgedMapping.of(one, space.request)) for one in collected.found]
