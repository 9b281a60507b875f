"""What the tests of every workload claim: its graphs solve, and parameters that cannot be give one error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from dfopt.documents.graph import Graph
from dfopt.documents.system import System
from dfopt.judge import evaluate
from dfopt.physics.ops import flop
from dfopt.search import Answer, solve


def solved(graph: Graph, system: System, **asked: Any) -> Answer:
    """The best mapping, whose step the judge finds as long, and no shorter than all chips take for its work."""
    result = solve(graph, system, **asked)
    again = evaluate(result.mapping, graph, system, result.assumptions)
    assert again.step_time_s == pytest.approx(result.score.step_time_s, rel=1e-6)
    work = graph.repeat * graph.batch / graph.microbatch * sum(map(flop, graph.kernels))
    assert result.score.step_time_s >= work / (system.chips * system.chip.peak_flops)
    return result


def refused(build: Callable[..., Graph], parameters: dict[str, Any], where: str, says: str) -> None:
    """A workload refuses parameters with one error, at a place, which says so and has a remedy."""
    with pytest.raises(ValidationError) as caught:
        build(**parameters)
    (error,) = caught.value.errors()
    assert error["ctx"]["where"] == where
    assert says in error["msg"]
    assert error["ctx"]["remedy"]
