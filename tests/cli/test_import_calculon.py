"""`dfopt import calculon` from the command line: what it writes is checked, solved and refused like any document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_tools import call

HERE = Path(__file__).parents[1] / "golden/calculon"
APP = {"hidden": 256, "feedforward": 1024, "seq_size": 64, "attn_heads": 4, "attn_size": 64, "num_blocks": 4}
CASES = json.loads((HERE / "layers.json").read_text(encoding="utf-8"))["cases"]
EXEC: dict[str, Any] = {
    **CASES["gpt3-175B_tp8_attn_rsag_redo"]["execution"],
    "num_procs": 16, "tensor_par": 2, "pipeline_par": 2, "data_par": 4, "batch_size": 32, "microbatch_size": 2,
    "pipeline_interleaving": 2,
}  # fmt: skip


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """A small application, the A100 system and an execution."""
    (tmp_path / "tiny.json").write_text(json.dumps(APP))
    (tmp_path / "exec.json").write_text(json.dumps(EXEC))
    return [tmp_path / "tiny.json", HERE / "a100_80g.json", tmp_path / "exec.json"]


def test_import_check_solve_and_check_again(files: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "case"
    done = call("import", "calculon", *files, "-o", folder)
    assert done.code == 0, done.err
    names = ["graph", "system", "assumptions", "pins"]
    lines = done.out.splitlines()
    assert lines[:4] == [f"wrote {folder / name}.yaml" for name in names]
    assert call("check", *(folder / f"{name}.yaml" for name in names)).code == 0
    words = lines[-1].split()
    assert words[:2] == ["dfopt", "solve"]
    result = folder / "result.json"
    solved = call(*words[1:], "--no-sensitivity", "-o", result, "-q")
    assert solved.code == 0, solved.err
    answer = json.loads(result.read_text())
    plan = answer["mapping"]["plan"]
    assert [plan[key] for key in ("tp", "pp", "dp", "interleave", "microbatches")] == [2, 2, 4, 2, 4]
    assert answer["score"]["collectives"]["all_gather.forward"] == 2
    assert {one["sharding"] for one in answer["mapping"]["kernels"]} == {"m", "n", "k", "k>n", "outer"}
    checked = call("check", result)
    assert checked.code == 0, checked.err


def test_without_an_execution_there_are_no_pins(files: list[Path], tmp_path: Path) -> None:
    done = call("import", "calculon", *files[:2], "-o", tmp_path / "free")
    assert done.code == 0, done.err
    assert sorted(path.name for path in (tmp_path / "free").iterdir()) == [
        "assumptions.yaml",
        "graph.yaml",
        "system.yaml",
    ]
    assert done.out.splitlines()[-1].endswith(f"--assume {tmp_path / 'free'}/assumptions.yaml --zero 0,1")


def test_what_cannot_be_said_is_one_error(files: list[Path], tmp_path: Path) -> None:
    wanted = {"attention_type": "multiquery", "tensor_par_comm_type": "p2p_rs_ag", "activation_recompute": "full"}
    files[2].write_text(json.dumps(EXEC | wanted | {"seq_par_ag_redo": False}))
    done = call("import", "calculon", *files, "-o", tmp_path / "case")
    assert done.code == 3
    assert "exec.json: 2 problems" in done.err
    assert "$.attention_type: found 'multiquery': shared keys and values (not supported yet)" in done.err
    assert "$.tensor_par_comm_type: found 'p2p_rs_ag': reduce-scatters for messages" in done.err
    assert not (tmp_path / "case").exists()


def test_without_an_execution_communication_may_be_hidden(files: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "free"
    done = call("import", "calculon", *files[:2], "--chips", "16", "--overlaps", "-o", folder)
    assert done.code == 0, done.err
    asked = ("--batch", "32", "--microbatch", "1", "--zero", "0", "--recompute", "none", "--no-sensitivity")
    solved = call(*done.out.splitlines()[-1].split()[1:], *asked, "--json", "-q")
    assert solved.code == 0, solved.err
    answer = json.loads(solved.out)
    assert answer["assumptions"]["gradient_overlap"] == "calculon_or_none"
    assert (answer["assumptions"]["tensor_overlap"], answer["status"]) == ("ring", "optimal")
    done = call("import", "calculon", *files, "--overlaps", "-o", folder)
    assert done.code == 3 and "found an execution beside --overlaps (give one of them)" in done.err
