"""The size of the search space: paths through the lattice counted one by one, and how the factors multiply."""

from __future__ import annotations

import itertools
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_systems import rings, small_system
from strategies import share

import dfopt as df
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.fusion.downsets import Lattice
from dfopt.fusion.partitioning import IntraChipLimits
from dfopt.physics.pipeline import resolve
from dfopt.regions.lattices import down_sets_by_kind
from dfopt.search.space import log10_paths, search_space, together
from dfopt.setting.instance import Setting
from dfopt.setting.plans import asked_plans


@st.composite
def orders(draw: st.DrawFn) -> tuple[int, set[tuple[int, int]]]:
    """Up to five kernels and which must come before which."""
    count = draw(st.integers(1, 5))
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count)]
    return count, set(draw(st.lists(st.sampled_from(pairs), max_size=6))) if pairs else set()


def lattice_of(count: int, before: set[tuple[int, int]]) -> Lattice:
    sets = [s for s in itertools.product([False, True], repeat=count) if all(s[a] or not s[b] for a, b in before)]
    sets.sort(key=sum)
    member = np.array(sets, dtype=bool)
    return Lattice(member, member.sum(axis=1).astype(np.int64))


def ordered_partitions(
    count: int, before: set[tuple[int, int]], forward: list[bool] | None, limits: IntraChipLimits | None = None
) -> int:
    """Assignments of kernels to blocks 0, 1, ... without gaps that keep the order and do not mix passes."""
    found = 0
    for places in itertools.product(range(count), repeat=count):
        blocks = set(places)
        if blocks != set(range(len(blocks))) or any(places[a] > places[b] for a, b in before):
            continue
        if forward and any(
            places[a] >= places[b] for a in range(count) for b in range(count) if forward[a] > forward[b]
        ):
            continue
        if limits and (len(blocks) > limits.p_max or (limits.exactly and len(blocks) < limits.p_max)):
            continue
        found += limits is None or all(places[k] == block for k, block in limits.pins)
    return found


@share(0.5)
@given(orders())
def test_paths_are_ordered_partitions(order: tuple[int, set[tuple[int, int]]]) -> None:
    count, before = order
    assert round(10 ** log10_paths(lattice_of(count, before))) == ordered_partitions(count, before, None)


@share(0.5)
@given(orders(), st.integers(0, 5))
def test_passes_are_not_mixed(order: tuple[int, set[tuple[int, int]]], ahead: int) -> None:
    """With the forward pass first, as the rule ``separate`` and its down-sets have it."""
    count, before = order
    forward = [k < ahead for k in range(count)]
    barrier = before | {(a, b) for a in range(count) for b in range(count) if forward[a] and not forward[b]}
    paths = log10_paths(lattice_of(count, barrier), np.array(forward))
    assert round(10**paths) == ordered_partitions(count, before, forward)


@share(0.5)
@given(orders(), st.integers(1, 5), st.booleans(), st.dictionaries(st.integers(0, 4), st.integers(0, 4), max_size=2))
def test_blocks_are_counted_and_pinned(
    order: tuple[int, set[tuple[int, int]]], most: int, exactly: bool, pins: dict[int, int]
) -> None:
    count, before = order
    limits = IntraChipLimits(min(most, count), exactly, pins=tuple((k, p) for k, p in pins.items() if k < count))
    paths = log10_paths(lattice_of(count, before), None, limits)
    assert round(10**paths) == ordered_partitions(count, before, None, limits)


def test_pins_and_partitions_are_in_the_count() -> None:
    """Of a chain of four under TP, two of whose schemes are pinned: 1 + 3 ways to cut it into two at most."""
    asked = Request(pin_sharding={"k0": "outer", "k3": "outer"}, p_max=2)
    lattice = lattice_of(4, {(0, 1), (1, 2), (2, 3)})
    for known in ({0: lattice}, {}):
        space = search_space(chained("dataflow"), [Plan(tp=2, tp_dims=("x",))], known, 1, asked)
        assert 10**space.log10_total == pytest.approx(2**2 * (1 + 3))
    pinned = search_space(chained("dataflow"), [Plan()], {0: lattice}, 1, Request(pin_partition={"k1": 1}))
    assert 10**pinned.log10_fusions == pytest.approx(4)  # a cut before it, and two more or not after it


