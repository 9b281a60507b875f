"""The frame of a sweep as plain columns: from runs, a pandas frame, or rows that came from a CSV file."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dfopt.documents.metrics import METRICS
from dfopt.documents.study_columns import ASKED, AXIS_COLUMNS, COLUMNS, TEXT_COLUMNS
from dfopt.errors import PlanError
from dfopt.studies.selection import check_column, telling
from dfopt.units import Dimension, show_unit

Row = Mapping[str, Any]
PER_DOLLAR: Final = "tokens_per_s_per_usd"
RATES: Final = ("tokens_per_s_per_sequence", "tokens_per_s_per_chip", PER_DOLLAR)
"""Rates that compare cells of any batch: of a user, of a chip, of a dollar."""
_LOWER: Final = frozenset(
    {"bound_s", "gap", "layer_compute_s", "layer_memory_s", "layer_network_s", "dram_used_bytes", "chips", "tiles",
     "sram_bytes", "dram_bandwidth_bytes_per_s", "peak_flop_per_s", "price_usd", "power_w", "solve_s",
     *(name for name, metric in METRICS.items() if metric.sense == "minimize")}
)  # fmt: skip
_UNITS: Final[tuple[tuple[str, str, float, Dimension | None], ...]] = (
    # by the end of a column's name: what it is in, the factor to that, and its dimension if it has one
    ("_bytes_per_s", "bytes/s", 1.0, "bandwidth"), ("flop_per_s", "FLOP/s", 1.0, "flop_rate"),
    ("samples_per_s", "samples/s", 1.0, None), ("tokens_per_s", "tokens/s", 1.0, None),
    ("_per_chip", "tokens/s/chip", 1.0, None), ("_per_sequence", "tokens/s/user", 1.0, None),
    (PER_DOLLAR, "tokens/s/USD", 1.0, None),
    ("_bytes", "bytes", 1.0, "bytes"), ("_per_dollar", "FLOP/s/USD", 1.0, None), ("_per_watt", "FLOP/s/W", 1.0, None),
    ("flop_per_step", "FLOP", 1.0, "flop"), ("_usd", "USD", 1.0, None), ("_w", "W", 1.0, "power"),
    ("_j", "J", 1.0, "energy"), ("_s", "s", 1.0, "time"), ("utilization", "% of peak", 100.0, "ratio"),
    ("_share", "%", 100.0, "ratio"), ("gap", "%", 100.0, "ratio"),
)  # fmt: skip
_WORDS: Final = {
    "tokens_per_s_per_sequence": "tokens per second and user", "tokens_per_s_per_chip": "tokens per second and chip",
    PER_DOLLAR: "tokens per second and dollar", "flop_per_s": "achieved rate",
    "peak_flop_per_s": "peak rate", "perf_per_dollar": "performance per dollar",
    "perf_per_watt": "performance per watt", "bound_s": "lower bound of the step time",
}  # fmt: skip


def rows_of(runs: Any) -> list[Row]:
    """Rows (column to value) of the cells of a sweep, from `df.sweep`, its frame, or a list of mappings.

    `PlanError` if it is something else, or empty.
    """
    table = runs.frame() if callable(getattr(runs, "frame", None)) else runs
    if hasattr(table, "to_dict") and hasattr(table, "columns"):
        table = table.to_dict("records")
    if not isinstance(table, Sequence) or not all(isinstance(row, Mapping) for row in table):
        raise PlanError(f"found {type(runs).__name__}, expected what sweep returns, its frame, or a list of rows")
    if not table:
        raise PlanError("found a frame without rows, expected the cells of a sweep")
    return [_with_rate_per_dollar(row) for row in table]


def _with_rate_per_dollar(row: Row) -> Row:
    """A row with its tokens per second and dollar, where both are known."""
    rate, price = figure_of(row, "tokens_per_s"), figure_of(row, "price_usd")
    return {**row, PER_DOLLAR: rate / price} if rate and price and PER_DOLLAR not in row else row


def figure_of(row: Row, name: str) -> float | None:
    """A figure of a row as a number; None if the cell does not have it."""
    try:
        number = float(row[name])
    except (KeyError, TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def text_of(row: Row, name: str) -> str:
    """A label of a row as text; empty if missing."""
    value = row.get(name)
    if value is None or value != value or str(value) in ("", "<NA>"):
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def named(rows: Sequence[Row], name: str, option: str, figures: bool = False) -> str:
    """Check that a column exists, and return its name.

    Parameters
    ----------
    rows
        Rows of the frame, at least one.
    name, option : str
        Name of the column, and the argument that gave it, for messages.
    figures : bool
        Whether the column must have numbers.

    Raises
    ------
    PlanError
        If there is no such column, or if it has no numbers but must.

    Examples
    --------
    >>> named([{"gap": 0.1}], "gapp", "--value")
    Traceback (most recent call last):
    dfopt.errors.PlanError: --value: found 'gapp', no column of the frame; did you mean 'gap'?
    """
    check_column(option, name, [str(key) for key in rows[0]])
    if figures and (name in TEXT_COLUMNS or all(figure_of(row, name) is None for row in rows)):
        others = [str(key) for key in rows[0] if key not in TEXT_COLUMNS]
        have = [key for key in others if any(figure_of(row, key) is not None for row in rows)]
        raise PlanError(f"{option}: found {name!r}, a column without figures; expected one of {', '.join(have)}")
    return name


def axis_columns(rows: Sequence[Row]) -> list[str]:
    """Columns that identify a cell: axes of the study and parameters."""
    names = [str(name) for name in rows[0]]
    first = names[: names.index("status")] if "status" in names else names
    return [
        name
        for name in names
        if name in AXIS_COLUMNS or name not in {*COLUMNS, PER_DOLLAR} or (name in ASKED and name in first)
    ]


def varying(rows: Sequence[Row], given: Sequence[str] = ()) -> list[str]:
    """Axes that distinguish the cells in addition to the ``given`` ones, without redundant ones; see `telling`."""
    names = [*axis_columns(rows), *given]  # what is apart may be a figure, or a column that no row has
    return telling([{name: text_of(row, name) for name in names} for row in rows], given)


def label_of(name: str) -> tuple[str, float]:
    """Label of a column with its unit, and the factor to that unit.

    Examples
    --------
    >>> label_of("utilization"), label_of("step_time_s"), label_of("partitions")
    (('utilization (% of peak)', 100.0), ('step time (s)', 1.0), ('partitions (count)', 1.0))
    """
    end, unit, factor, _ = _unit(name)
    words = _WORDS.get(name) or (name.removesuffix(end) if end in _SUFFIXES else name).replace("_", " ")
    return f"{words} ({unit})", factor


_SUFFIXES: Final = ("_bytes_per_s", "_bytes", "_usd", "_w", "_j", "_s")


def _unit(name: str) -> tuple[str, str, float, Dimension | None]:
    return next((unit for unit in _UNITS if name.endswith(unit[0])), ("", "count", 1.0, None))


def with_unit_of(name: str) -> Callable[[float], str]:
    """Formatter that writes a value of a column with its unit, as at axis ticks.

    Examples
    --------
    >>> [with_unit_of(name)(84.8e6) for name in ("price_usd", "flop_per_s", "chips")]
    ['84.8 M USD', '84.8 MFLOP/s', '84.8 M']
    """
    _, unit, _, dimension = _unit(name)
    if dimension is not None:
        return lambda value: show_unit(value, dimension, 3)
    after = "" if unit == "count" else f" {unit}"

    def written(value: float) -> str:
        size, prefix = next((prefix for prefix in _PREFIXES if abs(value) >= prefix[0]), (1.0, ""))
        return f"{value / size:.3g}{' B' if (prefix, unit) == (' G', 'USD') else prefix}{after}"

    return written


def axis_of(name: str) -> tuple[str, Callable[[float], str]]:
    """Axis label of a column, and the formatter of its ticks; a long unit is part of the label.

    Examples
    --------
    >>> [(words, write(1200)) for words, write in map(axis_of, ("price_usd", "tokens_per_s"))]
    [('price', '1.2 k USD'), ('tokens per s (tokens/s)', '1.2 k')]
    """
    words, write, unit = label_of(name)[0], with_unit_of(name), _unit(name)[1]
    if not unit.startswith("tokens"):
        return words.rpartition(" (")[0], write
    return words, lambda value: write(value).removesuffix(f" {unit}")


_PREFIXES: Final = ((1e15, " P"), (1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k"))


def scatter_columns(rows: Sequence[Row]) -> tuple[str, str]:
    """Default columns of a scatter plot: a cost that varies between cells, and a rate."""
    costs = ("price_usd", "power_w", "chips", "dram_used_bytes")
    rates = ("flop_per_s", "tokens_per_s", "utilization")
    values = {name: {figure_of(row, name) for row in rows} - {None} for name in costs + rates + RATES}
    if {text_of(row, "phase") for row in rows} <= {"decode", "verify"} and all(len(values[n]) > 1 for n in RATES[:2]):
        return RATES[0], RATES[1]
    cost = next((name for name in costs if len(values[name]) > 1), costs[0])
    return cost, next((name for name in rates if values[name]), rates[0])


_ENDS: Final = {"gb_per_s": "GB/s", "tb_per_s": "TB/s", "tflops": "TFLOP/s", "mb": "MB", "gb": "GB", "us": "us",
                "ms": "ms", "w": "W"}  # fmt: skip


def axis_title(name: str) -> str:
    """Title of an axis of labels: the column in words, with the unit in its name.

    Examples
    --------
    >>> axis_title("dram_gb_per_s"), axis_title("sram_mb"), axis_title("chip")
    ('DRAM (GB/s)', 'SRAM (MB)', 'chip')
    """
    end = next((end for end in _ENDS if name.endswith(f"_{end}")), "")
    words = name.removesuffix(f"_{end}").replace("_", " ").replace("dram", "DRAM").replace("sram", "SRAM")
    return f"{words} ({_ENDS[end]})" if end else words


def smaller_is_better(name: str) -> bool:
    """Whether less of a column is better, as for times, costs and resources; False for custom columns."""
    return name in _LOWER
