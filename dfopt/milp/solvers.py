"""The names of solvers, and the version of HiGHS."""

from __future__ import annotations

import importlib.metadata


def check_solver(name: str) -> str:
    """Return the canonical name of a solver, or raise if it cannot be used here.

    It is "highs", or "pulp:" and a name that PuLP lists, in any case. The usual short names are accepted too: CBC (the
    one that comes with PuLP), GLPK, SCIP, GUROBI, CPLEX.

    Raises
    ------
    PlanError
        With the names of the solvers that are available here.

    Examples
    --------
    >>> check_solver("HiGHS"), check_solver("pulp:cbc")
    ('highs', 'pulp:PULP_CBC_CMD')
    """
    if name.strip().lower() == "highs":
        return "highs"
    from dfopt.milp.pulp_door import find_solver  # not for those who never ask

    return f"pulp:{find_solver(name)}"


def highs_version() -> str:
    """The version of HiGHS, for provenance.

    Examples
    --------
    >>> highs_version().split(".")[0]
    '1'
    """
    return importlib.metadata.version("highspy")  # the package of each release of HiGHS has its number
