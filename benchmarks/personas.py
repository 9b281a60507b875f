"""Let three newcomers ask their first question, and count the lines that they read before their own answer.

    python benchmarks/personas.py [--dfopt COMMAND] [NAME...]

Each reads the README up to its table of readers, then the guide up to the command of their question, and asks it of
their own model, chip or constraint. Lines that are not empty count; the answer itself does not. ``--dfopt`` names the
command of a fresh environment. Transcripts go to ``benchmarks/personas/NAME.txt``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
README = "README.md", "## Three questions"


class Persona(NamedTuple):
    """A newcomer: pages with the text at which they stop reading, files of their own, and their commands."""

    bar: int
    reads: tuple[tuple[str, str], ...]
    files: dict[str, str]
    commands: tuple[str, ...]


CHIP = """\
schema: dfopt/system/1
name: ours
chip:
  name: our chip
  execution: dataflow
  tiles: 512
  peak: 900 TFLOP/s
  sram: {capacity: 384 MB}
  dram: {bandwidth: 4 TB/s, capacity: 192 GB}
network:
  - {name: board, topology: ring, size: 16, link_bandwidth: 450 GB/s, latency: 400 ns}
"""
NOTEBOOK = """\
import dfopt as df
result = df.solve("llama-3.1-8b", "h100-8", phase="decode", batch=64, context=8192, pp=1)
print(result.summary())
"""
CONFIG = (ROOT / "tests/golden/hf/qwen3-8b.json").read_text(encoding="utf-8")
PERSONAS = {
    "infrastructure": Persona(
        60,
        (README, ("dfopt/guide/serve.md", "```console")),
        {"config.json": CONFIG},
        ("solve config.json h100:64 --phase decode --batch 512 --context 8192",),
    ),
    "architect": Persona(
        80,
        (README, ("dfopt/guide/new-chip.md", "$ dfopt solve")),
        {"ours.yaml": CHIP},
        ("check ours.yaml", "solve llama-3.1-70b ours.yaml --phase prefill --batch 4 --isl 8192"),
    ),
    "researcher": Persona(
        60,
        (README, ("dfopt/guide/python.md", "Parameters of the model")),
        {"notebook.py": NOTEBOOK},
        ("python notebook.py",),
    ),
}


def reading(persona: Persona) -> list[tuple[str, int]]:
    """Pages that a newcomer reads before the first answer, with their lines up to where they stop."""
    found = []
    for page, stop in persona.reads:
        before, at, _ = (ROOT / page).read_text(encoding="utf-8").partition(stop)
        assert at, f"{page} has no {stop!r}"
        found.append((page, sum(bool(line.strip()) for line in before.splitlines())))
    return found


def transcript(persona: Persona, dfopt: Path) -> str:
    """What a newcomer reads, writes, runs and sees."""
    lines = [f"reads {page}, {count} lines" for page, count in reading(persona)]
    total = sum(count for _, count in reading(persona))
    start = time.perf_counter()
    with TemporaryDirectory() as temporary:
        folder = Path(temporary) / "our-model"
        folder.mkdir()
        for name, text in persona.files.items():
            (folder / name).write_text(text, encoding="utf-8")
            lines.append(f"writes {name}, {len(text.splitlines())} lines")
        for command in persona.commands:
            program, *words = command.split() if command.startswith("python") else ["dfopt", *command.split()]
            done = subprocess.run(
                [dfopt.with_name(program), *words, *["-q"] * (words[0] == "solve")], cwd=folder, text=True, check=False,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=os.environ | {"COLUMNS": "80"},
            )  # fmt: skip
            lines += ["", f"$ {program} {' '.join(words)}", *done.stdout.splitlines()]
            assert done.returncode == 0, done.stdout
    seconds = time.perf_counter() - start
    return "\n".join([*lines, "", f"{total} lines read (at most {persona.bar}), own answer after {seconds:.0f} s", ""])


def main() -> int:
    """Write the transcripts, and print what they end with."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*PERSONAS, []], metavar="NAME")
    parser.add_argument("--dfopt", type=Path, default=Path(sys.executable).with_name("dfopt"))
    asked = parser.parse_args()
    for name in asked.names or PERSONAS:
        text = transcript(PERSONAS[name], asked.dfopt)
        (ROOT / "benchmarks" / "personas" / f"{name}.txt").write_text(text, encoding="utf-8")
        print(f"{name}: {text.splitlines()[-1]}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
