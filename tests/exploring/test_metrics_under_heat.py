"""Every metric under every mode of heat: the best is that of all designs, and no bound is above any plan of any."""

from __future__ import annotations

import math
from functools import cache
from typing import Any, get_args

import pytest
from design_cases import GPT2, PRICED, SIZES, chosen, problem
from exploration_cases import (
    Judged,
    Place,
    asking,
    corners,
    drawn_box,
    every_design,
    every_layered,
    forged,
    is_refused,
    seconds_under_heat,
)
from hypothesis import given
from hypothesis import strategies as st
from strategies import share
from test_heated import ON, STACKED, stacked, workload
from test_layer_space import ALL, design
from test_objectives import figure

import dfopt as df
from dfopt.documents.design import Design
from dfopt.documents.exploration_request import DesignLimits, HeatMode, ObjectiveName, turned
from dfopt.documents.score import Score
from dfopt.documents.system import System
from dfopt.errors import Infeasible
from dfopt.exploring.checking import check_exploration
from dfopt.exploring.explore import explore
from dfopt.exploring.layer_space import LayerSpace
from dfopt.exploring.space import Box
from dfopt.machines.designs import load_design
from dfopt.physics.merits import MERITS

NAMES: tuple[ObjectiveName, ...] = get_args(ObjectiveName)
COOL_C, HOT_C = 60.0, 66.0
LAYERS: dict[str, Any] = {"dram_layers": [2, 8], "connected_layers": [2, 8]}
LAYERED = design({**LAYERS, "power": {"least": "90 W", "most": "270 W", "step": "90 W"}}, static_power="6 W")
LIMITS: dict[str, float] = {"step_time": 0.0705, "power": 2500.0, "price": 42000.0}


@pytest.mark.parametrize(
    ("name", "heat"),
    [
        ("energy", "throttle"),
        ("tokens_per_j", "aware"),
        pytest.param("tokens_per_s", "aware", marks=pytest.mark.nightly),
        *(pytest.param(name, "throttle", marks=pytest.mark.nightly) for name in NAMES),
    ],
)
def test_the_best_on_stacks_is_that_of_every_design(name: ObjectiveName, heat: HeatMode) -> None:
    made = explore(GPT2, STACKED, sensitivity=False, stack=ON, heat=heat, objective=name, gap=0.0)
    seconds = [(system, score, seconds_under_heat(score)) for system, score in stacked(heat).values()]
    alone = [figure(name, *each) for each in seconds if math.isfinite(each[-1])]
    assert turned(name, made.value) == pytest.approx(min(alone), rel=1e-9)
    assert turned(name, made.bound) <= min(alone) * (1 + 1e-9)
    assert "verified" in check_exploration(made, "it")
    better = 1.01 if MERITS[name].sense == "maximize" else 0.99
    is_refused(forged(made, "value", value=made.value * better), r"\$.value: found")


@pytest.mark.parametrize("name", ["watts", "tokens_per_j"])
def test_limits_hold_on_stacks(name: ObjectiveName) -> None:
    asked: dict[str, Any] = {"stack": ON, "heat": "throttle", "objective": name, "limits": DesignLimits(**LIMITS)}
    made = explore(GPT2, STACKED, sensitivity=False, gap=0.0, **asked)
    keeping, every = [], []
    for system, score in stacked("throttle").values():
        assert score.power_w is not None and score.price_usd is not None
        seconds = seconds_under_heat(score)
        every.append(figure(name, system, score, seconds))
        of = {"step_time": seconds, "power": score.power_w, "price": score.price_usd}
        if all(of[limit] <= most for limit, most in LIMITS.items()):
            keeping.append(every[-1])
    assert 0 < len(keeping) < len(every)
    assert turned(name, made.value) == pytest.approx(min(keeping), rel=1e-9)
    assert "verified" in check_exploration(made, "it")
    for key, most in LIMITS.items():
        is_refused(asking(made, limits=DesignLimits(**{**LIMITS, key: most / 2})), r"\$.value: found")


@pytest.mark.parametrize("heat", ["throttle", pytest.param("aware", marks=pytest.mark.nightly)])
def test_a_limit_on_temperature_is_that_of_every_die(heat: HeatMode) -> None:
    limits = DesignLimits(temperature=COOL_C + 273.15)
    made = explore(GPT2, STACKED, sensitivity=False, stack=ON, heat=heat, gap=0.0, limits=limits)
    alone = [seconds_under_heat(score) for _, score in stacked(heat, COOL_C).values()]
    assert made.value == pytest.approx(min(alone), rel=1e-9)
    on_stack = made.result.score.physical
    assert on_stack is not None and on_stack.logic_max_c <= COOL_C + 0.06
    assert min(alone) > min(seconds_under_heat(score) for _, score in stacked(heat).values()) * 1.001
    assert "verified" in check_exploration(made, "it")
    warmer = DesignLimits(temperature=HOT_C + 273.15)
    is_refused(asking(made, limits=warmer), r"\$.result.system: is not what")


