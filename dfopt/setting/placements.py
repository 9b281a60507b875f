"""Where what stays may lie in the memories of a chip, and what it costs there: bytes as the fastest memory counts them.

A partition takes the sum of what it takes on every memory, so a byte that passes through one of half the rate counts as
two of the fastest. All that prices layers (:mod:`dfopt.terms`) sees one memory. The judge adds up seconds instead.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from dfopt.arrays import ROUNDING
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel
from dfopt.documents.mapping import Sharding
from dfopt.documents.placement import SERVED, TRAINED, Item, Placement, item_of_weight, items_of
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.documents.system import Chip, System
from dfopt.errors import PlanError
from dfopt.physics.efficiency import memory_rows
from dfopt.physics.states import cache_traffic, data_traffic


class Counted(NamedTuple):
    """Weight of one byte of each item relative to a byte in the fastest memory: 1 if the item is there.

    Attributes
    ----------
    weights, experts, caches, tables : float
        Dense weights, weights of routed experts, caches of sequences, and lookup tables.
    """

    weights: float = 1.0
    experts: float = 1.0
    caches: float = 1.0
    tables: float = 1.0

    def own_traffic(self, kernel: Kernel, scheme: Sharding, degree: int) -> float:
        """DRAM bytes that one chip moves for a kernel's own data, lookups and caches, as bytes of the fastest memory.

        Parameters
        ----------
        kernel, scheme
            The kernel and its sharding scheme.
        degree : int
            Tensor-parallel chips.
        """
        cached = sum(cache_traffic(kernel, scheme, degree))
        return data_traffic(kernel, degree) * self.tables + cached * self.caches

    def of_weight(self, kernel: Kernel) -> float:
        """Weight of one byte of a kernel's weights."""
        return self.experts if item_of_weight(kernel) == "experts" else self.weights


ALIKE: Final = Counted()
"""All bytes count as one, as where all lies in the fastest memory."""


def counted(plan: Plan, chip: Chip) -> Counted:
    """Weights of bytes by item under the placement of a plan.

    Examples
    --------
    >>> from dfopt.documents.system import Memory, Sram
    >>> memories = Memory(name="HBM", bandwidth=1.6e12), Memory(name="DDR", bandwidth=200e9)
    >>> chip = Chip(name="c", tiles=4, peak=1e12, sram=Sram(capacity=1e6), memories=memories)
    >>> counted(Plan(placement=Placement(experts="DDR")), chip)
    Counted(weights=1.0, experts=8.0, caches=1.0, tables=1.0)
    """
    if plan.placement is None:
        return ALIKE
    rates = {name: memory.bandwidth for name, memory in chip.tiers.items()}
    return Counted(*(chip.fastest.bandwidth / rates[plan.tier_of(item, chip)] for item in SERVED))


def placements(graph: Graph, chip: Chip, fixed: Mapping[Item, str] | None = None) -> list[Placement | None]:
    """Placements of the items of a graph that may be best, those with most in fast memories first.

    No memory after the first one without a limit is useful. In training, states are placed as requested, and all others
    in the fastest memory: see :mod:`dfopt.physics.offload`.

    Parameters
    ----------
    fixed
        Requested memories, by item: other placements are left out.

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
    >>> [placement and placement.label for placement in placements(graph, chip)]
    [None, 'weights in DDR']
    """
    asked = fixed or {}
    if asked:
        _check(graph, chip, asked)
    if graph.trains:
        return [_placement(asked, chip)]
    names = list(chip.tiers)
    endless = [number for number, memory in enumerate(chip.tiers.values()) if memory.capacity is None]
    last = max((names.index(name) for name in asked.values()), default=0)
    names = names[: max(min(endless, default=len(names)), last) + 1]
    every = _every([(item,) for item in items_of(graph)], names, lambda places: (sum(places), places))
    return [_placement(lies, chip) for lies in every if lies.items() >= asked.items()]


def _check(graph: Graph, chip: Chip, fixed: Mapping[Item, str]) -> None:
    """Refuse what nothing can lie in."""
    has = items_of(graph)
    if missing := [item for item in fixed if item not in has]:
        raise PlanError(f"place: {graph.name} has no {missing[0]} to put anywhere, only {', '.join(has)}")
    for issue in Placement.model_validate(dict(fixed)).issues(graph, chip):
        raise PlanError(f"place: {issue.message} ({issue.remedy})")


def _every(
    groups: Sequence[tuple[Item, ...]], tiers: Sequence[str], order: Callable[[tuple[int, ...]], Any]
) -> Iterator[dict[Item, str]]:
    """All ways in which groups of items lie in memories, each group in one, in the order of places of memories."""
    for places in sorted(itertools.product(range(len(tiers)), repeat=len(groups)), key=order):
        yield {item: tiers[place] for items, place in zip(groups, places, strict=True) for item in items}


