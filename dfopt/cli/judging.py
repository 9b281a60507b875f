"""How ``dfopt score`` reads its words: results judged as they are, or a mapping on a graph and a system."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from dfopt.cli.common import assumptions_of, graph_of
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.result import Result
from dfopt.documents.score import Score
from dfopt.documents.stack import Stack
from dfopt.errors import DocumentError, Issue, PlanError
from dfopt.judge import evaluate
from dfopt.library import load_mapping
from dfopt.machines.compose import load_system
from dfopt.machines.stacks import load_stack
from dfopt.show.physical import Ranked


def on_their_own(documents: Sequence[str]) -> bool:
    """Whether the words are results, and not a mapping with a graph and a system."""
    if len(documents) != 3:
        return True
    # Only of a plain file is it known that it can be read twice.
    return Path(documents[-1]).is_file() and _is_result(documents[-1])


def _is_result(path: str) -> bool:
    from dfopt.documents.kinds import kind_of
    from dfopt.documents.strict_yaml import load_strict

    return kind_of(load_strict(Path(path)), path) == "result"


def judged_with(
    documents: Sequence[str],
    stack: str | None,
    throttle: bool,
    batch: int | None,
    param: list[str] | None,
    assume: str | None,
    changes: list[str] | None,
) -> Score:
    """The score of ``MAPPING GRAPH SYSTEM``; a note if a result was found for other ones."""
    mapping, graph, system = documents
    chosen, result = load_mapping(mapping)
    own = result.assumptions if result is not None and assume is None else None
    assumptions = assumptions_of(assume or "default", changes, own)
    workload, machine = graph_of(graph, param, batch), load_system(system)
    on = _stack(stack, throttle, machine.stack)
    judged = evaluate(chosen, workload, machine, assumptions, on, throttle=throttle)
    if result is not None:
        for what, now, then in (
            ("graph", workload, result.provenance.graph_digest),
            ("system", machine, result.provenance.system_digest),
        ):
            if now.digest() != then:
                typer.echo(f"dfopt: note: {now.name} is not the {what} that the result was found for", err=True)
    return judged


def judged_results(
    documents: Sequence[str],
    stack: str | None,
    throttle: bool,
    batch: int | None,
    param: list[str] | None,
    assume: str | None,
    changes: list[str] | None,
) -> list[Ranked]:
    """The scores of results on their own graphs and systems, with the next best mappings that they keep; best first."""
    for option, given in (("--batch", batch), ("--param", param)):
        if given is not None:
            raise PlanError(f"{option}: a result has its own graph; name MAPPING GRAPH SYSTEM to judge it on another")
    if len(documents) == 2 and not Path(documents[1]).exists():
        raise PlanError(f"found two words, expected RESULT... or MAPPING GRAPH SYSTEM; {documents[1]!r} is no file")
    on = load_stack(stack) if stack is not None else None
    found: list[Ranked] = []
    graphs: dict[str, Any] = {}
    for path in documents:
        _, result = load_mapping(path)
        if result is None:
            remedy = "add its GRAPH and SYSTEM, or name results only"
            raise DocumentError(path, [Issue("$", "found a mapping, which does not say what it runs on", remedy)])
        assumptions = assumptions_of(assume or "default", changes, result.assumptions if assume is None else None)
        chosen = on if on is not None else _stack(None, throttle, result.system.stack)
        graphs[result.graph.digest()] = result.graph.name
        found += judged_mappings(path, result, assumptions, chosen, throttle)
    if len(graphs) > 1:
        typer.echo("dfopt: note: the results are of different graphs, their step times do not compare", err=True)
    return by_physics(found)


def judged_mappings(
    name: str, result: Result, assumptions: Assumptions, stack: Stack | None, throttle: bool = True
) -> list[Ranked]:
    """The mapping of a result and the next best ones that it keeps, judged; fastest first as the solve had them."""
    drawn = {graph.microbatch: graph for graph in (result.graph, *result.variants)}
    kept = [(name or "#1", drawn[result.graph.microbatch], result.mapping)]
    for number, one in enumerate(result.alternatives or (), start=2):
        if one.microbatch not in drawn:
            message = f"found {one.microbatch}, expected the microbatch of a graph that the result has"
            raise DocumentError(name, [Issue(f"$.alternatives[{number - 2}].microbatch", message)])
        kept.append(
            (f"{name.removesuffix(' #1').removesuffix('#1')} #{number}".strip(), drawn[one.microbatch], one.mapping)
        )
    return [
        Ranked(
            label,
            f"{mapping.graph} on {mapping.system}, {mapping.plan.label}"
            + (f", microbatch {graph.microbatch}" if result.variants else ""),
            evaluate(mapping, graph, result.system, assumptions, stack, throttle=throttle),
        )
        for label, graph, mapping in kept
    ]


def by_physics(ranked: Sequence[Ranked]) -> list[Ranked]:
    """Fastest first, those that break a limit last."""
    return sorted(ranked, key=lambda one: (bool(one.violations), one.step_time_s))


def _stack(name: str | None, throttle: bool, own: Stack | None) -> Stack | None:
    """The stack by name, else the system's own."""
    chosen = load_stack(name) if name is not None else own
    if chosen is None and not throttle:
        raise PlanError("--no-throttle: the system has no stack of dies that could get hot; name one with --stack")
    return chosen