@cache
def by_plan() -> dict[Place, list[Judged]]:
    """Every design with its best mapping under each plan."""
    degrees = [{"tp": one.tp, "pp": one.pp, "dp": one.dp} for one in workload("throttle").plans(0)]
    every = {at: system for at, (system, _) in stacked("throttle").items()}
    return {at: [(of, df.solve(GPT2, of, **asked).score) for asked in degrees] for at, of in every.items()}


@pytest.mark.parametrize(
    ("name", "heat"), [("time", "aware"), ("cost", "throttle"), ("tokens_per_j", "throttle"), ("power_scaled", "aware")]
)
def test_no_bound_is_better_than_a_plan_of_a_design(name: ObjectiveName, heat: HeatMode) -> None:
    made = problem("gpt2-small", [STACKED], stack=ON, heat=heat, objective=name)
    for at, scores in by_plan().items():
        reached = min(figure(name, system, score, seconds_under_heat(score)) for system, score in scores)
        for box in (Box(at, at), Box((0, 0, 0, 0), at), made.spaces[0].root):
            for bounded in made.bounds:
                assert made.bound(bounded, box, math.inf) <= reached * (1 + 1e-9), (bounded, box)


def test_joules_are_bounded_by_more_than_compute() -> None:
    """The bound on joules is near what the judge says, and far above that of compute at the lowest voltage."""
    made = problem("gpt2-small", [STACKED], stack=ON, heat="throttle", objective="tokens_per_j")
    box = made.spaces[0].root.at((0, 0, 0, 1))
    _, score = stacked("throttle")[0, 0, 0, 1]
    assert score.physical is not None
    peak, heat = (made.bound(name, box, math.inf) for name in ("peak", "heat"))
    assert peak < 0.9 * heat and heat > 0.7 * score.physical.energy_per_token_j


@share(0.05)
@given(
    st.sampled_from(["10 mW", "100 mW"]),
    st.sampled_from([5000.0, 8000.0, 20000.0]),
    st.sampled_from(["hbm3", "hybrid-vault"]),
    st.data(),
)
def test_no_bound_is_better_than_a_design_in_random_worlds(
    static: str, htc: float, stack: str, data: st.DataObject
) -> None:
    """A design of a box, with its fastest mapping and its clock as the stack allows it, against bounds of the box."""
    plate = {"package": {"mode": "htc", "htc_w_per_m2k": htc}, "cells": 4}
    on = df.load_stack(stack, {**plate, "levels": [{"frequency": f, "voltage": 0.4 + 0.6 * f} for f in (1, 0.7, 0.4)]})
    given_ = {**SIZES, **PRICED, "technology__core__static_power": static}
    given_["choices__power"] = {"least": "150 W", "most": "450 W", "step": "150 W"}
    under = design({**LAYERS, "power": {"least": "90 W", "most": "270 W", "step": "90 W"}}, static_power=static)
    of = chosen(**given_) if stack == "hbm3" else under
    asked: dict[str, Any] = {"stack": on, "heat": "throttle"}
    worlds = {name: problem("gpt2-small", [of], objective=name, **asked) for name in ("time", "tokens_per_j")}
    space = worlds["time"].spaces[0]
    box = drawn_box(data.draw, space.sizes)
    if stack == "hybrid-vault":  # prices of heat are those of one number of layers
        box = box._replace(high=(box.low[0], *box.high[1:]))
    at = tuple(data.draw(st.sampled_from(ends)) for ends in zip(box.low, box.high, strict=True))
    system = worlds["time"].system(space.root.at(at))
    if system is None:
        return
    try:
        score = df.solve(GPT2, system).score
    except Infeasible:
        return
    if math.isinf(seconds_under_heat(score)):  # too hot at every level
        return
    for name, world in worlds.items():
        reached = figure(name, system, score, seconds_under_heat(score))
        for bounded in world.bounds:
            for each in (box, space.root.at(at)):
                assert world.bound(bounded, each, math.inf) <= reached * (1 + 1e-9), (name, bounded)


