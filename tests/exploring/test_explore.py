"""The best of many designs: equal to looking at every one of them, within its bounds, and checked without trust."""

from __future__ import annotations

import math
import re
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from design_cases import GPT2, SIZES, chosen, problem, searched
from exploration_cases import Place, every_design, forged, is_refused
from hypothesis import given, settings
from hypothesis import strategies as st

import dfopt as df
from dfopt.bnb import clock
from dfopt.documents.design import Design
from dfopt.documents.exploration import Exploration
from dfopt.documents.system import System
from dfopt.errors import Infeasible, SystemSpecError
from dfopt.exploring import entries
from dfopt.exploring import explore as explore_
from dfopt.exploring.checking import check_exploration
from dfopt.exploring.explore import explore
from dfopt.exploring.solves import Solves
from dfopt.exploring.space import Box
from dfopt.solving.options import Progress


@cache
def every(graph: str, **changes: Any) -> dict[Place, float]:
    """The step time of every design by itself; those that hold nothing are left out."""
    of = problem(graph, [chosen(**SIZES, **changes)])
    return {at: score.step_time_s for at, (_, score) in every_design(of).items()}


@pytest.fixture(scope="module")
def made() -> Exploration:
    return explore(GPT2, chosen(**SIZES), sensitivity=False, gap=0.0)


def test_the_best_is_that_of_every_design_looked_at(made: Exploration) -> None:
    alone = every("gpt2-small")
    best = min(alone.values())
    assert made.value == pytest.approx(best, rel=1e-9)
    assert made.status == "optimal" and made.gap <= 1e-9
    decisions = problem("gpt2-small", [chosen(**SIZES)]).spaces[0]
    assert best == pytest.approx(next(t for at, t in alone.items() if decisions.named(at) == made.best), rel=1e-9)
    assert made.effort.designs == 45 and made.effort.solves < 45
    assert max(alone.values()) > best * 1.1  # the choice matters


def test_the_best_few_are_those_of_every_design_looked_at() -> None:
    made = explore(GPT2, chosen(**SIZES), sensitivity=False, gap=0.0, top=4)
    best = sorted(every("gpt2-small").values())[:4]
    assert [made.value, *(other.value for other in made.others)] == pytest.approx(best, rel=1e-9)
    assert made.status == "optimal" and made.others_bound is not None and made.others_bound >= best[-1] * (1 - 1e-9)
    assert check_exploration(made, "it").startswith("verified optimal")
    for path, value, says in (
        (("others", 1, "value"), made.value, r"\$.others: found 4 values"),
        (("others", 2, "value"), made.others[1].value, r"\$.others\[2\].value: found .*, the judge says"),
        (("others_bound",), best[-1] * 2, r"\$.others_bound: found"),
        (("others",), lambda rows: rows[1:], r"\$.others_bound: found|\$.status: found optimal"),
        (("others", 0, "best"), made.best, r"\$.others: found a design that is named twice"),
        (
            ("others", 0, "mapping", "kernels"),
            lambda rows: rows[::-1],
            r"\$.others\[0\].mapping.kernels\[0\].name: the file says",
        ),
    ):
        is_refused(forged(made, *path, value=value), says)


@pytest.mark.parametrize(
    ("power", "budget"), [("0.02", "120 W"), ("auto", "700 W")], ids=["voltage by share", "plenty of power"]
)
def test_a_gap_that_is_asked_for_holds(power: str, budget: str) -> None:
    share = power if power == "auto" else float(power)
    changes = {"budgets__power": budget, "shares__power__between_packages": share}
    changes |= {"choices__capacity__L2__most": "20 MiB", "choices__rate__between_packages__most": "150 GB/s"}
    found = explore(GPT2, chosen(**SIZES, **changes), sensitivity=False, gap=0.05)
    best = min(every("gpt2-small", **changes).values())
    assert found.bound <= best * (1 + 1e-9) and best <= found.value * (1 + 1e-9)
    assert found.value <= best / 0.95 * (1 + 1e-9) and found.gap <= 0.05


corners = st.tuples(*[st.tuples(*[st.integers(0, size - 1)] * 3) for size in (5, 3, 3)])


