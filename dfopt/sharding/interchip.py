"""Inter-chip problem: the sharding and the pipeline stage of every kernel, chosen together.

Suffixes: k kernel, o option (a kernel with one of its sharding schemes), t tensor (carried ones
included), g fan-out group, p pipeline stage, l layout (RR, SR, RS).

``y_op`` is binary: kernel of o runs under its scheme in stage p; the paper's ``s_kz`` and ``A_kp`` are its
sums. What layouts cost is said by :mod:`dfopt.sharding.layouts` (DFModel, equations 5-7).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NoReturn

import numpy as np

from dfopt.arrays import LEAST_UNIT, Floats, Ints
from dfopt.bnb import UNLIMITED, Clock
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph
from dfopt.documents.mapping import Sharding
from dfopt.errors import Infeasible
from dfopt.milp import Model, Solution, Termination, Terms, TracePoint, solve, unanswered
from dfopt.setting.instance import Setting
from dfopt.sharding.layouts import conversions, must_meet, padded
from dfopt.sharding.tables import InterChipTables, build

__all__ = ["InterChipMapping", "InterChipTables", "build", "optimize_interchip"]
_KEPT: Final = 1e-9  # relative: what later objectives may cost earlier ones, which a solver has rounded


@dataclass(frozen=True)
class InterChipMapping:
    """Sharding scheme and stage of every kernel, with the solve that proves them.

    Attributes
    ----------
    sharding, stage : dict
        Scheme and pipeline stage, by kernel name.
    solution : Solution
        The MILP with the first objective.
    unit : str
        Unit of that objective: seconds or bytes.
    interrupted : bool
        Whether an interrupt ended the solve.
    """

    sharding: dict[str, Sharding]
    stage: dict[str, int]
    solution: Solution
    unit: str
    interrupted: bool  # by Ctrl-C, in whichever of the solves: `solution` is the first one

    @property
    def objective(self) -> float:
        """Value of the first objective, in :attr:`unit`."""
        return self.solution.objective


class _Formulation:
    """The model with its columns, so that objective levels can be expressed as terms."""

    def __init__(self, tables: InterChipTables, stage_time: str, unit_s: float) -> None:
        self.tables, self.unit_s = tables, unit_s
        self.model = model = Model("interchip")
        options, stages = len(tables.kernel_o), tables.stages
        self.y_op = model.binary("y", (options, stages))
        self.of_kernel = tables.of_kernel
        model.rows("one_place", [(padded([self.y_op[o].ravel().tolist() for o in self.of_kernel]), 1.0)], 1, 1)
        must_meet(model, tables, self.y_op)
        self.conversions = conversions(model, tables, self.y_op)
        self.hops = self._stages() if stages > 1 else []
        self.stage_terms(stage_time)

    def _stages(self) -> list[tuple[Ints, float, bool]]:
        """Order of stages and the hops between them: (columns by boundary, seconds, whether sent backwards)."""
        tables, model, y, stages = self.tables, self.model, self.y_op, self.tables.stages
        before_kp = self._prefix("before", self.of_kernel)
        ordered = np.flatnonzero(tables.ordered_t)
        back_t = tables.reversed_t[ordered]
        first = np.where(back_t, tables.dst_t[ordered], tables.src_t[ordered])
        last = np.where(back_t, tables.src_t[ordered], tables.dst_t[ordered])
        early, late = before_kp[first, :-1].reshape(-1, 1), before_kp[last, :-1].reshape(-1, 1)
        model.rows("stage_order", [(late, 1.0), (early, -1.0)], upper=0)
        for position, (k, other) in enumerate(tables.together_kk):
            own, theirs = y[self.of_kernel[k]].T, y[self.of_kernel[other]].T
            model.rows(f"together_{position}", [(own, 1.0), (theirs, -1.0)], 0, 0)
        by_layout: dict[tuple[int, int], Ints] = {}
        crossing: dict[tuple[int, int, bool], Ints] = {}
        hops: list[tuple[Ints, float, bool]] = []
        for t in ordered.tolist():
            a, b, back = int(tables.src_t[t]), int(tables.dst_t[t]), bool(tables.reversed_t[t])
            for layout in range(3):
                options = self.of_kernel[a][tables.produced_o[self.of_kernel[a]] == layout]
                if not len(options) or tables.hop_tl[t, layout] == 0:
                    continue
                if (a, layout) not in by_layout:
                    every_option = len(options) == len(self.of_kernel[a])
                    before_p = before_kp[a] if every_option else self._prefix(f"before_{a}_{layout}", [options])[0]
                    by_layout[a, layout] = before_p
                before_p = by_layout[a, layout]
                key = int(tables.group_t[t]), layout, back
                if key not in crossing:
                    name = f"hop_{key[0]}_{layout}_{'back' if back else 'on'}"
                    crossing[key] = model.continuous(name, (stages - 1,), 0.0, 1.0)
                    hops.append((crossing[key], float(tables.hop_tl[t, layout]), back))
                x, here, there = (c.reshape(-1, 1) for c in (crossing[key], before_p[:-1], before_kp[b, :-1]))
                if back:  # produced in a stage after the boundary (all stages less those before), consumed before it
                    every = np.full_like(x, before_p[-1])
                    terms: Terms = [(x, 1.0), (there, -1.0), (every, -1.0), (here, 1.0)]
                    model.rows(f"hop_row_{t}_{layout}", terms, lower=-1)
                else:
                    model.rows(f"hop_row_{t}_{layout}", [(x, 1.0), (here, -1.0), (there, 1.0)], lower=0)
        return hops

    def _prefix(self, name: str, options: Sequence[Ints]) -> Ints:
        """Columns (set of options, stage): whether one of the options runs in this stage or an earlier one."""
        y, stages = self.y_op, self.tables.stages
        columns = self.model.continuous(name, (len(options), stages), 0.0, 1.0)
        earlier = np.hstack([np.full((len(options), 1), -1), columns[:, :-1]])
        here = padded([[int(c) for c in y[of, p]] for of in options for p in range(stages)])
        terms: Terms = [(columns.reshape(-1, 1), 1.0), (earlier.reshape(-1, 1), -1.0), (here, -1.0)]
        self.model.rows(f"{name}_sum", terms, 0, 0)
        return columns

    # -- objective levels ---------------------------------------------------------------------
    def compute(self, p: int) -> Terms:
        """Compute time of stage p."""
        return [(self.y_op[:, p], self.tables.compute_o / self.unit_s)]

    def network(self, p: int) -> Terms:
        """Collectives and layout conversions of stage p."""
        own: Terms = [(self.y_op[:, p], self.tables.network_o / self.unit_s)]
        return own + [(columns[:, p], seconds / self.unit_s) for columns, seconds, _, _ in self.conversions]

    def point_to_point(self, p: int) -> Terms:
        """Time that stage p spends on sending to its neighbours."""
        terms: Terms = []
        for columns, seconds, back in self.hops:
            boundary = p - 1 if back else p  # the sending stage lies after it or before it
            if 0 <= boundary < len(columns):
                terms.append((columns[boundary : boundary + 1], seconds / self.unit_s))
        return terms

    def total(self) -> Terms:
        """All of it over all stages."""
        stages = range(self.tables.stages)
        return [term for p in stages for term in (*self.compute(p), *self.network(p), *self.point_to_point(p))]

    def bytes(self, unit: float, conversions_only: bool = False) -> Terms:
        """Bytes moved, in multiples of ``unit``."""
        terms: Terms = []
        for columns, _, size, _ in self.conversions:
            terms.append((columns.ravel(), np.repeat(size / unit, self.tables.stages)))
        if not conversions_only:
            terms.append((self.y_op.ravel(), np.repeat(self.tables.bytes_o / unit, self.tables.stages)))
        return terms

    def held(self) -> Terms:
        """Bytes that the schemes make chips read, write and keep, beside the least that each kernel costs."""
        tables = self.tables
        least_k = np.full(tables.kernels, np.inf)
        np.minimum.at(least_k, tables.kernel_o, tables.held_o)
        more_o = tables.held_o - least_k[tables.kernel_o]
        unit = max(float(more_o.max(initial=0.0)), 1.0)
        return [(self.y_op.ravel(), np.repeat(more_o / unit, tables.stages))]

    def stage_terms(self, stage_time: str) -> None:
        """T bounds the slowest stage from below; with one stage and a sum it is the sum itself."""
        self.slowest: Terms = []
        if self.tables.stages == 1 and stage_time == "sum":
            self.slowest = self.total()
            return
        column = self.model.continuous("T", (1,), 0.0)
        self.slowest = [(column, 1.0)]
        for p in range(self.tables.stages):
            groups = [self.compute(p), self.network(p), self.point_to_point(p)]
            if stage_time == "sum":
                groups = [[term for group in groups for term in group]]
            for position, terms in enumerate(groups):
                rows: Terms = [
                    (columns.reshape(1, -1), np.reshape(c, (1, -1)) * -1.0) for columns, c in terms if columns.size
                ]
                self.model.rows(f"slowest_{p}_{position}", [(column, 1.0), *rows], lower=0)


def optimize_interchip(
    setting: Setting,
    tables: InterChipTables,
    *,
    gap: float = 0.0,
    clock: Clock = UNLIMITED,
    solver: str = "highs",
    progress: Callable[[TracePoint], None] | None = None,
) -> InterChipMapping:
    """Choose the sharding scheme and pipeline stage of every kernel by a lexicographic MILP.

    Objectives are taken one after another, each kept while the next is minimised. ``seconds``: the slowest stage, then
    the sum over stages, then the DRAM that chips read, write and keep because of the schemes. ``bytes`` (DFModel):
    bytes moved, all collectives alike, then bytes of layout conversions, then the number of split kernels. Bytes leave
    ties, and the authors' solver left kernels whole in them; ``seconds`` finds the faster member of a tie.

    Parameters
    ----------
    setting, tables : Setting, InterChipTables
        The workload and the machine, and the costs of the options.
    gap : float
        Relative gap for each objective.
    clock : Clock
        Limit on the solve.
    solver : str
        See :func:`dfopt.milp.solve`.
    progress : callable, optional
        Receives a :class:`TracePoint` whenever value or bound changes.

    Raises
    ------
    Infeasible
        If pinned shardings contradict each other.
    NoSolution
        If the time limit came first.
    """
    formulation, levels, scale, name = _levels(tables, setting.assumptions)
    model = formulation.model
    first: Solution | None = None
    chosen: Solution | None = None
    interrupted = False
    for position, terms in enumerate(levels):
        terms = [(columns, c) for columns, c in terms if columns.size and np.any(np.asarray(c) != 0)]
        if not terms and chosen is not None:
            continue
        model.minimize(terms)
        start = chosen.x if chosen is not None else None
        report = None if progress is None else partial(_report, progress, first, scale)
        solution = solve(model, gap=gap, clock=clock, start=start, progress=report, solver=solver)
        interrupted = solution.interrupted
        if solution.x is None:
            if chosen is not None:
                break
            _raise(solution, scale)
        first, chosen = first or solution, solution
        if solution.termination in (Termination.LIMIT_WITH_SOLUTION, Termination.INTERRUPTED_WITH_SOLUTION):
            break
        if position + 1 < len(levels) and terms:
            flat = np.concatenate([np.ravel(columns) for columns, _ in terms]).reshape(1, -1)
            cost = np.concatenate([np.broadcast_to(np.ravel(c), np.size(columns)) for columns, c in terms]).reshape(
                1, -1
            )
            slack = _KEPT * max(abs(solution.objective), 1.0)
            model.rows(f"keep_{position}", [(flat, cost)], upper=solution.objective + slack)
    assert first is not None and chosen is not None and chosen.x is not None
    sharding, stage = _decode(setting.graph, tables, formulation, chosen.x)
    return InterChipMapping(sharding, stage, first.in_units(scale), name, interrupted)


def _report(progress: Callable[[TracePoint], None], first: Solution | None, scale: float, point: TracePoint) -> None:
    """Report the first objective, in its unit; while a later one is minimised it stays as it is."""
    shown = point if first is None else first
    progress(TracePoint(point.seconds, shown.objective * scale, shown.bound * scale))


def _levels(tables: InterChipTables, assumptions: Assumptions) -> tuple[_Formulation, list[Terms], float, str]:
    """The model, its objectives in order of importance, the unit of the first and its name."""
    unit_s = max(float(tables.compute_o.sum()) / max(tables.stages, 1), LEAST_UNIT)
    formulation = _Formulation(tables, assumptions.stage_time, unit_s)
    if assumptions.sharding_objective == "bytes":
        unit = max(float(tables.bytes_o.max(initial=0.0)), float(tables.conversion_bytes_tll.max(initial=0.0)), 1.0)
        levels = [formulation.bytes(unit), formulation.bytes(unit, conversions_only=True)]
        split = np.repeat([float(z != "none") for z in tables.scheme_o], tables.stages)
        levels += [[(formulation.y_op.ravel(), split)]]
        levels += [formulation.slowest] if tables.stages > 1 else []
        return formulation, levels, unit, "bytes"
    levels = [formulation.slowest]
    if len(levels[0]) == 1:  # a T column hides the sum: among equal slowest stages take the least work
        levels.append(formulation.total())
    levels.append(formulation.held())
    return formulation, levels, unit_s, "seconds"


def formulate(tables: InterChipTables, assumptions: Assumptions) -> Model:
    """The MILP of sharding and stages with its first objective, see :func:`optimize_interchip`."""
    formulation, levels, _, _ = _levels(tables, assumptions)
    formulation.model.minimize([(columns, c) for columns, c in levels[0] if columns.size])
    return formulation.model


def _decode(
    graph: Graph, tables: InterChipTables, formulation: _Formulation, x: Floats
) -> tuple[dict[str, Sharding], dict[str, int]]:
    taken = x[formulation.y_op] > 0.5
    sharding: dict[str, Sharding] = {}
    stage: dict[str, int] = {}
    for o, p in zip(*np.nonzero(taken), strict=True):
        name = graph.kernels[int(tables.kernel_o[o])].name
        sharding[name], stage[name] = tables.scheme_o[o], int(p)
    order = [kernel.name for kernel in graph.kernels]
    return {name: sharding[name] for name in order}, {name: stage[name] for name in order}


def _raise(solution: Solution, scale: float) -> NoReturn:
    if solution.termination == Termination.INFEASIBLE:
        raise Infeasible(
            "no sharding and stage assignment satisfies the pinned schemes together; levers: unpin a kernel, another"
            " TP degree"
        )
    raise unanswered(solution.in_units(scale))
