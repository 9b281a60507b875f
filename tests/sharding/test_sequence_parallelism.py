"""Sequence parallelism: prices by hand, Megatron's pattern and what it saves, and where an all-reduce is better."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles import judged, mapping_of
from problem_cases import tables_of
from strategies import World, share, worlds
from test_interchip_oracle import check_against_brute_force

from dfopt.documents.assumptions import PROFILES, Assumptions
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.mapping import Sharding
from dfopt.documents.plan import Plan
from dfopt.documents.system import Chip, Dram, NetworkDim, Sram, System
from dfopt.errors import DocumentError, PlanError
from dfopt.frontends.megatron.shardings import megatron_shardings
from dfopt.fusion.blocks import price_blocks
from dfopt.judge import evaluate
from dfopt.machines.compose import load_system
from dfopt.physics import ops
from dfopt.physics.collectives import Collective
from dfopt.physics.network import bytes_sent
from dfopt.physics.pipeline import resolve
from dfopt.search import solve
from dfopt.search.verify import verify
from dfopt.setting.instance import Setting
from dfopt.terms.converted import network_bytes
from dfopt.terms.sharded import LayerOptions
from dfopt.workloads import load_graph
from dfopt.workloads.transformer import TransformerParameters, build

ALLOW = Assumptions(sequence_parallelism="allow", overlap="none")


def machine(topology: str = "ring", reduces: bool = False) -> System:
    """Chips that compute and remember for nothing, so that the network is all that counts: 1 GB/s links."""
    chip = Chip(name="c", tiles=64, peak=1e21, sram=Sram(capacity=1e12), dram=Dram(bandwidth=1e18))
    dim = NetworkDim(name="x", topology=topology, size=4, link_bandwidth=1e9, in_network_reduction=reduces)
    return System(name="s", chip=chip, network=(dim,))


def layer(mode: str) -> tuple[Graph, float]:
    """A small transformer layer, and the bytes of its activations of tokens x hidden features."""
    graph = build(TransformerParameters(hidden=64, heads=8, head_dim=8, seq=32, mode=mode), name="small")
    return graph, 64.0 * 32 * graph.word_bytes


# -- Megatron's pattern -----------------------------------------------------------------------


def test_forward_takes_two_gathers_and_two_scatters() -> None:
    """Each takes f V / (2 b) on a ring, two of them as long as the all-reduce; elementwise kernels are split for it."""
    graph, size = layer("forward")
    result = solve(graph, machine(), assumptions=ALLOW, tp=4)
    assert result.score.collectives == {"all_gather.forward": 2, "reduce_scatter.forward": 2}
    assert sum(part.network_s for part in result.score.partitions) == pytest.approx(4 * 0.75 * size / 2e9)
    assert {one.name for one in result.mapping.kernels if one.sharding == "k>n"} == {"PROJ_GEMM", "FFN1"}


@pytest.mark.parametrize("wiring", [{"topology": "line"}, {"topology": "switch", "reduces": True}])
def test_where_an_all_reduce_is_cheaper_it_is_taken(wiring: dict[str, object]) -> None:
    """A chain of all-reduces moves V over each link, gather and scatter 2 f V; a switch that reduces does the same."""
    graph, size = layer("forward")
    system = machine(**wiring)  # type: ignore[arg-type]
    result = solve(graph, system, assumptions=ALLOW, tp=4)
    assert result.score.collectives == {"all_reduce.forward": 2}
    assert sum(part.network_s for part in result.score.partitions) == pytest.approx(2 * size / 1e9)
    pinned = solve(graph, system, assumptions=ALLOW, tp=4, pin_sharding=megatron_shardings(graph, 4, True))
    assert sum(part.network_s for part in pinned.score.partitions) == pytest.approx(4 * 0.75 * size / 1e9)


def test_training_gathers_what_it_saved_again_in_every_partition() -> None:
    graph, size = layer("training")
    pins = megatron_shardings(graph, 4, True)
    result = solve(graph, machine(), assumptions=ALLOW, tp=4, pin_sharding=pins, p_max=2)
    one = 0.75 * size / 2e9
    assert result.score.collectives == {
        **{f"{kind}.{pass_}": 2 for kind in ("all_gather", "reduce_scatter") for pass_ in ("forward", "backward")},
        "all_gather.update": 2,  # of what both layer norms gave, for the gradients of the weights behind them
    }
    forward, backward = result.score.partitions
    assert (forward.network_s, backward.network_s) == (pytest.approx(4 * one), pytest.approx(6 * one))
    apart = tuple(
        kernel.model_copy(update={"partition": 2}) if kernel.name == "K_bwd_weight_update" else kernel
        for kernel in result.mapping.kernels
    )
    mapping = result.mapping.model_copy(update={"kernels": apart})
    score = evaluate(mapping, graph, machine(), ALLOW)
    assert [part.network_s for part in score.partitions] == pytest.approx([4 * one, 6 * one, one])
    assert score.collectives["all_gather.update"] == 3


@pytest.mark.parametrize(
    ("mode", "overlap", "seconds"),
    # found before by a joint search of its own, whose prices were plain loops
    [("training", "auto", 2606.65), ("forward", "none", 2081.0), ("forward", "auto", 798.20)],
)
def test_gpt3_on_eight_rdus_under_the_pattern(mode: str, overlap: str, seconds: float) -> None:
    chosen = ALLOW.with_(overlap=overlap)
    graph, system = load_graph("gpt3-175b", mode=mode), load_system("sn10-8-ring")
    result = solve(graph, system, assumptions=chosen, tp=8, pin_sharding=megatron_shardings(graph, 8, True))
    assert result.step_time_s == pytest.approx(seconds, rel=1e-3)
    assert result.level_gap == 0.0 and not result.score.violations


@pytest.mark.parametrize(
    ("machine_name", "tp", "seconds"),
    [("h100-8", 2, 9.682), ("tpu-v4-64", 4, 5.323)],  # of the same search, over all plans
)
def test_llama_under_the_pattern(machine_name: str, tp: int, seconds: float) -> None:
    """Kernel by kernel: 9.82 and 5.53 s without."""
    chosen = ALLOW.with_(overlap="auto", execution="kernel_by_kernel", memory_reserve=0.0)
    graph, system = load_graph("llama-3.1-70b"), load_system(machine_name)
    result = solve(graph, system, assumptions=chosen, tp=tp, pin_sharding=megatron_shardings(graph, tp, True))
    assert result.step_time_s == pytest.approx(seconds, rel=1e-3)
    assert result.score.collectives == {"all_gather.forward": 2, "reduce_scatter.forward": 2}


@pytest.mark.parametrize("tile_rows", [None, 8])
def test_the_tile_size_is_chosen_from_those_that_chips_can_share(tile_rows: int | None) -> None:
    levels = "joint" if tile_rows else "seconds"
    chosen = ALLOW.with_(compute_model="cycle", tile_rows=tile_rows, sharding_objective=levels)
    pins = {"Add_1": "n", "DropOut_2": "n", "PROJ_GEMM": "k>n"}
    graph, system = load_graph("gpt2-small"), load_system("sn10-8-ring")
    result = solve(graph, system, assumptions=chosen, tp=8, pin_sharding=pins)
    counts = {record.tile_count for record in result.plans}
    assert result.mapping.tile_count <= 1024 // 8 and not result.score.violations
    assert max(filter(None, counts), default=128) == 128 and (len(counts) > 1) == (tile_rows is None)
    assert verify(result).ok


# -- prices -----------------------------------------------------------------------------------


def fan(*readers: Sharding, pass_: str = "forward") -> tuple[Graph, dict[str, Sharding]]:
    """A kernel split along the tokens, and kernels that read what it gives under some schemes."""
    kernels = [Kernel(name="a", op="elementwise", m=8, n=16)]
    kernels += [Kernel(name=f"r{i}", op="gemm", m=8, k=8, n=16, pass_=pass_) for i in range(len(readers))]
    tensors = tuple(Tensor(src="a", dst=kernel.name) for kernel in kernels[1:])
    graph = Graph(name="g", kernels=tuple(kernels), tensors=tensors, inputs=(), outputs=())
    return graph, {"a": "n", **{f"r{i}": z for i, z in enumerate(readers)}}


@pytest.mark.parametrize(
    ("readers", "kinds"),
    [
        (("m",), ["all_gather"]),  # wants all of it
        (("k",), ["all_to_all"]),  # wants its features split
        (("m", "k", "k>n", "m"), ["all_gather"]),  # one serves everyone
        (("k", "k>n"), ["all_to_all"]),
    ],
)
def test_one_gather_serves_all_readers(readers: tuple[Sharding, ...], kinds: list[str]) -> None:
    graph, schemes = fan(*readers)
    split_by_features = ["all_gather"] if "m" in readers else []  # what the others want is there
    for value, expected in (("allow", kinds), ("none", split_by_features)):
        chosen = resolve(ALLOW.with_(sequence_parallelism=value), "dataflow", 0.9)
        instance = Setting(graph, machine(), chosen).under(Plan(tp=4, tp_dims=("x",)))
        figures = LayerOptions.of(instance).figures
        if value == "none":
            schemes = {name: {"n": "m", "k>n": "k"}.get(z, z) for name, z in schemes.items()}  # type: ignore[misc]
        found = network_bytes(figures.layer, figures.numbers(schemes))[0]
        assert found == sum(bytes_sent(Collective(kind), graph.output_bytes(0), 4) for kind in expected)


@st.composite
def fans(draw: st.DrawFn, most: int = 5) -> tuple[World, dict[str, Sharding]]:
    """A tensor with many readers in both passes, on any network; under some prices an all-gather is the cheapest."""
    passes = draw(st.lists(st.sampled_from(["forward", "backward", "backward"]), min_size=2, max_size=most))
    legal = st.sampled_from(["m", "k", "k>n"])
    graph, _ = fan(*(["m"] * len(passes)))
    kernels = (
        graph.kernels[0],
        *(k.model_copy(update={"pass_": of}) for k, of in zip(graph.kernels[1:], passes, strict=True)),
    )
    schemes = {"a": draw(st.sampled_from(["n", "n", "m"])), **{k.name: draw(legal) for k in kernels[1:]}}
    topology = draw(st.sampled_from(["ring", "line", "switch", "fully_connected"]))
    chosen = ALLOW.with_(
        sequence_parallelism=draw(st.sampled_from(["allow", "allow", "none"])),
        collective_model=draw(st.sampled_from(["exact", "dfmodel"])),
        all_to_all_messages="all",
        fanout=draw(st.sampled_from(["shared", "shared", "per_consumer"])),
        forward_backward=draw(st.sampled_from(["shared", "separate"])),
        tile_rows=4,
    )
    if chosen.sequence_parallelism == "none":
        schemes = {name: {"n": "m", "k>n": "k"}.get(z, z) for name, z in schemes.items()}  # type: ignore[misc]
    graph = graph.model_copy(update={"kernels": kernels})
    plan = Plan(tp=4, tp_dims=("x",), microbatches=1)
    return World(graph, machine(topology), plan, resolve(chosen, "dataflow", 0.9)), schemes


@share(0.5)
@given(fans(), st.data())
def test_tolls_of_blocks_are_what_the_judge_says(case: tuple[World, dict[str, Sharding]], data: st.DataObject) -> None:
    world, schemes = case
    tables = tables_of(world, schemes)
    late = {k.name: k.pass_ != "forward" for k in world.graph.kernels}
    partition = {name: 2 * late[name] + data.draw(st.integers(0, 1)) if name != "a" else 0 for name in schemes}
    mapping = mapping_of(world, schemes, dict.fromkeys(schemes, 0), partition)
    assert mapping is not None
    score = judged(world, mapping)
    member = np.array([[partition[name] == part.partition for name in schemes] for part in score.partitions])
    prices = price_blocks(tables, member)
    assert [part.network_s for part in score.partitions] == pytest.approx(prices.seconds[2].tolist(), rel=1e-9)


@share(0.25)
@given(fans(most=3))
def test_the_sharding_of_a_fan_is_brute_force(case: tuple[World, dict[str, Sharding]]) -> None:
    check_against_brute_force(case[0])


# -- what is legal ----------------------------------------------------------------------------


def test_tiles_have_a_row_for_every_chip() -> None:
    graph, _ = layer("forward")
    result = solve(graph, machine(), assumptions=ALLOW, tp=4)
    assert result.mapping.tile_count == 32 // 4
    finer = result.mapping.model_copy(update={"tile_count": 32})
    assert any("a tile at least 4" in said for said in evaluate(finer, graph, machine(), ALLOW).violations)
    whole = solve(graph, machine("line"), assumptions=ALLOW, tp=4)  # takes no split of the tokens
    assert whole.mapping.tile_count == 32
    with pytest.raises(PlanError, match=r"'Add_1' cannot be sharded by 'n' over 4 chips; it allows m, none"):
        solve(graph, machine(), assumptions=ALLOW.with_(tile_rows=2), tp=4, pin_sharding={"Add_1": "n"})


def test_without_it_a_mapping_with_split_tokens_is_refused() -> None:
    graph, _ = layer("forward")
    mapping = solve(graph, machine(), assumptions=ALLOW, tp=4).mapping
    with pytest.raises(DocumentError, match="cannot be split by 'k>n' over 4 chips"):
        evaluate(mapping, graph, machine(), ALLOW.with_(sequence_parallelism="none"))


def test_neither_gradients_of_weights_nor_partial_sums_are_scattered() -> None:
    shape = {"m": 8, "k": 8, "n": 16}
    for fields in ({"op": "weight_update"}, {"op": "gemm", "accumulates_into": "host"}):
        assert "k>n" not in ops.legal_schemes(Kernel(name="a", **shape, **fields), 4, ALLOW)
    host = Kernel(name="host", op="gemm", **shape)
    adds = Kernel(name="adds", op="gemm", **shape, accumulates_into="host")
    graph = Graph(name="g", kernels=(host, adds), inputs=(), outputs=())
    result = solve(graph, machine(), assumptions=ALLOW, tp=4, pin_sharding={"host": "k>n", "adds": "k"})
    assert result.score.collectives == {"reduce_scatter.forward": 1} and not result.score.violations


@pytest.mark.parametrize("mode", ["forward", "training"])
def test_forced_it_is_done_where_less_would_be_faster(mode: str) -> None:
    """On a line an all-reduce is cheaper than the two halves of it, and is taken unless it is forbidden."""
    graph, _ = layer(mode)
    result = solve(graph, machine("line"), assumptions=ALLOW, tp=4, sequence_parallelism="force", p_max=2)
    kinds = {kind.partition(".")[0] for kind in result.score.collectives}
    assert kinds == {"all_gather", "reduce_scatter"} and result.assumptions.sequence_parallelism == "force"
    own, of = {k.name: k for k in graph.kernels}, {one.name: one.sharding for one in result.mapping.kernels}
    assert {of[name] for name, kernel in own.items() if kernel.normalizes and kernel.outer == 1} == {"n"}
    assert not {of[name] for name, kernel in own.items() if kernel.op == "elementwise"} & {"none"}
    free = solve(graph, machine("line"), assumptions=ALLOW, tp=4, p_max=2)
    assert free.step_time_s < result.step_time_s and verify(result).ok
    with pytest.raises(DocumentError, match="cannot be split by 'none' over 4 chips"):
        evaluate(free.mapping, graph, machine("line"), result.assumptions)


@share(0.25)
@given(worlds(most=4, least=2, max_pp=1, sequence_parallelism="force"))
def test_forced_the_sharding_is_brute_force(world: World) -> None:
    assume(world.plan.tp > 1)
    check_against_brute_force(world)


def test_it_cannot_be_forced_where_tiles_have_too_few_rows() -> None:
    graph, _ = layer("forward")
    with pytest.raises(PlanError, match=r"force beside tiles of 2 rows \(tile_rows\) under TP 4"):
        solve(graph, machine(), assumptions=ALLOW.with_(tile_rows=2), tp=4, sequence_parallelism="force")


def test_tokens_may_be_split_unless_it_is_the_programs_of_the_paper() -> None:
    assert Assumptions().sequence_parallelism == "allow"
    assert {PROFILES[name].sequence_parallelism for name in PROFILES if "dfmodel" in name} == {"none"}
