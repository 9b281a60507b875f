"""All kinds of documents by name, and the kind that a parsed file says it is."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping as Dict
from importlib import import_module
from typing import Any, Final

from dfopt.documents.base import Document
from dfopt.errors import DocumentError, Issue, did_you_mean, refuse, shown

_HOMES: Final = {
    "graph": "graph.Graph", "system": "system.System", "chip": "parts.ChipPart", "memory": "parts.MemoryPart",
    "link": "parts.LinkPart", "topology": "parts.TopologyPart", "stack": "stack.Stack",
    "assumptions": "assumptions.Assumptions", "pins": "mapping.Pins", "plan": "plan.Plan", "mapping": "mapping.Mapping",
    "score": "score.Score", "result": "result.Result", "study": "study.Study", "heat": "heat.HeatReport",
    "technology": "technology.Technology", "technology-part": "technology.TechnologyPart",
    "design": "design.Design", "exploration": "exploration.Exploration", "calibration": "calibration.Calibration",
    "question": "question.Question", "certificate": "certificate.Certificate",
}  # fmt: skip


class _Kinds(Dict[str, type[Document]]):
    """The class of every kind, imported when it is asked for: all of them take 0.15 s, and most runs need a few."""

    def __getitem__(self, kind: str) -> type[Document]:
        module, name = _HOMES[kind].split(".")
        document: type[Document] = getattr(import_module(f"dfopt.documents.{module}"), name)
        return document

    def __iter__(self) -> Iterator[str]:
        return iter(_HOMES)

    def __len__(self) -> int:
        return len(_HOMES)


KINDS: Final = _Kinds()


def kind_of(data: Dict[str, Any], path: str) -> str:
    """Kind of a parsed document by its ``schema`` key, such as ``dfopt/graph/3``, or a `DocumentError`."""
    check_not_foreign(data, path)
    schema = data.get("schema")
    family = schema.rpartition("/")[0] if isinstance(schema, str) else ""
    if family in {f"dfopt/{kind}" for kind in KINDS}:
        return family.removeprefix("dfopt/")  # another version of a kind: the kind's own loader says so
    message = "missing" if schema is None else f"found {shown(schema)}"
    schemas = [document.SCHEMA for document in KINDS.values()]
    wanted = f"expected one of {', '.join(schemas)}"
    remedy = did_you_mean(schema, schemas) if isinstance(schema, str) else "say what kind of document this is"
    raise DocumentError(path, [Issue("$.schema", f"{message}, {wanted}", remedy)])


def is_model_config(data: object) -> bool:
    """Whether parsed data is the ``config.json`` of a Hugging Face model, and no document of ours."""
    return isinstance(data, Dict) and "schema" not in data and bool({"model_type", "architectures"} & set(data))


def check_not_foreign(data: Dict[str, Any], path: str) -> None:
    """Raise an error in one line if parsed data is a Hugging Face config where a document is expected."""
    if is_model_config(data):
        of = f" of {data['model_type']}" if isinstance(data.get("model_type"), str) else ""
        message = f"{path}: found a Hugging Face config{of}, expected a document of dfopt"
        refuse("", message, "turn it into a graph with `dfopt import hf`, or give it as the graph of `dfopt solve`")
