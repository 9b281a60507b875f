"""Which placements a search may give a training step: what it is asked to try in slower memories of the chips.

**Wherever things lie, nothing is faster than in the fastest memory.** Of one mapping a placement only adds to its time
(:mod:`dfopt.physics.offload`): a pass of a layer is as long as what is moved beside it at least, and the optimizer's
step reads and writes no faster. So what no mapping beats under a plan without a placement none beats with any, and a
plan that is excluded as it is needs none of them looked at. That asks for memories of which no slower one ever sustains
more.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph
from dfopt.documents.placement import TRAINED, Item, Placement, items_of
from dfopt.documents.request import Request
from dfopt.documents.system import Chip, System
from dfopt.errors import PlanError
from dfopt.physics.efficiency import memory_rows

__all__ = ["looked_at_later", "offloads"]


def looked_at_later(graph: Graph, assumptions: Assumptions) -> bool:
    """Whether placements are chosen while the search goes on, and not listed with the plans."""
    return graph.folded and assumptions.sharding_objective == "joint"


def offloads(graph: Graph, system: System, assumptions: Assumptions, asked: Request) -> list[Placement | None]:
    """The placements that a request leaves free, that with least in slower memories first; one where it does not ask.

    Raises
    ------
    PlanError
        If something is asked for that the graph does not have, or the chips have one memory only.

    Examples
    --------
    >>> from dfopt.documents.graph import Kernel
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
    alone = Placement.model_validate(_elsewhere(fixed, system.chip)) if _elsewhere(fixed, system.chip) else None
    if asked.offload is None or not graph.trains:
        if asked.offload not in (None, "any"):
            raise PlanError(f"offload: {graph.name} does not train, so nothing waits for a backward pass; use place")
        return [alone]
    free = _free(graph, asked, assumptions)
    tiers = list(system.chip.tiers)
    if len(tiers) == 1:
        raise PlanError(
            f"offload: the chips of {system.name} have one memory, expected a slower one beside it; list both as"
            " memories"
        )
    _check_rates(system, assumptions)
    found = list[Placement | None]()
    every = itertools.product(range(len(tiers)), repeat=len(free))
    for places in sorted(every, key=lambda one: (sum(map(bool, one)), sum(one), one[::-1])):
        lies = {item: tiers[place] for items, place in zip(free, places, strict=True) for item in items}
        elsewhere = _elsewhere({**fixed, **lies}, system.chip)
        found.append(Placement.model_validate(elsewhere) if elsewhere else None)
    return found


def _elsewhere(lies: Mapping[Item, str], chip: Chip) -> dict[Item, str]:
    return {item: name for item, name in lies.items() if name != chip.fastest_tier}


def _free(graph: Graph, asked: Request, assumptions: Assumptions) -> list[tuple[Item, ...]]:
    """Items that may lie elsewhere, in one those that do so together: as Calculon has it, gradients and their state."""
    known = [item for item in items_of(graph) if item in TRAINED]
    if not graph.folded:
        known = ["optimizer"]
    said = known if asked.offload == "any" else asked.offload or ()
    if missing := [item for item in said if item not in known]:
        raise PlanError(f"offload: {graph.name} has no {missing[0]} to move, only {', '.join(known)}")
    wanted = [item for item in known if item in said and item not in (asked.place or {})]
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
    for name, one in others:
        if one.bandwidth * max(shares(name)) > least * (1 + 1e-12):
            raise PlanError(
                f"offload: {name} may sustain more than {fastest[0]} by the rows of unit memory of {system.name}, so"
                " that what lies where is no matter of room alone; fix it with place"
            )
