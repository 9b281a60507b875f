"""What a DFModel case is, before and after its import."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph
from dfopt.documents.mapping import Sharding
from dfopt.documents.system import System

Workload = Literal["llm", "dlrm", "hpl", "fft"]


class Unsupported(Exception):
    """A case uses a feature of DFModel that dfopt does not have yet; the message names it."""


@dataclass(frozen=True)
class ImportedCase:
    """A DFModel case as our documents, with what its files fix by hand.

    ``sharding`` is the result of their inter-chip step where the case records it (bytes alone leave
    ties, so it is part of what their second step was given); ``pins`` the partitions fixed by the user.
    ``padding`` is the FLOP of the graph over those that the authors count: more than one where shards are rounded
    up to whole rows of a grid of chips.
    """

    name: str
    graph: Graph
    system: System
    assumptions: Assumptions
    tp_dims: tuple[str, ...]
    pp_dims: tuple[str, ...]
    dp_dims: tuple[str, ...]
    p_max: int | None
    sharding: dict[str, Sharding]
    partition: dict[str, int]
    outputs: dict[str, Any]
    notes: tuple[str, ...] = field(default=())
    padding: float = 1.0


def workload_of(execution: dict[str, Any]) -> Workload:
    """Which workload block a setup has; ``llm`` where none is named.

    Examples
    --------
    >>> workload_of({"fft": {"length": 4096}}), workload_of({})
    ('fft', 'llm')
    """
    others: tuple[Workload, ...] = ("dlrm", "hpl", "fft")
    named = [name for name in others if name in execution]
    return named[0] if named and "llm" not in execution else "llm"


def is_first_generation(data: dict[str, Any]) -> bool:
    """Whether a case comes from the program's first generation, which charges weights by a set-up latency.

    Its own setups have a ``training`` block or a ``topo`` field; otherwise the reader of the log says so in the
    case's notes, since the setup looks like a later one.
    """
    setup = data["setup"]
    execution = setup.get("execution") or {}
    told = any("first-generation" in note for note in data.get("notes") or [])
    return told or "training" in execution or "topo" in setup["system"]
