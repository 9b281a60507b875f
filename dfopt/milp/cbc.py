"""What CBC is told beyond PuLP's own arguments, and what its log says beyond PuLP's statuses."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dfopt.milp.arrays import ModelArrays
from dfopt.milp.outcome import Settings

_DECIMALS: Final = 1e-3  # last digit of the bound at the end of a log,
_DIGITS: Final = 1e-7  # and, relative, that of the bound in its progress, which shows eight digits


@dataclass(frozen=True)
class Report:
    """What the end of a CBC log says.

    Attributes
    ----------
    proven : bool
        Whether the search was complete or reached the requested gap.
    exact : bool
        Whether it did so without making use of the gap.
    hasty : bool
        Whether preprocessing alone reported infeasibility, which can be wrong.
    objective, bound : float
        Incumbent and bound; NaN if missing.
    nodes : int
        Branch-and-bound nodes.
    """

    proven: bool
    exact: bool
    hasty: bool
    objective: float
    bound: float
    nodes: int


def options(arrays: ModelArrays, settings: Settings) -> dict[str, Any]:
    """Return keyword arguments for PuLP's CBC classes.

    Examples
    --------
    >>> from dfopt.milp import Model
    >>> m = Model("m")
    >>> options(m.arrays(), Settings(gap=0.25, seed=7))["options"][-2:]
    ['randomSeed 7', 'randomCbcSeed 7']
    """
    if settings.seed < 0:
        raise ValueError(f"seed must not be negative, not {settings.seed}")
    words = [f"{name} {settings.tolerance:g}" for name in ("primalTolerance", "dualTolerance", "integerTolerance")]
    # CBC looks only for solutions better by 1e-5, or by more where it sees that the objective
    # moves in larger steps.  Where all costs are whole that loses nothing and saves much.
    steps = arrays.integrality & (arrays.cost == np.round(arrays.cost)) | (arrays.cost == 0.0)
    if not steps.all():
        words.append("increment 1e-9")
    if not settings.again:
        # With preprocessing CBC 2.10.3 has been seen to call 3 optimal where 2 is possible (one of 3,000 random models
        # of four integers; without it none) and to spoil answers ("possible tolerance issue - try without"); without
        # it to crash.
        words.append("preprocess off")
    # With its heuristics CBC has been seen to prove 16.16 where there are solutions of 16.0, whatever else was off.
    words.append("heuristics off")
    if settings.seed:  # 0 would mean the time of day
        words += [f"randomSeed {settings.seed}", f"randomCbcSeed {settings.seed}"]
    # No thread count: even one thread means another, more fragile search.
    arguments: dict[str, Any] = {"options": words, "presolve": settings.presolve, "threads": None}
    if settings.gap > 0.0:
        # CBC measures the gap against the larger of objective and bound, we against the objective.
        arguments["gapRel"] = settings.gap / (1.0 + settings.gap)
    return arguments


def read(log: str) -> Report:
    """Parse the end of a CBC log.

    Examples
    --------
    >>> read('''Cbc0005I Partial search - best objective 5 (best possible 1.23456), took 7 iterations
    ... Result - Stopped on time limit
    ... Objective value:                5.00000000
    ... Lower bound:                    1.235
    ... Enumerated nodes:               12''')
    Report(proven=False, exact=False, hasty=False, objective=5.0, bound=1.2345598..., nodes=12)
    """
    search, _, result = log.rpartition("Result - ")
    first = result.partition("\n")[0]
    # Without integers, or when preprocessing leaves nothing to do, there is no such section.
    proven = first.startswith("Optimal solution found") or not search
    exact = proven and "within gap" not in first
    rounded = _number(r"Lower bound:\s+(\S+)", result)
    precise = _number(
        r"\(best possible ([^)\s]+)\)", search[search.rfind("Cbc0005I") :] if "Cbc0005I" in search else ""
    )
    # Three decimals in one place, eight digits in the other; each is good for what it shows.
    bound = rounded - _DECIMALS / 2
    if abs(precise - rounded) <= _DECIMALS:
        bound = max(bound, precise - _DIGITS * max(1.0, abs(precise)))
    objective, nodes = _number(r"Objective value:\s+(\S+)", result), _number(r"Enumerated nodes:\s+(\d+)", result)
    hasty = "Pre-processing says infeasible" in log
    return Report(proven, exact, hasty, objective, bound, 0 if math.isnan(nodes) else int(nodes))


def _number(pattern: str, text: str) -> float:
    match = re.search(pattern, text)
    return float(match[1]) if match else math.nan
