"""A search held against brute force: the same optimum, proven, and verified; infeasible where nothing fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from brute import Joint, joint_optimum
from covered import best_mapping
from hypothesis import note

import dfopt.search as optimizer
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.documents.result import Result
from dfopt.documents.system import System
from dfopt.errors import Infeasible, PlanError
from dfopt.search.verify import verify
from dfopt.setting.instance import Setting


def check_proven(
    graph: Graph, system: System, chosen: Assumptions, asked: Mapping[str, Any], plans: Sequence[Plan] | None = None
) -> tuple[Result, Joint] | None:
    """The regions without a start, and the whole search, come to the optimum, and a check of the answer shows it again.

    Parameters
    ----------
    plans : Sequence of Plan, optional
        All that a request leaves free; by default those that brute force writes down itself.

    Returns
    -------
    tuple of Result and Joint, optional
        The answer and the optimum; none where nothing fits, or no plan has what is asked for.
    """
    given, request = {"assumptions": chosen, **asked}, Request(**asked)
    try:
        best = joint_optimum(graph, system, chosen, request, plans)
    except PlanError:
        with pytest.raises(PlanError):
            optimizer.solve(graph, system, **given)
        return None
    found = best_mapping(Setting.resolved(graph, system, chosen), request)
    note(f"{found.best} {found.ending} {found.bound} against {best}")
    if best is None:
        assert found.ending == "empty" and found.solution is None
        with pytest.raises(Infeasible):
            optimizer.solve(graph, system, **given)
        return None
    assert found.ending == "optimal"
    assert found.best == pytest.approx(best.value, rel=1e-9)
    assert found.bound == pytest.approx(best.value, rel=1e-9)
    result = optimizer.solve(graph, system, **given)
    note(f"{result.value} {result.status} {result.bound} {result.plan.label}")
    assert result.status == "optimal"
    assert result.value == pytest.approx(best.value, rel=1e-9)
    assert result.bound == pytest.approx(best.value, rel=1e-9)
    shown = verify(result)
    assert not shown.problems, shown.problems
    return result, best
