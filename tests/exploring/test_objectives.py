"""Designs by energy and cost: equal to looking at every one of them, and no bound above any of them."""

from __future__ import annotations

import itertools
import math
from functools import cache
from typing import Any

import pytest
from design_cases import GPT2, PRICED, SIZES, check_costs, chosen, problem
from exploration_cases import Judged, asking, drawn_box, drawn_designs, every_design, is_refused
from hypothesis import given, settings
from hypothesis import strategies as st

from dfopt.documents.design import Design
from dfopt.documents.exploration_request import DesignLimits, ObjectiveName, turned
from dfopt.documents.score import Score
from dfopt.documents.system import System
from dfopt.errors import Infeasible, PlanError, SystemSpecError
from dfopt.exploring.checking import check_exploration
from dfopt.exploring.explore import explore
from dfopt.physics.merits import MERITS, MeritFigures

# Cores stop at their highest voltage before they take all power, so designs differ in power; some are out of SRAM.
FEW: dict[str, Any] = {
    **SIZES, **PRICED, "budgets__power": "500 W", "choices__capacity__L2__most": "20 MiB",
    "technology__core__supply__max_v": 0.85, "choices__rate__between_packages__most": "150 GB/s",
}  # fmt: skip
NAMES = tuple(name for name in MERITS if name != "tokens_per_j")  # which is of stacks alone


def figure(name: ObjectiveName, system: System, score: Score, seconds: float) -> float:
    """A metric in the judge's words, the less the better, with the seconds that a step takes under heat."""
    assert score.power_w is not None and system.chip.power_w is not None
    rate = score.tokens_per_s * score.step_time_s / seconds
    usd, watts, chip_w = score.price_usd or 0.0, score.power_w, system.chip.power_w
    joules = math.inf if score.physical is None else score.physical.energy_per_token_j
    minimized = {"time": seconds, "watts": watts, "cost": usd, "time*cost": seconds * usd, "energy": watts * seconds}
    scaled = rate * min(1.0, 100 / chip_w) ** (1 / 3)
    return (minimized | {"tokens_per_s": 1 / rate, "tokens_per_j": joules, "power_scaled": 1 / scaled})[name]


def of(objective: ObjectiveName, made: Judged) -> float:
    """The same of a design on no stack."""
    return figure(objective, *made, made[1].step_time_s)


@cache
def every() -> list[Judged]:
    """Every design as a system of its own; those that cannot be had are left out."""
    return [*every_design(problem("gpt2-small", [chosen(**FEW)])).values()]


LIMITS = {"step_time": 0.3, "power": 0.5, "price": 0.5}


@pytest.mark.parametrize(
    ("objective", "limited"),
    [
        ("time", ("power", "price")),
        ("tokens_per_s", ("power", "price")),
        ("watts", ("step_time", "price")),
        ("power_scaled", ("price",)),
        ("energy", ("step_time",)),
        ("cost", ("step_time",)),
        ("time*cost", ("step_time", "power", "price")),
    ],
)
def test_the_best_within_limits_is_that_of_every_design(objective: ObjectiveName, limited: tuple[str, ...]) -> None:
    """Limits inside of what designs have: at a part of the way from the least to the most."""

    def figure(name: str, score: Score) -> float:
        value = {"step_time": score.step_time_s, "power": score.power_w, "price": score.price_usd}[name]
        assert value is not None
        return value

    figures = {name: sorted(figure(name, score) for _, score in every()) for name in limited}
    limits = {name: each[int(LIMITS[name] * (len(each) - 1))] for name, each in figures.items()}
    keeping = [one for one in every() if all(figure(name, one[1]) <= most for name, most in limits.items())]
    if not keeping:
        with pytest.raises(Infeasible, match="keeps its limits"):
            explore(GPT2, chosen(**FEW), objective=objective, limits=DesignLimits(**limits), gap=0.0)
        return
    asked: dict[str, Any] = {"objective": objective, "limits": DesignLimits(**limits), "gap": 0.0, "sensitivity": False}
    made = explore(GPT2, chosen(**FEW), **asked)
    assert turned(objective, made.value) == pytest.approx(min(of(objective, one) for one in keeping), rel=1e-9)
    assert made.status == "optimal" and check_exploration(made, "it").startswith("verified optimal")
    tighter = {name: most / 2 for name, most in limits.items()}
    is_refused(asking(made, limits=DesignLimits(**tighter)), r"\$.value: found")


