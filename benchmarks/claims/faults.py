"""Faults in what the search shows: bounds too high, cuts too deep, options given up too soon; put in for a while."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Final, NamedTuple
from unittest import mock

import numpy as np

Wrong = Callable[[Callable[..., Any], float], Callable[..., Any]]
"""From a function and a factor, such as 1.01, to the function with a fault."""


def higher(value: Any, factor: float) -> Any:
    """Figures a little too high: a number, an array, or a sequence or dict of them; negative ones stay."""
    if isinstance(value, Mapping):
        return {key: higher(each, factor) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(higher(each, factor) for each in value)
    scaled = np.where(np.asarray(value) > 0, np.asarray(value) * factor, value)
    return scaled if isinstance(value, np.ndarray) else float(scaled)


def figures(original: Callable[..., Any], factor: float) -> Callable[..., Any]:
    """All that it returns is too high."""
    return lambda *args, **named: higher(original(*args, **named), factor)


def fields(*names: str) -> Wrong:
    """Some fields of a tuple that it returns are too high."""

    def wrong(original: Callable[..., Any], factor: float) -> Callable[..., Any]:
        def faulty(*args: Any, **named: Any) -> Any:
            answer = original(*args, **named)
            some = {name: getattr(answer, name) for name in names}
            return answer._replace(**{name: higher(each, factor) for name, each in some.items() if each is not None})

        return faulty

    return wrong


def lows(original: Callable[..., Any], factor: float) -> Callable[..., Any]:
    """The bounds of the parts that a rule divides a region into are too high."""

    def faulty(*args: Any) -> Any:
        parts = original(*args)
        return None if parts is None else [(part, higher(low, factor)) for part, low in parts]

    return faulty


def less_room(original: Callable[..., Any], factor: float) -> Callable[..., Any]:
    """Of every memory a part is taken for full."""

    def faulty(self: Any, *args: Any) -> Any:
        capacity = float(self.capacity_m[0])
        return original(self, *args) - ((factor - 1) * capacity if np.isfinite(capacity) else 0.0)

    return faulty


def lower(original: Callable[..., Any], factor: float) -> Callable[..., Any]:
    """All that it returns is too low."""
    return figures(original, 1 / factor)


def coarse(original: Callable[..., Any], factor: float) -> Callable[..., Any]:
    """Amounts of options are compared after rounding down to powers of the factor."""
    table = importlib.import_module("dfopt.terms.table")
    exact = table.amounts_left

    def rounded(*args: Any) -> Any:
        amounts = exact(*args)
        with np.errstate(divide="ignore"):
            powers = np.floor(np.log(np.abs(amounts)) / np.log(factor))
        return np.where(np.isfinite(amounts) & (amounts != 0), np.sign(amounts) * factor**powers, amounts)

    def faulty(*args: Any) -> Any:
        with mock.patch.object(table, "amounts_left", rounded):
            return original(*args)

    return faulty


class Fault(NamedTuple):
    """A fault: where, as ``module:attribute`` or ``module:Class.attribute``, and what is put in its place."""

    name: str
    places: tuple[str, ...]
    wrong: Wrong

    @contextmanager
    def put_in(self, factor: float) -> Iterator[None]:
        """Have the fault in this process for a while; what is there already must not have been worked out without."""
        found = [_found(place) for place in self.places]
        changes = [mock.patch.object(owner, name, _with(self.wrong, kept, factor)) for owner, name, kept in found]
        for (_, name, _), change in zip(found, changes, strict=True):
            change.start()
            if isinstance(change.new, cached_property):
                change.new.attrname = name
        try:
            yield
        finally:
            for change in changes:
                change.stop()


def _found(place: str) -> tuple[Any, str, Any]:
    """What holds an attribute, its name, and what it is."""
    module, _, path = place.partition(":")
    owner: Any = importlib.import_module(module)
    *classes, name = path.split(".")
    for each in classes:
        owner = getattr(owner, each)
    return owner, name, vars(owner).get(name, getattr(owner, name))


def _with(wrong: Wrong, kept: Any, factor: float) -> Any:
    """A function or property with a fault."""
    if isinstance(kept, cached_property):
        return cached_property(wrong(kept.func, factor))
    if isinstance(kept, property):
        assert kept.fget is not None
        return property(wrong(kept.fget, factor))
    return wrong(kept, factor)


def _bound(name: str, module: str = "dfopt.regions.relaxations") -> Fault:
    return Fault(f"relaxation {name}", (f"{module}:{name}.bound",), fields("value"))


FACTS: Final = "dfopt.regions.facts:Facts"
LEAST: Final = "dfopt.regions.relaxations:least_step", "dfopt.search.claims:least_step"
RELAXATIONS: Final[Sequence[Fault]] = [
    *map(_bound, ("LeastOfGraph", "LeastStep", "LeastUntiled", "LeastWork")),
    *(_bound(name, "dfopt.regions.open_stages") for name in ("LeastUntiledOfStages", "BlocksOfStages")),
    *map(_bound, ("PiecesOverOptions", "GeneratedBlocks", "PathBound", "CapacityBound")),
]
"""Every relaxation of `relaxations_of`."""
FAULTS: Final[Sequence[Fault]] = [
    *RELAXATIONS,
    Fault("branching Listing", ("dfopt.regions.branching:Listing.children",), lows),
    Fault("branching StagesOpen", ("dfopt.regions.branching:StagesOpen.children",), lows),
    Fault("branching PlansApart", ("dfopt.regions.branching:PlansApart.children",), lows),
    Fault("branching Probing", ("dfopt.regions.branching:Probing.children",), lows),
    Fault("leaf Enumeration", ("dfopt.regions.leaves:Enumeration.solve",), fields("others", "bound")),
    Fault("leaf Fusion", ("dfopt.regions.leaves:Fusion.solve",), fields("others", "bound")),
    Fault("leaf PlanPrograms", ("dfopt.regions.plan_programs:PlanPrograms.solve",), fields("others", "bound")),
    Fault("reduction of options", (f"{FACTS}.step_ko",), figures),
    Fault("reduction of blocks", (f"{FACTS}.through_ka",), figures),
    Fault("reduction by dominance", ("dfopt.terms.table:Table.undominated_of",), coarse),
    Fault("what a cutoff leaves", (f"{FACTS}.most_k",), lower),
    Fault("least work of a graph", LEAST, figures),
    Fault("bounds of plans", ("dfopt.terms.bounds.plan_table:PlanTable.seconds",), figures),
    Fault("plans that fit", ("dfopt.terms.bounds.plan_table:PlanTable.used_i",), figures),
    Fault("steps of plans", (f"{FACTS}.steps",), figures),
    Fault("shortest paths", (f"{FACTS}.by_path_k",), figures),
    Fault("paths of options", ("dfopt.regions.classes:PlanClass.least_paths",), figures),
    Fault("prices of blocks", (f"{FACTS}.price_kb",), figures),
    Fault("duals", ("dfopt.regions.dual:Dual.seconds",), figures),
    Fault("min-marginals", ("dfopt.terms.elimination:Elimination.marginals_ko",), figures),
    Fault("totals by path", ("dfopt.regions.arcs:Arcs.least_counts",), figures),
    Fault("rows of capacity", (f"{FACTS.partition(':')[0]}:stages_by_cut",), figures),
    Fault("room in memories", ("dfopt.terms.bounds.holding:Holding.room",), less_room),
    Fault("cut pipelines", ("dfopt.regions.chains:Pipelines.slowest",), figures),
    Fault("pieces", ("dfopt.regions.pieces:best_together",), fields("low")),
    Fault("generated blocks", (f"{FACTS.partition(':')[0]}:fused",), fields("low")),
]
"""All faults: each makes one thing that the search shows of its regions wrong."""
