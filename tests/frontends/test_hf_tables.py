"""Data files of model types: what an entry may say, and what is wrong with one is said with its place."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hf_configs import FILES, refusal, without
from pydantic import ValidationError

from dfopt.frontends.hf import families, field_values, layers, recipe
from dfopt.frontends.hf.families import SORTS
from dfopt.frontends.hf.fields import Family
from dfopt.frontends.hf.rows import MEANINGS
from dfopt.frontends.hf.tables import table


def row(entry: Any) -> Any:
    return Family.model_validate({"fields": {"a": entry}}, context={"known": lambda value: {}}).fields["a"]


def test_a_plain_value_is_the_only_one_that_is_read() -> None:
    assert row(True).gives(True) == {}
    assert row(True).gives(1) is None  # true is not 1
    assert row(None).expected == "null"


def test_words_of_values_are_read_as_values() -> None:
    found = row({"values": {"true": {"x": 1}, "1": {"x": 2}, "null": {}}})
    assert [found.gives(value) for value in (True, 1, None, False)] == [{"x": 1}, {"x": 2}, {}, None]
    assert found.expected == "true or 1 or null"


def test_a_whole_number_may_be_a_word_or_the_same_in_every_layer() -> None:
    found = row({"count": "x", "also": ["auto"], "alike": True, "most": 9})
    assert [found.gives(value) for value in (3, "auto", [4, 4])] == [{"x": 3}, {"x": "auto"}, {"x": 4}]
    assert [found.gives(value) for value in (0, 10, "other", [4, 5], [], True)] == [None] * 6


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"fields": {"a": {"counts": "x"}}}, "fields.a\n  Value error, no kind counts, expected count or"),
        ({"fields": {"a": {"count": "x", "from": 1}}}, "unexpected keyword argument 'from'"),
        ({"fields": {"a": {"code": "knwn", "expected": ""}}}, "no function knwn"),
        ({"fields": {}, "steps": ["knwn"]}, "steps.0\n  Value error, no function knwn"),
        ({"fields": {}, "left_out": {"b": {"times_": 2}}}, "left_out.b\n  Value error, no kind times_"),
        ({"fields": {}, "word": ["a"]}, "word\n  Extra inputs are not permitted"),
    ],
)
def test_what_is_wrong_with_an_entry_is_said_with_its_place(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Family.model_validate(entry, context={"known": lambda value: {}})
    assert message in str(caught.value)


def test_a_type_of_alike_layers_may_read_a_field_in_its_own_way() -> None:
    own = next(iter(MEANINGS.values()))
    family = families._family({"x": {"alike": True, "fields": {"width": own}}}, "x")
    assert family.fields["width"] is own and "num_hidden_layers" in family.fields


def test_what_a_config_says_is_not_replaced_by_what_a_class_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two fields give one parameter: a default is behind what is written, and two values are refused."""
    seed_oss = families.FAMILIES["seed_oss"]
    out_bias = {"attention_out_bias": row({"when": {"bias": "all"}})}
    both = seed_oss.model_copy(update={"fields": {**seed_oss.fields, **out_bias}})
    monkeypatch.setitem(families.FAMILIES, "seed_oss", both)
    written = without(FILES["llama-3.1-8b"], "attention_bias", "mlp_bias") | {"model_type": "seed_oss"}
    config = {**written, "attention_out_bias": True}
    for bias, given in (("qkv", written), ("all", config)):
        assert recipe(given, "m.json")["parameters"]["layers"]["layer"]["mixer"]["bias"] == bias
    said = "attention_bias: found true, but attention_out_bias gives another bias"
    assert said in refusal({**config, "attention_bias": True})


def test_every_function_template_and_row_is_named_by_an_entry() -> None:
    names = ("shared", *SORTS)
    folder = Path(families.__file__).with_name("model_types")
    text = "\n".join((folder / f"{name}.yaml").read_text(encoding="utf-8") for name in names)
    words = set(re.findall(r"[\w-]+", re.sub(r"#.*", "", text)))
    code = {name for module in families._MODULES if module not in (layers, field_values) for name in module.__all__}
    assert not code - words
    assert not set(table("shared")["templates"]) - words
    assert not {name for name in MEANINGS if not re.search(rf"as: {name}\b", text)}
    assert len(families._CODE) == sum(len(module.__all__) for module in families._MODULES)  # no two of one name
