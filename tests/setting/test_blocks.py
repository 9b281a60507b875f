"""Where the chips of a parallelism lie: rings around blocks of two dims, and every nesting inside packages.

The oracles here draw grids and walk them themselves; they share nothing with `dfopt.judge.grid` or `dfopt.physics`.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import plans_on, share

import dfopt as df
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.request import Request
from dfopt.documents.system import Chip, Dram, NetworkDim, Sram, System
from dfopt.errors import PlanError
from dfopt.judge import grid
from dfopt.physics.collectives import Collective
from dfopt.physics.network import communication_seconds
from dfopt.setting.instance import Setting
from dfopt.setting.plans import asked_plans
from dfopt.terms.bounds import PlanBounds

Chips = tuple[int, int]


def dim(name: str, size: int, topology: str = "line", **more: Any) -> NetworkDim:
    return NetworkDim(name=name, size=size, topology=topology, **{"link_bandwidth": 25e9, "latency": 1e-6} | more)


def machine(*network: NetworkDim) -> System:
    chip = Chip(name="c", tiles=4, peak=1e14, sram=Sram(capacity=1e8), dram=Dram(bandwidth=1e12))
    return System(name="s", chip=chip, network=network)


def layers(**changes: Any) -> Graph:
    kernels = tuple(Kernel(name=name, op="gemm", m=m, k=k, n=64) for name, m, k in (("a", 512, 256), ("b", 256, 512)))
    made = {"repeat": 8, "batch": 64, "kernels": kernels, "tensors": (Tensor(src="a", dst="b"),)}
    return Graph(**{"name": "g", "carried": (Tensor(src="b", dst="a"),)} | made | changes)


# ------------------------------------------------------------------- the ring, and what it loads


@pytest.mark.parametrize(("wide", "high"), [*itertools.product((2, 3, 4, 5), (2, 3, 4))])
def test_there_is_a_ring_around_a_block_where_its_chips_are_even_in_number(wide: int, high: int) -> None:
    """Every way through a grid is tried, by single steps."""
    every = set(itertools.product(range(wide), range(high)))

    def closes(at: Chips, left: frozenset[Chips]) -> bool:
        near = [(at[0] + dx, at[1] + dy) for dx, dy in ((1, 0), (-1, 0), (0, 1), (0, -1))]
        if not left:
            return (0, 0) in near
        return any(closes(one, left - {one}) for one in near if one in left)

    exists = closes((0, 0), frozenset(every - {(0, 0)}))
    assert exists == (wide * high % 2 == 0)
    x, y = dim("x", wide), dim("y", high)
    if not exists:
        with pytest.raises(ValueError, match="even number"):
            x.around(y)
        return
    ring = grid.cycle(wide, high)
    assert set(ring) == every and len(ring) == len(every) == x.around(y).size
    for a, b in zip(ring, [*ring[1:], ring[0]], strict=True):
        assert abs(a[0] - b[0]) + abs(a[1] - b[1]) == 1


@st.composite
def blocks(draw: st.DrawFn) -> tuple[tuple[NetworkDim, int, int], tuple[NetworkDim, int, int]]:
    """Two dims, with the chips that a block takes of each and how far they are apart."""
    both = []
    for name in "xy":
        size, stride, rest = draw(st.integers(2, 5)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
        figures = {"link_bandwidth": draw(st.floats(1e9, 1e11)), "latency": draw(st.floats(0, 1e-5))}
        both.append((dim(name, size * stride * rest, draw(st.sampled_from(["line", "ring"])), **figures), size, stride))
    if both[0][1] * both[1][1] % 2:
        whole, size, stride = both[0]
        both[0] = whole.model_copy(update={"size": 2 * whole.size // math.gcd(2, whole.size)}), size, stride
        both[0] = both[0][0].model_copy(update={"size": whole.size // size * (size + 1)}), size + 1, stride
    return both[0], both[1]


def steps(start: int, end: int, chips: int, ring: bool) -> list[list[frozenset[int]]]:
    """The shortest ways from one chip to another, link by link."""
    forth = [frozenset({at % chips, (at + 1) % chips}) for at in range(start, start + (end - start) % chips)]
    back = [frozenset({at % chips, (at + 1) % chips}) for at in range(end, end + (start - end) % chips)]
    ways = [forth, back] if ring and chips > 2 else [forth if end > start else back]
    return [way for way in ways if len(way) == min(map(len, ways))]


@given(blocks())
def test_a_block_has_the_share_of_its_most_loaded_links(
    drawn: tuple[tuple[NetworkDim, int, int], tuple[NetworkDim, int, int]],
) -> None:
    """All groups of the two dims at once, each around its own block; the judge's walk and the figures of the block."""
    (x, wide, of_x), (y, high, of_y) = drawn
    ring = grid.cycle(wide, high)
    load: tuple[Counter[Any], Counter[Any]] = Counter(), Counter()
    hops = [0, 0]
    seen = Counter[Chips]()
    for at_x, at_y in itertools.product(range(x.size), range(y.size)):
        if at_x // of_x % wide or at_y // of_y % high:
            continue
        seats = [(at_x + i * of_x, at_y + j * of_y) for i, j in ring]
        seen.update(seats)
        for a, b in itertools.pairwise([*seats, seats[0]]):
            way = 0 if a[0] != b[0] else 1
            of = (x, y)[way]
            taken = steps(a[way], b[way], of.size, of.topology == "ring")
            hops[way] = max(hops[way], len(taken[0]))
            for links in taken:
                load[way].update({(a[1 - way], link): Fraction(1, len(taken)) for link in links})
    assert set(seen.values()) == {1} and len(seen) == x.size * y.size
    made = x.part(wide, of_x).around(y.part(high, of_y))
    worst = [max(each.values()) for each in load]
    assert made.topology == "ring" and made.size == wide * high
    assert made.link_bandwidth == pytest.approx(
        min(one.link_bandwidth / float(most) for one, most in zip((x, y), worst, strict=True)), rel=1e-12
    )
    assert made.latency == pytest.approx(max(x.latency * hops[0], y.latency * hops[1]), rel=1e-12)
    sides = [
        grid.Side(d.size, d.topology == "ring" and d.size > 2, n, s)
        for d, n, s in ((x, wide, of_x), (y, high, of_y))
    ]  # fmt: skip
    assert grid.loads(*sides) == tuple((float(most), hop) for most, hop in zip(worst, hops, strict=True))


