"""Why a stage has no legal partitioning: what is short, by how much, and what would help."""

from __future__ import annotations

from typing import Final, NoReturn

import numpy as np

from dfopt.bnb import Clock
from dfopt.errors import Infeasible
from dfopt.fusion.assignment import Assignment
from dfopt.fusion.blocks import StageTables
from dfopt.fusion.partitioning import IntraChipLimits
from dfopt.milp import Solution, Termination, explain_infeasible, unanswered
from dfopt.terms.sram import FITS

_MOST_S: Final = 5.0  # seconds for finding the cause: who has waited for an answer may wait so long for a reason
_LISTED: Final = 4  # kernels that a message names


def dram_report(need: float, left: float, at_least: str = "") -> str:
    """A sentence that activations do not fit DRAM, with the bytes needed and left.

    Parameters
    ----------
    need, left : float, B
        Bytes of activations, and bytes that are left for them.
    at_least : str
        Words before the need where that is a lower bound.
    """
    return (
        f"activations alive between partitions need {at_least}{need / 1e9:.4g} GB of DRAM per chip,"
        f" {max(left, 0) / 1e9:.4g} GB are left beside weights and optimizer: short by {(need - left) / 1e9:.4g} GB;"
        " levers: more tensor or pipeline parallelism, a smaller microbatch, more DRAM"
    )


def _asked(limits: IntraChipLimits) -> str:
    return f"{'exactly' if limits.exactly else 'at most'} {limits.p_max} partitions"


def check_count(tables: StageTables, limits: IntraChipLimits) -> None:
    """Raise `Infeasible` for a number of partitions that is too large or too small in any order.

    Raises
    ------
    Infeasible
        If there are fewer kernels, or more that need a separate partition.
    """
    n, alone, what = tables.kernels, np.flatnonzero(tables.parts_k > 1), _asked(limits)
    if limits.exactly and limits.p_max > n:
        levers = f"p_max {n} or less, empty_partitions allow"
        raise Infeasible(f"{what} need as many kernels, there are {n}; levers: {levers}")
    if len(alone) + (n > len(alone)) > limits.p_max:
        names = ", ".join(repr(tables.sharded.names[k]) for k in alone[:_LISTED])
        names += ", ..." * (len(alone) > _LISTED)
        raise Infeasible(
            f"{what} are too few: the weights of {len(alone)} kernels ({names}) do not fit SRAM beside anything, each"
            f" needs a partition of its own; levers: p_max {len(alone) + 1} or more, a larger tensor-parallel degree"
        )


def _no_order(tables: StageTables, limits: IntraChipLimits) -> str:
    """Why no partitioning is legal although neither SRAM nor the number of partitions is short."""
    rules = ["precedence", f"the forward/backward rule ({limits.forward_backward})"]
    rules += ["what a library does at once"] if tables.chip.library else []
    levers = ["another p_max"]
    if limits.pins:
        rules, levers = ["the pins", *rules], ["fewer pins", *levers]
    return f"no order of {_asked(limits)} satisfies {' and '.join(rules)} together; levers: {', '.join(levers)}"


def no_partitioning(solution: Solution, assignment: Assignment, clock: Clock) -> NoReturn:
    """Raise the error that a solve without a mapping means; it may spend up to five seconds to find the cause.

    Parameters
    ----------
    solution, assignment
        Solution without a mapping, and the program that it is of.
    clock
        The clock of the search.

    Raises
    ------
    Infeasible
        If no partitioning keeps all limits.
    NoSolution
        If the solve ended without an answer.
    """
    limits, unit = assignment.limits, assignment.unit_b
    if solution.termination == Termination.INFEASIBLE:
        try:
            explained = explain_infeasible(assignment.model, ["sram"], min(clock.seconds_left, _MOST_S))
            slack = explained.get("sram", np.zeros(0))
        except TimeoutError:
            raise Infeasible(
                f"no partitioning into at most {limits.p_max} partitions keeps all limits; there was no time left to"
                " find out which of them is short; levers: more time, and those of SRAM: more partitions (p_max),"
                " a larger tensor-parallel degree, a smaller microbatch"
            ) from None
        short = np.flatnonzero(slack > FITS).tolist()
        if short:
            where = ", ".join(f"{slack[p] * unit / 1e6:.4g} MB in partition {p}" for p in short)
            levers = "more partitions (p_max), a larger tensor-parallel degree, a smaller microbatch"
            raise Infeasible(f"with at most {limits.p_max} partitions SRAM is short by {where}; levers: {levers}")
        raise Infeasible(_no_order(assignment.tables, limits))
    raise unanswered(solution)
