"""A study's results for the terminal: what became of the cells, the claims, and heat maps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from dfopt.studies.claims import Verdict
from dfopt.studies.frame import SOLVED
from dfopt.studies.runs import Runs

__all__ = ["claims_table", "heat_table", "report"]

_WIDE = 72  # columns that a table of claims needs
_HOLDS = {True: Text("yes", "green"), False: Text("no", "red"), None: Text("open", "yellow")}
_SHADES = ("grey93 on grey15", "grey93 on grey30", "black on grey50", "black on grey70", "black on grey89")


def report(runs: Runs, heat_maps: Sequence[tuple[str, str]] = ()) -> RenderableType:
    """All of it: counts, cells without a mapping, heat maps of (figure, column) and claims."""
    parts: list[RenderableType] = [Text(str(runs), style="bold")]
    parts += [Text(note, style="yellow") for note in runs.notes]
    parts += _problems(runs)
    for value, columns in heat_maps:
        parts += ["", heat_table(runs.heat_map(value, columns), value)]
    if runs.study.claims:
        parts += ["", claims_table(runs.claims())]
    return Group(*parts)


class claims_table:
    """Every claim: what the source says, what the cells say, whether that agrees, and why not.

    A table; on a terminal too narrow for one, lines.
    """

    def __init__(self, found: Sequence[Verdict]) -> None:
        self.found = found

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield _wide_claims(self.found) if options.max_width >= _WIDE else _narrow_claims(self.found)


def _narrow_claims(found: Sequence[Verdict]) -> Table:
    """A claim, and below it a line each for what is expected, what was found, and whether that agrees."""
    table = Table(title="Claims", title_justify="left", title_style="bold", box=None, show_header=False, padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for one in found:
        claim = one.claim
        table.add_row("claim", Text(claim.name, "bold"))
        table.add_row("expected", f"{one.expected}, paper {_number(claim.paper)}")
        table.add_row("found", f"{_number(one.ours)} ({claim.figure}; cells: {one.cells})")
        table.add_row("verdict", _HOLDS[one.holds])
        if one.why:
            table.add_row("why", one.why)
        table.add_row()
    return table


def _wide_claims(found: Sequence[Verdict]) -> Table:
    table = _table("Claims")
    for name in ("claim", "figure"):
        table.add_column(name, overflow="fold")
    for name in ("paper", "ours", "holds if"):
        table.add_column(name, justify="right")
    table.add_column("holds")
    table.add_column("cells", justify="right")
    table.add_column("why", overflow="fold")
    for one in found:
        claim = one.claim
        table.add_row(
            claim.name, claim.figure, _number(claim.paper), _number(one.ours), one.expected, _HOLDS[one.holds],
            one.cells, one.why,
        )  # fmt: skip
    return table


def heat_table(pivot: Any, title: str) -> Table:
    """A pivot table with a shade for each figure, the darkest for the smallest; a dash where there is none."""
    table = _table(title)
    for name in pivot.index.names:
        table.add_column(str(name))
    for label in pivot.columns:
        table.add_column(str(label), justify="right")
    figures = [float(x) for x in pivot.to_numpy(dtype=float, na_value=math.nan).ravel() if x == x]
    low, high = (min(figures), max(figures)) if figures else (0.0, 0.0)
    for key, line in pivot.iterrows():
        labels = key if isinstance(key, tuple) else (key,)
        table.add_row(*("-" if label != label or label is None else str(label) for label in labels),
                      *(_shaded(value, low, high) for value in line))  # fmt: skip
    return table


def _shaded(value: Any, low: float, high: float) -> Text:
    if value is None or value != value:
        return Text("-")
    number = float(value)
    place = (number - low) / (high - low) if high > low else 1.0
    return Text(f"{number:.4g}", style=_SHADES[min(int(place * len(_SHADES)), len(_SHADES) - 1)])


def _problems(runs: Runs) -> list[RenderableType]:
    """Cells without a mapping, by message: a hundred cells often share one."""
    by_message: dict[tuple[str, str], list[str]] = {}
    for cell in runs.cells:
        record = runs.records.get(cell.key)
        if record is None or record["status"] in SOLVED:
            continue
        first = str(record.get("message", "")).strip().splitlines()
        by_message.setdefault((record["status"], first[0] if first else ""), []).append(cell.label)
    lines: list[RenderableType] = []
    for (status, message), labels in by_message.items():
        more = f" and {len(labels) - 1} more" if len(labels) > 1 else ""
        lines.append(Text(f"{status}: {labels[0]}{more}: {message}", style="yellow"))
    return lines


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, show_edge=False,
                 pad_edge=False, padding=(0, 1, 0, 0))  # fmt: skip


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