def test_blocks_keep_what_was_measured_of_links_and_packets() -> None:
    measured = {"factors": {"all_gather": {"bandwidth_share": 0.8, "latency": 1e-5}}, "packet_payload": 256}
    x, y = dim("x", 4, **measured), dim("y", 4, packet_payload=256, factors={"all_gather": {"bandwidth_share": 0.5}})
    ring = x.around(y)
    assert ring.factors["all_gather"].bandwidth_share == 0.5 and ring.factors["all_gather"].latency is None
    assert ring.packet_payload == 256
    with pytest.raises(ValueError, match="other packets"):
        x.around(dim("y", 4))


# ------------------------------------------------------------------- plans


def test_packages_are_placed_and_other_networks_only_if_asked() -> None:
    graph = layers()
    for tier, told, more in (
        ("package", "parts", True), ("package", "whole", False), ("node", "parts", False), ("node", "placed", True),
    ):  # fmt: skip
        system = machine(dim("x", 4, tier=tier), dim("y", 2, tier=tier, link_bandwidth=50e9))
        labels = {plan.label for plan in asked_plans(graph, system, Request(), df.Assumptions(network_dims=told))[0]}
        assert ("TP8(x+y) PP1 DP1" in labels) == more
        assert ("TP4(x[2]+y) PP1 DP2(x[2@2])" in labels) == more
        assert ("TP2(x[2@2]) PP2(y) DP2(x[2])" in labels) == more  # the copies are the neighbours


