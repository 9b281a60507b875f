"""Every command from end to end, as a new user would call it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from cli_tools import GRAPH, ONE_CHIP_MAPPING, RECIPE, SYSTEM, Data, call, changed, spawn, write

import dfopt
from dfopt.documents.assumptions import PROFILES
from dfopt.documents.result import Result

SOLVE = ("solve", "gpt2-small", "sn10-8-ring", "--no-sensitivity")


def solved(*options: object, base: tuple[str, ...] = SOLVE) -> Data:
    """The JSON of a solve that succeeds."""
    answer = call(*base, *options, "--json", "-q")
    assert (answer.code, answer.err) == (0, "")
    text = answer.out if "-o" not in options else Path(options[options.index("-o") + 1]).read_text()  # type: ignore[arg-type]
    found: Data = json.loads(text)
    return found


# --- list, show, check ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind, expected", [("graphs", "gpt3-175b"), ("systems", "sn10-8-torus"), ("assumptions", "dfmodel")]
)
def test_list(kind: str, expected: str) -> None:
    plain, as_json = call("list", kind), call("list", kind, "--json")
    assert plain.code == as_json.code == 0
    names = [line.split()[0] for line in plain.out.splitlines()[2:]]
    assert expected in names == json.loads(as_json.out)


def test_list_alone_tells_the_kinds() -> None:
    answer = call("list")
    assert answer.code == 0
    assert {line.split()[0] for line in answer.out.splitlines()[2:]} == set(json.loads(call("list", "--json").out))


@pytest.mark.parametrize(
    "kind", ["graphs", "systems", "chips", "memories", "links", "topologies", "stacks", "technologies"]
)
def test_lists_have_figures_and_filters(kind: str) -> None:
    rows = call("list", kind).out.splitlines()
    assert len(rows[0].split()) > 1
    word = rows[2].split()[0]
    kept = call("list", kind, word.upper()).out.splitlines()[2:]
    assert kept and all(word in line for line in kept)
    assert json.loads(call("list", kind, word, "--json").out)[0] == word
    assert call("list", kind, "no-such-word").out.splitlines()[2:] == []


@pytest.mark.parametrize("name", ["gpt2-small", "sn10-8-torus", "dfmodel"])
def test_show_of_the_zoo(name: str) -> None:
    answer = call("show", name)
    assert answer.code == 0
    assert name in answer.out
    assert json.loads(call("show", name, "--json").out)["schema"].startswith("dfopt/")


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
    answer = call("check", good, bad, "gpt2-small", "nothing-of-the-kind")
    assert answer.code == 3
    assert answer.out == f"{good}: ok (dfopt/system/1)\ngpt2-small: ok (dfopt/graph/3)\n"
    assert "$.batch" in answer.err
    assert "nothing-of-the-kind" in answer.err
    rows = json.loads(call("check", good, bad, "--json").out)
    assert [row["ok"] for row in rows] == [True, False]
    assert "$.batch" in rows[1]["error"]


def test_check_writes_a_certificate_and_follows_it(tmp_path: Path) -> None:
    path, other, certificate = (tmp_path / name for name in ("r.json", "other.json", "certificate.json"))
    asked = "sn10-8-ring", "--no-sensitivity", "--tp", 8, "--microbatch", 1, "-q"
    for name, file in (("gpt2-small", path), ("llama-68m", other)):
        assert call("solve", name, *asked, "-o", file).code == 0
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
    shell = f"cat {shlex.quote(str(path))} | {shlex.quote(sys.executable)} -m dfopt check /dev/stdin"
    found = subprocess.run(shell, shell=True, capture_output=True, text=True, timeout=60)
    assert (found.returncode, found.stderr) == (0, "")
    assert "ok (dfopt/system/1)" in found.stdout


# --- solve and score ------------------------------------------------------------------------------


def test_solve_in_words() -> None:
    answer = call("solve", "gpt2-small", "sn10-8-ring")
    assert answer.code == 0
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
    wrong = call("solve", "gpt2-small", "sn10-8-ring", "--detail", "kernel")
    assert wrong.code == 2 and "found 'kernel' (did you mean 'kernels'?" in wrong.err


def test_solve_as_json_is_a_result() -> None:
    data = solved("--tp", 8)
    assert data["level_gap"] == 0.0
    assert data["level_gap"] == 0
    assert data["plan"]["tp"] == 8
    result = Result.from_data(data)
    assert result.step_time_s == data["value"] > 0
    assert 0 < data["utilization"] == result.utilization < 1


def test_result_file_scores_and_shows_the_same(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    answer = call(*SOLVE, "-o", path)
    assert answer.code == 0
    result = Result.load(path)
    shown = call("show", path)
    assert (shown.code, shown.out) == (0, answer.out)
    result.mapping.dump(tmp_path / "mapping.yaml")
    for file in (path, tmp_path / "mapping.yaml"):
        judged = call("score", file, "gpt2-small", "sn10-8-ring", "--json")
        assert (judged.code, judged.err) == (0, "")
        assert json.loads(judged.out)["step_time_s"] == pytest.approx(result.step_time_s, rel=1e-12)
    judged = call("score", path, "gpt2-small", "sn10-8-ring").out.splitlines()
    assert judged[:2] == shown.out.splitlines()[:2] and judged[3] == shown.out.splitlines()[3]  # the step


def test_score_keeps_the_assumptions_of_the_result(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    solved("--tp", 8, "--set", "overlap=none", "-o", path)
    same = json.loads(call("score", path, "gpt2-small", "sn10-8-ring", "--json").out)["step_time_s"]
    assert same == pytest.approx(Result.load(path).step_time_s)
    one_more = call("score", path, "gpt2-small", "sn10-8-ring", "--set", "compute_utilization=0.5", "--json")
    slower = json.loads(one_more.out)["step_time_s"]
    default = call("score", path, "gpt2-small", "sn10-8-ring", "--assume", "default", "--json")
    assert json.loads(default.out)["step_time_s"] < same < slower


def test_score_says_when_the_graph_is_another(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    solved("--dp", 8, "-o", path)
    answer = call("score", path, "gpt2-small", "sn10-8-ring", "--param", "hidden=1536")
    assert answer.code == 0
    assert "not the graph that the result was found for" in answer.err


def test_score_names_broken_limits(tmp_path: Path) -> None:
    places = [dict(place, partition=2 - n) for n, place in enumerate(ONE_CHIP_MAPPING["kernels"])]
    files = [
        write(tmp_path, f"{n}.yaml", data)
        for n, data in enumerate((changed(ONE_CHIP_MAPPING, kernels=places), GRAPH, SYSTEM))
    ]
    answer = call("score", *files)
    assert answer.code == 0
    assert "limit broken" in answer.out
    assert json.loads(call("score", *files, "--json").out)["violations"]


def test_without_fusion_never_faster() -> None:
    fused, apart = solved("--tp", 8), solved("--tp", 8, "--kernel-by-kernel")
    assert apart["value"] >= fused["value"]
    assert len({kernel["partition"] for kernel in apart["mapping"]["kernels"]}) == 18


def test_training_and_batch() -> None:
    asked = ("--phase", "training", "--batch", 64, "--microbatch", 1, "--recompute", "none")
    data = solved("--tp", 8, *asked, "--time-limit", 20)
    assert len(data["mapping"]["kernels"]) == 41
    assert data["plan"]["microbatches"] == 64


def test_network_dims_of_an_axis_are_kept_over_those_of_pins(tmp_path: Path) -> None:
    pins = write(tmp_path, "pins.yaml", {"schema": "dfopt/pins/1", "tp": 2, "dp_dims": []})
    plan = solved("--pins", pins, "--tp-dims", "ring[2]")["plan"]
    assert (plan["tp_dims"], plan["pp_dims"], plan["dp_dims"]) == (["ring[2]"], ["ring[4@2]"], [])
    assert solved("--pins", pins, "--tp", 8, "--pp-dims", "")["plan"]["pp"] == 1
    answer = call(*SOLVE, "--dp-dims", "wire")
    assert answer.code == 2 and "--dp-dims: sn10-8-ring has no network dim 'wire'; it has ring" in answer.err


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


def test_own_files_solve(tmp_path: Path) -> None:
    words = ("solve", str(write(tmp_path, "r.json", RECIPE)), str(write(tmp_path, "s.yaml", SYSTEM)))
    data = solved(base=(*words, "--no-sensitivity"))
    assert data["level_gap"] == 0.0


# --- import ---------------------------------------------------------------------------------------


def dfmodel_case() -> Data:
    """A case in DFModel's own words: two matrix products and a normalisation on a ring of four."""

    def kernel(number: int, name: str, m: int, k: int | None) -> Data:
        variant = "elementwise_input1" if k is None else "gemm_input1_weight"
        kind = "SIMD" if k is None else "SYSTOLIC"
        shape = {"outer": 1, "M": m, "K": k, "N": 32}
        return {"id": number, "name": name, "type": kind, "variant": variant, "tiling": "N_TILING", **shape}

    return {
        "name": "small",
        "setup": {
            "system": {
                "num_chip": 4,
                "accelerator": {
                    "core": 16, "systolic_width": 8, "systolic_height": 4, "freq": 1.0, "sram_cap": 1e6,
                },
                "memory": {"dram_bw": 10.0, "dram_cap": 1e9},
                "r": {"x": 4, "link_bw_x": 5.0, "par_x": "TP"},
            },
            "execution": {
                "llm": {"num_layer": 3, "global_batch_size": 8, "micro_batch_size": 1, "seq_len": 32},
                "execution_style": "DATAFLOW", "word": 2, "num_config": 2, "perfect_overlap": True, "compute_util": 0.9,
            },
        },
        "graph": {
            "kernels": [kernel(1, "norm", 64, None), kernel(2, "up", 256, 64), kernel(3, "down", 64, 256)],
            "tensors": [{"src": 1, "dst": 2, "bytes": 64 * 32 * 2}, {"src": 2, "dst": 3, "bytes": 256 * 32 * 2}],
        },
    }  # fmt: skip


