"""Configs of Hugging Face models with one field changed, of which nothing may be read in silence."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

from hypothesis import strategies as st

from dfopt.errors import DocumentError
from dfopt.frontends.hf import COSMETIC, FAMILIES, recipe
from dfopt.frontends.hf.rows import EVERYWHERE

OTHERS: list[Any] = [None, True, 1.5, "x", [], {}, -3, 0, [1, 0], {"a": 1}, 10**30]


class Change(NamedTuple):
    """What was done (removed, renamed, added or changed), to which field, and the value that it had."""

    what: str
    field: str
    value: Any


def altered(part: dict[str, Any], data: st.DataObject) -> Change:
    """Change one field of a config, or of a part of it, in place."""
    field = data.draw(st.sampled_from(sorted(part)))
    what, value = data.draw(st.sampled_from(["removed", "renamed", "added", "changed"])), part[field]
    if what == "added":
        names = st.text("abcdefgh_", min_size=3, max_size=12).filter(lambda name: name not in part)
        part[data.draw(names)] = data.draw(st.sampled_from([0, None, True, 8, "x"]))
    elif what == "changed":
        part[field] = data.draw(st.sampled_from(OTHERS))
    else:
        del part[field]
        if what == "renamed":
            part[f"{field}_"] = value
    return Change(what, field, value)


def _sizes(found: dict[str, Any]) -> dict[str, Any]:
    """Parameters of a recipe, but for what is kept for files of other tools and costs nothing."""
    no_cost = ("rotary_base", "rotary_scaling")
    return {name: value for name, value in found["parameters"].items() if name not in no_cost}


def explains_a_change(config: dict[str, Any], part: dict[str, Any], kind: str, data: st.DataObject) -> None:
    """A config is refused when one field of a part is changed, or means just what it says, or says what it leaves out.

    ``kind``: the type of the model whose fields the part has.
    """
    before = copy.deepcopy(config)
    change = altered(part, data)
    if config != before:
        explained(before, config, part, kind, change)


def explained(before: dict[str, Any], config: dict[str, Any], part: dict[str, Any], kind: str, change: Change) -> str:
    """A config that had one field changed, in a part of it, is refused, or says what that means; gives the refusal."""
    what, field, _ = change
    family = FAMILIES[kind]
    try:
        found = recipe(config, "config.json")
    except DocumentError as error:
        return str(error)
    assert what not in ("added", "renamed")
    if _sizes(found) == _sizes(recipe(before, "config.json")) or field == "quantization_config":
        return ""
    known = family.names.get(field, "torch_dtype" if field == "dtype" else field)
    assert known not in COSMETIC | family.words
    said = f"{known} " in found["description"].partition("the config leaves out ")[2]
    if what == "removed":
        assert said
    else:
        row = family.fields.get(known, EVERYWHERE.get(known))
        assert row is not None and (row.gives(part[field]) is not None or said)
    return ""
