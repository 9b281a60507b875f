"""All kinds of documents by name, and the kind that a parsed file says it is."""

from __future__ import annotations

from collections.abc import Mapping as Dict
from typing import Any

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.base import Document
from dfopt.documents.calibration import Calibration
from dfopt.documents.design import Design
from dfopt.documents.exploration import Exploration
from dfopt.documents.graph import Graph
from dfopt.documents.heat import HeatReport
from dfopt.documents.mapping import Mapping, Pins
from dfopt.documents.parts import ChipPart, LinkPart, MemoryPart, TopologyPart
from dfopt.documents.plan import Plan
from dfopt.documents.question import Question
from dfopt.documents.result import Result
from dfopt.documents.score import Score
from dfopt.documents.stack import Stack
from dfopt.documents.study import Study
from dfopt.documents.system import System
from dfopt.documents.technology import Technology
from dfopt.documents.technology_part import TechnologyPart
from dfopt.errors import DocumentError, Issue, did_you_mean, refuse, shown

KINDS: dict[str, type[Document]] = {
    document.SCHEMA.split("/")[1]: document
    for document in (
        Graph, System, ChipPart, MemoryPart, LinkPart, TopologyPart, Stack, Assumptions,
        Pins, Plan, Mapping, Score, Result, Study, HeatReport, Technology,
        TechnologyPart, Design, Exploration, Calibration, Question,
    )
}  # fmt: skip


def kind_of(data: Dict[str, Any], path: str) -> str:
    """Kind of a parsed document by its ``schema`` key, such as ``dfopt/graph/3``, or a `DocumentError`."""
    check_not_foreign(data, path)
    known = {document.SCHEMA: kind for kind, document in KINDS.items()}
    found = data.get("schema")
    if isinstance(found, str) and found.rpartition("/")[0] in {schema.rpartition("/")[0] for schema in known}:
        return found.split("/")[1]  # another version of a kind: the kind's own loader says so
    message = "missing" if found is None else f"found {shown(found)}"
    wanted = f"expected one of {', '.join(known)}"
    remedy = did_you_mean(found, list(known)) if isinstance(found, str) else "say what kind of document this is"
    raise DocumentError(path, [Issue("$.schema", f"{message}, {wanted}", remedy)])


def is_model_config(data: object) -> bool:
    """Whether parsed data is the ``config.json`` of a Hugging Face model, and no document of ours."""
    return isinstance(data, Dict) and "schema" not in data and bool({"model_type", "architectures"} & set(data))


def check_not_foreign(data: Dict[str, Any], path: str) -> None:
    """Refuse such a config where a document is expected, in one line: each of its keys would be a problem."""
    if is_model_config(data):
        of = f" of {data['model_type']}" if isinstance(data.get("model_type"), str) else ""
        message = f"{path}: found a Hugging Face config{of}, expected a document of dfopt"
        refuse("", message, "turn it into a graph with `dfopt import hf`, or give it as the graph of `dfopt solve`")
