"""What every run pays: the start of the program and the reading of a document; ``pytest benchmarks/speed``.

The promise is 0.4 s for ``dfopt --help`` and a second for a result of 5 MB.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dfopt.documents.strict_yaml import load_strict


@pytest.mark.parametrize("words", ["--help", "list graphs", "show gpt3-175b"])
def test_command(benchmark: Any, words: str) -> None:
    command = [sys.executable, "-m", "dfopt", *words.split()]
    benchmark.pedantic(subprocess.run, (command,), {"check": True, "stdout": subprocess.DEVNULL}, rounds=5)


def test_load_a_result_of_5_mb(benchmark: Any, tmp_path: Path) -> None:
    rows = [
        {"kernel": f"layer{i}.attention", "stage": i % 8, "seconds": "1.234567 ms", "bytes": [i / 7, i]}
        for i in range(55_000)
    ]
    path = tmp_path / "result.json"
    path.write_text(json.dumps({"schema": "x", "rows": rows}))
    benchmark.pedantic(load_strict, (path,), rounds=5)
