"""The README's console examples print what it shows, and its marked commands are what CI runs."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path

import pytest
from onnx_models import bert
from typer.testing import CliRunner

from dfopt.cli import app
from dfopt.documents.question import Question

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def console_blocks() -> list[tuple[str, str]]:
    """(command, expected output) of every example that shows its output."""
    found = []
    for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command.partition("  #")[0].strip(), output))
    return found


SHOWN = [(command, output) for command, output in console_blocks() if output.strip()]


@pytest.mark.parametrize(("command", "output"), SHOWN, ids=[command for command, _ in SHOWN])
def test_output_is_what_the_readme_shows(command: str, output: str) -> None:
    done = CliRunner().invoke(app, shlex.split(command)[1:])
    assert done.exit_code == 0, done.output
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    checker = doctest.OutputChecker()
    example = doctest.Example(command, output)
    assert checker.check_output(output, done.stdout, flags), checker.output_difference(example, done.stdout, flags)


def test_the_other_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-graph.yaml").write_text((ROOT / "graphs" / "gpt2-small.yaml").read_text())
    bert(layers=2, width=64, heads=4, inside=128, vocab=100).save(tmp_path / "bert.onnx")
    Question(graph="gpt2-small", system="sn10-8-ring").dump(tmp_path / "question.yaml")
    (tmp_path / "my-system.yaml").write_text((ROOT / "systems" / "sn10-8-ring.yaml").read_text())
    commands = [command for command, output in console_blocks() if not output.strip()]
    assert len(commands) >= 8
    for command in commands:
        words = shlex.split(command)
        if ">" in words:
            words = words[: words.index(">")]
        if words[1] == "solve" and not {"--gap", "--stack", "-o"} & {*words}:
            words += ["--gap", "30%"]  # that it runs is what is tested here
        done = CliRunner().invoke(app, words[1:])
        assert done.exit_code == 0, (command, done.output)


@pytest.mark.parametrize("name", ["run", "test"])
def test_commands_for_a_fresh_machine_are_marked(name: str) -> None:
    found = re.search(rf"<!-- command: {name} -->\n```\n(.+?)\n```", README)
    assert found is not None
    assert found[1].startswith("python -m pip install")


def test_the_graphs_solve(tmp_path: Path) -> None:
    found = re.findall(r"```yaml\n(schema: dfopt/graph/\d\n.*?)```", README, re.DOTALL)
    assert len(found) == 2
    for number, text in enumerate(found):
        (tmp_path / f"{number}.yaml").write_text(text)
        done = CliRunner().invoke(
            app, ["solve", str(tmp_path / f"{number}.yaml"), "sn10-8-ring", "-q", "--no-sensitivity"]
        )
        assert done.exit_code == 0, done.output


def test_the_study_of_the_first_questions_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [text] = re.findall(r"```yaml\n(schema: dfopt/study/\d\nname: decode\n.*?)```", README, re.DOTALL)
    (tmp_path / "decode.yaml").write_text(text)
    done = CliRunner().invoke(app, ["sweep", str(tmp_path / "decode.yaml"), "--jobs", "1", "-q"])
    assert done.exit_code == 0 and "4 cells, 4 optimal" in done.output, done.output


def test_no_remedy_names_a_package_that_no_index_has() -> None:
    files = [ROOT / "README.md", *(ROOT / "dfopt").rglob("*.py")]
    assert not [file for file in files if re.search(r"pip install .?dfopt", file.read_text(encoding="utf-8"))]
