"""Paths that keep to numbers of partitions, against every way to number the partitions of every path."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from covered import covered, setting_of
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import share
from test_arcs import MANY, paths_of

import dfopt as df
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.fusion.partitioning import IntraChipLimits
from dfopt.regions.arcs import Arcs
from dfopt.regions.lattices import arcs_of
from dfopt.regions.numbering import Numbering
from dfopt.setting.instance import Setting


@st.composite
def limits(draw: st.DrawFn, kernels: int) -> IntraChipLimits:
    """Limits on the partitions of so many kernels."""
    most = draw(st.integers(1, kernels + 1))
    number = st.tuples(st.integers(0, kernels - 1), st.integers(0, most - 1))
    rule = draw(st.sampled_from(["halves", "halves", "shared"]))
    return IntraChipLimits(most, draw(st.booleans()), rule, tuple(draw(st.lists(number, max_size=2))))


def keeps(limits: IntraChipLimits, member: np.ndarray, forward_k: np.ndarray, numbers: tuple[int, ...]) -> bool:
    """Whether partitions with these numbers are as asked for, by the words of the rules."""
    most, both = limits.p_max, forward_k.any() and not forward_k.all()
    of_kernel = {k: number for block, number in zip(member, numbers, strict=True) for k in np.flatnonzero(block)}
    halves = limits.forward_backward == "halves" and both
    return all(of_kernel[k] == number for k, number in limits.pins) and not (
        halves and any(of_kernel[k] >= -(-most // 2) if forward_k[k] else of_kernel[k] < most // 2 for k in of_kernel)
    )


def ways(limits: IntraChipLimits, count: int) -> list[tuple[int, ...]]:
    """Numbers of so many partitions: under halves any of them may stay empty, unless none may."""
    if count > limits.p_max or (limits.exactly and count < limits.p_max):
        return []
    if limits.forward_backward == "halves":
        return list(itertools.combinations(range(limits.p_max), count))
    return [tuple(range(count))]


def chain(kernels: int) -> Arcs:
    """All arcs of kernels of which each needs the one before it."""
    pairs = np.array([(before, after) for after in range(1, kernels + 1) for before in range(after)])
    sets = np.tri(kernels + 1, kernels, -1, dtype=bool)
    return Arcs(sets[pairs[:, 1]] & ~sets[pairs[:, 0]], sets, pairs[:, 0], pairs[:, 1], np.arange(len(pairs)))


@st.composite
def layers(draw: st.DrawFn) -> Arcs:
    """All arcs of a random layer, or of a chain: random layers have few paths with many partitions."""
    if draw(st.booleans()):
        return chain(draw(st.integers(2, 6)))
    world = draw(covered(most=5, least=2, empty_partitions="allow", forward_backward="shared"))
    arcs, _ = arcs_of(setting_of(world).under(Plan()), 0, Request())
    assert arcs is not None
    return arcs


@share(4)
@given(layers(), st.data())
def test_the_paths_that_are_kept_are_those_that_can_be_numbered(arcs: Arcs, data: st.DataObject) -> None:
    """Each once, and with numbers that are as asked for."""
    kernels = arcs.kernels
    asked, forward_k = data.draw(limits(len(kernels))), np.array([data.draw(st.booleans()) for _ in kernels])
    numbering, expected = Numbering(asked, forward_k), set[tuple[bytes, ...]]()
    paths = paths_of(arcs)
    assume(len(paths) <= MANY)
    for path in paths:
        member = arcs.member_bk[arcs.block_a[list(path)]]
        mine = member[:, kernels]
        if any(keeps(asked, mine, forward_k, numbers) for numbers in ways(asked, len(path))):
            expected.add(tuple(block.tobytes() for block in member))
            numbers = tuple(numbering.along(mine))
            assert numbers in ways(asked, len(path)) and keeps(asked, mine, forward_k, numbers)
    kept = numbering.kept(arcs)
    if kept is None:
        assert not expected
        return
    found = [tuple(kept.member_bk[block].tobytes() for block in kept.block_a[list(path)]) for path in paths_of(kept)]
    assert len(set(found)) == len(found) and set(found) == expected
    assert set(kept.block_a.tolist()) == set(range(len(kept.member_bk)))


@pytest.mark.parametrize("most", [3, 30])
def test_down_sets_are_there_once_where_numbers_make_no_difference(most: int) -> None:
    setting = Setting.resolved(df.load_graph("gpt2-small"), df.load_system("sn10-8-ring"), df.Assumptions())
    free, _ = arcs_of(setting.under(Plan()), 0, Request())
    counted, _ = arcs_of(setting.under(Plan()), 0, Request(p_max=most))
    assert free is not None and counted is not None
    assert (len(counted.set_jk) == len(free.set_jk)) == (most == 30)


@pytest.mark.parametrize("most", range(1, 7))
@pytest.mark.parametrize("exactly", [False, True])
def test_a_chain_has_as_many_paths_as_there_are_cuts(most: int, exactly: bool) -> None:
    kept = Numbering(IntraChipLimits(most, exactly, "shared"), np.zeros(6, dtype=bool)).kept(chain(6))
    assert kept is not None
    assert len(paths_of(kept)) == sum(math.comb(5, cuts) for cuts in range((most - 1) * exactly, most))
