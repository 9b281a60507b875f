"""JSON Schemas of documents, for editors: each key with its text, quantities as text with a unit."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic_core import core_schema

from dfopt.documents.base import Document
from dfopt.documents.descriptions import fields_of, prose_of
from dfopt.documents.strict_yaml import load_strict
from dfopt.units import UnitJsonSchema


class _Described(UnitJsonSchema):
    """JSON Schema with the texts of the docstrings."""

    def model_schema(self, schema: core_schema.ModelSchema) -> dict[str, Any]:
        """Describe a part, and each of its fields with an example; see pydantic."""
        described = super().model_schema(schema)
        model: type[BaseModel] = schema["cls"]
        described["description"] = prose_of(model.__doc__)
        for field in fields_of(model):
            if field.text and (key := described.get("properties", {}).get(field.name)) is not None:
                key["description"] = " ".join(filter(None, (field.text, key.get("description"))))
                if field.written:
                    key["examples"] = [load_strict(f"example: {field.written}")["example"]]
        return described


def schema_json(cls: type[Document]) -> dict[str, Any]:
    """JSON Schema of a document for editors; quantities are text with a unit."""
    schema = cls.model_json_schema(by_alias=True, mode="validation", schema_generator=_Described)
    if "$ref" in schema:  # of a document that holds others of its kind
        schema = {**schema["$defs"][schema.pop("$ref").rpartition("/")[2]], **schema}
    schema["properties"]["schema"] = {"const": cls.SCHEMA, "description": schema["properties"]["schema"]["description"]}
    schema["required"] = ["schema", *schema.get("required", [])]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": cls.SCHEMA, **schema}


def schema_of_forms(title: str, *classes: type[Document]) -> dict[str, Any]:
    """JSON Schema of a document that may be written in several forms."""
    forms = [schema_json(cls) for cls in classes]
    schema: dict[str, Any] = {"title": title, "anyOf": forms, "$defs": {}}
    for form in forms:  # references start at the root, and one document has one id
        schema["$defs"] |= form.pop("$defs", {})
        schema |= {key: form.pop(key) for key in ("$schema", "$id")}
    return schema
