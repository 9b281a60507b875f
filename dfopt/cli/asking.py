"""How ``dfopt solve`` reads what it is asked about, and prints what it is answered."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Group

from dfopt.cli.common import echo
from dfopt.cli.judging import by_physics, judged_mappings
from dfopt.documents.assumptions import profile
from dfopt.documents.kinds import kind_of
from dfopt.documents.question import Question
from dfopt.documents.score import Score
from dfopt.documents.strict_yaml import load_strict
from dfopt.documents.zoo import is_path
from dfopt.errors import DfoptError, PlanError
from dfopt.judge import evaluate
from dfopt.library import asked_in
from dfopt.machines.calibrations import usual
from dfopt.search import Answer
from dfopt.show.details import answer_report
from dfopt.show.physical import ranking_report


def asked_of(graph: str | None, system: str | None, like: Path | None) -> Question:
    """Question of the command line: a graph and system, a question file, or an earlier result, with changes."""
    if like is not None:
        return asked_in(like).changed(graph=graph, system=system)
    if graph is None:
        raise PlanError("GRAPH: missing; name a graph and a system, a question, or --like RESULT")
    if system is None:
        data = load_strict(Path(graph)) if is_path(graph) else {}
        if not data or kind_of(data, graph) != "question":
            raise PlanError("SYSTEM: missing; name one (`dfopt list systems`), or a question instead of GRAPH")
        return Question.from_data(data, graph)
    return Question(graph=graph, system=system)


def other_score(answer: Answer) -> Score | None:
    """Score of an answer's mapping under the other efficiency (ideal or measured); None if there is none.

    None where there is none; the answer does not depend on it, so neither does what goes wrong with it.
    """
    result, bare, chosen = answer.result, answer.resolved.bare, profile("ideal")
    if answer.resolved.calibration is None:
        fitted = usual(result.graph, bare)[0] if result.assumptions.profile == chosen.profile else None
        if fitted is None:
            return None
        chosen, bare = fitted.assumptions, fitted.applied(bare)
    try:
        return evaluate(result.mapping, result.graph, bare, chosen, physical=False, throttle=False)
    except DfoptError as error:
        echo(f"dfopt: no figure under {chosen.profile}: {error}", err=True)
        return None


def report_of(answer: Answer, detail: Sequence[str]) -> Any:
    """Terminal report of a solve: the result, requested sections, and alternative mappings."""
    result = answer.result
    report = answer_report(result, other_score(answer), detail)
    if not result.alternatives:
        return report
    ranked = judged_mappings("", result, result.assumptions, result.system.stack)
    return Group(report, "", ranking_report(by_physics(ranked)))
