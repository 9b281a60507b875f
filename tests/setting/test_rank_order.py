"""Plans in which axes take neighboring chips in one order, and menus of strategies by name."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfopt.documents.assumptions import profile
from dfopt.documents.axes import AXES
from dfopt.documents.dim_names import split_part_name
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.documents.system import NetworkDim
from dfopt.errors import PlanError
from dfopt.library import load_system
from dfopt.setting.instance import Setting
from dfopt.setting.plans import asked_plans
from dfopt.setting.shares import in_rank_order
from dfopt.workloads import load_graph

SIZES = st.lists(st.sampled_from([2, 3, 4, 6, 8]), min_size=1, max_size=3)


def coordinates(rank: int, dims: list[NetworkDim]) -> dict[str, int]:
    """Where a chip is along each dim, where ranks count from the first dim on."""
    found = {}
    for dim in dims:
        found[dim.name], rank = rank % dim.size, rank // dim.size
    return found


@given(SIZES, st.permutations(["tp", "mp", "pp", "dp"]))
def test_ranks_of_a_group_are_equally_far_apart(sizes: list[int], order: list[str]) -> None:
    dims = [NetworkDim(name=f"d{n}", topology="switch", size=size, link_bandwidth=1e9) for n, size in enumerate(sizes)]
    ways = list(in_rank_order(dims, order))
    assert len({tuple(degree.items()) for degree, _ in ways}) == len(ways)
    for degree, shared in ways:
        stride = 1
        for axis in order:
            # oracle: ranks that differ in this axis alone
            group = [coordinates(stride * place, dims) for place in range(degree[axis])]
            reached = {tuple(one.items()) for one in group}
            steps = [split_part_name(name) for name in shared[axis]]
            moved = [
                {dim.name: 0 for dim in dims} | _sum(at)
                for at in itertools.product(
                    *(
                        [(name, place * step) for place in range(size or sizes[int(name[1:])])]
                        for name, size, step in steps
                    )
                )
            ]
            assert {tuple(one.items()) for one in moved} == reached
            stride *= degree[axis]


def _sum(at: tuple[tuple[str, int], ...]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, place in at:
        found[name] = found.get(name, 0) + place
    return found


def listed(**asked: object) -> list[Plan]:
    graph, system = load_graph("deepseek-v2-lite", phase="decode", batch=32, microbatch=8), load_system("h200-32")
    setting = Setting.resolved(graph, system, profile("ideal"))
    return list(asked_plans(graph, system, Request.of(**asked), setting.assumptions)[0])


def test_plans_in_rank_order_are_some_of_all() -> None:
    few, every = listed(rank_order="tp-mp"), listed()
    degrees = {tuple(getattr(plan, axis) for axis in AXES) for plan in every}
    assert {tuple(getattr(plan, axis) for axis in AXES) for plan in few} <= degrees
    assert 0 < len(few) < len(every)


def test_menus_are_nested() -> None:
    plain, expanded, every = (set(listed(parallelism=name)) for name in ("tp_pp_dp", "expanded", "per_module"))
    assert plain < expanded < every == set(listed())
    assert all(plan.modules is None for plan in plain)
    assert all(plan.modules is None or plan.modules.alike for plan in expanded)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"rank_order": "tp-xx"}, "found 'xx', expected axes such as tp-mp-pp-dp"),
        ({"rank_order": "tp-tp"}, "expected each axis once"),
        ({"parallelism": "tp_pp_dp", "ep": 2}, "parallelism tp_pp_dp: found mp"),
    ],
)
def test_refusals(asked: dict[str, object], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        listed(**asked)


def test_an_order_is_completed() -> None:
    assert Request.of(rank_order="dp-tp").rank_order == "dp-tp-mp-pp"
    assert "rank_order dp-tp-mp-pp" in Request.of(rank_order="dp-tp").fixed
