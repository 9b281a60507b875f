"""What the searches of one workload share: the best mappings, the clock, and what stopped them."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Final

from dfopt.bnb import ENDED, Candidate, Clock, Incumbents, OutOfTime
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.interrupts import cause, wall_limit
from dfopt.regions.judged import JudgedMapping
from dfopt.regions.lattices import KnownArcs
from dfopt.regions.problem import parameters_of
from dfopt.search.kept import Kept
from dfopt.solving.options import Options
from dfopt.solving.solved import Solved

_GRACE_S: Final = 0.2
"""Seconds beyond the limit while no mapping is known at all."""
_MOST_KEPT: Final = 0.4
"""Of the time that is left, at most, for what comes behind a search."""


class SearchState:
    """State shared by the searches of one workload: the best mappings, the clock, and the reason of a stop.

    Attributes
    ----------
    options : Options
        The request under way, with its clock.
    incumbents : Incumbents
        The best distinct mappings, at most the requested number.
    stopped : str
        Reason why the search ended: Ctrl-C, SIGTERM, or a limit that a step exceeded; empty until then.
    listed : list of int
        Number of plans of each graph whose plans are listed.
    plans : dict
        Plans that its graphs share, see :class:`dfopt.setting.listing.PlanListing`.
    known_arcs : dict
        Arcs of layers that are listed, see :data:`dfopt.regions.lattices.KnownArcs`.
    report : callable
        Called when there is a better mapping.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.incumbents = Incumbents(options.request.top, 0.0, limit=parameters_of(options.request).limit)
        self.stopped = ""
        self.listed: list[int] = []
        self.plans: dict[Hashable, Plan] = {}
        self.known_arcs: KnownArcs = {}
        self.report: Callable[[], None] = lambda: None
        self.began = time.perf_counter()

    @property
    def request(self) -> Request:
        """The request that is being answered."""
        return self.options.request

    @property
    def clock(self) -> Clock:
        """The clock that counts work and ends the search."""
        return self.options.clock

    @property
    def seconds(self) -> float:
        """Seconds since the search began."""
        return time.perf_counter() - self.began

    @property
    def solutions(self) -> list[Solved]:
        """The best mappings, in ascending order of their value."""
        return [each.solution.solved for each in self.incumbents.kept]

    @property
    def incumbent(self) -> float:
        """Value that a mapping must beat to be among the best."""
        return self.incumbents.cutoff

    @property
    def kept(self) -> Kept:
        """The values of the best mappings, and what others have to beat."""
        return Kept.of(self.request, {each.solution.different: each.value for each in self.incumbents.kept})

    def accept(self, outcome: Solved) -> None:
        """Keep a mapping if it is among the best that are distinct."""
        if self.incumbents.offer(Candidate(outcome.value, JudgedMapping.of(outcome, self.request))):
            self.report()

    def stop(self) -> None:
        """Handle an interrupt: solves from here on return at once with what they have."""
        self.stopped = cause()
        self.options = replace(self.options, clock=ENDED)

    @property
    def over(self) -> bool:
        """Whether to stop; without any mapping, a little later than requested."""
        return bool(self.stopped) or self.clock.over_since(0.0 if self.incumbents.kept else _GRACE_S)

    def check_time(self) -> None:
        """Raise `OutOfTime` when the time is up, in work that shows nothing until it is complete.

        Raises
        ------
        OutOfTime
            If the time is up.
        """
        if self.over:
            raise OutOfTime

    def end_earlier(self, seconds: float) -> None:
        """End the search ``seconds`` earlier, or less if little time is left, so that later steps have time."""
        seconds = min(seconds, _MOST_KEPT * self.clock.seconds_left)
        wall_limit.earlier(seconds)
        self.clock.end_earlier(seconds)
