"""What a result calls its documents, held against what these names stand for: the zoo, profiles, what was asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from dfopt.documents.base import Document
from dfopt.documents.graph import Graph
from dfopt.documents.question import AUTO, Question
from dfopt.documents.result import Result
from dfopt.documents.system import System
from dfopt.documents.zoo import is_path, zoo
from dfopt.errors import DfoptError, DocumentError, NotInZoo, shown
from dfopt.library import load_system
from dfopt.machines.calibrations import assumed_on
from dfopt.physics.library import as_computed
from dfopt.questions import Resolver
from dfopt.search.claims import differences
from dfopt.setting.instance import Setting

_FEW = 3
_NAMED = "graph", "system", "assumptions"


class NameCheck(NamedTuple):
    """Outcome of comparing the names in a result with the documents they stand for.

    Attributes
    ----------
    problems : list of str
        Names that stand for other documents.
    notes : list of str
        Remarks on documents.
    unchecked : list of str
        Names that were not compared.
    """

    problems: list[str]
    notes: list[str]
    unchecked: list[str]


def names_of(result: Result, today: bool) -> NameCheck:
    """Compare the names of documents in a result with the zoo, the profiles and the question.

    Parameters
    ----------
    result : Result
        Any.
    today : bool
        Whether this version of dfopt made it: of another one the zoo may have been another.
    """
    names = NameCheck([], [], [])
    question = result.question
    unnamed = [what for what in _NAMED if question is None or getattr(question, what) is None]
    names.notes.extend(_like_the_zoo(result, unnamed))
    if unnamed:
        names.unchecked.append(
            f"$.question: names no {' and no '.join(unnamed)}, so that what is here was taken as it is"
        )
    if question is None:
        return names
    names.problems.extend(_other_options(result, question))
    try:
        for unlike in _unlike_the_question(result, question, unnamed):
            what = unlike.partition(":")[0].removeprefix("$.")
            sure = today and not is_path(str(getattr(question, what)))
            (names.problems if sure else names.notes).append(unlike)
    except DfoptError as error:
        path = isinstance(error, DocumentError) and not isinstance(error, NotInZoo)
        text = f"$.question: cannot be looked up: {str(error).splitlines()[0]}"
        (names.unchecked if path or not today else names.problems).append(text)
    return names


def _other_options(result: Result, question: Question) -> Iterator[str]:
    """What was asked is what was searched for; the largest batch is looked for before."""
    if question.parameters.get("batch") == "max":
        return
    searched, asked = result.request.stated(), question.options.stated()
    if "pulp" in f"{asked.get('solver')}":  # written in any of its short names
        asked["solver"] = searched.get("solver")
    yield from differences("$.request", asked, searched)


def _unlike_the_question(result: Result, question: Question, unnamed: Sequence[str]) -> Iterator[str]:
    """Documents that are not those which a question names."""
    own: dict[str, Any] = {what: getattr(result, what) for what in unnamed}
    if "system" in unnamed:  # with all changes
        own |= {"chips": None, "nodes": None, "stack": None}
    asked, resolver = question.model_copy(update=own), Resolver()
    of_system, changes = resolver.machine(asked)
    if "system" in unnamed:
        asked, of_system = asked.model_copy(update={"set": changes}), result.system
    if "assumptions" in unnamed:
        kept = {path: value for path, value in asked.set.items() if path not in changes}
        asked = asked.model_copy(update={"set": kept})
    resolved = resolver.resolve(asked)
    graphs = resolved.graphs if resolved.largest is None else resolver.at_batch(resolved, result.graph.batch)
    if "graph" not in unnamed:
        drawn = {(graph.microbatch, graph.variant): as_computed(graph, result.assumptions) for graph in graphs}
        here = {(graph.microbatch, graph.variant): graph for graph in (result.graph, *result.variants)}
        for key in dict.fromkeys((*here, *drawn)):
            yield from _unlike("graph", str(question.graph), drawn.get(key), here.get(key))
    system = of_system if {"system", "assumptions"} & {*unnamed} else resolved.system
    of_name, of_file = (_uncalibrated(each, unnamed) for each in (system, result.system))
    yield from _unlike("system", str(question.system), of_name, of_file)
    if "assumptions" not in unnamed:
        chosen = _as_assumed(result, result.request.assuming(resolved.assumptions))
        name = str(question.assumptions if question.assumptions != AUTO else chosen.profile)
        yield from _unlike("assumptions", name, chosen, result.assumptions)


def _uncalibrated(system: System, unnamed: Sequence[str]) -> System:
    """A system without the shares of a calibration, where it is not known whether one is assumed."""
    if "assumptions" not in unnamed:
        return system
    return system.model_copy(update={"chip": system.chip.model_copy(update={"efficiency": None})})


def _as_assumed(result: Result, assumptions: Any) -> Any:
    return Setting.resolved(result.graph, result.system, assumptions).assumptions


def _unlike(what: str, name: str, named: Document | None, here: Document | None) -> Iterator[str]:
    """A document that differs from what its name stands for, and in what."""
    if named is None or here is None:
        word, whose = ("has not", named) if here is None else ("has", here)
        assert isinstance(whose, Graph)
        size = f"a graph with microbatches of {whose.microbatch}" + f", {whose.variant}" * (whose.variant is not None)
        yield f"$.{what}: like {name}, but the file {word} {size}"
        return
    root = f"$.{what}"
    lines = differences(root, named.to_data(), here.to_data()) if named != here else []
    listed = [_short(line.removeprefix(f"{root}.")) for line in lines[:_FEW]]
    if lines:
        more = f"; and {len(lines) - _FEW} more" * (len(lines) > _FEW)
        yield f"{root}: like {name}, but for {'; '.join(listed)}{more}"


def _short(line: str) -> str:
    where, _, rest = line.partition(": the file says ")
    here, _, there = rest.partition(", recomputed ")
    here, there = (shown(text.strip("'"))[1:-1] for text in (here, there))
    return f"{where} {here}, there {there}"


def _like_the_zoo(result: Result, unnamed: Sequence[str]) -> Iterator[str]:
    """What documents that are named nowhere else are like, by their own names."""
    if "graph" in unnamed and result.graph.name not in zoo("graphs"):
        yield f"$.graph: {shown(result.graph.name)} is no graph of the zoo"
    system, profile = result.system, result.assumptions.profile
    if "system" in unnamed and system.name not in zoo("systems"):
        yield f"$.system: {shown(system.name)} is no system of the zoo"
    elif "system" in unnamed:
        bare, here = (_uncalibrated(each, _NAMED) for each in (load_system(system.name), system))
        yield from _unlike("system", f"the zoo's {system.name}", bare, here)
    if "assumptions" not in unnamed:
        return
    try:
        chosen = _as_assumed(result, result.request.assuming(assumed_on(profile, system).assumptions))
    except DfoptError:
        yield f"$.assumptions: {shown(profile)} is no profile"
        return
    yield from _unlike("assumptions", f"the profile {profile}", chosen, result.assumptions)
