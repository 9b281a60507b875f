"""A search held against brute force: the same optimum, proven, and verified; infeasible where nothing fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from brute import joint_optimum
from hypothesis import note

import dfopt.search as optimizer
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph
from dfopt.documents.request import Request
from dfopt.documents.result import Result
from dfopt.documents.system import System
from dfopt.errors import Infeasible
from dfopt.physics.overlap import hides
from dfopt.search.verify import verify


def check_proven(graph: Graph, system: System, chosen: Assumptions, asked: Mapping[str, Any]) -> None:
    """The search comes to it, and a check of the answer shows it again."""
    best = joint_optimum(graph, system, chosen, Request(**asked))
    if best is None:
        with pytest.raises(Infeasible):
            optimizer.solve(graph, system, assumptions=chosen, **asked)
        return
    result = optimizer.solve(graph, system, assumptions=chosen, **asked)
    note(f"{result.value} {result.status} {result.plan.label} against {best}")
    check_value(result, best.value)
    found = verify(result)
    assert not found.problems, found.problems


def check_value(result: Result, best: float) -> None:
    """Proven to be the best of all mappings; of fused kernels that hide gradients, as near as the gap says."""
    assert result.bound <= best * (1 + 1e-9)
    assert result.value >= best * (1 - 1e-9)
    chosen = result.assumptions
    if chosen.execution != "kernel_by_kernel" and hides(chosen, result.graph) and result.status != "optimal":
        return
    assert result.status == "optimal"
    assert result.value <= best * (1 + 1e-9)
