"""What layers take at least, against what the judge says of mappings by chance; blocks, paths and sums one by one."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import Dice, World, worlds

from dfopt import solve
from dfopt.arrays import Floats
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.mapping import KernelMapping, Mapping
from dfopt.documents.plan import Plan
from dfopt.documents.result import Result
from dfopt.documents.system import System
from dfopt.judge import evaluate
from dfopt.judge.items import LayerItems, NotItems
from dfopt.proof.blocks import Component, TooManyBlocks, components_of
from dfopt.proof.dual import Domain
from dfopt.proof.factors import Elimination, Factor, TooLarge
from dfopt.proof.layer import LayerBounds


def _numbers(graph: Graph, bounds: LayerBounds, dice: Any) -> list[int]:
    """Partitions by chance, in an order that goes with the tensors: kernels one by one, often as the one before."""
    number_k, last = [0] * len(graph.kernels), -1
    before = {
        k: {graph.index()[t.src] for t in graph.tensors if graph.index()[t.dst] == k} for k in range(len(number_k))
    }
    left = set(before)
    members: list[int] = []
    while left:
        ready = sorted(k for k in left if not before[k] & left)
        forward = [k for k in ready if bounds.key_k[k][1]]
        k = dice(forward or ready)
        same = members and bounds.key_k[members[0]] == bounds.key_k[k] and bounds.items.allowed((*members, k))
        if not (same and dice([True, True, False])):
            last, members = last + 1, []
        members.append(k)
        number_k[k] = last
        left.remove(k)
    return number_k


def _check(graph: Graph, system: System, chosen: Assumptions, plan: Plan, tiles: int, dice: Any) -> bool:
    """Bounds of schemes among which those of a mapping are, maybe in any of two numbers of tiles; whether it fits."""
    items = LayerItems(graph, system, chosen, plan, tiles)
    several = chosen.compute_model != "cycle"
    bounds = LayerBounds(LayerItems(graph, system, chosen, plan, tiles, dice([tiles, 1, 2])) if several else items)
    seen, schemes_k = bounds.items.graph, bounds.items.schemes_k
    scheme_k = [dice(range(len(schemes))) for schemes in schemes_k]
    domain: Domain = tuple(
        tuple(o for o in range(len(schemes)) if o == scheme or dice([True, False]))
        for schemes, scheme in zip(schemes_k, scheme_k, strict=True)
    )
    kernels = tuple(
        KernelMapping(name=kernel.name, sharding=schemes[scheme], stage=key[0], partition=number)
        for kernel, schemes, scheme, key, number in zip(
            seen.kernels, schemes_k, scheme_k, bounds.key_k, _numbers(seen, bounds, dice), strict=True
        )
    )
    mapping = Mapping(graph=graph.name, system=system.name, plan=plan, kernels=kernels, tile_count=tiles)
    score = evaluate(mapping, graph, system, chosen)
    if any("DRAM" not in sentence and "empty partitions" not in sentence for sentence in score.violations):
        return False
    place = seen.index()
    taken = {tuple(sorted(place[name] for name in part.kernels)): part.time_s for part in score.partitions}
    for left in (domain, bounds.domain):
        for each in (bounds, *_narrowed(bounds, left, taken)):
            _check_bounds(each, left, scheme_k, taken, dice)
    return True


def _narrowed(bounds: LayerBounds, left: Domain, taken: dict[tuple[int, ...], float]) -> Iterator[LayerBounds]:
    """Bounds of fewer blocks, those of a mapping among them: of what takes no longer, and with these alone."""
    component_of = {k: c for c, of in enumerate(bounds.components) for k in of.kernels}
    most_c = [0.0] * len(bounds.components)
    for members, seconds in taken.items():
        most_c[component_of[members[0]]] += seconds * (1 + 1e-9)
    if all(least < most for least, most in zip(bounds.seconds(left), most_c, strict=True)):
        yield bounds.within(left, most_c)
    while (k := bounds.with_few_blocks(10**6)) is not None:
        bounds = next(some for some in bounds.by_blocks(k) if all(_has(some, members) for members in taken))
    yield bounds


def _has(bounds: LayerBounds, members: tuple[int, ...]) -> bool:
    rows = (tuple(np.flatnonzero(row)) for of in bounds.components for row in of.member_bk)
    return members in rows or any(not of.is_listed and members[0] in of.kernels for of in bounds.components)


def _check_bounds(
    bounds: LayerBounds, left: Domain, scheme_k: list[int], taken: dict[tuple[int, ...], float], dice: Any
) -> None:
    """Bounds of a domain that has the schemes of a mapping, against the seconds of its partitions."""
    least, real = defaultdict[tuple[int, bool], float](float), defaultdict[tuple[int, bool], float](float)
    kernels = defaultdict[tuple[int, bool], set[int]](set)
    for members, seconds in taken.items():
        real[bounds.key_k[members[0]]] += seconds
    components = defaultdict[tuple[int, bool], list[int]](list)
    for c, (component, seconds) in enumerate(zip(bounds.components, bounds.seconds(left), strict=True)):
        keys = {bounds.key_k[k] for k in component.kernels}
        assume(len(keys) == 1)
        least[key := keys.pop()] += seconds
        kernels[key] |= {*component.kernels}
        components[key].append(c)
    for key, seconds in real.items():
        assert least[key] <= seconds * (1 + 1e-9)
        dual = bounds.duals.best(left, kernels[key], dice([seconds, math.inf])).elimination
        each = bounds.each(left, components[key])
        for found in (dual, each) if each is not None else (dual,):
            assert found.least <= seconds * (1 + 1e-9)
            for k, (schemes, marginal) in enumerate(zip(left, found.marginals, strict=True)):
                assert marginal[schemes.index(scheme_k[k])] <= seconds * (1 + 1e-9)
                assert marginal.min() == pytest.approx(found.least, rel=1e-12)
        if each is not None:
            assert each.least >= max(least[key], dual.least) * (1 - 1e-9)


@given(world=worlds(compute_model=["fixed", "efficiency"]), data=st.data())
def test_no_mapping_is_below(world: World, data: st.DataObject) -> None:
    assume(world.graph.folded or world.plan.stages == 1)
    dice = Dice(data.draw)
    try:
        assume(_check(world.graph, world.system, world.assumptions, world.plan, dice([1, 1, 2]), dice))
    except (NotItems, TooManyBlocks):
        assume(False)


def _of_answer(result: Result) -> LayerBounds:
    of = result.graph, result.system, result.assumptions, result.plan
    return LayerBounds(LayerItems(*of, result.mapping.tile_count))


@pytest.mark.parametrize(
    ("graph", "system", "parameters"),
    [
        ("gpt3-175b", "sn10-8-ring", {}),
        ("llama-3.1-70b", "tpu-v4-64", {}),
        ("mixtral-8x7b", "h100-8", {"phase": "prefill", "two_batch_overlap": False}),
    ],
    ids=str,
)
def test_the_best_mapping_of_the_zoo_is_met(graph: str, system: str, parameters: dict[str, Any]) -> None:
    """With its own schemes alone the layers take what they take, and no less with all."""
    result = solve(graph, system, **parameters)
    bounds = _of_answer(result)
    seen, mapped = bounds.items.graph, {kernel.name: kernel for kernel in result.mapping.kernels}
    pairs = zip(seen.kernels, bounds.items.schemes_k, strict=True)
    own = tuple((schemes.index(mapped[kernel.name].sharding),) for kernel, schemes in pairs)
    real = math.fsum(partition.time_s for partition in result.score.partitions)
    assert math.fsum(bounds.seconds(own)) == pytest.approx(real, rel=1e-12)
    assert math.fsum(bounds.seconds(bounds.domain)) <= real * (1 + 1e-12)


@pytest.mark.parametrize("less", [1 - 0.004, 1 - 1e-9])
def test_a_scheme_that_pays_a_little_more_replaces_none(less: float) -> None:
    """Two schemes of one kernel alike, but for one amount of one item that the second has a little less of."""
    result = solve("gpt2-small", "sn10-8-ring", tp=8, microbatch=1, sensitivity=False)
    bounds = _of_answer(result)
    k = next(k for k, schemes in enumerate(bounds.items.schemes_k) if len(schemes) > 1)
    tables = [table.copy() for table in bounds._amounts.table_i]
    changed = 0
    for i in bounds._of_kernel[k]:
        axis = bounds.items.items[i].scope.index(k)
        amount = np.moveaxis(tables[i], axis, 0)
        amount[1] = amount[0]
        place = np.argwhere((amount[1] > 0) & np.isfinite(amount[1]))
        if len(place) and not changed:
            changed, where = 1, (1, *place[0].tolist())
            amount[where] *= less
    assert changed
    bounds._amounts.table_i = tables
    assert bounds.replaces(k, 1, 0, bounds.domain)
    assert not bounds.replaces(k, 0, 1, bounds.domain)


# -- blocks and their shortest paths against all partitionings one by one ----------------------


@st.composite
def layers(draw: st.DrawFn) -> tuple[Graph, dict[frozenset[int], float], set[frozenset[int]]]:
    """A graph of up to five kernels, a price of every set of them, and sets that cannot be a block."""
    count = draw(st.integers(1, 5))
    kernels = tuple(Kernel(name=f"k{n}", op="elementwise", m=2, n=2) for n in range(count))
    pairs = draw(st.sets(st.sampled_from([*itertools.combinations(range(count), 2)] or [(0, 0)])))
    tensors = tuple(Tensor(src=f"k{a}", dst=f"k{b}") for a, b in sorted(pairs) if a != b)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sets = [frozenset(few) for size in range(1, count + 1) for few in itertools.combinations(range(count), size)]
    share = draw(st.sampled_from([0.0, 0.3, 1.0]))
    forbidden = {few for few in sets if len(few) > 1 and rng.random() < share}
    forbidden |= {few for few in sets if not _is_joined(few, forbidden)}
    return Graph(name="g", kernels=kernels, tensors=tensors), {few: rng.random() for few in sets}, forbidden


def _is_joined(few: frozenset[int], forbidden: set[frozenset[int]]) -> bool:
    """Whether pairs that may be a block join all kernels of a set."""
    left, found = set(few), {min(few)}
    while found:
        left -= found
        found = {k for k in left for other in few - left if frozenset((k, other)) not in forbidden}
    return not left


def _least(graph: Graph, price: dict[frozenset[int], float], forbidden: set[frozenset[int]]) -> float:
    """The least sum over all numbers of partitions that go with the order of tensors."""
    count, index = len(graph.kernels), graph.index()
    least = math.inf
    for number_k in itertools.product(range(count), repeat=count):
        parts = [frozenset(k for k in range(count) if number_k[k] == n) for n in sorted(set(number_k))]
        ordered = all(number_k[index[t.src]] <= number_k[index[t.dst]] for t in graph.tensors)
        if ordered and not forbidden & set(parts):
            least = min(least, sum(price[part] for part in parts))
    return least


def _check_fewer_blocks(whole: Component, price_b: Floats) -> None:
    """What is left of blocks holds each partitioning that is cheap enough, or that has a block."""
    price_of = {row.tobytes(): price for row, price in zip(whole.member_bk, price_b, strict=True)}
    parts = [few for part in whole.parts for few in part.member_bk.tolist()]
    assert sorted(parts) == sorted(whole.member_bk.tolist())

    def least(component: Component) -> float:
        return component.least(np.array([price_of[row.tobytes()] for row in component.member_bk]))

    for k in whole.kernels:
        assert math.isclose(min(map(least, whole.with_each(k))), whole.least(price_b), rel_tol=1e-12)
        for each in whole.with_each(k):
            most = least(each) * (1 + 1e-9)
            if math.isfinite(most):
                assert math.isclose(least(whole.within(price_b, most)), whole.least(price_b), rel_tol=1e-12)
                kept = {row.tobytes() for row in whole.within(price_b, most).member_bk}
                best = each.within(np.array([price_of[row.tobytes()] for row in each.member_bk]), most)
                assert kept.issuperset(row.tobytes() for row in best.member_bk)


@given(layers())
def test_all_partitionings_one_by_one(case: tuple[Graph, dict[frozenset[int], float], set[frozenset[int]]]) -> None:
    graph, price, forbidden = case

    def allowed(members: Sequence[int]) -> bool:
        return frozenset(members) not in forbidden

    components = components_of(graph, allowed)
    assert sorted(k for each in components for k in each.kernels) == list(range(len(graph.kernels)))
    found = 0.0
    for each in components:
        sets = [frozenset(np.flatnonzero(row).tolist()) for row in each.member_bk]
        assert not forbidden & set(sets)
        price_b = np.array([price[few] for few in sets])
        found += each.least(price_b)
        _check_fewer_blocks(each, price_b)
    least = _least(graph, price, forbidden)
    assert found <= least * (1 + 1e-12)
    if len(components) in (1, len(graph.kernels)):  # no order between parts is left out
        assert math.isclose(found, least, rel_tol=1e-12)


# -- the least of sums -------------------------------------------------------------------------


@st.composite
def sums(draw: st.DrawFn) -> tuple[list[Factor], list[int]]:
    """Costs of up to three variables each, some of which are infinite."""
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    factors = []
    for _ in range(draw(st.integers(0, 7))):
        count = int(rng.integers(0, min(3, len(sizes)) + 1))
        scope = tuple(sorted(rng.choice(len(sizes), count, replace=False).tolist()))
        cost = rng.integers(0, 20, [sizes[v] for v in scope]).astype(float)
        factors.append(Factor(scope, np.where(rng.random(cost.shape) < 0.1, math.inf, cost)))
    return factors, sizes


@given(sums())
def test_all_values_one_by_one(case: tuple[list[Factor], list[int]]) -> None:
    factors, sizes = case
    every = list(itertools.product(*map(range, sizes)))
    sum_of = {values: sum(float(f.cost[tuple(values[v] for v in f.scope)]) for f in factors) for values in every}
    found = Elimination(factors, sizes)
    assert found.least == min(sum_of.values()) == sum_of[found.values]
    for variable, marginal in enumerate(found.marginals):
        for value in range(sizes[variable]):
            assert marginal[value] == min(total for values, total in sum_of.items() if values[variable] == value)


def test_too_many_together() -> None:
    with pytest.raises(TooLarge, match="8 kernels together"):
        Elimination([Factor(tuple(range(8)), np.zeros([6] * 8))], [6] * 8)
