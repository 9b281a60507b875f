"""What comes after a search may fail: the mapping that was found goes out without it, and says so."""

from __future__ import annotations

from typing import Any

import pytest

import dfopt as df
from dfopt.documents.result import Result, status_words
from dfopt.errors import Infeasible
from dfopt.search import heat_aware, optimization
from dfopt.search.verify import verify


def failing(error: BaseException) -> Any:
    """A step that ends so."""

    def step(*_: object) -> None:
        raise error

    return step


@pytest.mark.parametrize(
    ("error", "said"), [(ValueError("a bug"), "ValueError: a bug"), (KeyboardInterrupt(), "stopped by Ctrl-C")]
)
def test_a_sensitivity_that_fails_costs_no_mapping(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, said: str
) -> None:
    right = df.optimize(df.load_graph("gpt2-small"), "sn10-8-ring", tp=8, sensitivity=False)
    monkeypatch.setattr(optimization, "sensitivities", failing(error))
    result = df.optimize(df.load_graph("gpt2-small"), "sn10-8-ring", tp=8, sensitivity=True)
    assert (result.mapping, result.value, result.status) == (right.mapping, right.value, "optimal")
    assert result.sensitivity == () and result.missing == (f"sensitivity ({said})",)
    assert status_words(result).endswith(f"; without sensitivity ({said})")
    assert verify(Result.from_data(result.to_data())).ok


def test_heat_that_fails_costs_no_mapping_but_a_refusal_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {"tp": 8, "heat": "aware", "stack": df.load_stack("hybrid-vault"), "sensitivity": False}
    monkeypatch.setattr(heat_aware, "made_aware", failing(KeyboardInterrupt()))
    result = df.optimize(df.load_graph("gpt2-small"), "sn10-8-ring", **asked)
    assert result.missing == ("heat: aware (stopped by Ctrl-C)",)
    assert result.heat is None and result.score.physical is not None
    monkeypatch.setattr(heat_aware, "made_aware", failing(Infeasible("too hot")))
    with pytest.raises(Infeasible, match="too hot"):
        df.optimize(df.load_graph("gpt2-small"), "sn10-8-ring", **asked)
