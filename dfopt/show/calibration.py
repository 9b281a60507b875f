"""A calibration for a terminal."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table

from dfopt.documents.calibration import Calibration


def calibration_report(calibration: Calibration) -> Group:
    """Terminal report of a calibration: fitted numbers, and their error against measurements by source."""
    numbers = Table(title=f"{calibration.profile}: {calibration.chip}", show_edge=False)
    errors = Table(title="relative errors", show_edge=False)
    for name in ("number", "value", "least", "most"):
        numbers.add_column(name, justify="left" if name == "number" else "right", no_wrap=True)
    for fitted in calibration.fitted:
        numbers.add_row(fitted.name, *(f"{value:.4g}" for value in (fitted.value, fitted.least, fitted.most)))
    for name in ("source", "rows", "mean", "max", "bias", "left out"):
        errors.add_column(name, justify="left" if name == "source" else "right", no_wrap=True)
    for row in calibration.errors:
        out = "-" if row.left_out is None else f"{row.left_out:.1%}"
        errors.add_row(row.source, str(row.rows), f"{row.mean:.1%}", f"{row.most:.1%}", f"{row.bias:+.1%}", out)
    return Group(numbers, "", errors)
