"""``dfopt explain``: a page on a word of a document, an answer or the command line, from the texts that describe it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, Final

from dfopt.cli.common import app, echo, emit, errors
from dfopt.cli.help import field_of
from dfopt.errors import EXIT_CODES, PlanError, did_you_mean

if TYPE_CHECKING:
    from pydantic import BaseModel

    from dfopt.documents.descriptions import FieldDoc

_WIDTH: Final = 80
_IN_FULL: Final = 3  # meanings that are printed in full; a name such as ``stage`` has more
_PLACES: Final = 4  # where a field occurs, at most
_LONGEST: Final = 200  # characters of an example
_CHOICE: Final = re.compile(r"\s*``([^`]+)``: (.*?)\.(?= ``|\s+[A-Z]|$)")
_VALUE: Final = r"[0-9]*|[0-9]+(x[0-9]+|(\+[0-9.]+)+)|none|ring|pipe|pipe_twice"  # behind the letters of a plan's word


@dataclass(frozen=True)
class Page:
    """One meaning of a name, as ``dfopt explain`` shows it."""

    title: str
    kind: str
    text: str
    facts: tuple[tuple[str, str], ...] = ()


@app.command(context_settings={"ignore_unknown_options": True})  # options of other commands are names here
def explain(words: list[str], as_json: bool = False) -> None:
    """Explain a name: its meaning, unit, default and choices, an example, and where it occurs.

    Arguments:
        words (NAME): Field, option, status, assumption, metric, word of a plan, exit code or term.

    Examples:
        dfopt explain MFU
        dfopt explain --recompute
        dfopt explain optimal_per_level
    """
    with errors():
        name = " ".join(words).strip()
        pages = list(dict.fromkeys(_pages(name)))
        if not pages:
            remedy = did_you_mean(name, _names(), "`dfopt schema KIND` lists fields")
            raise PlanError(f"explain: found {name!r}, expected a field, an option, a status or a term ({remedy})")
        if as_json:
            emit(True, lambda: [asdict(page) for page in pages], lambda: None)
            return
        echo("\n\n".join(map(_printed, pages[:_IN_FULL])))
        if more := [f"{page.title} ({page.kind})" for page in pages[_IN_FULL:]]:
            echo("\n" + fill(f"Also: {', '.join(dict.fromkeys(more))}", _WIDTH))


def _pages(name: str) -> Iterator[Page]:
    """Every meaning of a name."""
    from dfopt.documents.study_columns import COLUMNS

    if name.startswith("-"):
        yield from (page for page, names in _options() if name in names)
    elif name.isdecimal() and int(name) in EXIT_CODES:
        yield Page(name, "exit code", EXIT_CODES[int(name)])
    else:
        yield from (page for page, names in _terms() if name.casefold() in names)
        for pages in (_of_fields, _of_plans, _of_profiles, _of_choices):
            yield from pages(name)
        statuses = re.findall(r"(?:: |, |; | or )(\w+)", COLUMNS["status"])
        column = "status" if name in statuses else name
        if column in COLUMNS:
            yield Page(column, "column of a study", COLUMNS[column], (("see also", "dfopt sweep"),))


def _names() -> list[str]:
    """All that can be explained."""
    from dfopt.documents.assumptions import PROFILES
    from dfopt.documents.study_columns import COLUMNS

    fields = [name for path, field, _ in _fields() for name in (field.name, path, *field.choices)]
    words = [name for _, names in (*_options(), *_terms()) for name in names]
    return [*dict.fromkeys((*fields, *words, *PROFILES, *COLUMNS))]


@cache
def _fields() -> list[tuple[str, FieldDoc, type[BaseModel]]]:
    """Every field with its path from a kind of document, each part where it is nearest to one."""
    from dfopt.documents.base import models_in
    from dfopt.documents.descriptions import fields_of
    from dfopt.documents.kinds import KINDS
    from dfopt.workloads import WORKLOADS

    waiting: list[tuple[str, type[BaseModel]]] = [*{"question": KINDS["question"], **KINDS}.items()]
    waiting += [(f"graph.parameters ({name})", workload.parameters) for name, workload in WORKLOADS.items()]
    reached, listed = {model for _, model in waiting}, []
    for path, model in waiting:
        for field in fields_of(model):
            listed.append((f"{path}.{field.name}", field, model))
            for part in models_in(field.annotation):
                if part not in reached:
                    reached.add(part)
                    waiting.append((f"{path}.{field.name}", part))
    return listed


def _of_fields(name: str) -> Iterator[Page]:
    """Fields of this name or path, or with this abbreviation in front of their text, such as MFU."""
    wanted = name.casefold().replace("-", "_")
    places: dict[tuple[str, str], list[tuple[str, FieldDoc, type[BaseModel]]]] = {}
    for path, field, model in _fields():
        at = re.sub(r" \(\w+\)", "", path).casefold()
        called = field.text.startswith(f"{name.upper()}: ")
        if called or f".{at}".endswith(f".{wanted}") or f".{wanted}".endswith(f".{at}"):
            places.setdefault((field.name, field.text), []).append((path, field, model))
    for (path, field, model), *others in places.values():
        text, choices = _told_apart(field.text)
        example = field.example if len(field.example) <= _LONGEST else f"{field.example[:_LONGEST]} ..."
        also = ", ".join(other for other, *_ in others[:_PLACES]) + " and more" * (len(others) > _PLACES)
        facts = [
            ("type", "one of these" if choices else field.type), *choices, ("unit", field.unit),
            ("default", field.default or "required"), ("example", example), *_of_assumption(field, model),
            *_of_score(field, model), ("also in", also), *_see_also(path, field),
        ]  # fmt: skip
        yield Page(path, "field", text, tuple((key, fact) for key, fact in facts if fact))


def _told_apart(text: str) -> tuple[str, list[tuple[str, str]]]:
    """A text without the sentences that explain choices, and the choices with their meanings."""
    choices = _CHOICE.findall(text)
    listed = [
        ("choices" if place == 0 else "", f"{choice}: {meaning}") for place, (choice, meaning) in enumerate(choices)
    ]
    return _CHOICE.sub("", text).strip(), listed


def _of_assumption(field: FieldDoc, model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """What the profiles set."""
    from dfopt.documents.assumptions import PROFILES, Assumptions

    if model is Assumptions and field.name != "schema":
        by: dict[str, list[str]] = {}
        for name, profile in PROFILES.items():
            by.setdefault(str(profile.to_data().get(field.name, "None")), []).append(name)
        yield "profiles", "; ".join(f"{', '.join(names)}: {value}" for value, names in by.items())


def _of_score(field: FieldDoc, model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """How a figure follows from others."""
    from dfopt.documents.metrics import FORMULAS
    from dfopt.documents.score import Score

    if model is Score and field.name in FORMULAS:
        yield "formula", FORMULAS[field.name]


def _see_also(path: str, field: FieldDoc) -> Iterator[tuple[str, str]]:
    kind = path.partition(".")[0]
    option = f"--{field.name.replace('_', '-')}"
    options = [option] if any(option in names for _, names in _options()) else []
    yield "see also", ", ".join([*options, f"dfopt schema {kind}"])


def _of_plans(name: str) -> Iterator[Page]:
    """A word of a plan's label, such as TP4(node) or ZeRO-1."""
    from dfopt.documents.axes import AXES
    from dfopt.documents.descriptions import fields_of
    from dfopt.documents.plan import NOTATION, Plan

    about = {field.name: field.text.partition(" None:")[0] for field in fields_of(Plan)}
    for begins, field in {**{axis.label: key for key, axis in AXES.items()}, **NOTATION}.items():
        value, _, dims = name.removeprefix(begins).rstrip(")").partition("(")
        if name.startswith(begins) and re.fullmatch(_VALUE, value):
            text, choices = _told_apart(about[field])
            chosen = [meaning for _, meaning in choices if meaning.startswith(f"{value}:")]
            here = chosen or ([value] if value else []) + ([f"along {dims.replace('*', ', ')}"] if dims else [])
            yield Page(
                name, "word of a plan", text, (*(("here", meaning) for meaning in here), ("field", f"plan.{field}"))
            )


