"""`dfopt import` and `dfopt export` from the command line: files, what is left out, refusals, the way back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_tools import Answer, Data, answered, assert_refused, call, changed, own_folder, run, write

import dfopt as df
from dfopt.exports.tools import TOOLS
from dfopt.frontends.megatron.shardings import megatron_shardings
from dfopt.frontends.megatron.training_run import load_run
from dfopt.workloads import load_graph

_inside = pytest.fixture(autouse=True)(own_folder)

GOLDEN = Path(__file__).parents[1] / "golden"
BY_KERNEL = df.Assumptions(execution="kernel_by_kernel")
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "gpt3-175b": (
        {"batch": 512, "recompute": "full"},
        {"tp": 8, "pp": 8, "zero": (1,), "interleave": 3},
        {"tp_dims": ("node",), "pp_dims": ("cluster[8]",), "dp_dims": ("cluster[8@8]",)},
    ),
    "llama-3.1-405b": (
        {"batch": 512, "recompute": "full", "ends": True, "vocab": 129024},  # 126 x 128 x 8
        {"tp": 8, "pp": 64, "interleave": 1},
        {"tp_dims": ("node",), "pp_dims": ("cluster",)},
    ),
    "mixtral-8x7b": (
        {"batch": 256, "microbatch": 8, "recompute": "full", "vocab": 32256},  # 63 x 128 x 4
        {"tp": 4, "mp": 8, "pp": 4, "zero": (1,), "interleave": 2}
        | {"modules": {"stream": "n", "mixer": "n", "dense": "n", "experts": "outer"}},
        {"tp_dims": ("node[4]",), "mp_dims": ("node[2@4]", "cluster[4]"), "pp_dims": ("cluster[4@4]",)}
        | {"dp_dims": ("cluster[4@16]",)},
    ),
}  # model -> parameters of its graph, what arguments say of the plan, and the dims, which no argument says
SIZES = """--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 32 # a small one
--micro-batch-size 1 \\
  --global-batch-size=8 --bf16 --tensor-model-parallel-size 2 --sequence-parallel
"""


LAST = "--pipeline-model-parallel-size 2 --vocab-size 512"
EMBEDDING, LOSS = (f"--account-for-{part}-in-pipeline-split" for part in ("embedding", "loss"))


def follow(done: Answer, *options: object, system: str = "") -> Data:
    """The JSON of the command that an import prints in its last line."""
    program, *words = done.out.splitlines()[-1].replace("SYSTEM", system).split()
    assert program == "dfopt"
    found: Data = answered(*words, *options)
    return found


# --- Megatron-LM ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_round_trip_through_megatron(name: str) -> None:
    """Of a training step whose shardings are Megatron-LM's, kernel by kernel."""
    parameters, fixed, dims = CASES[name]
    graph = load_graph(name, mode="training", **parameters)
    given = {"assumptions": BY_KERNEL, "sensitivity": False}
    pins = megatron_shardings(graph, fixed["tp"], True)
    result = df.optimize(graph, "a100-512", pin_sharding=pins, **given, **fixed, **dims)
    result.dump("r.json")
    for tool in TOOLS:
        done = run("export", tool, "r.json", "-o", tool)
        left_out = Path(tool, "not-expressed.txt").read_text()
        assert left_out in done.out
        assert "network dims" in left_out and "overlap" in left_out
        assert "shardings" not in left_out

    # its own mapping: judged as before
    done = run("import", "megatron", "megatron/megatron.args", "--result", "megatron/result.json", "-o", "same")
    assert follow(done)["step_time_s"] == pytest.approx(result.step_time, rel=1e-9)

    # from the arguments alone: the graph and Megatron-LM's shardings are made anew, and are those of the result
    read = load_run("megatron/megatron.args")
    found = df.optimize(read.graph, result.system, **given, **{**read.options(), **dims})
    assert found.step_time == pytest.approx(result.step_time, rel=1e-9)
    assert found.plan == result.plan


def test_an_embedding_and_a_loss_may_count_as_layers() -> None:
    """Of 14 layers on 4 stages in 2 chunks, the first chunk has one less, and the last; the way back says so again."""
    sizes = SIZES.replace("--num-layers 4", "--num-layers 14").replace("-size=8", "-size=16")
    words = "--pipeline-model-parallel-size 4 --vocab-size 512 --num-virtual-stages-per-pipeline-rank 2"
    Path("run.args").write_text(f"{sizes.strip()} {words} {EMBEDDING} {LOSS}")
    read = load_run("run.args")
    assert (read.fixed["first_layers"], read.fixed["last_layers"], read.fixed["interleave"]) == (3, 3, 2)
    result = df.optimize(read.graph, "h100-8", assumptions=BY_KERNEL, sensitivity=False, **read.options())
    assert result.plan.stage_layers == (3, 4, 3)
    result.dump("r.json")
    done = run("export", "megatron", "r.json", "-o", "out")
    exported = {*Path("out/megatron.args").read_text().splitlines()}
    assert {EMBEDDING, LOSS, "--num-virtual-stages-per-pipeline-rank 2"} < exported
    assert "\n  stages:" not in done.out
    again = load_run("out/megatron.args")
    assert again.fixed == read.fixed | {"zero": again.fixed["zero"]}


