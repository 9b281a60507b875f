"""The tidy frame of a study: one row per cell, the columns of `dfopt.documents.study_columns`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dfopt.documents.evaluation import asked
from dfopt.documents.plan import Plan
from dfopt.documents.store import Record
from dfopt.documents.study import Study
from dfopt.documents.study_columns import COLUMNS, TEXT_COLUMNS
from dfopt.errors import refuse, shown
from dfopt.physics.cost import SystemCost, system_cost
from dfopt.studies.cells import Cell

SOLVED = ("optimal", "optimal_per_level", "gap_reached", "limit_with_solution", "interrupted_with_solution")


def frame(study: Study, cells: Sequence[Cell], records: Mapping[str, Record]) -> Any:
    """Data frame of a study with one row for each cell, in the order of the study.

    Parameters
    ----------
    study, cells
        The study, and its cells.
    records
        By key of a cell, its answer. Cells without one are rows without figures.

    Returns
    -------
    pandas.DataFrame
        Columns are those of ``study.columns``; values that a cell does not have are missing (None or NaN).
    """
    import pandas as pd

    costs: dict[int, SystemCost] = {}
    rows = []
    for cell in cells:
        if id(cell.system) not in costs:  # many cells share a system
            costs[id(cell.system)] = system_cost(cell.system, study.cost_counts)
        rows.append(_row(cell, records.get(cell.key), costs[id(cell.system)]))
    table = pd.DataFrame(rows, columns=list(study.columns))
    for name in table.columns:  # a column of figures without any stays a column of figures
        if name in INTEGERS and name not in study.axis_columns:
            table[name] = table[name].astype("Int64")
        elif name not in TEXT_COLUMNS and name not in study.axis_columns:
            table[name] = table[name].astype(float)
    return table


INTEGERS = {*Plan().counts, "batch", "microbatch", "partitions", "chips", "tiles"}


def _row(cell: Cell, record: Record | None, cost: SystemCost) -> dict[str, Any]:
    """The figures of one cell by column; without those that it does not have."""
    chip = cell.system.chip
    unpriced = "; ".join(f"{name}: {words}" for name, words in cost.incomplete.items()) or None
    price_usd, power_w = cost.complete("usd"), cost.complete("w")
    columns: dict[str, Any] = {
        **asked(cell.graph),
        "cell": cell.key,
        "chips": cell.system.chips,
        "tiles": chip.tiles,
        "peak_flop_per_s": chip.peak_flops,
        "sram_bytes": chip.sram.capacity,
        "dram_bandwidth_bytes_per_s": chip.fastest.bandwidth,
        "price_usd": price_usd,
        "power_w": power_w,
        "calibrated_by": cell.calibration,
        "note": unpriced,
    }
    if record is None:
        return {**columns, **cell.axes, "status": "pending"}
    note = "; ".join(filter(None, (record.get("message"), unpriced))) or None
    columns |= {**of_record(record), **cell.axes, "note": note}
    figures = record.get("figures")
    if figures is None:
        return columns
    step, rate = figures["step_time_s"], columns["flop_per_s"]
    if "physical_step_time_s" in figures:
        slower = step / figures["physical_step_time_s"]
        columns["physical_flop_per_s"] = rate * slower
        columns["physical_tokens_per_s"] = figures["tokens_per_s"] * slower
    if price_usd:
        columns["perf_per_dollar"] = rate / price_usd
    if power_w:
        columns["perf_per_watt"] = rate / power_w  # FLOP/J
        columns["energy_per_step_j"] = power_w * step
    return columns


def of_record(record: Record) -> dict[str, Any]:
    """Values of a record by column name, without the study."""
    columns = {"status": record["status"], "cell": record["cell"], "dfopt": record.get("dfopt")}
    columns |= {"solve_s": record.get("seconds"), "note": record.get("message")}
    columns |= {"calibrated_by": record["calibrated_by"]} if "calibrated_by" in record else {}
    figures = record.get("figures")
    if figures is None:
        return columns
    where = f"cell {record['cell']}"
    plan = Plan.from_data(figures.get("plan"), f"{where}: plan")
    columns |= {name: value for name, value in figures.items() if name in COLUMNS and name != "plan"}
    columns |= {"plan": plan.label, **plan.counts}
    for name in ("flop_per_step", "step_time_s", *columns):
        _check(name, columns.get(name, figures.get(name)), where)
    return {**columns, "flop_per_s": figures["flop_per_step"] / figures["step_time_s"]}


def _check(name: str, value: object, where: str) -> None:
    """That a figure is one that its column may have."""
    fits, expected = isinstance(value, int | float | None), "a number"
    if name in TEXT_COLUMNS:
        fits, expected = isinstance(value, str | None), "text"
    elif name in INTEGERS:
        fits, expected = value is None or (isinstance(value, int) and abs(value) < 2**63), "a whole number"
    elif name in ("flop_per_step", "step_time_s"):
        fits, expected = isinstance(value, int | float) and 0 < value < math.inf, "a number above 0"
    if not fits:
        refuse(where, f"{name}: found {shown(value)}, expected {expected}", "the store is not as a sweep wrote it")
