"""The answer at both ends of the energy of DRAM: each that of every design looked at, with a proof of its own."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from design_cases import GPT2, chosen, problem
from exploration_cases import FEW, every_design, is_refused
from hypothesis import given, settings
from hypothesis import strategies as st

from dfopt.documents.exploration import Exploration
from dfopt.errors import Infeasible, NoSolution, SystemSpecError
from dfopt.exploring.checking import check_exploration
from dfopt.exploring.explore import explore


def ranged(low: str, high: str) -> dict[str, Any]:
    return {**FEW, "technology__dram__energy_range": [low, high]}


@cache
def least(energy: str) -> float:
    """The least step time of every design by itself."""
    every = every_design(problem("gpt2-small", [chosen(**FEW, technology__dram__energy=energy)]))
    return min(score.step_time_s for _, score in every.values())


@settings(max_examples=2)
@given(st.integers(1, 3), st.integers(5, 60))
def test_each_end_is_the_best_of_every_design_there(low: int, high: int) -> None:
    ends = f"{low} pJ/bit", f"{high} pJ/bit"
    made = explore(GPT2, chosen(**ranged(*ends)), gap=0.0, sensitivity=False, range=True)
    assert made.energy_range is not None
    told = made.energy_range.low, made.energy_range.high
    for energy, one in zip(ends, told, strict=True):
        assert one.value == pytest.approx(least(energy), rel=1e-9) and one.status == "optimal"
        assert one.designs == (chosen(**ranged(*ends), technology__dram__energy=energy),)
    # stacks that take more power leave less to the cores
    assert told[0].value <= made.value * (1 + 1e-9) <= told[1].value * (1 + 2e-9)


@pytest.fixture(scope="module")
def wide() -> Exploration:
    return explore(GPT2, chosen(**ranged("1 pJ/bit", "60 pJ/bit")), gap=0.0, sensitivity=False, range=True)


def test_both_ends_are_checked_too(wide: Exploration) -> None:
    said = check_exploration(wide, "it")
    assert said.count("verified optimal") == 3 and "with the most" in said
    ends = wide.energy_range
    assert ends is not None
    for end, changed in (
        ("low", ends.low.model_copy(update={"gap": 0.5})),
        ("high", ends.high.model_copy(update={"value": ends.high.value * 0.9}).sealed()),
        ("high", ends.low),
        ("low", ends.low.model_copy(update={"designs": wide.designs}).sealed()),
    ):
        forged = wide.model_copy(update={"energy_range": ends.model_copy(update={end: changed})}).sealed()
        is_refused(forged, rf"\$\.energy_range\.{end}")
    unsealed = wide.model_copy(update={"energy_range": ends.model_copy(update={"high": ends.low})})
    is_refused(unsealed, r"\$\.seal: does not fit the contents")


def test_what_was_not_asked_for_is_not_in_the_file(wide: Exploration, tmp_path: Path) -> None:
    """So that explorations of before keep their seals."""
    wide.dump(tmp_path / "it.json")
    assert Exploration.load(tmp_path / "it.json") == wide
    alone = wide.model_copy(update={"energy_range": None})
    assert "energy_range" not in alone.to_data()


def test_ends_that_have_no_answer_say_which() -> None:
    with pytest.raises(Infeasible, match="with the most energy of DRAM: none of 3 designs"):
        explore(GPT2, chosen(**ranged("4 pJ/bit", "4000 pJ/bit")), sensitivity=False, range=True)
    with pytest.raises(NoSolution, match="no design has been solved"):
        explore(GPT2, chosen(**ranged("4 pJ/bit", "8 pJ/bit")), time_limit=0.0, range=True)
    with pytest.raises(SystemSpecError, match=r"\$\.technology\.dram\.energy_range: found none in test, expected"):
        explore(GPT2, chosen(**FEW), range=True)


def test_other_questions_are_asked_without_the_ends() -> None:
    design = chosen(**ranged("1 pJ/bit", "60 pJ/bit"))
    made = explore(GPT2, design, gap=0.0, sensitivity=False, compare=["tp_pp_dp"], range=True)
    assert made.comparisons and made.energy_range is not None and not made.energy_range.low.comparisons
    assert check_exploration(made, "it").count("verified optimal") == 3