def test_imported_arguments_are_solved() -> None:
    Path("run.args").write_text(SIZES)
    done = run("import", "megatron", "run.args", "-o", "run")
    run("check", "run/graph.yaml", "run/pins.yaml")
    plan = follow(done, "--no-sensitivity", "--kernel-by-kernel", "-q", system="h100-8")["plan"]
    assert (plan["tp"], plan["dp"]) == (2, 4)
    yaml = {"num_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "seq_length": 32, "micro_batch_size": 1}
    yaml |= {"global_batch_size": 8, "bf16": True, "tensor-model-parallel-size": 2, "sequence-parallel": True}
    Path("run.yaml").write_text(json.dumps(yaml | {"swiglu": False}))
    assert load_run("run.yaml") == load_run("run.args")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("--recompute-granularity some", "$.recompute-granularity: found 'some'"),
        ("--bf16", "$.bf16: found twice"),
        ("--num-experts 8 --expert-model-parallel-size 3", "$.expert-model-parallel-size: found 3 for 8 experts"),
        (
            "--recompute-granularity full --recompute-method uniform --recompute-num-layers 3",
            "$.recompute-num-layers: found 3 layers behind a checkpoint, where chunks of stages have 4 at most",
        ),
        (
            "--grad-reduce-in-bf16 --accumulate-allreduce-grads-in-fp32",
            "$.grad-reduce-in-bf16: found it beside --accumulate-allreduce-grads-in-fp32",
        ),
        ("--multi-latent-attention", "$.multi-latent-attention: found latent attention, which is not read"),
        ("--context-parallel-size 2 --cp-comm-type a2a", "$.cp-comm-type: found a2a, which is not modelled"),
        ("--fp16", "$.fp16: found it beside --bf16"),
        (LOSS, "found it without --vocab-size"),
        (f"{LOSS} {LAST}", "found 5 layers with it on 2 stages"),
        (f"{LOSS} --decoder-last-pipeline-num-layers 1 {LAST}", "found it beside layers of"),
        ("--swiglu 3", "$.swiglu: found 3, expected true or false"),
        ("'", "cannot be read as shell words"),
    ],
)
def test_bad_arguments_are_one_error(more: str, said: str) -> None:
    Path("run.args").write_text(SIZES + more)
    assert_refused(call("import", "megatron", "run.args", "-o", "run"), 3, said)
    assert not Path("run").exists()


def test_missing_arguments_are_named() -> None:
    Path("run.args").write_text("--num-layers 4 stray --hidden-size 64")
    said = ("$.num-layers", "$.global-batch-size: it is missing (add --global-batch-size)")
    assert_refused(call("import", "megatron", "run.args", "-o", "run"), 3, *said)


def dump_small(path: str, **parameters: Any) -> None:
    """Write a result on eight chips."""
    graph = load_graph("gpt2-small", batch=8, **parameters)
    df.optimize(graph, "h100-8", assumptions=BY_KERNEL, tp=2, pp=1, interleave=1, sensitivity=False).dump(path)


def test_bad_exports_are_one_error_each() -> None:
    dump_small("forward.json")
    dump_small("training.json", mode="training")
    Path("file").write_text("mine")
    of_forward = "which trains nothing, expected one of a training step (solve the graph with --param mode=train"
    assert_refused(call("export", "megatron", "forward.json", "-o", "out"), 3, of_forward)
    tools = "expected one of megatron, deepspeed, torchtitan, nemo, found 'megatrom'"
    assert_refused(call("export", "megatrom", "training.json", "-o", "out"), 2, tools)
    no_folder = "cannot be a folder: it is a file (name a new folder)"
    assert_refused(call("export", "nemo", "training.json", "-o", "file"), 3, no_folder)
    assert not Path("out").exists() and Path("file").read_text() == "mine"


def test_edited_arguments_are_not_those_of_the_result() -> None:
    dump_small("r.json", mode="training")
    run("export", "megatron", "r.json", "-o", "out")
    arguments = Path("out/megatron.args")
    text = arguments.read_text()
    assert "--tensor-model-parallel-size 2\n" in text
    for edited, said in (
        (text.replace("parallel-size 2\n", "parallel-size 4\n"), "$.tensor-model-parallel-size: found 4, but 2 in the"),
        (text + "--use-distributed-optimizer\n", "$.use-distributed-optimizer"),
    ):
        arguments.write_text(edited)
        assert_refused(call("import", "megatron", arguments, "--result", "r.json", "-o", "back"), 3, said)


# --- DFModel --------------------------------------------------------------------------------------

CASE: Data = json.loads((GOLDEN / "dfmodel/table6_dfmodel_8x1.json").read_text(encoding="utf-8"))


