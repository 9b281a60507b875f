"""How ``dfopt score`` reads its words: results judged as they are, or a mapping on a graph and a system."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dfopt import arguments
from dfopt.cli.common import assumed_by, assumptions_of, echo
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph
from dfopt.documents.kinds import kind_of
from dfopt.documents.mapping import Mapping
from dfopt.documents.result import Result
from dfopt.documents.stack import Stack
from dfopt.documents.strict_yaml import load_strict
from dfopt.documents.system import System
from dfopt.errors import DocumentError, Issue, PlanError
from dfopt.judge import evaluate
from dfopt.library import graph_under, load_mapping, load_system
from dfopt.machines.calibrations import assumed_again
from dfopt.machines.stacks import load_stack
from dfopt.show.omissions import Judged
from dfopt.show.physical import Ranked


def judged(
    documents: Sequence[str],
    stack: str | None,
    throttle: bool,
    batch: int | None,
    param: list[str] | None,
    assume: str | None,
    changes: list[str] | None,
) -> list[Ranked]:
    """Score the mappings that the arguments of ``dfopt score`` name, with alternatives of results; best first.

    Parameters
    ----------
    documents : sequence of str
        Results; or a mapping, a graph and a system.
    stack, throttle
        The stack of dies by its name, and whether it runs with a lower clock where it gets too hot.
    batch, param
        Parameters of the graph, which are allowed only for a mapping given with a graph.
    assume, changes
        Assumptions by their profile or file, those of the result if left out; and fields of them that are set.
    """
    # Only of a plain file is it known that it can be read twice.
    last = Path(documents[-1])
    is_file = os.path.isfile(last)
    if len(documents) == 3 and not (is_file and kind_of(load_strict(last), str(last)) == "result"):
        overrides = arguments.values(param, "--param") | arguments.given({"batch": batch})
        return [_mapping_judged(documents, stack, throttle, overrides, assume, changes)]
    for option, given in (("--batch", batch), ("--param", param)):
        if given is not None:
            raise PlanError(f"{option}: a result has its own graph; name MAPPING GRAPH SYSTEM to judge it on another")
    if len(documents) == 2 and not os.path.exists(last):
        raise PlanError(f"found two words, expected RESULT... or MAPPING GRAPH SYSTEM; {documents[1]!r} is no file")
    return _results_judged(documents, stack, throttle, assume, changes)


def _mapping_judged(
    documents: Sequence[str],
    stack: str | None,
    throttle: bool,
    overrides: dict[str, Any],
    assume: str | None,
    changes: list[str] | None,
) -> Ranked:
    """A mapping on a graph and a system, under the assumptions of its result where none are named."""
    mapping, result = load_mapping(documents[0])
    graph, own = graph_under(mapping, result, documents[1], **overrides), load_system(documents[2])
    system = own
    if assume is not None:
        assumptions, system, _ = assumed_by(assume, changes, own)
    else:
        assumptions = _assumptions(changes, result)
        if result is not None:
            system = assumed_again(assumptions, result.system, own).system
    ranked = _judged(documents[0], mapping, graph, system, assumptions, _stack_of(system, stack, throttle), throttle)
    for kind, now in (("graph", graph), ("system", own if assume is not None else system)):
        if result is not None and now.digest() != getattr(result.provenance, f"{kind}_digest"):
            echo(f"dfopt: note: {now.name} is not the {kind} that the result was found for", err=True)
    return ranked


def _results_judged(
    paths: Sequence[str], stack: str | None, throttle: bool, assume: str | None, changes: list[str] | None
) -> list[Ranked]:
    """The mappings of results, each on its own graph and system; best first."""
    ranked, graphs = [], set()
    for path in paths:
        _, result = load_mapping(path)
        if result is None:
            remedy = "add its GRAPH and SYSTEM, or name results only"
            raise DocumentError(path, [Issue("$", "found a mapping, which does not say what it runs on", remedy)])
        graphs.add(result.graph.digest())
        system = result.system
        if assume is not None:
            assumptions, system, _ = assumed_by(assume, changes, system)
        else:
            assumptions = _assumptions(changes, result)
        on = result if system is result.system else result.model_copy(update={"system": system})
        ranked += judged_mappings(path, on, assumptions, _stack_of(system, stack, throttle), throttle)
    if len(graphs) > 1:
        echo("dfopt: note: the results are of different graphs, their step times do not compare", err=True)
    return by_physics(ranked)


def _assumptions(changes: list[str] | None, result: Result | None) -> Assumptions:
    """The assumptions of a result with changes; of no result, the default ones."""
    return assumptions_of("default", changes, None if result is None else result.assumptions)


def _stack_of(system: System, name: str | None, throttle: bool) -> Stack | None:
    """The stack of dies that is named, or that of the system."""
    stack = system.stack if name is None else load_stack(name)
    if stack is None and not throttle:
        raise PlanError("--no-throttle: the system has no stack of dies that could get hot; name one with --stack")
    return stack


def judged_mappings(
    name: str, result: Result, assumptions: Assumptions, stack: Stack | None, throttle: bool = True
) -> list[Ranked]:
    """Score the mapping of a result and its alternatives, in the order of the result.

    Parameters
    ----------
    name : str
        Name of the result, from which its mappings get their names; may be empty.
    result : Result
        Result with the graphs and the system of the mappings.
    assumptions : Assumptions
        Under which they are judged.
    stack : Stack, optional
        The stack of dies that the chip is.
    throttle : bool
        Whether a stack that gets too hot runs with a lower clock.
    """
    drawn = {(graph.microbatch, graph.variant): graph for graph in (result.graph, *result.variants)}
    kept = [(name or "#1", (result.graph.microbatch, result.graph.variant), result.mapping)]
    for number, alternative in enumerate(result.alternatives or (), start=2):
        key = alternative.microbatch, alternative.variant
        if key not in drawn:
            message = f"found {alternative.microbatch}, expected the microbatch of a graph that the result has"
            raise DocumentError(name, [Issue(f"$.alternatives[{number - 2}].microbatch", message)])
        kept.append((f"{name} #{number}".strip(), key, alternative.mapping))
    return [
        _judged(label, mapping, drawn[key], result.system, assumptions, stack, throttle,
                f", microbatch {key[0]}{f', {key[1]}' * (key[1] is not None)}" if result.variants else "")
        for label, key, mapping in kept
    ]  # fmt: skip


def by_physics(ranked: Sequence[Ranked]) -> list[Ranked]:
    """Sort scored mappings by step, those that break a limit last."""
    return sorted(ranked, key=lambda mapping: (bool(mapping.violations), mapping.score.sustained.step_time_s))


def _judged(
    name: str,
    mapping: Mapping,
    graph: Graph,
    system: System,
    assumptions: Assumptions,
    stack: Stack | None,
    throttle: bool,
    more: str = "",
) -> Ranked:
    score = evaluate(mapping, graph, system, assumptions, stack, throttle=throttle)
    what = f"{mapping.graph} on {mapping.system}, {mapping.plan.label}{more}"
    return Ranked(name, what, Judged(graph, system, assumptions, mapping, score))
