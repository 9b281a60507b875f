"""Run the blocks of a page: ``python tests/guide/blocks.py [--write] [--fill] [--slow] [PAGE...]``.

It compares what blocks show with what they print, or writes the latter into the page. Output that is ``...`` alone is
like anything; ``--write --fill`` puts the present output in its place.

A page has these blocks, and no others:

- ``console``: lines that begin with ``$`` are commands, the rest is what they print. A pipe may go to ``head``,
  ``tail`` or ``grep``, output to a file. A command without output only has to succeed.
- ``python``: a doctest, or a script that has to run. All of a page share their names.
- ``yaml``: a file of the page with ``<!-- file: NAME -->`` before it, else a part of one that has to be YAML.
- ``sh``: not run, for a reason: ``<!-- not run: REASON -->`` or ``<!-- command: NAME -->`` stands before it.

``<!-- slow -->`` before a block keeps it for the night, ``<!-- exit: 4 -->`` expects that exit status of its last
command. The blocks of a page run in its order in one folder, which has the files of `given` from the start. Seconds
that a search took differ from run to run, so `VOLATILE` figures are compared by their place
only. The command prints the CPU seconds of blocks that take more than one.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
GUIDE = ROOT / "dfopt" / "guide"
PAGES = [ROOT / "README.md", *sorted(GUIDE.glob("*.md"))]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
LANGUAGES = {"console", "python", "yaml", "sh", "json", "csv"}
VOLATILE = [
    (r"\bafter [\d.,]+ m?s\b", "after ... s"),
    (r"\b(within|gap) [\d.,]+ %", r"\1 ... %"),
    # of equally fast mappings a busy machine may find another one
    (r",? sequence parallelism on\s+\d+ of\s+\d+ kernels", ""),
]
_FENCE = re.compile(r"((?:^<!-- [^\n]*? -->\n)*)^```(\w*)[^\S\n]*\n(.*?)^```[^\S\n]*$", re.MULTILINE | re.DOTALL)


@dataclass
class Block:
    """A block of a page: its language, text, the marks before it, and where its text lies."""

    language: str
    text: str
    marks: dict[str, str]
    start: int
    line: int

    @property
    def slow(self) -> bool:
        """Whether it runs at night only."""
        return "slow" in self.marks


@dataclass
class Run:
    """The state of a page that runs: names of its Python, differences and CPU seconds by line so far; what to fill."""

    names: dict[str, Any] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)
    fill: bool = False
    seconds: dict[int, float] = field(default_factory=dict)


def blocks_of(page: str) -> list[Block]:
    """All blocks of a page in its order."""
    blocks = []
    for found in _FENCE.finditer(page):
        marks = dict(re.findall(r"<!-- ([\w ]+?)(?:: (.*?))? -->", found[1]))
        blocks.append(Block(found[2], found[3], marks, found.start(3), page.count("\n", 0, found.start(3)) + 1))
    return blocks


def given(folder: Path) -> None:
    """Write the files that a reader of the guide has: a model's ``config.json``, an ONNX model, a sample of rows."""
    from onnx_models import bert

    (folder / "qwen3-8b").mkdir()
    (folder / "qwen3-8b" / "config.json").write_text((ROOT / "tests/golden/hf/qwen3-8b.json").read_text())
    bert(layers=2, width=64, heads=4, inside=128, vocab=100).save(folder / "bert.onnx")


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Commands of a console block with what they print."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        while command.endswith("\\"):
            more, _, output = output.partition("\n")
            command = f"{command[:-1]}{more.strip()}"
        yield command, output


def printed(command: str) -> tuple[int, str]:
    """Exit status of a command, and what it prints on standard output, or where that is nothing, of errors."""
    words = shlex.split(command, comments=True)
    target = Path(words[words.index(">") + 1]) if ">" in words else None
    words = words[: words.index(">")] if ">" in words else words
    stages = [[]]
    for word in words:
        stages.append([]) if word == "|" else stages[-1].append(word)
    code, text = _dfopt(stages[0][1:]) if stages[0][0] == "dfopt" else _other(stages[0])
    for stage in stages[1:]:
        text = _piped(stage, text)
    if target is not None:
        target.write_text(text, encoding="utf-8")
        text = ""
    return code, text


def _dfopt(arguments: list[str]) -> tuple[int, str]:
    from typer.testing import CliRunner

    from dfopt.cli import app

    done = CliRunner().invoke(app, arguments, env={"NO_COLOR": "1"})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout or (done.stderr if done.exit_code else "")


def _other(words: list[str]) -> tuple[int, str]:
    words = [sys.executable, *words[1:]] if words[0] == "python" else words
    words = [str(ROOT / word) if word.startswith("benchmarks/") else word for word in words]
    done = subprocess.run(
        words, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False
    )
    return done.returncode, done.stdout or done.stderr


def _piped(stage: list[str], text: str) -> str:
    """What ``head -N``, ``tail -N`` or ``grep [-v] [-A N] [-E] PATTERN`` leaves of a text."""
    lines = text.splitlines(keepends=True)
    count = next((int(word[1:]) for word in stage if re.fullmatch(r"-\d+", word)), 10)
    if stage[0] in ("head", "tail"):
        return "".join(lines[:count] if stage[0] == "head" else lines[-count:])
    assert stage[0] == "grep", f"a pipe to {stage[0]} is not known"
    after = int(stage[stage.index("-A") + 1]) if "-A" in stage else 0
    hits = [number for number, line in enumerate(lines) if bool(re.search(stage[-1], line)) != ("-v" in stage)]
    keep = sorted({number + more for number in hits for more in range(after + 1) if number + more < len(lines)})
    return "".join(lines[number] for number in keep)