def test_import_then_the_printed_command(tmp_path: Path) -> None:
    done = run("import", "dfmodel", write(tmp_path, "small.json", CASE), "-o", "out")
    assert done.err == ""
    run("check", *sorted(Path("out").iterdir()))
    data = follow(done, "--no-sensitivity", "-q")
    assert (data["level_gap"], data["plan"]["tp"], data["plan"]["layers_per_stage"]) == (0.0, 8, 96)
    assert len({kernel["partition"] for kernel in data["mapping"]["kernels"]}) == 4
    assert data["utilization"] == pytest.approx(CASE["outputs"]["utilization"], rel=1e-6)


def test_import_of_an_unsupported_case(tmp_path: Path) -> None:
    case = write(tmp_path, "c.json", changed(CASE, setup__system__HBD=3))
    assert_refused(call("import", "dfmodel", case, "-o", "out"), 3, "not supported yet: HBD on axes")


def test_import_of_a_case_that_leaves_something_out(tmp_path: Path) -> None:
    file = write(tmp_path, "c.json", changed(CASE, setup__execution__word=...))
    said = "c.json: 1 problem\n  $.setup.execution.word: missing (an override can give it: {setup:"
    assert_refused(call("import", "dfmodel", file, "-o", "out"), 3, said)
    override = {"reason": "2 bytes, as its tensors have", "setup": {"execution": {"word": 2}}}
    overrides = {"schema": "dfopt/dfmodel-overrides/1", "cases": {"c": [override]}}
    answer = run("import", "dfmodel", file, "-o", "out", "--overrides", write(tmp_path, "o.json", overrides))
    assert answer.err == "" and "note: overridden: 2 bytes, as its tensors have" in answer.out


# --- Calculon -------------------------------------------------------------------------------------

APP = {"hidden": 256, "feedforward": 1024, "seq_size": 64, "attn_heads": 4, "attn_size": 64, "num_blocks": 4}
STEPS = json.loads((GOLDEN / "calculon/layers.json").read_text(encoding="utf-8"))["cases"]
EXEC: dict[str, Any] = {
    **STEPS["gpt3-175B_tp8_attn_rsag_redo"]["execution"],
    "num_procs": 16, "tensor_par": 2, "pipeline_par": 2, "data_par": 4, "batch_size": 32, "microbatch_size": 2,
    "pipeline_interleaving": 2,
}  # fmt: skip


A100 = GOLDEN / "calculon/a100_80g.json"


@pytest.fixture(autouse=True)
def _files(_inside: None) -> None:
    """A small application and an execution of Calculon."""
    Path("tiny.json").write_text(json.dumps(APP))
    Path("exec.json").write_text(json.dumps(EXEC))


def test_import_check_solve_and_check_again() -> None:
    done = run("import", "calculon", "tiny.json", A100, "exec.json", "-o", "case")
    files = [f"case/{name}.yaml" for name in ("graph", "system", "assumptions", "pins")]
    assert done.out.splitlines()[:4] == [f"wrote {file}" for file in files]
    run("check", *files)
    answer = follow(done, "--no-sensitivity", "-q")
    plan = answer["mapping"]["plan"]
    assert [plan[key] for key in ("tp", "pp", "dp", "interleave", "microbatches")] == [2, 2, 4, 2, 4]
    assert answer["score"]["collectives"]["all_gather.forward"] == 2
    assert {one["sharding"] for one in answer["mapping"]["kernels"]} == {"m", "n", "k", "k>n", "outer"}
    run("check", write(Path(), "result.json", answer))


def test_without_an_execution_there_are_no_pins() -> None:
    done = run("import", "calculon", "tiny.json", A100, "-o", "free")
    assert {path.name for path in Path("free").iterdir()} == {"assumptions.yaml", "graph.yaml", "system.yaml"}
    assert done.out.splitlines()[-1].endswith("--assume free/assumptions.yaml --zero 0,1")


def test_what_cannot_be_said_is_one_error() -> None:
    wanted = {"attention_type": "multiquery", "tensor_par_comm_type": "p2p_rs_ag", "activation_recompute": "full"}
    Path("exec.json").write_text(json.dumps(EXEC | wanted | {"seq_par_ag_redo": False}))
    assert_refused(
        call("import", "calculon", "tiny.json", A100, "exec.json", "-o", "case"),
        3,
        "exec.json: 2 problems",
        "$.attention_type: found 'multiquery': shared keys and values (not supported yet)",
        "$.tensor_par_comm_type: found 'p2p_rs_ag': reduce-scatters for messages",
    )
    assert not Path("case").exists()


def test_without_an_execution_communication_may_be_hidden() -> None:
    done = run("import", "calculon", "tiny.json", A100, "--chips", "16", "--overlaps", "-o", "free")
    asked = ("--batch", "32", "--microbatch", "1", "--zero", "0", "--recompute", "none", "--no-sensitivity", "-q")
    answer = follow(done, *asked)
    assert answer["assumptions"]["gradient_overlap"] == "calculon_or_none"
    assert (answer["assumptions"]["tensor_overlap"], answer["status"]) == ("ring", "optimal")
    beside = call("import", "calculon", "tiny.json", A100, "exec.json", "--overlaps", "-o", "free")
    assert_refused(beside, 3, "found an execution beside --overlaps (give one of them)")
