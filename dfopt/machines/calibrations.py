"""Calibrations of the zoo, and systems with the shares of one."""

from __future__ import annotations

from typing import Final

from dfopt.documents.assumptions import Assumptions, profile
from dfopt.documents.calibration import Calibration
from dfopt.documents.system import System
from dfopt.documents.zoo import find, is_path, zoo
from dfopt.errors import PlanError

__all__ = ["CALIBRATED", "assumed_on", "calibration_of"]

CALIBRATED: Final = "calibrated"


def calibration_of(text: str, system: System) -> Calibration | None:
    """The calibration that a text names: a file of one, one of the zoo, or ``calibrated``, which is that of the chip.

    Raises
    ------
    PlanError
        For ``calibrated`` where no calibration is of the chip of the system.

    Examples
    --------
    >>> from dfopt.machines.compose import load_system
    >>> calibration_of("calibrated", load_system("a100-512")).profile
    'a100-calibrated'
    """
    names = zoo("calibrations")
    if text in names or (is_path(text) and text.endswith((".yaml", ".yml", ".json")) and _is_calibration(text)):
        return Calibration.load(find("calibrations", text))
    if text != CALIBRATED:
        return None
    every = [Calibration.load(find("calibrations", name)) for name in names]
    for one in every:
        if one.chip == system.chip.name:
            return one
    chips = ", ".join(repr(one.chip) for one in every)
    message = f"found no calibration of {system.chip.name!r}, the chip of {system.name}; there is one of {chips}"
    raise PlanError(f"calibrated: {message}; calibrate it (`dfopt calibrate`), or assume another profile")


def _is_calibration(path: str) -> bool:
    from dfopt.documents.kinds import kind_of
    from dfopt.documents.strict_yaml import load_strict

    file = find("calibrations", path)
    return kind_of(load_strict(file), str(file)) == "calibration"


def assumed_on(assumptions: Assumptions | Calibration | str, system: System) -> tuple[Assumptions, System]:
    """Assumptions, and the system as they are about it: with the shares of a calibration, if they are one.

    Raises
    ------
    DfoptError
        For a name that is none, and a calibration of another chip.

    Examples
    --------
    >>> from dfopt.machines.compose import load_system
    >>> chosen, system = assumed_on("calibrated", load_system("h100-8"))
    >>> chosen.profile, system.network[0].efficiency
    ('h100-calibrated', 0.9289)
    """
    if isinstance(assumptions, str):
        assumptions = calibration_of(assumptions, system) or profile(assumptions)
    if isinstance(assumptions, Calibration):
        return assumptions.assumptions, assumptions.applied(system)
    return assumptions, system
