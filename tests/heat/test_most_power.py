"""The most power of a stack: no power map within its limits has more, and one has as much."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from dfopt.documents.stack import Stack
from dfopt.documents.zoo import zoo
from dfopt.heat import most_power as module
from dfopt.heat.most_power import most_power
from dfopt.machines.stacks import load_stack
from dfopt.technology.stack_models import Heat, heat_of


def allowed(stack: Stack, heat: Heat) -> list[float]:
    """Kelvin that every die may have."""
    found = [stack.limits.logic if name == stack.logic_die.name else stack.limits.dram for name in heat.dies]
    return [np.inf if one is None else one for one in found]


def within(stack: Stack, watts: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Power maps scaled until some cell is at its limit, by the temperatures that the stack's model says."""
    heat = heat_of(stack)
    rise = (heat.die_max(watts) - heat.ambient_k) / (np.array(allowed(stack, heat)) - heat.ambient_k)
    return watts / rise.max(axis=-1, keepdims=True)


@pytest.mark.parametrize("name", sorted(zoo("stacks")))
def test_no_power_map_within_the_limits_has_more(name: str) -> None:
    stack = load_stack(name)
    random, tiles = np.random.default_rng(20261124), len(stack.tiles)
    even, sparse = random.random((40, tiles)), random.random((30, tiles)) * (random.random((30, tiles)) < 0.1)
    sparse[:, 0] += 1e-3
    heavy = random.pareto(0.7, (30, tiles))
    every = within(stack, np.concatenate([even, sparse, heavy]))
    assert len(every) == 100
    logic = np.array([die == stack.logic_die.name for die, _ in stack.tiles])
    for die, counts in ((None, np.ones(tiles)), (stack.logic_die.name, logic)):
        found = most_power(stack, die)
        assert (every @ counts).max() <= found.watts
        assert (within(stack, every * counts + 1e-12) @ counts).max() <= found.watts
        assert found.reached_w == pytest.approx(found.watts, rel=1e-9)
        heat = heat_of(stack)
        assert (heat.die_max(found.power_t) <= np.array(allowed(stack, heat)) + 1e-9).all()
        assert float(counts @ found.power_t) == found.reached_w


@pytest.mark.parametrize("name", ["hbm3", "hybrid-4"])
def test_it_is_what_another_solver_finds_of_the_primal(name: str) -> None:
    stack = load_stack(name)
    heat = heat_of(stack)
    most = np.repeat(np.array(allowed(stack, heat)) - heat.ambient_k, len(heat.cells_k_per_w) // len(heat.dies))
    rows = np.isfinite(most)
    tiles = heat.cells_k_per_w.shape[1]
    other = linprog(-np.ones(tiles), A_ub=heat.cells_k_per_w[rows], b_ub=most[rows], method="highs-ipm")
    found = most_power(stack)
    assert found.watts == pytest.approx(-other.fun, rel=1e-6)
    prices = found.price_c[rows]
    assert (prices >= 0).all() and (prices @ heat.cells_k_per_w[rows] >= 1 - 1e-12).all()
    assert float(prices @ most[rows]) == pytest.approx(found.watts, rel=1e-12)


def test_what_was_kept_proves_no_more_than_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a file in the cache says: a weak bound, or none, but never one that is too low."""
    stack = load_stack("hbm3")
    true = most_power(stack)
    random = np.random.default_rng(7)

    def forged(_: str, shape: tuple[int, int], __: object) -> np.ndarray[Any, Any]:
        return random.normal(size=shape)

    monkeypatch.setattr(module, "kept", forged)
    for _ in range(20):
        found = most_power(stack)
        assert found.reached_w <= true.watts * (1 + 1e-9) and found.watts >= true.watts * (1 - 1e-9)
    monkeypatch.setattr(module, "kept", lambda _, shape, __: np.zeros(shape))
    assert most_power(stack).watts == np.inf


def test_a_warmer_limit_allows_more_and_is_another_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DFOPT_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cool, warm = (load_stack("hbm3", {"limits": {"logic": f"{c} °C", "dram": "85 °C"}}) for c in (70, 90))
    assert most_power(cool).watts < most_power(warm).watts
    assert list(tmp_path.rglob("*most-power*"))


def test_without_limits_there_is_no_bound() -> None:
    stack = load_stack("hbm3")
    free = stack.model_copy(update={"limits": stack.limits.model_copy(update={"logic": None, "dram": None})})
    assert most_power(free).watts == np.inf


def test_a_die_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="found 'lid', expected one with tiles: "):
        most_power(load_stack("hybrid-4"), "lid")
