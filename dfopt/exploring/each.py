"""The best design with each value of one size: what a figure over the number of DRAM layers shows, say."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.design import Design
from dfopt.documents.exploration import Exploration
from dfopt.documents.exploration_request import ExplorationRequest
from dfopt.documents.graph import Graph
from dfopt.errors import Infeasible, NoSolution, PlanError
from dfopt.exploring.entries import Batches, batches_of
from dfopt.exploring.explore import asked_workload, explored
from dfopt.exploring.layer_space import space_of
from dfopt.library import as_design
from dfopt.solving import options


def explore_each(
    graph: Graph | str | os.PathLike[str],
    design: Design | str | os.PathLike[str],
    size: str,
    *,
    assumptions: Assumptions | str = "default",
    gap: float = 0.01,
    time_limit: float = 300.0,
    progress: Callable[[options.Progress], None] | None = None,
    **asked: Any,
) -> Iterator[tuple[float, Exploration | NoSolution | None]]:
    """The best design for each value of one free size, such as each number of DRAM layers.

    Each value is a separate exploration that reuses the plan bounds of all designs. Its result is for the best plan
    alone; its bound holds for all plans.

    Parameters
    ----------
    size : str
        Name of a list of ``choices``, such as ``dram_layers``.
    time_limit : float
        Time limit of each value, s.
    graph, design, assumptions, gap, progress, **asked
        As of `explore`.

    Yields
    ------
    (value, Exploration), with None if no design of this value stores the workload, and with the error, which has the
    bound reached, if time was up before a first design.

    Examples
    --------
    >>> from dfopt.machines.designs import load_design
    >>> data = {**load_design("stacked-256").to_data(), "choices": {"dram_layers": [4, 6]}}
    >>> asked = {"phase": "decode", "batch": 8, "context": 64, "rank_order": "tp-mp-pp-dp", "tp": 32}
    >>> for layers, made in explore_each("llama-68m", Design.from_data(data), "dram_layers", **asked):
    ...     print(layers, made.best["dram_layers"])
    4.0 4.0
    6.0 6.0
    """
    of, (graphs, fixed) = as_design(design), asked_workload(graph, asked)
    given = of.to_data().get("choices", {})
    if size not in given or not isinstance(given[size], list):
        lists = ", ".join(name for name, values in given.items() if isinstance(values, list)) or "no list"
        raise PlanError(f"size: found {size!r}, expected a list of the choices of {of.name}, which has {lists}")
    asking = ExplorationRequest(
        options=fixed if fixed.asked() else None, gap=gap, time_limit=time_limit, sensitivity=False
    )
    (workload,) = batches_of(graphs, (of,), assumptions, asking).workloads
    values = workload.spaces[0].sizes[size]
    for value, written in zip(values, given[size], strict=True):
        alone = Design.from_data({**of.to_data(), "choices": {**given, size: [written]}}, of.name)
        try:
            narrowed = Batches((workload.narrowed((space_of(alone),)),))
            exploration = explored(narrowed, asking, progress, all_plans=False)
        except Infeasible:
            yield value, None
            continue
        except NoSolution as error:  # the other values have their own time
            yield value, error
            continue
        workload.solver.latest = exploration.result
        yield value, exploration