def test_a_block_asked_for_is_the_only_one_wherever_it_is() -> None:
    system = machine(dim("x", 4), dim("y", 4, "ring"), dim("z", 2, "switch"))
    found, _ = plans_on(layers(), system, tp_dims=("x[2]+y",), parts=True)
    assert found and all(plan.tp_dims == ("x[2]+y",) and plan.tp == 8 for plan in found)


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ("x+z", "two parts of rings or lines"),
        ("x+w", "even number"),
        ("x[1]+y", "two chips or more"),
        ("x+x", "parts of two network dims"),
        ("x+y+w", "parts of two network dims"),
        ("x+nope", "no network dim 'nope'"),
        ("x+y[", "expected a network dim such as"),
    ],
)
def test_blocks_that_are_none_are_refused(block: str, expected: str) -> None:
    system = machine(dim("x", 3), dim("y", 4), dim("w", 3), dim("z", 2, "switch"))
    with pytest.raises(PlanError, match=expected):
        plans_on(layers(), system, tp_dims=(block,))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"tp_dims": ("x+z",), "dp_dims": ("y",)}, "expected rings or lines"),
        ({"tp_dims": ("x+z+y",), "dp_dims": ()}, "expected parts of two dims"),
        ({"tp_dims": ("x[2]+x[2@2]",), "dp_dims": ("z", "y")}, "expected parts of two dims"),
        ({"tp_dims": ("x[2]+y[2]",), "dp_dims": ("x[2@2]", "y", "z")}, "already carries tp|do not make up dim"),
        ({"tp_dims": ("x+y",), "dp_dims": ("y", "z")}, "already carries tp"),
        ({"tp_dims": ("x[1]+y",), "dp_dims": ("x", "z")}, "both more than one|already carries"),
    ],
)
def test_the_judge_refuses_blocks_that_are_none(changes: dict[str, Any], expected: str) -> None:
    graph, system = layers(), machine(dim("x", 4), dim("y", 2), dim("z", 2, "switch"))
    result = df.optimize(graph, system, tp_dims=("x+y",), dp_dims=("z",))
    plan = df.Plan(**{**result.plan.to_data(), **changes})
    forged = result.mapping.model_copy(update={"plan": plan})
    with pytest.raises(PlanError, match=expected):
        df.evaluate(forged, graph, system)


# ------------------------------------------------------------------- searched, judged, bounded, checked

SMALL = st.lists(
    st.builds(
        lambda topology, size, bandwidth, latency: {
            "topology": topology, "size": size, "link_bandwidth": bandwidth, "latency": latency, "tier": "package",
        },
        st.sampled_from(["line", "ring"]), st.sampled_from([2, 3, 4]), st.sampled_from([1e9, 2e10]),
        st.sampled_from([0.0, 1e-6]),
    ),
    min_size=2, max_size=2,
)  # fmt: skip


@share(0.05)
@given(SMALL)
def test_the_best_placement_is_none_the_worse_for_any_that_is_asked_for(network: list[dict[str, Any]]) -> None:
    """Bounds hold, the judge agrees, and no plan of them all is faster: whatever lies where."""
    system = machine(*(dim(name, **figures) for name, figures in zip("xy", network, strict=True)))
    graph = layers(batch=system.chips * 2)
    best = df.optimize(graph, system, gap=0)
    setting = Setting(graph, system, best.assumptions)
    legal, _ = asked_plans(graph, system, Request(), best.assumptions)
    assert {record.plan for record in best.plans} >= set(legal)
    bounds = PlanBounds(setting)
    for plan in legal[:: max(1, len(legal) // 2)]:
        one = df.optimize(graph, system, gap=0, **plan.on_axes)
        assert best.step_time_s <= one.step_time_s * (1 + 1e-9)
        assert bounds.seconds(setting.under(one.plan)) <= one.step_time_s * (1 + 1e-9)


def test_a_ring_around_a_package_is_twice_as_fast_as_its_lines() -> None:
    """All of 16 chips gather 15/16 of the bytes: over one link each way, not over one after the other."""
    system = machine(dim("x", 4, tier="package", latency=0.0), dim("y", 4, tier="package", latency=0.0))
    apart, around = (
        communication_seconds(Collective.ALL_GATHER, 1e9, names, system, df.Assumptions())
        for names in (("x", "y"), ("x+y",))
    )
    assert apart == pytest.approx(15 / 16 * 1e9 / 25e9) and around == pytest.approx(apart / 2)
