"""Answers in words: first lines, where time goes, how far off they are, what is left out, what does not fit."""

from __future__ import annotations

import csv
import io
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dfopt as df
from dfopt.documents.assumptions import Assumptions, profile
from dfopt.documents.dtypes import Dtype, Dtypes
from dfopt.documents.evaluation import phase_of, sequences_of
from dfopt.errors import Infeasible
from dfopt.machines.calibrations import calibration_of
from dfopt.machines.stacks import load_stack, with_stack
from dfopt.search import graph_search
from dfopt.show import accuracy
from dfopt.show.answer import headline, summary
from dfopt.show.asked import asked_facts, batch_words
from dfopt.show.details import answer_report
from dfopt.show.grid import ColumnKind, FactList, Grid, print_to
from dfopt.show.omissions import OMISSIONS, left_out, omissions
from dfopt.show.parts import bound_parts, parts_words, percent
from dfopt.show.refusals import brief
from dfopt.show.report import result_report

ROOT = Path(__file__).parents[2]
PHASES: dict[str, tuple[dict[str, Any], str, int]] = {
    "training": ({"mode": "training", "batch": 16, "seq": 512}, "16 sequences x 512 tokens", 16),
    "forward": ({"batch": 4, "seq": 512}, "4 sequences x 512 tokens", 4),
    "decode": (
        {"phase": "decode", "batch": 8, "microbatch": 2, "context": 100},
        "8 sequences x 1 token behind 100 cached", 8,
    ),
    "prefill": (
        {"phase": "prefill", "batch": 8, "seq": 512, "hit": 128}, "8 sequences x 384 tokens behind 128 cached", 8
    ),
    "verify": (
        {"phase": "verify", "batch": 8, "context": 100, "draft": 3}, "8 sequences x 4 tokens behind 100 cached", 8
    ),
    "mixed": (
        {"phase": "mixed", "segments": "1x512@0,63x1@1000", "batch": 2},
        "2 x (1 sequence x 512 tokens, 63 sequences x 1 token behind 1,000 cached)", 128,
    ),
}  # fmt: skip


@pytest.mark.parametrize("phase", PHASES)
def test_an_answer_begins_with_what_was_asked(phase: str) -> None:
    parameters, words, sequences = PHASES[phase]
    graph = df.load_graph("llama-3.2-1b", **parameters)
    assert phase_of(graph) == phase and batch_words(graph) == words and sequences_of(graph) == sequences


def test_one_sequence_on_one_chip_is_singular() -> None:
    graph = df.load_graph("gpt2", phase="decode", batch=1, context=100)
    assert batch_words(graph) == "1 sequence x 1 token behind 100 cached"
    answer = df.solve(graph, "sn50-1", sensitivity=False)
    assert headline(answer)[1] == "on 1 x SambaNova SN50 RDU (sn50-1)"


def test_without_matrix_products_the_share_of_peak_counts_all_operations() -> None:
    answer = df.solve("fft-1t", "sn30-1024-2dtorus", pp=1, sensitivity=False)
    rows = dict(summary(answer))
    assert rows["step"].endswith("0.00655 % of peak") and "all-to-all" in rows["time"]


def test_layers_with_a_window_do_not_hide_what_is_cached() -> None:
    graph = df.load_graph("gpt-oss-20b", phase="decode", batch=8, context=4096)
    assert batch_words(graph) == "8 sequences x 1 token behind 4,096 cached"


@cache
def decoded() -> df.Result:
    graph = df.load_graph("llama-3.2-1b", phase="decode", batch=16, microbatch=16, context=2048)
    return df.optimize(graph, "h100-8", tp=8, assumptions="default", sensitivity=False)


def printed(result: df.Result, detail: str = "all", plain_width: int = 140) -> list[str]:
    out = io.StringIO()
    print_to(out, answer_report(result, detail=[detail]), plain_width)
    return out.getvalue().splitlines()


def test_the_efficiency_says_whether_it_is_measured() -> None:
    result = decoded()
    facts = dict(asked_facts(result))
    assert facts["system"] == "8 x NVIDIA H100 80GB SXM (h100-8)"
    assert facts["question"].startswith("llama-3.2-1b: decode, 16 sequences x 1 token")
    assert facts["efficiency"] == "ideal (default): compute at 80.3 % of peak, no other losses"
    measured = result.model_copy(update={"assumptions": calibration_of(result.system).assumptions})
    assert dict(asked_facts(measured))["efficiency"] == "measured (h100-calibrated)"