@settings(max_examples=6)
@given(corners)
def test_no_bound_of_a_box_is_above_a_mapping_of_a_design_in_it(ends: Any) -> None:
    workload = problem("gpt2-small", [chosen(**SIZES)])
    low, middle, high = (tuple(sorted(end)[at] for end in ends) for at in range(3))
    box, inside = Box(low, high), workload.system(workload.spaces[0].root.at(middle))
    if inside is None:
        return
    try:
        value = df.optimize(df.load_graph("gpt2-small"), inside, time_limit=20).step_time_s
    except Infeasible:
        return
    for name in workload.bounds:
        assert workload.bound(name, box, float("inf")) <= value * (1 + 1e-9), name
        assert workload.bound(name, box, value * 2) <= value * 2  # never more than the cutoff where it stops early


def test_an_exploration_holds_what_it_says(made: Exploration, tmp_path: Path) -> None:
    assert check_exploration(made, "it").startswith(f"verified optimal: {len(made.boxes)} of {len(made.boxes)} boxes")
    made.dump(tmp_path / "it.json")
    again = Exploration.load(tmp_path / "it.json")
    assert again == made


def df_fits(system: System | None) -> bool:
    """Whether some mapping of the largest workload fits a system."""
    try:
        return system is not None and df.optimize(df.load_graph("gpt3-175b"), system).value > 0
    except Infeasible:
        return False


def test_forged_claims_are_caught(made: Exploration) -> None:
    last = max(range(len(made.boxes)), key=lambda at: (made.boxes[at].bound or 0.0, at))  # of equal ones the last
    assert made.boxes[last].bound is not None
    other = {**made.best, "dram": 4.0 - made.best["dram"] if made.best["dram"] != 2 else 1.0}
    for path, value, says in (
        (("gap",), 0.5, r"\$.gap: found 0.5, expected"),
        (("status",), "time_limit", r"\$.status: found time_limit, but nothing is left to show"),
        (("boxes",), lambda rows: rows[::-1], r"\$.boxes: found another order"),
        (("fixed",), [], r"\$.fixed: found \(\), the request says"),
        (("bound",), made.bound / 2, r"\$.bound: found"),
        (("value",), made.value * 0.9, r"\$.value: found"),
        (("boxes",), lambda rows: rows[1:], r"\$.boxes: hold \d+ designs"),
        (("boxes", last, "bound"), made.boxes[last].bound * 3, rf"\$.boxes\[{last}\].bound: found"),
        (("boxes", last, "bound"), None, rf"\$.boxes\[{last}\].bound: found None, only"),
        (("boxes", last, "low", "dram"), 1.5, rf"\$.boxes\[{last}\].low.dram: found 1.5, which is no"),
        (("best",), other, r"\$.result.system: is not what the best design is derived to be"),
        (("designs", 0, "budgets", "power"), "290 W", r"\$.result.system|\$.boxes"),
    ):
        is_refused(forged(made, *path, value=value), says)
    is_refused(made.model_copy(update={"asked": ""}).sealed(), r"\$.asked: does not fit designs")


