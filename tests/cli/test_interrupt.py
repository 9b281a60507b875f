"""Ctrl-C and the time limit: the best mapping so far comes out, soon, with its gap."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from busy import BUSY
from cli_tools import SMALL_SRAM, Data, command, spawn, wide_graph, write


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Words of a solve that takes many times longer than these tests wait."""
    folder = tmp_path_factory.mktemp("wide")
    graph, system = write(folder, "graph.yaml", wide_graph(40, 8)), write(folder, "system.yaml", SMALL_SRAM)
    return ("solve", str(graph), str(system), "--set", "overlap=none", "--json")


@contextmanager
def process(*words: object) -> Iterator[subprocess.Popen[str]]:
    """A running command line; it does not outlive the test."""
    running = subprocess.Popen(command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield running
    finally:
        running.kill()
        running.communicate()


def interrupt(running: subprocess.Popen[str], within: float) -> tuple[str, str]:
    """Ctrl-C; the process must end within some seconds."""
    running.send_signal(signal.SIGINT)
    return running.communicate(timeout=within)


def test_ctrl_c_prints_the_best_so_far() -> None:
    with process("solve", "dlrm-793b", "h100-256", "--json", "--time-limit", 60) as running:  # a start comes early
        assert running.stderr is not None
        for line in running.stderr:  # however busy the machine is; the time limit ends it
            if " s  best " in line:
                break
        out, err = interrupt(running, BUSY)
        assert running.returncode == 0, err
    data: Data = json.loads(out)
    assert data["status"] in ("interrupted_with_solution", "optimal_per_level", "optimal")
    assert (data["level_gap"] > 0) == (not data["status"].startswith("optimal"))
    assert data["level_bound"] <= data["value"]
    assert "Traceback" not in err


SWALLOWED = """
import signal, sys, time, weakref
from dfopt.interrupts import hear_every_interrupt

class Thing:
    def __del__(self):
        if len(sys.argv) == 1:
            interrupt()

def interrupt():
    raise ValueError("another") if "other" in sys.argv else signal.raise_signal(signal.SIGINT)

hear_every_interrupt()
try:
    thing = Thing()
    watched = weakref.ref(thing, lambda _: interrupt()) if len(sys.argv) > 1 else None
    del thing
    print("goes on", flush=True)
    time.sleep(20 if "other" not in sys.argv else 0)
except KeyboardInterrupt:
    print("heard")
"""


@pytest.mark.parametrize("where", [(), ("weakref",)])
def test_ctrl_c_that_python_ignores_is_heard_a_moment_later(where: tuple[str, ...]) -> None:
    """In a destructor and in the callback of a weak reference, where nobody can be told of it."""
    began = time.perf_counter()
    answer = subprocess.run([sys.executable, "-c", SWALLOWED, *where], capture_output=True, text=True, timeout=60)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "goes on\nheard\n", "")
    assert time.perf_counter() - began < 15


def test_what_else_python_ignores_is_said_as_ever() -> None:
    words = [sys.executable, "-c", SWALLOWED, "other"]
    answer = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (answer.returncode, answer.stdout) == (0, "goes on\n")
    assert "Exception ignored in" in answer.stderr and "ValueError: another" in answer.stderr


IMPORTED = """
import signal

class Descriptor:
    def __set_name__(self, owner, name):
        signal.raise_signal(signal.SIGINT)

class Owner:
    field = Descriptor()  # Python raises a RuntimeError for what is raised here
"""


def test_ctrl_c_waits_until_a_module_is_imported(tmp_path: Path) -> None:
    (tmp_path / "imported.py").write_text(IMPORTED)
    program = f"""
import sys, time
from dfopt.interrupts import hear_every_interrupt
hear_every_interrupt()
sys.path.insert(0, {str(tmp_path)!r})
try:
    import imported
    time.sleep(20)
except KeyboardInterrupt:
    print("heard behind", hasattr(imported, "Owner"))
"""
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "heard behind True\n", "")


def imports_have_begun(running: subprocess.Popen[str]) -> None:
    """Wait until Python itself is up and the command has begun to import."""
    maps = Path(f"/proc/{running.pid}/maps")
    if not maps.exists():  # not Linux
        time.sleep(1)
        return
    until = time.perf_counter() + 20
    while "_multiarray_umath" not in maps.read_text() and time.perf_counter() < until:
        time.sleep(0.005)


@pytest.mark.parametrize("after", [0.5, 1.0])
def test_ctrl_c_while_plans_are_prepared(long: tuple[str, ...], after: float) -> None:
    with process(*long, "--time-limit", 15) as running:
        imports_have_begun(running)
        time.sleep(after)
        _, err = interrupt(running, BUSY)  # HiGHS may sit in a root LP that hears no interrupt for 1.5 s
        assert running.returncode in (0, 130)
        assert "Traceback" not in err


def test_ctrl_c_during_start_up_shows_no_traceback(long: tuple[str, ...]) -> None:
    with process(*long) as running:
        imports_have_begun(running)
        out, err = interrupt(running, BUSY)
    assert (running.returncode, out) == (130, "")
    assert err == "dfopt: interrupted before the first mapping was found\n"


def test_progress_is_a_line_now_and_then(long: tuple[str, ...]) -> None:
    with process(*long, "--set", "sharding_objective=seconds", "--time-limit", 60) as running:  # solves one by one
        assert running.stderr is not None
        lines = [running.stderr.readline().rstrip() for _ in range(2)]  # however long a busy machine takes
        out, err = interrupt(running, 20)
    json.loads(out)  # nothing but JSON on stdout
    lines += err.splitlines()
    form = r" *([\d.]+) s  (best|no mapping yet).*, bound .*, ([\d,]+ of [\d,]+ plans open|no plans listed yet).*"
    times = [float(found[1]) for line in lines if (found := re.fullmatch(form, line))]
    assert len(times) == len(lines), err
    assert min(times) >= 1
    assert all(second - first >= 4.9 for first, second in pairwise(times))


def test_quiet_is_quiet() -> None:
    answer = spawn("solve", "gpt2-small", "sn10-8-ring", "--batch", 8, "--tp", 8, "--json", "-q")
    assert (answer.code, answer.err) == (0, "")


def test_the_time_limit_counts_from_the_start_of_the_process(long: tuple[str, ...]) -> None:
    """Drawing, search and sensitivities are in it: those alone would take as long again for each resource."""
    began = time.perf_counter()
    answer = spawn(*long, "--time-limit", 5)
    assert time.perf_counter() - began < 5 + BUSY
    if answer.code == 5:  # so busy a machine that nothing was found
        assert "--time-limit" in answer.err or "no solution found" in answer.err
        return
    data = json.loads(answer.out)
    assert data["status"] == "limit_with_solution" and data["level_gap"] > 0
    assert data["seconds"] < 5 + BUSY


@pytest.mark.parametrize("words", [("solve", "gpt3-175b", "a100-512"), ("check", *["gpt3-175b"] * 30)])
def test_a_limit_that_ends_everything_is_said(words: tuple[str, ...]) -> None:
    answer = spawn(*words, "--time-limit", 0.1)
    assert (answer.code, answer.out) == (5, "")
    assert "the time limit came" in answer.err and len(answer.err.splitlines()) == 1
