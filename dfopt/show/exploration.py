"""The best of many designs as tables: its sizes, its mapping in short, and what was proven with what effort."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType

from dfopt.documents.exploration import Exploration
from dfopt.show.grid import Facts, Grid, Kind
from dfopt.show.tables import dollars
from dfopt.units import format as show_unit

__all__ = ["Told", "exploration_report", "figure", "told_progress"]

_ENDED = {
    "optimal": "no design within the choices is better, under any mapping",
    "gap_reached": "no design within the choices is better by more than the gap, under any mapping",
    "time_limit": "time is up: no design within the choices is better by more than the gap",
    "interrupted": "interrupted: no design within the choices is better by more than the gap",
}


@dataclass(frozen=True)
class Told:
    """A step of an exploration, in the words of the line of progress."""

    plan: str
    problem: str
    incumbent: float
    bound: float


def figure(value: float, objective: str) -> str:
    """A value of an objective, with a unit that suits it.

    Examples
    --------
    >>> figure(0.25, "time"), figure(1400.0, "energy"), figure(28e3, "cost"), figure(42.0, "time*cost")
    ('250 ms', '1.4 kJ', '28 k USD', '42 USD s')
    """
    if objective in ("time", "energy"):
        return show_unit(value, "time" if objective == "time" else "energy")
    return dollars(value) + (" s" if objective == "time*cost" else "")


def told_progress(now: Any) -> Told:
    """Of a :class:`dfopt.exploring.boxes.Progress`."""
    return Told(f"{now.boxes} boxes", f"{sum(now.bounded)} bounds", now.best, now.bound)


def exploration_report(made: Exploration) -> RenderableType:
    """The best design, what was searched, and how good it is."""
    chip, effort, best = made.result.system.chip, made.effort, made.designs[made.best_design]
    objective = made.request.objective
    names = ", ".join(one.technology.name for one in made.designs)
    counts = ", ".join(f"{count} by {stage}" for stage, count in effort.bounds.items())
    facts = [
        ("workload", made.graph.name),
        ("design", f"{made.designs[0].name}: {effort.designs} designs in {names}"),
        (
            "step" if objective == "time" else objective,
            f"{figure(made.value, objective)}, bound {figure(made.bound, objective)}, gap {100 * made.gap:.2f} %",
        ),
        *([("step", show_unit(made.result.value, "time"))] if objective != "time" else []),
        ("proof", f"{made.status}: {_ENDED[made.status]}"),
        ("technology", best.technology.name),
        ("plan", made.result.plan.label),
        ("effort", f"{effort.boxes} boxes; bounds: {counts}; {effort.solves} solves, {effort.seconds:.1f} s"),
    ]
    columns: dict[str, Kind] = {"component": "word", "best": "figure", "least": "figure", "most": "figure"}
    rows = [[name, _size(made, name, size), *_range(made, name)] for name, size in made.best.items()]
    made_of: dict[str, Kind] = {"chip": "word", "of the best design": "figure"}
    figures = [
        ["peak", show_unit(chip.peak_flops, "flop_rate")],
        ["SRAM", show_unit(chip.sram.capacity, "bytes")],
        [
            "DRAM",
            f"{show_unit(chip.fastest.bandwidth, 'bandwidth')}, {show_unit(chip.fastest.capacity or 0.0, 'bytes')}",
        ],
        *([dim.name, show_unit(dim.link_bandwidth, "bandwidth")] for dim in made.result.system.network),
        ["power", show_unit(chip.power_w or 0.0, "power")],
    ]
    return Group(Facts(facts), "", Grid("Sizes", columns, rows), "", Grid("Chip", made_of, figures))


def _size(made: Exploration, name: str, size: float) -> str:
    if name == "dram":
        return f"{size:.0f} stacks"
    return show_unit(size, "bandwidth" if name in made.designs[0].technology.links else "bytes")


def _range(made: Exploration, name: str) -> list[str]:
    boxes = [box for box in made.boxes if box.design == made.best_design]
    ends = [box.low[name] for box in boxes], [box.high[name] for box in boxes]
    return [_size(made, name, min(ends[0])), _size(made, name, max(ends[1]))]
