"""The figures of a report, with what each of them shows."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from dfopt.documents.result import Result
from dfopt.show import plots
from dfopt.show.plots.cells import label_of, text_of, varying
from dfopt.show.report.page import Figure, draw

__all__ = ["result_figures", "sweep_figures"]

_BOXES: Final = 80  # of a dataflow figure: more of them are a map, not a page
_MAPS: Final = 8  # workloads of a sweep that are drawn


def result_figures(result: Result) -> list[Figure]:
    """Figures of a result; those that would say nothing of it are not among them."""
    found = [
        draw(
            "breakdown",
            "Busy time of compute, DRAM and network of every partition; the upright mark is the time that it takes."
            " Below: what takes the time of a step.",
            lambda: plots.latency_breakdown(result),
        ),
        draw(
            "roofline",
            "Roofline: what every partition reaches against its FLOP per byte of DRAM and of network, under the"
            " ceilings of the chip.",
            lambda: plots.roofline(result),
        ),
        draw(
            "timeline",
            "One layer and microbatch on a chip: when compute, DRAM and network of each partition are busy.",
            lambda: plots.timeline(result),
        ),
    ]
    if result.plan.stages > 1:
        caption = "Pipeline schedule: which stage works on which microbatch, and where it waits."
        found.append(draw("schedule", caption, lambda: plots.schedule(result)))
    caption = "Kernels with the number and colour of their partition; tensors that are cut pass through DRAM."
    found.append(draw("dataflow", caption, lambda: plots.dataflow(result, limit=_BOXES)))
    caption = "Progress of the longest solve: the best mapping found and the bound that is proven, against time."
    found.append(draw("progress", caption, lambda: plots.progress(result)))
    if result.score.physical is not None:
        caption = "Mean temperature of every tile of every die in the steady state; the hottest one is framed."
        found.append(draw("temperature", caption, lambda: plots.stack_temperature(result), paper=True))
    return found


def sweep_figures(rows: list[dict[str, Any]], value: str, x: str, y: str) -> list[Figure]:
    """For every workload of a sweep a heat map of one figure, and two figures against each other."""
    graphs = list(dict.fromkeys(text_of(row, "graph") for row in rows)) if "graph" in varying(rows) else []
    parts = {name: [row for row in rows if text_of(row, "graph") == name] for name in graphs[:_MAPS]} or {"": rows}
    found = []
    for number, (name, mine) in enumerate(parts.items()):
        words = f"Heat map of {label_of(value)[0]}{' of ' * bool(name)}{name}; hatched where a cell has no mapping."
        found.append(draw(f"map-{number}", words, partial(plots.heat_map, mine, value, title=name or None), paper=True))
        words = (
            f"Every cell{' of ' * bool(name)}{name} by {label_of(x)[0]} and {label_of(y)[0]}, with the front that no"
        )
        found.append(draw(f"pareto-{number}", f"{words} cell beats in both.", partial(plots.pareto, mine, x, y)))
    if len(graphs) > _MAPS:
        why = f"the first {_MAPS} of {len(graphs)} workloads are; `dfopt plot` draws the others"
        found.append(Figure("more", "Figures of all workloads.", why=why))
    return found
