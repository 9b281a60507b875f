"""Types in prices and in the judge: what bf16 throughout leaves as it is, what a kernel computes in, what fits."""

from __future__ import annotations

import dataclasses
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles import mapping_of
from sharded_cases import shard
from strategies import World, shardings, worlds

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.dtypes import Arithmetic, Dtype, Dtypes, Peaks
from dfopt.documents.experts import Experts
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.mapping import KernelMapping, Mapping
from dfopt.documents.plan import Plan
from dfopt.documents.system import Chip, Dram, Sram, System
from dfopt.errors import Infeasible, SystemSpecError
from dfopt.judge import evaluate, types
from dfopt.physics.dtypes import arithmetic_of, rate
from dfopt.search import solve

NAMES: tuple[Arithmetic, ...] = get_args(Arithmetic)


def alike(one: Any, other: Any) -> bool:
    """Whether two trees of figures agree to 1e-12."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, float | np.ndarray):
        return bool(np.allclose(one, other, rtol=1e-12, atol=0))
    return bool(one == other)


@given(data=st.data())
def test_bf16_throughout_is_two_bytes_in_every_figure(data: st.DataObject) -> None:
    world = data.draw(worlds(most=4))
    assume(world.graph.dtypes is None)
    sharding = data.draw(shardings(world.graph, world.plan, world.assumptions))
    same = World(world.graph.model_copy(update={"dtypes": Dtypes()}), world.system, world.plan, world.assumptions)
    names = [kernel.name for kernel in world.graph.kernels]
    level = world.graph.levels()
    mapping = mapping_of(world, sharding, dict.fromkeys(names, 0), {name: level[name] for name in names})
    assume(mapping is not None)
    assert mapping is not None
    scores = [evaluate(mapping, one.graph, one.system, one.assumptions).to_data() for one in (world, same)]
    assert alike(*scores)
    tables = [dataclasses.asdict(shard(one.instance, sharding)) for one in (world, same)]
    assert alike(*tables)


OPERANDS: tuple[Dtype, ...] = ("fp32", "tf32", "bf16", "fp16", "fp8", "fp6", "fp4", "int8", "int4")


def one_chip(peak: Any, dram: float | None = None, **more: Any) -> System:
    memory = Dram(bandwidth=1e9, capacity=dram)
    return System(name="s", chip=Chip(name="toy", tiles=1, peak=peak, sram=Sram(capacity=1e9), dram=memory, **more))


def gemms(dtypes: Dtypes | None, size: int = 64) -> Graph:
    kernels = (
        Kernel(name="up", op="gemm", m=size, k=size, n=size),
        Kernel(name="act", op="elementwise", m=size, n=size),
        Kernel(name="experts", op="gemm", m=size, k=size, n=size, experts=Experts(count=4, chosen=2, touched=3.5)),
    )
    tensors = (Tensor(src="up", dst="act"), Tensor(src="act", dst="experts"))
    return Graph(name="g", kernels=kernels, tensors=tensors, dtypes=dtypes)


@given(
    chips=st.sets(st.sampled_from(NAMES), min_size=1).filter(lambda n: n & {"bf16", "fp16", "tf32", "fp32"}),
    of=st.tuples(*[st.sampled_from(OPERANDS)] * 3),
    operands=st.none() | st.sampled_from(OPERANDS),
    cast=st.none() | st.sampled_from(OPERANDS),
)
def test_prices_and_judge_find_the_same_rate(
    chips: set[Arithmetic], of: tuple[Dtype, Dtype, Dtype], operands: Dtype | None, cast: Dtype | None
) -> None:
    chip = one_chip(Peaks(**{name: float(place + 1) for place, name in enumerate(NAMES) if name in chips})).chip
    held = Dtypes(weights=of[0], experts=of[1], activations=of[2], operands=operands, weight_operands=cast)
    graph = gemms(held)
    wider, refused = [], False
    for kernel in graph.kernels:
        try:
            found = arithmetic_of(graph, kernel, chip)
        except SystemSpecError:
            refused = True
            continue
        assert found is not None and rate(graph, kernel, chip) == types.peak(graph, kernel, chip)
        wider += [kernel.name] if found[0] != found[1] else []
    assert bool(list(types.issues(graph, chip))) == refused
    if not refused:
        said = " ".join(types.notes(graph, chip))
        assert all((name in said) == (name in wider) for name in ("up", "act", "experts"))


@pytest.mark.parametrize(
    ("cast", "wanted"), [("fp8", ["fp8", "fp8", "fp8", "bf16"]), (None, ["bf16", "bf16", "fp8", "bf16"])]
)
def test_weights_are_cast_for_all_three_products(cast: Dtype | None, wanted: list[str]) -> None:
    """Forward, gradient of what comes in, gradient of the weight; logits are made by weights as they are."""
    kernels = (
        Kernel(name="up", op="gemm", m=64, k=64, n=64),
        Kernel(name="up_bwd", op="gemm", m=64, k=64, n=64, **{"pass": "backward"}),
        Kernel(name="up_update", op="weight_update", m=64, k=64, n=64, stage_with="up", **{"pass": "backward"}),
        Kernel(name="logits", op="gemm", m=64, k=64, n=64, output_class="logits"),
    )
    dtypes = Dtypes(weights="bf16", operands="fp8", weight_operands=cast)
    graph = Graph(name="g", kernels=kernels, dtypes=dtypes)
    chip = one_chip(Peaks(bf16=1.0, fp8=2.0)).chip
    assert [(arithmetic_of(graph, kernel, chip) or ("",))[0] for kernel in kernels] == wanted
    assert [types.peak(graph, k, chip) for k in kernels] == [rate(graph, k, chip) for k in kernels]
    assert graph.words.weights == 2


@pytest.mark.parametrize(
    "weights, activations, wanted",
    [
        ("fp8", "fp8", "fp8"),
        ("int4_g128", "bf16", "bf16"),  # weight-only
        ("nvfp4", "fp8", "fp8"),
        ("bf16", "fp16", "tf32"),
        ("int8", "fp8", "bf16"),
        ("int4", "int8", "int8"),
        ("fp4", "fp4", "fp4"),
        ("mxfp6", "nvfp4", "fp6"),
        ("fp32", "bf16", "fp32"),
    ],
)
def test_a_gemm_computes_in_the_narrowest_type_that_holds_both(
    weights: Dtype, activations: Dtype, wanted: Arithmetic
) -> None:
    chip = one_chip(Peaks(**dict.fromkeys(NAMES, 1.0))).chip
    graph = gemms(Dtypes(weights=weights, activations=activations))
    assert arithmetic_of(graph, graph.kernels[0], chip) == (wanted, wanted)
    wide = arithmetic_of(graph, graph.kernels[1], chip)
    assert wide is not None and wide[0] in ("bf16", "fp16", "tf32", "fp32")


def test_activations_that_are_converted_in_front_of_products_stay_as_large() -> None:
    chip = one_chip(Peaks(bf16=1e9, fp8=2e9, fp4=4e9)).chip
    types_ = Dtypes(weights="fp8", experts="nvfp4", ends="bf16", operands="fp8")
    graph = gemms(types_)
    head = Kernel(name="head", op="gemm", m=8, k=64, n=64, output_class="logits")
    update = Kernel(name="update", op="weight_update", m=8, k=64, n=64, pass_="update")
    attention = Kernel(name="scores", op="matmul", m=8, k=64, n=64)
    kernels = (*graph.kernels, head, update, attention)
    found = {kernel.name: arithmetic_of(graph, kernel, chip) for kernel in kernels}
    taken = {name: used[1] for name, used in found.items() if used is not None}
    assert taken == {"up": "fp8", "act": "bf16", "experts": "fp8", "head": "bf16", "update": "fp8", "scores": "bf16"}
    assert all(types.peak(graph, kernel, chip) == rate(graph, kernel, chip) for kernel in kernels)
    assert [graph.output_bytes(k) for k in range(3)] == [64 * 64 * 2] * 3
    assert [graph.words.of_weight(kernel) for kernel in kernels] == [1, 1, 9 / 16, 2, 1, 1]


def placed(graph: Graph) -> Mapping:
    kernels = tuple(KernelMapping(name=one.name, partition=place) for place, one in enumerate(graph.kernels))
    return Mapping(graph="g", system="s", plan=Plan(), kernels=kernels)


PEAKS = {"bf16": 1e9, "fp8": 2e9, "fp32": 1e8}


@pytest.mark.parametrize("model", ["fixed", "cycle"])
def test_compute_time_is_that_of_each_kernels_type(model: str) -> None:
    array = {"lanes": 4, "stages": 4, "frequency": 1e9 / 32}
    system, assumed = one_chip(PEAKS, **array), Assumptions(compute_model=model, compute_utilization=1.0)
    narrow, wide, usual = (
        evaluate(placed(graph), graph, system, assumed)
        for graph in map(gemms, (Dtypes(weights="fp8", activations="fp8"), Dtypes(activations="fp32"), None))
    )
    for slow, fast, factors in ((usual, narrow, (2.0, 1.0, 2.0)), (wide, usual, (10.0, 10.0, 10.0))):
        ratios = [a.compute_s / b.compute_s for a, b in zip(slow.partitions, fast.partitions, strict=True)]
        assert ratios == pytest.approx(factors)
    flop = [part.flop for part in narrow.partitions]
    at_peak = sum(flop) / 1e9 - (flop[0] + flop[2]) / 2e9
    assert narrow.utilization == pytest.approx(at_peak / narrow.step_time_s)
    assert narrow.notes is None and wide.notes is None


def test_a_type_that_the_chip_lacks_is_widened_and_said() -> None:
    types_, system = Dtypes(weights="fp4", activations="fp4"), one_chip(PEAKS)
    result = solve(gemms(types_), system)
    assert result.score.notes == ("toy has no fp4: up, experts compute in fp8",)
    narrow = gemms(Dtypes(weights="fp4", activations="fp8"))
    assert solve(narrow, system).score.notes is None
    assert solve(gemms(types_), one_chip(1e9)).score.notes is None  # one rate, whatever the type


@pytest.mark.parametrize("act", [lambda g, s: solve(g, s), lambda g, s: evaluate(placed(g), g, s)])
def test_no_type_that_holds_the_operands_is_an_error_with_the_path(act: Any) -> None:
    system = one_chip({"bf16": 1e9, "fp8": 2e9})
    with pytest.raises(SystemSpecError, match=r"\$\.chip\.peak: .*'up'.* computes in fp32.*give the rate of fp32"):
        act(gemms(Dtypes(weights="fp32")), system)


def test_weights_of_fp8_hold_half_of_the_memory() -> None:
    small, large = gemms(Dtypes(weights="fp8"), size=128), gemms(None, size=128)
    held = [
        evaluate(placed(graph), graph, one_chip(PEAKS)).stages[0].states["dram"]["weights"] for graph in (small, large)
    ]
    assert held[1] == 2 * held[0] == 2 * 3 * 128 * 128  # one matrix, and four experts that have half of one each
    system = one_chip(PEAKS, dram=held[1] + 4e4)  # and both tensors, of 32768 B each, wait in it
    assert solve(small, system).score.feasible
    with pytest.raises(Infeasible):
        solve(large, system)


def test_optimizer_states_go_by_parameters_and_gradients_by_activations() -> None:
    up = Kernel(name="up", op="gemm", m=64, k=64, n=64)
    update = Kernel(name="update", op="weight_update", m=64, k=64, n=64, pass_="update")
    graph = Graph(name="g", kernels=(up, update), dtypes=Dtypes(weights="mxfp4", activations="bf16"))
    assumed = Assumptions(optimizer_bytes_per_parameter=12.0)
    held = evaluate(placed(graph), graph, one_chip(PEAKS), assumed).stages[0].states["dram"]
    assert (held["weights"], held["gradients"], held["optimizer"]) == (4096 * 17 / 32, 4096 * 2.0, 4096 * 12.0)
