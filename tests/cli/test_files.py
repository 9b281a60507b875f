"""What commands write: whole, under any name, never over an input, nor, without --force, over a file of a person."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest
import typer
from cli_tools import GRAPH, RECIPE, SYSTEM, call, changed, own_folder, run, shell, write

from dfopt.cli import app
from dfopt.documents import files
from dfopt.documents.files import check_writable, is_written_here, replaced, write_text
from dfopt.documents.result import Result
from dfopt.errors import DocumentError

_inside = pytest.fixture(autouse=True)(own_folder)

STUDY = {
    "schema": "dfopt/study/1", "name": "one", "graphs": [{"graph": "g.yaml"}], "systems": [{"system": "s.yaml"}],
    "options": {"sensitivity": False},
}  # fmt: skip
# An output of every command that writes one; R is a result, M arguments, C a case that cannot be read.
OUTPUTS = {
    "solve": ("solve g.yaml s.yaml -o r2.json", "solve g.yaml s.yaml --dump m.lp"),
    "heat": ("heat r.json -o heat.json",),
    "check": ("check r.json -o certificate.json",),
    "new": ("new system -o new.yaml",),
    "compare": ("compare r.json r.json -o page.html",),
    "report": ("report r.json -o page.html", "report r.json"),
    "plot": ("plot r.json --kind step -o a.svg", "plot r.json --kind step", "plot r.json --kind trace"),
    "sweep": ("sweep st.yaml --csv a.csv", "sweep st.yaml --parquet a.parquet"),
    "runs": ("runs st.runs.jsonl --csv a.csv", "runs st.runs.jsonl --parquet a.parquet"),
    "derive": ("derive d.yaml --system-out x.yaml", "derive d.yaml --stack-out x.yaml"),
    "explore": ("explore g.yaml d.yaml -o e.json",),
    "calibrate": ("calibrate --system s.yaml a.csv -o c.yaml",),
    "export": ("export megatron r.json -o out",),
    "import hf": ("import hf c.json -o x.yaml",),
    "import onnx": ("import onnx c.onnx -o x.yaml",),
    "import dfmodel": ("import dfmodel c.json -o out",),
    "import calculon": ("import calculon c.json c.json -o out",),
    "import megatron": ("import megatron a.args -o out",),
    "import deepflow": ("import deepflow c.yaml -o x.yaml",),
}
FILES = {
    "report": "report.html", "plot": "step.svg", "trace": "trace.json", "export": "out/megatron.args",
    "import dfmodel": "out/graph.yaml", "import calculon": "out/pins.yaml", "import megatron": "out/pins.yaml",
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a graph, a system, a study, and a result of them."""
    folder = tmp_path_factory.mktemp("made")
    for name, data in (("g", GRAPH), ("s", SYSTEM), ("st", STUDY)):
        write(folder, f"{name}.yaml", data)
    run("solve", folder / "g.yaml", folder / "s.yaml", "--no-sensitivity", "-q", "-o", folder / "r.json")
    return folder


@pytest.mark.parametrize("words", [words for several in OUTPUTS.values() for words in several])
def test_a_file_of_a_person_is_kept(words: str, tmp_path: Path) -> None:
    command = next(name for name in OUTPUTS if words.startswith(name))
    last = words.split()[-1]
    name = FILES.get("trace" if last == "trace" else command, last) if "." not in last or last == "r.json" else last
    Path(name).parent.mkdir(exist_ok=True)
    write(tmp_path, "st.yaml", STUDY)
    Path(name).write_text("schema: dfopt/graph/3\n# mine\n")
    answer = run(*words.split(), code=2)
    assert "is there, and is not as dfopt wrote it" in answer.err, answer
    assert Path(name).read_text() == "schema: dfopt/graph/3\n# mine\n"


def test_every_command_that_writes_is_tried_above() -> None:
    every = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    imports = {f"import {name}": one for name, one in every["import"].commands.items()}
    writes = {
        name
        for name, one in {**every, **imports}.items()
        if any({"--force", "--output", "--csv", "--dump"} & {*parameter.opts} for parameter in one.params)
    }
    assert writes == set(OUTPUTS)


