"""One program over assignment matrices for each plan: as good as brute force, on record, and verified."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from brute import joint_optimum
from covered import asked_of, covered, in_token_blocks, jointly
from hypothesis import event, given, note
from hypothesis import strategies as st
from strategies import World, share

from dfopt.bnb import OutOfTime
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.request import Request
from dfopt.documents.system import Chip, Dram, Sram, System
from dfopt.errors import Infeasible, NoSolution, PlanError
from dfopt.search import solve
from dfopt.search.verify import verify


@share(0.5)
@given(covered(most=4, gradient_overlap=None), st.sampled_from(["joint", "joint", "seconds", "bytes"]), st.data())
def test_programs_find_the_best_mapping(world: World, objective: str, data: st.DataObject) -> None:
    """So few kernels are in as many partitions as they like."""
    check(world, objective, data)


@share(0.5)
@given(in_token_blocks(gradient_overlap=None), st.sampled_from(["joint", "seconds", "bytes"]), st.data())
def test_programs_know_blocks_of_tokens(world: World, objective: str, data: st.DataObject) -> None:
    check(world, objective, data)


@share(0.3)
@given(covered(most=4, gradient_overlap=None), st.data())
def test_a_program_that_there_is_no_time_for_shows_nothing(world: World, data: st.DataObject) -> None:
    asked = asked_of(world, data.draw, ways=1) | {"assumptions": jointly(world)}
    with patch("dfopt.solving.matrices.assignment_of", side_effect=OutOfTime):
        try:
            found = solve(world.graph, world.system, formulation="assignment", **asked)
        except (Infeasible, PlanError, NoSolution):
            return
    best = solve(world.graph, world.system, **asked)
    assert found.bound <= best.value * (1 + 1e-9)


def check(world: World, objective: str, data: st.DataObject) -> None:
    """A program is as good as the search, and its bound holds for brute force."""
    asked, chosen = asked_of(world, data.draw, ways=1), world.assumptions.with_(sharding_objective=objective)
    given = {"assumptions": chosen, **asked}
    try:
        best = joint_optimum(world.graph, world.system, jointly(world), Request(**asked))
        expected = solve(world.graph, world.system, **given)
    except (Infeasible, PlanError) as error:
        with pytest.raises(type(error)):
            solve(world.graph, world.system, formulation="assignment", **given)
        return
    found = solve(world.graph, world.system, formulation="assignment", **given)
    event(f"blocks of tokens: {found.mapping.token_blocks is not None}")
    note(f"{found.value} {found.status} {found.plan.label} against {best} and {expected.value}")
    assert found.value == pytest.approx(expected.value, rel=1e-6)
    assert found.status == expected.status
    assert best is not None and found.bound <= best.value * (1 + 1e-9)
    [record] = [one for one in found.plans if one.plan == found.plan and one.value == found.value]
    last = record.solves[-1]
    assert last.problem == ("joint" if objective == "joint" else "intrachip")
    assert last.formulation in ("assignment", "kernel_by_kernel")
    assert last.bound <= (last.objective or 0.0) * (1 + 1e-6)
    shown = verify(found)
    assert not shown.problems, shown.problems


def test_partitions_are_as_many_as_prices_ask_for() -> None:
    """How many a program has by default follows from prices: here few kernels fit the chip together."""
    kernels = tuple(Kernel(name=f"k{i}", op="gemm", m=8, k=8, n=8) for i in range(8))
    tensors = tuple(Tensor(src=f"k{i}", dst=f"k{i + 1}") for i in range(7))
    graph = Graph(name="g", batch=4, kernels=kernels, tensors=tensors)
    chip = Chip(name="c", tiles=8, peak=300, sram=Sram(capacity=360), dram=Dram(bandwidth=100))
    asked = Assumptions(compute_model="fixed", tile_rows=1, weight_tiling="forbid")
    for objective in ("joint", "seconds"):
        chosen = asked.with_(sharding_objective=objective)
        paths, programs = (
            solve(graph, System(name="s", chip=chip, network=()), assumptions=chosen, formulation=form)
            for form in ("auto", "assignment")
        )
        assert len(paths.score.partitions) > 3
        assert programs.value == pytest.approx(paths.value, rel=1e-9)
