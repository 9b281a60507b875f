"""Heat as a limit: the MILP against all paths and levels of small problems, with idle time in closed form."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import share

from dfopt.errors import Infeasible
from dfopt.heat.bound import bound
from dfopt.heat.paths import Paths
from dfopt.heat.period import HeatEffort, HeatSolution, shortest_period
from dfopt.heat.problem import HeatChoice, HeatProblem, HeatRows, HeatStage

NEAR = 2e-6  # what a MILP solver calls equal


def random_stage(rng: np.random.Generator, levels: int, components: int) -> HeatStage:
    """A small lattice: all arcs between consecutive numbers, some longer ones, and now and then an empty partition."""
    nodes = int(rng.integers(2, 5))
    pairs = [(a, a + 1) for a in range(nodes - 1)]
    pairs += [(a, b) for a in range(nodes) for b in range(a + 2, nodes) if rng.random() < 0.6]
    if rng.random() < 0.3:
        pairs.append(pairs[0])
    tail, head = np.array(pairs).T
    block = np.arange(len(pairs))
    if rng.random() < 0.2 and len(pairs) > 1:
        block = np.where(block == len(pairs) - 1, -1, block)
    compute = rng.integers(0, 6, len(pairs)) * 0.25
    speed = np.linspace(1.0, 0.5, levels) if levels > 1 else np.ones(1)
    seconds = np.maximum(compute[:, None] / speed, rng.integers(1, 6, len(pairs))[:, None] * 0.2)
    energy = rng.integers(0, 8, (len(pairs), components)).astype(float)
    return HeatStage(tail, head, block, tail, nodes, seconds, energy)


def random_problem(seed: int) -> HeatProblem:
    rng = np.random.default_rng(seed)
    levels, components, rows = int(rng.integers(1, 4)), int(rng.integers(1, 3)), int(rng.integers(1, 5))
    ranks, count = int(rng.integers(1, 3)), int(rng.integers(1, 3))
    stages = tuple(random_stage(rng, levels, components) for _ in range(count))
    voltage = np.linspace(1.0, 0.7, levels) if levels > 1 else np.ones(1)
    scale = np.ones((levels, components))
    scale[:, 0] = voltage**2
    budget = rng.uniform(2.0, 30.0, (ranks, rows))
    budget[rng.random(budget.shape) < 0.1] = np.inf
    leak = rng.uniform(0.0, 1.0, (ranks, rows)) * (rng.random() < 0.5)
    above = -leak[:, :, None] * (1 - voltage)
    once = rng.uniform(0, 3, (ranks, rows)) * (rng.random() < 0.5)
    runs = rng.integers(0, 4, (ranks, count)).astype(float)
    runs[0] = np.maximum(runs[0], 1)
    return HeatProblem(
        stages=stages,
        runs_rs=runs,
        wait_r=rng.uniform(0, 0.5, ranks) * (rng.random() < 0.5),
        floor=float(rng.random() < 0.2) * rng.uniform(0, 3),
        rows=HeatRows(
            tuple(f"tile {i}" for i in range(rows)),
            rng.uniform(0, 2, (ranks, rows, components)),
            scale,
            above,
            budget,
            once,
        ),
    )


problems = st.integers(0, 2**31 - 1).map(random_problem)


def paths_of(stage: HeatStage) -> list[list[int]]:
    """All paths from the first node to the last."""
    found: list[list[int]] = []

    def walk(node: int, so_far: list[int]) -> None:
        if node == stage.nodes - 1:
            found.append(so_far)
            return
        for arc in np.flatnonzero(stage.tail == node).tolist():
            walk(int(stage.head[arc]), [*so_far, arc])

    walk(0, [])
    return found


def brute_force(problem: HeatProblem) -> float:
    """The least period over all choices, from the definition: time, and energy over what the limits allow."""
    rows = problem.rows
    points = []  # per stage all (time, load by rank and row)
    for stage in problem.stages:
        mine = set()
        for path in paths_of(stage):
            blocks = [int(stage.block[arc]) for arc in path if stage.block[arc] >= 0]
            for levels in itertools.product(range(len(rows.scale_lk)), repeat=len(blocks)):
                time = sum(stage.seconds_cl[b, at] for b, at in zip(blocks, levels, strict=True))
                load = np.zeros_like(rows.budget_ri)
                for b, at in zip(blocks, levels, strict=True):
                    load += rows.rise_rik @ (stage.energy_ck[b] * rows.scale_lk[at])
                    load += rows.above_ril[:, :, at] * stage.seconds_cl[b, at]
                mine.add((float(time), load.tobytes()))
        points.append([(t, np.frombuffer(b).reshape(rows.budget_ri.shape)) for t, b in mine])
    best = np.inf
    for chosen in itertools.product(*points):
        busy = problem.wait_r + problem.runs_rs @ np.array([t for t, _ in chosen])
        load = rows.once_ri + sum(problem.runs_rs[:, s, None] * part for s, (_, part) in enumerate(chosen))
        best = min(best, max(problem.floor, float(busy.max()), float((load / rows.budget_ri).max())))
    return best


def first_choice(problem: HeatProblem) -> HeatChoice:
    """Some path at the nominal level: with idle time it keeps every limit."""
    arcs = tuple(np.array(paths_of(stage)[0], dtype=np.int64) for stage in problem.stages)
    return HeatChoice(arcs, tuple(np.zeros(len(path), dtype=np.int64) for path in arcs))


def solved(problem: HeatProblem, **options: object) -> HeatSolution:
    return shortest_period(problem, [first_choice(problem)], **options)  # type: ignore[arg-type]


def close(a: float, b: float) -> bool:
    return abs(a - b) <= NEAR * max(abs(a), abs(b), 1e-12)


@given(problems)
def test_the_answer_is_the_best_of_all_choices_and_keeps_every_limit(problem: HeatProblem) -> None:
    answer = solved(problem)
    assert answer.proven
    assert close(answer.period_s, brute_force(problem))
    assert close(answer.period_s, problem.period(answer.choice))
    for stage, arcs in zip(problem.stages, answer.choice.arcs, strict=True):
        assert arcs.tolist() in paths_of(stage)
    assert (problem.loads(answer.choice) / problem.rows.budget_ri <= answer.period_s * (1 + 1e-12)).all()
    assert problem.busy(answer.choice).max() <= answer.period_s * (1 + 1e-12)
    assert answer.bound_s <= answer.period_s <= problem.period(first_choice(problem))


@given(problems)
def test_the_relaxation_bounds_every_choice(problem: HeatProblem) -> None:
    found = bound(problem, [Paths(stage) for stage in problem.stages], [first_choice(problem)])
    best = brute_force(problem)
    assert found.bound_s <= best * (1 + 1e-9)
    assert found.period_s >= best * (1 - 1e-9)


@given(problems, st.floats(1.0, 3.0), st.floats(0.2, 1.0))
def test_a_higher_limit_and_a_better_package_are_never_slower(problem: HeatProblem, more: float, less: float) -> None:
    before, rows = solved(problem).period_s, problem.rows
    for better in (replace(rows, budget_ri=rows.budget_ri * more), replace(rows, rise_rik=rows.rise_rik * less)):
        assert solved(replace(problem, rows=better)).period_s <= before * (1 + NEAR)


@given(problems)
def test_without_a_limit_it_is_the_shortest_path_at_nominal_speed(problem: HeatProblem) -> None:
    free = replace(problem, rows=replace(problem.rows, budget_ri=np.full_like(problem.rows.budget_ri, np.inf)))
    times = [
        min(sum(s.seconds_cl[s.block[a], 0] for a in p if s.block[a] >= 0) for p in paths_of(s)) for s in free.stages
    ]
    busy = free.runs_rs @ np.array(times) + free.wait_r
    answer = solved(free)
    assert close(answer.period_s, max(free.floor, float(busy.max())))
    assert not answer.price_ri.any()


@given(problems, st.sampled_from([0.8, 0.99, 1.01, 1.5]))
def test_only_what_beats_a_known_period_is_looked_for(problem: HeatProblem, times: float) -> None:
    best = brute_force(problem)
    answer = solved(problem, beat=best * times)
    assert answer.bound_s <= best * (1 + NEAR)
    if times > 1:
        assert close(answer.period_s, best) and answer.proven
    else:
        assert answer.period_s >= best * (1 - NEAR) and answer.bound_s >= best * times * (1 - NEAR)


@share(0.5)
@given(problems)
def test_the_price_of_a_kelvin_is_the_slope_of_the_relaxation(problem: HeatProblem) -> None:
    """The bound is convex in the budget: a step up gains at most the price times the step, a step down costs more."""
    paths, start = [Paths(stage) for stage in problem.stages], [first_choice(problem)]
    here = bound(problem, paths, start, gap=0.0)
    if here.period_s - here.bound_s <= 1e-6 * here.period_s:
        return  # stopped as soon as the best choice was proven: the prices may be of another vertex
    price = float((here.row_ri * here.bound_s).sum())
    for step in (1e-3, -1e-3):
        rows = replace(problem.rows, budget_ri=problem.rows.budget_ri + step)
        moved = replace(problem, rows=rows)
        there = bound(moved, paths, start)
        assert there.bound_s >= here.bound_s - price * step - 1e-6 * here.bound_s or there.bound_s == there.period_s


@share(0.5)
@given(problems)
def test_another_solver_agrees(problem: HeatProblem) -> None:
    assert close(solved(problem, effort=HeatEffort(solver="pulp:CBC")).period_s, solved(problem).period_s)


def test_a_resting_chip_above_its_limit_is_refused() -> None:
    problem = random_problem(1)
    rows = replace(problem.rows, budget_ri=np.where(np.isfinite(problem.rows.budget_ri), -3.5, np.inf))
    with pytest.raises(Infeasible, match=r"3\.5 above its limit while the chip rests"):
        replace(problem, rows=rows)


def test_no_time_returns_the_start_with_its_gap() -> None:
    problem = next(p for p in map(random_problem, range(100)) if solved(p).period_s < 0.9 * p.period(first_choice(p)))
    answer = solved(problem, effort=HeatEffort(deadline=0.0))
    assert answer.period_s == problem.period(first_choice(problem))
    assert not answer.proven
