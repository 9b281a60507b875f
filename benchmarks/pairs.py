"""Pairs of a graph and a system, drawn from the zoo: the same ones in the same order for a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product
from typing import Any

import dfopt as df
from dfopt.documents.axes import AXES
from dfopt.documents.plan import Plan
from dfopt.documents.zoo import zoo

KERNELS, CHIPS = 64, 256  # of the largest: each pair is solved several times


def dims_of(plan: Plan) -> dict[str, Any]:
    """The network dims of a plan, as keyword arguments that ask for them."""
    return {axis.dims_key: getattr(plan, axis.dims_key) for axis in AXES.values()}


def drawn(seed: int, given: str = "") -> Iterator[str]:
    """Pairs as ``GRAPH:SYSTEM[:key=value,...]``, every one of small and medium size once.

    Parameters
    ----------
    seed : int
        Of the order.
    given : str
        What each pair is asked beside, such as ``tp=8``.
    """
    graphs = [name for name in zoo("graphs") if len(df.load_graph(name).kernels) <= KERNELS]
    systems = [name for name in zoo("systems") if df.load_system(name).chips <= CHIPS]
    pairs = list(product(graphs, systems))
    random.Random(seed).shuffle(pairs)
    for graph, system in pairs:
        yield f"{graph}:{system}" + (f":{given}" if given else "")
