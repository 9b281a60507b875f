"""One set of names, and manners that all commands share: help, settings, formats, standard input, windows."""

from __future__ import annotations

import inspect
import json
import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_tools import GRAPH, SYSTEM, call, own_folder, run, write
from typer.main import get_command

import dfopt as df
from dfopt.cli import _COMMANDS, app
from dfopt.cli.help import field_of
from dfopt.documents.names import ACTS, OPTIONS, TAKEN_BY, WORDS, in_documents
from dfopt.documents.request import Request

_inside = pytest.fixture(autouse=True)(own_folder)


def test_every_act_has_a_command_and_a_function_and_earlier_names_still_work() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    for act in ACTS:
        assert act.command in commands and hasattr(df, act.python)
        assert all(getattr(df, old) is getattr(df, act.python) and old not in dir(df) for old in act.earlier)
    for name, spelled in OPTIONS.items():
        command = commands.get(name) or commands["import"].commands[name]
        options = {option for parameter in command.params for option in parameter.opts}
        assert set(spelled.values()) <= options
    for keyword, calls in TAKEN_BY.items():
        for function in calls.split(" or "):
            named = inspect.signature(getattr(df, function.removeprefix("df."))).parameters
            assert keyword in named, (keyword, function)


def test_words_mean_the_keys_of_documents() -> None:
    assert in_documents({word: 1 for word, _ in WORDS}) == {key: 1 for _, key in WORDS}
    assert Request(tp_comm_overlap="ring", shard={"a": "n"}) == Request(tensor_overlap="ring", pin_sharding={"a": "n"})
    new = df.load_graph("llama-3.1-8b", phase="prefill", isl=512, cached=128)
    assert new.digest() == df.load_graph("llama-3.1-8b", phase="prefill", seq=512, hit=128).digest()
    assert "context=576" in df.load_graph("llama-3.1-8b", phase="decode", isl=512, osl=128).description
    with pytest.raises(df.PlanError, match="which mean the same"):
        in_documents({"isl": 1, "seq": 2})
    with pytest.raises(df.PlanError, match=r"jobs: .*df\.sweep or df\.explore takes it"):
        df.solve("gpt2-small", "sn10-8-ring", jobs=2)


def test_help_is_by_task_with_examples_and_what_is_of_every_day() -> None:
    top, plain, every = call("--help").out, call("solve", "--help").out, call("solve", "--help-all").out
    assert "Ask a question:" in top and "$ dfopt solve llama-3.1-70b h100-8" in top and "143  SIGTERM" in top
    assert plain.count("\n  dfopt solve ") == 3 and "--formulation" not in plain and "--formulation" in every
    assert plain.index("\n  --phase") < plain.index("\n  --tp ") < plain.index("\n  --gap") < plain.index("--output")
    assert "--hit" not in every and len(plain.splitlines()) < 100


def commands(command: Any, path: str = "dfopt") -> Iterator[tuple[str, Any]]:
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, f"{path} {name}")
    if not hasattr(command, "commands"):
        yield path, command


@pytest.mark.parametrize("path, command", list(commands(get_command(app))))
def test_every_option_has_a_sentence_and_examples_have_options_that_exist(path: str, command: Any) -> None:
    for parameter in command.params:
        field = None if parameter.help else field_of(parameter.name)
        text = parameter.help or (field[1].text if field else "")
        assert re.match(r"[A-Z\w].*[.]$", text) and len(text.split()) > 2, (path, parameter.name, text)
    examples = command.help.partition("Examples:\n")[2].splitlines()
    assert examples
    for line in examples:
        _, *words = shlex.split(line.partition(" > ")[0])
        inner = get_command(app)
        while hasattr(inner, "commands"):
            inner = inner.commands[words.pop(0)]
        named = {option for parameter in inner.params for option in (*parameter.opts, *parameter.secondary_opts)}
        assert {word for word in words if word.startswith("-")} <= named or path.endswith("explain"), line


def test_help_is_there_before_pydantic() -> None:
    heavy = "('pydantic', 'numpy', 'rich.table')"
    script = f"import sys; from dfopt.cli import app; print(*(name for name in {heavy} if name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "\n"


def test_formats_settings_and_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "g.json", GRAPH)
    write(tmp_path, "s.json", SYSTEM)
    solved = call("solve", "g.json", "s.json", "--no-sensitivity", "-q", "--json", "-o", "r.json")
    assert (solved.code, solved.out) == (0, "") and df.Result.load("r.json").status == "optimal"
    head, row = call("show", "r.json", "--format", "csv").out.splitlines()
    assert dict(zip(head.split(","), row.split(","), strict=True))["system"] == "four"
    assert call("list", "systems", "--format", "json").out == call("list", "systems", "--json").out
    assert "found 'xml', expected one of text, json, csv" in call("list", "--format", "xml").err
    assert "found 'blue', expected one of auto" in call("list", "--color", "blue").err
    monkeypatch.setenv("DFOPT_FORMAT", "json")
    assert json.loads(call("list").out)[0] == "graphs"
    monkeypatch.delenv("DFOPT_FORMAT")
    write(tmp_path, "dfopt.toml", "gap = 0.1\n")
    assert "dfopt.toml: found 'gap'" in call("list").err


