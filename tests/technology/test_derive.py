"""From a technology to a chip: the law of voltage and clock, what binds, what is left, many at once."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfopt.documents.technology import ChipLinks, CoreUnit, DramStacks, SramLevel, Supply, Technology
from dfopt.errors import SystemSpecError
from dfopt.technology.derive import Budgets, Derived, derive
from dfopt.technology.operating import LIMITS, limit_names
from dfopt.technology.rules import DEEPFLOW, DEFAULT, DerivationRules
from dfopt.technology.voltage import overdrive, power_share, speed

# Figures of no chip in particular, of the size of a V100's.
TECHNOLOGY = Technology(
    name="test",
    core=CoreUnit(
        area_mm2=0.38, flop_per_cycle=128.0, flop_per_cycle_by_type={"fp8": 256.0}, power=0.13, static_power=0.01,
        frequency=1.33e9, supply=Supply(nominal_v=0.8, threshold_v=0.2, margin_v=0.35, max_v=1.1),
        units_per_cluster=8, utilization=0.85,
    ),
    sram=(
        SramLevel(
            name="L1", bit_area_mm2=8e-8, energy=1.04e-12, static_w_per_bit=9e-12, bank=32768.0, overhead=0.2,
            link_area_mm2=0.004, shared=False, port=64.0,
        ),
        SramLevel(
            name="L2", bit_area_mm2=6.4e-8, energy=1.04e-12, static_w_per_bit=8.4e-12, bank=32768.0, overhead=0.2,
            link_area_mm2=0.004, port=64.0,
        ),
    ),
    dram=DramStacks(
        stack=4 * 2.0**30, stack_area_mm2=100.0, controller_area_mm2=5.0, links_per_stack=1024, links_per_mm=400.0,
        frequency=1.38e9, supply=Supply(nominal_v=1.2, threshold_v=0.4, margin_v=0.6, max_v=1.8), energy=33.6e-12,
        static_w_per_bit=6e-13,
    ),
    links={
        "in_package": ChipLinks(
            area_mm2=0.0001, links_per_mm=400.0, frequency=3e9, energy=8e-12,
            supply=Supply(nominal_v=1.0, threshold_v=0.25, margin_v=0.45),
        ),
        "between_packages": ChipLinks(
            area_mm2=0.045, links_per_mm=20.0, frequency=20e9, energy=104e-12,
            supply=Supply(nominal_v=1.2, threshold_v=0.35, margin_v=0.5), utilization=0.96,
        ),
    },
)  # fmt: skip
NAMES = TECHNOLOGY.components


def drawn(seed: int, count: int) -> Budgets:
    """Random budgets whose shares sum to 1 at most; a tenth of the shares is 0."""
    draw = np.random.default_rng(seed)

    def shares() -> dict[str, Any]:
        raw = draw.exponential(size=(len(NAMES) + 1, count)) ** 2 * (draw.random((len(NAMES) + 1, count)) > 0.1)
        raw[-1] += 1e-3
        return dict(zip(NAMES, raw[:-1] / raw.sum(axis=0), strict=True))

    chip = draw.uniform(20, 800, count)
    power = np.exp(draw.uniform(np.log(1.0), np.log(3000.0), count))
    return Budgets(chip, chip * draw.uniform(1, 3, count), power, shares(), shares(), shares())


def one_of(budgets: Budgets, at: int) -> Budgets:
    def pick(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: float(shares[at]) for name, shares in value.items()}
        return value if value is None or isinstance(value, int) else float(value[at])

    return Budgets(**{field.name: pick(getattr(budgets, field.name)) for field in fields(budgets)})


def parts_of(chip: Derived) -> dict[str, Any]:
    return {"core": chip.core, **chip.sram, "dram": chip.dram, **chip.links}


@pytest.mark.parametrize("rules", [DEFAULT, DEEPFLOW])
def test_many_designs_are_as_one_by_one(rules: DerivationRules) -> None:
    budgets = drawn(1, 200)
    together = parts_of(derive(TECHNOLOGY, budgets, rules))
    for at in range(200):
        for name, alone in parts_of(derive(TECHNOLOGY, one_of(budgets, at), rules)).items():
            for field, value in alone._asdict().items():
                if field == "peaks":
                    continue
                many = np.broadcast_to(getattr(together[name], field), 200)[at]
                # what is left of a budget is a difference: its digits are those of the budget
                loose = 1e-9 if field.endswith("left") else 0.0
                assert value == pytest.approx(many, rel=1e-9, abs=loose), f"{name}.{field}"


@pytest.mark.parametrize("rules", [DEFAULT, DEEPFLOW])
@given(seed=st.integers(0, 10**6))
def test_power_is_the_budget_or_a_named_limit_binds(rules: DerivationRules, seed: int) -> None:
    budgets = drawn(seed, 300)
    for name, part in parts_of(derive(TECHNOLOGY, budgets, rules)).items():
        budget = budgets.power_shares[name] * budgets.power
        spent = np.isclose(part.power, budget, rtol=1e-9)
        limits = limit_names(part.bound)
        assert set(limits.tolist()) <= set(LIMITS)
        nothing = part.power == 0  # not even leakage fits
        assert (spent | nothing | ~np.isin(limits, ["power"])).all(), name
        assert ((limits == "off") == (budget == 0)).all()


@given(seed=st.integers(0, 10**6))
def test_no_budget_is_exceeded(seed: int) -> None:
    budgets = drawn(seed, 300)
    chip = derive(TECHNOLOGY, budgets)
    for part in parts_of(chip).values():
        for name in ("power_left", "area_left", "edge_left", "package_area_left"):
            if hasattr(part, name):
                assert (getattr(part, name) >= -1e-9 * budgets.power.max()).all(), name
    assert (chip.power <= budgets.power * (1 + 1e-9)).all()


def test_fewer_units_at_the_lowest_voltage() -> None:
    """With little power, units at their lowest voltage do more than all of them at a slower clock."""
    budgets = Budgets(800.0, 1000.0, 10.0, {"core": 0.5}, {"core": 0.5}, {})
    fewer = derive(TECHNOLOGY, budgets).core
    slower = derive(TECHNOLOGY, budgets, replace(DEFAULT, fewer_units_at_v_min=False, leakage=False)).core
    assert fewer.units < slower.units == 1052
    assert limit_names(fewer.bound) == limit_names(slower.bound) == "V_min"
    assert fewer.voltage == pytest.approx(0.55, abs=0.01)
    assert fewer.power == pytest.approx(5.0)


def test_each_correction_acts() -> None:
    rich = Budgets(
        800.0, 1200.0, 3000.0,
        {"core": 0.3, "L1": 0.1, "L2": 0.1, "dram": 0.025, "between_packages": 0.1},
        {"core": 0.5, "L1": 0.1, "L2": 0.1, "dram": 0.05, "between_packages": 0.0001},
        {"dram": 0.5, "between_packages": 0.5},
    )  # fmt: skip
    best = derive(TECHNOLOGY, rich)
    assert limit_names(best.core.bound) == "V_max" and best.core.voltage == pytest.approx(1.1)
    assert limit_names(best.sram["L2"].bound) == "ports"
    assert limit_names(best.links["between_packages"].bound) == "V_min"
    assert best.core.peaks["fp8"] == pytest.approx(2 * best.core.peak)
    loose = derive(TECHNOLOGY, rich, DEEPFLOW)
    assert loose.core.voltage > 1.1 and loose.core.peaks == {}
    assert loose.sram["L2"].bandwidth > best.sram["L2"].bandwidth
    assert loose.sram["L1"].banks < best.sram["L1"].banks
    assert loose.links["between_packages"].voltage < 0.85 == best.links["between_packages"].voltage
    poor = replace(rich, power=150.0)
    assert derive(TECHNOLOGY, poor, replace(DEFAULT, leakage=False)).core.peak > derive(TECHNOLOGY, poor).core.peak


def test_a_component_without_power_is_off() -> None:
    shares = dict.fromkeys(NAMES, 0.1)
    chip = derive(TECHNOLOGY, Budgets(800.0, 1200.0, 100.0, shares, {}, shares))
    for part in parts_of(chip).values():
        assert limit_names(part.bound) == "off" and part.power == part.rate == 0


def test_shares_above_one_are_refused_and_say_by_how_much() -> None:
    shares = {"core": 0.7, "dram": 0.5}
    budgets = Budgets(800.0, 1200.0, 100.0, shares, {}, {})
    with pytest.raises(SystemSpecError, match=r"\$\.shares\.area: found shares that sum to 1\.2.*0\.2 too much"):
        derive(TECHNOLOGY, budgets)
    derive(TECHNOLOGY, budgets, DEEPFLOW)
    with pytest.raises(SystemSpecError, match="no such component"):
        derive(TECHNOLOGY, replace(budgets, area_shares={"gpu": 0.1}), DEEPFLOW)


@pytest.mark.parametrize("rules", [DEFAULT, DEEPFLOW])
def test_energies_are_those_at_the_operating_voltage(rules: DerivationRules) -> None:
    """Energy times rate is the dynamic power that is drawn."""
    chip = derive(TECHNOLOGY, drawn(3, 300), rules)
    core, dram = chip.core, chip.dram
    leaks = 0.01 * core.units if rules.leakage else 0.0
    np.testing.assert_allclose(core.peak * core.energy + leaks, core.power, rtol=1e-9)
    static = 6e-13 * 8 * dram.size
    np.testing.assert_allclose(dram.bandwidth * dram.energy + static, dram.power, rtol=1e-9)
    for role, links in chip.links.items():
        bits = links.links * links.frequency
        np.testing.assert_allclose(bits / 8 * links.energy, links.power, rtol=1e-9, err_msg=role)


NOMINAL = st.floats(0.3, 2.0)
SHARE = st.floats(-15.0, 9.0).map(lambda power: 10**power)
THRESHOLD = st.one_of(st.just(0.0), st.floats(1e-9, 0.9), st.floats(1e-100, 1e-20))  # as a share of the nominal one


def voltage(share: Any, nominal: Any, threshold: Any) -> Any:
    return threshold + overdrive(share, nominal, threshold)


@given(SHARE, NOMINAL, THRESHOLD)
def test_power_at_the_operating_point_is_the_budget(share: float, nominal: float, part: float) -> None:
    threshold = nominal * part
    above = overdrive(share, nominal, threshold)
    assert above >= 0
    drawn = power_share(threshold + above, speed(above, nominal, threshold), nominal)
    assert drawn == pytest.approx(share, rel=1e-11)


@given(st.lists(st.tuples(SHARE, NOMINAL, THRESHOLD), min_size=1, max_size=20))
def test_many_voltages_are_as_one_by_one(rows: list[tuple[float, float, float]]) -> None:
    share, nominal, part = (np.array(column) for column in zip(*rows, strict=True))
    together = voltage(share, nominal, nominal * part)
    alone = [voltage(float(s), float(n), float(n * p)) for s, n, p in zip(share, nominal, part, strict=True)]
    np.testing.assert_allclose(together, alone, rtol=1e-12)


def test_the_published_form_is_the_same() -> None:
    share, nominal, threshold = np.geomspace(0.05, 50, 41), 0.8, 0.2
    x = 13.5 * share * nominal * (nominal - threshold) ** 2 / threshold**3 - 1
    third = np.where(x <= 1, np.cos(np.arccos(np.minimum(x, 1)) / 3), np.cosh(np.arccosh(np.maximum(x, 1)) / 3))
    np.testing.assert_allclose(voltage(share, nominal, threshold), 2 / 3 * threshold * (1 + third), rtol=1e-13)


def test_more_power_is_never_slower() -> None:
    clock = speed(overdrive(np.geomspace(1e-9, 1e9, 10_001), 0.8, 0.2), 0.8, 0.2)
    assert (np.diff(clock) > 0).all()