def test_import_then_the_printed_command(tmp_path: Path) -> None:
    case, folder = write(tmp_path, "small.json", dfmodel_case()), tmp_path / "out"
    answer = call("import", "dfmodel", case, "-o", folder)
    assert (answer.code, answer.err) == (0, "")
    assert call("check", *sorted(folder.iterdir())).code == 0
    printed = shlex.split(answer.out.strip().splitlines()[-1])
    assert printed[:2] == ["dfopt", "solve"]
    data = solved(base=tuple(printed[1:]))
    assert data["level_gap"] == 0.0
    assert data["plan"]["tp"] == 4
    assert data["plan"]["layers_per_stage"] == 3
    assert len({kernel["partition"] for kernel in data["mapping"]["kernels"]}) == 2


def test_import_of_an_unsupported_case(tmp_path: Path) -> None:
    case = changed(dfmodel_case(), setup__system__HBD=3)
    answer = call("import", "dfmodel", write(tmp_path, "c.json", case), "-o", tmp_path / "out")
    assert answer.code == 3
    assert "not supported yet: HBD on axes" in answer.err


def test_import_of_a_case_that_leaves_something_out(tmp_path: Path) -> None:
    case = dfmodel_case()
    del case["setup"]["execution"]["word"]
    file, out = write(tmp_path, "c.json", case), tmp_path / "out"
    answer = call("import", "dfmodel", file, "-o", out)
    assert answer.code == 3
    assert "c.json: 1 problem\n  $.setup.execution.word: missing (an override can give it: {setup:" in answer.err
    override = {"reason": "2 bytes, as its tensors have", "setup": {"execution": {"word": 2}}}
    overrides = {"schema": "dfopt/dfmodel-overrides/1", "cases": {"c": [override]}}
    answer = call("import", "dfmodel", file, "-o", out, "--overrides", write(tmp_path, "o.json", overrides))
    assert (answer.code, answer.err) == (0, "")
    assert "note: overridden: 2 bytes, as its tensors have" in answer.out


