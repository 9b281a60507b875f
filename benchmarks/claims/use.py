"""Claims about use: bad input on the command line, and what the README says in a fresh environment."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from claims.programs import tested
from claims.rows import ROOT, Asked, Row, run
from claims.suites import BAD_INPUT

USAGE, BAD, INFEASIBLE = 2, 3, 4
SOLVE = "solve llama-3.1-8b h100-8"
MOST_LETTERS = 3000  # nobody reads more
CONFIG: dict[str, Any] = {  # of meta-llama/Llama-3.1-8B
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 14336, "vocab_size": 128256,
    "max_position_embeddings": 131072, "torch_dtype": "bfloat16", "hidden_act": "silu", "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False,
}  # fmt: skip


class Bad(NamedTuple):
    """A wrong call, its exit code, pieces of the one message, and what is changed in the config that CONFIG is."""

    what: str
    words: str
    code: int
    says: tuple[str, ...]
    config: dict[str, Any] | None = None


CALLS = [
    Bad("no such model", "solve llama-3.1-8 h100-8", BAD, ("llama-3.1-8", "did you mean", "llama-3.1-8b")),
    Bad("no such system", "solve llama-3.1-8b h100", BAD, ("h100", "did you mean")),
    Bad("no such file", "solve nope/config.json h100-8", BAD, ("nope/config.json", "no such file")),
    Bad("no such phase", f"{SOLVE} --phase decoding", BAD, ("$.parameters.phase", "did you mean 'decode'")),
    Bad("a field of another phase", f"{SOLVE} --phase prefill --context 9", BAD, ("$.parameters.context", "decode")),
    Bad("a mix of nothing", f"{SOLVE} --phase mixed", BAD, ("$.parameters.segments", "missing")),
    Bad("a segment that is none", f"{SOLVE} --phase mixed --segments 2by3", BAD, ("'2by3'", "SEQUENCESxNEW@CACHED")),
    Bad("a batch that is a word", f"{SOLVE} --phase decode --batch many", USAGE, ("--batch", "or max")),
    Bad("a degree that no dim gives", f"{SOLVE} --tp 3", USAGE, ("TP 3",)),
    Bad("a batch that does not fit", f"{SOLVE} --phase decode --context 900000 --batch 64", INFEASIBLE,
        ("caches of sequences", "short by", "levers")),
    Bad("a model that does not fit", "solve llama-3.1-405b h100-8 --phase decode --batch 1", INFEASIBLE,
        ("weights", "short by", "levers")),
    Bad("experts of none", f"{SOLVE} --phase decode --ep 8", USAGE, ("experts",)),
    Bad("routing that is none", "solve qwen3-30b-a3b h100-8 --phase decode --param routing=zipf", BAD,
        ("$.parameters.routing", "'zipf'")),
    Bad("a type that is none", f"{SOLVE} --param dtypes.kv=fp7", BAD, ("$.parameters.dtypes.kv", "'fp7'", "'fp8'")),
    Bad("a type of model that is not read", "solve CONFIG h100-8", BAD, ("$.model_type", "'xyz'"),
        {"model_type": "xyz"}),
    Bad("a field that is not understood", "solve CONFIG h100-8", BAD, ("$.num_experts", "not understood"),
        {"num_experts": 8}),
    Bad("a size that is null", "import hf CONFIG -o OUT", BAD, ("$.hidden_size",), {"hidden_size": None}),
]  # fmt: skip


def _called(bad: Bad, folder: Path) -> tuple[str, bool]:
    """What a wrong call was answered, in words, and whether that is one clear message."""
    config = folder / "config.json"
    config.write_text(json.dumps(CONFIG | (bad.config or {})), encoding="utf-8")
    places = {"CONFIG": str(config), "OUT": str(folder / "out.yaml")}
    done = run(["-m", "dfopt", *(places.get(word, word) for word in bad.words.split())])
    messages = len(re.findall("^(?:dfopt|Error): ", done.err, re.MULTILINE))
    missing = [piece for piece in bad.says if piece not in done.err]
    seen = f"exit code {done.code}, {messages} message{'s' * (messages != 1)}, {len(done.err)} letters"
    seen += ", a traceback" * ("Traceback" in done.err) + f", without {', '.join(missing)}" * bool(missing)
    met = done.code == bad.code and messages == 1 and not missing and not done.out and len(done.err) <= MOST_LETTERS
    return seen, met and "Traceback" not in done.err


def bad_input(asked: Asked) -> Iterator[Row]:
    """Wrong calls about serving as processes of their own, and the tests of all the others."""
    with tempfile.TemporaryDirectory() as folder:
        for bad in CALLS:
            seen, met = _called(bad, Path(folder))
            limit = f"exit code {bad.code}, one message, with {', '.join(bad.says)}"
            yield Row(f"bad input: {bad.what}", f"`dfopt {bad.words}`", seen, limit, met)
    yield tested(BAD_INPUT.claim, ["-m", "pytest", *BAD_INPUT.tests], BAD_INPUT.limit)


SERVED = [  # what a new user asks of a config.json, by the README's section on serving
    "import hf CONFIG -o model.yaml",
    "check model.yaml",
    "solve model.yaml h100-8 --phase decode --batch 16 --context 4096 -q --json -o decode.json",
    "check decode.json",
    "solve model.yaml h100-8 --phase decode --context 4096 --batch max --tp 8 -q --json -o largest.json",
    "plot decode.json --kind roofline -o roofline.svg",
    "report decode.json -o report.html",
]
PROVEN = ("decode.json", "largest.json")


def fresh(asked: Asked) -> Iterator[Row]:
    """A virtual environment of its own, the first command of the README, and what it says about serving a model."""
    with tempfile.TemporaryDirectory() as name:
        folder, config = Path(name), Path(name) / "config.json"
        python = folder / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
        config.write_text(json.dumps(CONFIG), encoding="utf-8")
        clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
        install = [
            [sys.executable, "-m", "venv", str(folder / "venv")],
            [str(python), "-m", "pip", "install", "-q", str(ROOT)],
            [str(python), "-m", "pip", "install", "-q", "matplotlib"],
        ]
        for words in [*install, *([str(python), "-m", "dfopt", *line.split()] for line in SERVED)]:
            words = [str(config) if word == "CONFIG" else word for word in words]
            done = subprocess.run(words, cwd=folder, env=clean, capture_output=True, text=True, check=False)
            said = [line for line in done.stderr.splitlines() if line.strip()]
            seen = f"exit code {done.returncode}" + (f": {said[-1].strip()}" if said else "")
            ran = " ".join(word.replace(f"{folder}{os.sep}", "").replace(str(ROOT), ".") for word in words)
            yield Row("a fresh environment", f"`{ran}`", seen, "exit code 0", done.returncode == 0)
            if done.returncode != 0:
                return
        for file in PROVEN:
            gap = json.loads((folder / file).read_text(encoding="utf-8"))["gap"]
            yield Row("a proven mapping", file, f"gap {gap:.3%}", "gap 0", gap == 0)