def test_results_are_pandas_objects_too() -> None:
    result = df.solve("gpt2-small", "sn10-8-ring", tp=8)
    assert abs(result.breakdown.sum() / result.step_time_s - 1) < 1e-9
    assert result.memory.to_numpy().sum() == result.summary()["memory_bytes"] > 0
    assert len(result.partitions) == len(result.score.partitions) and len(result.plans_frame) == len(result.plans)
    assert len(df.frame([result, result])) == 2 and "model_dump" not in dir(result)
    assert all(len(repr(each)) < 120 for each in (result.score, result.plan, result.mapping, result.assumptions))
    assert "on 8 x SambaNova SN10 RDU" in result._repr_html_() and str(df.show(result)).startswith(
        "gpt2-small, forward"
    )


@pytest.mark.parametrize("kind", ["system", "graph", "study", "stack", "design", "question"])
def test_a_new_file_is_commented_and_right(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "new.yaml"
    assert call("new", kind, "-o", path).code == 0 and call("check", path).code == 0
    lines = path.read_text().splitlines()
    assert lines[1:] == call("new", kind).out.splitlines()  # behind the line by which dfopt knows its own files
    keys = [place for place, line in enumerate(lines) if re.match(r"[a-z_]+:", line)]
    assert len(keys) >= 4 and all(lines[place - 1].startswith("# ") for place in keys)
    run("new", kind, "-o", path)  # nobody edited it
    path.write_text("\n".join([*lines, "# mine"]))
    assert "--force" in call("new", kind, "-o", path).err


def test_a_command_is_made_without_the_others() -> None:
    names = "(each.name or each.callback.__name__ for each in _app(sys.argv[1]).registered_commands)"
    script = f"import sys; from dfopt.cli import _app; print(*{names})"
    for first, *others in filter(None, _COMMANDS.values()):
        done = subprocess.run([sys.executable, "-c", script, first], capture_output=True, text=True, check=True)
        assert set(done.stdout.split()) == {first, *others}
    every = {"import", "explain", *(name for commands in _COMMANDS.values() for name in commands)}
    assert set(get_command(app).commands) == every  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("windows") / "r.json"
    run("solve", "gpt3-175b", "sn10-8-torus", "-q", "-o", path)
    return path


@pytest.mark.parametrize("columns", [40, 70, 80, 140])
def test_an_answer_fits_its_window_whole_and_is_not_padded(
    columns: int, answer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for words in (["gpt3-1t"], ["hybrid-vault"], ["sn30-1024-2dtorus"], [answer, "--detail", "all"]):
        out = run("show", *words).out
        assert all(line == line.rstrip() and len(line) <= columns for line in out.splitlines())
        assert "…" not in out
    assert "LayerNorm_1" in out
    for figure in ("1.306", "4.474", "327.3", "1.1000x"):
        assert figure in out.replace(",", " ").split()
    alone = [line for line in out.splitlines() if len(line.strip()) == 1]
    assert len(alone) <= 1, "a column of single characters"  # a kernel may be called K


def on_a_terminal(*words: str, **env: str) -> str:
    """What a command writes to a terminal of its own, 24 lines of 70 columns."""
    main, side = pty.openpty()
    script = f"stty cols 70 rows 24; exec {sys.executable} -m dfopt {' '.join(words)}"
    inherited = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
    with subprocess.Popen(["sh", "-c", script], stdin=side, stdout=side, stderr=side, env={**inherited, **env}) as done:
        os.close(side)
        found = b""
        while True:
            try:
                part = os.read(main, 65536)
            except OSError:  # of Linux: the other side is closed
                break
            if not part:
                break
            found += part
        os.close(main)
    assert done.returncode == 0, found
    return found.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("env", [{"TERM": "xterm-256color"}, {"TERM": "xterm", "NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_terminal_without_colours_gets_none(env: dict[str, str]) -> None:
    out = on_a_terminal("show", "hybrid-vault", **env)
    assert ("\x1b[1m" in out) == (env["TERM"] != "dumb")
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", out) or "NO_COLOR" not in env
    plain = re.sub(r"\x1b\[[0-9;]*m", "", out)
    assert all(len(line) <= 70 for line in plain.splitlines())
    assert "W/(m K)" in plain and "bond to the sink" in plain
