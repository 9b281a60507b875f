"""The table of what two levels lose: a row is what the optimiser answers, and a contradiction is told."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from types import ModuleType

import pytest
from by_path import beside_its_own

HERE = Path(__file__).resolve().parents[2] / "benchmarks"
PAIR = "llama-3.2-3b:groq-lpu-v1-8:batch=1,microbatch=1"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return beside_its_own(HERE / "two_levels.py")


def test_it_prints_the_stored_rows(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """All of a row but its seconds, and a row for every pair."""
    stored = [
        line.split(" | ") for line in (HERE / "studies" / "two-levels.md").read_text(encoding="utf-8").splitlines()
    ]
    rows = {cells[0].removeprefix("| "): cells for cells in stored}
    assert {script.named(pair) for pair in script.PAIRS} <= set(rows)
    assert script.main([PAIR]) == 0
    *_, row = capsys.readouterr().out.splitlines()
    cells, kept = row.split(" | "), rows[script.named(PAIR)]
    assert [cell for k, cell in enumerate(cells) if k not in (3, 6)] == [
        cell for k, cell in enumerate(kept) if k not in (3, 6)
    ]
    levels, joint = float(cells[1]), float(cells[4])
    assert levels > 1.9 * joint and cells[5] == "0 %, optimal"


def test_contradictions_are_told(script: ModuleType) -> None:
    """A joint search behind two levels, a bound above another answer, and two levels that alone find something."""
    rules = {"sequence_parallelism": "none"}
    levels, joint = (script.solved(PAIR, 30.0, sharding_objective=one, **rules)[0] for one in ("seconds", "joint"))
    assert levels.value > joint.value and not script.loss(levels, joint)[1]
    assert script.loss(joint, levels) == (f"{100 * (joint.value / levels.value - 1):.2f} % (gap 55 %)", True)
    assert script.loss(levels.model_copy(update={"bound": joint.value * 1.01}), joint)[1]
    assert script.loss(levels, None) == ("", True) and script.loss(None, joint) == ("", False)
    nothing = script.solved("llama-3.1-70b:h100-8:mode=training,tp=8", 30.0, **rules)
    assert nothing[0] is None


def test_a_draw_is_the_same_for_a_seed_and_asks_what_is_given(script: ModuleType) -> None:
    first, again, other = (list(islice(script.drawn(seed, "tp=8"), 50)) for seed in (0, 0, 1))
    assert first == again != other and len(set(first)) == 50
    assert all(pair.endswith(":tp=8") and pair.count(":") == 2 for pair in first)


def test_a_draw_passes_over_pairs_without_an_answer(
    script: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = "llama-3.1-70b:h100-8:mode=training,tp=8"
    monkeypatch.setattr(script, "drawn", lambda seed: iter([nothing, PAIR, PAIR]))
    assert script.main(["--draw", "1"]) == 0
    *_, row, last = capsys.readouterr().out.splitlines()
    assert row.startswith(f"| {script.named(PAIR)} |")
    assert last.startswith("1 pairs, 0 contradict; 1 more without an answer")