@pytest.mark.parametrize("objective", NAMES[1:])
def test_the_best_is_that_of_every_design_looked_at(objective: ObjectiveName) -> None:
    made = explore(GPT2, chosen(**FEW), objective=objective, gap=0.0, sensitivity=False)
    values = [of(objective, one) for one in every()]
    assert turned(objective, made.value) == pytest.approx(min(values), rel=1e-9)
    assert made.status == "optimal" and made.gap <= 1e-9 and made.effort.solves < len(values)
    assert max(values) > min(values) * 1.05  # the choice matters
    assert check_exploration(made, "it").startswith("verified optimal")
    is_refused(asking(made, objective="time"), r"\$.value: found")


@settings(max_examples=100)
@given(drawn_designs(), st.data())
def test_no_system_of_a_box_draws_or_costs_less_than_is_said_of_the_box(design: Design, data: st.DataObject) -> None:
    workload = problem("gpt2-small", [design])
    box = drawn_box(data.draw, workload.spaces[0].sizes)
    middles = (sorted({a, (a + b) // 2, b}) for a, b in zip(box.low, box.high, strict=True))
    check_costs(workload, box, itertools.product(*middles))


figures = st.builds(MeritFigures, *[st.floats(0.1, 1000)] * 2, *[st.floats(0, 1000)] * 4, clock=st.floats(0.1, 1))
some = st.none() | st.floats(0.1, 1000)
limits = st.builds(DesignLimits, step_time=some, power=some, price=some)


@given(figures, limits, st.floats(0.1, 10), st.floats(0.1, 1000), st.sampled_from(list(MERITS)))
def test_the_longest_step_that_does_not_exceed_a_figure(
    at: MeritFigures, most: DesignLimits, step: float, value: float, name: ObjectiveName
) -> None:
    merit = MERITS[name].within(most)
    longest = merit.most_s(value, at)
    assert (merit.value(step, at) <= value) == (step <= longest) or step == pytest.approx(longest)


@given(figures, limits, st.lists(st.floats(0, 10), min_size=7, max_size=7), st.sampled_from(list(MERITS)))
def test_no_metric_is_better_of_what_is_worse(
    at: MeritFigures, most: DesignLimits, more: list[float], name: ObjectiveName
) -> None:
    merit, (slower, *extra) = MERITS[name].within(most), more
    worse = MeritFigures(
        at.tokens, *(one + add for one, add in zip(at[1:6], extra, strict=False)), at.clock / (1 + slower)
    )
    assert merit.value(1.0, at) <= merit.value(1.0 + slower, at) * (1 + 1e-12)
    assert merit.value(1.0, at) <= merit.value(1.0, worse) * (1 + 1e-12)
    if merit.rule == "non-decreasing":  # joules count by their own rule
        assert merit.value(1.0, at) == merit.value(1.0, at._replace(once_j=0.0, flows_w=0.0))
    shown = merit.shown(merit.value(1.0, at))
    assert math.isinf(merit.value(1.0, at)) or merit.shown(shown) == pytest.approx(merit.value(1.0, at))
    assert (merit.shown(1.0) <= merit.shown(2.0)) == (merit.sense == "minimize")


def test_what_a_design_does_not_say() -> None:
    with pytest.raises(SystemSpecError, match=r"network\[0\].switch_w_per_gb_s: found none, expected a number"):
        problem("gpt2-small", [chosen()], objective="energy")
    without = {**FEW, "technology__dram__usd_per_gb": None, "technology__package": None}
    with pytest.raises(SystemSpecError) as caught:
        problem("gpt2-small", [chosen(**without)], objective="cost")
    assert [issue.where for issue in caught.value.issues] == ["$.technology.package", "$.technology.dram.usd_per_gb"]
    with pytest.raises(PlanError, match="objective: expected one of time, tokens_per_s, watts, cost, time"):
        explore(GPT2, chosen(), objective="speed")  # type: ignore[arg-type]


def test_a_limit_on_the_area_is_a_smaller_budget() -> None:
    """Of the same shape; a larger limit changes nothing, and a forged one is seen."""
    asked: dict[str, Any] = {"gap": 0.0, "sensitivity": False}
    made = explore(GPT2, chosen(**FEW), limits=DesignLimits(area_mm2=700.0), **asked)
    smaller = explore(GPT2, chosen(**FEW, budgets__chip_area_mm2=700), **asked)
    whole = explore(GPT2, chosen(**FEW), **asked)
    assert made.value == smaller.value != whole.value and made.best == smaller.best
    assert explore(GPT2, chosen(**FEW), limits=DesignLimits(area_mm2=1e4), **asked).value == whole.value
    assert check_exploration(made, "it").startswith("verified optimal")
    is_refused(asking(made, limits=DesignLimits(area_mm2=600.0)), r"\$\.result\.system: is not what")
    edged = chosen(**FEW, budgets__edge_mm=120.0).budgets.within_area(200.0)
    assert edged.edge_mm == pytest.approx(60.0) and edged.chip_area_mm2 == 200.0