def _of_profiles(name: str) -> Iterator[Page]:
    """A profile of assumptions: what it changes."""
    from dfopt.documents.assumptions import PROFILES

    if name in PROFILES:
        usual, own = PROFILES["default"].to_data(), PROFILES[name].to_data()
        changed = tuple((key, str(value)) for key, value in own.items() if usual.get(key) != value and key != "profile")
        text = f"Set of assumptions, for `--assume {name}`. It differs from `default` in {len(changed)} fields."
        yield Page(name, "profile of assumptions", text, changed)


def _of_choices(name: str) -> Iterator[Page]:
    """Fields that may have this value, such as a status."""
    for path, field, _ in _fields():
        if name in field.choices and path.count("(") == 0:
            meaning = dict(_CHOICE.findall(field.text)).get(name)
            text = f"{meaning[0].upper()}{meaning[1:]}." if meaning else field.summary
            yield Page(name, f"value of {path}", text, (("field", field.summary),) if meaning else ())


@cache
def _options() -> list[tuple[Page, tuple[str, ...]]]:
    """Options of all commands, with all their spellings."""
    from typer.main import get_command

    from dfopt.documents.names import OPTIONS

    commands: dict[tuple[tuple[str, ...], str, str], dict[str, Any]] = {}
    waiting: list[tuple[str, Any]] = [("dfopt", get_command(app))]
    for path, command in waiting:
        waiting += [(f"{path} {name}", inner) for name, inner in getattr(command, "commands", {}).items()]
        for option in command.params:
            if option.param_type_name == "option":
                earlier = (old for old, now in OPTIONS.get(command.name, {}).items() if now in option.opts)
                names = (*option.opts, *option.secondary_opts, *earlier)
                sets = None if option.help else field_of(option.name)
                field, text = (
                    (sets[0], sets[1].text)
                    if sets
                    else ("", f"{option.help[:1].upper()}{option.help[1:].rstrip('.')}.")
                )
                commands.setdefault((names, text, field), {})[path] = option
    pages = []
    for (names, text, field), by in commands.items():
        values = dict.fromkeys(option.metavar for option in by.values() if option.metavar)
        facts = ("value", " or ".join(values)), ("commands", ", ".join(by)), ("field", field)
        pages.append((Page(", ".join(names), "option", text, tuple(fact for fact in facts if fact[1])), names))
    return pages


