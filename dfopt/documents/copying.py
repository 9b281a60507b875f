"""Copies of models with other values, made quickly: searches copy plans by the hundred thousand."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, cached_property
from typing import Any, Final, Self, TypeVar

from pydantic import BaseModel, ConfigDict

_T_co = TypeVar("_T_co", covariant=True)
_SETS: Final[dict[frozenset[str], set[str]]] = {}


class of_extra(cached_property[_T_co]):
    """A cached property that depends only on extra keys; copies with the same extra keys keep its value."""


class Copied(BaseModel):
    """A frozen pydantic model whose copies recompute cached properties."""

    model_config = ConfigDict(ignored_types=(of_extra,))

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with some fields replaced; cached properties are recomputed."""
        given = update or {}
        if deep or not given.keys() <= type(self).__pydantic_fields__.keys():
            copied = super().model_copy(update=update, deep=deep)
            for name in copied._worked_out:
                del copied.__dict__[name]
        else:
            values = {**self.__dict__, **given}
            for name in _of(type(self), extra=False):
                values.pop(name, None)
            copied, set_ = self.__new__(type(self)), object.__setattr__
            set_(copied, "__dict__", values)
            set_(copied, "__pydantic_extra__", self.__pydantic_extra__)
            set_(copied, "__pydantic_fields_set__", self.__pydantic_fields_set__ | given.keys())
            set_(copied, "__pydantic_private__", None)
        copied._intern()
        return copied

    def with_extra(self) -> Self:
        """The same object with all properties of extra keys computed, for later copies."""
        for name in _of(type(self), extra=True):
            getattr(self, name)
        return self

    def _intern(self) -> None:
        """Share the names of the fields that are set with all parts that set the same: a set takes 700 bytes."""
        names = self.__pydantic_fields_set__
        object.__setattr__(self, "__pydantic_fields_set__", _SETS.setdefault(frozenset(names), names))

    @property
    def _worked_out(self) -> set[str]:
        """What cached properties keep."""
        fields = type(self).__pydantic_fields__  # most often there is nothing else
        return self.__dict__.keys() - fields.keys() if len(self.__dict__) > len(fields) else set()


@cache
def _of(model: type[Copied], *, extra: bool) -> tuple[str, ...]:
    """Names of the cached values that a model derives from its fields, or from its extra keys alone."""
    every = {name: value for each in reversed(model.__mro__) for name, value in vars(each).items()}
    cached = {name: value for name, value in every.items() if isinstance(value, cached_property)}
    return tuple(name for name, value in cached.items() if isinstance(value, of_extra) is extra)
