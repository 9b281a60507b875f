"""`dfopt export` and `dfopt import megatron` from the command line: files, what is left out, the way back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_tools import call

import dfopt as df
from dfopt.exports.tools import TOOLS
from dfopt.frontends.megatron.convert import load_run
from dfopt.frontends.megatron.shardings import megatron_shardings
from dfopt.workloads import load_graph

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


def solved(name: str) -> df.Result:
    """A training step whose shardings are Megatron-LM's, kernel by kernel."""
    parameters, fixed, dims = CASES[name]
    graph = load_graph(name, mode="training", **parameters)
    pins = megatron_shardings(graph, fixed["tp"], True)
    return df.optimize(
        graph, "a100-512", assumptions=BY_KERNEL, pin_sharding=pins, sensitivity=False, **fixed, **dims
    )  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_round_trip_through_megatron(name: str, tmp_path: Path) -> None:
    result = solved(name)
    result.dump(tmp_path / "r.json")
    for tool in TOOLS:
        done = call("export", tool, tmp_path / "r.json", "-o", tmp_path / tool)
        assert done.code == 0, done.err
        left_out = (tmp_path / tool / "not-expressed.txt").read_text()
        assert left_out in done.out
        assert "network dims" in left_out and "overlap" in left_out
        assert ("shardings" in left_out) is False
    arguments, beside = tmp_path / "megatron/megatron.args", tmp_path / "megatron/result.json"

    # its own mapping: judged as before
    done = call("import", "megatron", arguments, "--result", beside, "-o", tmp_path / "same")
    assert done.code == 0, done.err
    words = done.out.splitlines()[-1].split()
    scored = call(*words[1:], "--json")
    assert scored.code == 0, scored.err
    assert json.loads(scored.out)["step_time_s"] == pytest.approx(result.step_time, rel=1e-9)

    # from the arguments alone: the graph and Megatron-LM's shardings are made anew, and are those of the result
    run = load_run(arguments)
    asked = {**run.options(), **CASES[name][2]}
    found = df.optimize(run.graph, result.system, assumptions=BY_KERNEL, sensitivity=False, **asked)
    assert found.step_time == pytest.approx(result.step_time, rel=1e-9)
    assert found.plan == result.plan


LAST = "--pipeline-model-parallel-size 2 --vocab-size 512"


def test_an_embedding_and_a_loss_may_count_as_layers(tmp_path: Path) -> None:
    """Of 14 layers on 4 stages in 2 chunks, the first chunk has one less, and the last; the way back says so again."""
    sizes = SIZES.replace("--num-layers 4", "--num-layers 14").replace("-size=8", "-size=16")
    counted = ["--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"]
    words = " --pipeline-model-parallel-size 4 --vocab-size 512 --num-virtual-stages-per-pipeline-rank 2 "
    (tmp_path / "run.args").write_text(sizes.strip() + words + " ".join(counted))
    run = load_run(tmp_path / "run.args")
    assert (run.fixed["first_layers"], run.fixed["last_layers"], run.fixed["interleave"]) == (3, 3, 2)
    result = df.optimize(run.graph, "h100-8", assumptions=BY_KERNEL, sensitivity=False, **run.options())
    assert result.plan.stage_layers == (3, 4, 3)
    result.dump(tmp_path / "r.json")
    done = call("export", "megatron", tmp_path / "r.json", "-o", tmp_path / "out")
    assert done.code == 0, done.err
    assert {*counted, "--num-virtual-stages-per-pipeline-rank 2"} < {
        *(tmp_path / "out/megatron.args").read_text().splitlines()
    }
    assert "\n  stages:" not in done.out
    again = load_run(tmp_path / "out/megatron.args")
    assert again.fixed == run.fixed | {"zero": again.fixed["zero"]}


