"""Every field of every document has a text that stands alone, its unit, its choices and an example that validates."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, TypeAdapter

import dfopt
from dfopt.documents.base import Document, Part
from dfopt.documents.descriptions import FieldDoc, fields_of
from dfopt.documents.json_schema import schema_json
from dfopt.documents.on_axes import OnAxes
from dfopt.documents.strict_yaml import load_strict
from dfopt.units import UNITS_REQUIRED, Seconds

FEWEST_WORDS = 5
LISTED = 7
"""Choices up to this many are explained one by one; of more the text says where they are."""


def _below(model: type[BaseModel]) -> set[type[BaseModel]]:
    return {model}.union(*map(_below, model.__subclasses__()))


def _is_written(model: type[BaseModel]) -> bool:
    """Whether a class stands in its module, and is not made while a program runs, as forms of parts are."""
    return getattr(import_module(model.__module__), model.__name__, None) is model


@cache
def _models() -> list[type[BaseModel]]:
    package = Path(dfopt.__file__).parent
    for path in package.rglob("*.py"):
        if re.search(r"^(from pydantic|class \w+\()", path.read_text(encoding="utf-8"), re.MULTILINE):
            *rooms, name = path.relative_to(package.parent).with_suffix("").parts
            import_module(".".join(rooms if name == "__init__" else (*rooms, name)))
    ours = (model for model in _below(Part) if model.__module__.startswith("dfopt.") and _is_written(model))
    return sorted(ours, key=lambda model: (model.__module__, model.__name__))


@cache
def _fields() -> list[tuple[str, type[BaseModel], FieldDoc]]:
    """Each field once, of the class that it comes from."""
    return [
        (f"{model.__module__.removeprefix('dfopt.')}.{model.__name__}.{field.name}", model, field)
        for model in _models()
        for field in fields_of(model)
        if model.__module__ != "dfopt.workloads" or model.__name__ != "Recipe"
    ]


def _faults(field: FieldDoc) -> list[str]:
    """What keeps a text from standing alone."""
    text, words = field.text, field.text.split()
    if not text:
        return ["no text"]
    found = []
    if not re.match(r"[A-Z`]", text):
        found.append("starts with no capital")
    if not text.endswith("."):
        found.append("does not end with a period")
    if len(words) < FEWEST_WORDS or len(field.summary.split()) < FEWEST_WORDS - 2:
        found.append("has few words")
    if words[0].strip("`").lower() in ("of", "that", "which", "what", "as", "the same", "beside", "none"):
        found.append("has no noun in front")
    if words[0].strip("`.,:").lower() == field.name.lower() and len(words) < FEWEST_WORDS:
        found.append("repeats the key")
    if "number" in field.type and not field.unit:
        found.append("has no unit")
    if not field.example:
        found.append("has no example")
    if 1 < len(field.choices) <= LISTED:
        found += [f"does not explain {choice}" for choice in field.choices if f"``{choice}``" not in text]
    if field.default == "None" and not re.search(r"\b(None|without|Without|absent|left out|if any|where)\b", text):
        found.append("does not say what None means")
    return found


def test_every_field_has_a_text_that_stands_alone() -> None:
    wrong = {name: faults for name, _, field in _fields() if (faults := _faults(field))}
    assert not wrong, f"{len(wrong)} of {len(_fields())} fields: " + "; ".join(f"{n} {f}" for n, f in wrong.items())


def test_every_example_is_a_value_of_its_field() -> None:
    wrong = {}
    for name, model, field in _fields():
        own = [f for key, f in model.model_fields.items() if (f.serialization_alias or key) == field.name]
        try:
            value = load_strict(f"example: {field.example}")["example"]
            if own:
                declared: Any = Annotated[own[0].annotation, *own[0].metadata, None]
                TypeAdapter(declared).validate_python(value, context=UNITS_REQUIRED)
            else:
                OnAxes.model_validate({field.name: tuple(value) if isinstance(value, list) else value})
        except Exception as error:
            wrong[name] = f"{field.example}: {error}"
    assert not wrong, f"{len(wrong)} examples: " + "\n".join(f"{name} {error}" for name, error in wrong.items())


def test_texts_of_different_fields_of_a_part_differ() -> None:
    for model in _models():
        texts = [field.text for field in fields_of(model) if field.text]
        assert len({*texts}) == len(texts), model


class _Base(Part):
    """A part.

    Attributes
    ----------
    latency : e.g. 700 ns
        Time of one hop. It counts
        once.
    """

    latency: Seconds


class _Below(_Base, Document):
    """A part of a part.

    Attributes
    ----------
    hops : hops, e.g. 3
        Hops of the longest path.

    Examples
    --------
    >>> 1
    1
    """

    SCHEMA = "test/below/1"
    hops: int = 2


def test_a_field_is_described_where_it_comes_from() -> None:
    by_name = {field.name: field for field in fields_of(_Below)}
    latency, hops = by_name["latency"], by_name["hops"]
    assert latency.text == "Time of one hop. It counts once." and latency.summary == "Time of one hop."
    assert (latency.unit, latency.type, latency.default, latency.example) == ("s", "time", "", "700 ns")
    assert (hops.unit, hops.type, hops.default) == ("hops", "whole number", "2")
    made = schema_json(_Below)
    assert made["description"] == "A part of a part."
    assert made["properties"]["hops"]["description"] == "Hops of the longest path."
    assert made["properties"]["hops"]["examples"] == [3] and made["properties"]["latency"]["examples"] == ["700 ns"]
    assert made["properties"]["latency"]["description"].startswith("Time of one hop. It counts once. A time with")


@pytest.mark.parametrize("text", ["Of one hop", "of a hop.", "Hop.", ""])
def test_a_text_that_does_not_stand_alone_is_found(text: str) -> None:
    assert _faults(FieldDoc("latency", "time", "s", "", (), "1 s", text))
