"""The order in which an axis uses its dims: none that is kept can be beaten, and the order in a file is no matter."""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from strategies import plans_on, share

import dfopt as df
from dfopt.documents.axes import AXES
from dfopt.documents.graph import Communication, Graph, Kernel, Tensor
from dfopt.documents.hybrid import hybrid_of
from dfopt.documents.system import Chip, Dram, NetworkDim, Sram, System
from dfopt.errors import Infeasible, PlanError
from dfopt.physics.collectives import Collective
from dfopt.physics.copies import exchanged
from dfopt.physics.network import communication_seconds
from dfopt.setting.instance import Instance, Setting
from dfopt.setting.orders import Orders
from dfopt.terms.step.hops import sent_s

DIM = st.builds(
    lambda topology, size, bandwidth, latency: {
        "topology": topology, "size": size, "link_bandwidth": bandwidth * 1e9, "latency": latency * 1e-6,
    },
    st.sampled_from(["ring", "line", "switch", "fully_connected"]), st.sampled_from([2, 3, 4]),
    st.sampled_from([1, 5, 50]), st.sampled_from([0, 1, 20]),
)  # fmt: skip


def machine(dims: list[dict[str, Any]], **chip: Any) -> System:
    network = tuple(NetworkDim(name=name, **dim) for name, dim in zip("xyzw", dims, strict=False))
    made = Chip(name="c", tiles=4, peak=1e12, sram=Sram(capacity=1e9), dram=Dram(bandwidth=1e11), **chip)
    return System(name="s", chip=made, network=network)


def layers(*own: Communication, **changes: Any) -> Graph:
    kernels = (
        Kernel(name="a", op="gemm", m=240, k=240, n=480, communications=own),
        Kernel(name="b", op="gemm", m=240, k=240, n=480),
    )
    tensors = (Tensor(src="a", dst="b"),)
    carried = (Tensor(src="b", dst="a"),)
    return Graph(name="g", repeat=24, batch=96, kernels=kernels, tensors=tensors, carried=carried, **changes)


@given(
    st.lists(DIM, min_size=2, max_size=3), st.sampled_from(["exact", "two_stage", "dfmodel"]),
    st.sampled_from(["tp", "tp_rest", "dp", "all"]), st.sampled_from([kind.value for kind in Collective]),
)  # fmt: skip
def test_some_order_that_is_kept_is_as_good_as_any(
    dims: list[dict[str, Any]], model: str, over: str, kind: str
) -> None:
    """In all collectives at once, whatever the bytes."""
    system, assumptions = machine(dims), df.Assumptions(collective_model=model)
    graph = layers(Communication(kind=kind, bytes=8, over=over))
    names = tuple(dim.name for dim in system.network)
    shared = {"tp": names[:-1], "pp": (), "dp": names[-1:]} if over == "all" else {over[:2]: names}
    shared = dict.fromkeys(AXES, ()) | shared
    kept = Orders(graph, system, assumptions).of(shared)

    def prices(order: dict[str, tuple[str, ...]]) -> list[float]:
        plan = df.Plan(
            **{axis: math.prod(system.dim(name).size for name in of) for axis, of in order.items()},
            **{f"{axis}_dims": of for axis, of in order.items()},
        )
        group, _ = plan.group(over)
        chips = math.prod(system.dim(name).size for name in group)
        asked = [(Collective(kind), group, chips), (Collective.ALL_REDUCE, plan.shard_dims, 1)]
        asked += [(Collective.ALL_GATHER, plan.shard_dims, 1), (Collective.ALL_TO_ALL, plan.shard_dims, 1)]
        return [communication_seconds(k, v * c, d, system, assumptions) for k, d, c in asked for v in (1.0, 1e9)]

    found = [prices(order) for order in kept]
    for order in itertools.product(*(itertools.permutations(of) for of in shared.values())):
        price = prices(dict(zip(shared, order, strict=True)))
        assert any(all(a <= b * (1 + 1e-9) for a, b in zip(one, price, strict=True)) for one in found)


MEASURED = st.dictionaries(
    st.sampled_from(["all_reduce", "all_gather", "reduce_scatter"]),
    st.builds(
        lambda scale, offset, latency: {"scale": scale, "offset": offset, "latency": latency * 1e-6},
        st.sampled_from([0.5, 1.0, 2.0]), st.sampled_from([-1.0, 0.0]), st.sampled_from([0, 1, 20]),
    ),
    max_size=2,
)  # fmt: skip
OWN = st.builds(
    lambda dim, adds, factors: (
        {**dim, "factors": factors, "in_network_reduction": adds and dim["topology"] == "switch"}
    ),
    DIM, st.booleans(), MEASURED,
)  # fmt: skip