def same(expected: str, output: str) -> bool:
    """Whether two outputs agree but for spaces, ``...`` and `VOLATILE` figures."""
    for pattern, replacement in VOLATILE:
        expected, output = (re.sub(pattern, replacement, text) for text in (expected, output))
    return doctest.OutputChecker().check_output(expected.rstrip() + "\n", output.rstrip() + "\n", FLAGS)


def folded(line: str) -> str:
    """A line of output in at most 100 columns, as a terminal would fold it, but between words."""
    indent = " " * (len(line) - len(line.lstrip()) + 1)
    options = {"break_long_words": False, "break_on_hyphens": False, "replace_whitespace": False}
    return textwrap.fill(line.rstrip(), 100, subsequent_indent=indent, **options) if len(line) > 100 else line.rstrip()


def run_block(block: Block, run: Run) -> str:
    """Run a block; its text with the present output, differences go to the run."""
    if block.language == "console":
        return _run_console(block, run)
    if block.language == "python":
        return _run_python(block, run)
    if block.language == "yaml":
        yaml.safe_load(block.text)
        if "file" in block.marks:
            Path(block.marks["file"]).parent.mkdir(parents=True, exist_ok=True)
            Path(block.marks["file"]).write_text(block.text, encoding="utf-8")
    return block.text


def _run_console(block: Block, run: Run) -> str:
    fill = run.fill
    parts = []
    pairs = list(commands(block.text))
    sources = re.split(r"^(?=\$ )", block.text, flags=re.MULTILINE)[1:]
    for number, ((command, expected), source) in enumerate(zip(pairs, sources, strict=True)):
        code, output = printed(command)
        wanted = int(block.marks.get("exit", 0)) if number == len(pairs) - 1 else 0
        if code != wanted:
            run.differences.append(f"line {block.line}: $ {command}: exit {code}, expected {wanted}\n{output}")
        head = source[: len(source) - len(expected)]
        blank = expected[len(expected.rstrip("\n")) :] if expected.strip() else ""
        if not expected.strip() or (same(expected, output) and not (fill and expected.strip() == "...")):
            parts.append(source)
            continue
        run.differences.append(f"line {block.line}: $ {command}\nexpected:\n{expected}\nprinted:\n{output}")
        parts.append(head + "\n".join(map(folded, output.rstrip().splitlines())) + (blank or "\n"))
    return "".join(parts)


def _run_python(block: Block, run: Run) -> str:
    if ">>>" not in block.text:
        exec(compile(block.text, f"line {block.line}", "exec"), run.names)
        return block.text
    test = doctest.DocTestParser().get_doctest(block.text, run.names, "page", None, 0)
    test.globs = run.names
    failures: dict[int, tuple[doctest.Example, str]] = {}

    class Runner(doctest.DocTestRunner):
        def report_failure(self, out: Any, test: Any, example: doctest.Example, got: str) -> None:
            failures[example.lineno] = (example, got)

        def report_unexpected_exception(self, out: Any, test: Any, example: doctest.Example, exc_info: Any) -> None:
            failures[example.lineno] = (example, f"{exc_info[0].__name__}: {exc_info[1]}\n")

    Runner(optionflags=FLAGS).run(test, clear_globs=False)
    lines = block.text.splitlines(keepends=True)
    for number in sorted(failures, reverse=True):
        example, got = failures[number]
        run.differences.append(
            f"line {block.line + number}: >>> {example.source}expected:\n{example.want}\ngot:\n{got}"
        )
        first = number + example.source.count("\n")
        lines[first : first + example.want.count("\n")] = got.splitlines(keepends=True)
    return "".join(lines)


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Work in a folder for a while."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def run_page(page: str, *, slow: bool, run: Run | None = None) -> tuple[str, list[str]]:
    """Run the blocks of a page (the slow ones too, if asked); the page with the present output, and the differences."""
    run = run or Run()
    with tempfile.TemporaryDirectory() as name, inside(Path(name)):
        given(Path(name))
        pieces, end = [], 0
        for block in blocks_of(page):
            pieces.append(page[end : block.start])
            end = block.start + len(block.text)
            idle, start = block.language == "sh" or (block.slow and not slow), sum(os.times()[:4])
            with contextlib.redirect_stderr(io.StringIO()):
                pieces.append(block.text if idle else run_block(block, run))
            run.seconds[block.line] = sum(os.times()[:4]) - start
    return "".join(pieces) + page[end:], run.differences


def main(arguments: list[str]) -> int:
    """Compare pages, or write the present output into them."""
    sys.path.insert(0, str(HERE.parent))
    os.environ.pop("COLUMNS", None)
    pages = [Path(name) for name in arguments if not name.startswith("--")] or PAGES
    wrong = 0
    for path in pages:
        text = path.read_text(encoding="utf-8")
        run = Run(fill="--fill" in arguments)
        written, differences = run_page(text, slow="--slow" in arguments, run=run)
        wrong += bool(differences)
        if "--write" in arguments and written != text:
            path.write_text(written, encoding="utf-8")
        times = ", ".join(f"line {line}: {seconds:.1f}" for line, seconds in run.seconds.items() if seconds > 1)
        print(f"{path.name}: {len(differences)} differences; {sum(run.seconds.values()):.0f} CPU s ({times})")
        print(*differences, sep="\n", end="\n" * bool(differences), flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
