"""Files that commands write: never over one of their inputs, nor, without --force, over what dfopt did not write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from cli_tools import GRAPH, RECIPE, SYSTEM, call, write

from dfopt.cli import app
from dfopt.documents.files import is_written_here, write_text
from dfopt.documents.result import Result

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
    answer = call("solve", folder / "g.yaml", folder / "s.yaml", "--no-sensitivity", "-q", "-o", folder / "r.json")
    assert answer.code == 0, answer.err
    return folder


@pytest.mark.parametrize("words", [words for several in OUTPUTS.values() for words in several])
def test_a_file_of_a_person_is_kept(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = next(name for name in OUTPUTS if words.startswith(name))
    last = words.split()[-1]
    name = FILES.get("trace" if last == "trace" else command, last) if "." not in last or last == "r.json" else last
    Path(name).parent.mkdir(exist_ok=True)
    write(tmp_path, "st.yaml", STUDY)
    Path(name).write_text("schema: dfopt/graph/3\n# mine\n")
    answer = call(*words.split())
    assert answer.code == 2 and "is there, and is not as dfopt wrote it" in answer.err, answer
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
def test_an_output_is_no_input(
    words: str, option: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in made.iterdir():
        Path(file.name).write_bytes(file.read_bytes())
    Path("link.yaml").symlink_to("s.yaml")
    for name in ("r.html", "st.csv", "c.yaml"):
        Path(name).touch()
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    answer = call(*words.split(), *(["--force"] if "--force" not in words else []))
    assert answer.code == 2 and answer.err.startswith(f"dfopt: {option}: "), answer
    assert "is a file that is read or written too" in answer.err
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_what_dfopt_wrote_is_replaced(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the same command; what was edited in between is kept, and an empty file is nobody's."""
    monkeypatch.chdir(tmp_path)
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
            answer = call(*words.split())
            assert answer.code == 0, (words, answer.err)
        for file in {*tmp_path.rglob("*")} - before:
            assert not file.is_file() or file.suffix in (".jsonl", ".lock") or is_written_here(file), file
    Path("a.yaml").write_text(Path("a.yaml").read_text() + "# mine\n")
    Path("report.html").write_text("")
    assert call("solve", "g.yaml", "s.yaml", "-o", "a.yaml").code == 2
    assert call("report", "r.json").code == 0


def test_a_document_says_who_wrote_it_and_loads(tmp_path: Path) -> None:
    path = tmp_path / "g.yaml"
    write_text(path, "".join(f"{key}: {json.dumps(value)}\n" for key, value in RECIPE.items()))
    assert path.read_text().startswith("# written by dfopt, crc32 ") and is_written_here(path)
    assert call("check", path).code == 0
    path.write_text(path.read_text().replace("tiny", "teeny"))
    assert not is_written_here(path)


def test_a_result_that_is_too_long_for_yaml_is_json(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = Result.load(made / "r.json")
    monkeypatch.setattr("dfopt.documents.base.MAX_BYTES", 1000)
    with pytest.raises(Exception, match=r"at most 1,000 bytes of YAML are read [(]it was written as .*r.json"):
        result.dump(tmp_path / "r.yaml")
    assert Result.load(tmp_path / "r.json") == result and not (tmp_path / "r.yaml").exists()
