"""The fields of Hugging Face configs that mean the same in all types of models, and those that say nothing.

They stand in ``model_types/fields.yaml``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dfopt.frontends.hf import field_values
from dfopt.frontends.hf.fields import Entry, Field, FieldRow
from dfopt.frontends.hf.tables import table

__all__ = ["BY_FAMILY", "COSMETIC", "EVERYWHERE", "FIELDS", "MEANINGS", "STACKS"]


class _FieldsFile(Entry):
    """The file of fields."""

    meanings: dict[str, FieldRow]
    alike: dict[str, FieldRow]
    by_family: frozenset[str]
    stacks: dict[str, FieldRow]
    everywhere: dict[str, FieldRow]
    cosmetic: dict[str, frozenset[str]]


_CODE: Final = {name: getattr(field_values, name) for name in field_values.__all__}
_FILE: Final = _FieldsFile.model_validate(table("fields"), context=_CODE)
MEANINGS: Final[Mapping[str, Field]] = _FILE.meanings
"""Rows that fields of several names have."""
FIELDS: Final[Mapping[str, Field]] = _FILE.alike
"""Rows of decoders whose layers are all alike, as far as a type has them."""
BY_FAMILY: Final = _FILE.by_family
"""Rows of such decoders that only some types have."""
STACKS: Final[Mapping[str, Field]] = {**FIELDS, **_FILE.stacks}
"""Rows of stacks, whose layers may differ: those of decoders, and more."""
EVERYWHERE: Final[Mapping[str, Field]] = _FILE.everywhere
"""Fields of every config class that change a shape unless they say that nothing is different."""
COSMETIC: Final = frozenset[str]().union(*_FILE.cosmetic.values())
"""Fields that change no shape, cost or size of a graph: names, constants of formulas, defaults of generation."""
