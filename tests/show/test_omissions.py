"""What answers say that the model leaves out: told by graph, chip, plan and mode, on the terminal and on the page."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

import dfopt as df
from dfopt.documents.dtypes import Dtype, Dtypes
from dfopt.show.answer import summary
from dfopt.show.omissions import OMISSIONS, left_out, omissions
from dfopt.show.parts import percent
from dfopt.show.report import result_report


@cache
def solved(graph: str, system: str, dp: int, execution: Any = "auto") -> df.Result:
    return df.optimize(graph, system, dp=dp, assumptions=df.Assumptions(execution=execution))


@cache
def training(dp: int, word: int) -> df.Result:
    return df.optimize(
        df.load_graph("gpt2-small", mode="training", word_bytes=word), "h100-8", assumptions="ideal", dp=dp
    )


@cache
def serving(graph: str) -> df.Result:
    drawn = df.load_graph(graph, phase="decode", batch=8, microbatch=8, context=1024)
    return df.optimize(drawn, "h100-8", tp=8, sensitivity=False)


@cache
def mixed() -> df.Result:
    drawn = df.load_graph("llama-3.2-1b", phase="mixed", segments="1x64@0:none,4x1@256", batch=1)
    return df.optimize(drawn, "h100-8", tp=8, pp=1, dp=1, sensitivity=False)


def test_sequences_of_a_mixed_sample_stay_together() -> None:
    assert "sequences of a sample dealt out among copies" in left_out(mixed())
    assert "dealt out" not in left_out(serving("llama-3.2-1b"))


def test_a_dataflow_chip_fuses_and_switches() -> None:
    assert left_out(solved("gpt2-small", "sn10-8-ring", 1)) == "", "all of a layer is in one partition"
    assert left_out(solved("gpt3-175b", "sn10-8-ring", 1)) == "switching between partitions"


def test_a_gpu_runs_kernels_of_a_library_unless_it_is_told_not_to() -> None:
    assert left_out(solved("gpt2-small", "h100-8", 1)) == "kernel launches"
    said = left_out(solved("gpt2-small", "h100-8", 1, "kernel_by_kernel"))
    assert said == "fused attention, elementwise kernels fused into others, kernel launches"


def test_gradients_of_copies_are_reduced_at_the_end_of_a_step() -> None:
    said, score = "gradients reduced during the backward pass (at most {} of the step)", training(8, 2).score
    share = percent(score.gradient_reduction_s / score.step_time_s)
    assert "gradients reduced" not in left_out(training(1, 2)) and said.format(share) in left_out(training(8, 2))


@pytest.mark.parametrize("ends", [True, False])
def test_a_training_step_without_its_ends_says_so(ends: bool) -> None:
    graph = df.load_graph("llama-3.2-1b", mode="training", ends=ends, batch=8, seq=512)
    result = df.optimize(graph, "h100-8", assumptions="ideal", tp=1, pp=1, sensitivity=False, time_limit=20)
    assert ("embedding, logits and loss (usually" in left_out(result)) is not ends


def test_serving_leaves_out_its_host_and_experts_what_orders_tokens() -> None:
    assert "token sampling" in left_out(serving("qwen3-30b-a3b"))
    assert "order of tokens by experts" in left_out(serving("qwen3-30b-a3b"))
    assert "experts" not in left_out(serving("llama-3.2-1b"))


def test_a_peak_for_other_words_is_not_known() -> None:
    assert "peak" not in left_out(training(8, 2))
    said = "a peak of its own for words of 1 B (989.5 TFLOP/s is taken)"
    assert said in left_out(training(8, 1))


@cache
def quantized(system: str, weights: Dtype) -> df.Result:
    graph = df.load_graph("gpt2-small").model_copy(update={"dtypes": Dtypes(weights=weights, activations="fp8")})
    return df.optimize(graph, system, assumptions="ideal", dp=1)


def test_a_chip_with_one_peak_has_none_by_type() -> None:
    assert left_out(quantized("sn10-8-ring", "fp8")) == "peaks by type (307.2 TFLOP/s is taken for all)"
    assert left_out(quantized("h100-8", "fp8")) == "kernel launches"


def test_the_page_says_it_too() -> None:
    pytest.importorskip("matplotlib")
    page = result_report(training(8, 1))
    first = omissions(training(8, 1))[0]
    assert f"left out</dt><dd>{len(omissions(training(8, 1)))}: {first.split(' (')[0]}" in page


def test_a_wider_type_is_said_on_the_terminal_and_on_the_page() -> None:
    pytest.importorskip("matplotlib")
    said, result = "NVIDIA H100 80GB SXM has no int4", quantized("h100-8", "fp8")
    assert result.score.notes is None
    graph = result.graph.model_copy(update={"dtypes": Dtypes(weights="int4", activations="int4")})
    result = df.optimize(graph, "h100-8", assumptions="ideal", dp=1)
    assert result.score.notes and result.score.notes[0].startswith(said)
    assert dict(summary(result))["note"] == result.score.notes[0]
    page = result_report(result)
    assert said in page and "int4" in page


def test_every_entry_applies_somewhere() -> None:
    alone = solved("gpt2-small", "h100-8", 1, "kernel_by_kernel")
    results = (solved("gpt3-175b", "sn10-8-ring", 1), alone, training(8, 1), quantized("sn10-8-ring", "fp8"))
    results += (solved("gpt2-small", "sn40l-16-ddr", 16), serving("qwen3-30b-a3b"), mixed())
    with_loss = df.load_graph("llama-68m", mode="training", batch=8)
    results += (df.optimize(with_loss, "h100-8", assumptions="ideal", tp=1, pp=1, sensitivity=False),)
    assert all(any(applies(one) for one in results) for applies, _ in OMISSIONS)
