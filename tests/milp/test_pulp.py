"""The second door: names, clocks, processes and words of solvers behind PuLP."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from busy import BUSY
from test_limits import check_trace, market_split, press_ctrl_c
from test_solve import cover

from dfopt.errors import PlanError
from dfopt.milp import Model, Termination, TracePoint, cbc, check_solver, pulp_door, solve
from dfopt.milp.outcome import Settings

CBC = "pulp:CBC"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files, with a blank in its name: PuLP splits its command lines there."""
    folder = tmp_path / "a b"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def at_work(folder: Path) -> list[int]:
    """Return the processes whose working directory lies in a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            where = os.readlink(entry / "cwd")
        except OSError:  # gone meanwhile, or not ours
            continue
        if where.startswith(str(folder)):
            found.append(int(entry.name))
    return found


def assert_nothing_left(folder: Path) -> None:
    assert list(folder.iterdir()) == []
    if sys.platform == "linux":
        until = time.perf_counter() + BUSY  # what was killed is gone when the kernel gets round to it
        while at_work(folder) and time.perf_counter() < until:
            time.sleep(0.02)
        assert at_work(folder) == []


def pretend(monkeypatch: pytest.MonkeyPatch, folder: Path, code: str) -> None:
    """Put a script in the place of PuLP and its solver."""
    script = folder / "child.py"
    script.write_text(code, encoding="utf-8")
    monkeypatch.setattr(pulp_door, "_CHILD", script)


DEAF = """
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
time.sleep(60)
"""


# ------------------------------------------------------------------ names


@pytest.mark.parametrize("name", ["pulp:CBC", "pulp:cbc", "PuLP:pulp_cbc_cmd", " pulp: PULP_CBC_CMD "])
def test_names(name: str) -> None:
    assert check_solver(name) == "pulp:PULP_CBC_CMD"


def test_short_name_takes_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = pulp_door._listed(False)
    for here, name, found in (
        (("SCIP_PY",), "pulp:scip", "SCIP_PY"),
        (("SCIP_CMD", "SCIP_PY"), "pulp:SCIP", "SCIP_CMD"),
        (("GUROBI_CMD",), "pulp:GUROBI", "GUROBI_CMD"),
        (("GUROBI_CMD", "GUROBI"), "pulp:GUROBI", "GUROBI"),
        (("COIN_CMD",), "pulp:CBC", "COIN_CMD"),
    ):
        monkeypatch.setattr(pulp_door, "_listed", lambda available, here=here: here if available else everything)
        assert pulp_door.find_solver(name) == found
    with pytest.raises(PlanError, match="not installed"):
        pulp_door.find_solver("pulp:SCIP_PY")


@pytest.mark.parametrize("name", ["", "cplex", "pulp", "pulp:", "pulp:CBX", "pulp:CHOCO"])
def test_unknown_or_missing_solver(name: str) -> None:
    for ask in (check_solver, lambda n: solve(cover(), solver=n)):
        with pytest.raises(PlanError, match="available here: highs, pulp:") as caught:
            ask(name)
        assert "pulp:PULP_CBC_CMD" in str(caught.value)
    if name == "pulp:CBX":
        assert "did you mean 'CBC'?" in str(caught.value)


# ---------------------------------------------------------------- answers


def test_silent_and_clean(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[TracePoint] = []
    s = solve(cover(), solver=CBC, start=np.ones(30), progress=seen.append)
    assert s.termination is Termination.OPTIMAL and s.objective == solve(cover()).objective and s.gap == 0.0
    assert [seen[0].objective, seen[-1].objective] == [cover().arrays().objective(np.ones(30)), s.objective]
    check_trace(s.trace)
    assert capfd.readouterr() == ("", "")
    assert_nothing_left(place)


def test_infeasible_and_unbounded_are_told_apart() -> None:
    for integral in (True, False):
        m = Model("u")
        x = (m.integer if integral else m.continuous)("x", 2)
        m.rows("r", [(x[None, :], [1.0, -1.0])], lower=0.0)
        m.minimize([(x, [-1.0, 0.0])])
        assert solve(m, solver=CBC).termination is Termination.UNBOUNDED
        m.rows("no", [(x[None, :], 1.0)], upper=-1.0)
        assert solve(m, solver=CBC).termination is Termination.INFEASIBLE


def test_rows_and_columns_that_files_lose() -> None:
    m = Model("edges")
    x, y = m.integer("x", 2, -3, 7), m.continuous("unused", 1, 2.0)
    m.rows("empty", [([-1], 1.0)], lower=-1.0)
    m.rows("free", [(x[:1], 1.0)])
    m.rows("range", [(x[None, :], 1.0)], lower=-1.5, upper=4.0)
    m.minimize([(x, [1.0, 2.0])], offset=1e3)
    s = solve(m, solver=CBC)
    assert s.objective == solve(m).objective == 996.0
    assert s.x is not None and s.x[y] >= 2.0
    m.rows("never", [([-1], 1.0)], lower=1.0)
    assert solve(m, solver=CBC).termination is Termination.INFEASIBLE
    m = Model("free")
    m.minimize([(m.binary("x", 3), [1.0, -1.0, 2.0])])
    assert solve(m, solver=CBC).objective == -1.0


def test_digits_that_solution_files_lose() -> None:
    # CBC writes eight digits: of a row in the millions the rest is missing.
    m = Model("digits")
    x = m.continuous("x", 2, upper=1e7)
    m.rows("sum", [(x[None, :], [1.0, 3.0])], lower=np.pi * 1e6, upper=np.pi * 1e6)
    m.minimize([(x, [1e-6, 2e-6])])
    s = solve(m, solver=CBC)
    assert s.termination is Termination.OPTIMAL and s.x is not None and m.arrays().violation(s.x) <= 1e-8
    assert s.objective == pytest.approx(solve(m).objective, rel=1e-9)


def test_gap_is_measured_with_the_constant() -> None:
    m = market_split(3, 15)
    m.minimize([(m.index("s"), 1.0)], offset=100.0)
    rough = solve(m, solver=CBC, gap=0.5)
    assert rough.termination is Termination.GAP_REACHED and 99.9 <= rough.bound <= 107.0
    assert solve(m, solver=CBC).objective == pytest.approx(107.0)


def test_what_cbc_is_told() -> None:
    m = cover()
    told = cbc.options(m.arrays(), Settings(gap=0.25, seed=3, presolve=False))
    assert told["gapRel"] == pytest.approx(0.2) and told["presolve"] is False and told["threads"] is None
    assert {"preprocess off", "randomSeed 3", "randomCbcSeed 3", "primalTolerance 1e-09"} <= set(told["options"])
    assert not any(word.startswith("increment") for word in told["options"])
    m.minimize([(m.index("x"), 0.5)])
    assert "increment 1e-9" in cbc.options(m.arrays(), Settings())["options"]
    with pytest.raises(ValueError, match="seed must not be negative"):
        solve(m, solver=CBC, seed=-1)


def test_what_a_solver_was_not_told_is_said() -> None:
    s = solve(cover(), solver="pulp:HiGHS", seed=3, presolve=False)
    assert s.termination is Termination.OPTIMAL and "HiGHS cannot be told the seed nor presolve off" in s.message
    assert "cannot" not in solve(cover(), solver=CBC, seed=3, presolve=False).message


def test_tiny_differences_count() -> None:
    # CBC by itself takes nothing for better that is better by less than 1e-5.
    m = Model("tiny")
    rng = np.random.default_rng(3)
    x = m.binary("x", 40)
    m.rows("cover", [(rng.integers(0, 40, (60, 3)), 1.0)], lower=1.0)
    m.minimize([(x, 1.0 + 1e-6 * rng.integers(0, 50, 40))])
    assert solve(m, solver=CBC).objective == pytest.approx(solve(m).objective, abs=1e-9)


@pytest.mark.parametrize("lie", ["values", "above the start", "status"])
def test_a_lying_solver_is_caught(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lie: str) -> None:
    answer = {"values": "[0.0] * 31, [1, 1]", "above the start": "[1.0] * 31, [1, 1]", "status": "[1.0] * 31, [-3, 0]"}
    pretend(
        monkeypatch, tmp_path, f"import numpy as np\nv, s = {answer[lie]}\nnp.savez('answer', values=v, statuses=s)"
    )
    m = cover()
    start = solve(m).x if lie == "above the start" else None
    s = solve(m, solver="pulp:HiGHS", start=start)
    assert s.termination is Termination.FAILED and s.x is None and s.message


def test_a_broken_solver_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: Path) -> None:
    pretend(monkeypatch, tmp_path, "raise SystemExit('no licence found')")
    s = solve(cover(), solver=CBC)
    assert s.termination is Termination.FAILED and "PULP_CBC_CMD broke: no licence found" in s.message
    assert_nothing_left(place)


# ----------------------------------------------------- clocks and processes


@pytest.mark.parametrize("solver", [CBC, "pulp:HiGHS"])
def test_limit_with_solution(solver: str, place: Path) -> None:
    m = market_split()
    start = m.start({"x": np.zeros(40)})
    began = time.perf_counter()
    s = solve(m, solver=solver, time_limit=1.0, start=start)
    assert time.perf_counter() - began <= 1.0 + BUSY
    # both call it optimal in PuLP's words
    assert s.termination is Termination.LIMIT_WITH_SOLUTION and s.x is not None and m.arrays().violation(s.x) <= 1e-6
    assert s.trace[0].objective == pytest.approx(m.arrays().row_lower.sum())
    check_trace(s.trace)
    assert_nothing_left(place)


def test_limit_without_solution() -> None:
    s = solve(market_split(6, 50, slack=False), solver=CBC, time_limit=0.7)
    assert s.seconds <= 0.7 + BUSY and s.termination is Termination.LIMIT_NO_SOLUTION and s.x is None


def test_no_time_at_all() -> None:
    m = cover()
    s = solve(m, solver=CBC, time_limit=0.0, start=np.ones(30))
    assert s.seconds <= BUSY
    if s.termination is not Termination.OPTIMAL:  # on a busy machine it is done, or nearly, before anyone looks
        assert s.termination is Termination.LIMIT_WITH_SOLUTION and s.bound <= 25.0
    assert s.objective >= 25.0  # what it was given, or the optimum


def test_deaf_solver_is_killed_with_all_it_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: Path
) -> None:
    pretend(monkeypatch, tmp_path, DEAF)
    m = market_split()
    for start in (m.start({"x": np.zeros(40)}), None):
        began = time.perf_counter()
        s = solve(m, solver=CBC, time_limit=0.5, start=start)
        assert time.perf_counter() - began <= 0.5 + BUSY
        kept = Termination.LIMIT_NO_SOLUTION if start is None else Termination.LIMIT_WITH_SOLUTION
        assert s.termination is kept and s.bound == -np.inf
        assert_nothing_left(place)


def test_ctrl_c(place: Path) -> None:
    m = market_split()
    timer = press_ctrl_c(1.0)
    began = time.perf_counter()
    s = solve(m, solver=CBC, time_limit=30.0, start=m.start({"x": np.zeros(40)}))
    timer.join()
    assert time.perf_counter() - began <= 1.0 + BUSY
    assert (
        s.termination is Termination.INTERRUPTED_WITH_SOLUTION and s.x is not None and m.arrays().violation(s.x) <= 1e-6
    )
    check_trace(s.trace)
    assert_nothing_left(place)


def test_ctrl_c_without_solution(place: Path) -> None:
    timer = press_ctrl_c(0.5)
    s = solve(market_split(6, 50, slack=False), solver=CBC)
    timer.join()
    assert s.termination is Termination.INTERRUPTED_NO_SOLUTION and s.x is None
    assert_nothing_left(place)


def test_second_ctrl_c_raises_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: Path) -> None:
    pretend(monkeypatch, tmp_path, DEAF)
    timers = [press_ctrl_c(0.3), press_ctrl_c(0.6)]
    with pytest.raises(KeyboardInterrupt):
        solve(market_split(), solver=CBC)
    for timer in timers:
        timer.join()
    time.sleep(2.0)
    assert_nothing_left(place)


def test_failing_progress_stops_the_solve(place: Path) -> None:
    def fail(point: TracePoint) -> None:
        raise LookupError("display gone")

    with pytest.raises(LookupError, match="display gone"):
        solve(market_split(), solver=CBC, progress=fail)
    assert_nothing_left(place)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_nothing_outlives_a_killed_parent(tmp_path: Path) -> None:
    code = "import sys; sys.path[:0] = sys.argv[1:]\nfrom test_limits import market_split\n"
    code += "from dfopt.milp import solve\nsolve(market_split(), solver='pulp:CBC')"
    here = Path(__file__).parent
    parent = subprocess.Popen(
        [sys.executable, "-c", code, here, here.parent], env=os.environ | {"TMPDIR": str(tmp_path)}
    )
    until = time.monotonic() + 20.0
    while len(at_work(tmp_path)) < 2 and time.monotonic() < until:  # PuLP and CBC
        time.sleep(0.05)
    assert len(at_work(tmp_path)) == 2
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    until = time.monotonic() + 20.0
    while (at_work(tmp_path) or any(tmp_path.iterdir())) and time.monotonic() < until:
        time.sleep(0.05)
    assert_nothing_left(tmp_path)
