"""What the searches of one workload share: the best mappings, the clock, and what stopped them."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import cached_property
from typing import Final

import numpy as np

from dfopt.bnb import ENDED, Clock, OutOfTime
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.interrupts import cause, wall_limit
from dfopt.regions.lattices import KnownArcs
from dfopt.setting.instance import Setting
from dfopt.solving.options import Options
from dfopt.solving.solved import Solved

__all__ = ["SearchState"]

_GRACE_S: Final = 0.2
"""Seconds beyond the limit while no mapping is known at all."""
_AS_ASKED: Final = 1e-9
"""Relative: a mapping that meets an objective limit meets it though its value is rounded."""
_MOST_KEPT: Final = 0.4
"""Of the time that is left, at most, for what comes behind a search."""


class SearchState:
    """The best mappings of a workload, one clock, and what stopped the search.

    Attributes
    ----------
    options : Options
        The request under way, with its clock.
    found : list of Solved
        The best mappings that are distinct, best first: as many as are asked for at most.
    stopped : str
        What ended the search: Ctrl-C, SIGTERM, or a limit that a step did not keep by itself; empty until then.
    listed : list of int
        How many plans each graph has, of those whose plans are listed.
    known_arcs : dict
        Arcs of layers that are listed, see :data:`dfopt.regions.lattices.KnownArcs`.
    report : callable
        Called when there is a better mapping.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.found: list[Solved] = []
        self.stopped = ""
        self.listed: list[int] = []
        self.known_arcs: KnownArcs = {}
        self.report: Callable[[], None] = lambda: None
        self.began = time.perf_counter()

    @property
    def request(self) -> Request:
        """What is asked for."""
        return self.options.request

    @property
    def clock(self) -> Clock:
        """Counts the work, and ends it."""
        return self.options.clock

    @property
    def seconds(self) -> float:
        """Since the search began."""
        return time.perf_counter() - self.began

    @cached_property
    def ceiling(self) -> float:
        """Value that the limits of the objective allow."""
        return self.request.objective.ceiling * (1 + _AS_ASKED)

    @property
    def incumbent(self) -> float:
        """Value that a mapping must beat to be kept."""
        wanted = self.request.top
        return min(self.ceiling, self.found[wanted - 1].value if len(self.found) >= wanted else np.inf)

    @property
    def several(self) -> bool:
        """Whether several mappings of one plan may be kept: then what is on record of a plan is of all others."""
        return self.request.distinct_in != "plan"

    @property
    def best_values(self) -> dict[Hashable, float]:
        """The values of the best mappings, by what makes them different."""
        return {each.different(self.request.distinct_in): each.value for each in self.found}

    def to_beat(self, setting: Setting, plan: Plan) -> float:
        """Value from which on nothing of a plan is of interest: of the last that is kept, or of the same plan."""
        if self.several:
            return self.incumbent
        same = [each.value for each in self.found if each.plan == plan and each.graph is setting.graph]
        return min([self.incumbent, *same])

    def accept(self, outcome: Solved) -> None:
        """Keep a mapping that is among the best of those that are different."""
        by = self.request.distinct_in
        same = next((each for each in self.found if each.different(by) == outcome.different(by)), None)
        if outcome.value >= (self.incumbent if same is None else same.value):
            return
        others = [each for each in self.found if each is not same]
        # a stable sort: of equally good ones the first found stays first
        self.found[:] = sorted([*others, outcome], key=lambda each: each.value)[: self.request.top]
        self.report()

    def stop(self) -> None:
        """An interrupt: what is still solved from here on returns what it has at once."""
        self.stopped = cause()
        self.options = replace(self.options, clock=ENDED)

    @property
    def over(self) -> bool:
        """Whether to stop; while there is nothing to return a little later than was asked for."""
        return bool(self.stopped) or self.clock.over_since(0.0 if self.found else _GRACE_S)

    def check_time(self) -> None:
        """Give up work that shows nothing before it is whole, when the time is up.

        Raises
        ------
        OutOfTime
        """
        if self.over:
            raise OutOfTime

    def end_earlier(self, seconds: float) -> None:
        """End the search earlier by what comes behind it, but for most of the time that is left."""
        seconds = min(seconds, _MOST_KEPT * self.clock.seconds_left)
        wall_limit.earlier(seconds)
        self.clock.end_earlier(seconds)