def test_a_gap_names_the_plan_that_keeps_it_open() -> None:
    result = decoded()
    assert "least bound" not in "".join(printed(result))
    [record] = result.plans
    loose = record.model_copy(update={"bound": 1e-4, "status": "not_reached"})
    [line] = [
        line
        for line in printed(result.model_copy(update={"plans": (loose,), "gap": 0.8}))
        if line.startswith("least bound")
    ]
    assert line == f"least bound  100 us under {record.plan.label} (not reached)"


def test_an_end_without_a_proof_is_not_laid_on_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_search, "_MOST_PLANS", 1)
    asked = {"phase": "training", "batch": 16, "sensitivity": False, "assumptions": "ideal"}
    result = df.optimize("llama-68m", "h100-8", **asked)
    ended = [line for line in printed(result) if line.startswith("too many plans")]
    assert ended and ended[0].startswith("too many plans to list, nothing more can be proven, gap ")


def test_what_binds_and_the_parts_of_a_step_add_up_in_every_phase() -> None:
    score = decoded().score
    binds, parts = bound_parts(score), score.breakdown.parts
    assert sum(binds.values()) == pytest.approx(score.step_time_s) == sum(parts.values())
    sent = binds["network_latency"] + binds["network_bandwidth"]
    assert sent == pytest.approx(parts["tensor_parallel"])
    late = score.link_latency_s / score.link_time.total
    assert binds["network_latency"] == pytest.approx(sent * late) and late > 0.5, "small messages wait"
    rows = {line.split("  ")[0]: line for line in printed(decoded())}
    share = 100 * binds["memory"] / score.step_time_s
    assert rows["time bound by"].startswith(f"time bound by  memory {share:.4g} %, network latency ")
    assert rows["step"].endswith(parts_words(score.breakdown))
    assert re.search(r"[\d.]+ (MB )?of 85.52 GB, [\d.]+ % \(a chip of the heaviest stage\)", rows["DRAM"])


def test_a_stack_of_dies_leads_with_what_it_keeps_up() -> None:
    system = with_stack(df.load_system("sn10-8-ring"), load_stack("microbump-8"))
    result = df.optimize(df.load_graph("gpt3-175b"), system, tp=4, dp=2, pp=1, sensitivity=False)
    physical, keeps = result.score.physical, result.score.sustained
    assert physical is not None and physical.slowdown > 1.05
    assert keeps.step_time_s == physical.step_time_s and keeps.sustained.step_time_s == physical.step_time_s
    assert keeps.tokens_per_s * keeps.step_time_s == pytest.approx(result.score.tokens_per_s * result.step_time_s)
    head = next(line for line in printed(result) if line.startswith("step  "))
    assert head.startswith("step        820 s (763 s without heat), ")
    assert "step time: 820.317 s" in repr(result)
    assert dict(asked_facts(result))["accuracy"] == accuracy.NEVER
    assert decoded().score.sustained is decoded().score


