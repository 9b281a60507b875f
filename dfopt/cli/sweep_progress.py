"""The live view of a running sweep on stderr: a bar, and what became of the cells so far.

A cell costs a few counters; what is seen is drawn four times a second at most, by a thread of rich's.
"""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, TextIO

from dfopt.documents.store import Record

_PER_SECOND = 4.0  # drawings of the view
_PLAIN = 10.0  # seconds between lines on a terminal that cannot rewrite any
_BAR = (10, 40)  # characters of the bar, at least and at most
_BETWEEN = "  "  # two facts
_FIXED = "\N{NO-BREAK SPACE}"


class SweepProgress:
    """Progress view of a sweep on a terminal; hidden elsewhere and with ``quiet``.

    It is the ``progress`` of `dfopt.sweep`. Cells of the store count as done from the start, and as failed if they
    have no mapping, but not in the rate.

    Examples
    --------
    >>> import io
    >>> SweepProgress(io.StringIO())(0, 8, None)  # no terminal: it says nothing
    >>> view = SweepProgress(quiet=True)
    >>> view(0, 8, None)
    >>> view(1, 8, {"cell": "c0ffee", "status": "infeasible"})
    >>> view.facts()[:2]
    ['1/8 cells', '1 without a mapping']
    """

    def __init__(self, stream: TextIO | None = None, quiet: bool = False) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._quiet = quiet or not self._stream.isatty()
        self._began = self._told = time.perf_counter()
        self._start = self._done = self._total = 0
        self._unmapped = self._errors = 0
        self._gap: float | None = None
        self._console: Any = None
        self._live: Any = None

    def resumed(self, records: Iterable[Record]) -> None:
        """Register the records that the store already has, before the first call."""
        for record in records:
            self._count(record)

    def __call__(self, done: int, total: int, record: Record | None) -> None:
        """Take how many cells are done, of all, and the record that just came; none at the start."""
        self._done, self._total = done, total
        if record is not None:
            self._count(record)
            if self._console is not None and self._live is None:
                self._say()
            return
        self._began, self._start = time.perf_counter(), done
        if not self._quiet and done < total:
            self._show()

    def close(self) -> None:
        """Remove the view."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def facts(self) -> list[str]:
        """Texts next to the progress bar, the most important first."""
        spent, new = time.perf_counter() - self._began, self._done - self._start
        facts = [f"{self._done}/{self._total} cells"]
        if self._unmapped:
            facts.append(f"{self._unmapped} without a mapping")
        if self._errors:
            facts.append(f"{self._errors} with an error")
        if len(facts) == 1:
            facts.append("none failed")
        # each fact has its place from the start, so that the view does not jump
        if new and spent > 0:
            facts += [_rate(new / spent), f"ETA {_clock(spent / new * (self._total - self._done))}"]
        else:
            facts += ["- cells/s", "ETA -"]
        gap = "-" if self._gap is None else f"{100 * self._gap:.2g} %"
        return [*facts, f"worst gap {gap} to any mapping", f"{_clock(spent)} elapsed"]

    def __rich_console__(self, console: Any, options: Any) -> Any:
        """The bar and the facts in as many lines as they need, none of which wraps."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        width = options.max_width - 1  # a full line puts the cursor of some terminals on the next one
        facts = _BETWEEN.join(fact.replace(" ", _FIXED) for fact in self.facts())
        indent = " " * (_BAR[0] + len(_BETWEEN))  # room for the bar
        first, *others = textwrap.wrap(facts, width, initial_indent=indent, break_long_words=False)
        room = min(width - len(first.strip(" ")) - len(_BETWEEN), _BAR[1])
        line = Table.grid(padding=(0, len(_BETWEEN), 0, 0))
        bar = [ProgressBar(total=self._total, completed=self._done, width=room)] if room >= _BAR[0] else []
        texts = [
            Text(text.strip(" ").replace(_FIXED, " "), no_wrap=True, overflow="ellipsis") for text in (first, *others)
        ]
        line.add_row(*bar, texts[0])
        yield from (line, *texts[1:])

    def _count(self, record: Record) -> None:
        figures = record.get("figures")
        if figures is not None:
            self._gap = max(self._gap or 0.0, figures.get("gap") or 0.0)
        elif record["status"] == "failed":
            self._errors += 1
        else:
            self._unmapped += 1

    def _show(self) -> None:
        from rich.console import Console
        from rich.live import Live

        class Cursor(Console):
            def show_cursor(self, show: bool = True) -> bool:
                return False  # a cursor that is hidden stays so if the sweep is killed

        self._console = Cursor(file=self._stream)
        if self._console.is_dumb_terminal:
            return
        self._live = Live(
            self, console=self._console, refresh_per_second=_PER_SECOND, transient=True, redirect_stdout=False,
            redirect_stderr=False,
        )  # fmt: skip
        self._live.start(refresh=True)

    def _say(self) -> None:
        """A plain line now and then, where no line can be rewritten."""
        now = time.perf_counter()
        if now - self._told >= _PLAIN:
            self._told = now
            print(_BETWEEN.join(self.facts()), file=self._stream, flush=True)


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def _rate(per_second: float) -> str:
    """Cells per second, per minute or per hour, whichever is a number that can be read.

    Examples
    --------
    >>> _rate(12.34), _rate(0.05), _rate(0.001)
    ('12 cells/s', '3 cells/min', '3.6 cells/h')
    """
    unit, count = "s", per_second
    if count < 0.1:
        unit, count = ("min", 60 * per_second) if 60 * per_second >= 1 else ("h", 3600 * per_second)
    return f"{count:.0f} cells/{unit}" if count >= 10 else f"{count:.2g} cells/{unit}"
