"""The runners of all claims: what they list, how a missed claim ends them, and that their tests and mutations exist."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import dfopt as df

ROOT = Path(__file__).resolve().parents[2]
Rows = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def _beside_the_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


JOINT = {"reproduced", "infeasible", "dse", "best-plans", "check", "mutations"}


@pytest.mark.parametrize(("runner", "some"), [("joint", JOINT), ("models", set[str]())])
def test_it_lists_its_sections(runner: str, some: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    claims = importlib.import_module(runner)
    assert claims.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[0] for line in lines] == list(claims.SECTIONS)
    assert some <= set(claims.SECTIONS)
    assert all(len(line.split(": ", 1)[1]) > 10 for line in lines)


def test_worlds_of_the_tests_are_drawn_outside_pytest() -> None:
    """Helpers of tests import others from folders that pytest has on its path; a runner has to name these itself."""
    run = importlib.import_module("claims.rows").run
    code = f"import sys; sys.path[:0] = [{str(ROOT / 'benchmarks')!r}]; from claims.drawn_worlds import drawn"
    ended = run(["-c", f"{code}; print(len(drawn(2, 0)))"], limit=120.0)
    assert [str(part).strip() for part in ended[:2]] == ["0", "2"], ended


def test_every_mutation_meets_the_source_once() -> None:
    mutations = importlib.import_module("claims.mutations").MUTATIONS
    assert [(one.count(), one.text != one.instead) for one in mutations] == [(1, True)] * 7


@pytest.mark.parametrize("met, word", [(True, "yes"), (False, "**no**"), (None, "error")])
def test_a_row_says_whether_a_claim_is_met(met: bool | None, word: str) -> None:
    row = importlib.import_module("claims.rows").Row("a", "b|c", "d", "e", met)
    assert row.line() == f"| a | b/c | d | e | {word} |"


def test_a_program_that_does_not_end_is_ended() -> None:
    run = importlib.import_module("claims.rows").run
    ended = run(["-c", "import time; time.sleep(60)"], limit=0.5)
    assert ended.code is None and ended.seconds < 30
    assert [str(part).strip() for part in run(["-c", "print(7)"], limit=60.0)[:2]] == ["0", "7"]


@pytest.mark.parametrize(
    ("change", "met"),
    [
        (lambda rows: None, True),
        (lambda rows: rows.extend(rows), True),
        (lambda rows: rows.pop(), False),
        (lambda rows: rows[0].update(status="error"), False),
        (lambda rows: rows[0].update(reported=None), False),
    ],
)
def test_a_row_that_is_lost_is_seen(change: Callable[[Rows], Any], met: bool) -> None:
    rows: Rows = [{"status": "ok", "reported": 1.0, "ours": 1.1} for _ in range(3)]
    change(rows)
    assert importlib.import_module("claims.programs").Kept("", 3, 3).of(rows)[1] is met


CONFIG = json.loads((ROOT / "tests" / "golden" / "hf" / "qwen3-vl-2b.json").read_text())


@pytest.fixture
def claims() -> ModuleType:
    return importlib.import_module("models")


def test_what_needs_data_is_passed_over_and_said(
    claims: ModuleType, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "rows.json"
    assert claims.main(["--only", "bounds", "kernels", "all-to-all", "configs", "decode", "--json", str(file)]) == 0
    assert "12 claims: 12 passed over for want of data" in capsys.readouterr().out
    rows = json.loads(file.read_text())
    assert {(row["met"], row["verdict"]) for row in rows} == {(None, "passed over")}


@pytest.mark.parametrize(("met", "code"), [(True, 0), (False, 1), (None, 1)])
def test_a_missed_claim_is_exit_code_1(
    claims: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], met: bool | None, code: int
) -> None:
    row = importlib.import_module("claims.rows").Row("a", "b", "c", "d", met)
    monkeypatch.setitem(claims.SECTIONS, "counts", lambda asked: iter([row]))
    assert claims.main(["--only", "counts"]) == code
    assert row.line() in capsys.readouterr().out


def test_the_tests_that_show_a_claim_exist(claims: ModuleType) -> None:
    suites = importlib.import_module("claims.suites").SUITES
    for suite in suites:
        for name in suite.tests:
            path, _, test = name.partition("::")
            assert not test or f"def {test}(" in (ROOT / path).read_text(), name
            assert (ROOT / path).is_file(), name


def test_a_field_that_is_left_out_in_silence_is_found(claims: ModuleType) -> None:
    """A reader that took anything for granted would be caught by what the mutated files are held to."""
    configs = importlib.import_module("claims.configs")
    whole = {"parameters": {"kv_heads": 8}, "description": "x; the config leaves out head_dim 128"}
    read, taken = configs.Read(whole, "", 0.0), {**whole, "parameters": {"kv_heads": 32}}
    assert configs._silent(whole, read, "removed", "kv_heads") == ""
    assert configs._silent(whole, configs.Read(taken, "", 0.0), "removed", "head_dim") == ""
    assert "in silence" in configs._silent(whole, configs.Read(taken, "", 0.0), "removed", "num_key_value_heads")
    assert configs._silent(whole, read, "renamed", "rms") == "renamed rms taken"
    assert "without a path" in configs._silent(whole, configs.Read(None, "no", 0.0), "added", "x")
    kinds = {configs.mutated(CONFIG, Random(seed))[1] for seed in range(20)}
    assert kinds == {"removed", "renamed", "added"}


def test_both_tables_of_serving_are_read(claims: ModuleType, tmp_path: Path) -> None:
    steps = importlib.import_module("reference.serving").steps
    dense, experts = tmp_path / "dense.csv", tmp_path / "experts.csv"
    dense.write_text(
        "model,system,tp,batch,context_tokens,fits,ttft_ms,tpot_ms\n"
        "Llama-3.1-8B,h100_sxm,2,4,512,1,9.5,\nLlama-3.1-8B,h100_sxm,1,4,512,0,9.5,3\nLlama-3.1-8B,v100,1,4,512,1,9,3\n"
    )
    experts.write_text(
        "model,system,tp,attention_dp,ep,batch_per_replica,context_tokens,ttft_ms,tpot_ms,memory_GiB_per_gpu\n"
        "deepseek-ai/DeepSeek-V3,h200_sxm,1,8,8,4,512,9,3,100\ndeepseek-ai/DeepSeek-V3,h200_sxm,8,1,8,4,512,9,3,200\n"
        "Qwen/Qwen3-30B-A3B,h100_sxm,4,1,4,4,512,9,3,20\nQwen/Qwen3-30B-A3B,h100_sxm,16,1,1,4,512,9,3,20\n"
    )
    (one,) = steps(dense)
    assert (one.model, one.plan, one.batch, one.milliseconds) == ("llama-3.1-8b", {"tp": 2}, 4, {"prefill": 9.5})
    by_sequence, by_head = steps(experts)
    assert (by_sequence.batch, by_sequence.plan["mp"]) == (32, 8)
    assert by_sequence.plan["modules"] == {"experts": "outer", "mixer": "n"}
    assert by_head.plan == {"tp": 1, "mp": 4, "modules": {"experts": "outer", "mixer": "outer"}}


def test_a_pinned_answer_refutes_a_worse_optimum_and_what_is_called_infeasible() -> None:
    refuted, graph = importlib.import_module("plan_attack").refuted, SimpleNamespace(microbatch=3, variant=None)
    best, found = (
        SimpleNamespace(status="optimal", value=value, bound=value, graph=graph, fixed=()) for value in (2.0, 1.0)
    )
    limit, none = SimpleNamespace(**{**vars(best), "status": "limit_with_solution", "bound": 0.5}), df.Infeasible("")
    assert refuted(best, found) and refuted(none, found)
    assert not any(refuted(free, None) or refuted(free, none) for free in (best, limit, none))
    assert not refuted(found, best) and not refuted(limit, found) and not refuted(found, found)
    for fixed, said in (("microbatch 1/2/4", True), ("microbatch 3", False), ("recompute: full or none", False)):
        best.fixed = (fixed,)
        assert refuted(df.Infeasible("", fixed=(fixed,)), found) is refuted(best, found) is not said
    best.fixed = ("recompute: attention or full",)
    assert not refuted(best, found)
