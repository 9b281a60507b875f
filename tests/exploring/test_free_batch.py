"""The batch as one of the sizes to choose: as each batch explored alone, and a forged batch is seen."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from design_cases import chosen, problem
from exploration_cases import forged, is_refused
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import dfopt
from dfopt.cli import app
from dfopt.documents.design import Design
from dfopt.documents.exploration import Exploration
from dfopt.documents.exploration_request import DesignLimits
from dfopt.errors import Infeasible, PlanError
from dfopt.exploring.checking import check_exploration

ASKED: Final[dict[str, Any]] = {"phase": "decode", "context": 64, "tp": 8}
RATE: Final[dict[str, Any]] = {"objective": "tokens_per_s", "gap": 0.0, "sensitivity": False}
TWICE: Final = {**ASKED, "tp": 4, "dp": 2}
STACKS: Final = (1, 2, 3)
BATCHES: Final = (4, 8, 64, 128)


def _design(least: int, most: int) -> Design:
    sizes = {"least": "8 MiB", "most": "8 MiB", "step": "8 MiB"}
    rates = {"least": "50 GB/s", "most": "50 GB/s", "step": "50 GB/s"}
    return chosen(
        choices__stacks={"least": least, "most": most},
        choices__capacity__L2=sizes,
        choices__rate__between_packages=rates,
    )


@cache
def _alone(stacks: int, batch: int) -> tuple[float, float]:
    """Tokens/s and seconds of a step of one design with one batch."""
    of = problem("llama-68m", [_design(stacks, stacks)])
    system = of.system(of.spaces[0].root)
    assert system is not None
    score = dfopt.solve("llama-68m", system, batch=batch, **ASKED).score
    return score.tokens_per_s, score.step_time_s


@settings(max_examples=5, deadline=None)
@given(st.sets(st.sampled_from(BATCHES), min_size=2, max_size=3), st.sampled_from(STACKS), st.data())
def test_the_best_batch_within_a_limit_is_that_of_every_design(
    batches: set[int], least: int, data: st.DataObject
) -> None:
    every = {(stacks, batch): _alone(stacks, batch) for stacks in range(least, 4) for batch in batches}
    most_s = data.draw(st.sampled_from(sorted(seconds for _, seconds in every.values())))
    limits = DesignLimits(step_time=most_s)
    made = dfopt.explore("llama-68m", _design(least, 3), batch=[*batches], limits=limits, **RATE, **ASKED)
    best = max(rate for rate, seconds in every.values() if seconds <= most_s)
    assert made.value == pytest.approx(best, rel=1e-9) and made.status == "optimal"
    assert made.best["batch"] == made.graph.batch and made.effort.sizes["batch"] == len(batches)
    assert every[int(made.best["dram"]), made.graph.batch][0] == pytest.approx(best, rel=1e-9)


@cache
def _made() -> Exploration:
    return dfopt.explore("llama-68m", _design(1, 2), batch=[8, 64], top=3, **RATE, **ASKED)


def test_the_next_best_designs_may_have_another_batch() -> None:
    made = _made()
    rates = sorted((_alone(stacks, batch)[0] for stacks in (1, 2) for batch in (8, 64)), reverse=True)
    assert [made.value, *(other.value for other in made.others)] == pytest.approx(rates[:3], rel=1e-9)
    assert {other.best["batch"] for other in made.others} == {8, 64}
    assert check_exploration(Exploration.from_data(made.to_data()), "it").startswith("verified optimal: ")


def test_a_batch_that_is_left_out_is_seen() -> None:
    data = _made().to_data()
    low, few = {**data["best"], "batch": 8.0}, [box for box in data["boxes"] if box["low"]["batch"] != 8]
    tighter = [{**box, "bound": box["bound"] / 2} if box["low"]["batch"] == 8 else box for box in data["boxes"]]
    mixed = [{**box, "low": {**box["low"], "batch": 8.0}} for box in data["boxes"]]
    for name, value, words in (
        ("boxes", few, r"\$\.boxes: hold"),
        ("other_batches", [], r"\$\.boxes"),
        ("best", low, r"\$\.best|\$\.others"),
        ("boxes", mixed, r"\$\.boxes\[\d\]\.high\.batch: found 64"),
        ("boxes", tighter, r"\$\.(boxes\[\d\]\.bound|others_bound|boxes)"),
        ("other_batches", [data["graph"], *data["other_batches"]], r"\$\.other_batches: found 64"),
    ):
        is_refused(forged(_made(), name, value=value), words)


def test_steps_of_several_batches_are_weighed_by_rates_alone() -> None:
    with pytest.raises(PlanError, match="objective: found time beside several batches, expected one of tokens_per_s"):
        dfopt.explore("llama-68m", _design(1, 2), batch="8,64", **ASKED)
    with pytest.raises(PlanError, match="batch: found max, expected numbers such as 64 or 16,64,256"):
        dfopt.explore("llama-68m", _design(1, 2), batch="max", **ASKED)
    with pytest.raises(PlanError, match="batch: found '8,x', expected numbers such as 16,64,256"):
        dfopt.explore("llama-68m", _design(1, 2), batch="8,x", **ASKED)
    with pytest.raises(PlanError, match="batch: found 8,64, expected one number or max: `dfopt explore` chooses"):
        dfopt.solve("llama-68m", "h100-8", batch=[8, 64], phase="decode", context=64)


def test_a_batch_without_a_plan_is_left_out() -> None:
    made = dfopt.explore("llama-68m", _design(1, 1), batch=[3, 8], **RATE, **TWICE)
    assert made.graph.batch == 8 and [box.bound for box in made.boxes if box.low["batch"] == 3] == [None]
    assert check_exploration(made, "it").startswith("verified optimal")
    with pytest.raises((PlanError, Infeasible), match="does not divide"):
        dfopt.explore("llama-68m", _design(1, 1), batch=[3, 5], **RATE, **TWICE)


def test_the_command_line_takes_a_list_and_prints_the_best_batch(tmp_path: Path) -> None:
    design, answer = tmp_path / "of.yaml", tmp_path / "made.json"
    _design(1, 1).dump(design)
    words = "--phase decode --context 64 --tp 8 --batch 8,64 --objective tokens_per_s --gap 0 --no-sensitivity"
    ran = CliRunner().invoke(app, ["explore", "llama-68m", str(design), *words.split(), "-o", str(answer)])
    assert ran.exit_code == 0 and "batch" in ran.output and "64 sequences" in ran.output
    assert "verified optimal" in CliRunner().invoke(app, ["check", str(answer)]).output
