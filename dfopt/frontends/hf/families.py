"""The types of models that are read, from the data files in ``model_types/``.

A file has the types of a sort. An entry says what a type has, in the words of
:class:`dfopt.frontends.hf.fields.Family`, and may be ``like`` others or ``like`` templates, one after the other: of
mappings it has theirs and its own, of words all, of anything else its own. ``drop`` leaves out what those say of some
fields. ``rows`` are the fields that mean the same in all types (``fields.yaml``), behind the ``base`` that most have.
``unused`` are fields of layers that a type does not have, which
change nothing. Whatever truly is code is a function of the module that has the file's name, or of those that all share.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from dfopt.documents.base import issues_of
from dfopt.errors import DocumentError
from dfopt.frontends.hf import (
    beside,
    compressed,
    delta,
    encoders,
    experts,
    field_values,
    gpt,
    heads,
    hybrids,
    layers,
    mamba,
    windows,
)
from dfopt.frontends.hf.fields import Family
from dfopt.frontends.hf.rows import BY_FAMILY, FIELDS, MEANINGS, STACKS
from dfopt.frontends.hf.tables import Entries, full_entry, table

__all__ = ["FAMILIES", "SORTS"]

_BASE: Final = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size",
    "max_position_embeddings", "num_key_value_heads", "hidden_act", "tie_word_embeddings", "torch_dtype",
    "quantization_config",
)  # fmt: skip
_SORTS: Final = (
    "alike", "latent", "gemma", "windows", "decoders", "gpt", "delta", "mamba", "compressed", "hybrids", "experts",
    "beside", "encoders", "heads",
)  # fmt: skip
_MODULES: Final = (
    beside, compressed, delta, encoders, experts, gpt, heads, hybrids, layers, mamba, field_values, windows,
)  # fmt: skip
_CODE: Final = {name: getattr(module, name) for module in _MODULES for name in module.__all__}


def _entries() -> dict[str, dict[str, Any]]:
    """The entries of all files, with rows as fields."""
    entries = dict[str, dict[str, Any]]()
    for file in _FILES.values():
        for name, entry in {**file.get("templates", {}), **file.get("families", {})}.items():
            fields = {field: STACKS[field] for field in entry.get("rows", ())}
            fields |= {field: _row_like(row) for field, row in entry.get("fields", {}).items()}
            entries[name] = {**{key: value for key, value in entry.items() if key != "rows"}, "fields": fields}
    return entries


def _row_like(row: Any) -> Any:
    """A row, which may be that of decoders whose layers are alike, or one of several fields."""
    if not isinstance(row, Mapping) or "as" not in row:
        return row
    of_alike, _, name = row["as"].rpartition(".")
    return (FIELDS if of_alike else MEANINGS)[name]


def _family(entries: Entries, name: str) -> Family:
    """A type of models."""
    entry = full_entry(entries, name)
    fields, dropped = entry["fields"], entry.pop("drop", ())
    entry["words"] = [*entry.get("words", ()), *entry.pop("unused", ())]
    if entry.get("alike"):
        own = {field: row for field, row in fields.items() if row is not STACKS.get(field)}  # not named under ``rows``
        alike = {field: row for field, row in FIELDS.items() if field not in BY_FAMILY or field in fields}
        entry["fields"] = alike | own
    elif entry.pop("base", True):
        entry["fields"] = {field: STACKS[field] for field in _BASE if field not in dropped} | fields
    try:
        return Family.model_validate(entry, context=_CODE)
    except ValidationError as error:
        raise DocumentError(f"model_types: {name}", issues_of(Family, entry, error)) from None


_FILES: Final = {sort: table(sort) for sort in ("shared", *_SORTS)}
SORTS: Final[Mapping[str, tuple[str, ...]]] = {sort: tuple(_FILES[sort]["families"]) for sort in _SORTS}
"""The types of each file."""
FAMILIES: Final[Mapping[str, Family]] = {
    name: _family(entries, name) for entries in (_entries(),) for names in SORTS.values() for name in names
}
