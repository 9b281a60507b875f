"""Pictures of results and sweeps: each function takes a document and, if you like, the axes ``ax`` to draw on.

Every kind of picture of ``dfopt plot`` has a function of its name.

``df.plot.roofline(result)`` and its kin return Matplotlib axes, by default those of a new figure;
``df.plot.save(ax, "fig.svg")`` writes them as SVG, PNG or PDF, the same bytes each time. All need Matplotlib (the extra
``plot``) and raise `PlanError` where it is missing. Colours are those of Okabe and Ito, and hatches or labels say the
same in grey.
"""

from __future__ import annotations

from dfopt.show.plots.breakdown import breakdown, step
from dfopt.show.plots.convergence import progress
from dfopt.show.plots.dataflow import dataflow
from dfopt.show.plots.fronts import pareto
from dfopt.show.plots.matrices import matrices
from dfopt.show.plots.memory import memory
from dfopt.show.plots.output import save
from dfopt.show.plots.partitions import partitions
from dfopt.show.plots.pipeline import timeline
from dfopt.show.plots.plan import plan
from dfopt.show.plots.roofline import roofline
from dfopt.show.plots.style import width
from dfopt.show.plots.sweeps import heat_map, heat_maps
from dfopt.show.plots.temperature import temperature
from dfopt.show.trace import save_trace, trace

__all__ = [
    "breakdown", "dataflow", "heat_map", "heat_maps", "matrices", "memory", "pareto", "partitions", "plan", "progress",
    "roofline", "save", "save_trace", "schedule", "step", "temperature", "timeline", "trace", "width",
]  # fmt: skip

latency_breakdown, stack_temperature, schedule = breakdown, temperature, timeline  # as earlier versions called them
