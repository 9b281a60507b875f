"""Plans: every share-out of the network dims, degrees that multiply to the chips, errors that say what is possible."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import plans_on, share

from dfopt.documents.dim_names import split_part_name
from dfopt.documents.graph import Graph, Kernel
from dfopt.documents.plan import Plan
from dfopt.documents.system import Chip, Dram, NetworkDim, Sram, System
from dfopt.errors import PlanError


def machine(*sizes: int) -> System:
    dims = tuple(NetworkDim(name="wxyz"[i], topology="ring", size=n, link_bandwidth=1e9) for i, n in enumerate(sizes))
    chip = Chip(name="c", tiles=4, peak=1e12, sram=Sram(capacity=1e6), dram=Dram(bandwidth=1e9))
    return System(name="s", chip=chip, network=dims)


def workload(repeat: int = 64, batch: int = 64, microbatch: int = 1, kernels: int = 1, trains: bool = False) -> Graph:
    passes = ["forward"] * (kernels - 1) + ["backward" if trains else "forward"]
    made = tuple(Kernel(name=f"k{i}", op="gemm", m=4, k=4, n=4, pass_=of) for i, of in enumerate(passes))
    return Graph(name="g", repeat=repeat, batch=batch, microbatch=microbatch, kernels=made)


def renamed(plan: Plan, system: System) -> set[tuple[frozenset[str], ...]]:
    """What every axis of a plan has of the dims, under every exchange of the names of dims that are wired alike."""
    names, found = [dim.name for dim in system.network], set()
    size_of = {dim.name: dim.size for dim in system.network}
    for other in itertools.permutations(names):
        new = dict(zip(names, other, strict=True))
        if all(size_of[a] == size_of[b] for a, b in new.items()):
            of_axis = (plan.tp_dims, plan.pp_dims, plan.dp_dims)
            found.add(tuple(frozenset(new[one[0]] + one[1:] for one in dims) for dims in of_axis))
    return found


@share(2)
@given(
    st.lists(st.sampled_from([1, 2, 3, 4]), max_size=4), st.sampled_from([1, 2, 7, 64]), st.sampled_from([1, 6, 64]),
    st.sampled_from([1, 2]), st.integers(1, 4),
)  # fmt: skip
def test_every_dim_carries_one_parallelism(
    sizes: list[int], repeat: int, batch: int, microbatch: int, kernels: int
) -> None:
    system, graph = machine(*sizes), workload(repeat, batch, microbatch, kernels)
    try:
        found, rejected = plans_on(graph, system)
    except PlanError as error:
        found_reason = "no plan is usable" in str(error)
        if not found_reason:
            raise
        return
    wide = [d for d in system.network if d.size > 1]
    every = found + [r.plan for r in rejected]
    counts = Counter(dim.size for dim in wide)
    assert len(every) == len(set(every)) == math.prod(math.comb(3 + alike - 1, alike) for alike in counts.values())
    assert len({one for plan in every for one in renamed(plan, system)}) == 3 ** len(wide)
    for plan in every:
        assert plan.tp * plan.pp * plan.dp == system.chips == math.prod(sizes)
        carried = [*plan.tp_dims, *plan.pp_dims, *plan.dp_dims]
        assert sorted(carried) == sorted(d.name for d in wide)
        for degree, dims in ((plan.tp, plan.tp_dims), (plan.pp, plan.pp_dims), (plan.dp, plan.dp_dims)):
            assert degree == math.prod(system.dim(name).size for name in dims)
    for plan in found:
        assert plan.microbatches * microbatch * plan.dp == batch
        assert plan.layers_per_stage == (1 if repeat == 1 else math.ceil(repeat / plan.pp))
        assert plan.pp <= repeat * kernels and (repeat == 1 or plan.pp <= repeat)
    for one in rejected:
        uneven = batch % (microbatch * one.plan.dp)
        assert uneven or one.plan.pp > repeat
        assert one.reason


@share(0.3)
@given(st.lists(st.sampled_from([1, 2, 3, 4, 6, 12]), max_size=2))
def test_parts_of_dims_make_up_the_whole(sizes: list[int]) -> None:
    """Every dim is shared out in all ways: groups of neighbours for tp, then pp, then dp."""
    system, graph = machine(*sizes), workload(repeat=1000, batch=1728)
    found, rejected = plans_on(graph, system, parts=True)
    every = found + [r.plan for r in rejected]
    triples = [sum(1 for a in range(1, n + 1) for b in range(1, n + 1) if n % (a * b) == 0) for n in sizes]
    counts = Counter(zip(sizes, triples, strict=True))
    assert len(every) == len(set(every)) == math.prod(math.comb(n + c - 1, c) for (_, n), c in counts.items())
    assert len({one for plan in every for one in renamed(plan, system)}) == math.prod(triples)
    for plan in every:
        assert plan.tp * plan.pp * plan.dp == math.prod(sizes)
        for dim in system.network:
            reach = 1
            for names in (plan.tp_dims, plan.pp_dims, plan.dp_dims):
                for size, stride in [split_part_name(n)[1:] for n in names if split_part_name(n)[0] == dim.name]:
                    assert stride == reach
                    reach *= size or dim.size
            assert reach == dim.size
        for degree, dims in ((plan.tp, plan.tp_dims), (plan.pp, plan.pp_dims), (plan.dp, plan.dp_dims)):
            assert degree == math.prod(system.dim(name).size for name in dims)
    whole = [*plans_on(graph, system)[0], *(r.plan for r in plans_on(graph, system)[1])]
    assert {plan.label for plan in every if "[" not in plan.label} == {plan.label for plan in whole}


def test_layers_are_interleaved_in_all_ways_that_the_schedule_allows() -> None:
    system = machine(4)
    found, _ = plans_on(workload(repeat=24, batch=8, trains=True), system, pp=4)
    assert [plan.interleave for plan in found] == [1, 2, 3, 6]  # chunks of the six layers of a stage
    found, _ = plans_on(workload(repeat=24, batch=6, trains=True), system, pp=4)
    assert [plan.interleave for plan in found] == [1]  # six microbatches do not go around in groups of four
    assert [p.interleave for p in plans_on(workload(repeat=24, trains=True), system, pp=4, interleave=3)[0]] == [3]
    with pytest.raises(PlanError, match="cannot be interleaved 5 times"):
        plans_on(workload(repeat=24, trains=True), system, pp=4, interleave=5)


@pytest.mark.parametrize("written", ["w[3]", "w[2@4]", "y", "w[", "w[2@"])
def test_parts_that_are_none_are_refused(written: str) -> None:
    with pytest.raises(PlanError, match="--tp-dims"):
        plans_on(workload(), machine(4), tp_dims=(written,))


def test_a_part_asked_for_is_the_only_one() -> None:
    found, _ = plans_on(workload(), machine(8), tp_dims=("w[2]",), pp_dims=())
    assert [plan.label for plan in found] == ["TP2(w[2]) PP1 DP4(w[4@2])"]


def test_parts_asked_for_may_be_any_neighbours() -> None:
    found, _ = plans_on(workload(), machine(8), tp_dims=("w[2@4]",))
    assert {plan.label for plan in found} == {
        "TP2(w[2@4]) PP4(w[4]) DP1", "TP2(w[2@4]) PP1 DP4(w[4])",
        "TP2(w[2@4]) PP2(w[2]) DP2(w[2@2])", "TP2(w[2@4]) PP2(w[2@2]) DP2(w[2])",
    }  # fmt: skip


def test_dims_that_are_wired_alike_are_told_apart_when_they_are_asked_for() -> None:
    system = machine(4, 4)
    assert [plan.label for plan in plans_on(workload(), system, tp=4, pp=4)[0]] == ["TP4(w) PP4(x) DP1"]
    assert [plan.label for plan in plans_on(workload(), system, pp=4, tp_dims=("x",))[0]] == ["TP4(x) PP4(w) DP1"]
    slower = system.network[1].model_copy(update={"link_bandwidth": 5e8})
    apart = system.model_copy(update={"network": (system.network[0], slower)})
    assert len(plans_on(workload(), apart, tp=4, pp=4)[0]) == 2


@pytest.mark.parametrize("kind", ["tp", "pp", "dp"])
def test_a_degree_asked_for_is_the_only_one(kind: str) -> None:
    system = machine(2, 4)
    for degree in (1, 2, 4, 8):
        found, _ = plans_on(workload(), system, **{kind: degree})
        assert found and {getattr(plan, kind) for plan in found} == {degree}


@pytest.mark.parametrize("kind", ["tp", "pp", "dp"])
def test_an_impossible_degree_says_which_are_possible(kind: str) -> None:
    with pytest.raises(PlanError) as error:
        plans_on(workload(), machine(2, 4), **{kind: 3})
    text = str(error.value)
    assert f"{kind.upper()} 3" in text and "[1, 2, 4, 8]" in text and "8 chips" in text


@pytest.mark.parametrize("kind", ["tp", "pp", "dp"])
def test_dims_asked_for_are_kept_and_unknown_ones_refused(kind: str) -> None:
    found, _ = plans_on(workload(), machine(2, 4), **{f"{kind}_dims": ("x",)})
    assert found and all(getattr(plan, f"{kind}_dims") == ("x",) for plan in found)
    with pytest.raises(PlanError, match="nope"):
        plans_on(workload(), machine(2, 4), **{f"{kind}_dims": ("nope",)})


def test_nothing_usable_gives_the_reasons() -> None:
    with pytest.raises(PlanError, match="does not divide over DP 3"):
        plans_on(workload(batch=4), machine(3), dp=3)
    with pytest.raises(PlanError, match="more stages than the graph has layers"):
        plans_on(workload(repeat=2), machine(3), pp=3)
    with pytest.raises(PlanError, match="more stages than the graph has kernels"):
        plans_on(workload(repeat=1, kernels=2), machine(3), pp=3)
