"""The fastest mapping under the plan of a result that keeps budgets: sums over the partitions of one of its stages.

Where the result was found with sharding and fusion together, both are free here too. What no mapping beats without
budgets bounds the shardings that are left, beside the budgets over the stage with every figure at its least
(:class:`dfopt.search.budgets.Budget`); one sharding after the other is solved with its rows, and excludes others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dfopt.bnb import Clock
from dfopt.documents.mapping import Mapping
from dfopt.documents.result import Result, Status
from dfopt.documents.score import Score
from dfopt.errors import Infeasible, NoSolution, PlanError
from dfopt.judge import evaluate
from dfopt.milp import check_solver
from dfopt.physics.efficiency import memory_rows
from dfopt.search.budgets import Budget, totals_of
from dfopt.search.fitting import Fitter
from dfopt.search.kept import proven_gap
from dfopt.setting.instance import Setting
from dfopt.setting.stages import is_cut
from dfopt.solving.options import Options
from dfopt.solving.solved import Solved


@dataclass(frozen=True)
class Within:
    """The fastest mapping within budgets, with its proof.

    Attributes
    ----------
    mapping, score : Mapping, Score
        The mapping, and its score by the judge.
    totals : dict
        Sum of every budget's value over the judge's partitions.
    status : str
        ``optimal``: no sharding and no partitioning under the plan is faster; ``optimal_per_level``: no partitioning of
        the stage under the sharding and the tile count of the result; else how the search ended.
    gap : float
        Proven relative gap between the step and its bound, over the mappings that ``status`` refers to.
    blocks : int
        Blocks in the MILP that found it.
    note : str
        Why the sharding was not free, if it was not.
    """

    mapping: Mapping
    score: Score
    totals: dict[str, float]
    status: Status
    gap: float
    blocks: int
    note: str = ""


def optimize_within(
    result: Result,
    *budgets: Budget,
    stage: int = 0,
    gap: float = 0.0,
    time_limit: float = 60.0,
    solver: str = "highs",
    seed: int = 0,
) -> Within:
    """Re-optimize the partitions of a result, and its sharding, such that sums over them stay within budgets.

    The plan is that of the result. Sharding and tile count are chosen anew where ``sharding_objective: joint`` chose
    them, and otherwise kept. The judge recomputes time and sums.

    Parameters
    ----------
    result : Result
        Result of :func:`dfopt.optimize`, on a chip that fuses kernels.
    *budgets : Budget
        One row of the MILP each.
    stage : int
        Stage of the mapping; 0 is the layer of a repeated graph.
    gap : float
        Relative gap at which the search may stop; 0 asks for a proof.
    time_limit : float
        Seconds for everything.
    solver, seed
        See :func:`dfopt.milp.solve`.

    Returns
    -------
    Within

    Raises
    ------
    PlanError
        If there is no budget, two share a name, a value is no finite number, there is no such stage, or its blocks
        cannot be listed.
    Infeasible
        If no partitioning keeps the budgets; the message names the totals that can be reached.
    NoSolution, SolverFailure, ScoreMismatch
        See :mod:`dfopt.errors`.

    Examples
    --------
    >>> import dfopt as df
    >>> result = df.solve(df.load_graph("gpt2-small"), df.load_system("sn10-8-ring"), tp=8)
    >>> alone = df.Budget("largest partition", lambda block: max(len(block.kernels) - 6, 0), at_most=0)
    >>> found = optimize_within(result, alone)
    >>> found.gap, max(len(part.kernels) for part in found.score.partitions) <= 6
    (0.0, True)
    >>> found.score.step_time_s >= result.step_time_s
    True
    """
    names, chosen = [budget.name for budget in budgets], result.assumptions
    if not budgets or len(set(names)) < len(names):
        raise PlanError(f"optimize_within: found budgets {names}, expected one or more with names of their own")
    if result.plan.placement is not None and result.plan.placement.elsewhere:
        problem = f"optimize_within: found a plan with {result.plan.placement.label}"
        raise PlanError(f"{problem}, expected one memory: blocks do not say which bytes pass which; give the chip one")
    if memory_rows(result.system.chip, chosen):
        problem = f"optimize_within: found rows of unit memory in {result.system.name}, with which bytes are no bound"
        raise PlanError(f"{problem} of seconds; leave them out")
    asked = {"gap": gap, "solver": check_solver(solver), "seed": seed, "formulation": "auto", "top": 1}
    options = Options(result.request, Clock.of_limit(time_limit)).asking(**asked)
    if result.plan.two_batch_overlap:
        raise PlanError(
            "optimize_within: the plan takes two microbatches at a time, whose partitions do not add up; take a result"
            " with two_batch_overlap: false"
        )
    setting, note = Setting(result.graph, result.system, chosen), ""
    fitter = Fitter(setting, options, budgets, stage)
    if chosen.sharding_objective != "joint":
        note = f"sharding_objective: {chosen.sharding_objective} keeps the sharding of the result"
    elif is_cut(result.graph, result.plan):
        note = "kernels drawn once on several pipeline stages keep their stages and their sharding"
    refused, low, best = "", np.inf, None
    try:
        own = fitter.within(result.mapping, np.inf)
        assert isinstance(own, Solved)
        best, low = own, own.bound
    except Infeasible as error:
        if note:
            raise
        refused = f"{error.report}; "
    if not note:
        best, low = fitter.best(result.plan, best)
    if best is None and np.isinf(low):
        raise Infeasible(f"{refused}no other sharding keeps them either")
    if best is None:
        raise NoSolution(low, time_limit)
    distance = proven_gap(best.value, min(low, best.value))
    status: Status = "optimal_per_level" if note else "optimal"
    if distance:
        status = "gap_reached" if distance <= gap else "limit_with_solution"
    score = evaluate(best.mapping, result.graph, result.system, result.assumptions)
    fitted = fitter.fitted[best.mapping.digest()]
    totals = totals_of(score, stage, budgets, fitted.units, fitted.seconds)
    return Within(best.mapping, score, totals, status, distance, fitted.blocks, note)