@cache
def _terms() -> list[tuple[Page, tuple[str, ...]]]:
    """Words of the glossary of the guide."""
    glossary = Path(__file__).parents[1] / "guide" / "glossary.md"
    blocks = glossary.read_text(encoding="utf-8").split("\n\n") if glossary.is_file() else []
    entries = [" ".join(block.split()).partition("**: ") for block in blocks if block.startswith("**")]
    pages = []
    for head, _, text in entries:
        names = re.findall(r"\*\*([^*]+)\*\*", f"{head}**")
        text = text.replace("**", "")
        page = Page(names[0], "term", f"{text[:1].upper()}{text[1:]}")
        pages.append((page, tuple(name.casefold() for name in names)))
    return pages


def _printed(page: Page) -> str:
    wide = max((len(key) for key, _ in page.facts), default=0)
    lines = [f"{page.title}{page.kind:>{max(_WIDTH - len(page.title), len(page.kind) + 2)}}"]
    lines.append(fill(page.text.replace("``", "`"), _WIDTH, initial_indent="  ", subsequent_indent="  "))
    for key, fact in page.facts:
        meaning = fact.replace("``", "`")
        lines.append(fill(f"{key:<{wide}}  {meaning}", _WIDTH, initial_indent="  ", subsequent_indent=" " * (wide + 4)))
    return "\n".join(lines)
