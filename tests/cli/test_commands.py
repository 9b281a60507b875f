"""Every command from end to end, as a new user would call it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from cli_tools import GRAPH, ONE_CHIP_MAPPING, SYSTEM, Data, answered, assert_refused, call, changed, run, shell, write

import dfopt
import dfopt as df
from dfopt.documents.assumptions import PROFILES
from dfopt.documents.result import Result
from dfopt.documents.zoo import zoo

SHELVES = ("graphs", "systems", "chips", "memories", "links", "topologies", "stacks", "technologies")
SOLVE = ("solve", "gpt2-small", "sn10-8-ring", "--no-sensitivity")


def solved(*options: object, base: tuple[str, ...] = SOLVE) -> Data:
    """The JSON of a solve that succeeds."""
    answer = run(*base, *options, "--json", "-q")
    assert answer.err == ""
    found: Data = json.loads(answer.out)
    return found


# --- list, show, check ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [None, "assumptions", "graphs", "systems", "stacks"])
def test_a_list_has_the_same_names_as_json(kind: str | None) -> None:
    words = ("list", kind) if kind else ("list",)
    names = [line.split()[0] for line in run(*words).out.splitlines()[2:]]
    assert names == answered(*words)
    assert kind not in SHELVES or names == zoo(kind)


@pytest.mark.parametrize("kind", SHELVES)
def test_lists_have_figures_and_filters(kind: str) -> None:
    rows = call("list", kind).out.splitlines()
    assert len(rows[0].split()) > 1
    word = rows[2].split()[0]
    kept = call("list", kind, word.upper()).out.splitlines()[2:]
    assert kept and all(word in line for line in kept)
    assert answered("list", kind, word)[0] == word
    assert call("list", kind, "no-such-word").out.splitlines()[2:] == []


def test_show_of_a_graph_with_parameters() -> None:
    assert "18 kernels, 21 tensors" in call("show", "gpt2-small").out
    training = call("show", "gpt2-small", "--param", "mode=training", "--param", "batch=64").out
    assert "41 kernels, 53 tensors" in training
    assert "loaded with batch=64, mode='training'" in training


def test_show_says_what_is_read_and_written_at_the_ends() -> None:
    layer = call("show", "gpt2-small").out
    assert "inputs   none\noutputs  none\ncarried  Add_2 to Add_Prev_Layer" in layer
    model = call("show", "dlrm-v2-mlperf", "--param", "mode=forward").out
    assert "inputs   read from DRAM: Bottom_1 426 kB\noutputs  written to DRAM: Top_5_Act 32.77 kB" in model


def test_show_of_a_table_of_shares(tmp_path: Path) -> None:
    assert "shares" not in call("show", "h100-8").out
    rows = [
        {"unit": "matrix", "flop": "1 GFLOP", "extent": 128, "share": 0.85},
        {"unit": "vector", "share": 0.1},
        {"unit": "matrix", "extent": 64, "share": "60 %"},
        {"unit": "matrix", "share": 0.3},
    ]
    lines = call("show", write(tmp_path, "s.yaml", changed(SYSTEM, chip__efficiency=rows))).out.splitlines()
    assert "matrix shares  85 % from 1 GFLOP and extents of 128, 60 % from extents of 64, else 30 %" in lines
    assert "vector shares  10 %" in lines


def test_a_zoo_system_solves_under_its_table_of_shares() -> None:
    base = ("solve", "gpt2-small", "a100-8", "--no-sensitivity")
    small = solved("--set", "compute_model=efficiency", base=base)
    assert small["level_gap"] == 0.0
    assert small["utilization"] < solved(base=base)["utilization"]


def test_show_leaves_brackets_and_colons_alone(tmp_path: Path) -> None:
    path = write(tmp_path, "g.yaml", changed(GRAPH, description="[bold] words in [brackets] and :smile:"))
    assert "[bold] words in [brackets] and :smile:" in call("show", path).out
    plan = write(tmp_path, "p.yaml", {"schema": "dfopt/plan/1", "tp": 8, "tp_dims": ["x", "y"]})
    assert "tp_dims: [x, y]" in call("show", plan).out


def test_check_of_good_and_bad(tmp_path: Path) -> None:
    good, bad = write(tmp_path, "good.json", SYSTEM), write(tmp_path, "bad.yaml", changed(GRAPH, batch=0))
    answer = run("check", good, bad, "gpt2-small", "nothing-of-the-kind", code=3)
    assert answer.out == f"{good}: ok (dfopt/system/1)\ngpt2-small: ok (dfopt/graph/3)\n"
    assert "$.batch" in answer.err
    assert "nothing-of-the-kind" in answer.err
    rows = answered("check", good, bad, code=3)
    assert [row["ok"] for row in rows] == [True, False]
    assert "$.batch" in rows[1]["error"]


def test_check_writes_a_certificate_and_follows_it(tmp_path: Path) -> None:
    path, other, certificate = (tmp_path / name for name in ("r.json", "other.json", "certificate.json"))
    asked = "sn10-8-ring", "--no-sensitivity", "--tp", 8, "--microbatch", 1, "-q"
    for name, file in (("gpt2-small", path), ("llama-68m", other)):
        run("solve", name, *asked, "-o", file)
    first = call("check", path, "-o", certificate)
    again = call("check", path, "--certificate", certificate)
    assert (first.code, again.code) == (0, 0)
    assert first.out.splitlines()[0] == again.out.splitlines()[0] == f"{path}: verified optimal"
    assert "regions were bounded as the certificate says" in again.out
    assert "certificate: of a result with the seal" in call("check", other, "--certificate", certificate).err
    assert "only a result has one" in call("check", "gpt2-small", "--certificate", certificate).err
    assert "there is no certificate of gpt2-small" in call("check", "gpt2-small", "-o", certificate).err
    assert "found 2 files, expected one result" in call("check", path, other, "-o", certificate).err
    assert "is a file that is read or written too" in call("check", path, "-o", path).err
    assert "no such file" in call("check", path, "--certificate", tmp_path / "none.json").err


def test_check_reads_a_pipe_once(tmp_path: Path) -> None:
    path = write(tmp_path, "s.yaml", SYSTEM)
    found = shell(f"cat {shlex.quote(str(path))} | dfopt check /dev/stdin")
    assert (found.code, found.err) == (0, "")
    assert "ok (dfopt/system/1)" in found.out


# --- solve and score ------------------------------------------------------------------------------


def test_solve_in_words() -> None:
    answer = run("solve", "gpt2-small", "sn10-8-ring")
    assert all(", bound " in line for line in answer.err.splitlines())  # a busy machine takes long enough for progress
    lines = answer.out.splitlines()
    assert len(lines) <= 16 and max(map(len, lines)) <= 80
    names = ["plan", "step", "time", "memory", "10_%", "efficiency", "proof", "fixed", "left"]
    assert [line.split("  ")[0].replace(" ", "_").split("_more")[0].split("_out")[0] for line in lines[2:-1]
            if not line.startswith(" ")] == names  # fmt: skip
    assert "optimal: none of " in answer.out and lines[-1].startswith("proven after ")


def test_sections_of_an_answer_are_printed_on_request() -> None:
    whole = call("solve", "gpt2-small", "sn10-8-ring", "--detail", "all").out
    for piece in ("utilization", "optimal: no mapping in the space is better", "bottleneck", "With 10 %", "kernels"):
        assert piece in whole
    kernels = call("solve", "gpt2-small", "sn10-8-ring", "--detail", "kernels").out
    assert "bound by" in kernels and "With 10 %" not in kernels
    wrong = run("solve", "gpt2-small", "sn10-8-ring", "--detail", "kernel", code=2)
    assert "found 'kernel' (did you mean 'kernels'?" in wrong.err


def test_solve_as_json_is_a_result() -> None:
    data = solved("--tp", 8)
    assert data["level_gap"] == 0
    assert data["plan"]["tp"] == 8
    result = Result.from_data(data)
    assert result.step_time_s == data["value"] > 0
    assert 0 < data["utilization"] == result.utilization < 1


def test_result_file_scores_and_shows_the_same(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    answer = run(*SOLVE, "-o", path)
    result = Result.load(path)
    assert run("show", path).out == answer.out
    result.mapping.dump(tmp_path / "mapping.yaml")
    for file in (path, tmp_path / "mapping.yaml"):
        judged = answered("score", file, "gpt2-small", "sn10-8-ring")
        assert judged["step_time_s"] == pytest.approx(result.step_time_s, rel=1e-12)
    lines, of_score = answer.out.splitlines(), run("score", path, "gpt2-small", "sn10-8-ring").out.splitlines()
    assert of_score[:2] == lines[:2] and of_score[3] == lines[3]  # the step


def test_score_keeps_the_assumptions_of_the_result(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    run(*SOLVE, "--tp", 8, "--set", "overlap=none", "-q", "-o", path)
    asked = ("score", path, "gpt2-small", "sn10-8-ring")
    options = ([], ["--set", "compute_utilization=0.5"], ["--assume", "default"])
    same, slower, default = (answered(*asked, *more)["step_time_s"] for more in options)
    assert same == pytest.approx(Result.load(path).step_time_s)
    assert default < same < slower


def test_score_says_when_the_graph_is_another(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    run(*SOLVE, "--dp", 8, "-q", "-o", path)
    answer = run("score", path, "gpt2-small", "sn10-8-ring", "--param", "hidden=1536")
    assert "not the graph that the result was found for" in answer.err


def test_score_names_broken_limits(tmp_path: Path) -> None:
    places = [dict(place, partition=2 - n) for n, place in enumerate(ONE_CHIP_MAPPING["kernels"])]
    documents = (changed(ONE_CHIP_MAPPING, kernels=places), GRAPH, SYSTEM)
    files = [write(tmp_path, f"{number}.yaml", data) for number, data in enumerate(documents)]
    assert "limit broken" in run("score", *files).out
    assert answered("score", *files)["violations"]


def test_without_fusion_never_faster() -> None:
    fused, apart = solved("--tp", 8), solved("--tp", 8, "--kernel-by-kernel")
    assert apart["value"] >= fused["value"]
    assert len({kernel["partition"] for kernel in apart["mapping"]["kernels"]}) == 18


def test_training_and_batch() -> None:
    data = solved("--tp", 8, "--phase", "training", "--batch", 64, "--microbatch", 1, "--recompute", "none")
    assert len(data["mapping"]["kernels"]) == 41
    assert data["plan"]["microbatches"] == 64


def test_network_dims_of_an_axis_are_kept_over_those_of_pins(tmp_path: Path) -> None:
    pins = write(tmp_path, "pins.yaml", {"schema": "dfopt/pins/1", "tp": 2, "dp_dims": []})
    plan = solved("--pins", pins, "--tp-dims", "ring[2]")["plan"]
    assert (plan["tp_dims"], plan["pp_dims"], plan["dp_dims"]) == (["ring[2]"], ["ring[4@2]"], [])
    assert solved("--pins", pins, "--tp", 8, "--pp-dims", "")["plan"]["pp"] == 1
    said = "--dp-dims: sn10-8-ring has no network dim 'wire'; it has ring"
    assert_refused(call(*SOLVE, "--dp-dims", "wire"), 2, said)


def test_pins_and_shards_are_kept() -> None:
    data = solved("--tp", 8, "--pin", "Add_2=1", "--shard", "FFN0=k", "--p-max", 3)
    place = {kernel["name"]: kernel for kernel in data["mapping"]["kernels"]}
    assert place["Add_2"]["partition"] == 1
    assert place["FFN0"]["sharding"] == "k"


def test_assumptions_by_profile_field_and_file(tmp_path: Path) -> None:
    options = ("--assume", "dfmodel", "--set", "all_reduce_passes=1", "--p-max", 4, "--tp", 8)
    data = solved(*options)
    assert data["assumptions"]["all_reduce_passes"] == 1
    assert data["assumptions"]["profile"] == "dfmodel (changed)"
    assert len({kernel["partition"] for kernel in data["mapping"]["kernels"]}) == 4
    PROFILES["dfmodel"].dump(tmp_path / "mine.yaml")
    mine = ("--assume", tmp_path / "mine.yaml", *options[2:])
    assert solved(*mine)["value"] == data["value"]


# --- the frame ------------------------------------------------------------------------------------


def test_version_by_module() -> None:
    answer = shell("dfopt --version")
    assert (answer.code, answer.out, answer.err) == (0, f"dfopt {dfopt.__version__}\n", "")


@pytest.mark.parametrize("words", ["", "list", "show", "check", "solve", "score", "schema", "import", "import dfmodel"])
def test_help_everywhere(words: str) -> None:
    out = run(*words.split(), "-h").out
    assert out == run(*words.split(), "--help").out
    assert "Usage: " in out
    assert max(len(line) for line in out.splitlines()) <= 80


def test_a_reader_that_goes_away_is_no_error() -> None:
    found = shell("dfopt show gpt3-1t --json | head -1")
    assert (found.out, found.err) == ("{\n", "")


def test_text_is_ascii_where_the_terminal_is(tmp_path: Path) -> None:
    ascii_only = "export PYTHONIOENCODING=ascii PYTHONUTF8=0; dfopt show"
    answer = shell(f"{ascii_only} gpt2-small")
    assert (answer.code, answer.err) == (0, "")
    assert "18 kernels" in answer.out
    french = write(tmp_path, "g.yaml", changed(GRAPH, description="réseau → carte"))
    assert "Traceback" not in shell(f"{ascii_only} {french}").err


def test_help_of_solve_is_grouped_by_purpose() -> None:
    out = call("solve", "--help-all").out
    groups = ("Workload and model", "Machine", "Parallelism", "Search", "Fixed by hand", "Heat", "Output")
    places = [out.index(f"\n{name}:\n") for name in groups]
    assert places == sorted(places)
    assert out.index("\n  --param ") < out.index("\nParallelism:") < out.index("\n  --tp ") < out.index("\nSearch:")


def test_shells_complete_commands() -> None:
    env = {**os.environ, "_DFOPT_COMPLETE": "complete_bash", "COMP_WORDS": "dfopt so", "COMP_CWORD": "1"}
    words = [sys.executable, "-c", "import sys; sys.argv = ['dfopt']; from dfopt.cli import run; run()"]
    assert subprocess.run(words, capture_output=True, text=True, timeout=60, env=env).stdout.split() == ["solve"]


BYTES = 8 * 2**30


def test_it_says_time_algorithm_and_bandwidths() -> None:
    said = call("collective", "all_to_all", "h100-256", "--set", "network.cluster.size=2", "--bytes", "8 GiB").out
    assert "over 16 chips: node, cluster" in said
    assert "at the same time" in said
    assert "93.73 GB/s" in said  # 15/16 of 8 GiB over half of it at 50 GB/s, and 17 us


# by hand: h100-8 has 450 GB/s per chip, 9 us of overhead, and 2 us per round
@pytest.mark.parametrize(
    ("kind", "share", "factor"),
    [("all_reduce", 2 * 7 / 8, 2 * 7 / 8), ("all_gather", 7 / 8, 7 / 8), ("reduce_scatter", 7 / 8, 7 / 8),
     ("all_to_all", 7 / 8, 7 / 8), ("broadcast", 2 * 7 / 8, 1), ("point_to_point", 1, 1)],
)  # fmt: skip
def test_python_and_the_command_line_agree(kind: str, share: float, factor: float) -> None:
    made = df.collective(kind, "h100-8", BYTES)
    assert made.time_s - made.latency_s == pytest.approx(share * BYTES / 450e9)
    assert made.algorithm_bandwidth == BYTES / made.time_s
    assert made.bus_bandwidth == pytest.approx(factor * BYTES / made.time_s)
    told = answered("collective", kind, "h100-8", "--bytes", "8 GiB")
    assert (told["time_s"], told["bus_bandwidth"]) == (made.time_s, made.bus_bandwidth)


def test_assumptions_and_dims_change_it() -> None:
    names = ("node", "cluster[2]")
    in_turn = df.collective("all_to_all", "h100-256", BYTES, names, df.Assumptions(all_to_all_dims="in_turn"))
    assert in_turn.bus_bandwidth == pytest.approx(78.5e9, rel=1e-3)
    assert in_turn.algorithm.endswith("one after the other")
    slower = df.collective("all_reduce", "h100-8", BYTES, assumptions="calibrated")
    assert slower.time_s > df.collective("all_reduce", "h100-8", BYTES).time_s
    assert "(measured)" in slower.algorithm


STEP = "gpt2-small a100-8 --assume ideal --param mode=training --batch 16 --no-sensitivity -q"


def test_each_is_fixed_told_and_exported(tmp_path: Path) -> None:
    said = ["--tp", "1", "--pp", "2", "--recompute", "full/none", "--recompute-layers", "2", "--schedule", "1f1b"]
    said += ["--zero", "1", "--zero-replicas", "2", "--set", "point_to_point_overlap=hidden"]
    said += ["--kernel-by-kernel", "--detail", "plan,decisions"]
    out = run("solve", *STEP.split(), *said, "-o", tmp_path / "r.json").out
    rows = (line.split(None, 1) for line in out.splitlines())
    lines = {row[0]: row[1] for row in rows if len(row) > 1 and row[0] in ("plan", "recomputed", "schedule")}
    assert "ZeRO-1x2 R2" in lines["plan"] and lines["plan"].endswith("6 layers per stage, 2 of them recomputed")
    assert lines["recomputed"] == "2 layers of each stage; to fit the first stage 0, the last 0"
    assert lines["schedule"].startswith("1F1B ")
    plan = Result.load(tmp_path / "r.json").plan
    assert plan.hybrid is not None and (plan.recomputed, plan.zero, plan.hybrid.replicas) == (2, 1, 2)
    run("check", tmp_path / "r.json")
    run("export", "megatron", tmp_path / "r.json", "-o", tmp_path)
    told = (tmp_path / "megatron.args").read_text().splitlines()
    assert {"--recompute-method block", "--recompute-num-layers 2", "--num-distributed-optimizer-instances 2"} < {*told}
    assert "sending on: hidden" in (tmp_path / "not-expressed.txt").read_text()


def test_sequence_parallelism_is_forced_and_exported(tmp_path: Path) -> None:
    force = ["--tp", "4", "--pp", "1", "--set", "sequence_parallelism=force", "--set", "execution=kernel_by_kernel"]
    run("solve", *STEP.split(), *force, "--gap", "100%", "-o", tmp_path / "r.json")
    data = json.loads((tmp_path / "r.json").read_text())
    assert not any(kind.startswith("all_reduce") for kind in data["score"]["collectives"])
    run("export", "megatron", tmp_path / "r.json", "-o", tmp_path)
    assert "--sequence-parallel" in (tmp_path / "megatron.args").read_text().splitlines()


def test_fields_of_the_system_are_set_and_stored(tmp_path: Path) -> None:
    words = ["--set", "network.nvlink.size=4", "--set", "chip.dram.bandwidth=1 TB/s", "--set", "bubble=stages"]
    out = tmp_path / "r.json"
    run("solve", *STEP.split(), *words, "--gap", "100%", "--json", "-o", out)
    result = Result.load(out)
    assert (result.system.chips, result.system.chip.fastest.bandwidth) == (4, 1e12)
    assert result.assumptions.bubble == "stages"
    assert "network.nvlink.size=4" in (result.system.description or "")