@pytest.mark.parametrize(
    "words, option",
    [
        ("solve g.yaml s.yaml -o g.yaml", "--output"),
        ("solve g.yaml s.yaml -o ./s.yaml --force", "--output"),
        ("solve g.yaml s.yaml --pins link.yaml -o s.yaml", "--output"),
        ("compare r.html r.json -o r.html", "--output"),
        ("plot r.json --kind trace -o r.json --force", "--output"),
        ("heat r.json -o r.json", "--output"),
        ("derive h100 --system-out s.yaml --stack-out s.yaml --force", "--system-out"),
        ("runs st.csv --csv st.csv", "--csv"),
        ("runs a.jsonl --csv b.csv --merge b.csv", "--csv"),
        ("sweep st.yaml --store new.csv --csv new.csv", "--csv"),
        ("explore g.yaml h100 --store e.json -o e.json", "--output"),
        ("import hf c.yaml -o c.yaml --force", "--output"),
    ],
)
def test_an_output_is_no_input(words: str, option: str, made: Path, tmp_path: Path) -> None:
    for file in made.iterdir():
        Path(file.name).write_bytes(file.read_bytes())
    Path("link.yaml").symlink_to("s.yaml")
    for name in ("r.html", "st.csv", "c.yaml"):
        Path(name).touch()
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    answer = run(*words.split(), *(["--force"] if "--force" not in words else []), code=2)
    assert answer.err.startswith(f"dfopt: {option}: "), answer
    assert "is a file that is read or written too" in answer.err
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_what_dfopt_wrote_is_replaced(made: Path, tmp_path: Path) -> None:
    """Twice the same command; what was edited in between is kept, and an empty file is nobody's."""
    for file in made.iterdir():
        Path(file.name).write_bytes(file.read_bytes())
    write(tmp_path, "r.args", "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 32"
          " --micro-batch-size 1 --global-batch-size 8 --vocab-size 512")  # fmt: skip
    for words in (
        "solve g.yaml s.yaml --no-sensitivity -q -o a.yaml --dump a.mps",
        "report r.json", "compare r.json a.yaml -o c.html", "plot r.json --kind step", "plot r.json --kind trace",
        "plot r.json --kind step -o a.png", "plot r.json --kind step -o a.pdf",
        "solve g.yaml s.yaml --no-sensitivity -q -o r.json",
        "sweep st.yaml -q --jobs 1 --csv f.csv --parquet f.parquet --results cells", "import megatron r.args -o m",
    ):  # fmt: skip
        before = {*tmp_path.rglob("*")}
        for _ in range(2):
            run(*words.split())
        for file in {*tmp_path.rglob("*")} - before:
            assert not file.is_file() or file.suffix in (".jsonl", ".lock") or is_written_here(file), file
    Path("a.yaml").write_text(Path("a.yaml").read_text() + "# mine\n")
    Path("report.html").write_text("")
    run("solve", "g.yaml", "s.yaml", "-o", "a.yaml", code=2)
    run("report", "r.json")


def test_a_document_says_who_wrote_it_and_loads(tmp_path: Path) -> None:
    path = tmp_path / "g.yaml"
    write_text(path, "".join(f"{key}: {json.dumps(value)}\n" for key, value in RECIPE.items()))
    assert path.read_text().startswith("# written by dfopt, crc32 ") and is_written_here(path)
    run("check", path)
    path.write_text(path.read_text().replace("tiny", "teeny"))
    assert not is_written_here(path)


def test_a_result_that_is_too_long_for_yaml_is_json(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = Result.load(made / "r.json")
    monkeypatch.setattr("dfopt.documents.base.MAX_BYTES", 1000)
    with pytest.raises(Exception, match=r"at most 1,000 bytes of YAML are read [(]it was written as .*r.json"):
        result.dump("r.yaml")
    assert Result.load("r.json") == result and not Path("r.yaml").exists()


@pytest.fixture
def solve(tmp_path: Path) -> tuple[str, ...]:
    graph, system = write(tmp_path, "g.yaml", GRAPH), write(tmp_path, "s.yaml", SYSTEM)
    return ("solve", str(graph), str(system), "--no-sensitivity", "-q")


@pytest.mark.parametrize("option, name", [("-o", "r.json"), ("--dump", "m.lp")])
@pytest.mark.parametrize("folder", ["no/such", "/proc"])
def test_a_place_that_takes_no_file_is_told_before_the_work(
    solve: tuple[str, ...], folder: str, option: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not Path("/proc/self").exists() and folder == "/proc":
        pytest.skip("no such folder here")
    monkeypatch.setattr("dfopt.search.answer", lambda *_, **__: pytest.fail("it was solved"))
    answer = call(*solve, option, f"{folder}/{name}")
    assert (answer.code, answer.out) == (2, "")
    assert "cannot be written" in answer.err and "name a file in an existing folder" in answer.err


def test_an_answer_whose_file_fails_after_all_is_printed(
    solve: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, "r.json", "what was there")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "replace", full)
    answer = run(*solve, "-o", path, "--force", code=3)
    assert "\nstep  " in answer.out
    assert "r.json: 1 problem\n  $: cannot be written: No space left on device" in answer.err
    assert path.read_text() == "what was there"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["g.yaml", "r.json", "s.yaml"]


def test_files_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "one\n")
    with contextlib.suppress(RuntimeError), replaced(path) as part:
        part.write_text("half")
        raise RuntimeError
    assert path.read_text() == "one\n"
    link = tmp_path / "link.txt"
    link.symlink_to(path)
    write_text(link, "two\n")
    assert link.is_symlink() and path.read_text() == "two\n"
    assert check_writable(path) == path and path.read_text() == "two\n"
    assert len(list(tmp_path.iterdir())) == 2


