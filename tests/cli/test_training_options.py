"""Options of a training step on the command line: fixed, printed in a line each, stored, exported, and refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dfopt.cli import app
from dfopt.documents.result import Result

STEP = [
    "gpt2-small",
    "a100-8",
    "--assume",
    "ideal",
    "--param",
    "mode=training",
    "--batch",
    "16",
    "--no-sensitivity",
    "-q",
]


def run(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, list(words))
    return done.exit_code, done.stdout, done.stderr


def test_each_is_fixed_told_and_exported(tmp_path: Path) -> None:
    said = ["--tp", "1", "--pp", "2", "--recompute", "full/none", "--recompute-layers", "2", "--schedule", "1f1b"]
    said += ["--zero", "1", "--zero-replicas", "2", "--set", "point_to_point_overlap=hidden"]
    said += ["--kernel-by-kernel", "--detail", "plan,decisions"]
    code, out, _ = run("solve", *STEP, *said, "-o", str(tmp_path / "r.json"))
    assert code == 0
    rows = (line.split(None, 1) for line in out.splitlines())
    lines = {row[0]: row[1] for row in rows if len(row) > 1 and row[0] in ("plan", "recomputed", "schedule")}
    assert "ZeRO-1x2 R2" in lines["plan"] and lines["plan"].endswith("6 layers per stage, 2 of them recomputed")
    assert lines["recomputed"] == "2 layers of each stage; to fit the first stage 0, the last 0"
    assert lines["schedule"].startswith("1F1B ")
    plan = Result.load(tmp_path / "r.json").plan
    assert plan.hybrid is not None and (plan.recomputed, plan.zero, plan.hybrid.replicas) == (2, 1, 2)
    assert run("check", str(tmp_path / "r.json"))[0] == 0
    assert run("export", "megatron", str(tmp_path / "r.json"), "-o", str(tmp_path))[0] == 0
    told = (tmp_path / "megatron.args").read_text().splitlines()
    assert {"--recompute-method block", "--recompute-num-layers 2", "--num-distributed-optimizer-instances 2"} < {*told}
    assert "sending on: hidden" in (tmp_path / "not-expressed.txt").read_text()


def test_sequence_parallelism_is_forced_and_exported(tmp_path: Path) -> None:
    force = ["--tp", "4", "--pp", "1", "--set", "sequence_parallelism=force", "--set", "execution=kernel_by_kernel"]
    assert run("solve", *STEP, *force, "--gap", "100%", "-o", str(tmp_path / "r.json"))[0] == 0
    data = json.loads((tmp_path / "r.json").read_text())
    assert not any(kind.startswith("all_reduce") for kind in data["score"]["collectives"])
    assert run("export", "megatron", str(tmp_path / "r.json"), "-o", str(tmp_path))[0] == 0
    assert "--sequence-parallel" in (tmp_path / "megatron.args").read_text().splitlines()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--schedule", "dualpipe"], "--schedule: expected one of 1f1b, interleaved, gpipe, found 'dualpipe'"),
        (["--zero", "1", "--zero-replicas", "0"], "--zero-replicas: expected numbers such as 1,2,4, found '0'"),
        (["--zero", "0", "--zero-replicas", "2"], "no level of ZeRO to share out by"),
        (["--recompute", "half"], "recompute: found 'half', expected none or some of full, op, moe"),
        (["--recompute-layers", "2"], "all layers of gpt2-small are computed alike"),
        (["--set", "sequence_parallelism=on"], "sequence_parallelism"),
        (["--tp", "8", "--set", "sequence_parallelism=force", "--set", "tile_rows=2"], "tiles of 2 rows"),
    ],
)
def test_what_cannot_be_is_one_line(words: list[str], told: str) -> None:
    code, _, err = run("solve", *STEP, *words)
    assert code in (2, 3) and told in err and "Traceback" not in err and len(err.strip().splitlines()) <= 2


def test_fields_of_the_system_are_set_and_stored(tmp_path: Path) -> None:
    words = ["--set", "network.nvlink.size=4", "--set", "chip.dram.bandwidth=1 TB/s", "--set", "bubble=stages"]
    out = tmp_path / "r.json"
    code, _, err = run("solve", *STEP, *words, "--gap", "100%", "--json", "-o", str(out))
    assert code == 0, err
    result = Result.load(out)
    assert (result.system.chips, result.system.chip.fastest.bandwidth) == (4, 1e12)
    assert result.assumptions.bubble == "stages"
    assert "network.nvlink.size=4" in (result.system.description or "")
    code, said, err = run("solve", *STEP, "--set", "network.nvlin.size=4")
    assert (code, said) == (3, "") and "there is no such network dim (did you mean 'nvlink'?)" in err
