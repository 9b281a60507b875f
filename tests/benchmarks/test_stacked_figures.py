"""What is asked of DeepStack's figures are the rows of its tables, and committed answers keep what is said of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from scipy.stats import spearmanr

from dfopt.technology.derive import derive_design

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "stacked"))

import asked  # type: ignore[import-not-found]
import claimed  # type: ignore[import-not-found]
import ends  # type: ignore[import-not-found]


def test_curves_have_their_peak_near_the_published_one() -> None:
    curves = claimed.curves_16()
    assert len(curves) == 10
    for layers, theirs, ours in curves.values():
        assert abs(layers[theirs.index(max(theirs))] - layers[ours.index(max(ours))]) <= 2
    assert sum(spearmanr(theirs, ours).statistic >= 0.8 for _, theirs, ours in curves.values()) >= 8


def test_curves_keep_their_shape_at_the_ends_of_ranges() -> None:
    found = {tuple(record["key"]): record["curves"] for record in asked.records_of(ends.ANSWERS)}
    centre = found.pop(("as in the file", ""))
    assert len(found) == 30 and sum(map(ends.keeps, found.values())) >= 0.9 * len(found)
    for key, record in asked.answers("16").items():  # which are asked with common schemes of modules, these with all
        assert centre[" ".join(key[:2])][key[2]] <= record["at_most"] * 1.02


def test_degrees_of_a_label() -> None:
    assert ends.degrees_of("TP4(torus_x) PP32(torus_y*mesh_x) DP2(switch)") == {"tp": 4, "mp": 1, "pp": 32, "dp": 2}


@pytest.mark.parametrize("figure", asked.FIGURES)
def test_answers_are_those_of_the_questions(figure: str) -> None:
    known = asked.answers(figure)
    assert known.keys() <= {key for row in asked.FIGURES[figure]() for key in row.keys}
    for record in known.values():
        if (tokens := record["tokens_per_s"]) is not None:
            assert 0 < tokens <= record["at_most"] * (1 + 1e-9)
            assert record["at_most"] * (1 - record["gap"]) == pytest.approx(tokens, rel=1e-3)


def test_every_published_row_is_asked() -> None:
    keys = {name: [key for row in rows() for key in row.keys] for name, rows in asked.FIGURES.items()}
    for name, count in (("16", 110), ("17", 108), ("21", 3 * 28)):
        assert len(keys[name]) == len(set(keys[name])) == count
    ratios = claimed._published_20()
    assert {(one[0], *one[2:4], float(one[4]), one[5]) for one in keys["20"]} <= ratios.keys()
    assert len(ratios) == 2 * 84


def test_a_scaled_network_leaves_the_published_number_of_units() -> None:
    counts = {("L1", 4.0): 7, ("L2", 4.0): 3, ("L3", 0.25): 9}
    for (level, times), units in counts.items():
        assert derive_design(asked.with_rate(level, times, "logic", "switch")).core.units == pytest.approx(units)
    on_dram = derive_design(asked.with_rate("L2", 4.0, "dram", "line"))
    start = derive_design(asked.with_rate("L2", 1.0, "logic", "line"))
    assert (on_dram.core.units, on_dram.dram.size) == pytest.approx((8, start.dram.size))
    assert on_dram.links["between_packages"].rate == pytest.approx(4 * start.links["between_packages"].rate, rel=0.1)


def test_regrets_of_the_published_curves() -> None:
    theirs: dict[tuple[str, str], dict[int, float]] = {}
    for row in asked.rows_of("fig16_throughput_vs_dram_layers"):
        curve = theirs.setdefault((row["phase"], row["batch"]), {})
        curve[int(row["dram_layers_all_connected"])] = float(row["best_scaled_tokens_per_s"])
    seen = list(claimed.means(claimed.regrets(theirs)).values())
    assert seen == pytest.approx([0.116, 0.321, 0.0], abs=5e-4)


def test_an_answer_of_a_small_model_and_its_joules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(asked.MODELS, "small", "llama-68m")
    question = asked.question("decode", "8", "small", tp=32) | {"context": 64}
    of = asked.design(connected_layers=None, choices={"dram_layers": [4, 6]})
    each = asked.Row(("small",), of, question, "dram_layers")
    found = list(asked.answered(each, 60.0))
    assert [one["key"] for one in found] == each.keys == [("small", "4"), ("small", "6")]
    alone = next(asked.answered(asked.Row(("small",), asked.design(), question), 60.0))
    assert alone["tokens_per_s"] == pytest.approx(found[0]["tokens_per_s"])
    # no device draws less than what leaks, or more than all its components at once
    for one in (*found, alone):
        watts = one["tokens_per_s"] / one["tokens_per_j"] / 256
        assert 9.2 < watts < 90


def test_of_two_answers_the_better_one_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    lines = [{"key": ["a"], "tokens_per_s": tokens} for tokens in (None, 2.0, 1.0)]
    text = "\n".join(map(json.dumps, lines))
    (tmp_path / "results" / "figure-21.jsonl").write_text(text, encoding="utf-8")
    monkeypatch.setattr(asked, "HERE", tmp_path)
    assert asked.answers("21") == {("a",): lines[1]}
