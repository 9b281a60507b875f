"""Numbers of a machine fitted to measured steps: bounded least squares on relative errors.

The mappings are found first and then kept: a step is about affine in the inverse of each share, so the fit goes over
its affine model there (Gauss-Newton), and the judge has the last word on every model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dfopt.arrays import Floats
from dfopt.calibration.numbers import FitParameter, applied
from dfopt.calibration.steps import MeasuredStep
from dfopt.errors import PlanError
from dfopt.judge import evaluate

MOST_CONDITION = 100.0
_ROUNDS = 6
_SAME = 1e-4  # relative: numbers are told with four digits
_STEP = 0.02  # relative, of a difference quotient; exact where a step is affine
_UNSEEN = 1e-6  # d ln(time) / d ln(number)


@dataclass(frozen=True)
class Fit:
    """Fitted values, with predicted times and their slopes at that point.

    Attributes
    ----------
    values : mapping of str to float
        Fitted values of the machine, by name.
    times : float array, shape (steps,), s
        Predicted time of every measured step.
    slopes : float array, shape (steps, numbers)
        Change of every time, s, per unit of the coordinate of every value, as of :meth:`FitParameter.coordinate`.
    """

    values: Mapping[str, float]
    times: Floats
    slopes: Floats


def predicted(steps: Sequence[MeasuredStep], values: Mapping[str, float]) -> Floats:
    """Predicted seconds of every step under some values."""
    times = []
    for step in steps:
        system, assumptions = applied(values, step.system, step.assumptions)
        score = evaluate(step.result.mapping, step.graph, system, assumptions, physical=False, throttle=False)
        times.append(score.step_time_s)
    return np.array(times)


def fit(numbers: Sequence[FitParameter], measured: Floats, times_of: Callable[[Mapping[str, float]], Floats]) -> Fit:
    """Least-squares fit of numbers within bounds, for relative errors predicted / measured - 1.

    Parameters
    ----------
    numbers
        The numbers to fit.
    measured
        Seconds of every row.
    times_of
        Predicted seconds of every row, of values by name.

    Raises
    ------
    PlanError
        For fewer rows than twice the numbers, and for numbers that the rows do not tell apart, by name.

    Examples
    --------
    >>> numbers = [FitParameter("matrix", 0.5, 0.01, 1.0), FitParameter("node", 1.0, 0.01, 1.0)]
    >>> work, sent = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 0.0, 1.0, 0.0])
    >>> found = fit(numbers, work / 0.8 + sent / 0.5, lambda v: work / v["matrix"] + sent / v["node"])
    >>> {name: round(value, 6) for name, value in found.values.items()}
    {'matrix': 0.8, 'node': 0.5}
    """
    if len(measured) < 2 * len(numbers):
        raise PlanError(f"fit: found {len(measured)} rows for {len(numbers)} numbers, expected twice as many or more")
    values = {number.name: number.start for number in numbers}
    for _ in range(_ROUNDS):
        times, slopes = _affine(numbers, values, times_of)
        _check_identified(numbers, values, times, slopes)
        new = solved(numbers, values, measured, times, slopes)
        moved = max(abs(new[n.name] - values[n.name]) / max(abs(new[n.name]), 1e-12) for n in numbers)
        values = new
        if moved < _SAME:
            break
    times, slopes = _affine(numbers, values, times_of)
    return Fit(values, times, slopes)


def _affine(
    numbers: Sequence[FitParameter], values: Mapping[str, float], times_of: Callable[[Mapping[str, float]], Floats]
) -> tuple[Floats, Floats]:
    """Times at some values, and their slopes in the coordinates."""
    times = times_of(values)
    columns = []
    for number in numbers:
        value = values[number.name]
        other = value * (1 - _STEP) if number.share else value + _STEP * number.most
        there = times_of({**values, number.name: other})
        columns.append((there - times) / (number.coordinate(other) - number.coordinate(value)))
    return times, np.stack(columns, axis=1)


def _check_identified(
    numbers: Sequence[FitParameter], values: Mapping[str, float], times: Floats, slopes: Floats
) -> None:
    """Refuse numbers that no row depends on, or that move all rows alike."""
    scale = np.array([n.coordinate(values[n.name]) if n.share else n.most for n in numbers])
    effect = slopes * scale / times[:, None]
    sizes = np.linalg.norm(effect, axis=0)
    unseen = [number.name for number, size in zip(numbers, sizes, strict=True) if size < _UNSEEN]
    if unseen:
        raise PlanError(f"fit: no row's time depends on {', '.join(unseen)}; leave it out, or give rows that do")
    _, singular, rotated = np.linalg.svd(effect / sizes)
    condition = float(singular[0] / max(singular[-1], 1e-300))
    if condition > MOST_CONDITION:
        weights = np.abs(rotated[-1])
        mixed = [n.name for n, weight in zip(numbers, weights, strict=True) if weight > 0.3 * weights.max()]
        message = f"the rows do not tell {' and '.join(mixed)} apart"
        raise PlanError(f"fit: {message}: condition number {condition:.3g}, expected at most {MOST_CONDITION:g}")


def solved(
    numbers: Sequence[FitParameter], values: Mapping[str, float], measured: Floats, times: Floats, slopes: Floats
) -> dict[str, float]:
    """Best values within bounds on the linearized model around ``values``.

    Parameters
    ----------
    numbers : sequence of FitParameter
        Numbers with their bounds.
    values : dict
        Values around which the model is linear.
    measured, times : float arrays, s, shape (steps,)
        Measured steps, and those predicted at ``values``.
    slopes : float array, shape (steps, numbers)
        Derivatives of the predictions by each number's coordinate.
    """
    from scipy.optimize import least_squares  # only where it is used: it takes long to import

    at = np.array([number.coordinate(values[number.name]) for number in numbers])

    def errors(tried: Floats) -> Floats:
        coordinates = np.array([number.coordinate(value) for number, value in zip(numbers, tried, strict=True)])
        return np.asarray((times + slopes @ (coordinates - at)) / measured - 1, dtype=float)

    least, most = (np.array([getattr(number, which) for number in numbers]) for which in ("least", "most"))
    start = np.clip([values[number.name] for number in numbers], least, most)
    done = least_squares(errors, start, bounds=(least, most), x_scale=np.maximum(most - least, 1e-12), xtol=1e-12)
    return {number.name: float(value) for number, value in zip(numbers, done.x, strict=True)}


def left_out_errors(
    numbers: Sequence[FitParameter], fitted: Fit, measured: Floats, sources: Sequence[str]
) -> dict[str, float | None]:
    """Mean absolute error of each source when the numbers are fitted to all others; None if those are too few.

    On the affine model around the fit, which the judge gave.

    Parameters
    ----------
    numbers, fitted : sequence of FitParameter, Fit
        Numbers, and their fit to all sources.
    measured : float array, s, shape (steps,)
        Measured steps.
    sources : sequence of str
        Source of each step.
    """
    at = np.array([number.coordinate(fitted.values[number.name]) for number in numbers])
    errors: dict[str, float | None] = {}
    for source in dict.fromkeys(sources):
        out = np.array([other == source for other in sources])
        if (~out).sum() < 2 * len(numbers):
            errors[source] = None
            continue
        kept = solved(numbers, fitted.values, measured[~out], fitted.times[~out], fitted.slopes[~out])
        there = np.array([number.coordinate(kept[number.name]) for number in numbers])
        times = fitted.times[out] + fitted.slopes[out] @ (there - at)
        errors[source] = float(np.abs(times / measured[out] - 1).mean())
    return errors
