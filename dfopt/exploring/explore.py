"""``explore``: the best design for a workload, with a proof over all designs that its choices allow."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import numpy as np

import dfopt
from dfopt.documents.assumptions import Assumptions, profile
from dfopt.documents.design import Design
from dfopt.documents.exploration import DesignBox, Effort, Exploration, ExplorationRequest
from dfopt.documents.graph import Graph
from dfopt.documents.request import Request
from dfopt.errors import Infeasible, Issue, NoSolution, PlanError, SystemSpecError
from dfopt.exploring.boxes import Leaf, Progress, search_boxes
from dfopt.exploring.decisions import Box, Decisions
from dfopt.exploring.workload import Choice, Workload
from dfopt.library import as_graphs

__all__ = ["explore", "workload_of"]


def explore(
    graph: Graph | str | os.PathLike[str],
    design: Design | str | os.PathLike[str],
    *,
    assumptions: Assumptions | str = "default",
    gap: float = 0.01,
    time_limit: float = 300.0,
    seed: int = 0,
    progress: Callable[[Progress[Choice]], None] | None = None,
) -> Exploration:
    """Find the design on which a workload is fastest, and prove how good it is over all designs and all mappings.

    Parameters
    ----------
    graph : Graph, or the name or path of one
        The workload.
    design : Design, or the path of one
        With shares of the area that are ``auto``, the sizes that its choices allow, and a template.
    assumptions : Assumptions or str
        A document, or the name of a profile.
    gap : float
        Relative gap at which to stop; with 0 no design is better, under any mapping.
    time_limit : float
        In seconds; the best design so far is returned with its gap.
    seed : int
        Of the solver.
    progress : callable, optional
        Called after every bound with a :class:`dfopt.exploring.boxes.Progress`.

    Raises
    ------
    SystemSpecError
        If the design has nothing to choose, no template, or no room for a component that is to be chosen.
    Infeasible
        If no design within the choices can be had, or holds the workload.
    NoSolution
        If time is up before the first design.
    """
    workload = workload_of(graph, design, assumptions, seed)
    workload.deadline = time.perf_counter() + time_limit
    found = search_boxes(workload, gap=gap, time_limit=time_limit, progress=progress)
    if found.choice is None:
        if found.ending == "empty":
            none = f"none of {workload.decisions.count} designs"
            if not workload.refused:
                raise Infeasible(f"{none} fits the budgets; levers: more area, power or package, smaller sizes")
            raise Infeasible(f"{none} can be had, or holds the workload, such as this:\n{workload.refused}")
        if found.ending == "interrupted":
            raise KeyboardInterrupt
        raise NoSolution(found.bound, found.seconds, "no design has been solved")
    decisions = workload.decisions
    return Exploration(
        status="optimal" if found.ending == "empty" else found.ending,
        value=found.best,
        bound=found.bound,
        gap=found.gap,
        best=decisions.named(found.choice.box.low),
        result=found.choice.result,
        boxes=tuple(_box(decisions, leaf) for leaf in found.leaves),
        effort=Effort(
            designs=decisions.count,
            boxes=found.boxes,
            bounds=found.bounded,
            solves=workload.solves,
            seconds=found.seconds,
        ),
        design=decisions.design,
        graph=workload.graph,
        assumptions=workload.assumptions,
        request=ExplorationRequest(gap=gap, time_limit=time_limit, seed=seed),
        version=dfopt.__version__,
    ).sealed()


def workload_of(
    graph: Graph | str | os.PathLike[str],
    design: Design | str | os.PathLike[str],
    assumptions: Assumptions | str = "default",
    seed: int = 0,
) -> Workload:
    """The problem of an exploration.

    Raises
    ------
    SystemSpecError
        If the design cannot be explored.
    PlanError
        If the graph comes in several variants.
    """
    drawn, *variants = as_graphs(graph)
    if variants:
        raise PlanError(
            f"{drawn.name}: found {len(variants) + 1} variants of the graph, expected one: fix its microbatch"
        )
    given = design if isinstance(design, Design) else Design.load(design)
    issues = []
    if not given.chosen:
        message = "found no share that is auto, expected at least one to choose"
        issues.append(Issue("$.shares.area", message, "set one to auto, or map onto this design: dfopt solve"))
    if given.template is None:
        message = "found none, expected how the chips make a system"
        issues.append(Issue("$.template", message, "add template: {sram: LEVEL, tiles: N, network: [...]}"))
    elif given.template.tiles is None:
        message = "found none, expected a number: a tile that is a cluster would differ from design to design"
        issues.append(Issue("$.template.tiles", message, "give one number for all designs"))
    if issues:
        raise SystemSpecError(given.name, issues)
    chosen = profile(assumptions) if isinstance(assumptions, str) else assumptions
    return Workload(Decisions(given), drawn, chosen, Request(seed=seed))


def _box(decisions: Decisions, leaf: Leaf[Box]) -> DesignBox:
    return DesignBox.model_validate(
        {
            "low": decisions.named(leaf.box.low),
            "high": decisions.named(leaf.box.high),
            "bound": leaf.bound if np.isfinite(leaf.bound) else None,
            "stage": leaf.stage,
        }
    )
