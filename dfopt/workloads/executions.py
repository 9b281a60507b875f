"""A workload in every way that a run may choose: samples of an evaluation, and in training what is computed again.

The others of its choices (degrees, chunks, ZeRO, schemes) are no question of how it is drawn: the search has them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dfopt.divisors import divisors
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.errors import DocumentError
from dfopt.workloads import given_parameters, load_graph, load_variants, parameters_of
from dfopt.workloads.recompute import Recompute

_FACTORS: Final = (1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8)
"""Microbatches that are tried, as multiples of the one that a model's file gives."""
WAYS: Final[tuple[Recompute, ...]] = ("none", "attention", "layernorm+attention", "full+attention", "full")
"""What is tried of what is computed again, as far as a model has it and it makes a difference."""
ALL: Final = "all"
"""In place of a list: every divisor of the batch, or every way in `WAYS`, whatever a model's file gives."""


def free_microbatches(graph: Graph, own: int = 1) -> list[int]:
    """Microbatch sizes to try if the user gives none.

    Of a phase of serving all divisors of the batch; else ``own``, and up to eight times more or fewer samples. If
    ``own`` does not divide the batch, these are taken of the largest divisor below it, too.

    Examples
    --------
    >>> graph = load_graph("gpt2-small", batch=12)
    >>> free_microbatches(graph), free_microbatches(load_graph("llama-3.1-8b", phase="decode", batch=12))
    ([1, 2, 4], [1, 2, 3, 4, 6, 12])
    >>> free_microbatches(load_graph("dlrm-a", batch=96, microbatch=1), own=512)
    [12, 24, 48, 96]
    """
    if graph.tokens is not None and graph.tokens.produced is not None:
        return divisors(graph.batch)[::-1]
    nearest = own if graph.batch % own == 0 else max(size for size in divisors(graph.batch) if size <= own)
    tried = {int(size * factor) for size in (own, nearest) for factor in _FACTORS if size * factor >= 1}
    return [size for size in sorted(tried) if graph.batch % size == 0]


def load_executions(
    name_or_path: str | os.PathLike[str],
    microbatches: Sequence[int] | str | None = None,
    ways: Sequence[str] | str | None = None,
    **overrides: Any,
) -> tuple[Graph, ...]:
    """Graphs of one step in all free ways, for `optimize`: the graph and its ``variants``.

    Parameters
    ----------
    name_or_path, **overrides
        As of `load_graph`.
    microbatches
        Samples of an evaluation; ``all`` divisors of the batch; if left out, those of `free_microbatches`.
    ways
        Training: ways of activation recomputation; ``all`` those of `WAYS`; if left out, too, unless a user's file
        gives one.

    Returns
    -------
    tuple of Graph
        Values of ``overrides`` and of a user's file are fixed. For workloads without these choices, the graphs are
        those of `load_variants`.

    Examples
    --------
    >>> graphs = load_executions("gpt2-small", mode="training", batch=12)
    >>> [graph.microbatch for graph in graphs], graphs[2].variant
    ([1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4], 'recompute: layernorm+attention')
    """
    allowed, fixed = parameters_of(name_or_path)
    given = given_parameters(name_or_path)
    free = "microbatch" not in fixed and "batch" in {**given, **overrides}  # else a step is one microbatch
    choices: dict[str, Sequence[Any]] = {}
    if "microbatch" in allowed - overrides.keys() and (microbatches or free):
        smallest = load_graph(name_or_path, **overrides, microbatch=1)
        if microbatches == ALL:
            choices["microbatch"] = divisors(smallest.batch)[::-1]
        else:
            choices["microbatch"] = microbatches or free_microbatches(smallest, given.get("microbatch", 1))
    sizes = choices.get("microbatch", ())
    first = load_graph(name_or_path, **overrides, **({"microbatch": sizes[0]} if sizes else {}))
    if first.trains and "recompute" in allowed - overrides.keys() and (ways or "recompute" not in fixed):
        choices["recompute"] = ways if ways and ways != ALL else _different(name_or_path, overrides)
    drawn = [{**overrides}]
    for key, values in choices.items():
        drawn = [{**combination, key: value} for combination in drawn for value in values]
    return tuple(graph for combination in drawn for graph in load_variants(name_or_path, **combination))


def _different(name_or_path: str | os.PathLike[str], overrides: Mapping[str, Any]) -> list[Recompute]:
    """The ways that a workload has, without those that compute the same as one before."""
    drawn: dict[tuple[tuple[Kernel, ...], tuple[Tensor, ...]], Recompute] = {}
    for way in WAYS:
        try:
            graph = load_graph(name_or_path, **overrides, recompute=way)
        except DocumentError:  # of a layer norm, where a model has none
            continue
        drawn.setdefault((graph.kernels, graph.tensors), way)
    return list(drawn.values())
