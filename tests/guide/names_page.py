"""Write the page of names of commands, functions and keys: ``python tests/guide/names_page.py --write``."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import typer.main

import dfopt as df
from dfopt.cli import app
from dfopt.cli.help import SETTINGS
from dfopt.documents.names import ACTS, OPTIONS, WORDS
from dfopt.workloads import parameters_of

PAGE = Path(__file__).resolve().parents[2] / "dfopt" / "guide" / "names.md"
HEAD = """# Names

After this page you know the one name of each act and option: on the command line, in Python and in studies.

`python tests/guide/names_page.py --write` makes this page from the commands and functions themselves.
"""
SETTINGS_HEAD = """## Settings

A file `dfopt.toml` in the working directory sets how dfopt prints, how many processes it starts, and where files go.
A variable `DFOPT_NAME` of the environment goes before it, and an option before both. No setting changes a question.
"""
OF_EVERY_COMMAND = "--help", "--help-all", "--color", "--verbose", "--format", "--json", "--force", "--quiet"


def table(*rows: tuple[str, ...]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (rows[0], ("---",) * len(rows[0]), *rows[1:])) + "\n"


def code(*words: str) -> str:
    return ", ".join(f"`{word}`" for word in words)


def options() -> dict[str, list[str]]:
    """The commands that have an option, by its long name."""
    found: dict[str, list[str]] = {}

    def walk(command: object, path: str) -> Iterator[tuple[str, str]]:
        for parameter in getattr(command, "params", []):
            if parameter.param_type_name == "option":
                yield max(parameter.opts, key=len), path
        for name, child in getattr(command, "commands", {}).items():
            yield from walk(child, f"{path} {name}".strip())

    for name, path in walk(typer.main.get_command(app), ""):
        if path and name not in OF_EVERY_COMMAND:
            found.setdefault(name, []).append(path)
    return found


def keywords() -> set[str]:
    """Keywords of the functions that do what commands do, and parameters of workloads."""
    functions = [getattr(df, act.python) for act in ACTS]
    named = {name for function in functions if callable(function) for name in inspect.signature(function).parameters}
    return named | parameters_of("llama-3.1-8b")[0] | {"chips", "nodes", "osl", "set", *dict(WORDS)}


def page() -> str:
    acts = [(code(f"dfopt {act.command}"), code(f"df.{act.python}"), code(*(f"df.{old}" for old in act.earlier)))
            for act in ACTS]  # fmt: skip
    named, earlier = keywords(), dict(WORDS)
    rows = []
    for option, commands in sorted(options().items()):
        word = option.removeprefix("--").replace("-", "_")
        known = word if word in named else "assumptions" if word == "assume" else ""
        rows.append((code(option), code(known) if known else "", code(*([earlier[word]] if word in earlier else [])),
                     ", ".join(commands)))  # fmt: skip
    paths = {path.split()[-1]: path for commands in options().values() for path in commands}
    old = [(code(f"dfopt {paths[name]} {was}"), code(now)) for name, by in OPTIONS.items() for was, now in by.items()]
    return "\n".join([
        HEAD, "## Commands and functions\n", table(("command", "Python", "earlier, for one release"), *acts),
        "## Options and keywords\n",
        "Studies and questions take the names of the second column. Results keep the keys of the third.\n",
        table(("option", "Python", "key in documents", "commands"), *rows),
        "## Earlier options\n", "They work for one release.\n", table(("earlier", "now"), *old),
        SETTINGS_HEAD, f"The settings are {code(*SETTINGS)}.\n",
    ])  # fmt: skip


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(page(), encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != page():
        sys.exit(f"{PAGE}: not what commands and functions say; write it again with --write")
