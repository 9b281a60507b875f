"""Calibrations of the zoo, and systems with the shares of one."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Final, NamedTuple

from dfopt.documents.assumptions import PROFILES, Assumptions, profile
from dfopt.documents.base import Document
from dfopt.documents.calibration import Calibration
from dfopt.documents.graph import Graph
from dfopt.documents.kinds import kind_of
from dfopt.documents.parts import ChipPart
from dfopt.documents.strict_yaml import load_strict
from dfopt.documents.system import System
from dfopt.documents.zoo import find, is_path, resolve_near, zoo
from dfopt.errors import PlanError

CALIBRATED: Final = "calibrated"
"""What stands for the calibration of a system's chip."""


class Assumed(NamedTuple):
    """Resolved assumptions, the system with calibrated shares, and the calibration if any."""

    assumptions: Assumptions
    system: System
    calibration: Calibration | None = None


def assumed_on(given: Assumptions | Calibration | str, system: System, folder: Path | None = None) -> Assumed:
    """Resolve assumptions for a system, and apply the calibration's shares to it if they are one.

    Parameters
    ----------
    given : Assumptions, Calibration or str
        A document; or the name of a profile, of a calibration of the zoo, ``calibrated``, or a file of either.
    system : System
        The machine.
    folder : Path, optional
        Folder that paths are relative to; by default the working directory.

    Raises
    ------
    DfoptError
        For an unknown name, for ``calibrated`` if the chip has no calibration, and for a calibration of another chip.

    Examples
    --------
    >>> from dfopt.machines.compose import load_system
    >>> chosen, system, fitted = assumed_on("calibrated", load_system("h100-8"))
    >>> chosen.profile, system.chip.efficiency == fitted.efficiency
    ('h100-calibrated', True)
    """
    if isinstance(given, str):
        given = calibration_of(system) if given == CALIBRATED else _named(given, folder or Path())
    if isinstance(given, Calibration):
        return Assumed(given.assumptions, given.applied(system), given)
    return Assumed(given, system)


def assumed_again(assumptions: Assumptions, found_on: System, system: System) -> Assumed:
    """Assumptions of a result, resolved for another system with the same chip.

    Parameters
    ----------
    assumptions, found_on
        Assumptions of the result, and the system that it was found on.
    system
        The other system.

    Examples
    --------
    >>> from dfopt.machines.compose import load_system
    >>> chosen, found_on, _ = assumed_on("calibrated", load_system("a100-8"))
    >>> assumed_again(chosen, found_on, load_system("a100-512")).calibration.profile
    'a100-calibrated'
    """
    of_chip = (calibration for calibration in _of_zoo() if calibration.chip == system.chip.name == found_on.chip.name)
    fitted = next((calibration for calibration in of_chip if calibration.efficiency == found_on.chip.efficiency), None)
    if fitted is None or assumptions.compute_model != "efficiency":
        return Assumed(assumptions, system)
    return Assumed(assumptions, fitted.applied(system), fitted)


def calibration_of(system: System) -> Calibration:
    """Calibration of a system's chip in the zoo.

    Raises
    ------
    PlanError
        If there is none.

    Examples
    --------
    >>> from dfopt.machines.compose import load_system
    >>> calibration_of(load_system("a100-512")).profile
    'a100-calibrated'
    """
    every = _of_zoo()
    for calibration in every:
        if calibration.chip == system.chip.name:
            return calibration
    peaks = {chip.name: chip.peak_flops for chip in (ChipPart.load(find("chips", name)) for name in zoo("chips"))}
    near = sorted(every, key=lambda other: abs(math.log(peaks[other.chip] / system.chip.peak_flops)))
    chips = ", ".join(f"{other.chip!r} ({other.profile})" for other in near)
    message = f"found no calibration of {system.chip.name!r}, the chip of {system.name} (nearest by peak rate: {chips})"
    raise PlanError(f"calibrated: {message}; calibrate it (`dfopt calibrate`), or assume another profile")


def usual(graph: Graph, system: System) -> tuple[Calibration | None, str]:
    """Default calibration for a workload on a machine, or None, with the reason in words.

    It is for training steps, to which the calibrations were fitted. In words: why one that there is does not serve.

    Examples
    --------
    >>> from dfopt.machines.compose import load_system
    >>> from dfopt.workloads import load_graph
    >>> usual(load_graph("gpt3-175b", mode="training"), load_system("a100-512"))[0].profile
    'a100-calibrated'
    >>> usual(load_graph("gpt3-175b"), load_system("a100-512"))
    (None, 'it was fitted to training steps')
    """
    fitted = next((calibration for calibration in _of_zoo() if calibration.chip == system.chip.name), None)
    if fitted is None:
        return None, ""
    reasons = {
        "it was fitted to training steps": not graph.trains,
        "the bandwidth of a stack of dies follows from its DRAM": system.stack is not None,
        "layers are drawn one by one": not graph.folded,
        f"it knows {len(fitted.network)} levels of a network": len(system.network) > len(fitted.network),
    }
    why = next((reason for reason, holds in reasons.items() if holds), "")
    return (None, why) if why else (fitted, "")


def _of_zoo() -> list[Calibration]:
    return [Calibration.load(find("calibrations", name)) for name in zoo("calibrations")]


def _named(text: str, folder: Path) -> Assumptions | Calibration:
    """A profile, a calibration of the zoo, or a file of either."""
    meant = resolve_near("calibrations", folder, text)
    if text in PROFILES or (meant == text and text not in zoo("calibrations") and not is_path(text)):
        return profile(text)
    path = find("calibrations", meant)
    data = load_strict(path)  # once: it may be a pipe
    kind: type[Document] = Calibration if kind_of(data, str(path)) == "calibration" else Assumptions
    document = kind.from_data(data, str(path))
    assert isinstance(document, Assumptions | Calibration)
    return document
