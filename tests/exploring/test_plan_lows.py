"""What a search shows of each plan holds for every mapping under it, and builds on bounds of a better machine."""

from __future__ import annotations

import math

import numpy as np
import pytest
from design_cases import chosen
from exploration_cases import decoding
from given_plans import least_of
from hypothesis import given
from hypothesis import strategies as st

from dfopt.documents.plan import Plan
from dfopt.documents.question import Question
from dfopt.documents.request import Limit, Objective, Request
from dfopt.exploring.least_plans import least_lows
from dfopt.exploring.workload import ExplorationProblem
from dfopt.processes.worker import bounded
from dfopt.solving.options import Only
from dfopt.terms.bounds import PlanBounds

Best = dict[tuple[int, str | None], dict[Plan, float]]


@pytest.fixture(scope="module")
def work() -> ExplorationProblem:
    return decoding([chosen()], 2)


@pytest.fixture(scope="module")
def best(work: ExplorationProblem) -> Best:
    """The best mapping under every plan, each solved alone."""
    found = Best()
    for number, graph in enumerate(work.graphs):
        way = graph.microbatch, graph.variant
        for plan in work.plans(number):
            made = bounded(asked(work, Request(gap=0.0)), work.graphs[1:], {way: {plan: 0.0}})
            assert made.result is None or made.result.plan == plan
            found.setdefault(way, {})[plan] = math.inf if made.result is None else made.result.value
    return found


def asked(work: ExplorationProblem, options: Request) -> Question:
    system = work.system(work.spaces[0].root)
    return Question(graph=work.graphs[0], system=system, assumptions=work.assumptions, options=options)


@pytest.mark.parametrize(("of_best", "gap"), [(0.5, 0.0), (1.0, 0.0), (1.3, 0.0), (1.3, 0.1), (math.inf, 0.0)])
def test_what_is_shown_of_a_plan_is_below_its_best_mapping(
    work: ExplorationProblem, best: Best, of_best: float, gap: float
) -> None:
    least = min(min(each.values()) for each in best.values())
    limits = (Limit(metric="step_time", at_most=least * of_best),) if math.isfinite(of_best) else ()
    options = Request(objective=Objective(limits=limits), gap=gap)
    only: Only = {way: dict.fromkeys(each, 0.0) for way, each in best.items()}
    bounded(asked(work, options), work.graphs[1:], only)
    shown = [(low, best[way][plan]) for way, plans in only.items() for plan, low in plans.items()]
    assert all(low <= value * (1 + 1e-9) for low, value in shown)
    most = min(least, least * of_best)
    assert all(low >= most * (1 - gap) * (1 - 1e-9) for low, _ in shown)  # or they could still be better


@pytest.fixture(scope="module")
def every_way() -> ExplorationProblem:
    return decoding([chosen()])


@given(st.lists(st.floats(0, 1), min_size=6, max_size=6))
def test_bounds_on_a_worse_machine_build_on_those_of_a_better_one(
    every_way: ExplorationProblem, ends: list[float]
) -> None:
    space = every_way.spaces[0]
    sizes = [len(steps) for steps in space.sizes.values()]
    pairs = zip(ends[::2], ends[1::2], sizes, strict=True)
    at = [sorted(int(end * (size - 1)) for end in pair) for *pair, size in pairs]
    box = space.root._replace(low=tuple(low for low, _ in at), high=tuple(high for _, high in at))
    root, inside = every_way.system(space.root), every_way.system(box)
    if root is None or inside is None:
        return
    settings, better = ([every_way.setting(system, graph) for graph in every_way.graphs] for system in (inside, root))
    _, above = least_lows(every_way.plans, better)
    least, lows = least_lows(every_way.plans, settings, above)
    every = [
        {**dict.fromkeys(every_way.plans(n), np.inf)} | least_of(setting, every_way.plans(n))
        for n, setting in enumerate(settings)
    ]
    tables = [table for n, setting in enumerate(settings) for table in PlanBounds(setting).tables(every_way.plans(n))]
    whole = min(float(np.where(table.used_i <= 1, table.seconds(0.0), np.inf).min()) for table in tables)
    assert least == pytest.approx(whole, rel=1e-12)  # oracle: all plans of all graphs
    for n, low in enumerate(lows):
        shown = np.broadcast_to(low, len(every_way.plans(n)))
        fits = [min(value, np.inf) for value in every[n].values()]
        assert all(a <= b * (1 + 1e-12) or np.isinf(a) for a, b in zip(shown.tolist(), fits, strict=True))