# --- the frame ------------------------------------------------------------------------------------


def test_version_by_module() -> None:
    answer = spawn("--version")
    assert (answer.code, answer.out, answer.err) == (0, f"dfopt {dfopt.__version__}\n", "")


@pytest.mark.parametrize("words", ["", "list", "show", "check", "solve", "score", "schema", "import", "import dfmodel"])
def test_help_everywhere(words: str) -> None:
    short, long = call(*words.split(), "-h"), call(*words.split(), "--help")
    assert short.code == 0
    assert short.out == long.out
    assert "Usage: " in short.out
    assert max(len(line) for line in short.out.splitlines()) <= 80


@pytest.mark.parametrize("columns", ["80", "140"])
def test_tables_fit_and_are_not_padded(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    solve = ("solve", "gpt2-small", "sn10-8-torus", "--detail", "all")
    for words in (solve, ("show", "gpt3-1t"), ("show", "sn30-1024-2dtorus")):
        lines = call(*words).out.splitlines()
        assert all(line == line.rstrip() and len(line) <= int(columns) for line in lines)
        assert not any("…" in line for line in lines), "something is cut"
    assert any("LayerNorm_1" in line for line in call(*solve).out.splitlines())


def test_a_reader_that_goes_away_is_no_error() -> None:
    shell = f"{shlex.quote(sys.executable)} -m dfopt show gpt3-1t --json | head -1"
    found = subprocess.run(shell, shell=True, capture_output=True, text=True, timeout=60)
    assert (found.stdout, found.stderr) == ("{\n", "")


def test_text_is_ascii_where_the_terminal_is(tmp_path: Path) -> None:
    answer = spawn("show", "gpt2-small", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (answer.code, answer.err) == (0, "")
    assert "18 kernels" in answer.out
    french = write(tmp_path, "g.yaml", changed(GRAPH, description="réseau → carte"))
    answer = spawn("show", french, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert "Traceback" not in answer.err


def test_help_of_solve_is_grouped_by_purpose() -> None:
    out = call("solve", "--help-all").out
    places = [
        out.index(f"\n{name}:\n")
        for name in ("Workload and model", "Machine", "Parallelism", "Search", "Fixed by hand", "Heat", "Output")
    ]
    assert places == sorted(places)
    assert out.index("\n  --param ") < out.index("\nParallelism:") < out.index("\n  --tp ") < out.index("\nSearch:")


def test_shells_complete_commands() -> None:
    env = {"_DFOPT_COMPLETE": "complete_bash", "COMP_WORDS": "dfopt so", "COMP_CWORD": "1"}
    script = "import sys; sys.argv = ['dfopt']; from dfopt.cli import run; run()"
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, env={**os.environ, **env}
    )
    assert found.stdout.split() == ["solve"]