def test_time_that_is_up_leaves_an_honest_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that stands still until there is a design, so that it does not matter how busy the machine is."""
    known, best = list[float](), min(every("gpt2-small").values())  # before the clock stands still
    for module in (clock, entries):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: 1e9 if known else 0.0))

    def tell(now: Progress) -> None:
        if math.isfinite(now.incumbent):
            known.append(now.incumbent)

    found = explore(GPT2, chosen(**SIZES), gap=0.0, sensitivity=False, progress=tell)
    assert found.status == "time_limit" and found.gap > 0 and found.value == known[0]
    assert found.bound <= best * (1 + 1e-9) <= found.value * (1 + 2e-9)
    assert check_exploration(found, "it").startswith("verified within")


def test_what_cannot_be_explored() -> None:
    given: Any = searched()
    del given["template"]
    with pytest.raises(SystemSpecError, match=r"\$.template: found none, expected how the chips make a system"):
        problem("gpt2-small", [Design.from_data(given)])
    with pytest.raises(SystemSpecError, match=r"\$.template.tiles: found none, expected a number"):
        problem("gpt2-small", [chosen(template__tiles=None)])
    given = searched()
    given["shares"] = {"area": {"core": 0.5, "L2": 0.1, "dram": 0.1}, "power": {"core": 0.5}}
    del given["choices"]
    with pytest.raises(SystemSpecError, match=r"\$.shares.area: found no share that is auto"):
        problem("gpt2-small", [Design.from_data(given)])


def test_what_holds_a_workload_that_no_design_holds() -> None:
    with pytest.raises(
        Infeasible, match=r"none of 45 designs can be had, or holds the workload, such as this:\n.*no plan fits"
    ) as caught:
        explore("gpt3-175b", chosen(**SIZES))
    budget = r"smallest budget that would: \$.budgets.package_area_mm2 of (\d+) for (\d+) stacks of test"
    said = re.search(budget, str(caught.value))
    assert said is not None
    package, stacks = float(said[1]), int(said[2])
    assert package == 800 + 100 * stacks and stacks > 4
    for most, area, fits in ((stacks, package, True), (stacks - 1, package - 100, False)):
        few = chosen(**{**SIZES, "choices__stacks": {"most": most}, "budgets__package_area_mm2": area})
        workload = problem("gpt3-175b", [few])
        found = [df_fits(workload.system(Box((i, most - 1, j), (i, most - 1, j)))) for i, j in ((0, 0), (4, 2))]
        assert any(found) == fits


def test_the_best_of_several_technologies_is_the_best_of_each() -> None:
    design = chosen(**SIZES, choices__capacity__L2__most="12 MiB", choices__rate__between_packages__most="150 GB/s")
    cheap = design.technology.model_copy(update={"name": "cheap"})
    core = design.technology.core
    better = cheap.model_copy(update={"name": "better", "core": core.model_copy(update={"power": core.power * 0.7})})
    alone = [explore(GPT2, design, sensitivity=False, technologies=[one], gap=0.0) for one in (cheap, better)]
    both = explore(GPT2, design, sensitivity=False, technologies=[cheap, better], gap=0.0)
    assert both.value == pytest.approx(min(one.value for one in alone), rel=1e-9)
    assert both.designs[both.best_design].technology.name == "better" and both.effort.designs == 24
    assert check_exploration(both, "it").startswith("verified optimal")
    vague = both.model_copy(update={"status": "gap_reached", "bound": 0.0, "gap": 1.0}).sealed()
    is_refused(vague, "found gap_reached, but the gap is 1, at most 0 was asked for")
    with pytest.raises(SystemSpecError, match="found 2 technologies of this name"):
        explore(GPT2, design, technologies=[cheap, cheap])
    is_refused(forged(both, "boxes", 0, "design", value=2), r"\$.boxes\[0\].design: found 2, there are 2")


def test_technologies_differ_in_more_than_rates() -> None:
    """Latency and utilization are of a technology too: what was solved of one says nothing of another."""
    design = chosen(**SIZES, choices__capacity__L2__most="12 MiB", choices__rate__between_packages__most="150 GB/s")
    good = design.technology.model_copy(update={"name": "good"})
    idle = good.model_copy(update={"name": "idle", "core": good.core.model_copy(update={"utilization": 0.5})})
    alone = explore(GPT2, design, sensitivity=False, technologies=[good], gap=0.0)
    for order in ([good, idle], [idle, good]):
        both = explore(GPT2, design, sensitivity=False, technologies=order, gap=0.0)
        assert both.value == pytest.approx(alone.value, rel=1e-9)
        assert both.designs[both.best_design].technology.name == "good"
        assert check_exploration(both, "it").startswith("verified optimal")


def test_an_interrupt_behind_the_search_costs_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Solves, "complete", late)
    monkeypatch.setattr(explore_, "budget_sensitivities", late)
    found = explore(GPT2, chosen(**SIZES), gap=0.0)
    assert found.value == pytest.approx(min(every("gpt2-small").values()), rel=1e-9) and found.status == "optimal"
