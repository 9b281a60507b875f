"""Small documents and two ways to call the command line, for the tests of it."""

from __future__ import annotations

import copy
import json
import os
import random
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from in_turn import in_turn
from typer.testing import CliRunner

from dfopt.cli import app
from dfopt.documents.strict_yaml import dump_yaml

if TYPE_CHECKING:
    import pytest

Data = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """What a call left behind."""

    code: int
    out: str
    err: str


def call(*words: object) -> Answer:
    """Call the command line, and all that it solves, in this process; an exception without a message is raised here."""
    with in_turn():
        found = CliRunner().invoke(app, [str(word) for word in words])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return Answer(found.exit_code, found.stdout, found.stderr)


def run(*words: object, code: int = 0) -> Answer:
    """Call the command line as `call` does; it ends with this exit status."""
    answer = call(*words)
    assert answer.code == code, answer.err or answer.out
    return answer


def answered(*words: object, code: int = 0) -> Any:
    """The JSON that a call prints."""
    return json.loads(run(*words, "--json", code=code).out)


def assert_refused(answer: Answer, code: int, *says: str) -> None:
    """It is the exit status and one message of this program that has these pieces, and nothing else is printed."""
    assert answer.code == code, answer.err
    assert answer.out == ""
    assert "Traceback" not in answer.err
    for piece in says:
        assert piece in answer.err, answer.err
    assert len(re.findall("^(?:dfopt|Error): ", answer.err, re.MULTILINE)) == 1, answer.err
    assert len(answer.err) < 3000, "nobody reads this much"


def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fixture of tests that name files as they lie in their folder."""
    monkeypatch.chdir(tmp_path)


def command(*words: object) -> list[str]:
    """The words of a real process that runs the command line."""
    return [sys.executable, "-m", "dfopt", *map(str, words)]


def spawn(*words: object, cwd: Path | None = None, **env: str) -> Answer:
    """Run the command line as a process of its own."""
    found = subprocess.run(
        command(*words), capture_output=True, text=True, timeout=120, cwd=cwd, env={**os.environ, **env}
    )
    return Answer(found.returncode, found.stdout, found.stderr)


def shell(line: str) -> Answer:
    """Run a line of a shell, to which ``dfopt`` is the command line."""
    known = f'dfopt() {{ {shlex.quote(sys.executable)} -m dfopt "$@"; }}; '
    found = subprocess.run(known + line, shell=True, capture_output=True, text=True, timeout=120)
    return Answer(found.returncode, found.stdout, found.stderr)


GRAPH: Data = {
    "schema": "dfopt/graph/3",
    "name": "three",
    "batch": 8,
    "kernels": [
        {"name": "norm", "op": "elementwise", "m": 64, "n": 32, "normalizes": True},
        {"name": "up", "op": "gemm", "m": 256, "k": 64, "n": 32},
        {"name": "down", "op": "gemm", "m": 64, "k": 256, "n": 32},
    ],
    "tensors": [{"src": "norm", "dst": "up"}, {"src": "up", "dst": "down"}],
}
SYSTEM: Data = {
    "schema": "dfopt/system/1",
    "name": "four",
    "chip": {
        "name": "toy",
        "tiles": 16,
        "peak": "1 TFLOP/s",
        "sram": {"capacity": "1 MB"},
        "dram": {"bandwidth": "10 GB/s", "capacity": "1 GB"},
    },
    "network": [{"name": "ring", "topology": "ring", "size": 4, "link_bandwidth": "1 GB/s", "latency": "1 us"}],
}
RECIPE: Data = {
    "schema": "dfopt/graph/3",
    "name": "tiny",
    "workload": "transformer",
    "parameters": {"hidden": 64, "heads": 4, "head_dim": 16, "seq": 32, "layers": 2, "batch": 8},
}
ONE_CHIP_MAPPING: Data = {
    "schema": "dfopt/mapping/1",
    "graph": "three",
    "system": "four",
    "plan": {"schema": "dfopt/plan/1", "dp": 4, "dp_dims": ["ring"], "microbatches": 2},
    "kernels": [{"name": name, "partition": 0, "tiles": 4} for name in ("norm", "up", "down")],
}


def changed(data: Data, **changes: Any) -> Data:
    """A copy with values replaced at paths such as ``kernels__0__m``; a value of ``...`` drops the key."""
    made = copy.deepcopy(data)
    for path, value in changes.items():
        *steps, last = (int(step) if step.isdigit() else step for step in path.split("__"))
        node: Any = made
        for step in steps:
            node = node[step]
        if value is ...:
            del node[last]
        elif isinstance(node, list) and last == len(node):
            node.append(value)
        else:
            node[last] = value
    return made


def write(folder: Path, name: str, content: Data | str | bytes) -> Path:
    """Write a document, a text or raw bytes into a folder."""
    path = folder / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, str):
        path.write_text(content, encoding="utf-8")
    else:
        path.write_text(json.dumps(content) if path.suffix == ".json" else dump_yaml(content), encoding="utf-8")
    return path


def wide_graph(chains: int = 12, length: int = 5) -> Data:
    """Parallel chains of unequal matrix products: so many orders that no solve is done within a test."""
    draw = random.Random(0)
    kernels: list[Data] = [{"name": "source", "op": "elementwise", "m": 1024, "n": 1024}]
    tensors: list[Data] = []
    for chain in range(chains):
        before, features = "source", 1024
        for step in range(length + 1):
            name, out = f"k{chain}_{step}", 1024 if step == length else 1024 * draw.randint(1, 4)
            kernels.append({"name": name, "op": "gemm", "m": out, "k": features, "n": 1024})
            tensors.append({"src": before, "dst": name})
            before, features = name, out
        tensors.append({"src": before, "dst": "sink"})
    kernels.append({"name": "sink", "op": "elementwise", "m": 1024, "n": 1024})
    return {"schema": "dfopt/graph/3", "name": "wide", "batch": 8, "kernels": kernels, "tensors": tensors}


SMALL_SRAM = changed(
    SYSTEM,
    chip__peak="10 TFLOP/s",
    chip__sram__capacity="20 MB",
    chip__dram={"bandwidth": "20 GB/s", "capacity": "100 GB"},
    network__0__link_bandwidth="10 GB/s",
)
