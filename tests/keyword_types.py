"""Write the types of the keywords of `solve` and `load_graph`: ``python tests/keyword_types.py --write``.

Type checkers and editors read dfopt/keywords.pyi; it comes from the fields of requests and the parameters of workloads.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter

from dfopt.documents.axes import keys
from dfopt.documents.names import word_of
from dfopt.documents.request import Request
from dfopt.workloads import WORKLOADS

STUB = Path(__file__).resolve().parents[1] / "dfopt" / "keywords.pyi"
HEAD = '''"""Keywords of solve and load_graph, for type checkers and editors: made by tests/keyword_types.py."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict
'''
PLAIN = {"integer": "int", "number": "float | str", "string": "str", "boolean": "bool", "null": "None"}
MOST_CHOICES = 8
OF_REQUESTS = {
    **dict.fromkeys(("zero", "zero_replicas"), 'int | Sequence[int] | Literal["all"] | None'),
    "offload": 'Sequence[str] | Literal["any"] | None', "module": "Mapping[str, str]", "shard": "Mapping[str, str]",
    "pin": "Mapping[str, int]", "place": "Mapping[str, str] | None",
    "chips": "int", "nodes": "int", "set": "Mapping[str, Any]", "parameters": "Mapping[str, Any]",
}  # fmt: skip
OF_WORKLOADS = {
    "phase": 'Literal["forward", "training", "prefill", "decode", "verify", "mixed"]', "batch": 'int | Literal["max"]',
    "microbatch": "int | str | Sequence[int]", "recompute": "str | Sequence[str]", "osl": "int", "repeat": "int",
}  # fmt: skip
"""Keywords that take more than the schema of their field says, and those of questions."""


def written(schema: dict[str, Any]) -> str:
    """The type of a JSON Schema of a number, a word or one of several; others are read in more than one form."""
    if "const" in schema or "enum" in schema:
        choices = schema.get("enum", [schema.get("const")])
        return f"Literal[{', '.join(map(json.dumps, choices))}]" if len(choices) <= MOST_CHOICES else "str"
    if forms := schema.get("anyOf"):
        types = list(dict.fromkeys(map(written, forms)))
        return "Any" if "Any" in types else " | ".join(types)
    return PLAIN.get(schema.get("type", ""), "Any")


def types_of(model: type[BaseModel]) -> dict[str, str]:
    fields = model.model_fields.items()
    return {word_of(name): written(TypeAdapter(field.annotation).json_schema()) for name, field in fields}


def stub() -> str:
    """The text of the stub."""
    of_axes = {key: "Sequence[str]" if dims else "int" for key, (_, dims) in keys().items()}
    of_graphs: dict[str, str] = {}
    for workload in WORKLOADS.values():
        for name, kind in types_of(workload.parameters).items():
            of_graphs[name] = kind if of_graphs.get(name, kind) == kind else "Any"
    asked = of_axes | types_of(Request) | OF_REQUESTS
    plain = {name: kind for name, kind in (of_graphs | OF_WORKLOADS).items() if name not in asked}
    classes = {"Parameters(TypedDict, total=False)": plain, "Asked(Parameters, total=False)": asked}
    return HEAD + "".join(
        f"\nclass {name}:\n" + "".join(f"    {key}: {kind}\n" for key, kind in fields.items())
        for name, fields in classes.items()
    )


if __name__ == "__main__":
    if "--write" in sys.argv:
        STUB.write_text(stub(), encoding="utf-8")
    elif STUB.read_text(encoding="utf-8") != stub():
        sys.exit(f"{STUB}: not what fields say; write it again with --write")