@given(st.lists(OWN, min_size=2, max_size=3), st.sampled_from([0, 1, 3]), st.sampled_from([None, 2, 3, 4]))
def test_some_order_of_copies_that_is_kept_is_as_good_as_any(
    dims: list[dict[str, Any]], level: int, replicas: int | None
) -> None:
    """In all that copies exchange, whatever the bytes; where they lie in groups, among orders that allow as many."""
    system, assumptions = machine(dims), df.Assumptions()
    graph = df.load_graph("gpt2-small", mode="training", batch=24)
    names = tuple(dim.name for dim in system.network)
    asked = {"replicas": (replicas,)} if replicas and level else {}
    kept = Orders(graph, system, assumptions, **asked).of(dict.fromkeys(AXES, ()) | {"dp": names})

    def prices(order: tuple[str, ...]) -> list[float]:
        copies = math.prod(system.dim(name).size for name in order)
        hybrid = hybrid_of(order, replicas, lambda name: system.dim(name).size) if replicas and level else None
        if replicas and level and hybrid is None:
            return [math.inf]
        plan = df.Plan(dp=copies, dp_dims=order, zero=level or None, microbatches=2, hybrid=hybrid)
        price = partial(communication_seconds, system=system, assumptions=assumptions)
        return [exchanged(plan, order, *some, price) for some in itertools.product((0.0, 1.0, 1e9), repeat=2)]

    found = [prices(one["dp"]) for one in kept]
    for order in itertools.permutations(names):
        price = prices(order)
        if price != [math.inf]:
            assert any(all(a <= b * (1 + 1e-9) for a, b in zip(one, price, strict=False)) for one in found)


@given(st.lists(OWN, min_size=2, max_size=3), st.sampled_from(["calculon", "scattered"]))
def test_some_order_that_is_kept_is_as_good_as_any_for_messages_in_parts(dims: list[dict[str, Any]], way: Any) -> None:
    """Calculon subtracts an all-reduce, so that an order in which it takes longer may be the better one."""
    system, assumptions = machine(dims), df.Assumptions(point_to_point_parts=way)
    graph, names = layers(), tuple(dim.name for dim in system.network)
    kept = Orders(graph, system, assumptions).of(dict.fromkeys(AXES, ()) | {"tp": names})
    sizes = (1.0, 1e6, 1e9)
    rounding = [1e-21 * size for size in sizes]  # of a difference of two times, which may be none at all

    def prices(order: tuple[str, ...]) -> list[float]:
        chips = math.prod(dim.size for dim in system.network)
        plan = df.Plan(tp=chips, tp_dims=order, pp=2)
        instance = Instance(Setting(graph, system, assumptions), plan)
        return [sent_s(instance, size, 1.0) for size in sizes]

    found = [prices(one["tp"]) for one in kept]
    for order in itertools.permutations(names):
        rows = [list(zip(one, prices(order), rounding, strict=True)) for one in found]
        assert any(all(a <= b * (1 + 1e-9) + slack for a, b, slack in row) for row in rows)


@share(0.12)
@given(st.lists(DIM, min_size=2, max_size=3), st.sampled_from([{}, {"tp": 4}, {"dp": 4}, {"pp": 4}]), st.data())
def test_the_order_of_dims_in_a_file_is_no_matter(
    dims: list[dict[str, Any]], asked: dict[str, int], data: st.DataObject
) -> None:
    """The same answer, and the same plans but for equally good orders."""
    over = data.draw(st.sampled_from(["tp_first", "all"]))
    graph, system = layers(Communication(kind="all_gather", bytes=1e4, over=over)), machine(dims)
    turned = system.model_copy(update={"network": tuple(data.draw(st.permutations(system.network)))})
    found = []
    for one in (system, turned):
        try:
            legal, _ = plans_on(graph, one, parts=True, **asked)
            result = df.optimize(graph, one, **asked)
        except (PlanError, Infeasible):
            found.append((0, 0.0))
            continue
        shares = {frozenset((axis.name, frozenset(dims)) for axis, _, dims in plan.axes) for plan in legal}
        found.append((len(shares), result.step_time_s))
    assert found[0][0] == found[1][0]
    assert math.isclose(found[0][1], found[1][1], rel_tol=1e-9)


def test_a_narrow_dim_is_used_last_wherever_it_stands_in_the_file() -> None:
    """Tensor parallelism over all chips: the wide dim reduces first, so the narrow one has an eighth of the bytes."""
    wide, narrow = {"topology": "switch", "size": 8, "link_bandwidth": 4e11}, {
        "topology": "switch", "size": 4, "link_bandwidth": 1e9,
    }  # fmt: skip
    graph = layers()
    found = [df.optimize(graph, machine(dims), tp=32) for dims in ([wide, narrow], [narrow, wide])]
    assert [result.plan.label for result in found] == ["TP32(x*y) PP1 DP1", "TP32(y*x) PP1 DP1"]
    assert found[0].step_time_s == found[1].step_time_s
    pinned = df.optimize(graph, machine([narrow, wide]), tp=32, tp_dims=("x", "y"))
    assert pinned.plan.label == "TP32(x*y) PP1 DP1"
    assert pinned.step_time_s > 1.2 * found[0].step_time_s
