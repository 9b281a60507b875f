"""A plan with some schemes left for every kernel, and what is proven of it so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dfopt.documents.graph import Graph
from dfopt.documents.plan import Plan
from dfopt.documents.plan_records import GraphRecord, SolveRecord
from dfopt.documents.result import LOOSE, NEAR, TOO_MANY, TOO_WIDE
from dfopt.interrupts import LIMIT
from dfopt.search.candidate import Prepared
from dfopt.terms.sharded_graph import Bools

SAME, CLOSE = 1e-12, 1e-9  # values that differ by less are one value: as computed; as reached and as proven


@dataclass(eq=False)
class Node:
    """A plan and tile count with the schemes that are left, and what is proven of it.

    ``ready``: the plan with every figure at its least; ``lows``: seconds that each stage takes at least.
    """

    ready: Prepared
    allowed_o: Bools
    whole: bool  # every legal scheme is left
    lows: list[float]
    bound: float
    rooted: bool = False
    exhausted: bool = False  # nothing more can be proven of it
    tight: bool = False  # what it would be best with does not fit
    heard: bool = False  # what communication by itself shows is known
    met: bool = False  # what layouts show is known
    patience: int = 0  # how often it waited until all others were done
    tried: set[tuple[int, ...]] = field(default_factory=set)  # options that were fused exactly
    agreed: set[str] = field(default_factory=set)  # kernels about whose outputs blocks had to agree

    def proven(self) -> None:
        """Take what the stages are shown to take into the bound."""
        nothing_fits = np.isinf(self.lows).any()
        self.bound = np.inf if nothing_fits else max(self.bound, self.ready.value_of(self.lows))

    @property
    def plan(self) -> Plan:
        """The plan."""
        return self.ready.plan


@dataclass(order=True)
class Entry:
    """A plan, or a node of it, in the order of what is proven of it."""

    bound: float
    number: int  # the earlier of two that are equal
    what: Plan | Node = field(compare=False)


Unit = tuple[Plan, int | None]
"""A plan and a tile count: what has a record of its own."""


@dataclass
class Found:
    """What is known of a unit: the least that is proven of what was given up, and its best mapping.

    ``every``: the same however products hide collectives, where that is open (:mod:`dfopt.search.hiding`).
    """

    low: float = np.inf
    every: float = np.inf
    value: float = np.inf
    solves: tuple[SolveRecord, ...] = ()
    note: str = ""
    late: bool = False  # something was given up because the time was
    wide: bool = False  # something was given up because its down-sets are too many
    agreed: frozenset[str] = frozenset()  # kernels about whose outputs blocks had to agree

    def of_graph(self, graph: Graph, goal: float, beat: float, gap: float, stopped: str) -> GraphRecord:
        """The record of a graph of which this is all that is known: all its plans are given up together."""
        fields = self.status(goal, beat, gap, stopped)
        fields["note"] = TOO_MANY if fields["note"] == TOO_WIDE else fields["note"]
        return GraphRecord(microbatch=graph.microbatch, variant=graph.variant, bound=self.low, **fields)

    def status(self, goal: float, beat: float, gap: float, stopped: str, best: float = np.inf) -> dict[str, Any]:
        """Fields of its record, where a mapping or a bound is known.

        Parameters
        ----------
        goal, beat : float
            Bound at which it would be done with; value from which on nothing of it is of interest.
        gap : float
            That was asked for.
        stopped : str
            What ended the search: Ctrl-C, SIGTERM or the time limit; empty where nothing did.
        best : float
            What none of its mappings that are not among the best should be below: its value where one of a plan is.
        """
        if np.isfinite(self.value):
            low, short = min(self.low, self.value), self.low < best * (1 - max(gap, CLOSE))
            late, wide = stopped or LIMIT, TOO_WIDE if self.wide and low < goal else LOOSE
            gap, note = (self.value - low) / self.value, (late if self.late else wide) if short else ""
            return {"status": "limit" if short else "solved", "value": self.value, "gap": gap, "note": note}
        beaten, near = self.low >= beat * (1 - SAME), self.low >= beat * (1 - gap)
        why = stopped or (LIMIT if self.late else TOO_WIDE)
        note = "" if beaten else NEAR if near else why
        return {"status": "pruned_by_bound" if beaten else "limit", "note": note}
