"""What every document shares: strict loading, exact dumping, a digest, and the zoo.

A document is a frozen pydantic model with a schema id; its nested parts are `Part`. Both refuse unknown keys and
scalars of the wrong type: ``"3"`` and ``true`` are no integers, but ``1e3`` is. Numbers are always finite.

Lists become tuples where a field says tuple. Fields with a unit use the types of `dfopt.units`.

Built in Python, ``Graph(name=...)`` needs no ``schema=``, floats are SI, and errors are pydantic's own
`ValidationError`. Read from a file, units are required, and errors are a `DocumentError` with all issues.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Generator, Iterator, Mapping, Sequence, Sized
from functools import cache, cached_property, reduce
from pathlib import Path
from typing import Any, ClassVar, Final, Self, TypeVar, cast, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError
from pydantic_core.core_schema import wrap_serializer_function_ser_schema

from dfopt.documents.copying import Copied
from dfopt.documents.files import MAX_BYTES, check_writable, write_text
from dfopt.documents.records import canonical, digest, json_text
from dfopt.documents.strict_types import tighten
from dfopt.documents.strict_yaml import dump_yaml, load_strict
from dfopt.documents.uncollected import uncollected
from dfopt.errors import (
    DocumentError,
    GraphError,
    Issue,
    SchemaVersionError,
    SystemSpecError,
    UnitError,
    did_you_mean,
    json_path,
    refuse,
    shown,
)
from dfopt.units import UNITS_REQUIRED


class Part(Copied):
    """A nested part of a document: frozen, strict, no unknown keys."""

    RENAMED: ClassVar[Mapping[str, str]] = {}  # keys of earlier versions, and what they are called now
    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True, serialize_by_alias=True,
        allow_inf_nan=False, protected_namespaces=(),
        defer_build=True,  # of all documents most processes use a few
    )  # fmt: skip

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema: Any = handler(source)
        tighten(schema)
        # as a decorator, pydantic would look at its signature and its hints anew for every part
        schema["serialization"] = wrap_serializer_function_ser_schema(cls._lean, info_arg=True)
        return cast(CoreSchema, schema)

    def __iter__(self) -> Generator[tuple[str, Any], None, None]:
        """Names and values of the fields, for ``dict(part)``."""
        yield from (pair for pair in super().__iter__() if pair[0] not in self._worked_out)

    def __dir__(self) -> list[str]:  # for completion, without the names of pydantic
        return [name for name in super().__dir__() if name.startswith("__") or not hasattr(BaseModel, name)]

    def __hash__(self) -> int:
        """Equal for equal parts; searches look up parts by the hundred thousand."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(tuple(self.__dict__[name] for name in type(self).__pydantic_fields__))

    def __getstate__(self) -> dict[Any, Any]:
        """What travels in a pickle: the fields, and nothing that was worked out; hashes differ in every process."""
        state = super().__getstate__()
        gone = self._worked_out
        return {**state, "__dict__": {k: v for k, v in state["__dict__"].items() if k not in gone}} if gone else state

    @classmethod
    @cache
    def _optional(cls) -> tuple[tuple[str, str], ...]:
        """Fields that are None by default, and what files call them."""
        fields = cls.__pydantic_fields__.items()
        return tuple((name, field.serialization_alias or name) for name, field in fields if field.default is None)

    def _lean(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        """In files, leave out what is None by default: such keys say nothing."""
        data: dict[str, Any] = handler(self)
        if info.mode == "json":
            for name, written in self._optional():
                if self.__dict__[name] is None:
                    data.pop(written, None)
        return data


class Document(Part):
    """Base of all documents: a part with a schema id that loads from and dumps to YAML or JSON.

    A subclass sets ``SCHEMA``, such as ``"dfopt/graph/3"``: package, kind, version.

    Attributes
    ----------
    schema_ : e.g. dfopt/graph/3
        Kind and version of the document, which a file gives in its first line. In Python you may leave it out.
    """

    SCHEMA: ClassVar[str] = ""
    EARLIER: ClassVar[tuple[str, ...]] = ()  # schemas of earlier versions that are still read
    schema_: str = Field(default="", alias="schema", validate_default=True)

    @model_validator(mode="before")
    @classmethod
    def _from_earlier(cls, data: Any) -> Any:
        """Data of an earlier version, in today's words; a document inside another one may be of such a version, too."""
        if isinstance(data, dict) and data.get("schema") in cls.EARLIER:
            return {**cls._converted(data), "schema": cls.SCHEMA}
        return data

    @classmethod
    def _converted(cls, data: dict[str, Any]) -> dict[str, Any]:
        """What data of one of the versions in ``EARLIER`` say, in the fields of this one."""
        return data

    @field_validator("schema_")
    @classmethod
    def _is_this_schema(cls, value: str) -> str:
        if value not in ("", cls.SCHEMA):
            raise problem(f"found {value!r}, expected {cls.SCHEMA!r}", "leave it out in Python")
        return cls.SCHEMA

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a document from a file: JSON if the suffix is ``.json``, YAML otherwise.

        Raises `DocumentError` with every issue of the file; `UnitError` if all are about units, `SchemaVersionError`
        for another kind or version. Checks of a whole graph or system raise `GraphError` and `SystemSpecError`.
        """
        return cls.from_data(load_strict(Path(path)), os.fspath(path))

    @classmethod
    def from_data(cls, data: Mapping[str, Any], path: str = "<data>") -> Self:
        """Validate parsed data by the rules of files: units and ``schema`` are required."""
        if not isinstance(data, Mapping):
            refuse(path, f"found {shown(data)}, expected a mapping", "give keys and values")
        issues = cls._schema_issues(data, path)
        try:
            fields = {**data, "schema": cls.SCHEMA} if issues else dict(data)
            document = cls.model_validate(fields, context=UNITS_REQUIRED, by_alias=True, by_name=False)
        except ValidationError as error:
            only_units = all(isinstance(d.get("ctx", {}).get("error"), UnitError) for d in error.errors())
            kind = UnitError if only_units and not issues else DocumentError
            raise kind(path, issues + issues_of(cls, data, error)) from None
        except (GraphError, SystemSpecError) as error:  # a check of the whole, which does not know the file
            raise type(error)(path, [*issues, *error.issues]) from None
        if issues:
            raise DocumentError(path, issues)
        return document

    @classmethod
    def _schema_issues(cls, data: Mapping[str, Any], path: str) -> list[Issue]:
        """That the schema is missing; of a document of another kind every other issue would be noise."""
        if "schema" not in data:
            return [Issue("$.schema", "the key is missing", f"add the line 'schema: {cls.SCHEMA}'")]
        schema = data["schema"]
        if schema in (cls.SCHEMA, *cls.EARLIER):
            return []
        family, _, version = cls.SCHEMA.rpartition("/")
        theirs, _, other = schema.rpartition("/") if isinstance(schema, str) else ("", "", "")
        remedy = f"write 'schema: {cls.SCHEMA}'"
        if theirs == family and other.isdecimal():
            newer = int(other) > int(version)
            remedy = "upgrade dfopt" if newer else "convert the file, or use the dfopt that wrote it"
        elif theirs.startswith("dfopt/"):
            remedy = f"this is a {theirs[len('dfopt/') :]} where a {family[len('dfopt/') :]} is wanted"
        message = f"found {shown(schema)}, this dfopt reads {cls.SCHEMA!r}"
        raise SchemaVersionError(path, [Issue("$.schema", message, remedy)])

    def to_data(self) -> dict[str, Any]:
        """JSON-compatible data with ``schema`` first and units as text, without fields that are None by default."""
        return self.model_dump(mode="json", by_alias=True)

    def written(self, key: str, value: Any) -> Any:
        """Data of one key as a JSON file has it: that of :meth:`to_data`, or a shorter form."""
        return value

    def dump(self, path: str | os.PathLike[str]) -> None:
        """Write the document as YAML or JSON, by suffix, atomically."""
        suffix = Path(os.path.realpath(path)).suffix.lower()
        if suffix not in (".json", ".yaml", ".yml"):
            refuse(path, f"found the suffix {suffix!r}, expected .yaml, .yml or .json", "name it so")
        text = "".join(json_text(self)) if suffix == ".json" else dump_yaml(self.to_data())
        if suffix == ".json" or len(text) < MAX_BYTES:
            write_text(path, text)
            return
        as_json = check_writable(Path(path).with_suffix(".json"), force=False)
        self.dump(as_json)
        message = f"{len(text):,} bytes, and at most {MAX_BYTES:,} bytes of YAML are read"
        refuse(path, message, f"it was written as {as_json} instead")

    def digest(self) -> str:
        """Digest of the document, 16 hex digits; equal for equal contents, whatever file, key order or units."""
        with uncollected():
            return digest(self)


DocumentT = TypeVar("DocumentT", bound=Document)


class Named(Document):
    """A document with a name, a description and its sources.

    Attributes
    ----------
    name : e.g. gpt3-175b
        Short name of the document, which tables, plots and other documents use for it.
    description : e.g. GPT-3 with 175 billion parameters
        One or two sentences about the subject of the document.
    source : e.g. "Brown et al., arXiv:2005.14165, table 2.1"
        Publication, data sheet or file that the numbers of the document come from.
    """

    name: str = Field(min_length=1, max_length=200)
    description: str = ""
    source: str = ""


class Sealed(Document):
    """A document of claims with a ``seal``, the digest of all other fields, which shows later edits."""

    def sealed(self) -> Self:
        """A copy with the seal of its contents."""
        return self.model_copy(update={"seal": self.unsealed_digest()})

    def unsealed_digest(self) -> str:
        """Digest of all fields but the seal."""
        return self.model_copy(update={"seal": ""}).digest()


def digest_of(data: Mapping[str, Any]) -> str:
    """Digest of JSON-compatible data, 16 hex digits, see :meth:`Document.digest`."""
    return hashlib.sha256(canonical(data)).hexdigest()[:16]


def problem(message: str, remedy: str = "", where: str = "$") -> PydanticCustomError:
    """Validation error that a document's validator raises, with a message, a remedy and a path below that part."""
    return PydanticCustomError("dfopt", "{message}", {"message": message, "remedy": remedy, "where": where})


_NUMBER = re.compile(r"[+-]?[0-9.]+(e[+-]?[0-9]+)?", re.IGNORECASE)
_EXPECTED: Final = {
    "int_type": "a whole number", "int_from_float": "a whole number", "int_parsing": "a whole number",
    "float_type": "a number", "float_parsing": "a number", "finite_number": "a finite number",
    "string_type": "text", "string_unicode": "text in UTF-8", "int_parsing_size": "a number of fewer digits",
    "invalid_key": "text as a key", "dataclass_type": "a mapping",
    "bool_type": "true or false", "bool_parsing": "true or false",
    "tuple_type": "a list", "list_type": "a list", "set_type": "a list", "frozen_set_type": "a list",
    "dict_type": "a mapping", "mapping_type": "a mapping", "model_type": "a mapping",
    "model_attributes_type": "a mapping", "none_required": "nothing", "literal_error": "{expected}",
    "enum": "{expected}", "greater_than": "a number above {gt:.12g}",
    "greater_than_equal": "a number of {ge:.12g} or more", "less_than": "a number below {lt:.12g}",
    "less_than_equal": "a number of {le:.12g} or less", "multiple_of": "a multiple of {multiple_of:.12g}",
    "union_tag_invalid": "{expected_tags}", "too_short": "{min_length} or more entries",
    "too_long": "{max_length} or fewer entries", "string_too_short": "{min_length} or more characters",
    "string_too_long": "{max_length} or fewer characters",
    "string_pattern_mismatch": "text of the form {pattern}",
}  # fmt: skip


def _follow(data: Any, loc: Sequence[str | int], keep_last: bool) -> tuple[list[str | int], Any]:
    """The steps of a pydantic location that are steps in the data, and the value there.

    The others are names of union members and tags. The key of a missing field is kept, though not there.
    """
    steps: list[str | int] = []
    for position, step in enumerate(loc):
        inside = isinstance(data, Mapping) and step in data
        if inside or (isinstance(data, list | tuple) and isinstance(step, int) and -1 < step < len(data)):
            data = data[step]
            steps.append(step)
        elif keep_last and position == len(loc) - 1:
            steps.append(step)
    return steps, data


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The pydantic models that a type annotation allows."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from models_in(inner)


def _models_at(cls: type[BaseModel], steps: Sequence[str | int]) -> list[type[BaseModel]]:
    """What the mapping at a path may be."""
    models = [cls]
    for step in steps:
        fields = [f for m in models for name, f in m.model_fields.items() if step in (f.alias or name, name)]
        # An index or a free key leads nowhere new: the field's type already named the models inside.
        models = [m for f in fields for m in models_in(f.annotation)] or models
    return models


def _keys(cls: type[BaseModel], steps: Sequence[str | int]) -> dict[str, str]:
    """The keys that the mapping at a path may have, and what they mean in a sentence."""
    from dfopt.documents.descriptions import fields_of

    listed = (field for model in _models_at(cls, steps) for field in fields_of(model))
    return {field.name: field.summary.rstrip(".").replace("``", "") for field in listed}


def _renamed(cls: type[BaseModel], steps: Sequence[str | int], key: str) -> str:
    """What a key of an earlier version is called now."""
    parts = (m for m in _models_at(cls, steps) if issubclass(m, Part))
    return next((m.RENAMED[key] for m in parts if key in m.RENAMED), "")


def issues_of(cls: type[BaseModel], data: Mapping[str, Any], error: ValidationError) -> list[Issue]:
    """Validation errors of a document or part as issues in plain words, with places and remedies.

    One issue per place; the members of a union that all refuse a value become 'expected this or that'.
    """
    plain: list[Issue] = []
    expected: dict[str, tuple[str, list[str], str]] = {}
    for detail in error.errors(include_url=False):
        kind, ctx, loc = detail["type"], detail.get("ctx", {}), detail["loc"]
        steps, value = _follow(data, loc, keep_last=kind == "missing")
        if loc and loc[-1] == "[key]":  # the key of a mapping is wrong, not the value below it
            value = steps[-1] if steps else value
        if kind == "union_tag_not_found":  # the key that tells the kind
            kind, steps = "missing", [*steps, str(ctx["discriminator"]).strip("'")]
        if kind == "too_short" and not (isinstance(value, Sized) and len(value) < ctx["min_length"]):
            continue  # it counts only entries that are right
        where, last = json_path(*steps), str(steps[-1]) if steps else ""
        if isinstance(ctx.get("error"), UnitError):
            plain += [Issue(where, issue.message, issue.remedy) for issue in ctx["error"].issues]
        elif kind == "dfopt":
            plain.append(Issue(where + str(ctx["where"])[1:], ctx["message"], ctx["remedy"]))
        elif kind == "missing":
            says = _keys(cls, steps[:-1]).get(last)
            remedy = f"add the key {last!r}" + (f": {says}" if says else "")
            plain.append(Issue(where, "the key is missing", remedy))
        elif kind == "extra_forbidden":
            keys, now = _keys(cls, steps[:-1]), _renamed(cls, steps[:-1], last)
            remedy = f"write {now!r}: it was renamed" if now else ""
            remedy = remedy or did_you_mean(last, keys, f"known keys: {', '.join(keys)}")
            plain.append(Issue(where, "unknown key", remedy))
        elif kind in _EXPECTED:
            wanted = _EXPECTED[kind].format_map(ctx)
            if kind == "union_tag_invalid":
                value, where = ctx.get("tag"), json_path(*steps, str(ctx.get("discriminator", "")).strip("'"))
            remedy = did_you_mean(value, re.findall(r"'([^']*)'", wanted)) if isinstance(value, str) else ""
            if wanted.endswith(" number") and isinstance(value, str) and _NUMBER.fullmatch(value):
                remedy = "write it without quotes"
            _, wants, _ = expected.setdefault(where, (shown(value), [], remedy))
            if wanted not in wants:
                wants.append(wanted)
        else:
            message = str(ctx["error"]) if "error" in ctx else f"found {shown(value)}, which cannot be here"
            plain.append(Issue(where, message))
    # of a mapping or list that may be there only what is wrong inside: other members of the union are not meant
    places = [*(issue.where for issue in plain), *expected]
    inside = {place[:end] for place in places for end, letter in enumerate(place) if letter in ".["}
    merged = [
        Issue(w, f"found {s}, expected {' or '.join(x)}", r)
        for w, (s, x, r) in expected.items()
        if w not in inside or not s.startswith(("a mapping of ", "a list of "))
    ]
    return list(dict.fromkeys(plain + merged))


def plain_words(error: ValidationError) -> str:
    """Validation errors of a document built in Python, in plain words."""
    data: dict[Any, Any] = {}
    for detail in error.errors():
        *steps, last = detail["loc"] or ("all",)
        reduce(lambda node, step: node.setdefault(step, {}), steps, data)[last] = detail["input"]
    return "; ".join(f"{issue.where[2:]}: {issue.message}" for issue in issues_of(Part, data, error))
