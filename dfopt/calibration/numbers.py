"""Numbers of a machine that may be fitted: shares of its rates, each within physical bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.efficiency import EfficiencyRow
from dfopt.documents.system import System
from dfopt.errors import PlanError, did_you_mean

MOST_NUMBERS: Final = 12
_UNITS: Final = ("matrix", "matmul", "attention", "vector", "memory", "optimizer")
_OVERHEADS: Final = {"kernel_overhead": 50e-6, "step_overhead": 10.0}
"""Seconds at most, where assumptions have such a field."""


@dataclass(frozen=True)
class FitParameter:
    """A fittable number with start and bounds; for a share, step times are about affine in its inverse.

    ``matrix``, ``vector`` and ``memory`` are the share of the largest kernels; smaller ones keep their ratio to it.
    ``matmul``, ``attention`` and ``optimizer`` are those of rows with such an ``op``.
    """

    name: str
    start: float
    least: float
    most: float
    share: bool = True

    def coordinate(self, value: float) -> float:
        """The coordinate in which step times are about affine: 1 / value for a share.

        Examples
        --------
        >>> FitParameter("vector", start=0.5, least=0.01, most=1.0).coordinate(0.25)
        4.0
        """
        return 1 / value if self.share else value


def number_of(row: EfficiencyRow) -> str:
    """Name of the number that an efficiency row depends on."""
    return row.op or row.unit


def _top(rows: Sequence[EfficiencyRow], name: str) -> float | None:
    return max((row.share for row in rows if number_of(row) == name), default=None)


def known_numbers(system: System, assumptions: Assumptions) -> dict[str, FitParameter]:
    """All fittable numbers of a system and assumptions, by name.

    Examples
    --------
    >>> from dfopt.library import load_system
    >>> found = known_numbers(load_system("a100-512"), Assumptions())
    >>> [name for name in found if not name.endswith("overhead")]
    ['matrix', 'vector', 'memory', 'node', 'cluster']
    """
    rows = system.chip.efficiency or ()
    tops = {unit: _top(rows, unit) for unit in _UNITS}
    numbers = {unit: FitParameter(unit, top, 0.005, 1.0) for unit, top in tops.items() if top is not None}
    numbers |= {dim.name: FitParameter(dim.name, dim.efficiency or 1.0, 0.05, 1.0) for dim in system.network}
    for name, most in _OVERHEADS.items():
        if name in type(assumptions).model_fields:
            numbers[name] = FitParameter(name, getattr(assumptions, name) or 0.0, 0.0, most, share=False)
    return numbers


def named(names: Sequence[str], available: Mapping[str, FitParameter]) -> tuple[FitParameter, ...]:
    """Numbers by name; `PlanError` if one is unknown or repeated, or if there are none or too many."""
    for name in names:
        if name not in available:
            listed = f"one of {', '.join(available)}"
            raise PlanError(f"fit: found {name!r}; {did_you_mean(name, list(available), listed)}")
    if len(set(names)) < len(names) or not 0 < len(names) <= MOST_NUMBERS:
        raise PlanError(f"fit: found {', '.join(names) or 'nothing'}; name 1 to {MOST_NUMBERS} numbers, each once")
    return tuple(available[name] for name in names)


def applied(values: Mapping[str, float], system: System, assumptions: Assumptions) -> tuple[System, Assumptions]:
    """System and assumptions with new values of some numbers; missing network dims are ignored.

    Parameters
    ----------
    values : mapping of str to float
        New values, by name of the number.
    system, assumptions : System, Assumptions
        Documents to change.

    Raises
    ------
    PlanError
        For a share outside (0, 1].
    """
    rows = system.chip.efficiency or ()
    dims = system.network
    fields: dict[str, float] = {}
    for name, value in values.items():
        if name in _OVERHEADS:
            fields[name] = value
            continue
        if not 0 < value <= 1:
            raise PlanError(f"{name}: found a share of {value:g}, expected more than 0 and at most 1")
        top = _top(rows, name)
        if top is not None:
            factor = value / top
            rows = tuple(
                row.model_copy(update={"share": row.share * factor}) if number_of(row) == name else row for row in rows
            )
        dims = tuple(dim.model_copy(update={"efficiency": value}) if dim.name == name else dim for dim in dims)
    chip = system.chip.model_copy(update={"efficiency": rows})
    changed = assumptions.model_copy(update=fields) if fields else assumptions
    return system.model_copy(update={"chip": chip, "network": dims}), changed
