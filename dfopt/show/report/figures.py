"""The figures of a report, with what each of them shows."""

from __future__ import annotations

from typing import Any, Final

from dfopt.documents.result import Result
from dfopt.show import plots
from dfopt.show.plots.cells import label_of
from dfopt.show.report.page import Figure, draw

__all__ = ["result_figures", "sweep_figures"]

_BOXES: Final = 80  # of a dataflow figure: more of them are a map, not a page


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
    """A heat map of one figure of a sweep, and two figures against each other."""
    return [
        draw(
            "heat-map",
            f"Heat map of {label_of(value)[0]}; hatched where a cell has no mapping.",
            lambda: plots.heat_map(rows, value),
            paper=True,
        ),
        draw(
            "pareto",
            f"Every cell by {label_of(x)[0]} and {label_of(y)[0]}, with the front that no cell beats in both.",
            lambda: plots.pareto(rows, x, y),
        ),
    ]
