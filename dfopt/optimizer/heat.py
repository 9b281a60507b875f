"""Heat inside the optimiser: the three answers for a plan, and the heat-aware mapping of a result."""

from __future__ import annotations

import time
from dataclasses import replace

from dfopt.documents.heat import HeatProof, HeatReport
from dfopt.documents.result import Result
from dfopt.documents.stack import Stack
from dfopt.documents.system import System
from dfopt.errors import Issue, PlanError, SystemSpecError
from dfopt.judge import evaluate
from dfopt.machines.stacks import with_stack
from dfopt.milp import check_solver
from dfopt.optimizer.heat_settle import physical
from dfopt.optimizer.heat_study import Study
from dfopt.optimizer.one_plan import Solved
from dfopt.optimizer.options import Options

HEAT_GAP = 1e-4  # relative: closer than the leakage is known, levels of many partitions are hard to prove


def heat_answers(
    result: Result,
    stack: Stack | None = None,
    *,
    gap: float = HEAT_GAP,
    time_limit: float = 60.0,
    finite_difference: bool = True,
    solver: str = "highs",
    seed: int = 0,
) -> HeatReport:
    """Deal with heat in three ways, under the plan and the sharding of a result.

    Parameters
    ----------
    result : Result
        Its plan, sharding and graph are kept; partitions are chosen anew with the memory's effective bandwidth.
    stack : Stack, optional
        The chip as a stack of dies; the one of the result's system if left out.
    gap : float
        Relative gap at which a solve may stop; 0 asks for a proof.
    time_limit : float
        Seconds for everything.
    finite_difference : bool
        Whether to solve once more with limits that are 1 K higher.
    solver, seed
        Of the MILPs, see :func:`dfopt.milp.solve`.

    Returns
    -------
    HeatReport
        ``ignore``: the fastest mapping, however hot. ``throttle``: the same at the highest uniform level that keeps
        the limits, with pauses if none does. ``aware``: partitions, levels and pauses chosen together; missing, with a
        note, where blocks of kernels cannot be listed.

    Raises
    ------
    SystemSpecError
        If there is no stack.
    Infeasible
        If even a resting chip is above a limit.

    Examples
    --------
    >>> import dfopt as df
    >>> stack = df.load_stack("hybrid-vault", {"limits.logic": "60 degC"})
    >>> system = df.load_system("sn10-8-ring")
    >>> result = df.optimize(df.load_graph("gpt2-small"), system, tp=8)
    >>> report = heat_answers(result, stack, finite_difference=False)
    >>> [answer.name for answer in report.answers], report.answers[2].logic_max_c <= 60.05
    (['ignore', 'throttle', 'aware'], True)
    """
    system = needs_stack(result.system, stack)
    options = Options(
        request=result.request,
        assumptions=result.assumptions,
        p_max=result.request.p_max,
        formulation="auto",
        gap=gap,
        deadline=time.perf_counter() + time_limit,
        pin_sharding={},
        pin_partition=dict(result.request.pin_partition),
        progress=None,
        seed=seed,
        solver=check_solver(solver),
    )
    study = Study(result.graph, system, result.mapping, options)
    return study.report(finite_difference)


def needs_stack(system: System, stack: Stack | None) -> System:
    """The system with its chip as a stack: the one given, or its own.

    Raises
    ------
    SystemSpecError
        If there is none.
    """
    if stack is not None:
        return with_stack(system, stack)
    if system.stack is None:
        issue = Issue("$.stack", "found none, expected a stack of dies", "give one, such as --stack hybrid-vault")
        raise SystemSpecError(system.name, [issue])
    return system


def made_aware(best: Solved, system: System, options: Options) -> tuple[Solved, HeatProof, str]:
    """The best mapping of a search, re-optimised under the limits on heat of its system's stack.

    Returns
    -------
    Solved, HeatProof, str
        Its plan and sharding with other partitions, clocks and pauses; what was shown, as figures and as a sentence.

    Raises
    ------
    PlanError
        If the blocks of kernels cannot be listed.
    Infeasible
        If no mapping keeps the limits.
    """
    study = Study(best.graph, system, best.mapping, replace(options, gap=max(options.gap, HEAT_GAP)))
    if study.why:
        raise PlanError(study.why)
    found = study.aware()
    mapping, _ = study.best_of(found)
    score = evaluate(mapping, best.graph, system, options.assumptions)
    answer = found.answer
    note = (
        f"; then partitions, levels and pauses of the best plan were chosen anew under the limits on heat of the stack"
        f" {study.stack.name}: {physical(score).step_time_s:.6g} s per step there, within {100 * answer.gap:.2g} % of"
        f" what that plan and sharding allow, throttled {study.throttle.step_s:.6g} s"
    )
    return replace(best, mapping=mapping, score=score), study.proof(found), note