def test_devices_and_pipes_are_written_as_they_are(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_text(pipe, "through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    write_text(os.devnull, "gone")
    assert not Path(os.devnull).is_file()


def test_a_folder_and_a_protected_file_take_nothing(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="it is a folder"):
        check_writable(tmp_path)
    path = write(tmp_path, "a.txt", "mine")
    path.chmod(0o400)
    if os.access(path, os.W_OK):
        pytest.skip("this user may write everywhere")
    with pytest.raises(DocumentError, match="Permission denied"):
        write_text(path, "yours")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device here")
@pytest.mark.parametrize("words", ["list graphs", "show gpt2-small --json", "--help"])
@pytest.mark.parametrize(
    "where, why", [("> /dev/full", "No space left on device"), (">&-", "Bad file descriptor"), ("<&- >&- 2>&-", "")]
)
def test_no_traceback_where_nothing_can_be_printed(words: str, where: str, why: str) -> None:
    answer = shell(f"dfopt {words} {where}")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err == (f"dfopt: the answer cannot be printed: {why}\n" if why else "")


def test_a_result_is_whole_although_it_cannot_be_printed(solve: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    answer = shell(f"dfopt {' '.join(solve)} -o {path} >&-")
    assert answer.code == 1
    assert json.loads(path.read_text())["level_gap"] == 0.0
    run("check", path)


EVIL = "=x\x1b[31m\0\u202e</text></title><script>alert(1)</script>$x_$\x9b"
RAW = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u202e]|<script>alert")


def renamed(graph: bool) -> dict[str, object]:
    if not graph:
        return changed(SYSTEM, name=EVIL, chip__name=EVIL, description=EVIL)
    data = changed(GRAPH, name=EVIL, description=EVIL, source=EVIL, kernels__1__name=EVIL)
    return changed(data, tensors__0__dst=EVIL, tensors__1__src=EVIL)


def test_names_are_seen_as_they_are(tmp_path: Path) -> None:
    write(tmp_path, "g.json", renamed(graph=True))
    write(tmp_path, "s.json", renamed(graph=False))
    write(tmp_path, "st.json", {
        "schema": "dfopt/study/1", "name": EVIL, "graphs": [{"graph": "g.json"}], "options": {"sensitivity": False},
        "systems": [{"system": "s.json", "label": EVIL}, {"system": "s.json", "label": "-2"}],
    })  # fmt: skip
    said = []
    for words in (
        "show g.json", "show s.json", "solve g.json s.json --no-sensitivity -q -o r.yaml", "check r.yaml",
        "score r.yaml", "report r.yaml", "plot r.yaml --kind step -o a.svg", "plot r.yaml --kind timeline -o b.svg",
        "plot r.yaml --kind dataflow -o c.svg", "sweep st.json --jobs 1 -q --csv f.csv", "runs st.runs.jsonl",
        "report st.json -o st.html", "plot st.json --kind heat-map --x system -o d.svg",
    ):  # fmt: skip
        answer = run(*words.split())
        said += [answer.out, answer.err]
    for word in (EVIL, f"--{EVIL}", f"--pin={EVIL}", f"--set={EVIL}=1", f"--assume={EVIL}"):
        for words in (["show", word, word], ["solve", "g.json", word], ["solve", "g.json", "s.json", word]):
            said += [call(*words).err]
    assert not RAW.search("".join(said).replace("<script>", ""))
    assert r"=x\x1b[31m\x00\u202e" in said[0]
    for file in [*tmp_path.glob("*.svg"), *tmp_path.glob("*.html")]:
        assert not RAW.search(file.read_text()), file.name
    cells = [cell for line in (tmp_path / "f.csv").read_text().split("\n") for cell in line.split(",")]
    assert f"'{EVIL}" in cells and "'-2" in cells and not any(cell.startswith(("=", '"=')) for cell in cells)


def test_half_a_surrogate_pair_is_not_written(tmp_path: Path) -> None:
    folder = tmp_path / "bad\udcff"
    folder.mkdir()
    write(folder, "g.yaml", {"num-layers": 2, "hidden-size": 64, "num-attention-heads": 4, "seq-length": 32,
          "micro-batch-size": 1, "global-batch-size": 8, "vocab-size": 512})  # fmt: skip
    (folder / "g.yaml").rename(folder / "g\udcfe.yaml")
    answer = run("import", "megatron", folder / "g\udcfe.yaml", "-o", tmp_path / "out", code=3)
    assert r"$.name: found 'g\udcfe', expected text in UTF-8" in answer.err
    with pytest.raises(DocumentError, match="half a surrogate pair"):
        write_text(tmp_path / "x.yaml", "name: g\udcfe")
    assert not (tmp_path / "x.yaml").exists() and not (tmp_path / "out").exists()
