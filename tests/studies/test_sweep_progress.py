"""The live view of a sweep: what it says, that it fits its terminal, and that it leaves nothing behind."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import pytest
from busy import BUSY
from in_turn import InTurn
from study_cases import limits, study

from dfopt.cli import sweep_progress
from dfopt.cli.sweep_progress import SweepProgress
from dfopt.documents.store import line_of
from dfopt.studies.sweep import sweep

FAILED = {"cell": "a", "status": "failed", "message": "no memory"}
INFEASIBLE = {"cell": "b", "status": "infeasible"}
TIMED_OUT = {"cell": "c", "status": "no_solution"}


def solved(gap: float) -> dict[str, Any]:
    return {"cell": f"d{gap}", "status": "gap_reached", "figures": {"gap": gap}}


class Screen:
    """What a terminal of so many columns shows after some output: the few codes that the view may use."""

    def __init__(self, columns: int) -> None:
        self.columns, self.rows, self.row, self.column = columns, [""], 0, 0
        self.wrapped, self.seen = False, [""]

    def feed(self, text: str) -> Screen:
        for code, up, other in re.findall(r"(\x1b\[([\d;?]*)[A-Za-z])|(\x1b.|[^\x1b])", text, re.S):
            if other:
                self._plain(other)
            elif code.endswith("A"):
                self.row -= int(up or 1)
            elif code == "\x1b[2K":
                self.rows[self.row] = ""
            else:
                assert code.endswith("m"), f"a code that nobody expects: {code!r}"
        return self

    def _plain(self, letter: str) -> None:
        if letter == "\r":
            self.column = 0
        elif letter == "\n":
            self.row, self.column = self.row + 1, 0  # a terminal's driver adds the carriage return
            self.rows += [""] * (self.row + 1 - len(self.rows))
        else:
            self.wrapped |= self.column >= self.columns
            line = self.rows[self.row].ljust(self.column)
            self.rows[self.row] = line[: self.column] + letter + line[self.column + 1 :]
            self.column += 1
            self.seen.append(self.rows[self.row])


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time in seconds, which stands until a test moves it."""
    now = [100.0]
    monkeypatch.setattr(sweep_progress.time, "perf_counter", lambda: now[0])
    return now


def test_what_became_of_the_cells(clock: list[float]) -> None:
    view = SweepProgress(quiet=True)
    view.resumed([INFEASIBLE, solved(0.02)])
    clock[0] = 200.0  # the study was expanded
    view(2, 12, None)
    assert view.facts() == [
        "2/12 cells", "1 without a mapping", "- cells/s", "ETA -", "worst gap 2 % to any mapping", "0:00:00 elapsed",
    ]  # fmt: skip
    for done, record in enumerate((FAILED, TIMED_OUT, solved(0.034), solved(0.0)), start=3):
        view(done, 12, record)
    clock[0] += 8.0
    # four cells in eight seconds; the two of the store took none
    assert view.facts() == [
        "6/12 cells", "2 without a mapping", "1 with an error", "0.5 cells/s", "ETA 0:00:12",
        "worst gap 3.4 % to any mapping", "0:00:08 elapsed",
    ]  # fmt: skip


def test_a_sweep_tells_what_its_store_has(tmp_path: Path) -> None:
    whole, store = study(), tmp_path / "runs.jsonl"
    first, part = SweepProgress(quiet=True), study(systems=[{"system": "sn10-8-ring", "label": "ring"}])
    ring = sweep(part, executor=InTurn(), store=store, progress=first)
    assert first.facts()[:2] == ["1/1 cells", "none failed"]
    store.write_bytes(line_of({"cell": ring.cells[0].key, "status": "failed"}))
    again = SweepProgress(quiet=True)
    runs = sweep(whole, executor=InTurn(), store=store, progress=again)
    assert again.facts()[:2] == ["2/2 cells", "1 with an error"]
    assert f"worst gap {100 * runs.frame()['gap'].max():.2g} % to any mapping" in again.facts()
    assert runs.frame()["level_gap"].max() == 0
    retried = SweepProgress(quiet=True)
    sweep(whole, executor=InTurn(), store=store, progress=retried, retry=True)
    assert retried.facts()[:2] == ["2/2 cells", "none failed"]


