"""A second axis of chips in training: by hand, against brute force, and beside data parallelism."""

from __future__ import annotations

import itertools
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from proven import check_proven
from small_systems import rings, small_system
from strategies import assumptions, share
from test_modules import drawn_system, legal_plans, models, rounded

import dfopt as df
from dfopt.documents.experts import Experts
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.modules import MENU, Modules
from dfopt.documents.plan import Plan
from dfopt.documents.sections import repeated
from dfopt.documents.system import NetworkDim, System
from dfopt.errors import PlanError
from dfopt.judge.members import issues, seen_by_a_chip
from dfopt.physics import ops
from dfopt.setting.members import member_graph, obstacle
from dfopt.workloads.backward import backward_of
from dfopt.workloads.recompute import recomputed

SIZES = ("outer", "samples", "m", "k", "n", "density", "experts")


@st.composite
def steps(draw: st.DrawFn, most: int) -> Graph:
    """Training steps of models, in some of which kernels run again: nothing is kept for the next evaluation."""
    forward = draw(models(most, serves=False))
    kernels = tuple(kernel.model_copy(update={"states": None}) for kernel in forward.kernels)
    whole = backward_of(forward.model_copy(update={"kernels": kernels}))
    again = draw(st.sets(st.sampled_from([kernel.name for kernel in kernels]))) if draw(st.booleans()) else set()
    return recomputed(whole, again)


def machine(*sizes: int, **more: Any) -> System:
    system = small_system(*rings(*sizes, rate=1e2), tiles=2, peak=1e4, sram=1e6, bandwidth=1e3, capacity=1e6)
    return system.model_copy(update=more)


def every(graph: Graph) -> list[Modules]:
    """All schemes of its modules, possible or not."""
    names = [name for name in MENU if any(kernel.module == name for kernel in graph.kernels)]
    schemes = itertools.product(("n", "context", "none"), *((*MENU[name], "none") for name in names))
    return [Modules(**dict(zip(("stream", *names), one, strict=True))) for one in schemes]


