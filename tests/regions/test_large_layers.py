"""Layers with more readers, down-sets or kernels than are listed: the same bounds and answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from covered import asked_of, best_mapping, check_honest, covered, jointly, optimum, optimum_of_some, setting_of
from hypothesis import assume, event, given, note
from hypothesis import strategies as st
from strategies import World, share
from test_bounds import SAME, check_bounds, drawn, problem
from test_offload import cases as trained
from test_several import Distinct, values_of

import dfopt as df
from dfopt.arrays import Floats
from dfopt.bnb import Clock
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.request import Request
from dfopt.errors import Infeasible, PlanError
from dfopt.regions.arcs import chain_of
from dfopt.regions.facts import Facts
from dfopt.regions.passes import fields_of, least_passes, seconds_of
from dfopt.regions.piece_prices import PassPieces
from dfopt.regions.pieces import Attained, best_of_passes
from dfopt.regions.region import Region
from dfopt.search import solve
from dfopt.search.verify import verify

FEW: dict[str, Any] = {"MOST_LISTED": 4, "MERGED": 8}
"""Amounts that are listed of a conversion, and that bound it: those of one or two readers."""


@share(1)
@given(covered(most=4), st.data())
def test_what_is_shown_holds_for_all_mappings(world: World, data: st.DataObject) -> None:
    """A mapping is found where there is one, and no bound is above the best; what is called optimal is."""
    asked = asked_of(world, data.draw)
    best = optimum(world, asked)
    with patch.multiple("dfopt.terms.rules.network", **FEW):
        try:
            result = solve(world.graph, world.system, assumptions=jointly(world), **asked)
        except Infeasible:
            assert best is None
            return
        assert best is not None
        check_honest(result, best.value)


def test_a_mask_that_forty_products_read_can_be_mapped() -> None:
    """5^41 amounts of a conversion would not fit any memory."""
    product = {"op": "gemm", "m": 64, "k": 64, "n": 64}
    readers = [Kernel(name=f"product {i}", **product) for i in range(40)]
    mask = Kernel(name="mask", **product)
    tensors = tuple(Tensor(src="mask", dst=reader.name) for reader in readers)
    graph = Graph(name="mask", kernels=(mask, *readers), tensors=tensors, batch=8, microbatch=1)
    result = solve(graph, "sn10-8-ring", tp=8, time_limit=5)
    assert result.plan.tp == 8 and 0 < result.bound <= result.value


# -- more down-sets than are listed: blocks are generated on demand ----------------------------


CLOSED = 2e-6
"""Relative: what generation leaves open of a bound, as MILPs do."""
FUSED: dict[str, Any] = {"execution": ["dataflow", "library"], "token_blocks": ["none", "allow"]}
"""Worlds in which kernels share blocks."""


@contextmanager
def few_sets(most: int) -> Iterator[None]:
    """Lattices are too large to list from so many down-sets on."""
    names = "MOST_SETS", "MOST_OF_LIBRARY", "_SOME"
    with (
        patch.multiple("dfopt.regions.lattices", **dict.fromkeys(names, most)),
        patch("dfopt.fusion.pieces._LONG", 0.0),  # and layers of any shape are cut into pieces
    ):
        yield


@share(0.5)
@given(covered(most=4, **FUSED), st.sampled_from([1, 4, 8]), st.data())
def test_nothing_is_better(world: World, most: int, data: st.DataObject) -> None:
    asked = asked_of(world, data.draw)
    expected = optimum_of_some(world, asked)
    with few_sets(most):
        found = best_mapping(setting_of(world), Request(**asked))
    note(f"{found.best} {found.ending} {found.bound} against {expected}")
    if expected is None:
        assert found.ending == "empty"
        return
    assert found.best == pytest.approx(expected.value, rel=CLOSED)
    assert expected.value * (1 - CLOSED) <= found.bound <= expected.value * (1 + SAME)


@share(1)
@given(covered(most=4, **FUSED), st.data())
def test_no_member_is_below_a_bound(world: World, data: st.DataObject) -> None:
    with few_sets(1):
        members, region = drawn(world, data)
        least = members.least(region)
    assert not region.complete
    check_bounds(problem(members).relaxations, region, least)


@share(0.5)
@given(covered(most=4, **FUSED), st.data(), st.integers(2, 6), st.sampled_from(["plan", "sharding"]))
def test_nothing_else_is_better_than_the_last(world: World, data: st.DataObject, top: int, distinct: Distinct) -> None:
    asked = asked_of(world, data.draw, ways=1)  # with open stages several mappings of a plan are refused
    expected = values_of(world, asked, distinct)[:top]
    with few_sets(1):
        found = best_mapping(setting_of(world), Request(**asked, top=top, distinct=distinct))
    note(f"{found.kept} {found.bound} against {expected}")
    assert [one.value for one in found.kept] == pytest.approx(expected, rel=CLOSED)


@share(0.5)
@given(covered(most=4, empty_partitions="allow", **FUSED), st.sampled_from(["joint", "seconds"]), st.data())
def test_answers_are_verified(world: World, objective: str, data: st.DataObject) -> None:
    asked = asked_of(world, data.draw, ways=1)
    given = {"assumptions": world.assumptions.with_(sharding_objective=objective), **asked}
    try:
        expected = solve(world.graph, world.system, **given)
    except (Infeasible, PlanError) as error:
        with few_sets(1), pytest.raises(type(error)):
            solve(world.graph, world.system, **given)
        return
    with few_sets(1):
        found = solve(world.graph, world.system, **given)
    note(f"{found.value} {found.bound} {found.status} against {expected.value} {expected.status}")
    assert found.value == pytest.approx(expected.value, rel=CLOSED)
    assert found.bound >= expected.bound * (1 - CLOSED)
    with few_sets(1):
        problems = verify(found).problems
    counted_so = "$.space."  # which down-sets are listed decides how the space is counted
    problems += tuple(problem for problem in verify(found).problems if not problem.startswith(counted_so))
    assert not problems, problems


HIDING: dict[str, Any] = FUSED | {"gradient_overlap": "backward", "gradients": "exact", "repeats": (4,), "trains": True}
"""Worlds in which passes hide exchanges."""


@share(2)
@given(covered(most=4, **HIDING), st.data())
def test_passes_take_no_less_than_kernels_say_whatever_their_blocks(world: World, data: st.DataObject) -> None:
    check_passes(drawn(world, data)[1])


@share(1)
@given(trained(execution=["dataflow", "library"], gradient_overlap=None, token_blocks=["none", "allow"]), st.data())
def test_memories_take_no_less_beside_what_is_moved(case: tuple[World, dict[str, str]], data: st.DataObject) -> None:
    world, place = case
    check_passes(drawn(world, data, Request(place=place, zero=(0, 1), mp=1))[1])


def check_passes(region: Region) -> None:
    """What kernels say of the passes of a region is no more than the least over all of its paths."""
    of, facts = region.of, Facts(region)
    assume(of.by_pass is not None and region.complete and facts.arcs_k is not None)
    for kind, (arcs, priced) in enumerate(zip(facts.some, facts._priced_k, strict=True)):
        known, fields = least_passes(of.by_pass, [arcs], [priced]), fields_of(of.by_pass, arcs, priced)
        for low, exact, of_blocks in zip(of._unlisted_passes(kind, region.domain), known, fields, strict=True):
            assert of_blocks is None or (low <= exact * (1 + SAME)).all()  # others decide nothing


# -- options and blocks of long graphs together, piece by piece --------------------------------


EVERY = patch.multiple("dfopt.fusion.pieces", _LONG=0.0, _WIDE=10**5, _MOST=10**6)  # graphs of any shape
WORLDS: dict[str, Any] = {
    "execution": ["dataflow", "library"],
    "token_blocks": "none",
    "compute_model": ["fixed", "efficiency"],
    "empty_partitions": "allow",
    "most": 5,
}


def layers(region: Region, kind: int) -> Floats:
    """Seconds of a layer of some kind with its best blocks, under every vector of options: shape (vectors,)."""
    of, arcs = region.of, region.arcs_k[kind]
    amount_vc = of.table.exact(of.table.vectors(region.domain))
    price_vb = seconds_of(of.blocks(arcs, of.chip.bounding).prices(amount_vc))
    return np.asarray(arcs.distances(price_vb)[:, -1] + of.illegal(amount_vc))


def seconds(region: Region, found: Attained) -> float:
    """Seconds of the blocks of an answer, with its options."""
    of, option_k = region.of, [found.option_k[k] for k in range(len(region.domain))]
    arcs = chain_of(region.arcs_k[0], found.partition_k(region.arcs_k[0].kernels))
    price_vb = seconds_of(of.blocks(arcs, of.chip.bounding).prices(of.table.exact(np.array([option_k]))))
    return float(price_vb.sum())


def in_pieces(world: World, data: st.DataObject) -> tuple[Region, list[tuple[PassPieces, ...]]]:
    """A region of all blocks with options to choose, and by kind of layer the passes of its class."""
    _, region = drawn(world, data, Request(two_batch_overlap=False, pp=None if world.graph.folded else 1))
    assume(region.complete and region.vectors > 1)
    with EVERY:
        return region, [region.of.passes(kind, Clock()) for kind in range(region.of.kinds)]


def check(world: World, data: st.DataObject) -> None:
    region, passes_k = in_pieces(world, data)
    of = region.of
    for kind, passes in enumerate(passes_k):
        best = float(layers(region, kind).min())
        cutoff = best * data.draw(st.sampled_from([0.9, 1.1, np.inf])) if np.isfinite(best) else np.inf
        found = best_of_passes(passes, of.table_of_blocks, region.domain, of.chip.bounding, cutoff, Clock())
        note(f"{found} of {best} below {cutoff}")
        if not passes:
            continue
        if found.low >= cutoff:
            assert best >= cutoff * (1 - SAME)
        else:
            assert found.low <= best * (1 + SAME)
            event(f"as much as the best: {found.low >= best * (1 - SAME)}")
        if len(passes) == of.kinds == 1 and not of.chip.rule.hidden:  # nothing is gained by two pieces in a block
            assert found.low >= min(best, cutoff) * (1 - SAME)
            assert found.blocks or best >= cutoff
            assert not found.blocks or seconds(region, found) == pytest.approx(found.low, rel=SAME)


@share(3)
@given(covered(**WORLDS), st.data())
def test_no_vector_of_options_is_below_the_bound(world: World, data: st.DataObject) -> None:
    check(world, data)


@share(2)
@given(covered(**WORLDS | {"overlap": "none", "trains": False}), st.data())
def test_where_seconds_add_up_the_bound_is_the_best(world: World, data: st.DataObject) -> None:
    check(world, data)


@share(1)
@given(covered(**WORLDS), st.data())
def test_few_vectors_and_entries_leave_a_bound(world: World, data: st.DataObject) -> None:
    """Where too many kernels matter, charges take their least over the options of some."""
    with patch("dfopt.regions.piece_prices._VECTORS", 2), patch("dfopt.regions.rests._ENTRIES", 4):
        region, passes_k = in_pieces(world, data)
        of = region.of
        for kind, passes in enumerate(passes_k):
            found = best_of_passes(passes, of.table_of_blocks, region.domain, of.chip.bounding, np.inf, Clock())
            assert found.low <= layers(region, kind).min() * (1 + SAME)


def test_two_layers_drawn_apart_are_proven() -> None:
    """82 kernels with 514,156 down-sets: one answer about the root shows the optimum, and its mapping has it."""
    graph = df.load_graph("gpt3-175b", mode="training", drawn=2)
    chosen = df.Assumptions(sequence_parallelism="none")
    result = df.optimize(graph, "sn10-8-ring", tp=8, zero=0, assumptions=chosen, sensitivity=False)
    assert result.status == "optimal"
    assert result.value == pytest.approx(2832.687295, rel=1e-6)