@pytest.mark.nightly
def test_most_tokens_of_a_joule_among_layers() -> None:
    of, asked = design(LAYERS), {"heat": "throttle", "objective": "tokens_per_j", "time_limit": 120}
    made = explore(GPT2, of, sensitivity=False, gap=0.0, stack="hybrid-vault", **asked)
    every = every_design(problem("gpt2-small", [of], stack=made.request.stack, heat="throttle"))
    found = [figure("tokens_per_j", *each, seconds_under_heat(each[1])) for each in every.values()]
    assert len(found) > 1 and turned("tokens_per_j", made.value) == pytest.approx(min(found), rel=1e-9)
    assert made.gap < 0.5  # levels that no mapping needs are not ruled out
    assert "verified" in check_exploration(made, "it", 120)


def degrees(system: System, layers: float) -> float:
    assert system.chip.power_w is not None
    return 35 + (0.56 + 0.01 * layers) * system.chip.power_w


@cache
def lumped() -> list[tuple[System, Score, float]]:
    """Every design with layers, each mapped by itself, and its number of layers."""
    space = LayerSpace(LAYERED)
    return [(*made, space.named(at)["dram_layers"]) for at, made in every_layered(space).items()]


@pytest.mark.parametrize(
    ("name", "celsius"),
    [
        *(("time", None), ("watts", 80.0), ("power_scaled", 80.0)),
        *(pytest.param(name, 80.0, marks=pytest.mark.nightly) for name in NAMES if name != "tokens_per_j"),
    ],
)
def test_lumped_the_best_is_that_of_every_design(name: ObjectiveName, celsius: float | None) -> None:
    limits = None if celsius is None else DesignLimits(temperature=celsius + 273.15, price=1250.0)
    made = explore(GPT2, LAYERED, sensitivity=False, heat="lumped", objective=name, gap=0.0, limits=limits)
    found, hottest = [], celsius or 95.0
    for system, score, layers in lumped():
        clock = min(1.0, ((hottest - 35) / (degrees(system, layers) - 35)) ** (1 / 3))
        if limits is None or (score.price_usd or 0.0) <= 1250.0:
            found.append(figure(name, system, score, score.step_time_s / clock))
    assert turned(name, made.value) == pytest.approx(min(found), rel=1e-9) and made.status == "optimal"
    assert made.lumped is not None and made.without_heat is not None
    assert made.lumped.temperature_c == pytest.approx(degrees(made.result.system, made.best["dram_layers"]))
    assert "verified optimal" in check_exploration(made, "it")


def test_what_is_said_of_lumped_heat_is_checked() -> None:
    made = explore(GPT2, LAYERED, sensitivity=False, heat="lumped", gap=0.0)
    assert max(degrees(system, layers) for system, _, layers in lumped()) > 95  # some are throttled
    assert made.without_heat is not None and made.without_heat.judged is not None
    assert made.without_heat.predicted <= made.value <= made.without_heat.judged * (1 + 1e-9)
    for name in ("temperature_c", "frequency"):
        is_refused(forged(made, "lumped", name, value=lambda value: value * 0.9), r"\$.lumped: found")
    without = forged(made, "without_heat", "judged", value=lambda value: value * 1.1)
    is_refused(without, r"\$.without_heat.judged: found")
    cooler = asking(made, limits=DesignLimits(temperature=50 + 273.15))
    is_refused(cooler, r"\$.lumped: found(?s:.)*\$.value: found")


@given(st.sampled_from([None, "1 W", "6 W"]), st.floats(40, 110), st.sampled_from(NAMES), st.data())
def test_no_design_of_a_box_is_better_than_the_least_of_it(
    static: str | None, celsius: float, name: ObjectiveName, data: st.DataObject
) -> None:
    name = "time" if name == "tokens_per_j" else name
    limits = DesignLimits(temperature=celsius + 273.15)
    workload = problem("gpt2-small", [design(ALL, static_power=static)], heat="lumped", objective=name, limits=limits)
    box = drawn_box(data.draw, workload.spaces[0].sizes)
    for at in corners(box):
        one = workload.spaces[0].root.at(at)
        if workload.system(one) is not None:
            least, own = (workload.merit.value(1.0, workload._least(each)) for each in (box, one))
            assert least <= own * (1 + 1e-9)


def test_a_bound_on_joules_of_solves_with_a_gap_is_shown_again() -> None:
    """No cutoff limits its seconds, so that a check must not stop where a search may go on."""
    asked: dict[str, Any] = {"phase": "decode", "context": 64, "batch": 128, "microbatch": 16}
    asked |= {"tp": 32, "pp": 1, "dp": 8}
    of = Design.from_data({**load_design("stacked-256").to_data(), "choices": {"dram_layers": [4, 6]}})
    made = explore("llama-68m", of, objective="tokens_per_j", heat="throttle", stack="hybrid-vault", gap=0.05,
                   sensitivity=False, **asked)  # fmt: skip
    assert check_exploration(made, "it").startswith("verified within")
