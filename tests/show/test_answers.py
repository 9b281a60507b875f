"""The first lines of an answer, where its time goes, what it holds, and how far such answers are from measurements."""

from __future__ import annotations

import csv
import io
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import dfopt as df
from dfopt.documents.assumptions import Assumptions, profile
from dfopt.documents.evaluation import phase_of, sequences_of
from dfopt.machines.calibrations import calibration_of
from dfopt.machines.stacks import load_stack, with_stack
from dfopt.show import accuracy
from dfopt.show.answer import headline, summary
from dfopt.show.asked import asked_facts, batch_words
from dfopt.show.details import answer_report
from dfopt.show.grid import print_to
from dfopt.show.parts import bound_parts, parts_words

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
@cache
def decoded() -> df.Result:
    graph = df.load_graph("llama-3.2-1b", phase="decode", batch=16, microbatch=16, context=2048)
    return df.optimize(graph, "h100-8", tp=8, assumptions="default", sensitivity=False)


def printed(result: df.Result, **more: Any) -> list[str]:
    out = io.StringIO()
    print_to(out, answer_report(result, **{"detail": ["all"], **more}))
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
