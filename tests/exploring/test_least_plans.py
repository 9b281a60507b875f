"""Bounds of plans that build on those of a better machine are those that are worked out anew."""

from __future__ import annotations

import numpy as np
import pytest
from design_cases import chosen
from given_plans import least_of
from hypothesis import given
from hypothesis import strategies as st

from dfopt.exploring.explore import asked_workload
from dfopt.exploring.least_plans import least_lows
from dfopt.exploring.problems import workload_of
from dfopt.exploring.workload import Workload
from dfopt.terms.bounds import PlanBounds


@pytest.fixture(scope="module")
def work() -> Workload:
    graphs, _ = asked_workload("llama-68m", {"phase": "decode", "batch": 8, "context": 64})
    return workload_of(graphs, [chosen()])


@given(st.lists(st.floats(0, 1), min_size=6, max_size=6))
def test_bounds_on_a_worse_machine_build_on_those_of_a_better_one(work: Workload, ends: list[float]) -> None:
    space = work.spaces[0]
    sizes = [len(steps) for steps in space.sizes.values()]
    pairs = zip(ends[::2], ends[1::2], sizes, strict=True)
    at = [sorted(int(end * (size - 1)) for end in pair) for *pair, size in pairs]
    box = space.root._replace(low=tuple(low for low, _ in at), high=tuple(high for _, high in at))
    root, inside = work.system(space.root), work.system(box)
    if root is None or inside is None:
        return
    settings, better = ([work.setting(system, graph) for graph in work.graphs] for system in (inside, root))
    _, above = least_lows(work.plans, better)
    least, lows = least_lows(work.plans, settings, above)
    every = [
        {**dict.fromkeys(work.plans(n), np.inf)} | least_of(setting, work.plans(n))
        for n, setting in enumerate(settings)
    ]
    tables = [table for n, setting in enumerate(settings) for table in PlanBounds(setting).tables(work.plans(n))]
    whole = min(float(np.where(table.used_i <= 1, table.seconds(0.0), np.inf).min()) for table in tables)
    assert least == pytest.approx(whole, rel=1e-12)  # oracle: all plans of all graphs
    for n, low in enumerate(lows):
        shown = np.broadcast_to(low, len(work.plans(n)))
        fits = [min(value, np.inf) for value in every[n].values()]
        assert all(a <= b * (1 + 1e-12) or np.isinf(a) for a, b in zip(shown.tolist(), fits, strict=True))
