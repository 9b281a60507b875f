"""Tables in, a calibration out: kernels and collectives first, then the steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Literal

import numpy as np

import dfopt
from dfopt.calibration.fitting import fit, left_out_errors, predicted
from dfopt.calibration.numbers import applied, known_numbers, named
from dfopt.calibration.row import TrainingRow
from dfopt.calibration.rows import digest_of, read_rows
from dfopt.calibration.steps import MeasuredStep, row_machine, step_of
from dfopt.calibration.tables import BETWEEN, Regime, in_order, kernel_rows, node_factors, with_rows
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.calibration import Calibration, Evidence, FittedNumber, SourceError
from dfopt.documents.efficiency import EfficiencyRow
from dfopt.documents.system import System
from dfopt.errors import PlanError, refuse

ROUNDS: Final = 3


def usual_assumptions(name: str) -> Assumptions:
    """Assumptions under which measured steps are fitted, on the basis of the profile ``name``.

    Of a step whose source mentions no library, every kernel runs alone; within a library's fused kernel, compute,
    memory and network times add up.

    Split tokens are gathered once in a layer for the backward pass: a library gathers them again for every product, but
    behind another product (Korthikanti et al., MLSys 2023, section 4.2.2). The time of Adam's step counts. Every
    pipeline stage has its own time; stages with embedding and logits take longer. Kernels store their weights.
    """
    return Assumptions(
        profile=name,
        execution="library",
        overlap="none",
        compute_model="efficiency",
        point_to_point_parts="scattered",
        backward_gathers="layer",
        optimizer_step="adam",
        bubble="stages",
        token_blocks="none",
    )


def mapped(
    rows: Sequence[TrainingRow], system: System, assumptions: Assumptions, values: Mapping[str, float]
) -> list[MeasuredStep]:
    """Best mapping of every measured row under some values, without memory limits.

    Parameters
    ----------
    rows : sequence of TrainingRow
        Measured steps.
    system, assumptions : System, Assumptions
        Values of the fitted numbers.
    values : dict
        Value of each number, by name.
    """
    machine, chosen = applied(values, system, assumptions)
    return [step_of(row, chosen, row_machine(row, machine, memory_limit=False)) for row in rows]


def calibrate(  # noqa: PLR0913 - a public function with options
    data: Sequence[str | Path],
    system: System,
    name: str,
    label: str = "",
    kernels: Sequence[str | Path] = (),
    collectives: str | Path | None = None,
    names: Sequence[str] | None = None,
    say: Callable[[str], None] = lambda _: None,
    like: Calibration | None = None,
    regime: Regime = "sustained",
) -> Calibration:
    """Calibrate a system: fit numbers to measured steps, or take them from another chip's calibration.

    Parameters
    ----------
    data
        Tables of steps (:mod:`dfopt.calibration.rows`); all of their rows that are taken must be of the system's chip.
        None where every number is from tables, or from ``like``.
    system
        System to calibrate: nodes and their network.
    name
        Name of the profile.
    label
        Name of the system in the tables of kernels and collectives, or a prefix of it.
    kernels, collectives
        Tables of kernels (GEMMs, fused attention, memory-bound kernels, an optimizer's step) and of collectives:
        numbers that they fix are not fitted.
    names
        Numbers to fit; by default those that tables have not fixed and that step times count.
    say
        Called with messages on the progress.
    regime
        Rows to use of tables that state how a chip was kept busy: ``sustained`` are those at the limit of its power, as
        in a training step. Tables without that column are used as they are.
    like
        A calibration whose shares are taken where neither tables nor rows say any.

    Raises
    ------
    DocumentError, PlanError
        For a table that cannot be read, too few rows, and numbers that the rows cannot identify.
    """
    system, assumptions = with_attention(system), usual_assumptions(name)
    evidence, fixed = list[Evidence](), set[str]()
    taken_over: tuple[FittedNumber, ...] = ()
    if like is not None:
        system, assumptions, taken_over = taken_from(like, system, assumptions)
    if kernels:
        system, tables, fixed = kernel_rows(kernels, label, system, regime)
        evidence += [
            Evidence(file=path.name, sha256=digest_of(path), rows=count, regime=stated)
            for path, count, stated in tables
        ]
        taken_over = tuple(number for number in taken_over if number.name not in fixed)
    if collectives is not None:
        system, count = with_collectives(system, collectives, label)
        evidence.append(Evidence(file=Path(collectives).name, sha256=digest_of(collectives), rows=count))
        fixed.add(system.network[0].name)
    if not data:
        if names or (like is None and not {"matrix", "attention", "memory"} <= fixed):
            raise PlanError(
                "fit: found no rows to fit to; give a table of steps, a calibration to take numbers from,"
                " or tables of GEMMs, attention and kernels bound by memory"
            )
        return _calibration(name, system, assumptions, (), (), evidence, taken_over)
    available = known_numbers(system, assumptions)
    numbers = named(
        names or [each for each in available if each not in fixed | {n.name for n in taken_over}], available
    )
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
        if kernels and turn > 1:  # what a product has left for its FLOP depends on the time of its bytes
            system, *_ = kernel_rows(kernels, label, applied(values, system, assumptions)[0], regime)
        steps = mapped(taken, system, assumptions, values)
        solution = fit(numbers, measured, partial(predicted, steps))
        values = {name: float(f"{value:.4g}") for name, value in solution.values.items()}
    errors = np.array([step.seconds for step in mapped(taken, system, assumptions, values)]) / measured - 1
    left_out = left_out_errors(numbers, solution, measured, sources)
    source_errors = []
    for source in dict.fromkeys(sources):
        of_source = errors[[other == source for other in sources]]
        out = left_out[source]
        source_errors.append(
            SourceError(
                source=source,
                rows=len(of_source),
                mean=round(float(np.abs(of_source).mean()), 4),
                most=round(float(np.abs(of_source).max()), 4),
                bias=round(float(of_source.mean()), 4),
                left_out=None if out is None else round(out, 4),
            )
        )
    machine, fitted_under = applied(values, system, assumptions)
    fitted = tuple(FittedNumber(name=n.name, value=values[n.name], least=n.least, most=n.most) for n in numbers)
    return _calibration(name, machine, fitted_under, fitted, tuple(source_errors), evidence, taken_over)


def with_collectives(system: System, collectives: str | Path, label: str) -> tuple[System, int]:
    """The system with link efficiencies from measured collectives within a node, and the number of measurements.

    No table has efficiencies between nodes; only the time of a step of a ring is known there (`BETWEEN`).

    Parameters
    ----------
    system
        The system, whose first dim is a node.
    collectives : str or path
        Table of measured collectives.
    label : str
        Name of the machine in the table.
    """
    share, factors, count = node_factors(collectives, label, system)
    node, *others = system.network
    node = node.model_copy(update={"efficiency": share, "factors": factors})
    further = (dim.model_copy(update={"factors": dict(BETWEEN)}) for dim in others)
    return system.model_copy(update={"network": (node, *further)}), count


def with_attention(system: System) -> System:
    """The system with efficiency rows for products of two activations, initially at the share of large GEMMs."""
    rows = system.chip.efficiency or ()
    top = max((row.share for row in rows if row.unit == "matrix"), default=None)
    if top is None:
        refuse(system.name, "found no shares of the matrix unit", "give its chip a table: efficiency")
    asked: tuple[Literal["matmul", "attention"], ...] = ("matmul", "attention")
    missing = [op for op in asked if not any(row.op == op for row in rows)]
    more = [EfficiencyRow(unit="matrix", op=op, share=top) for op in missing]
    return system.model_copy(update={"chip": system.chip.model_copy(update={"efficiency": in_order((*more, *rows))})})


def taken_from(
    like: Calibration, system: System, assumptions: Assumptions
) -> tuple[System, Assumptions, tuple[FittedNumber, ...]]:
    """System and assumptions with the fitted numbers of another chip, and the list of those numbers.

    Shares are relative to each chip's own rate, and keep their dependence on FLOP and bytes. Dims are matched by
    position. The share that an optimizer's step sustains, for which few chips have a table, is taken from a table of
    the other chip, too.

    Parameters
    ----------
    like
        Calibration of the other chip.
    system, assumptions
        The system and assumptions that get its numbers.
    """
    donor = like.numbers()
    if steps := [row for row in like.efficiency if row.op == "optimizer"]:
        system = with_rows(system, "optimizer", steps)
        donor |= {"optimizer": steps[0].share}
    dims = dict(zip(like.network, system.network, strict=False))
    values = {dims[name].name if name in dims else name: value for name, value in donor.items()}
    available = known_numbers(system, assumptions)
    over = {name: value for name, value in values.items() if name in available}
    machine, chosen = applied(over, system, assumptions)
    return machine, chosen, tuple(FittedNumber(name=n, value=v, least=available[n].least, most=available[n].most)
                               for n, v in over.items())  # fmt: skip


def _calibration(
    name: str,
    system: System,
    assumptions: Assumptions,
    fitted: tuple[FittedNumber, ...],
    errors: tuple[SourceError, ...],
    evidence: Sequence[Evidence],
    taken_over: tuple[FittedNumber, ...],
) -> Calibration:
    rows = system.chip.efficiency or ()
    own = {number.name for number in fitted}
    return Calibration(
        profile=name,
        chip=system.chip.name,
        assumptions=assumptions,
        efficiency=tuple(row.model_copy(update={"share": float(f"{row.share:.4g}")}) for row in rows),
        network={dim.name: dim.efficiency or 1.0 for dim in system.network},
        factors={dim.name: dict(dim.factors) for dim in system.network if dim.factors} or None,
        fitted=fitted,
        taken_over=tuple(number for number in taken_over if number.name not in own) or None,
        errors=errors,
        evidence=tuple(evidence),
        version=dfopt.__version__,
    )
