"""Tables in, a calibration out: kernels and collectives first, then the steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

import dfopt
from dfopt.calibration.fitting import fit, left_out_errors, predicted
from dfopt.calibration.numbers import applied, known_numbers, named
from dfopt.calibration.rows import TrainingRow, digest_of, read_rows
from dfopt.calibration.steps import Step, machine_of, step_of
from dfopt.calibration.tables import gemm_rows, node_efficiency
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.calibration import Calibration, Evidence, FittedNumber, SourceError
from dfopt.documents.system import System
from dfopt.errors import refuse

__all__ = ["ROUNDS", "calibrate", "mapped", "usual_assumptions"]

ROUNDS: Final = 2


def usual_assumptions(name: str) -> Assumptions:
    """What steps are fitted under: every kernel by itself, its compute, memory and network times added up."""
    return Assumptions(profile=name, execution="kernel_by_kernel", overlap="none", compute_model="efficiency")


def mapped(
    rows: Sequence[TrainingRow], system: System, assumptions: Assumptions, values: Mapping[str, float]
) -> list[Step]:
    """Every row's best mapping with some values. Memory holds everything: a row that ran did fit."""
    made, chosen = applied(values, system, assumptions)
    return [step_of(row, chosen, machine_of(row, made, memory_limit=False)) for row in rows]


def calibrate(
    data: Sequence[str | Path],
    system: System,
    name: str,
    label: str = "",
    kernels: str | Path | None = None,
    collectives: str | Path | None = None,
    names: Sequence[str] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Calibration:
    """Fit numbers of a system to measured steps.

    Parameters
    ----------
    data
        Tables of steps (:mod:`dfopt.calibration.rows`); all of their rows that are taken must be of the system's chip.
    system
        What is fitted: nodes and what connects them.
    name
        Of the profile.
    label
        What the tables of kernels and collectives call the system, or how that begins.
    kernels, collectives
        Tables of GEMMs and of collectives: what they fix is not fitted.
    names
        Numbers to fit; by default those that tables have not fixed and that step times count.
    say
        Is told what is going on.

    Raises
    ------
    DocumentError, PlanError
        For a table that cannot be read, too few rows, and numbers that the rows cannot identify.
    """
    assumptions = usual_assumptions(name)
    evidence, fixed = [], set()
    if kernels is not None:
        rows, count = gemm_rows(kernels, label, system)
        others = [row for row in system.chip.efficiency or () if row.unit != "matrix"]
        chip = system.chip.model_copy(update={"efficiency": (*rows, *others)})
        system = system.model_copy(update={"chip": chip})
        evidence.append(Evidence(file=Path(kernels).name, sha256=digest_of(kernels), rows=count))
        fixed.add("matrix")
    if collectives is not None:
        share, count = node_efficiency(collectives, label, system)
        system, _ = applied({system.network[0].name: share}, system, assumptions)
        evidence.append(Evidence(file=Path(collectives).name, sha256=digest_of(collectives), rows=count))
        fixed.add(system.network[0].name)
    known = known_numbers(system, assumptions)
    # shares of memory bandwidth stay out until step times count them, which overheads per kernel come with
    uncounted = set() if "kernel_overhead" in known else {"memory"}
    numbers = named(names or [one for one in known if one not in fixed | uncounted], known)
    taken: list[TrainingRow] = []
    for path in data:
        rows_of = [row for row in read_rows(path) if isinstance(row, TrainingRow)]
        if not rows_of:
            refuse(str(path), "found no row that is taken", "see what benchmarks/reference/measured.py says of them")
        taken += rows_of
        evidence.append(Evidence(file=Path(path).name, sha256=digest_of(path), rows=len(rows_of)))
    measured = np.array([row.seconds for row in taken])
    sources = [row.source for row in taken]
    values = {number.name: number.start for number in numbers}
    for turn in range(1, ROUNDS + 1):  # other values make other mappings the best ones
        say(f"round {turn} of {ROUNDS}: mapping {len(taken)} rows, then fitting {', '.join(n.name for n in numbers)}")
        steps = mapped(taken, system, assumptions, values)
        found = fit(numbers, measured, partial(predicted, steps))
        values = {name: float(f"{value:.4g}") for name, value in found.values.items()}
    errors = np.array([step.seconds for step in mapped(taken, system, assumptions, values)]) / measured - 1
    left_out = left_out_errors(numbers, found, measured, sources)
    told = []
    for source in dict.fromkeys(sources):
        mine = errors[[other == source for other in sources]]
        out = left_out[source]
        told.append(
            SourceError(
                source=source,
                rows=len(mine),
                mean=round(float(np.abs(mine).mean()), 4),
                most=round(float(np.abs(mine).max()), 4),
                bias=round(float(mine.mean()), 4),
                left_out=None if out is None else round(out, 4),
            )
        )
    made, fitted_under = applied(values, system, assumptions)
    return Calibration(
        profile=name,
        chip=system.chip.name,
        assumptions=fitted_under,
        efficiency=tuple(
            row.model_copy(update={"share": float(f"{row.share:.4g}")}) for row in made.chip.efficiency or ()
        ),
        network={dim.name: dim.efficiency or 1.0 for dim in made.network},
        fitted=tuple(FittedNumber(name=n.name, value=values[n.name], least=n.least, most=n.most) for n in numbers),
        errors=tuple(told),
        evidence=tuple(evidence),
        version=dfopt.__version__,
    )
