"""Schemes and fusion of one stage found together, against the best fusion of every sharding by itself."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import World, worlds

from dfopt.bnb import UNLIMITED
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.plan import Plan
from dfopt.documents.system import Chip, Dram, NetworkDim, Sram, System
from dfopt.errors import Infeasible
from dfopt.fusion.blocks import StageTables, restrict, stage_tables
from dfopt.fusion.downsets import Lattice, down_sets, one_by_one
from dfopt.fusion.lattice import ShortestPath
from dfopt.fusion.partitioning import IntraChipLimits
from dfopt.fusion.segments import topological_orders
from dfopt.joint.dual import Resources
from dfopt.joint.layer import LayerSearch
from dfopt.joint.menu import Menu
from dfopt.joint.relaxation import Relaxation
from dfopt.physics.pipeline import resolve
from dfopt.search.candidate import Stage
from dfopt.search.shown import meet
from dfopt.sharding import interchip
from dfopt.terms.chip import chip_of
from dfopt.terms.sharded import shard
from dfopt.terms.sharded_graph import tile_counts

_MOST = 200  # shardings


@dataclass(frozen=True)
class Case:
    """The first stage of a world: its figures by option, limits, and what a byte of gradient is worth."""

    menu: Menu
    tiles: int
    limits: IntraChipLimits
    members: np.ndarray
    per_byte: float

    def tables(self, options: tuple[int, ...]) -> StageTables:
        instance = self.menu.instance
        names = [kernel.name for kernel in instance.graph.kernels]
        sharding = {name: self.menu.tables.scheme_o[o] for name, o in zip(names, options, strict=True)}
        sharded = shard(instance, sharding, self.tiles)
        return stage_tables(restrict(sharded, self.members), chip_of(instance.system, instance.assumptions))

    def lattice(self, tables: StageTables) -> Lattice:
        if not tables.chip.fused:
            return one_by_one(topological_orders(tables)[0])
        lattice = down_sets(tables, self.limits.forward_backward, 5000)
        assert lattice is not None
        return lattice

    def gradients(self, options: tuple[int, ...]) -> float:
        bytes_o = self.menu.by_option("gradient_k")
        return self.per_byte * sum(float(bytes_o[options[k]]) for k in self.members)

    def best_of(self, options: tuple[int, ...]) -> float:
        """Seconds of the best fusion of one sharding, without gradients; infinite if it does not fit."""
        try:
            tables = self.tables(options)
        except Infeasible:
            return float("inf")
        path = ShortestPath(tables, self.limits, self.lattice(tables), np.inf).run()
        return float("inf") if path.partition_k is None else path.objective

    def one_by_one(self) -> float:
        """The best over all shardings; infinite if none fits."""
        kernels = range(self.menu.tables.kernels)
        best, least = np.inf, np.inf
        for options in itertools.product(*(np.flatnonzero(self.menu.tables.kernel_o == k) for k in kernels)):
            least = min(least, self.gradients(options))
            best = min(best, self.best_of(options) + self.gradients(options))
        return float(best - least) if np.isfinite(best) else np.inf


@st.composite
def cases(draw: st.DrawFn) -> Case:
    world: World = draw(worlds(max_pp=1))
    instance, assumptions, graph = world.instance, world.assumptions, world.graph
    menu = Menu(instance, interchip.build(instance))
    shardings = int(np.prod(np.bincount(menu.tables.kernel_o)))
    assume(1 < shardings <= _MOST)
    members = np.array([k for k, kernel in enumerate(graph.kernels) if graph.kind_of(kernel) == 0])
    assume(len(members))
    p_max, exactly = len(members), False
    if assumptions.execution != "kernel_by_kernel":
        p_max = min(draw(st.sampled_from([p_max, p_max, 1, 2, 3])), p_max)
        exactly = draw(st.integers(0, 4)) == 0
    limits = IntraChipLimits(
        p_max=p_max,
        exactly=exactly,
        forward_backward=assumptions.forward_backward if graph.trains else "shared",
    )
    tiles = draw(st.sampled_from(tile_counts(graph, assumptions)))
    return Case(menu, tiles, limits, members, draw(st.sampled_from([0.0, 0.001, 0.01])) if graph.trains else 0.0)


@given(cases(), st.sampled_from([1.0001, 2.0, np.inf]))
def test_it_finds_the_best_of_all_shardings(case: Case, above: float) -> None:
    find(case, above)


def test_a_weight_in_parts_is_alone_where_what_a_block_hands_on_takes_no_sram() -> None:
    """Split by k the product is too large alone and would fit beside its activation: 0.4 s, were that allowed."""
    kernels = (
        Kernel(name="a", op="gemm", m=2, k=2, n=1, role="gate"),
        Kernel(name="b", op="elementwise", m=2, n=1, role="activation"),
    )
    graph = Graph(name="g", word_bytes=2, kernels=kernels, tensors=(Tensor(src="a", dst="b", operand=1),))
    case = of_two(graph, Assumptions(execution="library", weight_tiling="reread"), sram=12.0, link=20.0)
    assert case.one_by_one() == pytest.approx(0.45)
    find(case, np.inf)


def test_a_block_promises_the_layouts_that_a_later_block_may_ask_for() -> None:
    """Two products in two blocks, the first one pays to convert; the best without conversions takes 2.445 s."""
    kernels = (Kernel(name="a", op="gemm", m=2, k=4, n=2), Kernel(name="b", op="gemm", m=4, k=8, n=2))
    graph = Graph(name="g", word_bytes=2, kernels=kernels, tensors=(Tensor(src="a", dst="b", operand=1, bytes=8.0),))
    case = of_two(graph, Assumptions(overlap="none", sequence_parallelism="none"), sram=40.0, link=200.0)
    assert case.one_by_one() == pytest.approx(2.3253333333)
    find(case, np.inf)


def test_better_schemes_for_a_bound_that_is_known_are_taken() -> None:
    """The least was proven together with schemes that do not come to it; then others are shown that do."""
    kernels = (Kernel(name="a", op="gemm", m=2, k=4, n=2), Kernel(name="b", op="gemm", m=4, k=8, n=2))
    graph = Graph(name="g", word_bytes=2, kernels=kernels, tensors=(Tensor(src="a", dst="b", operand=1, bytes=8.0),))
    chosen = Assumptions(overlap="none", sequence_parallelism="none", execution="kernel_by_kernel")
    case = of_two(graph, chosen, sram=400.0, link=200.0)
    every_o = np.ones_like(case.menu.shares_tiles)
    chip = chip_of(case.menu.instance.system, case.menu.instance.assumptions)
    tables = stage_tables(restrict(case.menu.stage(every_o, 1), case.members), chip)
    search = LayerSearch(case.menu, every_o, case.members, tables, case.limits, case.lattice(tables))
    of_kernel = (np.flatnonzero(case.menu.tables.kernel_o == k) for k in range(2))
    values = {}
    for options in itertools.product(*of_kernel):
        schemes = {k: int(np.searchsorted(search.options[k], o)) for k, o in enumerate(options)}
        values[options] = search.exactly(schemes, np.inf)
    worst, best = max(values, key=lambda one: values[one]), min(values, key=lambda one: values[one])
    assert values[worst] > values[best] * 1.01
    stage = Stage(case.members, tables, case.limits, None, None, 0.0, np.inf, None)
    meet(search, Relaxation(values[best], np.array(worst)), stage, np.inf)
    assert search.answer is None
    meet(search, Relaxation(values[best] * (1 - 1e-15), np.array(best)), stage, np.inf)
    assert search.answer is not None and search.answer[0] == values[best]


def test_schemes_that_no_memory_holds_take_for_ever() -> None:
    kernels = (Kernel(name="a", op="gemm", m=2, k=4, n=2), Kernel(name="b", op="gemm", m=4, k=8, n=2))
    graph = Graph(name="g", word_bytes=2, kernels=kernels, tensors=(Tensor(src="a", dst="b", operand=1, bytes=8.0),))
    case = of_two(graph, Assumptions(overlap="none", sequence_parallelism="none"), sram=40.0, link=200.0)
    every_o = np.ones_like(case.menu.shares_tiles)
    chip = chip_of(case.menu.instance.system, case.menu.instance.assumptions)
    tables = stage_tables(restrict(case.menu.stage(every_o, case.tiles), case.members), chip)
    resources = Resources.of_stage(case.menu, every_o, tables, case.limits, case.members)
    assert 0 < resources.dual_within(every_o.astype(float), 2.0).seconds < np.inf
    assert resources.dual_within(every_o.astype(float), 1.5).seconds == np.inf


def of_two(graph: Graph, assumptions: Assumptions, *, sram: float, link: float) -> Case:
    """Two kernels on two chips of a ring, each in any block."""
    chip = Chip(name="c", tiles=4, peak=3e4, sram=Sram(capacity=sram), dram=Dram(bandwidth=40.0))
    ring = NetworkDim(name="x", topology="ring", size=2, link_bandwidth=link)
    chosen = resolve(assumptions, "dataflow", 0.5)
    world = World(graph, System(name="s", chip=chip, network=[ring]), Plan(tp=2, tp_dims=("x",)), chosen)
    limits = IntraChipLimits(p_max=2, exactly=False, forward_backward="shared")
    return Case(Menu(world.instance, interchip.build(world.instance)), 1, limits, np.arange(2), 0.0)


def find(case: Case, above: float) -> None:
    """Search below so many times the best, and compare on the way and at the end."""
    best = case.one_by_one()
    chip = chip_of(case.menu.instance.system, case.menu.instance.assumptions)
    allowed_o = case.menu.undominated(np.ones_like(case.menu.shares_tiles))
    try:
        tables = stage_tables(restrict(case.menu.stage(allowed_o, case.tiles), case.members), chip)
    except Infeasible:  # nothing fits whatever the schemes
        assert np.isinf(best)
        return
    weighed_o = case.per_byte * case.menu.by_option("gradient_k")
    search = LayerSearch(case.menu, allowed_o, case.members, tables, case.limits, case.lattice(tables), weighed_o)
    upper = best * above
    search.root(upper, None, 0.0, UNLIMITED)
    while search.answer is None and search.low < upper * (1 - 1e-12):
        search.trial(upper, UNLIMITED)
        assert search.low <= best * (1 + 1e-9), f"{search.low} of {best}, {len(search.tracked)} groups tracked"
    if tables.sharded.menus:  # compute tiles are shared out at their least: a bound, which branching closes
        return
    if np.isinf(best):
        assert search.answer is None
        return
    assert search.answer is not None
    value, schemes = search.answer
    assert abs(value - best) <= 1e-9 * best
    assert abs(search.exactly(schemes, np.inf) - best) <= 2e-9 * best
