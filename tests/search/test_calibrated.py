"""A training step on a chip that has a calibration is searched under it, over every execution that nobody fixed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import dfopt as df
from dfopt.cli import app
from dfopt.machines.calibrations import assumed_on, usual
from dfopt.search.verify import verify
from dfopt.workloads.executions import load_executions

SIZES = {"hidden": 512, "heads": 8, "head_dim": 64, "ffn": 2048, "layers": 4, "seq": 256, "batch": 4}
STEP = {"mode": "training"}


def recipe(folder: Path, **parameters: Any) -> Path:
    data = {"schema": "dfopt/graph/3", "name": "small", "workload": "transformer", "parameters": SIZES | parameters}
    path = folder / "small.json"
    path.write_text(json.dumps(data))
    return path


def run(*words: Any) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["solve", *map(str, words), "--no-sensitivity", "-q"])
    return done.exit_code, done.stdout, done.stderr


def test_a_named_training_step_is_searched_under_the_calibration_of_its_chip(tmp_path: Path) -> None:
    path, fixed = recipe(tmp_path, **STEP), {"tp": 4, "pp": 1}
    result = df.optimize(path, "a100-8", time_limit=600.0, **fixed)
    fitted = usual(result.graph, df.load_system("a100-8"))[0]
    assert fitted is not None and result.gap == 0
    kept = result.assumptions.memory_reserve
    assert result.assumptions == fitted.assumptions.with_(memory_reserve=kept)
    assert result.system == fitted.applied(df.load_system("a100-8"))
    assert {record.plan.zero or 0 for record in result.plans} >= {0, 1}
    drawn = (result.graph, *result.variants)
    assert {graph.microbatch for graph in drawn} == {1, 2, 4} and len(drawn) == 15
    assert verify(result).ok
    # as one search of what was asked for in words, and no slower than any execution alone
    first, *others = load_executions(path)
    again = df.optimize(first, "a100-8", variants=others, assumptions="calibrated", zero=(0, 1, 2, 3), **fixed)
    assert again.value == result.value and {p.plan for p in again.plans} == {p.plan for p in result.plans}
    alone = df.optimize(load_executions(path, [2], ["none"])[0], "a100-8", zero=0, **fixed)
    assert alone.assumptions == result.assumptions and alone.value >= result.value
    assert df.evaluate(result, result.graph, "a100-8").step_time_s == result.step_time_s
    ideal = df.optimize(first, "a100-8", variants=others, assumptions="ideal", zero=(0, 1, 2, 3), gap=0.3, **fixed)
    assert ideal.assumptions.profile == "default" and ideal.value < result.value


def test_what_the_command_line_or_a_file_fixes_is_fixed(tmp_path: Path) -> None:
    path = recipe(tmp_path, **STEP, microbatch=2)
    code, out, _ = run(path, "a100-8", "--recompute", "none", "--zero", "0", "--gap", "100%", "--json")
    result = df.Result.from_data(json.loads(out))
    assert code == 0 and (result.graph.microbatch, result.variants, result.request.zero) == (2, (), (0,))
    code, out, _ = run(
        path, "a100-8", "--microbatch", "1,4", "--gap", "100%", "-o", tmp_path / "r.json", "--detail", "all"
    )
    result = df.Result.load(tmp_path / "r.json")
    assert {graph.microbatch for graph in (result.graph, *result.variants)} == {1, 4} and len(result.variants) == 9
    rows = {line[:20].strip(): line[20:] for line in out.splitlines()}
    for option in ("microbatch", "recomputation", "optimizer sharding", "sequence parallelism", "data parallelism"):
        assert option in rows, out
    assert (
        "none, attention, full, full+attention, layernorm+attention" in rows["recomputation"]
        and "1, 4" in rows["microbatch"]
    )
    assert f"measured ({result.assumptions.profile})" in out and "MFU" in out and "HFU" in out
    bare, chosen = df.load_system("a100-8"), "ideal"
    ideal = df.evaluate(result, result.graph, bare, chosen).step_time_s
    assert f"; {1e6 * ideal:.3g} us without losses" in out
    done = CliRunner().invoke(app, ["score", str(tmp_path / "r.json"), str(path), "a100-8"])
    assert done.exit_code in (0, 2) or "not the graph" in done.stderr


def test_what_has_no_calibration_is_as_before(tmp_path: Path) -> None:
    path = recipe(tmp_path, **STEP)
    graph, serving = df.load_graph(path), df.load_graph(path, mode="forward")
    assert df.optimize(serving, "a100-8", tp=8, gap=1.0).assumptions.profile == "default"
    assert df.optimize(graph, "b200-8", tp=8, gap=1.0).assumptions.profile == "default"
    stacked = assumed_on("default", df.load_system("a100-8")).system.model_copy(
        update={"stack": df.load_system("sn40l-8-3d").stack}
    )
    fitted, why = usual(graph, stacked)
    assert fitted is None and "stack of dies" in why
    code, out, err = run(path, "a100-8", "--assume", "ideal", "--tp", 8, "--gap", "100%")
    assert code == 0 and "ideal (default)" in out and not err


@pytest.mark.parametrize("name", ["gpt2-small", "llama-3.1-8b"])
def test_executions_are_those_that_nobody_fixed(name: str) -> None:
    sizes = {"mode": "training", "batch": 6}
    assert [graph.microbatch for graph in load_executions(name, **sizes)] == [1] * 5 + [2] * 5
    fixed = load_executions(name, **sizes, microbatch=3, recompute="full")
    assert [(graph.microbatch, graph.variant) for graph in fixed] == [(3, "recompute: full")]
    assert [graph.microbatch for graph in load_executions(name, batch=6)] == [1, 2]
    every = load_executions(name, "all", "all", **sizes)
    assert [graph.microbatch for graph in every] == [1] * 5 + [2] * 5 + [3] * 5 + [6] * 5
