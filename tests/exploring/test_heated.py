"""Designs under heat: the best is the best of all that are judged, and no bound is above what any mapping reaches."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from design_cases import GPT2, PRICED, chosen, problem
from exploration_cases import Judged, Place, every_design, forged, is_refused, seconds_under_heat
from hypothesis import given
from hypothesis import strategies as st
from strategies import share

import dfopt as df
from dfopt.documents.exploration import Exploration
from dfopt.documents.exploration_request import DesignLimits, HeatMode
from dfopt.documents.stack import Stack
from dfopt.errors import DocumentError, PlanError
from dfopt.exploring.checking import check_exploration
from dfopt.exploring.explore import explore
from dfopt.exploring.heated import Heated
from dfopt.exploring.space import Box
from dfopt.heat.least_interval import LeastInterval, LeastJoules
from dfopt.technology.leaking import Feedback, leaking
from dfopt.technology.stack_models import heat_of, power_of

# A cold plate that takes some 220 W of this chip: the best budget of power lies between.
LEVELS = [{"frequency": f, "voltage": 0.4 + 0.6 * f} for f in (1, 0.75, 0.5)]
PLATE = {"mode": "htc", "htc_w_per_m2k": 8000}
ON = df.load_stack("hbm3", {"cells": 4, "limits.logic": "70 degC", "package": PLATE, "levels": LEVELS})
CHANGES: dict[str, Any] = {
    "choices__capacity__L2": {"least": "16 MiB", "most": "16 MiB", "step": "16 MiB"},
    "choices__stacks": {"least": 2, "most": 2},
    "choices__rate__between_packages": {"least": "200 GB/s", "most": "200 GB/s", "step": "50 GB/s"},
    "choices__power": {"least": "150 W", "most": "450 W", "step": "100 W"},
    "technology__core__static_power": "10 mW",
}
STACKED = chosen(**CHANGES, **PRICED)


@cache
def workload(heat: HeatMode) -> Heated:
    made = problem("gpt2-small", [STACKED], stack=ON, heat=heat)
    assert isinstance(made, Heated)
    return made


@cache
def stacked(heat: HeatMode, celsius: float | None = None) -> dict[Place, Judged]:
    """Every design, each mapped by itself and judged; of the dies a limit on their temperature."""
    limits = None if celsius is None else DesignLimits(temperature=celsius + 273.15)
    of = problem("gpt2-small", [STACKED], stack=ON, heat=heat, limits=limits)
    return every_design(of, **{"heat": "aware"} if heat == "aware" else {})


@pytest.fixture(scope="module")
def made() -> Exploration:
    return explore(GPT2, STACKED, stack=ON, heat="throttle", gap=0.0, sensitivity=False)


def test_throttled_the_best_is_that_of_every_design_looked_at(made: Exploration) -> None:
    alone = [seconds_under_heat(score) for _, score in stacked("throttle").values()]
    assert len(alone) == 4 and made.value == pytest.approx(min(alone), rel=1e-9)
    assert made.bound <= made.value and made.request.stack == ON
    assert made.best["power"] < 450  # more power is not better under heat
    other = made.without_heat
    assert other is not None and other.best["power"] == 450 and other.judged is not None
    assert other.predicted < other.judged and other.judged >= made.value * (1 - 1e-9) and other.frequency < 1


@pytest.mark.parametrize("heat", ["throttle", "aware"])
def test_no_bound_is_above_what_a_mapping_reaches(heat: HeatMode) -> None:
    made = workload(heat)
    for at, (_, score) in stacked(heat).items():
        for box in (Box(at, at), Box((0, 0, 0, 0), at), made.spaces[0].root):
            for name in made.bounds:
                assert made.bound(name, box, np.inf) <= seconds_under_heat(score) * (1 + 1e-9), name
    hottest = made.spaces[0].root.at((0, 0, 0, 3))
    heat, plans = (made.bound(name, hottest, np.inf) for name in ("heat", "plans"))
    assert heat > plans * 1.05  # it says more than time does


def test_an_exploration_under_heat_is_checked(made: Exploration, tmp_path: Path) -> None:
    made.dump(tmp_path / "it.json")
    assert Exploration.load(tmp_path / "it.json") == made
    assert "verified" in check_exploration(made, "it")
    is_refused(forged(made, "value", value=lambda value: value * 0.99), r"\$.value: found")
    data, wrong = made.to_data(), ("predicted", "judged", "frequency")
    data["without_heat"].update({name: data["without_heat"][name] * 0.9 for name in wrong})
    data["without_heat"]["best"]["power"] = 150  # which is not better: its own figures are expected
    with pytest.raises(DocumentError) as caught:
        check_exploration(Exploration.from_data(data).sealed(), "it")
    assert all(f"$.without_heat.{name}: found" in str(caught.value) for name in wrong)
    data["without_heat"]["predicted"] *= 1.5
    is_refused(Exploration.from_data(data).sealed(), r"\$\.without_heat\.best: found .* s can be had: .*power 450")
    last = max(range(len(made.boxes)), key=lambda at: made.boxes[at].bound or 0.0)
    is_refused(forged(made, "boxes", last, "bound", value=lambda value: value * 1.5), r"only .* could be shown")


def test_what_cannot_be_asked() -> None:
    with pytest.raises(PlanError, match="stack: found none, expected it beside heat"):
        problem("gpt2-small", [STACKED], heat="throttle")
    with pytest.raises(PlanError, match="objective: tokens_per_j has joules of stacks, expected heat: throttle or"):
        problem("gpt2-small", [STACKED], objective="tokens_per_j")
    with pytest.raises(PlanError, match="heat: found lumped, a formula of DRAM layers, which small has none of"):
        problem("gpt2-small", [STACKED], stack=ON, heat="lumped")
    with pytest.raises(PlanError, match="limits: found a temperature without heat"):
        problem("gpt2-small", [STACKED], limits=DesignLimits(temperature=358.15))


@share(0.3)
@given(st.integers(0, 10**6), st.floats(0.3, 1.0))
def test_no_power_map_within_the_limits_is_sooner_done(seed: int, voltage: float) -> None:
    """Random joules on tiles at the rate at which a limit just binds, leakage solved with its temperatures."""
    stack: Stack = df.load_stack("hybrid-vault", {"cells": 4})
    power, heat, draw = power_of(stack), heat_of(stack), np.random.default_rng(seed)
    on = draw.random(len(power.compute)) * draw.integers(0, 2, len(power.compute))
    joules = np.zeros(power.count)
    joules[power.compute] = on + 1e-6
    dram, way = draw.exponential(0.1) * joules.sum(), draw.exponential(0.1) * joules.sum()
    whole = joules + dram * power.dram_tiles + way * power.io_heat
    limit = np.array([stack.most_k(die) for die in heat.dies])
    flows = power.steady_power(1.0, 0.0)
    low, high = 0.0, 2000 / whole.sum()
    for _ in range(40):
        rate = (low + high) / 2
        at = leaking(heat, Feedback.of(power, heat), rate * whole + flows, voltage)
        kept = not at.runaway and bool((heat.die_max(at.watts) <= limit).all())
        low, high = (rate, high) if kept else (low, rate)
    steady = float(flows @ (power.dram_tiles > 0))
    spent = LeastJoules(float(joules.sum()), 0.0, dram, way, 0.0, steady)
    assert max(LeastInterval(stack).by_price(spent, voltage)) <= 1 / low * (1 + 1e-9)