def test_imported_arguments_are_solved(tmp_path: Path) -> None:
    (tmp_path / "run.args").write_text(SIZES)
    done = call("import", "megatron", tmp_path / "run.args", "-o", tmp_path / "run")
    assert done.code == 0, done.err
    assert call("check", tmp_path / "run/graph.yaml", tmp_path / "run/pins.yaml").code == 0
    words = done.out.splitlines()[-1].replace("SYSTEM", "h100-8").split()
    solve = call(*words[1:], "--no-sensitivity", "--kernel-by-kernel", "--json", "-q")
    assert solve.code == 0, solve.err
    plan = json.loads(solve.out)["plan"]
    assert (plan["tp"], plan["dp"]) == (2, 4)
    yaml = {"num_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "seq_length": 32, "micro_batch_size": 1}
    yaml |= {"global_batch_size": 8, "bf16": True, "tensor-model-parallel-size": 2, "sequence-parallel": True}
    (tmp_path / "run.yaml").write_text(json.dumps(yaml | {"swiglu": False}))
    assert load_run(tmp_path / "run.yaml") == load_run(tmp_path / "run.args")


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
        ("--account-for-loss-in-pipeline-split", "found it without --vocab-size"),
        (f"--account-for-loss-in-pipeline-split {LAST}", "found 5 layers with it on 2 stages"),
        (
            f"--account-for-loss-in-pipeline-split --decoder-last-pipeline-num-layers 1 {LAST}",
            "found it beside layers of",
        ),
        ("--swiglu 3", "$.swiglu: found 3, expected true or false"),
        ("'", "cannot be read as shell words"),
    ],
)
def test_bad_arguments_are_one_error(more: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "run.args").write_text(SIZES + more)
    done = call("import", "megatron", tmp_path / "run.args", "-o", tmp_path / "run")
    assert done.code == 3
    assert said in done.err, done.err
    assert done.err.count("dfopt:") == 1
    assert not (tmp_path / "run").exists()


def test_missing_arguments_are_named(tmp_path: Path) -> None:
    (tmp_path / "run.args").write_text("--num-layers 4 stray --hidden-size 64")
    done = call("import", "megatron", tmp_path / "run.args", "-o", tmp_path / "run")
    assert done.code == 3
    assert "$.num-layers" in done.err
    assert "$.global-batch-size: it is missing (add --global-batch-size)" in done.err


def small(path: Path, **parameters: Any) -> Path:
    """A result on eight chips."""
    graph = load_graph("gpt2-small", batch=8, **parameters)
    df.optimize(graph, "h100-8", assumptions=BY_KERNEL, tp=2, pp=1, interleave=1, sensitivity=False).dump(path)
    return path


def test_bad_exports_are_one_error_each(tmp_path: Path) -> None:
    forward = small(tmp_path / "forward.json")
    done = call("export", "megatron", forward, "-o", tmp_path / "out")
    assert (done.code, done.err.count("dfopt:")) == (3, 1)
    assert "which trains nothing, expected one of a training step (solve the graph with --param mode=train" in done.err
    assert not (tmp_path / "out").exists()
    training = small(tmp_path / "training.json", mode="training")
    done = call("export", "megatrom", training, "-o", tmp_path / "out")
    assert done.code == 2
    assert "expected one of megatron, deepspeed, torchtitan, nemo, found 'megatrom'" in done.err
    (tmp_path / "file").write_text("mine")
    done = call("export", "nemo", training, "-o", tmp_path / "file")
    assert done.code == 3
    assert "cannot be a folder: it is a file (name a new folder)" in done.err
    assert (tmp_path / "file").read_text() == "mine"


def test_edited_arguments_are_not_those_of_the_result(tmp_path: Path) -> None:
    result = small(tmp_path / "r.json", mode="training")
    assert call("export", "megatron", result, "-o", tmp_path / "out").code == 0
    arguments = tmp_path / "out/megatron.args"
    text = arguments.read_text()
    assert "--tensor-model-parallel-size 2\n" in text
    arguments.write_text(text.replace("parallel-size 2\n", "parallel-size 4\n"))
    done = call("import", "megatron", arguments, "--result", result, "-o", tmp_path / "back")
    assert done.code == 3
    assert "$.tensor-model-parallel-size: found 4, but 2 in the export of" in done.err
    arguments.write_text(text + "--use-distributed-optimizer\n")
    done = call("import", "megatron", arguments, "--result", result, "-o", tmp_path / "back")
    assert done.code == 3
    assert "$.use-distributed-optimizer" in done.err
