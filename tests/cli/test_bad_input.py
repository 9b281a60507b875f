"""What the command line says to bad input: the right exit code, one clear message on stderr, nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from by_path import module_at
from cli_tools import GRAPH, ONE_CHIP_MAPPING, RECIPE, SYSTEM, Data, assert_refused, call, changed, spawn, write
from golden_files import golden

USAGE, BAD, INFEASIBLE = 2, 3, 4
instrument = module_at(Path(__file__).parents[2] / "benchmarks" / "bad_input.py")


@dataclass(frozen=True)
class Case:
    """One bad call: ``words`` of the command line, where G, S, M and F stand for the written files.

    ``says`` are pieces of the message: the place, what was found, what was expected, a remedy.
    """

    name: str
    words: str
    code: int
    says: tuple[str, ...]
    graph: Data = field(default_factory=lambda: GRAPH)
    system: Data = field(default_factory=lambda: SYSTEM)
    other: Data | str | bytes | None = None  # M and F: a mapping, or any file
    suffix: str = ".yaml"


def saved(name: str, call: str, says: list[str], status: str = "bad", suffix: str = ".yaml", **files: Any) -> Case:
    """A case of the golden file, where ``files`` are values to replace in the small documents, or a text."""
    documents = {"graph": GRAPH, "recipe": RECIPE, "system": SYSTEM, "mapping": ONE_CHIP_MAPPING}
    made: dict[str, Any] = {}
    for key, values in files.items():
        if key == "file":
            made["other"] = values
            continue
        replaced = {path.replace(".", "__"): ... if value is None else value for path, value in values.items()}
        made[{"recipe": "graph", "mapping": "other"}.get(key, key)] = changed(documents[key], **replaced)
    return Case(name, call, STATUS[status], tuple(says), **made, suffix=suffix)


def generated(name: str, content: str | bytes, *says: str, suffix: str = ".yaml", words: str = "check F") -> Case:
    """A case whose file is too large, or no text, for the golden file."""
    return Case(name, words, BAD, says, other=content, suffix=suffix)


STATUS = {"usage": USAGE, "bad": BAD, "infeasible": INFEASIBLE}
BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{c}: &{c} [{', '.join(['*' + p] * 10)}]\n" for p, c in zip("abcdefg", "bcdefgh", strict=True)
)
GEMM = "system,m,n,k,latency_ms\nx,8192,8192,8192,4\nx,"
TABLE = {"suffix": ".csv", "words": "calibrate --kernels F -o c.yaml --system a100-512"}
LONG = "a" * 300
CASES = [
    *(saved(name, **case) for section in golden("bad_calls.yaml").values() for name, case in section.items()),
    generated("YAML bomb", BOMB, "found a tag or an anchor"),
    generated("deep nesting", "a: " + "[" * 5000 + "]" * 5000, "levels deep", "flatten"),
    generated("deep nesting in JSON", '{"a": ' + "[" * 99999 + "]" * 99999 + "}", "levels deep", suffix=".json"),
    generated("50 MB", b"#" * 50_000_000, "50,000,000 bytes", "at most"),
    generated("binary", b"\x7fELF\x00\x01\xff\xfe" * 99, "not UTF-8", "expected text"),
    generated("NUL", b"a: \x00\n", "NUL byte", "binary file"),
    generated("30 MB of another's JSON", b'{"a": "' + b"x" * 30_000_000 + b'"}', "at most 20,000,000", suffix=".json"),
    generated("no text", b"system,m\n\xff\xfe\n", "line 2: found bytes that are not UTF-8, from column 1 on", **TABLE),
    generated("a field of 200 kB", GEMM + "1" * 200_000, "line 3: found field larger than field limit", **TABLE),
    generated("a NUL", GEMM + "\0,2,3,4\n", "line 3", "found", "expected", **TABLE),
    Case("a name that is too long", f"solve {LONG} S", BAD, ("no file and no zoo name", "dfopt list graphs")),
    Case("a config of too long a name", f"import hf {LONG} -o x.yaml", BAD, ("cannot be read: ", "check the path")),
    Case(
        "a part of too long a name", "check S", BAD, ("$.chip: no chip of this name",), system={**SYSTEM, "chip": LONG}
    ),
]


def words_of(case: Case, folder: Path) -> list[str]:
    """The case's words with its files written and their names filled in."""
    files = {"G": folder / "graph.yaml", "S": folder / "system.yaml"}
    write(folder, "graph.yaml", case.graph)
    write(folder, "system.yaml", case.system)
    files["M"] = files["F"] = folder / f"other{case.suffix}"
    if case.other is not None:
        write(folder, files["F"].name, case.other)
    files |= {"FOLDER": folder, "OUT": folder / "out"}
    return [str(files.get(word, word)) for word in case.words.split()]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bad_input(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert_refused(call(*words_of(case, tmp_path)), case.code, *case.says)


def test_drawn_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of inputs of every kind that were changed at random; today's date draws others every day."""
    monkeypatch.setattr(instrument, "SECONDS", 20.0)  # of a machine that others use too
    found = [*instrument.failures(date.today().isoformat(), range(20))]
    assert not found, "\n".join(found)


def test_what_the_drawn_inputs_find() -> None:
    """The instrument would pass a command line that says nothing: here is what it must see."""
    fine = instrument.Outcome(3, "", "dfopt: a.yaml: 1 problem\n  $.x: unknown key\n", 0.1, 1e8)
    assert instrument.wrong_with(fine) == ""
    for change in (
        {"code": -1}, {"code": -2}, {"code": 1}, {"code": 6}, {"err": ""}, {"out": "x"}, {"seconds": 3.0},
        {"bytes": 6e8},
        {"err": fine.err * 2}, {"err": fine.err + "warning\n"}, {"err": fine.err + "  $.y: Input should be a number\n"},
        {"err": fine.err + "  $.y: \x1b[31m\n"},
    ):  # fmt: skip
        assert instrument.wrong_with(fine._replace(**change)), change
    drawn = {instrument.draw("0", number).given.kind for number in range(300)}
    assert drawn == {one.kind for one in instrument.inputs()} and len(drawn) > 20


def test_pin_beyond_all_partitions() -> None:
    answer = spawn("solve", "gpt2-small", "sn10-8-ring", "--pin", "Q=9999")
    assert "Traceback" not in answer.err
    assert answer.code in (USAGE, INFEASIBLE)


# One for each way out of a process (of a usage error, a document, a plan, a search), and what a real stack bounds.
REAL = (
    "unknown option", "system typo", "a degree that no dims give", "SRAM too small", "YAML bomb",
    "deep nesting in JSON",
)  # fmt: skip


@pytest.mark.parametrize("case", [case for case in CASES if case.name in REAL], ids=lambda case: case.name)
def test_no_traceback_reaches_a_terminal(case: Case, tmp_path: Path) -> None:
    assert_refused(spawn(*words_of(case, tmp_path), cwd=tmp_path), case.code, *case.says)


def test_the_message_names_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "mine.yaml", changed(SYSTEM, chip__tiles=0))
    for words in (("check", path), ("show", path), ("solve", "gpt2-small", path)):
        assert f"dfopt: {path}: 1 problem\n  $.chip.tiles: " in call(*words).err


def test_with_json_errors_still_go_to_stderr() -> None:
    assert_refused(call("solve", "gpt2-small", "sn10-8-ring", "--tp", "3", "--json"), USAGE, "TP 3")
