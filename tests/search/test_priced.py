"""A plan with its sharding: as the inter-chip solve leaves it, and as a mapping has it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from strategies import LEVELS, World, options_of, shardings, share, worlds

import dfopt as df
from dfopt.documents.assumptions import profile
from dfopt.documents.mapping import KernelMapping, Mapping
from dfopt.errors import Infeasible, PlanError
from dfopt.milp import Solution, Termination, TracePoint
from dfopt.search.verify import verify
from dfopt.sharding import interchip
from dfopt.sharding.interchip import optimize_interchip
from dfopt.solving import levels
from dfopt.solving.options import record_of
from dfopt.solving.priced import priced_mapping
from dfopt.terms.sharded_graph import least_rows, tile_counts


@st.composite
def placed(draw: st.DrawFn) -> tuple[World, Mapping]:
    """Kernels under any legal sharding and on any stage, whatever the inter-chip problem would have chosen."""
    world = draw(worlds(most=4, max_pp=2, pieces=False))
    sharding = draw(shardings(world.graph, world.plan, world.assumptions))
    count = world.instance.mapped_stages
    kernels = tuple(
        KernelMapping(name=name, sharding=scheme, stage=draw(st.integers(0, count - 1)), partition=0)
        for name, scheme in sharding.items()
    )
    return world, Mapping(graph=world.graph.name, system=world.system.name, plan=world.plan, kernels=kernels)


@share(1)
@given(placed())
def test_a_mapping_is_priced_as_it_is(case: tuple[World, Mapping]) -> None:
    """Another sharding or stage may be as good: choosing again may find that one."""
    world, mapping = case
    rows = least_rows(world.instance, [kernel.sharding for kernel in mapping.kernels])
    count = tile_counts(world.graph, world.assumptions, rows)[0]
    mapping = mapping.model_copy(update={"tile_count": count})
    try:
        ready = priced_mapping(world.instance.setting, mapping, options_of())
    except Infeasible:
        reject()
    stages = dict(zip(ready.sharded.names, ready.stage_k.tolist(), strict=True))
    assert stages == {kernel.name: kernel.stage for kernel in mapping.kernels}
    assert ready.sharding == {kernel.name: kernel.sharding for kernel in mapping.kernels}
    other = mapping.model_copy(update={"tile_count": 10**6})
    with pytest.raises(PlanError, match=rf"has {10**6} tiles of the streamed axis, expected {count}"):
        priced_mapping(world.instance.setting, other, options_of())


def test_a_solve_without_any_bound_is_recorded() -> None:
    """CBC that is stopped before its first bound says minus infinity, which no document holds."""
    ended, size = Termination.LIMIT_WITH_SOLUTION, {"rows": 1, "columns": 1, "nonzeros": 1}
    stopped = Solution(ended, 2.0, -math.inf, math.inf, 1.0, nodes=0, trace=(), x=None, message="", **size)
    record = record_of("intrachip", 0, "columns", stopped, 2.0, -math.inf, "")
    assert record.bound == 0.0 and record.gap is None


def test_a_sharding_without_a_bound_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A solver that is stopped early may have a solution and nothing proven of it."""
    solve = levels.optimize_interchip

    def boundless(*given: Any, **more: Any) -> Any:
        found = solve(*given, **more)
        stopped = {"termination": Termination.LIMIT_WITH_SOLUTION, "bound": -math.inf, "gap": math.inf}
        return replace(found, solution=replace(found.solution, **stopped))

    monkeypatch.setattr(levels, "optimize_interchip", boundless)
    result = df.optimize(df.load_graph("gpt2-small"), "sn10-8-ring", tp=8, sensitivity=False, assumptions=LEVELS)
    record = result.plans[0].solves[0]
    assert record.problem == "interchip" and record.bound == 0.0 and record.gap is None
    assert result.status != "optimal"


def test_progress_and_trace_of_a_sharding_are_in_its_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models are scaled, and what breaks ties is no time at all: both are told as seconds of the first objective."""
    solve, told = interchip.solve, list[df.Progress]()

    def talks(*given: Any, progress: Any, **more: Any) -> Any:
        found = solve(*given, progress=progress, **more)
        progress(TracePoint(0.1, found.objective, found.bound))
        return found

    monkeypatch.setattr(interchip, "solve", talks)
    result = df.optimize(
        "gpt2-small", "sn10-8-ring", tp=8, microbatch=1, sensitivity=False, assumptions=LEVELS, progress=told.append
    )
    record = result.plans[0].solves[0]
    assert record.trace[-1][1] == record.objective
    points = [one.incumbent for one in told if one.problem == "interchip"]
    assert len(points) >= 2 and min(points) == points[-1] == pytest.approx(record.objective)


def test_a_sharding_is_optimal_for_its_level_whatever_the_gap() -> None:
    """Found by benchmarks/consistency.py, seed 20261139, request 217: vit-b-16 on 8 TPU v5e with a gap of 1 %."""
    chosen = profile("ideal").with_(sharding_objective="bytes")
    asked = {"phase": "training", "batch": 8, "microbatch": "1", "recompute": "none", "gap": 0.05}
    with patch("dfopt.solving.levels.optimize_interchip", wraps=optimize_interchip) as spy:
        result = df.solve("gpt2-small", "h100-8", assumptions=chosen, sensitivity=False, **asked)
    assert spy.call_count > 1 and {call.kwargs["gap"] for call in spy.call_args_list} == {0.0}
    assert verify(result).ok
