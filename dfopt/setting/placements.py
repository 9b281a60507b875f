"""Where what stays may lie in the memories of a chip, and what it costs there: bytes as the fastest memory counts them.

A partition takes the sum of what it takes on every memory, so a byte that passes through one of half the rate counts as
two of the fastest. All that prices layers (:mod:`dfopt.terms`) sees one memory. The judge adds up seconds instead.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import NamedTuple

from dfopt.documents.graph import Graph, Kernel
from dfopt.documents.mapping import Sharding
from dfopt.documents.placement import SERVED, Item, Placement, item_of_weight, items_of
from dfopt.documents.plan import Plan
from dfopt.documents.system import Chip
from dfopt.errors import PlanError
from dfopt.physics.states import cache_traffic, data_traffic

__all__ = ["Counted", "counted", "placements"]


class Counted(NamedTuple):
    """How many bytes of the fastest memory one byte of each item counts as: 1 where it lies there."""

    weights: float = 1.0
    experts: float = 1.0
    caches: float = 1.0
    tables: float = 1.0

    def own_traffic(self, kernel: Kernel, scheme: Sharding, degree: int) -> float:
        """What one of ``degree`` chips moves because the kernel says so: data, lookups, what is kept for sequences."""
        cached = sum(cache_traffic(kernel, scheme, degree))
        return data_traffic(kernel, degree) * self.tables + cached * self.caches

    def of_weight(self, kernel: Kernel) -> float:
        """A byte of the weights of a kernel."""
        return self.experts if item_of_weight(kernel) == "experts" else self.weights


def counted(plan: Plan, chip: Chip) -> Counted:
    """How bytes count under the placement of a plan.

    Examples
    --------
    >>> from dfopt.documents.system import Memory, Sram
    >>> memories = Memory(name="HBM", bandwidth=1.6e12), Memory(name="DDR", bandwidth=200e9)
    >>> chip = Chip(name="c", tiles=4, peak=1e12, sram=Sram(capacity=1e6), memories=memories)
    >>> counted(Plan(placement=Placement(experts="DDR")), chip)
    Counted(weights=1.0, experts=8.0, caches=1.0, tables=1.0)
    """
    if plan.placement is None:
        return Counted()
    rates = {name: one.bandwidth for name, one in chip.tiers.items()}
    return Counted(*(chip.fastest.bandwidth / rates[plan.tier_of(item, chip)] for item in SERVED))


def placements(graph: Graph, chip: Chip, fixed: Mapping[Item, str] | None = None) -> list[Placement | None]:
    """Every placement of the items of a graph that may be best, that with most in fast memories first.

    Behind the first memory without a limit none is better than that. What a graph that trains keeps is where it is
    asked to be, all else in the fastest: see :mod:`dfopt.physics.offload`.

    Parameters
    ----------
    fixed
        Memories that are asked for, by item: other placements are left out.

    Raises
    ------
    PlanError
        If the chip has no such memory, the graph nothing of an item, or if it cannot lie there.

    Examples
    --------
    >>> from dfopt.documents.system import Memory, Sram
    >>> names = {"HBM": 64e9, "DDR": None, "CXL": None}
    >>> memories = tuple(Memory(name=name, bandwidth=1e12, capacity=size) for name, size in names.items())
    >>> chip = Chip(name="c", tiles=4, peak=1e12, sram=Sram(capacity=1e6), memories=memories)
    >>> graph = Graph(name="g", kernels=(Kernel(name="a", op="gemm", m=4, k=8, n=16),))
    >>> [one and one.label for one in placements(graph, chip)]
    [None, 'weights in DDR']
    """
    if fixed:
        _check(graph, chip, fixed)
    names = list(chip.tiers)
    endless = [number for number, one in enumerate(chip.tiers.values()) if one.capacity is None]
    last = max((names.index(one) for one in (fixed or {}).values()), default=0)
    names = names[: max(min(endless, default=len(names)), last) + 1]
    if graph.trains:
        elsewhere = {item: name for item, name in (fixed or {}).items() if name != chip.fastest_tier}
        return [Placement.model_validate(elsewhere) if elsewhere else None]
    if len(names) == 1:
        return [None]
    items = items_of(graph)
    every = itertools.product(range(len(names)), repeat=len(items))
    found: list[Placement | None] = []
    for places in sorted(every, key=lambda one: (sum(one), one)):
        lies = {item: names[place] for item, place in zip(items, places, strict=True)}
        if fixed and any(lies[item] != name for item, name in fixed.items()):
            continue
        elsewhere = {item: name for item, name in lies.items() if name != names[0]}
        found.append(Placement.model_validate(elsewhere) if elsewhere else None)
    return found


def _check(graph: Graph, chip: Chip, fixed: Mapping[Item, str]) -> None:
    """Refuse what nothing can lie in."""
    has = items_of(graph)
    if missing := [item for item in fixed if item not in has]:
        raise PlanError(f"place: {graph.name} has no {missing[0]} to put anywhere, only {', '.join(has)}")
    for issue in Placement.model_validate(dict(fixed)).issues(graph, chip):
        raise PlanError(f"place: {issue.message} ({issue.remedy})")
