"""README, guide and its map of the code: blocks print what they show; links, options, fields, files and rooms exist."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import model_types
import names_page
import pytest
import rules_table
import typer.main
from blocks import GUIDE, LANGUAGES, PAGES, ROOT, Block, blocks_of, commands, run_page, same
from test_layers import BESIDE, FLOORS
from typer.testing import CliRunner

from dfopt.cli import app
from dfopt.documents.names import OPTIONS
from dfopt.guide import show
from dfopt.terms import rules

README = ROOT / "README.md"
by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@by_page
def test_blocks_print_what_they_show(page: Path) -> None:
    written, differences = run_page(text_of(page), slow=False)
    assert not differences, "\n".join(differences)
    assert written == text_of(page)


@pytest.mark.nightly
@pytest.mark.parametrize("page", [p for p in PAGES if any(b.slow for b in blocks_of(text_of(p)))], ids=lambda p: p.stem)
def test_slow_blocks_print_what_they_show(page: Path) -> None:
    _, differences = run_page(text_of(page), slow=True)
    assert not differences, "\n".join(differences)


@by_page
def test_every_block_is_of_a_kind_that_is_checked(page: Path) -> None:
    text = text_of(page)
    seen = blocks_of(text)
    assert len(re.findall(r"^```", text, re.MULTILINE)) == 2 * len(seen)
    assert {block.language for block in seen} <= LANGUAGES
    for block in seen:
        if block.language == "sh":
            assert {"not run", "command"} & set(block.marks), (block.line, "a reason why it is not run")
        if block.language == "console":
            assert block.text.startswith("$ "), block.line
    outside = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    assert not re.search(r"^\n {4}(?![-*+\d ])\S", outside, re.MULTILINE), "an indented block is not run"


@by_page
def test_code_is_not_too_wide(page: Path) -> None:
    wide = [line for block in blocks_of(text_of(page)) for line in block.text.splitlines() if len(line) > 100]
    assert not wide


def slugs(text: str) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@by_page
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"^```.*?^```", "", text_of(page), flags=re.MULTILINE | re.DOTALL))
    for link in links:
        if link.startswith(("http://", "https://")):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        assert not anchor or anchor in slugs(text_of(target)), link


@cache
def options() -> set[str]:
    """Every option of dfopt, and of the programs that pages call."""

    def walk(command: object) -> Iterator[str]:
        for parameter in getattr(command, "params", []):
            yield from (*parameter.opts, *parameter.secondary_opts)
        for child in getattr(command, "commands", {}).values():
            yield from walk(child)

    programs = [*(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "tests/guide").glob("*.py")]
    named = {word for file in programs for word in re.findall(r"--[a-z][\w.-]+", text_of(file))}
    for file in (ROOT / "tests/golden/exports").glob("*.yaml"):
        named |= {f"--{word}" for word in re.findall(r"[a-z][a-z0-9]+(?:-[a-z0-9]+)+", text_of(file))}
    general = {"--help", "--version", "--dist", "--hypothesis-seed", "--install-completion", "--show-completion"}
    return {*walk(typer.main.get_command(app)), *named, *general}


@by_page
def test_options_exist(page: Path) -> None:
    text = re.sub(r"\]\([^)]*\)|<!--.*?-->", "", text_of(page))
    shown = "\n".join(re.findall(r"`[^`\n]+`", text) + [c for b in blocks_of(text) for c, _ in commands(b.text)])
    unknown = {option for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", shown) if option not in options()}
    earlier = {old for by in OPTIONS.values() for old in by} if page.stem == "names" else set()
    assert not unknown - earlier


@cache
def names() -> str:
    """All that is called something: code, documents of the library, benchmarks and tests."""
    words: set[str] = set()
    for file in [file for room in ("dfopt", "benchmarks", "tests") for file in (ROOT / room).rglob("*.py")]:
        words.update(re.findall(r"\w+", text_of(file)), [file.name])
    documents = [file for room in ("graphs", "systems", "benchmarks") for file in (ROOT / room).rglob("*.*")]
    for file in [*documents, *(ROOT / "dfopt" / "frontends").rglob("*.yaml")]:
        words.add(file.stem)
        if file.suffix in (".yaml", ".csv"):
            words.update(re.findall(r"\w+", text_of(file)))
    return " ".join(sorted(words))


@by_page
def test_fields_exist(page: Path) -> None:
    """Every identifier with an underscore or a dot in backticks is a name of dfopt, of its files, or of the page."""
    text = text_of(page)
    here = set(re.findall(r"\w+", " ".join(block.text for block in blocks_of(text))))
    known = set(names().split()) | here
    spans = re.findall(r"`([A-Za-z_]\w*(?:[._]\w+)+)(?:\(\))?`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))
    missing = {span for span in spans if span not in known and not set(span.split(".")) <= known}
    assert not {span for span in missing if not (ROOT / span).exists()}


def test_the_readme_marks_the_commands_of_a_fresh_machine() -> None:
    marked = {block.marks["command"]: block for block in blocks_of(text_of(README)) if "command" in block.marks}
    assert set(marked) == {"run", "test"}
    for block in marked.values():
        assert block.text.startswith("python -m pip install") and len(block.text.splitlines()) == 1


def test_no_remedy_names_a_package_that_no_index_has() -> None:
    files = [*PAGES, *(ROOT / "dfopt").rglob("*.py")]
    assert not [file for file in files if re.search(r"pip install .?dfopt", text_of(file))]


def test_blocks_are_read_as_they_stand() -> None:
    page = "<!-- slow -->\n<!-- exit: 4 -->\n```console\n$ a b \\\n    c | head -2\nx\n$ d\n```\n\n```yaml\nk: 1\n```\n"
    first, second = blocks_of(page)
    assert (first.language, first.slow, first.marks["exit"], first.line) == ("console", True, "4", 4)
    assert list(commands(first.text)) == [("a b c | head -2", "x\n"), ("d", "")]
    assert second == Block("yaml", "k: 1\n", {}, page.index("k: 1"), 11)


def test_a_difference_is_reported_and_written() -> None:
    page = "```console\n$ printf 'a  b\\nc'\na b\nd\n$ printf 1\n```\n\n```python\n>>> 1 + 1\n3\n>>> 2\n2\n```\n"
    written, differences = run_page(page, slow=False)
    assert len(differences) == 2 and "printf" in differences[0] and ">>> 1 + 1" in differences[1]
    assert written == page.replace("a b\nd\n", "a  b\nc\n").replace("3\n", "2\n")
    assert run_page(written, slow=False) == (written, [])
    assert run_page("<!-- slow -->\n" + page.split("\n\n")[0], slow=False)[1] == []
    assert run_page("<!-- exit: 1 -->\n```console\n$ false\n```\n", slow=False)[1] == []
    assert run_page("```console\n$ false\n```\n", slow=False)[1] != []


def test_pipes_and_files_work() -> None:
    made = "$ printf 'a\\nb\\nc\\n' > f.txt\n"
    page = f"```console\n{made}$ cat f.txt | grep -A 1 b | tail -1\nc\n$ cat f.txt | head -1  # x\na\n```\n"
    assert run_page(page, slow=False) == (page, [])


def test_seconds_may_differ_and_figures_may_not() -> None:
    assert same("optimal\nproven after 3.1 s\n", "optimal\nproven after 99 ms\n")
    assert same("within 2.99 % of the best\n", "within 3 % of the best\n")
    assert not same("step time 2.3 s\n", "step time 2.4 s\n")


MAP = (ROOT / "dfopt" / "guide" / "architecture.md").read_text(encoding="utf-8")
PACKAGES = {path.parent.name for path in (ROOT / "dfopt").glob("*/__init__.py")} - {"guide"}


def rooms(section: str) -> list[str]:
    """Names of rooms in the first column of the tables of a section, in order."""
    text = MAP.partition(f"## {section}\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`(\w+)/`", cell)]


def test_every_file_that_the_map_names_is_there() -> None:
    names = re.findall(r"`((?:dfopt|tests|benchmarks)/[\w/]*\.(?:py|yaml)|(?:dfopt|systems)/[\w/]*/)`", MAP)
    assert len(names) > 50
    assert [name for name in names if not (ROOT / name).exists()] == []


def test_the_map_has_every_room_once() -> None:
    assert sorted(rooms("Rooms")) == sorted(PACKAGES)


def test_rooms_stand_in_the_order_of_their_imports() -> None:
    height = {name: number for number, floor in enumerate(FLOORS) for name in floor}
    ordered = [name for name in rooms("Rooms") if name not in BESIDE]
    assert [height[name] for name in ordered] == sorted(height[name] for name in ordered)


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


@pytest.mark.parametrize("tool", [names_page, model_types, rules_table], ids=lambda tool: tool.__name__)
def test_a_written_page_is_that_of_its_tool(tool: Any) -> None:
    assert tool.PAGE.read_text(encoding="utf-8") == tool.page()


def test_rules_add_to_every_resource_of_the_table() -> None:
    source = "".join(path.read_text() for path in Path(rules.__file__).parent.glob("*.py"))
    for name in rules_table.RESOURCES:  # some are named in a loop, or by a suffix
        assert f'"{name.removesuffix("_copied")}"' in source