def test_how_far_answers_are_from_measurements_is_what_the_benchmarks_say() -> None:
    pages = ("dfopt/guide/accuracy.md", "benchmarks/reference/serving.md", "benchmarks/reference/training.md")
    said = "".join((ROOT / page).read_text(encoding="utf-8") for page in pages)
    with (ROOT / "dfopt/show/accuracy.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    names = {"A100": "A100 80GB", "H100": "H100 80GB", "H200": "H200 141GB", "B200": "B200 180GB"}
    for chip, name in names.items():
        found = re.search(rf"^\| {chip} \| (\d+) \| ([\d.]+) \| [\d.]+ % \| ([\d.]+) \| ([\d.]+) \|", said, re.M)
        assert found is not None
        (row,) = (row for row in rows if row["phase"] == "decode" and name in row["chip"])
        middle, least, most = (f"{float(found[place]):.2f}" for place in (2, 3, 4))
        assert (row["off"], row["over"]) == (f"{middle} of the measured time", f"{least} to {most} in {found[1]} steps")
    for figure in ("bias -31.3 %", "mean 7.8 %", "mean 13.7 %", "mean 1.7 %", "mean 5.8 %", "0.805 in the middle"):
        assert figure in said
    for row in rows:
        assert re.search(rf"^##+ {row['table']}$", said, re.M)
        assert df.load_system(f"{row['chip'].split()[1].lower()}-8").chip.name == row["chip"]


def test_what_was_never_measured_says_so() -> None:
    assert dict(asked_facts(decoded()))["accuracy"].startswith("0.74 of the measured time")
    changed = decoded().model_copy(update={"assumptions": decoded().assumptions.changed({"overlap": "none"})})
    assert dict(asked_facts(changed))["accuracy"] == accuracy.NEVER


def test_a_profile_that_was_changed_twice_says_so_once() -> None:
    twice = Assumptions().changed({"overlap": "none"}).changed({"execution": "library"})
    assert twice.profile == "default (changed)" and profile("default").profile == "default"


@cache
def streamed() -> df.Result:
    """Two tensor-parallel chips read the weights of one partition again for each of five blocks of tokens."""
    rule = df.Assumptions(token_blocks="allow")
    return df.solve(df.load_graph("llama-3.1-70b"), "sn40l-16", assumptions=rule, tp=2, sensitivity=False)


def held() -> df.Result:
    """The same mapping, as if all partitions held their weights."""
    one = streamed()
    return one.model_copy(update={"mapping": one.mapping.model_copy(update={"token_blocks": None})})


def test_the_table_of_partitions_says_in_how_many_blocks() -> None:
    (blocks,) = streamed().mapping.token_blocks or ()
    assert (blocks.partition, blocks.blocks) == (1, 5)
    lines = printed(streamed(), "kernels", 200)
    head = next(number for number, line in enumerate(lines) if "token blocks" in line)
    rows = [line.split() for line in lines[head + 1 :] if line.split() and line.split()[0] in ("0", "1")]
    assert [(row[0], row[-1]) for row in rows][1] == ("1", "5")
    assert rows[0][-1] != "5"
    assert not any("token blocks" in line for line in printed(held(), "kernels", 200))


@pytest.mark.parametrize("result", [streamed, held])
def test_the_report_says_it(result: object) -> None:
    one = streamed() if result is streamed else held()
    page = result_report(one)
    assert ("token blocks" in page) == (result is streamed)
    assert ("takes its tokens in 5 blocks" in page) == (result is streamed)


def test_the_trace_says_it_of_the_partition() -> None:
    found = {
        event["args"]["partition"]: event["args"].get("token_blocks")
        for event in df.plot.trace(streamed())["traceEvents"]
        if "bound_by" in event.get("args", {})
    }
    assert found == {0: None, 1: 5}


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


def lines_of(renderable: object, width: int) -> list[str]:
    said = io.StringIO()
    print_to(said, renderable, width)  # type: ignore[arg-type]
    return said.getvalue().splitlines()


WORDS = st.text("abcdefghij_-", min_size=1, max_size=30)
TEXTS = st.lists(WORDS, max_size=20).map(" ".join)
FIGURES = st.floats(0, 1e12).map("{:.4g}".format)


@st.composite
def grids(draw: st.DrawFn) -> Grid:
    kinds: list[ColumnKind] = draw(st.lists(st.sampled_from(["figure", "word", "text"]), min_size=1, max_size=9))
    cells = {"figure": FIGURES, "word": WORDS, "text": TEXTS}
    rows = draw(st.lists(st.tuples(*(cells[kind] for kind in kinds)), max_size=4))
    return Grid("a title", {f"header {place}": kind for place, kind in enumerate(kinds)}, rows)


@given(grids(), st.integers(30, 150))
def test_no_figure_is_cut_and_no_line_too_long(grid: Grid, width: int) -> None:
    lines = lines_of(grid, width)
    assert all(len(line) <= width for line in lines)
    whole = "\n".join(lines)
    for row in grid.rows:
        for kind, cell in zip(grid.kinds, map(str, row), strict=True):
            if kind == "figure":
                assert re.search(rf"(?<!\S){re.escape(cell)}(?![^\s,])", whole), (cell, whole)
            elif kind == "text":  # nothing is lost, though it may be broken
                assert all(piece in whole for word in cell.split() for piece in re.findall(r"[^_-]+", word)[:1])
    if "─" in whole:
        assert all(name in lines[1] for name in grid.names)


@given(st.lists(st.tuples(WORDS, TEXTS), min_size=1, max_size=4), st.integers(30, 150))
def test_facts_fit(rows: list[tuple[str, str]], width: int) -> None:
    assert all(len(line) <= width for line in lines_of(FactList(rows), width))