@share(1)
@given(steps(most=9), st.sampled_from([(2, 1), (4, 2), (3, 3), (6, 2), (6, 3), (4, 4)]))
def test_optimiser_and_judge_share_training_steps_out_alike(graph: Graph, axis: tuple[int, int]) -> None:
    """Both write down the same graph of one chip, or neither does; gradients are those of the weights it has."""
    members, first = axis
    dims = [(name, size) for name, size in (("x", first), ("y", members // first)) if size > 1]
    system = machine(*(size for _, size in dims))
    for modules in every(graph):
        plan = Plan(mp=members, mp_dims=("x", "y")[: len(dims)], modules=modules)
        possible = not obstacle(graph, modules, members)
        assert possible == (not list(issues(plan, graph, system))), modules.label
        if not possible:
            continue
        mine = member_graph(graph, modules, members, dims[0][1])
        assert rounded(mine) == rounded(seen_by_a_chip(graph, plan, system))
        assert Graph.model_validate(mine.to_data()) == mine
        held = {kernel.name: ops.weight_elements(kernel) for kernel in mine.kernels if kernel.pass_ == "forward"}
        for whole, part in zip(graph.kernels, mine.kernels, strict=True):
            assert ops.flop(part) <= ops.flop(whole) <= members * ops.flop(part) * (1 + 1e-9)
            if part.op == "weight_update":
                assert ops.gradient_elements(part) == pytest.approx(held[str(part.stage_with)])
                tokens = modules.of(part.module) in ("n", "context")
                assert part.copied == (1.0 if tokens else None)
            elif part.op == "gemm":
                assert ops.weight_elements(part) == pytest.approx(held[part.stage_with or part.name])
            if part.pass_ == "recompute":  # as the first time
                first = mine.kernels[mine.index()[str(part.stage_with)]]
                assert [getattr(part, size) for size in SIZES] == [getattr(first, size) for size in SIZES]


@share(0.25, nightly=0.5)
@given(steps(most=2), assumptions(sharding_objective="joint", tile_rows=1), st.data())
def test_no_training_step_is_better_than_what_is_found(
    graph: Graph, chosen: df.Assumptions, data: st.DataObject
) -> None:
    check_no_step_better(graph, chosen, data)


@pytest.mark.nightly
@share(0.25)
@given(
    steps(most=2),
    assumptions(
        execution="kernel_by_kernel", overlap=["none", "compute_memory"], gradients="exact", empty_partitions="allow",
        gradient_overlap=["calculon", "calculon_or_none"], point_to_point_overlap="exposed",
        sharding_objective="joint", tile_rows=1,
    ),
    st.data(),
)  # fmt: skip
def test_no_training_step_is_better_where_calculon_hides_nightly(
    graph: Graph, chosen: df.Assumptions, data: st.DataObject
) -> None:
    """Chips of the second axis add up gradients in plans of one copy, too: there nothing is hidden."""
    assume(graph.folded)
    check_no_step_better(graph, chosen, data)


def check_no_step_better(graph: Graph, chosen: df.Assumptions, data: st.DataObject) -> None:
    """Over plans with both axes and copies, schemes of modules, shardings and fusions."""
    system, degrees = drawn_system(graph, chosen, data)
    small = len(graph.kernels) <= (4 if chosen.gradient_overlap else 6)  # where gradients hide each cut is judged
    assume(len(graph.kernels) <= 8 and degrees)
    asked: dict[str, Any] = {"mp": data.draw(st.sampled_from(degrees)), "pp": 1}
    if not small or data.draw(st.booleans()):
        asked["tp"] = 1
    if chosen.execution != "kernel_by_kernel" and (chosen.empty_partitions == "forbid" or not small):
        asked["p_max"] = 2
    asked["zero"] = data.draw(st.sampled_from([None, None, (0, 1), (2, 3)]))
    legal_plans(graph, system, chosen, asked)
    check_proven(graph, system, chosen, asked)


# -- by hand ------------------------------------------------------------------------------------
def mlp(samples: int = 4) -> Graph:
    """Two products of eight tokens for every sample, and their gradients."""
    up = Kernel(name="up", op="gemm", m=16, k=4, n=8 * samples, module="dense")
    down = Kernel(name="down", op="gemm", m=4, k=16, n=8 * samples, module="dense")
    start = Graph(name="mlp", microbatch=samples, batch=8, kernels=(up, down), tensors=(Tensor(src="up", dst="down"),))
    return backward_of(start)


def mixture(always: int | None = None) -> Graph:
    """A norm, and experts of which every one of eight tokens has two; as an option one that all have."""
    experts = Experts(count=4 + (always or 0), chosen=2 + (always or 0), touched=4.0 + (always or 0), always=always)
    inside = 8 * experts.chosen
    up = Kernel(name="up", op="gemm", m=inside, k=4, n=8, experts=experts, module="experts")
    down = Kernel(name="down", op="gemm", m=4, k=inside, n=8, experts=experts, module="experts")
    first, norm, add = (Kernel(name=name, op="elementwise", m=4, n=8) for name in ("first", "norm", "add"))
    mix = Kernel(name="mix", op="gemm", m=4, k=4, n=8, module="mixer")
    names = ("first", "mix", "norm", "up", "down", "add")
    tensors = tuple(Tensor(src=src, dst=dst) for src, dst in pairwise(names))
    kernels = (first, mix, norm, up, down, add)
    return backward_of(Graph(name="g", microbatch=8, batch=64, kernels=kernels, tensors=tensors))


def talks(graph: Graph) -> dict[str, list[tuple[str, float]]]:
    listed = {kernel.name: [(one.kind, one.bytes) for one in kernel.communications] for kernel in graph.kernels}
    return {name: found for name, found in listed.items() if found}


def test_gradients_of_an_mlp_by_hand() -> None:
    """Split by features nothing but sums of activations goes around; split by sequences nothing but gradients."""
    whole = mlp()
    sizes = {kernel.name: (kernel.m, kernel.k, kernel.n) for kernel in whole.kernels}
    assert sizes["down_bwd"] == (16, 4, 32) and sizes["up_bwd_weight_update"] == (4, 32, 16)
    split = member_graph(whole, Modules(dense="m"), 4, 4)
    sizes = {kernel.name: (kernel.m, kernel.k, kernel.n) for kernel in split.kernels}
    assert sizes == {
        "up": (4, 4, 32),
        "down": (4, 4, 32),
        "down_bwd": (4, 4, 32),
        "down_bwd_weight_update": (4, 32, 4),  # a quarter of 16 x 4, the input's side
        "up_bwd_weight_update": (4, 32, 4),  # a quarter of 4 x 16, the output's
    }
    assert talks(split) == {"down": [("all_reduce", 2.0 * 4 * 32)]}
    assert {kernel.copied for kernel in split.kernels} == {None}
    rows = member_graph(whole, Modules(stream="n", dense="n"), 4, 4)
    sizes = {kernel.name: (kernel.m, kernel.k, kernel.n) for kernel in rows.kernels}
    assert sizes["down_bwd"] == (16, 4, 8) and sizes["up_bwd_weight_update"] == (4, 8, 16)
    assert talks(rows) == {}
    assert [kernel.copied for kernel in rows.kernels if kernel.op == "weight_update"] == [1.0, 1.0]


@pytest.mark.parametrize(("scheme", "bytes_", "chips"), [("n", 2 * 2.0 * 16 * 4, 4), ("m", 2.0 * 16 * 4, 2)])
def test_gradients_are_added_up_over_both_axes_by_hand(scheme: str, bytes_: float, chips: int) -> None:
    """Copies along both axes add up all of a gradient, those of half of the features that half, among two."""
    free = NetworkDim(name="x", topology="switch", size=2, link_bandwidth=100.0)
    network = (free, free.model_copy(update={"name": "y"}))
    result = df.optimize(mlp(), machine(network=network), modules={"dense": scheme}, tp=1, pp=1, mp=2, dp=2)
    # over one switch after the other, and back: of what is left half to the neighbour each time
    moved = 2 * (1 - 1 / chips) * bytes_
    assert result.score.gradient_reduction_s == pytest.approx(moved / 100.0)
    assert result.status == "optimal"


@pytest.mark.parametrize("way", ["calculon", "calculon_or_none"])
def test_calculon_hides_no_gradients_where_there_are_no_copies(way: str) -> None:
    """Chips of the second axis add them up in full, as if nothing could be hidden."""
    layers = mlp().model_copy(update={"sections": repeated(4)})
    chosen = df.Assumptions(execution="kernel_by_kernel", sharding_objective="joint")
    asked: dict[str, Any] = {"modules": {"dense": "n"}, "mp": 2, "tp": 1, "pp": 1, "dp": 1}
    shown, counted = (
        df.optimize(layers, machine(2), assumptions=chosen.with_(gradient_overlap=one), **asked) for one in (None, way)
    )
    assert shown.score.gradient_reduction_s == pytest.approx(4 * 2 * 2.0 * 16 * 4 / 100.0)  # a half, and back
    assert counted.status == "optimal" and counted.value == pytest.approx(shown.value, rel=1e-12)


def test_experts_are_added_up_over_copies_only() -> None:
    """Of what all tokens choose each chip has a copy, which has seen some of the tokens."""
    for always, copied in ((None, None), (1, 1 / 3)):  # two of four, and that one
        split = member_graph(mixture(always), Modules(stream="n", mixer="n", experts="outer"), 2, 2)
        updates = {kernel.name: kernel.copied for kernel in split.kernels if kernel.op == "weight_update"}
        expected = {"down_bwd_weight_update": copied, "up_bwd_weight_update": copied, "mix_bwd_weight_update": 1.0}
        assert updates == expected


def test_gradients_of_experts_by_hand() -> None:
    """Way there and back in both passes, and tokens are sent again for gradients of weights: they are not kept."""
    split = member_graph(mixture(), Modules(stream="n", mixer="n", experts="outer"), 2, 2)
    sent = 2 * (1 - 1 / 6) * 4 * 8 * 2  # of six pairs of experts one is all on the other chip; all bytes of tokens
    exchange = [("all_to_all", pytest.approx(sent))]
    assert talks(split) == {
        "norm": exchange,
        "down": exchange,
        "add_bwd": exchange,  # for both gradients of down
        "up_bwd": exchange,
        "up_bwd_weight_update": exchange,  # its tokens, kept where the norm made them
    }
    of = {kernel.name: kernel for kernel in split.kernels}
    assert (of["up"].n, of["up_bwd"].n, of["up_bwd_weight_update"].k, of["mix_bwd_weight_update"].k) == (4,) * 4
    moved = {kernel.name: kernel.dram_bytes_per_chip for kernel in split.kernels if kernel.dram_bytes_per_chip}
    each = (sent / 2) - 4 * 8  # what arrives on a chip, without its own share
    # written, and read again; or read as in the forward pass, and written
    twice = dict.fromkeys(("up_bwd_weight_update", "add_bwd"), 2 * each)
    once = ("norm", "up", "down", "add", "down_bwd", "down_bwd_weight_update", "up_bwd", "norm_bwd")
    assert moved == {name: pytest.approx(size) for name, size in (dict.fromkeys(once, each) | twice).items()}


def test_sums_of_one_gradient_travel_together() -> None:
    """Gate and up both give the gradient of what they read; they add their parts before these are sent."""
    sizes = {"op": "gemm", "m": 8, "k": 4, "n": 8, "module": "dense"}
    gate, up = (Kernel(name=name, **sizes) for name in ("gate", "up"))
    kernels = (
        Kernel(name="in", op="gemm", m=4, k=4, n=8, module="mixer"),
        gate,
        up,
        Kernel(name="act", op="elementwise", m=8, n=8, module="dense"),
        Kernel(name="down", op="gemm", m=4, k=8, n=8, module="dense"),
    )
    pairs = (("in", "gate"), ("in", "up"), ("gate", "act"), ("up", "act"), ("act", "down"))
    tensors = tuple(Tensor(src=src, dst=dst) for src, dst in pairs)
    graph = backward_of(Graph(name="g", microbatch=2, kernels=kernels, tensors=tensors))
    split = member_graph(graph, Modules(mixer="none", dense="m"), 2, 2)
    passed = {name for name in talks(split) if name != "down"}
    assert len(passed) == 1 and passed < {"gate_bwd", "up_bwd"}


def attention() -> Graph:
    """Two sequences of four tokens, of which each sees those before it: ten of sixteen scores."""
    heads = {"outer": 2, "samples": 2, "module": "mixer"}
    kernels = (
        Kernel(name="in", op="elementwise", m=6, n=8),
        *(Kernel(name=name, op="gemm", outer=2, m=3, k=6, n=8, module="mixer") for name in ("q", "k", "v")),
        Kernel(name="scores", op="matmul", m=4, k=3, n=4, role="scores", density=10 / 16, **heads),
        Kernel(name="softmax", op="elementwise", m=4, n=4, role="softmax", density=10 / 16, normalizes=True, **heads),
        Kernel(name="values", op="matmul", m=3, k=4, n=4, role="context", density=10 / 16, masked=1, **heads),
        Kernel(name="out", op="gemm", m=6, k=6, n=8, module="mixer"),
    )
    pairs = [("in", "q"), ("in", "k"), ("in", "v"), ("q", "scores", 1), ("k", "scores", 2), ("scores", "softmax")]
    pairs += [("softmax", "values", 1), ("v", "values", 2), ("values", "out")]
    tensors = tuple(Tensor(src=src, dst=dst, operand=more[0] if more else None) for src, dst, *more in pairs)
    return backward_of(Graph(name="attention", microbatch=2, batch=2, kernels=kernels, tensors=tensors))


def test_keys_are_gathered_in_both_passes_and_their_gradients_added_up() -> None:
    split = member_graph(attention(), Modules(stream="context", mixer="context"), 2, 2)
    whole = 2.0 * 2 * 3 * 8  # bytes of all keys: heads, features, tokens
    assert talks(split) == {
        "k": [("all_gather", whole)],
        "v": [("all_gather", whole)],
        "values_bwd1": [("all_gather", whole)],  # values once more: what was gathered is not kept
        "values_bwd2": [("reduce_scatter", whole)],
        "scores_bwd1": [("all_gather", whole)],
        "scores_bwd2": [("reduce_scatter", whole)],
    }
    sizes = {kernel.name: (kernel.m, kernel.k, kernel.n, kernel.density) for kernel in split.kernels}
    assert sizes["scores_bwd1"] == (3, 4, 2, 5 / 8)  # of queries, whose tokens are shared
    assert sizes["scores_bwd2"] == (3, 2, 4, 5 / 8)  # of keys, over queries
    assert {kernel.copied for kernel in split.kernels if kernel.op == "weight_update"} == {1.0}


def test_copies_are_data_parallel_wherever_they_lie() -> None:
    """Two chips of the second axis with a sample each are two copies: of time, memory and gradients."""
    asked = {"tp": 1, "pp": 1, "assumptions": df.Assumptions(weights_from_dram=True)}
    one = df.optimize(mlp(samples=1), machine(2, 2), **asked, dp=4)
    both = df.optimize(mlp(samples=2), machine(2, 2), **asked, mp=2, dp=2, modules={"stream": "n", "dense": "n"})
    swapped = df.optimize(
        mlp(samples=2), machine(2, 2), **asked, mp=2, mp_dims=("y",), dp=2, modules={"stream": "n", "dense": "n"}
    )
    for other in (both, swapped):
        assert other.value == pytest.approx(one.value)
        assert other.score.gradient_reduction_s == pytest.approx(one.score.gradient_reduction_s) and one.plan.mp == 1
        assert other.score.stages[0].states == one.score.stages[0].states


def test_what_has_no_gradient_there_is_refused_by_name() -> None:
    graph = mixture()
    result = df.optimize(graph, machine(2), ep=2)
    with pytest.raises(PlanError, match="no module can share its work over MP 2 as asked for"):
        df.optimize(attention(), machine(2), mp=2, modules={"stream": "n", "mixer": "context"})
    contexts = Modules(stream="n", mixer="context", experts="n")
    wrong = result.mapping.model_copy(update={"plan": result.plan.model_copy(update={"modules": contexts})})
    with pytest.raises(PlanError, match=r"keys shared out \(context\), without the stream, by a graph that trains"):
        df.evaluate(wrong, graph, machine(2))
    adam = Kernel(name="adam", op="elementwise", m=4, n=4, pass_="update", stage_with="mix", module="mixer")
    drawn = graph.model_copy(update={"kernels": (*graph.kernels, adam)})
    with pytest.raises(PlanError, match="its optimizer is drawn as kernels"):
        df.optimize(drawn, machine(2), ep=2)
    with pytest.raises(PlanError, match="the optimizer drawn as a kernel, 'adam'"):
        df.evaluate(result.mapping, drawn, machine(2))
    alone = {"up_bwd_weight_update": {"stage_with": None}}
    kernels = tuple(one.model_copy(update=alone.get(one.name, {})) for one in graph.kernels)
    assert obstacle(graph.model_copy(update={"kernels": kernels}), Modules(stream="n", mixer="n", experts="n"), 2)


def test_a_share_that_all_chips_have_is_of_a_weight_a_table_or_a_gradient() -> None:
    with pytest.raises(ValueError, match="found 1 of a matmul"):
        Kernel(name="a", op="matmul", m=4, n=4, copied=1.0)
    assert Kernel(name="a", op="gemm", m=4, n=4, copied=1.0).copied == 1.0
    assert Kernel(name="a", op="elementwise", m=4, n=4, resident_bytes=8, copied=1.0).copied == 1.0


@pytest.mark.parametrize("recompute", ["attention", "full+attention", "op+attention"])
def test_tokens_of_a_sequence_are_shared_whatever_runs_again(recompute: str) -> None:
    """Keys are gathered once more for what runs again, and its gradients are those of what it stands for."""
    sizes = {
        "hidden": 64, "heads": 8, "kv_heads": 2, "head_dim": 8, "ffn": 96, "vocab": 100, "seq": 32, "layers": 4,
        "mode": "training", "ends": False, "batch": 8,
    }  # fmt: skip
    graph = df.load_graph("llama-3.1-8b", recompute=recompute, **sizes)
    whole = df.load_graph("llama-3.1-8b", **sizes)
    parts = {}
    for each in (graph, whole):
        plan = Plan(mp=2, mp_dims=("nvlink",), modules=Modules(stream="context", mixer="context", dense="n"))
        assert not list(issues(plan, each, df.load_system("h100-8")))
        parts[each.variant] = {one.name: one for one in member_graph(each, plan.modules or Modules(), 2, 2).kernels}
    again, once = parts[graph.variant], parts[None]
    assert [name for name in once if again[name].n != once[name].n] == []

    def kinds(part: dict[str, Kernel], gather: bool) -> dict[str, list[str]]:
        """Of each kernel with any, what adds up gradients of keys, or what brings keys."""
        every = {name: [c.kind for c in one.communications if (c.kind == "all_gather") == gather]
                 for name, one in part.items()}  # fmt: skip
        return {name: found for name, found in every.items() if found}

    assert kinds(again, gather=False) == kinds(once, gather=False) != {}
    assert sum(map(len, kinds(again, gather=True).values())) == sum(map(len, kinds(once, gather=True).values()))
