"""A training step in every way that a run may choose: samples of an evaluation, and what is computed again.

The others of its choices (degrees, chunks, ZeRO, schemes) are no question of how it is drawn: the search has them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

from dfopt.documents.graph import Graph
from dfopt.workloads import load_graph, load_variants, parameters_of
from dfopt.workloads.recompute import Recompute

__all__ = ["MICROBATCHES", "WAYS", "load_executions"]

MICROBATCHES: Final = (1, 2, 4, 8)
"""Samples of one evaluation that are tried, where they divide those of a step."""
WAYS: Final[tuple[Recompute, ...]] = ("none", "attention", "full")
"""What is tried of what is computed again."""


def load_executions(
    name_or_path: str | os.PathLike[str],
    microbatches: Sequence[int] | None = None,
    ways: Sequence[str] | None = None,
    **overrides: Any,
) -> tuple[Graph, ...]:
    """Graphs of one training step, for `optimize`: the first, and the others as its ``variants``.

    Parameters
    ----------
    name_or_path, **overrides
        As of `load_graph`.
    microbatches
        Samples of an evaluation; if left out, those of 1, 2, 4 and 8 that divide the batch, and that of the zoo.
    ways
        What is computed again; if left out, nothing, attention and all of a layer.

    Returns
    -------
    tuple of Graph
        What ``overrides``, or a file of one's own, give is fixed. Of what does not train, and of workloads that cannot
        compute again, those of `load_variants`.

    Examples
    --------
    >>> graphs = load_executions("gpt2-small", mode="training", batch=12)
    >>> [graph.microbatch for graph in graphs], graphs[2].variant
    ([1, 1, 1, 2, 2, 2, 4, 4, 4], 'recompute: full')
    """
    first = load_graph(name_or_path, **overrides)
    allowed, fixed = parameters_of(name_or_path)
    if not first.trains or not {"recompute", "microbatch"} <= allowed:
        return load_variants(name_or_path, **overrides)
    choices: dict[str, Sequence[Any]] = {}
    if "microbatch" not in overrides and (microbatches or "microbatch" not in fixed):
        some = [each for each in MICROBATCHES if first.batch % each == 0]
        choices["microbatch"] = microbatches or sorted({*some, first.microbatch})
    if "recompute" not in overrides and (ways or "recompute" not in fixed):
        choices["recompute"] = ways or WAYS
    drawn = [{**overrides}]
    for key, values in choices.items():
        drawn = [{**one, key: value} for one in drawn for value in values]
    return tuple(graph for one in drawn for graph in load_variants(name_or_path, **one))