@pytest.mark.parametrize("columns", [20, 40, 80, 140])
def test_it_fits_the_terminal_and_goes_away(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = Terminal()
    view = SweepProgress(stream)
    view(100_000, 123_456, None)
    for done, record in enumerate((FAILED, INFEASIBLE, solved(0.034)), start=100_001):
        view(done, 123_456, record)
        view._live.refresh()
    screen = Screen(columns).feed(stream.getvalue())
    shown = "\n".join(screen.rows)
    facts = ["100003/123456 cells"[: columns - 1], "1 with an error", "worst gap 3.4 %", "elapsed"]
    assert all(fact in shown for fact in facts), shown
    assert ("━" in screen.rows[0]) == (columns > 20) and not screen.wrapped
    view.close()
    view.close()
    screen = Screen(columns).feed(stream.getvalue())
    assert not any(map(str.strip, screen.rows)) and (screen.row, screen.column) == (0, 0)
    assert "?25l" not in stream.getvalue()  # a killed sweep could not show the cursor again


def test_colours_may_be_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    said = []
    for colours in (True, False):
        if not colours:
            monkeypatch.setenv("NO_COLOR", "1")
        stream = Terminal()
        view = SweepProgress(stream)
        view(1, 2, None)
        view.close()
        said.append(re.findall(r"\x1b\[[0-9;]*m", stream.getvalue()))
    assert said[0] and not said[1]


def test_a_dumb_terminal_gets_a_plain_line_now_and_then(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    view = SweepProgress(stream)
    view(0, 9, None)
    for done in range(1, 8):
        clock[0] += 4.0
        view(done, 9, solved(0.0))
    view.close()
    lines = stream.getvalue().splitlines()
    assert [line.split()[0] for line in lines] == ["3/9", "6/9"] and "\x1b" not in stream.getvalue()
    assert (
        lines[0] == "3/9 cells  none failed  0.25 cells/s  ETA 0:00:24  worst gap 0 % to any mapping  0:00:12 elapsed"
    )


@pytest.mark.parametrize(("stream", "quiet"), [(io.StringIO(), False), (Terminal(), True)])
def test_it_may_be_quiet(stream: io.StringIO, quiet: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # colours in a file are one thing, a view in it another
    view = SweepProgress(stream, quiet=quiet)
    view(0, 2, None)
    view(1, 2, solved(0.0))
    view.close()
    assert stream.getvalue() == ""


def in_terminal(columns: int, *words: str, until: str = "", act: Any = None) -> tuple[str, int]:
    """Run dfopt with stderr on a terminal and stdout in a pipe; ``act`` once the screen has shown some words."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "NO_COLOR")}
    child = subprocess.Popen(
        [sys.executable, "-m", "dfopt", *words], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, stderr=theirs,
        env={**env, "TERM": "xterm-256color"},
    )  # fmt: skip
    os.close(theirs)
    os.set_blocking(ours, False)
    said, end = b"", time.monotonic() + 10 * BUSY
    try:
        while time.monotonic() < end:
            try:
                chunk = os.read(ours, 65536)
            except BlockingIOError:
                time.sleep(0.02)
                continue
            except OSError:  # nobody has it open any more
                break
            if not chunk:
                break
            said += chunk
            if act is not None and any(until in line for line in Screen(columns).feed(said.decode("utf-8")).seen):
                act(child)
                act = None
        assert child.stdout is not None
        out = child.stdout.read().decode()
        assert "Runs(small" in out and "\x1b" not in out, out
        return said.decode(), child.wait(BUSY)
    finally:
        child.kill()
        child.communicate()
        os.close(ours)


def test_a_sweep_in_a_narrow_terminal(tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    study().dump(path)
    said, code = in_terminal(40, "sweep", str(path), "--jobs", "1", "--store", str(tmp_path / "runs.jsonl"))
    screen = Screen(40).feed(said)
    assert code == 0 and not screen.wrapped
    assert any("0/2 cells  none failed" in line for line in screen.seen)
    assert not any(map(str.strip, screen.rows))


def test_ctrl_c_leaves_the_terminal_clean(tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    study(axes=limits(40)).dump(path)
    said, code = in_terminal(
        60, "sweep", str(path), "--jobs", "1", "--store", str(tmp_path / "runs.jsonl"),
        until="ETA 0", act=lambda child: child.send_signal(signal.SIGINT),
    )  # fmt: skip
    screen = Screen(60).feed(said)
    left = " ".join(map(str.strip, screen.rows)).strip()
    assert code == 5 and left.startswith("dfopt: interrupted; the same command goes on from"), left
    assert not any("━" in line or "cells" in line for line in screen.rows)
