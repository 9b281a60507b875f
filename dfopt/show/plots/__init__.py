"""Pictures of results and sweeps: each function takes a document and, if you like, the axes ``ax`` to draw on.

``df.plot.roofline(result)`` and its kin return Matplotlib axes, by default those of a new figure;
``df.plot.save(ax, "fig.svg")`` writes them as SVG, PNG or PDF, the same bytes each time. All need Matplotlib (the extra
``plot``) and raise `PlanError` where it is missing. Colours are those of Okabe and Ito, and hatches or labels say the
same in grey.
"""

from __future__ import annotations

from dfopt.show.plots.breakdown import latency_breakdown
from dfopt.show.plots.dataflow import dataflow
from dfopt.show.plots.fronts import pareto
from dfopt.show.plots.output import save
from dfopt.show.plots.pipeline import schedule
from dfopt.show.plots.progress import progress
from dfopt.show.plots.roofline import roofline
from dfopt.show.plots.step import step
from dfopt.show.plots.sweeps import heat_map, heat_maps
from dfopt.show.plots.temperature import stack_temperature
from dfopt.show.plots.timeline import timeline
from dfopt.show.trace import save_trace, trace

__all__ = [
    "dataflow", "heat_map", "heat_maps", "latency_breakdown", "pareto", "progress", "roofline", "save", "save_trace",
    "schedule", "stack_temperature", "step", "timeline", "trace",
]  # fmt: skip
