"""The best design with each value of a size: as each explored alone, and no value ends the others."""

from __future__ import annotations

from typing import Any, Final

import pytest

import dfopt
from dfopt.documents.design import Design
from dfopt.documents.exploration import Exploration
from dfopt.documents.question import Question
from dfopt.errors import NoSolution, PlanError
from dfopt.exploring.each import explore_each
from dfopt.machines.designs import load_design
from dfopt.processes import worker

ASKED: Final[dict[str, Any]] = {"phase": "decode", "batch": 8, "context": 64, "rank_order": "tp-mp-pp-dp", "tp": 32}


def _design(**choices: Any) -> Design:
    return Design.from_data({**load_design("stacked-256").to_data(), "choices": choices})


def test_each_value_is_as_good_as_explored_alone() -> None:
    ports = ["128 B", "256 B"]
    made = dict(
        explore_each("llama-68m", _design(dram_layers=[4, 6], buffer_port=ports), "dram_layers", gap=0, **ASKED)
    )
    for layers, one in made.items():
        assert isinstance(one, Exploration)
        of = _design(dram_layers=[int(layers)], buffer_port=ports)
        alone = dfopt.explore("llama-68m", of, gap=0, sensitivity=False, **ASKED)
        assert one.value == pytest.approx(alone.value, rel=1e-9) and one.best == alone.best


def test_each_value_has_a_time_of_its_own() -> None:
    """Where time is up before a first design, the next value is still asked."""
    made = list(explore_each("llama-68m", _design(dram_layers=[4, 6]), "dram_layers", time_limit=1e-9, **ASKED))
    assert [layers for layers, _ in made] == [4, 6]
    assert all(isinstance(one, NoSolution) for _, one in made)


def test_a_size_that_is_no_list_is_named() -> None:
    with pytest.raises(PlanError, match=r"size: found 'buffer', expected a list of the choices.*dram_layers"):
        next(explore_each("llama-68m", _design(dram_layers=[4, 6]), "buffer", **ASKED))


@pytest.mark.parametrize(("layers", "share"), [([4], 0.9), ([4, 6], 0.5)])
def test_a_design_has_a_share_of_the_time_that_is_left(
    layers: list[int], share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No solve of one design ends at the limit that a solve has by itself."""
    given: list[float] = []
    plain = worker.bounded

    def noted(question: Question, *others: Any) -> worker.Bounded:
        given.append(question.options.time_limit)
        return plain(question, *others)

    monkeypatch.setattr("dfopt.exploring.solves.bounded", noted)
    dfopt.explore("llama-68m", _design(dram_layers=layers), gap=0, time_limit=1000.0, sensitivity=False, **ASKED)
    assert 0.9 * share * 1000 < max(given) <= share * 1000


def test_what_a_share_of_the_time_cuts_short_goes_on_while_time_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A solve that its limit ends is asked again, and its answer counts."""
    times: list[float] = []
    plain = worker.bounded

    def short(question: Question, *others: Any) -> worker.Bounded:
        made = plain(question, *others)
        times.append(question.options.time_limit)
        if len(times) > 1 or made.result is None:
            return made
        late = made.result.model_copy(update={"seconds": times[0]})
        return made._replace(status="limit_with_solution", bound=made.bound / 2, result=late)

    monkeypatch.setattr("dfopt.exploring.solves.bounded", short)
    made = dfopt.explore("llama-68m", _design(dram_layers=[4]), gap=0, time_limit=1000.0, sensitivity=False, **ASKED)
    assert made.status == "optimal" and made.gap < 1e-9 and len(times) >= 2