def _placement(lies: Mapping[Item, str], chip: Chip) -> Placement | None:
    """The placement of items, none if all lie in the fastest memory."""
    elsewhere = {item: name for item, name in lies.items() if name != chip.fastest_tier}
    return Placement.model_validate(elsewhere) if elsewhere else None


def looked_at_later(graph: Graph, assumptions: Assumptions) -> bool:
    """Whether the search chooses placements of training as it goes, instead of listing them with the plans."""
    return graph.folded and assumptions.sharding_objective == "joint"


def offloads(graph: Graph, system: System, assumptions: Assumptions, asked: Request) -> list[Placement | None]:
    """Placements of a training step that a request allows, those with least in slower memories first.

    Only one if the request does not ask for any.

    **No placement makes a mapping faster.** It only adds to the time of a mapping (:mod:`dfopt.physics.offload`): a
    pass of a layer takes at least as long as its transfers, and the optimizer's step reads and writes no faster. A
    lower bound of a plan without placement thus holds under any placement, and a plan that is excluded without
    placement is excluded with any. This requires that no slower memory ever sustains a higher bandwidth.

    Parameters
    ----------
    graph, system, assumptions
        A training step, on chips with several memories.
    asked
        Items that may be moved (``offload``), and those whose memory is fixed (``place``).

    Raises
    ------
    PlanError
        If an item is requested that the graph does not have, or if the chips have only one memory.

    Examples
    --------
    >>> from dfopt.documents.system import Memory, Sram
    >>> memories = Memory(name="HBM", bandwidth=1e12, capacity=64e9), Memory(name="DDR", bandwidth=1e11)
    >>> chip = Chip(name="c", tiles=4, peak=1e12, sram=Sram(capacity=1e6), memories=memories)
    >>> sizes = {"m": 4, "k": 8, "n": 16}
    >>> kernels = Kernel(name="a", op="gemm", **sizes), Kernel(name="b", op="gemm", pass_="backward", **sizes)
    >>> graph, asked = Graph(name="g", repeat=4, kernels=kernels), Request(offload=("optimizer", "activations"))
    >>> [one and one.label for one in offloads(graph, System(name="s", chip=chip), Assumptions(), asked)]
    [None, 'activations in DDR', 'optimizer in DDR', 'activations, optimizer in DDR']
    """
    fixed: Mapping[Item, str] = asked.place or {}
    if asked.offload is None or not graph.trains:
        if asked.offload not in (None, "any"):
            raise PlanError(f"offload: {graph.name} does not train, so nothing waits for a backward pass; use place")
        return [_placement(fixed, system.chip)]
    free = _free(graph, asked, assumptions)
    tiers = list(system.chip.tiers)
    if len(tiers) == 1:
        raise PlanError(
            f"offload: the chips of {system.name} have one memory, expected a slower one beside it; list both as"
            " memories"
        )
    _check_rates(system, assumptions)
    every = _every(free, tiers, lambda places: (sum(map(bool, places)), sum(places), places[::-1]))
    return [_placement({**fixed, **lies}, system.chip) for lies in every]


def _free(graph: Graph, asked: Request, assumptions: Assumptions) -> list[tuple[Item, ...]]:
    """Items that may lie elsewhere, in one those that do so together: as Calculon has it, gradients and their state."""
    movable = [item for item in items_of(graph) if item in TRAINED]
    if not graph.folded:
        movable = ["optimizer"]
    requested = movable if asked.offload == "any" else asked.offload or ()
    if missing := [item for item in requested if item not in movable]:
        raise PlanError(f"offload: {graph.name} has no {missing[0]} to move, only {', '.join(movable)}")
    wanted = [item for item in movable if item in requested and item not in (asked.place or {})]
    if assumptions.offload == "calculon" and "optimizer" in wanted:
        together: tuple[Item, ...] = ("gradients", "optimizer")
        return [*((item,) for item in wanted if item not in together), together]
    return [(item,) for item in wanted]


def _check_rates(system: System, assumptions: Assumptions) -> None:
    """Refuse memories of which a slower one may sustain more."""
    rows, (fastest, *others) = memory_rows(system.chip, assumptions), system.chip.tiers.items()

    def shares(name: str) -> list[float]:
        return [row.share for row in rows if row.memory in (None, name)] or [1.0]

    least = fastest[1].bandwidth * min(shares(fastest[0]))
    for name, memory in others:
        if memory.bandwidth * max(shares(name)) > least * (1 + ROUNDING):
            raise PlanError(
                f"offload: {name} may sustain more than {fastest[0]} by the rows of unit memory of {system.name}, so"
                " that what lies where is no matter of room alone; fix it with place"
            )
