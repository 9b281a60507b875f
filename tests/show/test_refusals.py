"""What is printed of plans that do not fit: the nearest ones, the others counted, one remedy."""

from __future__ import annotations

import pytest

import dfopt as df
from dfopt.errors import Infeasible
from dfopt.show.refusals import brief


def test_a_training_that_does_not_fit_is_told_in_a_few_lines() -> None:
    graph = df.load_graph("gpt3-175b", mode="training")
    system = df.with_stack(df.load_system("sn10-8-ring"), df.load_stack("hybrid-vault"))
    with pytest.raises(Infeasible) as refused:
        df.optimize(graph, system)
    whole = str(refused.value.report)
    said = brief(whole).split("\n")
    assert whole.count("\n") > 40 and len(said) <= 8
    assert "short by 265.8 GB" in said[1], "the nearest comes first"
    assert sum("levers" in line for line in said) == 1 and said[-1].startswith("levers: more tensor or pipeline")


def test_others_are_counted_by_reason() -> None:
    lines = [f"  P{n}: the chip is short by {n} GB of DRAM; levers: more DRAM" for n in range(1, 9)]
    lines += ["  S: SRAM: short by 3 MB; levers: more tiles", "  X: no order; levers: fewer pins"]
    said = brief("no plan fits:\n" + "\n".join(lines), shown=2).split("\n")
    assert said[0] == "no plan fits; nearest of 10:"
    assert [line[:4] for line in said[1:3]] == ["  S:", "  P1"]
    assert said[3] == "and 8 more plans: 7 short of DRAM by 2 GB to 8 GB; 1: no order"
    assert said[4] == "levers: more DRAM, more tiles, fewer pins"


def test_one_reason_stays_as_it_is() -> None:
    report = "TP8 PP1 DP1: the heaviest stage is short by 2 GB; levers: more chips"
    assert brief(report) == report


def test_labels_of_plans_with_modules_stay_whole() -> None:
    label = "TP1 MP2(nvlink[2]) PP1 DP1 [n: stream mixer; outer: experts]"
    said = brief("no plan fits:\n" + "\n".join(f"  {label}: short by {n} GB; levers: more DRAM" for n in (1, 2)))
    assert said.split("\n")[1] == f"  {label}: short by 1 GB"
