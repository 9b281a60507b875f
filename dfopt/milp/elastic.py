"""Which rows stand in the way: the cheapest relaxation of an infeasible model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dfopt.arrays import Floats
from dfopt.milp.arrays import with_slack
from dfopt.milp.doors import solve
from dfopt.milp.model import Model
from dfopt.milp.outcome import TOLERANCE
from dfopt.milp.solution import Termination


def explain_infeasible(model: Model, blocks: Sequence[str], time_limit: float = 5.0) -> dict[str, Floats]:
    """Return by how much each row of some blocks must be relaxed for the model to be feasible.

    The named row blocks get nonnegative slack on every finite side; all other rows, the bounds and the integrality
    stay. The sum of slacks, each divided by the largest coefficient of its row, is minimised; the objective plays no
    part.

    Parameters
    ----------
    model
        A model that may be infeasible.
    blocks
        Names of its row blocks that may be relaxed.
    time_limit : float, s
        Wall-clock limit of the solve.

    Returns
    -------
    dict of str to ndarray
        Slack per row for each named block, in the units of the row and all zero where nothing has to give. Empty
        when the model stays infeasible with these blocks relaxed.

    Raises
    ------
    TimeoutError
        If ``time_limit`` wall seconds were too short to tell.

    Examples
    --------
    >>> m = Model("tight")
    >>> x = m.binary("x", 2)
    >>> m.rows("need", [(x[None, :], 1.0)], lower=3.0)
    >>> explain_infeasible(m, ["need"])["need"].tolist()
    [1.0]
    """
    unknown = [name for name in blocks if name not in model.row_blocks]
    if unknown:
        raise ValueError(f"no row blocks {unknown} in {model.name!r}: {sorted(model.row_blocks)}")
    base = model.arrays()
    none = np.empty(0, dtype=np.int64)
    soft = np.concatenate([none, *(np.arange(b.start, b.stop) for b in map(model.row_blocks.__getitem__, blocks))])
    under = soft[np.isfinite(base.row_lower[soft])]
    over = soft[np.isfinite(base.row_upper[soft])]
    result = solve(with_slack(base, under, over), time_limit=time_limit)
    if result.termination is Termination.INFEASIBLE:
        return {}
    if result.x is None:
        raise TimeoutError(f"no explanation within {time_limit:g} s: {result.message}")
    slack = np.zeros(base.row_lower.size)
    given = result.x[base.cost.size :]
    slack[under] += given[: under.size]
    slack[over] += given[under.size :]
    slack[slack < TOLERANCE] = 0.0
    return {name: slack[model.row_blocks[name]] for name in blocks}
