"""The only door to mathematical-programming solvers.

A model is named blocks over numpy index arrays (`Model`); solving is a
function from a model to a frozen `Solution` (`solve`).  No other module
of the project may import a solver, and importing this package does not import
one either: HiGHS is loaded by the first solve, PuLP by the first that names it.
Most questions solve no program: what is not asked for is not imported.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from dfopt.milp.solution import Solution, Termination, TracePoint, closed_form, unanswered
from dfopt.milp.solvers import check_solver, highs_version

if TYPE_CHECKING:
    from dfopt.milp.doors import solve
    from dfopt.milp.elastic import explain_infeasible
    from dfopt.milp.model import Model, ModelArrays, Terms
    from dfopt.milp.writing import write_model

__all__ = [
    "Model", "ModelArrays", "Solution", "Termination", "Terms", "TracePoint", "check_solver", "closed_form",
    "explain_infeasible", "highs_version", "solve", "unanswered", "write_model",
]  # fmt: skip

_MODULES: Final = {"solve": "doors", "explain_infeasible": "elastic", "write_model": "writing"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"dfopt.milp.{_MODULES.get(name, 'model')}"), name)
