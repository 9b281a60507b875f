"""What answers say that the model leaves out: told by graph, chip, plan and mode, on the terminal and on the page."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

import dfopt as df
from dfopt.show.omissions import OMISSIONS, left_out
from dfopt.show.report import result_report


@cache
def solved(graph: str, system: str, dp: int, execution: Any = "auto") -> df.Result:
    return df.optimize(graph, system, dp=dp, assumptions=df.Assumptions(execution=execution))


@cache
def training(dp: int, word: int) -> df.Result:
    return df.optimize(df.load_graph("gpt2-small", mode="training", word_bytes=word), "h100-8", dp=dp)


def test_a_dataflow_chip_fuses_and_switches() -> None:
    assert left_out(solved("gpt2-small", "sn10-8-ring", 1)) == "", "all of a layer is in one partition"
    assert left_out(solved("gpt3-175b", "sn10-8-ring", 1)) == "switching between partitions"


def test_a_gpu_runs_kernels_of_a_library_unless_it_is_told_not_to() -> None:
    assert left_out(solved("gpt2-small", "h100-8", 1)) == "kernel launches"
    said = left_out(solved("gpt2-small", "h100-8", 1, "kernel_by_kernel"))
    assert said == "fused attention, elementwise kernels fused into others, kernel launches"


def test_training_keeps_all_activations() -> None:
    assert "recomputation of activations" in left_out(training(1, 2))
    assert "ZeRO" not in left_out(training(1, 2))
    assert "ZeRO, gradients reduced during the backward pass" in left_out(training(8, 2))


def test_a_peak_for_other_words_is_not_known() -> None:
    assert "peak" not in left_out(training(8, 2))
    said = "a peak of its own for words of 1 B (989.5 TFLOP/s is taken)"
    assert said in left_out(training(8, 1))


def test_the_page_says_it_too() -> None:
    pytest.importorskip("matplotlib")
    assert left_out(training(8, 1)) in result_report(training(8, 1))


def test_every_entry_applies_somewhere() -> None:
    alone = solved("gpt2-small", "h100-8", 1, "kernel_by_kernel")
    results = (solved("gpt3-175b", "sn10-8-ring", 1), alone, training(8, 1))
    assert all(any(applies(one) for one in results) for applies, _ in OMISSIONS)
