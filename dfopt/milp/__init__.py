"""The only door to mathematical-programming solvers.

A model is named blocks over numpy index arrays (`Model`); solving is a
function from a model to a frozen `Solution` (`solve`).  No other module
of the project may import a solver, and importing this package does not import
one either: HiGHS is loaded by the first solve, PuLP by the first that names it.
"""

from dfopt.milp.doors import check_solver, highs_version, solve
from dfopt.milp.elastic import explain_infeasible
from dfopt.milp.model import Model, ModelArrays, Terms
from dfopt.milp.solution import Solution, Termination, TracePoint, closed_form, unanswered
from dfopt.milp.writing import write_model

__all__ = [
    "Model",
    "ModelArrays",
    "Solution",
    "Termination",
    "Terms",
    "TracePoint",
    "check_solver",
    "closed_form",
    "explain_infeasible",
    "highs_version",
    "solve",
    "unanswered",
    "write_model",
]
