"""The judge for those who have names and paths: it takes documents only, and knows no zoo."""

from __future__ import annotations

import os

from dfopt import judge
from dfopt.documents.assumptions import Assumptions, profile
from dfopt.documents.graph import Graph
from dfopt.documents.mapping import Mapping
from dfopt.documents.result import Result
from dfopt.documents.score import Score
from dfopt.documents.stack import Stack
from dfopt.documents.system import System
from dfopt.library import as_graph, as_system, load_mapping
from dfopt.machines.stacks import load_stack

__all__ = ["evaluate"]


def evaluate(
    mapping: Mapping | Result | str | os.PathLike[str],
    graph: Graph | str | os.PathLike[str],
    system: System | str | os.PathLike[str],
    assumptions: Assumptions | str | None = None,
    stack: Stack | str | os.PathLike[str] | None = None,
    *,
    physical: bool = True,
    throttle: bool = True,
) -> Score:
    """Judge a mapping.

    Parameters
    ----------
    mapping : Mapping, Result or path
        A place for every kernel of the graph, and a plan for the system.
    graph, system : Graph and System, or names or paths of them
        The workload and the machine.
    assumptions : Assumptions or str, optional
        Conventions, or the name of a profile; the default profile if left out.
    stack : Stack, name or path, optional
        The chip as a stack of dies; the system's own if left out.
    physical : bool
        False: leave the stack aside, whether given or the system's.
    throttle : bool
        False: on a stack that gets too hot, stay at the nominal frequency and only say so.

    Returns
    -------
    Score
        Times, bytes and what binds. Limits that the mapping breaks are sentences in ``violations``;
        the times are then those it would have if it could run. With a stack, ``physical`` says what it does there.

    Raises
    ------
    DocumentError, PlanError, SystemSpecError
        If the mapping, its plan or the chip do not fit: see `dfopt.judge.evaluate`.

    Examples
    --------
    >>> import dfopt as df
    >>> result = df.optimize("gpt2-small", "sn10-8-ring", tp=8)
    >>> df.evaluate(result, "gpt2-small", "sn10-8-ring").step_time_s == result.step_time_s
    True
    """
    if isinstance(mapping, Result):
        mapping = mapping.mapping
    elif not isinstance(mapping, Mapping):
        mapping = load_mapping(mapping)[0]
    if stack is not None and not isinstance(stack, Stack):
        stack = load_stack(stack)
    if isinstance(assumptions, str):
        assumptions = profile(assumptions)
    machine = as_system(system)
    return judge.evaluate(mapping, as_graph(graph), machine, assumptions, stack, physical=physical, throttle=throttle)
