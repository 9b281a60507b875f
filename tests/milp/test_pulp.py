"""The second door: names, clocks, processes and words of solvers behind PuLP; and both doors on the same models."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from busy import BUSY
from hypothesis import given
from random_models import KINDS, cover, market_split, random_model, small_milp
from solver_doors import CBC, assert_nothing_left, at_work, check_trace, press_ctrl_c
from strategies import share

from dfopt.errors import PlanError
from dfopt.milp import Model, Termination, TracePoint, cbc, check_solver, pulp_door, solve
from dfopt.milp.outcome import Settings


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


def test_second_ctrl_c_raises_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: Path) -> None:
    pretend(monkeypatch, tmp_path, DEAF)
    timers = [press_ctrl_c(0.3), press_ctrl_c(0.6)]
    with pytest.raises(KeyboardInterrupt):
        solve(market_split(), solver=CBC)
    for timer in timers:
        timer.join()
    time.sleep(2.0)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_nothing_outlives_a_killed_parent(tmp_path: Path) -> None:
    code = "import sys; sys.path[:0] = sys.argv[1:]\nfrom random_models import market_split\n"
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


# -- HiGHS with presolve, HiGHS without, and CBC must agree ------------------------------------


def assert_agreement(model: Model) -> None:
    ways = ({}, {"presolve": False}, {"solver": CBC})
    first, *others = (solve(model, time_limit=60.0, **way) for way in ways)
    assert first.termination in (Termination.OPTIMAL, Termination.INFEASIBLE)
    for other in others:
        assert other.termination is first.termination, other.message
        assert other.objective == pytest.approx(first.objective, rel=1e-6, abs=1e-6)
        assert other.bound == pytest.approx(first.bound, rel=1e-6, abs=1e-6)
        assert other.x is None or model.arrays().violation(other.x) <= 1e-6


@share(0.4, nightly=1)
@given(small_milp())
def test_small_models(case: tuple[Model, int, int]) -> None:
    assert_agreement(case[0])


@pytest.mark.parametrize("seed", [*range(30), *(pytest.param(s, marks=pytest.mark.nightly) for s in range(30, 430))])
def test_models_of_many_structures(seed: int) -> None:
    assert_agreement(random_model(seed))


@pytest.mark.parametrize("seed", [*range(10), *(pytest.param(s, marks=pytest.mark.nightly) for s in range(10, 200))])
def test_gap_and_cutoff(seed: int) -> None:
    rng = np.random.default_rng(10_000 + seed)
    model = KINDS[seed % len(KINDS)](rng, int(rng.integers(10, 70)))
    gap = float(rng.choice([0.01, 0.1, 0.3]))
    best = solve(model)
    if best.x is None:
        return
    near = 1e-6 * max(1.0, abs(best.objective))
    rough = solve(model, solver=CBC, gap=gap)
    assert rough.termination in (Termination.GAP_REACHED, Termination.OPTIMAL) and rough.gap <= gap * (1.0 + 1e-6)
    assert rough.bound - near <= best.objective <= rough.objective + near
    if rough.termination is Termination.OPTIMAL:
        assert rough.objective == pytest.approx(best.objective, abs=near)
    start = best.x if seed % 2 else None
    step = max(1e-3, 1e-3 * abs(best.objective))
    for room in (0.0, step):
        s = solve(model, solver=CBC, cutoff=best.objective + room, start=start)
        assert s.termination is Termination.OPTIMAL and s.objective == pytest.approx(best.objective, abs=near)
    s = solve(model, solver=CBC, cutoff=best.objective - step, start=start)
    assert s.termination is Termination.INFEASIBLE and s.bound == best.objective - step


def _two_and_not_three() -> Model:
    """Four integers and a time: 2 is possible."""
    model = Model("two and not three")
    whole, rest = model.integer("x", 4, upper=2.0), model.continuous("y", 1, upper=3.0)
    x = np.concatenate([whole, rest])[None, :]
    model.rows("first", [(x, np.array([[-2.0, 0.0, 2.0, 0.0, -1.0]]))], upper=-4.0)
    model.rows("second", [(x, np.array([[-1.0, 0.0, 1.0, 0.0, 1.0]]))], upper=3.0)
    model.minimize([(whole, np.array([2.0, 0.0, -1.0, 0.0]))])
    return model


def test_cbc_is_right_where_its_preprocessing_is_wrong() -> None:
    # With preprocessing CBC 2.10.3 calls the first, trivially feasible, "integer infeasible", of the second it reports
    # an objective that its own solution does not have, and of the third it calls 3 optimal.
    rng = np.random.default_rng(10_059)
    wrong = KINDS[9](rng, int(rng.integers(10, 70)))
    for model in (wrong, random_model(445), _two_and_not_three()):
        s = solve(model, solver=CBC)
        assert s.termination is Termination.OPTIMAL and s.message == "proven optimal"
        assert s.objective == pytest.approx(solve(model).objective, rel=1e-6)


@pytest.mark.parametrize("presolve", [True, False])
def test_infeasible_where_cbc_crashes_without_its_preprocessing(presolve: bool) -> None:
    s = solve(random_model(275), solver=CBC, presolve=presolve)
    assert s.termination is Termination.INFEASIBLE
