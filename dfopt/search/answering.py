"""``solve``: a question, its answer, and what the answer was taken to be about."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Unpack

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.axes import spelled_out
from dfopt.documents.calibration import Calibration
from dfopt.documents.graph import Graph
from dfopt.documents.question import Question
from dfopt.documents.request import Request
from dfopt.documents.result import Result
from dfopt.documents.stack import Stack
from dfopt.documents.system import System
from dfopt.errors import NoSolution, PlanError
from dfopt.interrupts import cause, interruptible, now, wall_limit
from dfopt.questions import Resolved, Resolver, microbatches_of, question_of
from dfopt.search.optimization import search
from dfopt.solving.options import Only, Progress

if TYPE_CHECKING:
    from dfopt.documents.design import Design
    from dfopt.keywords import Asked


@spelled_out(Request.keywords())
def solve(
    graph: Graph | str | os.PathLike[str] | Question,
    system: System | Design | str | os.PathLike[str] | None = None,
    request: Request | None = None,
    *,
    assumptions: Assumptions | Calibration | str | None = None,
    stack: Stack | str | None = None,
    variants: Sequence[Graph] = (),
    progress: Callable[[Progress], None] | None = None,
    **asked: Unpack[Asked],
) -> Result:
    """Find, prove and judge the fastest mapping of a graph onto a system.

    Parameters
    ----------
    graph, system : Graph and System, or names or paths of them
        The workload and the machine; a design stands for the system that it gives. Alternatively a `Question` alone.
        For a graph given by name the microbatch is free unless it is requested, and in training also the recomputation.
    request : Request, optional
        The request, or its fields as keyword arguments, see below.
    assumptions : Assumptions, Calibration or str, optional
        A document, or the name of a profile; ``calibrated`` is the calibration of the system's chip, whose shares the
        system of the result has. By default ``calibrated`` for a phase that the chip's calibration was fitted to, and
        ``default`` otherwise.
    stack : Stack, name or path, optional
        The chip as a stack of dies; the system's own if left out.
    variants : sequence of Graph
        The same workload drawn for other microbatch sizes, or computed in another way (``Graph.variant``): they are
        searched too, and the best of all is returned. A graph that is named brings its own.
    progress : callable, optional
        Called with a :class:`Progress` now and then while a solve runs.
    **asked
        Parameters of a graph that is named, such as ``phase="decode", batch=128, context=4096`` (``batch="max"``: the
        largest that fits; ``microbatch`` and ``recompute``: one, a list, or ``all``); changes of single fields of the
        system or the assumptions, as ``set={"network.cluster.size": 8}``; and fields of :class:`dfopt.Request`:

        {fields}

    Returns
    -------
    Result
        Best mapping, its score and the proof.

    Raises
    ------
    PlanError, Infeasible, NoSolution, SolverFailure, ScoreMismatch
        See :mod:`dfopt.errors`.

    Examples
    --------
    >>> import dfopt as df
    >>> result = df.solve("gpt2-small", "sn10-8-ring", tp=8)
    >>> result.status, result.gap
    ('optimal', 0.0)
    """
    if not isinstance(graph, Question):
        graph = question_of(graph, system, request, asked, assumptions=assumptions, stack=stack)
    elif asked or any(given is not None for given in (system, request, assumptions, stack)):
        raise PlanError("question: found other arguments beside it; change it with question.changed(...)")
    return answer(graph, progress, variants).result


solve.__doc__ = (solve.__doc__ or "").replace("{fields}", Request.listed(" " * 8))


class Answer(NamedTuple):
    """A result with its resolved question, and notes on choices made where the question left them open."""

    result: Result
    resolved: Resolved
    notes: tuple[str, ...] = ()


def answer(
    question: Question,
    progress: Callable[[Progress], None] | None = None,
    variants: Sequence[Graph] = (),
    began: float | None = None,
    only: Only | None = None,
) -> Answer:
    """Answer a question like `solve`, and also return how its names and defaults were resolved.

    Parameters
    ----------
    question : Question
        The question to answer.
    progress, variants
        See :func:`solve`.
    began : float, s, optional
        Reading of :func:`time.perf_counter` at which the time limit begins to count; by default now.
    only : Only, optional
        Restriction to some plans, see :func:`dfopt.search.optimization.search`.

    Examples
    --------
    >>> found = answer(Question(graph="gpt2-small", system="sn10-8-ring", options={"tp": 8}))
    >>> found.result.status, len(found.resolved.graphs)
    ('optimal', 4)
    """
    began, resolver = now() if began is None else began, Resolver()
    with wall_limit(question.options.time_limit, began), interruptible():
        resolved = resolver.resolve(question)
    if resolved.largest is None:
        return _named(search(resolved, began, progress, variants, only), resolved)
    from dfopt.search.largest import largest_batch

    sizes = microbatches_of(question)
    of = resolved.largest, resolved.system, resolved.request, resolved.assumptions
    largest = largest_batch(*of, sizes, began)
    drawn = replace(resolved, graphs=resolver.at_batch(resolved, largest.batch))
    try:
        return _named(search(drawn, began, progress), drawn, str(largest))
    except (NoSolution, KeyboardInterrupt) as error:
        why = error if isinstance(error, NoSolution) else f"was searched until {cause()}"
        note = f"among all plans {why}; this is the best under the plan that holds the batch"
        return _named(largest.result, drawn, str(largest), note)


def _named(result: Result, resolved: Resolved, *notes: str) -> Answer:
    """An answer whose result says what was asked."""
    question = resolved.question.named()
    if result.question != question:
        result = result.model_copy(update={"question": question}).sealed()
    return Answer(result, resolved, (*resolved.notes, *notes))
