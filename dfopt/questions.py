"""From a question to documents: the one place that looks names up, and that says what is free when nothing is said.

Free are, of a workload that is named: the microbatch in every phase, and in training what is computed again and the
level of ZeRO. A graph that is handed over as a document keeps what is drawn into it. Assumed is, where nothing is said,
the calibration of the chip if it has one for this phase; else ``default``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic_core import PydanticCustomError

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.axes import keys
from dfopt.documents.calibration import Calibration
from dfopt.documents.graph import Graph
from dfopt.documents.names import TAKEN_BY, in_documents, word_of
from dfopt.documents.question import AUTO, Question
from dfopt.documents.request import Request
from dfopt.documents.system import Source, System
from dfopt.documents.zoo import resolve_near, zoo
from dfopt.errors import PlanError, did_you_mean, shown
from dfopt.library import load_system, name_of, system_from
from dfopt.machines.calibrations import assumed_on, usual
from dfopt.machines.stacks import load_stack, with_stack
from dfopt.workloads import WORKLOADS, load_graph, parameters_of
from dfopt.workloads.executions import load_executions
from dfopt.workloads.recompute import recompute_of

GraphBuilder = Callable[[int, int], Graph]
"""The graph of a batch and a microbatch."""

_LARGEST: Final = "max"
_ALL: Final = "all"


@dataclass(frozen=True)
class Resolved:
    """A question with all documents that it names.

    Attributes
    ----------
    question : Question
        The original question.
    graphs : sequence of Graph
        The workload in every way that is free: other microbatches, and other ways to recompute.
    system, bare : System
        The machine with the shares of the calibration, and without them.
    assumptions : Assumptions
        Assumptions without the choices that the request replaces.
    request : Request
        Fixed choices, and options of the search.
    calibration : Calibration or None
        The one whose shares the system has.
    largest : callable or None
        Function that draws the workload, if the largest batch is requested.
    notes : tuple of str
        Sentences about what was chosen where nothing was said.
    """

    question: Question
    graphs: Sequence[Graph]
    system: System
    bare: System
    assumptions: Assumptions
    request: Request
    calibration: Calibration | None = None
    largest: GraphBuilder | None = None
    notes: tuple[str, ...] = ()


def resolve(question: Question, folder: Path | None = None) -> Resolved:
    """Load all documents that a question names.

    Parameters
    ----------
    question : Question
        Question with a graph and a system.
    folder : Path, optional
        Folder that paths are relative to; by default the working directory.

    Raises
    ------
    DocumentError, PlanError, SystemSpecError
        For a name or a value that is not understood, with a remedy.

    Examples
    --------
    >>> resolved = resolve(Question(graph="gpt2-small", system="a100-8", parameters={"phase": "training"}))
    >>> resolved.assumptions.profile, sorted({graph.microbatch for graph in resolved.graphs})
    ('a100-calibrated', [1, 2, 4, 8])
    """
    return Resolver(folder).resolve(question)


def question_of(graph: Any, system: Any, request: Request | None, given: Mapping[str, Any], **fields: Any) -> Question:
    """Question from keyword arguments: fields of `Request` and `Question`, and workload parameters.

    Raises
    ------
    PlanError
        For an unknown keyword, and for a request together with its fields.
    """
    given = in_documents(given)
    asked = {key: value for key, value in given.items() if key in keys() or key in Request.model_fields}
    if request is not None and asked:
        raise PlanError(f"request: given beside {', '.join(asked)}; give a request or its fields, not both")
    direct = {key: value for key, value in given.items() if key in ("set", "parameters", "chips", "nodes")}
    rest = {key: value for key, value in given.items() if key not in asked and key not in direct}
    of_workloads = {name for workload in WORKLOADS.values() for name in workload.parameters.model_fields} | {"phase"}
    if rest and isinstance(graph, str | os.PathLike):
        allowed, _ = parameters_of(graph)
        allowed_names = allowed | {word for word, by in (("phase", "mode"), ("osl", "context")) if by in allowed}
        unknown = [key for key in rest if key.partition(".")[0] not in allowed_names]
    else:
        allowed_names, unknown = frozenset(), list(rest)
    for key in unknown:
        near = did_you_mean(key, list(map(word_of, [*allowed_names, *keys(), *Request.model_fields])))
        if not allowed_names and key in of_workloads:
            near = "df.load_graph takes it; a graph that is a document keeps its parameters: name it to change them"
        near = f"{TAKEN_BY[key]} takes it" if key in TAKEN_BY else near or "`dfopt show` lists them"
        raise PlanError(f"{word_of(key)}: neither an option nor a parameter of the workload ({near})")
    graph = graph if graph is None or isinstance(graph, Graph) else name_of(graph, "graph")
    system = system if system is None or isinstance(system, Source) else name_of(system, "system")
    question = Question(graph=graph, system=system, options=request or Request.of(**asked))
    parameters = rest | dict(direct.pop("parameters", {}))
    return question.changed(**direct, parameters=parameters, **fields)


@dataclass
class Resolver:
    """Resolves several questions and loads shared documents once."""

    folder: Path | None = None
    _kept: dict[str, tuple[Any, object]] = field(default_factory=dict)

    def resolve(self, question: Question) -> Resolved:
        """Load all documents that a question names, see `resolve`."""
        bare, changes = self.machine(question)
        graphs, largest = self.workload(question)
        first, notes = graphs[0], tuple[str, ...]()
        assumed: Any = question.assumptions
        if assumed == AUTO:
            assumed, why = usual(first, bare)
            if why and first.trains:
                notes = (f"assumptions default, not the calibration of {bare.chip.name}: {why}",)
        key = assumed if isinstance(assumed, str) else assumed and assumed.digest()
        chosen, system, fitted = self.once(
            "assumptions", [key, id(bare)], bare, lambda: assumed_on(assumed or "default", bare, self.folder)
        )
        chosen = self.once("changes", [id(chosen), changes], chosen, lambda: chosen.changed(changes, "set"))
        return Resolved(question, graphs, system, bare, chosen, question.options, fitted, largest, notes)

    def machine(self, question: Question) -> tuple[System, dict[str, Any]]:
        """System of a question with its changes, and the changes that concern assumptions."""
        given = question.system
        if given is None:
            raise PlanError("system: missing; name a system of the zoo or a file (`dfopt list systems`)")
        of_system = {path: value for path, value in question.set.items() if _of_system(path)}
        which, sizes = given if isinstance(given, str) else id(given), (question.chips, question.nodes)
        key = [which, of_system, str(question.stack), sizes]
        system = self.once("system", key, given, lambda: self._machine(question, of_system))
        return system, {path: value for path, value in question.set.items() if path not in of_system}

    def _machine(self, question: Question, fields: dict[str, Any]) -> System:
        given, stack = question.system, question.stack
        if isinstance(given, str):
            path = self._path(given)
            system = load_system(path, fields, chips=question.chips, nodes=question.nodes)
        else:
            assert given is not None
            system = system_from(given, fields, given.name, question.chips, question.nodes)
        if fields:
            words = ", ".join(f"{path}={value}" for path, value in fields.items())
            system = system.model_copy(update={"description": f"{system.description or system.name} ({words})"})
        if stack is not None:
            system = with_stack(system, load_stack(stack) if isinstance(stack, str) else stack)
        return system

    def workload(self, question: Question) -> tuple[Sequence[Graph], GraphBuilder | None]:
        """Graphs of a question in all free ways, and the builder for the largest batch if requested."""
        given, parameters = question.graph, question.parameters
        if given is None:
            raise PlanError("graph: missing; name a graph of the zoo or a file (`dfopt list graphs`)")
        if isinstance(given, Graph):
            if parameters:
                names = ", ".join(parameters)
                raise PlanError(f"graph: found a document beside {names}; its parameters are drawn already: name it")
            return (given,), None
        graphs: tuple[Sequence[Graph], GraphBuilder | None] = self.once(
            "graph", [given, parameters], None, lambda: self._drawn(self._path(given), parameters)
        )
        return graphs

    def _drawn(self, name: str | Path, parameters: Mapping[str, Any]) -> tuple[Sequence[Graph], GraphBuilder | None]:
        fixed = {key: value for key, value in parameters.items() if key not in ("microbatch", "recompute")}
        sizes, ways = _sizes(parameters.get("microbatch")), _ways(parameters.get("recompute"))
        if isinstance(fixed.get("batch"), list | tuple):
            several = ",".join(map(str, fixed["batch"]))
            raise PlanError(
                f"batch: found {several}, expected one number or max: `dfopt explore` chooses among several, and a"
                " study varies them"
            )
        largest = fixed.get("batch") == _LARGEST
        if not largest:
            graphs = load_executions(name, sizes, ways, **fixed)
            if ways and not graphs[0].trains:
                raise PlanError(f"recompute: {name} has no backward pass; ask for phase: training, or leave it out")
            return graphs, None

        def draw(batch: int, microbatch: int) -> Graph:
            return load_graph(name, **{**fixed, "batch": batch, "microbatch": microbatch})

        if (least := draw(1, 1)).trains:
            raise PlanError(
                "batch: found max in training, where the gradients of microbatches add up, and any number of those fits"
                " if one does; give a batch, and leave the microbatch free"
            )
        return (least,), draw

    def at_batch(self, resolved: Resolved, batch: int) -> Sequence[Graph]:
        """Graphs of a question at the largest batch, once that is known."""
        return self.workload(resolved.question.changed(parameters={"batch": batch}))[0]

    def _path(self, name: str) -> str | Path:
        of_zoo = name in zoo("graphs") or name in zoo("systems")  # before files of that name
        return name if of_zoo or self.folder is None else resolve_near("graphs", self.folder, name)

    def once(self, what: str, identity: object, alive: object, make: Callable[[], Any]) -> Any:
        """Make a document once for each identity.

        Parameters
        ----------
        what, identity
            Kind of document, and what it is made from, as JSON data.
        alive
            Object that is kept, so that its id in ``identity`` stays unique.
        make : callable
            Makes the document.
        """
        key = f"{what} {json.dumps(identity, sort_keys=True, default=str)}"
        if key not in self._kept:
            self._kept[key] = make(), alive
        return self._kept[key][0]


def _of_system(path: str) -> bool:
    return re.split(r"[.\[]", path)[0] in (*System.model_fields, "design")


def _listed(given: Any) -> list[Any]:
    """One value, a list, or words separated by commas."""
    return given.split(",") if isinstance(given, str) else [*given] if isinstance(given, list | tuple) else [given]


def _sizes(given: Any) -> Sequence[int] | str | None:
    """Microbatches that are asked for; none where they are free."""
    if given is None:
        return None
    return _ALL if given == _ALL else _counts("microbatch", given, "numbers such as 1,2,4, or all")


def _counts(name: str, given: Any, expected: str) -> Sequence[int]:
    """Numbers from 1 on, each once."""
    counts = [str(count).strip() for count in _listed(given)]
    if not counts or not all(count.isdigit() and int(count) > 0 for count in counts):
        raise PlanError(f"{name}: found {shown(given)}, expected {expected}")
    return list(dict.fromkeys(map(int, counts)))


def listed_batches(question: Question) -> Sequence[int]:
    """Batches that a question about designs lists; empty if it has a single one or none."""
    given = question.parameters.get("batch")
    if not isinstance(given, list | tuple) and not (isinstance(given, str) and "," in given):
        return []
    return _counts("batch", given, "numbers such as 16,64,256")


def microbatches_of(question: Question) -> Sequence[int] | None:
    """Microbatches that a question lists; None if all are tried."""
    sizes = _sizes(question.parameters.get("microbatch"))
    return None if sizes is None or isinstance(sizes, str) else sizes


def _ways(given: Any) -> Sequence[str] | str | None:
    """Ways to recompute that are asked for; none where they are free."""
    if given is None or given == _ALL:
        return given  # type: ignore[no-any-return]
    try:
        return list(dict.fromkeys(recompute_of(str(way).strip()) for way in _listed(given)))
    except PydanticCustomError as error:
        raise PlanError(f"recompute: {error.message()}") from None
