"""What pipeline stages send to each other: whole or in parts that are gathered, hidden or waited for."""

from __future__ import annotations

import pytest

import dfopt as df
from dfopt.documents.plan import Plan
from dfopt.documents.system import Chip, Dram, NetworkDim, Sram, System
from dfopt.frontends.megatron.shardings import megatron_shardings
from dfopt.judge import evaluate
from dfopt.physics.pipeline import resolve
from dfopt.search.verify import verify
from dfopt.setting.instance import Setting
from dfopt.terms.step.hops import sent_s
from dfopt.workloads import WORKLOADS

SIZES = {
    "hidden": 64, "heads": 8, "head_dim": 8, "ffn": 192, "vocab": 1000, "seq": 64, "layers": 4,
    "mode": "training", "ends": False,
}  # fmt: skip
BY_KERNEL = df.Assumptions(execution="kernel_by_kernel")
STREAM = 2.0 * 64 * 64  # bytes of what a layer hands on


def machine(inside: float) -> System:
    """Two nodes of four chips: links of so many B/s inside, of 1 GB/s between them."""
    chip = Chip(
        name="c", tiles=4, peak=1e12, sram=Sram(capacity=1e7), dram=Dram(bandwidth=1e11), execution="kernel_by_kernel"
    )
    node = NetworkDim(name="node", topology="fully_connected", size=4, link_bandwidth=inside)
    cluster = NetworkDim(name="cluster", topology="ring", size=2, link_bandwidth=1e9)
    return System(name="s", chip=chip, network=(node, cluster))


def solved(inside: float = 1e10, by_tokens: bool = False, **assumed: object) -> df.Result:
    graph = WORKLOADS["decoder"](**SIZES, batch=8)
    assumed = {"sequence_parallelism": "allow" if by_tokens else "none"} | assumed
    pins = megatron_shardings(graph, 4, by_tokens)
    asked = {"tp": 4, "pp": 2, "tp_dims": ("node",), "pp_dims": ("cluster",), "interleave": 1, "sensitivity": False}
    found = df.optimize(graph, machine(inside), assumptions=BY_KERNEL.with_(**assumed), pin_sharding=pins, **asked)
    assert found.status == "optimal" and verify(found).ok
    assert sum(found.score.breakdown.parts.values()) == pytest.approx(found.step_time_s, rel=1e-9)
    return found


def test_parts_are_sent_where_gathering_them_is_faster() -> None:
    """By hand: two tensors a microbatch, each 8192 B over the slow link, or a quarter of it and a fast all-gather."""
    whole, parts = solved(), solved(point_to_point_parts="scattered")
    assert whole.score.stages[0].point_to_point_s == pytest.approx(2 * STREAM / 1e9, rel=1e-9)
    gathered = 0.25 * STREAM / 1e9 + 0.25 * STREAM / 1e10  # of three neighbours a quarter each, all at once
    assert parts.score.stages[0].point_to_point_s == pytest.approx(2 * gathered, rel=1e-9)
    assert parts.value < whole.value
    slow = solved(inside=2e7, point_to_point_parts="scattered")  # gathering takes longer than sending all of it
    assert slow.score.stages[0].point_to_point_s == pytest.approx(2 * STREAM / 1e9, rel=1e-9)


def test_what_lies_in_parts_is_sent_as_it_lies() -> None:
    by_tokens = [solved(by_tokens=True, point_to_point_parts=way) for way in (None, "scattered")]
    assert by_tokens[0].value == by_tokens[1].value
    assert by_tokens[0].score.stages[0].point_to_point_s == pytest.approx(2 * 0.25 * STREAM / 1e9, rel=1e-9)


def test_a_stage_works_while_it_sends_where_that_is_said() -> None:
    exposed, hidden = solved(point_to_point_overlap="exposed"), solved(point_to_point_overlap="hidden")
    assert solved().value == exposed.value > hidden.value  # chips that run kernel by kernel hide nothing by themselves
    stage = exposed.score.stages[0]
    rules = exposed.assumptions.with_(point_to_point_overlap="hidden")
    other = evaluate(exposed.mapping, exposed.graph, exposed.system, rules)
    work = stage.layers * stage.layer_time_s
    assert stage.time_s == pytest.approx(work + stage.point_to_point_s, rel=1e-12)
    assert other.stages[0].time_s == pytest.approx(max(work, stage.point_to_point_s), rel=1e-12)
    perfect = {"overlap": "perfect", "execution": "kernel_by_kernel"}
    assert solved(**perfect).value < solved(**perfect, point_to_point_overlap="exposed").value


def test_the_least_over_schemes_knows_that_parts_may_be_gathered() -> None:
    """Of an uneven split the largest share is more than a chip's part: all of it, scattered, may be sent sooner."""
    graph = WORKLOADS["decoder"](**SIZES, batch=8)
    rules = resolve(BY_KERNEL.with_(point_to_point_parts="scattered"), "kernel_by_kernel", 0.9)
    plan = Plan(tp=4, pp=2, tp_dims=("node",), pp_dims=("cluster",))
    instance = Setting(graph, machine(1e12), rules).under(plan)
    split, whole = sent_s(instance, 1e6, 0.4), sent_s(instance, 1e6, 1.0)
    assert whole < split
    assert sent_s(instance, 1e6, 0.4, least=True) == whole
    assert sent_s(instance, 1e6, 0.25, least=True) == sent_s(instance, 1e6, 0.25) < whole
