"""Tables in narrow windows, in pipes and on terminals with and without colours."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import pytest
from cli_tools import call

SOLVE = ("solve", "gpt3-175b", "sn10-8-torus", "-q", "--detail", "all")


@pytest.mark.parametrize("columns", ["40", "70", "80"])
def test_a_solve_reads_well_in_a_narrow_window(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    for words in (("show", "gpt3-1t"), ("show", "hybrid-vault"), ("show", "sn30-1024-2dtorus"), SOLVE):
        out = call(*words).out
        assert all(len(line) <= int(columns) for line in out.splitlines())
        assert "…" not in out
    for figure in ("1.306", "4.474", "327.3", "1.1000x"):
        assert figure in out.replace(",", " ").split()
    alone = [line for line in out.splitlines() if len(line.strip()) == 1]
    assert len(alone) <= 1, "a column of single characters"  # a kernel may be called K


def on_a_terminal(*words: str, **env: str) -> str:
    """What a command writes to a terminal of its own, 24 lines of 70 columns."""
    main, side = pty.openpty()
    script = f"stty cols 70 rows 24; exec {sys.executable} -m dfopt {' '.join(words)}"
    inherited = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
    with subprocess.Popen(["sh", "-c", script], stdin=side, stdout=side, stderr=side, env={**inherited, **env}) as done:
        os.close(side)
        found = b""
        while True:
            try:
                part = os.read(main, 65536)
            except OSError:  # of Linux: the other side is closed
                break
            if not part:
                break
            found += part
        os.close(main)
    assert done.returncode == 0, found
    return found.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("env", [{"TERM": "xterm-256color"}, {"TERM": "xterm", "NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_terminal_without_colours_gets_none(env: dict[str, str]) -> None:
    out = on_a_terminal("show", "hybrid-vault", **env)
    assert ("\x1b[1m" in out) == (env["TERM"] != "dumb")
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", out) or "NO_COLOR" not in env
    plain = re.sub(r"\x1b\[[0-9;]*m", "", out)
    assert all(len(line) <= 70 for line in plain.splitlines())
    assert "W/(m K)" in plain and "bond to the sink" in plain
