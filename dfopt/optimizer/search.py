"""The search over plans: bound each, solve the promising ones, stop when none can be better."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from dfopt.documents.assumptions import Assumptions, profile
from dfopt.documents.graph import Graph
from dfopt.documents.mapping import Sharding
from dfopt.documents.plan import Plan
from dfopt.documents.result import PlanRecord, Result, SolveRecord
from dfopt.documents.system import System
from dfopt.errors import Infeasible, Issue, NoSolution, PlanError, SolveError, SystemSpecError
from dfopt.optimizer.one_plan import Formulation, Options, Prepared, Progress, Solved, finish, prepare
from dfopt.optimizer.outcome import assemble, sensitivities
from dfopt.physics.pipeline import resolve
from dfopt.problems.bounds import plan_bound
from dfopt.problems.plans import plans


def optimize(
    graph: Graph,
    system: System,
    *,
    assumptions: Assumptions | str = "default",
    tp: int | None = None,
    pp: int | None = None,
    dp: int | None = None,
    tp_dims: tuple[str, ...] | None = None,
    pp_dims: tuple[str, ...] | None = None,
    dp_dims: tuple[str, ...] | None = None,
    p_max: int | None = None,
    formulation: Formulation = "auto",
    gap: float = 0.0,
    time_limit: float = 60.0,
    pin_sharding: dict[str, Sharding] | None = None,
    pin_partition: dict[str, int] | None = None,
    sensitivity: bool = False,
    progress: Callable[[Progress], None] | None = None,
    seed: int = 0,
) -> Result:
    """Find, prove and judge the fastest mapping of a graph onto a system.

    Parameters
    ----------
    graph, system : Graph, System
        What to map, and onto what.
    assumptions : Assumptions or str
        A document, or the name of a profile.
    tp, pp, dp : int, optional
        Degrees of tensor, pipeline and data parallelism; all that the network dims allow if left out.
    tp_dims, pp_dims, dp_dims : tuple of str, optional
        Network dims that carry them.
    p_max : int, optional
        On-chip partitions at most (exactly, under ``empty_partitions: forbid``). Default: any number in
        the columns form; in the assignment form two more than the best cut of a topological order needs.
    formulation : str
        Of the intra-chip problem: ``columns`` (a path through the lattice of down-sets), ``assignment``
        (the paper's matrices), or ``auto``: columns where the lattice is small, else assignment.
    gap : float
        Relative gap at which a solve may stop; 0 asks for a proof.
    time_limit : float
        Seconds for everything; the best mapping found by then is returned with its gap.
    pin_sharding, pin_partition : dict, optional
        Kernel name -> scheme or partition that the user fixes.
    sensitivity : bool
        Also optimise the winning plan with 10 % more of each resource.
    progress : callable, optional
        Called with a :class:`Progress` now and then while a solve runs.
    seed : int
        Seed of the solver.

    Returns
    -------
    Result
        Best mapping, its score and the proof.

    Raises
    ------
    PlanError, Infeasible, NoSolution, SolverFailure, ScoreMismatch
        See :mod:`dfopt.errors`.

    Examples
    --------
    >>> import dfopt as df
    >>> result = df.optimize(df.load_graph("gpt2-small"), df.load_system("sn10-8-ring"), tp=8)
    >>> result.status, result.gap
    ('optimal', 0.0)
    """
    began = time.perf_counter()
    chosen = profile(assumptions) if isinstance(assumptions, str) else assumptions
    resolved = resolve(chosen, system.chip.execution, system.chip.compute_utilization)
    _check(graph, system, resolved, pin_partition or {}, pin_sharding or {}, p_max)
    options = Options(
        assumptions=resolved,
        p_max=p_max,
        formulation=formulation,
        gap=gap,
        deadline=began + time_limit,
        pin_sharding=pin_sharding or {},
        pin_partition=pin_partition or {},
        progress=progress,
        seed=seed,
    )
    legal, rejected = plans(graph, system, tp=tp, pp=pp, dp=dp, tp_dims=tp_dims, pp_dims=pp_dims, dp_dims=dp_dims)
    search = _Search(graph, system, options)
    search.records += [PlanRecord(plan=r.plan, status="infeasible", bound_s=None, note=r.reason) for r in rejected]
    search.run(legal)
    if search.best is None:
        raise search.failure()
    extra = sensitivities(graph, system, search.best, options) if sensitivity and not search.stopped else ()
    return assemble(graph, system, search.best, search.records, options, began, search.stopped, extra)


class _Search:
    """Branch and bound over plans: prepare all, then fuse them from the most promising on."""

    def __init__(self, graph: Graph, system: System, options: Options) -> None:
        self.graph, self.system, self.options = graph, system, options
        self.records: list[PlanRecord] = []
        self.best: Solved | None = None
        self.stopped = False  # by Ctrl-C
        self.reasons: list[str] = []
        self.unsolved: NoSolution | None = None

    @property
    def incumbent(self) -> float:
        """Seconds of the best judged step so far."""
        return self.best.score.step_time_s if self.best is not None else np.inf

    def run(self, legal: list[Plan]) -> None:
        """Go over the legal plans."""
        assumptions = self.options.assumptions
        bounds = {plan: plan_bound(self.graph, self.system, plan, assumptions) for plan in legal}
        ready: list[tuple[float, float, str, Prepared]] = []
        promised = np.inf  # a step that some start already reaches
        for plan in sorted(legal, key=lambda p: (bounds[p], p.label)):
            if bounds[plan] > promised * (1 + 1e-12) or self._out_of_time(bool(ready)):
                self._skip(plan, bounds[plan], promised)
                continue
            prepared = self._prepare(plan, bounds[plan])
            if prepared is None:
                continue
            stages = prepared.stages
            floor = max(bounds[plan], prepared.step_of([stage.floor for stage in stages], assumptions))
            known = prepared.step_of([stage.best_known for stage in stages], assumptions)
            promised = min(promised, known)
            ready.append((known, floor, plan.label, prepared))
        # the most promising start first: its solve gives the cutoff that ends the others early
        for _, floor, _, prepared in sorted(ready, key=lambda entry: entry[:3]):
            if self.best is not None and (floor >= self.incumbent * (1 - 1e-12) or self._out_of_time(True)):
                self._skip(prepared.plan, floor, self.incumbent, (prepared.record,))
                continue
            self._finish(prepared, bounds[prepared.plan])

    def _out_of_time(self, something: bool) -> bool:
        """Whether to stop; never before there is something to return."""
        return self.stopped or (something and time.perf_counter() > self.options.deadline)

    def _skip(self, plan: Plan, bound: float, best: float, solves: tuple[SolveRecord, ...] = ()) -> None:
        if bound >= best * (1 - 1e-12):
            self.records.append(PlanRecord(plan=plan, status="pruned_by_bound", bound_s=bound, solves=solves))
            return
        note = "Ctrl-C" if self.stopped else "time limit"
        self.records.append(PlanRecord(plan=plan, status="not_reached", bound_s=bound, solves=solves, note=note))

    def _prepare(self, plan: Plan, bound: float) -> Prepared | None:
        try:
            return prepare(self.graph, self.system, plan, self.options)
        except Infeasible as error:
            self._infeasible(plan, error)
        except KeyboardInterrupt:
            self.stopped = True
            self._skip(plan, bound, np.inf)
        return None

    def _infeasible(self, plan: Plan, error: Infeasible) -> None:
        self.reasons.append(f"{plan.label}: {error.report}")
        self.records.append(PlanRecord(plan=plan, status="infeasible", bound_s=None, note=str(error.report)))

    def _finish(self, prepared: Prepared, bound: float) -> None:
        plan, started = prepared.plan, time.perf_counter()
        try:
            outcome = finish(prepared, self.options, self.incumbent)
        except Infeasible as error:
            self._infeasible(plan, error)
            return
        except NoSolution as error:
            self.unsolved = error
            self.records.append(PlanRecord(plan=plan, status="limit", bound_s=bound, note=str(error)))
            return
        except KeyboardInterrupt:
            self.stopped = True
            self._skip(plan, bound, np.inf)
            return
        seconds = time.perf_counter() - started
        if isinstance(outcome, PlanRecord):
            self.records.append(outcome.model_copy(update={"seconds": seconds}))
            return
        self.stopped = self.stopped or outcome.interrupted
        proven, step_s = max(bound, outcome.bound_s), outcome.score.step_time_s
        self.records.append(
            PlanRecord(
                plan=plan,
                status="limit" if outcome.limited else "solved",
                bound_s=min(proven, step_s),
                step_time_s=step_s,
                gap=max(0.0, (step_s - proven) / step_s),
                seconds=seconds,
                solves=outcome.records,
            )
        )
        if step_s < self.incumbent:
            self.best = outcome

    def failure(self) -> SolveError | KeyboardInterrupt:
        """Why there is no mapping at all."""
        if self.unsolved is not None:
            return self.unsolved
        if self.stopped:
            return KeyboardInterrupt()
        if len(self.reasons) == 1:
            return Infeasible(self.reasons[0])
        return Infeasible("no plan fits: " + "; ".join(self.reasons))


def _check(
    graph: Graph,
    system: System,
    assumptions: Assumptions,
    pin_partition: dict[str, int],
    pin_sharding: dict[str, Sharding],
    p_max: int | None,
) -> None:
    chip = system.chip
    if assumptions.compute_model == "cycle" and None in (chip.lanes, chip.stages, chip.frequency):
        message = "the cycle model needs lanes, stages and frequency; found only peak"
        raise SystemSpecError(system.name, [Issue("$.chip", message, "give all three, or use compute_model: fixed")])
    known = graph.index()
    for option, pins in (("pin_partition", pin_partition), ("pin_sharding", pin_sharding)):
        for name in pins:
            if name not in known:
                raise PlanError(f"{option}: {graph.name} has no kernel {name!r}; `dfopt show {graph.name}` lists them")
    if p_max is not None and p_max < 1:
        raise PlanError(f"p_max must be at least 1, found {p_max}")
    for name, partition in pin_partition.items():
        if partition < 0 or (p_max is not None and partition >= p_max):
            raise PlanError(
                f"kernel {name!r} is pinned to partition {partition}, expected 0 to {(p_max or 1) - 1} (p_max {p_max})"
            )
    if assumptions.empty_partitions == "forbid" and assumptions.execution == "dataflow" and p_max is None:
        raise PlanError("empty_partitions: forbid means exactly p_max partitions; give p_max (--p-max)")