def chain(kernels: int, repeat: int = 1) -> Graph:
    made = tuple(Kernel(name=f"k{i}", op="gemm", m=4, k=4, n=4) for i in range(kernels))
    return Graph(name="g", repeat=repeat, kernels=made)


def chained(execution: str) -> Setting:
    """Four GEMMs, twice, on any chip: a space is counted before a limit is looked at."""
    assumptions = resolve(Assumptions(execution="chip", sequence_parallelism="none"), execution, 0.9)
    return Setting(chain(4, repeat=2), small_system(), assumptions)


def test_factors_multiply() -> None:
    """Two plans of four GEMMs: two schemes each under TP, one without; 8 paths through a chain of four."""
    plans = [Plan(tp=2, tp_dims=("x",)), Plan(dp=2, dp_dims=("x",))]
    lattice = lattice_of(4, {(0, 1), (1, 2), (2, 3)})
    space = search_space(chained("dataflow"), plans, {0: lattice})
    assert space.plans == 2
    assert space.exact
    assert 10**space.log10_fusions == pytest.approx(8)
    assert 10**space.log10_total == pytest.approx((2**4 + 1) * 8)
    assert "2 plans" in str(space)
    assert f"{17 * 8} mappings" in str(space)
    twice = together([space, space])
    assert twice.plans == 4
    assert 10**twice.log10_total == pytest.approx(2 * 17 * 8)


def test_kernel_by_kernel_nothing_is_fused() -> None:
    space = search_space(chained("kernel_by_kernel"), [Plan()], {})
    assert space.log10_total == 0.0
    assert space.exact


def test_without_a_lattice_it_is_a_lower_bound() -> None:
    space = search_space(chained("dataflow"), [Plan()], {})
    assert not space.exact
    assert 10**space.log10_fusions == pytest.approx(8)  # cuts of one order; a chain has no other
    assert "at least" in str(space)


def test_stages_that_together_need_more_partitions_than_each_may_have_leave_a_count() -> None:
    """A forward and a backward kernel never share a partition; one partition a stage is enough for two stages."""
    kernels = (Kernel(name="a", op="gemm", m=8, k=8, n=8), Kernel(name="b", op="gemm", m=8, k=8, n=8, pass_="backward"))
    graph = Graph(name="both", batch=2, kernels=kernels, tensors=())
    rules = resolve(Assumptions(forward_backward="separate"), "dataflow", None, 0.0)
    setting = Setting(graph, small_system(bandwidth=1e9, capacity=1e9), rules)
    space = search_space(setting, [Plan()], {0: lattice_of(2, set())}, asked=Request(p_max=1))
    assert (space.log10_fusions, space.exact) == (0.0, False)


# -- fusions are counted alike whichever plan is priced first ----------------------------------


_KERNELS = tuple(Kernel(name=name, op="elementwise", m=4, n=8, flop_per_element=50) for name in ("a", "b"))
_GRAPH = Graph(name="two", kernels=_KERNELS, tensors=(), batch=4)
_SYSTEM = small_system(*rings(2, rate=1e9), tiles=4, compute_utilization=1.0, bandwidth=1e3)


def test_the_down_sets_of_a_stage_are_not_taken_for_those_of_all_kernels() -> None:
    setting, request = Setting(_GRAPH, _SYSTEM, df.profile("default")), Request()
    plans, _ = asked_plans(_GRAPH, _SYSTEM, request, setting.assumptions)
    assert any(plan.stages == 2 for plan in plans)
    counted = set()
    for order in permutations(plans):
        lattices = down_sets_by_kind(setting, order)
        counted.add((*lattices, lattices[0] and lattices[0].member.shape))
    assert counted == {(0, (4, 2))}  # nothing, one of two or both
