"""What ``dfopt show`` prints for each kind of document."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType

from dfopt.documents.base import Document
from dfopt.documents.exploration import Exploration
from dfopt.documents.graph import Graph
from dfopt.documents.published import Figure
from dfopt.documents.result import Result
from dfopt.documents.score import Score
from dfopt.documents.stack import Stack
from dfopt.documents.strict_yaml import dump_yaml
from dfopt.documents.system import System
from dfopt.show.details import answer_report
from dfopt.show.exploration import exploration_report
from dfopt.show.inputs import graph_report, system_report
from dfopt.show.physical import with_physics
from dfopt.show.stacks import stack_report
from dfopt.show.tables import score_report


def report(document: Document, detail: Sequence[str] = (), figures: tuple[Figure, ...] = ()) -> RenderableType:
    """Terminal report of a document: a table for kinds that have one, else the document.

    Parameters
    ----------
    document : Document
    detail : sequence of str
        Sections of a result, see `dfopt.show.details.DETAILS`.
    figures : tuple of Figure
        Computed and published sizes of the graph's model.
    """
    if isinstance(document, Graph):
        return graph_report(document, figures)
    if isinstance(document, System):
        stack = [] if document.stack is None else ["", stack_report(document.stack)]
        return Group(system_report(document), *stack)
    if isinstance(document, Stack):
        return stack_report(document)
    if isinstance(document, Result):
        return answer_report(document, detail=detail)
    if isinstance(document, Exploration):
        return exploration_report(document)
    if isinstance(document, Score):
        return with_physics(score_report(document), document)
    return dump_yaml(document.to_data()).rstrip()
