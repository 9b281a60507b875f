"""What a search shows of each plan that it was given holds for every mapping under it."""

from __future__ import annotations

import math

import pytest
from design_cases import chosen

from dfopt.documents.plan import Plan
from dfopt.documents.question import Question
from dfopt.documents.request import Limit, Objective, Request
from dfopt.exploring.explore import asked_workload
from dfopt.exploring.problems import workload_of
from dfopt.exploring.workload import Workload
from dfopt.processes.worker import bounded
from dfopt.solving.options import Only

Best = dict[tuple[int, str | None], dict[Plan, float]]


@pytest.fixture(scope="module")
def work() -> Workload:
    graphs, _ = asked_workload("llama-68m", {"phase": "decode", "batch": 8, "context": 64})
    return workload_of(graphs[:2], [chosen()])


@pytest.fixture(scope="module")
def best(work: Workload) -> Best:
    """The best mapping under every plan, each solved alone."""
    found = Best()
    for number, graph in enumerate(work.graphs):
        way = graph.microbatch, graph.variant
        for plan in work.plans(number):
            made = bounded(asked(work, Request(gap=0.0)), work.graphs[1:], {way: {plan: 0.0}})
            assert made.result is None or made.result.plan == plan
            found.setdefault(way, {})[plan] = math.inf if made.result is None else made.result.value
    return found


def asked(work: Workload, options: Request) -> Question:
    system = work.system(work.spaces[0].root)
    return Question(graph=work.graphs[0], system=system, assumptions=work.assumptions, options=options)


@pytest.mark.parametrize(("of_best", "gap"), [(0.5, 0.0), (1.0, 0.0), (1.3, 0.0), (1.3, 0.1), (math.inf, 0.0)])
def test_what_is_shown_of_a_plan_is_below_its_best_mapping(
    work: Workload, best: Best, of_best: float, gap: float
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
