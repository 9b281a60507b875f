"""``dfopt guide``: lists pages, shows one, finds words; plain in a pipe, rendered on a terminal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import names_page
import pytest
import rules_table
from blocks import GUIDE
from model_types import PAGE, page
from typer.testing import CliRunner

from dfopt.cli import app
from dfopt.guide import show
from dfopt.terms import rules


def test_it_lists_every_page_with_a_line() -> None:
    lines = CliRunner().invoke(app, ["guide"]).output.splitlines()
    assert {line.split()[0] for line in lines} == {path.stem.lower() for path in GUIDE.glob("*.md")}
    assert "you can find the fastest way to train a model on your chips" in " ".join(lines)


def test_it_prints_a_page_as_it_is() -> None:
    assert CliRunner().invoke(app, ["guide", "serve"]).output == (GUIDE / "serve.md").read_text(encoding="utf-8")


def test_it_finds_words_and_names_a_near_page() -> None:
    assert "glossary: **ZeRO**" in CliRunner().invoke(app, ["guide", "--find", "**zero**"]).output
    wrong = CliRunner().invoke(app, ["guide", "serv"])
    assert wrong.exit_code == 2 and "did you mean 'serve'?" in wrong.output


def test_a_terminal_gets_it_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    import rich.console

    shown: list[Any] = []
    monkeypatch.setattr(rich.console.Console, "pager", lambda self, **_: rich.console.Console(quiet=True))
    monkeypatch.setattr(rich.console.Console, "print", lambda self, *objects, **_: shown.extend(objects))
    monkeypatch.setattr(rich.console.Console, "__enter__", lambda self: self, raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    show("statuses")
    assert [type(one).__name__ for one in shown] == ["Markdown"]


def test_the_page_of_names_is_that_of_commands_and_functions() -> None:
    assert names_page.PAGE.read_text(encoding="utf-8") == names_page.page()


def test_the_page_of_models_is_that_of_the_importer() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()


def test_the_rules_of_the_formulation_are_those_of_the_table() -> None:
    assert rules_table.PAGE.read_text(encoding="utf-8") == rules_table.page()


def test_rules_add_to_every_resource_of_the_table() -> None:
    source = "".join(path.read_text() for path in Path(rules.__file__).parent.glob("*.py"))
    for name in rules_table.RESOURCES:  # some are named in a loop, or by a suffix
        assert f'"{name.removesuffix("_copied")}"' in source
