"""Other questions about the same designs: each finds what it would find if it were asked, and is judged in this one."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from design_cases import GPT2
from exploration_cases import forged, is_refused, places, seconds_under_heat
from test_layer_space import design

import dfopt as df
from dfopt.documents.exploration import Comparison, Exploration
from dfopt.errors import PlanError
from dfopt.exploring.checking import check_exploration
from dfopt.exploring.explore import explore
from dfopt.exploring.layer_space import LayerSpace

DESIGN = design({"dram_layers": [4, 12], "buffer": ["64 KiB", "512 KiB"], "buffer_port": ["256 B", "1 KiB"]})
ASKED: dict[str, Any] = {"stack": "hybrid-vault", "heat": "throttle", "gap": 0.0, "sensitivity": False}


@cache
def made() -> Exploration:
    return explore(GPT2, DESIGN, compare=["lumped", "tp_pp_dp"], **ASKED)


def judged(best: dict[str, float], **fixed: Any) -> float:
    """Seconds of a step of a design that is solved alone, on its stack."""
    space = LayerSpace(DESIGN)
    at = tuple(sizes.index(best[name]) for name, sizes in space.sizes.items())
    chip = df.derive(space.one_design(at), "hybrid-vault")
    return seconds_under_heat(df.solve(GPT2, chip.system.model_copy(update={"stack": chip.stack}), **fixed).score)


def test_each_is_the_best_of_its_own_question_and_judged_in_this_one() -> None:
    lumped, fewer = made().comparisons
    space = LayerSpace(DESIGN)
    every = [space.named(at) for at in places(space)]
    assert fewer.question == "tp_pp_dp"
    restricted = [judged(one, parallelism="tp_pp_dp") for one in every]
    assert fewer.predicted == pytest.approx(min(restricted), rel=1e-9)
    assert restricted[every.index(fewer.best)] == pytest.approx(fewer.predicted, rel=1e-9)
    assert lumped == Comparison(question="lumped", **_alone("lumped"), judged=lumped.judged, frequency=1.0)
    for one in (lumped, fewer):
        assert one.judged == pytest.approx(judged(one.best), rel=1e-9)
        assert one.judged >= made().value * (1 - 1e-9)


def _alone(heat: str) -> dict[str, Any]:
    """What an exploration of its own finds."""
    alone = explore(GPT2, DESIGN, **{**ASKED, "heat": heat})
    return {"best": alone.best, "predicted": alone.value}


def test_what_is_said_of_other_questions_is_checked() -> None:
    assert "verified" in check_exploration(made(), "it")
    for name in ("predicted", "judged", "frequency"):
        wrong = forged(made(), "comparisons", 0, name, value=lambda value: value * 0.9)
        is_refused(wrong, rf"\$\.comparisons\[0\]\.{name}: found")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"compare": ["lumped"], "gap": 0.0}, "compare: found lumped beside heat None"),
        ({"compare": ["lumped"], "heat": "lumped"}, "compare: found lumped beside heat lumped"),
    ],
)
def test_a_question_that_is_none_is_refused(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        explore(GPT2, DESIGN, **asked)


def test_an_interrupt_while_comparing_costs_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dfopt.exploring.comparing.comparison", interrupted)
    cut = explore(GPT2, DESIGN, gap=0.05, compare=["tp_pp_dp"])
    assert cut.value > 0 and cut.status in ("gap_reached", "optimal")
    assert cut.comparisons == () and cut.sensitivity == ()  # nothing begins after it
