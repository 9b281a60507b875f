"""Heat inside the optimiser: it prices as the judge does, finds the best of all mappings, and keeps the limits."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from block_cases import IN_TOKEN_BLOCKS, needing_blocks
from given_plans import searched
from hypothesis import assume, event, given, reject, settings
from hypothesis import strategies as st
from problem_cases import partitionings
from stack_cases import HOT, T0, dies, memory, stack
from strategies import World, options_of, share, sums_meet, worlds

import dfopt as df
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel, SequenceState, Tensor
from dfopt.documents.heat import HeatReport
from dfopt.documents.mapping import Mapping, Pause, TokenBlocks
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.documents.stack import Limits, LogicEnergies, Stack
from dfopt.documents.stack_parts import HtcPackage, Leakage
from dfopt.documents.system import Chip, Dram, NetworkDim, Sram, System
from dfopt.errors import Infeasible, PlanError, SystemSpecError
from dfopt.fusion.blocks import StageTables, holding
from dfopt.heat.answers import ThreeAnswers
from dfopt.heat.limits import Linearization
from dfopt.heat.problem import HeatChoice
from dfopt.heat.settle import TOO_HOT_K, cool, physical
from dfopt.machines.stacks import with_stack
from dfopt.physics import ops
from dfopt.physics.pipeline import resolve
from dfopt.search.heat_aware import HEAT_GAP, heat_answers, made_aware, three_answers
from dfopt.search.verify import verify
from dfopt.setting.instance import Setting
from dfopt.setting.plans import asked_plans
from dfopt.terms.token_blocks import shares_of

NEAR = 2e-6


@pytest.fixture(scope="module", autouse=True)
def one_matrix_for_each_body(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Few bodies are drawn again and again: their responses are worked out once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DFOPT_CACHE", raising=False)
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("responses")))
        yield


@st.composite
def stacks(draw: st.DrawFn, idle: float | None = None) -> Stack:
    """Cooled well or badly, with memory on top or beside it, leaking or not; most of them throttle."""
    leakage = draw(st.sampled_from([None, Leakage(power=4.0, at=T0 + 60, beta_per_k=0.01)]))
    limit = draw(st.sampled_from([T0 + 45, T0 + 60, T0 + 90]))
    clock = draw(st.sampled_from([5.0, 40.0])) if idle is None else idle
    logic = LogicEnergies(flop=0.1, sram=0.01, noc=0.005, network=0.02, idle=clock)
    return stack(
        logic=logic,
        dies=dies(draw(st.sampled_from([0, 1, 2])), leakage, draw(st.sampled_from([1, 2]))),
        package=HtcPackage(mode="htc", htc_w_per_m2k=draw(st.sampled_from([1e5, 2e4, 1e4]))),
        dram=memory(draw(st.sampled_from([1, 10])), refresh=draw(st.sampled_from([(), HOT]))),
        limits=Limits(
            logic=limit, dram=draw(st.sampled_from([limit, None])), power=draw(st.sampled_from([None, 120.0, 40.0]))
        ),
        placement=draw(st.sampled_from(["contiguous", "interleaved"])),
    )


@st.composite
def studies(draw: st.DrawFn, idle: float | None = None, **fixed: Any) -> ThreeAnswers:
    """The three answers for the best mapping of a small world; nothing is solved before they are asked for.

    Where partitions may take their tokens in blocks, there is little SRAM.
    """
    small = worlds(**{"most": 4, "dims": 1, "max_pp": 2, **fixed})
    world = draw(needing_blocks(small) if fixed.get("token_blocks") == "allow" else small)
    on = draw(stacks(idle))
    system = with_stack(world.system, on)
    try:
        return answers_of(Setting(world.graph, system, world.assumptions), world.plan)
    except Infeasible:
        reject()


def answers_of(setting: Setting, plan: Plan, **asked: Any) -> ThreeAnswers:
    """The three answers for the best mapping under a plan."""
    search = searched(setting, [plan], options_of(**asked))
    if not search.state.solutions:
        raise Infeasible("no mapping under this plan")
    return three_answers(search.setting, search.state.solutions[0].mapping, search.state.options)


def chip_of(**changes: Any) -> Chip:
    """A small chip with room for everything."""
    fields = {"tiles": 4, "peak": 1000.0, "sram": Sram(capacity=1e9), "dram": Dram(bandwidth=100.0)}
    return Chip(**{"name": "c", **fields, **changes})


def logic_under(drams: int) -> Stack:
    """A logic die under some DRAM dies, which no limit slows."""
    return stack(dies=dies(drams), limits=Limits(logic=T0 + 90), placement="contiguous")


@share(0.5)
@given(st.one_of(studies(), studies(**IN_TOKEN_BLOCKS)), st.integers(0, 5), st.sampled_from([0.0, 0.3, 3.0]))
def test_the_heat_problem_says_what_the_judge_says(study: ThreeAnswers, level: int, wait: float) -> None:
    """At some level, and with some of the interval spent waiting."""
    slowed = study.settler.at_level(study.ignore.mapping, level)
    if wait:
        longer = wait * physical(study.ignore.score).interval_s
        slowed = slowed.model_copy(update={"pauses": (Pause(stage=study.settler.used[-1], time=longer),)})
    seen = physical(study.settler.judge(slowed))
    assume(not seen.runaway and len(set(chip.refresh_rate for chip in seen.chips)) == 1)
    event(f"blocks of tokens: {slowed.token_blocks is not None}")
    agrees_with_the_judge(study, slowed)


def agrees_with_the_judge(study: ThreeAnswers, slowed: Mapping) -> None:
    """Interval, and every cell of every die, of a mapping: at its own temperatures exact."""
    settler = study.settler
    score = settler.judge(slowed)
    seen = physical(score)
    rate = next((one for one in settler.limits.rates if one.rate == seen.refresh_rate), None)
    assert rate is not None
    blocks = settler.chain(slowed, rate.rate)
    choice = settler.starts(blocks, [slowed])[0]
    free = settler.problem(blocks, settler.without_limits())
    waits = {pause.stage: pause.time for pause in slowed.pauses or ()}
    idle_r = settler.runs_rs @ np.array([waits.get(number, 0.0) for number in settler.used])
    period = max(free.floor, float((free.busy(choice) + idle_r).max()))
    assert period == pytest.approx(seen.interval_s, rel=1e-9)
    tiles = np.array([[tile.mean_c + T0 for tile in chip.tiles] for chip in seen.chips])
    voltage_r = settler.limits.voltage(free.spent_by_rank(choice)[1] / seen.interval_s)
    where = Linearization(tiles, voltage_r)
    model, limits = settler.limits, study.stack.limits
    model.stack = study.stack.model_copy(update={"limits": limits.model_copy(update={"dram": T0 + 500.0})})
    try:
        rows = model.rows(where, replace(rate, below_k=np.inf))
    finally:
        model.stack = study.stack
    problem = replace(free, rows=replace(rows, budget_ri=np.full_like(rows.budget_ri, 1e9)))
    load = problem.loads(choice) / seen.interval_s
    drams = {die.name for die in study.stack.dram_dies}
    assert limits.logic is not None
    for r, chip in enumerate(seen.chips):
        cells = model.heat.cells(np.array([tile.power_w for tile in chip.tiles]))
        for die, wanted in zip(chip.dies, cells, strict=True):
            assert wanted.max() - T0 == pytest.approx(die.max_c, abs=1e-9)
            mine = [i for i, name in enumerate(rows.names) if f" die {die.die}," in name]
            limit = T0 + 500.0 if die.die in drams else limits.logic
            np.testing.assert_allclose(limit - rows.budget_ri[r, mine] + load[r, mine], wanted, rtol=0, atol=1e-6)


def test_gradients_that_are_only_written_cost_no_read() -> None:
    """The joules of the memory follow the traffic that its time is counted for."""
    update = Kernel(name="w", op="weight_update", m=8, k=8, n=8)
    graph = Graph(name="gradients", word_bytes=2, batch=4, kernels=(update,))
    on, spent = logic_under(0), {}
    for traffic in ("written", "accumulated"):
        asked = resolve(Assumptions(gradient_traffic=traffic, tile_rows=1), "dataflow", 1.0)
        setting = Setting(graph, System(name="one", chip=chip_of(), stack=on), asked)
        study = answers_of(setting, Plan(microbatches=4))
        agrees_with_the_judge(study, study.ignore.mapping)
        spent[traffic] = physical(study.ignore.score).energy_j
    bursts = update.m * update.k * graph.word_bytes / on.dram.burst * 4  # of the gradient, in all microbatches
    assert spent["written"]["dram_write"] == pytest.approx(spent["accumulated"]["dram_write"])
    saved = spent["accumulated"]["dram_read"] - spent["written"]["dram_read"]
    assert saved == pytest.approx(bursts * on.dram.energies.read_burst)


def test_a_partition_that_leaves_tiles_free_heats_only_its_own() -> None:
    """Under the cycle model a partition may leave half the chip idle: its joules are on the other half."""
    kernels = tuple(Kernel(name=name, op="gemm", m=1, k=1, n=1, dram_bytes=36.0) for name in ("a", "b", "c"))
    tensors = (Tensor(src="a", dst="b"), Tensor(src="a", dst="c"))
    graph = Graph(name="three", word_bytes=2, batch=4, kernels=kernels, tensors=tensors)
    chip = chip_of(tiles=2, lanes=2, stages=1, frequency=100.0, peak=None, compute_utilization=0.5)
    chosen = resolve(Assumptions(execution="dataflow", compute_model="cycle", tile_rows=1), "dataflow", 0.5)
    setting = Setting(graph, System(name="pair", chip=chip, stack=logic_under(0)), chosen)
    study = answers_of(setting, Plan(microbatches=4), pin_partition={"a": 0, "b": 1, "c": 1})
    kept = study.known.mapping
    assert [kernel.partition for kernel in kept.kernels] == [0, 1, 1]  # of one tile each
    agrees_with_the_judge(study, kept)


def test_what_backward_partitions_gather_again_is_sent_once_by_each() -> None:
    """Two readers of a saved tensor in one partition and a third in another."""
    names = [("a", "elementwise", "forward"), *((name, "gemm", "backward") for name in "bcd")]
    kernels = tuple(Kernel(name=name, op=op, m=8, k=8 if op == "gemm" else 1, n=8, pass_=of) for name, op, of in names)
    tensors = tuple(Tensor(src="a", dst=name) for name in "bcd")
    graph = Graph(name="again", word_bytes=2, batch=4, kernels=kernels, tensors=tensors)
    shards = NetworkDim(name="x", topology="ring", size=2, link_bandwidth=20.0)
    chosen = Assumptions(execution="dataflow", sequence_parallelism="allow", tile_rows=2)
    system = System(name="pair", chip=chip_of(), stack=logic_under(0), network=(shards,))
    pins = {"pin_sharding": {"a": "n", **dict.fromkeys("bcd", "m")}, "pin_partition": {"a": 0, "b": 1, "c": 1, "d": 2}}
    setting = Setting(graph, system, resolve(chosen, "dataflow", 1.0))
    study = answers_of(setting, Plan(tp=2, tp_dims=("x",), microbatches=4), **pins)
    assert study.ignore.score.collectives == {"all_gather.backward": 2}
    agrees_with_the_judge(study, study.ignore.mapping)


def test_what_seldom_happens_is_spent_as_the_judge_has_it() -> None:
    """Weights in parts, a tensor that two other partitions read, gradients spread over the microbatches."""
    kernels = (
        Kernel(name="a", op="elementwise", m=8, n=8),
        Kernel(name="b", op="gemm", m=8, k=8, n=8),
        Kernel(name="c", op="gemm", m=8, k=8, n=8),
        Kernel(name="d", op="weight_update", m=8, k=8, n=8, pass_="update"),
    )
    tensors = tuple(Tensor(src=src, dst=dst) for src, dst in ("ab", "ac", "ad", "bd"))
    graph = Graph(name="four", word_bytes=2, batch=4, kernels=kernels, tensors=tensors)
    copies = NetworkDim(name="x", topology="ring", size=2, link_bandwidth=100.0)
    chosen = Assumptions(execution="kernel_by_kernel", gradients="dfmodel", weight_tiling="reread_all", tile_rows=1)
    chip = chip_of(sram=Sram(capacity=160.0))
    system = System(name="pair", chip=chip, stack=logic_under(1), network=(copies,))
    setting = Setting(graph, system, resolve(chosen, None, 1.0))
    study = answers_of(setting, Plan(dp=2, dp_dims=("x",), microbatches=2))
    assert study.ready.stages[0].tables.parts_k.max() > 1
    agrees_with_the_judge(study, study.known.mapping)


@pytest.mark.parametrize("overlap", ["none", "perfect"])
def test_what_blocks_of_tokens_read_again_is_spent_as_the_judge_has_it(overlap: str) -> None:
    """Weights, a cache, what every token needs all of from another partition, and from outside the graph."""
    kept = SequenceState(name="keys", sequences=2, bytes_per_token=8, tokens=4, reads=3)
    kernels = (
        Kernel(name="keys", op="gemm", m=4, k=8, n=8),
        Kernel(name="query", op="gemm", m=4, k=64, n=8),
        Kernel(name="scores", op="matmul", m=8, k=4, n=8, states=(kept,)),
        Kernel(name="context", op="matmul", m=4, k=8, n=8),
    )
    ends = (("keys", "scores", 2), ("query", "scores", 1), ("scores", "context", 1))
    tensors = tuple(Tensor(src=src, dst=dst, operand=operand) for src, dst, operand in ends)
    graph = Graph(name="attention", word_bytes=2, batch=4, kernels=kernels, tensors=tensors)
    chip = chip_of(tiles=8, peak=4000.0, sram=Sram(capacity=1e9, bandwidth=400.0))
    chosen = Assumptions(execution="dataflow", token_blocks="allow", tile_rows=1, overlap=overlap)
    system = System(name="one", chip=chip, stack=logic_under(1))
    setting = Setting(graph, system, resolve(chosen, "dataflow", 1.0))
    pins = {"keys": 0, "query": 1, "scores": 1, "context": 1}
    search = searched(setting, [Plan(microbatches=4)], options_of(pin_partition=pins))
    for blocks in (None, (TokenBlocks(partition=1, blocks=1),), (TokenBlocks(partition=1, blocks=5),)):
        mapping = search.state.solutions[0].mapping.model_copy(update={"token_blocks": blocks})
        study = three_answers(search.setting, mapping, search.state.options)
        assert study.known.mapping.token_blocks == blocks
        agrees_with_the_judge(study, study.known.mapping)
        agrees_with_the_judge(study, study.settler.at_level(study.known.mapping, 1))


def test_blocks_of_tokens_are_chosen_under_limits_on_heat() -> None:
    """A product whose weight does not fit computes while its neighbour waits for memory: fused, it reads that again."""
    kernels = (Kernel(name="a", op="gemm", m=64, k=64, n=64), Kernel(name="b", op="elementwise", m=64, n=64))
    graph = Graph(name="pair", word_bytes=2, batch=4, kernels=kernels, tensors=(Tensor(src="a", dst="b"),))
    chip = chip_of(tiles=8, sram=Sram(capacity=8000.0), dram=Dram(bandwidth=1000.0))
    on = stack(limits=Limits(logic=T0 + 60), dram=memory(10), logic=LogicEnergies(flop=1e-4, sram=1e-4, idle=1.0))
    system = System(name="one", chip=chip, stack=on)
    asked: dict[str, Any] = {"heat": "aware", "gap": 1e-6}
    chosen = Assumptions(execution="dataflow", tile_rows=1, weight_tiling="reread", overlap="perfect")
    apart, fused = (
        df.optimize(graph, system, assumptions=chosen.with_(token_blocks=way), **asked) for way in ("none", "allow")
    )
    assert apart.mapping.token_blocks is None
    assert fused.mapping.token_blocks is not None
    assert physical(fused.score).step_time_s < physical(apart.score).step_time_s
    assert cool(fused.score)
    assert verify(fused).ok


@share(0.4)
@given(studies(idle=40.0), st.sampled_from([0.0, 0.5, 3.0]))
def test_a_throttled_chip_is_as_warm_as_one_at_uniform_clocks(study: ThreeAnswers, wait: float) -> None:
    """It rests at the lowest level in both, however long it waits."""
    settler, longer = study.settler, wait * physical(study.ignore.score).interval_s
    pauses = (Pause(stage=settler.used[0], time=longer),) if longer else None
    waiting = study.ignore.mapping.model_copy(update={"pauses": pauses})
    throttled = physical(settler.judge(waiting, throttle=True))
    level = settler.limits.frequency_l.tolist().index(throttled.frequency)
    uniform = physical(settler.judge(settler.at_level(waiting, level).model_copy(update={"pauses": pauses})))
    assert uniform.step_time_s == pytest.approx(throttled.step_time_s, rel=1e-12)
    for one, other in zip(uniform.chips, throttled.chips, strict=True):
        assert [die.max_c for die in one.dies] == pytest.approx([die.max_c for die in other.dies], abs=1e-6)


def in_any_way(tables: StageTables, partition_k: np.ndarray) -> list[np.ndarray]:
    """Numbers of blocks of tokens of the partition of each kernel, 0 if it holds its weights, in all ways that fit."""
    member, ways = partition_k == np.unique(partition_k)[:, None], list[list[int]]()
    charges = tables.sharded.token_charges
    held = holding(tables, member).legal
    for b, kernels in enumerate(member):
        ways.append([0] if held[b] else [])
        if charges is not None:
            fixed, cut, _, _, all_tokens = charges.block_totals(kernels[None])[:, 0]
            for blocks in range(1, charges.rows.most + 1):
                need = fixed + cut * shares_of(charges.rows, np.array(float(blocks)))
                if not all_tokens and need <= tables.chip.sram * (1 + 1e-9) and kernels.sum() <= tables.chip.tiles:
                    ways[b].append(blocks)
    return [np.array(chosen) @ member for chosen in itertools.product(*ways)]


SEPARATE: dict[str, Any] = {"forward_backward": "separate", "empty_partitions": "allow", "most": 3}


@share(0.6)
@given(
    st.one_of(studies(execution="dataflow", **SEPARATE), studies(**IN_TOKEN_BLOCKS, **SEPARATE)).filter(
        lambda study: all(stage.tables.kernels <= 3 for stage in study.ready.stages.values())
    )
)
def test_no_other_partitioning_and_levels_are_faster(study: ThreeAnswers) -> None:
    """Brute force over every legal partitioning of the stages, the best levels of each by enumeration.

    Each of its partitions holds its weights, or takes its tokens in any number of blocks with which it fits.
    """
    settler, rate = study.settler, study.settler.limits.rates[-1]
    where = settler.operating(study.throttle.score)
    try:
        rows = settler.limits.rows(where, rate)
        pool = study._pool(rate.rate)
        _, _, answer = pool.choose(rows, True)
    except (Infeasible, PlanError):
        reject()
    assume(pool.fused)
    assert answer.proven
    per_stage = []
    for number in settler.used:
        stage = study.ready.stages[number]
        limits = replace(stage.limits, p_max=min(stage.tables.kernels, stage.limits.p_max))
        found, _ = partitionings(stage.tables, limits)
        hot = settler.limits.kernels.hot(number, rate.rate)
        per_stage.append([hot.chain(one, tokens_k) for one in found for tokens_k in in_any_way(stage.tables, one)])
    assume(np.prod([len(one) for one in per_stage]) <= 30)
    event(f"blocks of tokens: {any(one.tokens_b.any() for chains in per_stage for one in chains)}")
    levels = range(len(settler.limits.frequency_l))
    best = np.inf
    for blocks in itertools.product(*per_stage):
        here = settler.problem(list(blocks), rows)
        count = sum(len(one.member) for one in blocks)
        assume(count <= 4)
        cuts = np.cumsum([0, *(len(one.member) for one in blocks)])
        for chosen in itertools.product(levels, repeat=count):
            parts = [np.array(chosen[a:b], dtype=np.int64) for a, b in itertools.pairwise(cuts)]
            best = min(best, here.period(HeatChoice(tuple(np.arange(len(p)) for p in parts), tuple(parts))))
            if best < answer.period_s * (1 - NEAR):
                break
    assert answer.period_s == pytest.approx(best, rel=NEAR)


@share(0.4)
@given(studies())
def test_the_heat_aware_mapping_keeps_its_limits_and_is_never_slower(study: ThreeAnswers) -> None:
    try:
        found = study.aware()
    except PlanError:
        reject()
    best = study.best_of(found)
    mapping, score = best.mapping, best.score
    seen, limits = physical(score), study.stack.limits
    assert cool(score)
    assert seen.frequency == 1.0  # the judge need not throttle it
    assert limits.logic is None or seen.logic_max_c <= limits.logic - T0 + 0.05
    assert physical(found.score).logic_max_c <= (limits.logic or np.inf) - T0 + TOO_HOT_K
    for other in (study.throttle, study.ignore, study.known):  # the judge's own throttling of either included
        throttled = study.settler.judge(other.mapping, throttle=True)
        assert seen.step_time_s <= physical(throttled).step_time_s or not cool(throttled)
    assert seen.step_time_s >= study.ignore.step_s * (1 - NEAR) or physical(study.ignore.score).refresh_rate > 1
    assert df.Mapping.from_data(json.loads(json.dumps(mapping.to_data()))) == mapping


@share(0.2)
@given(worlds(most=3, dims=2, max_pp=2), stacks())
def test_of_several_plans_the_fastest_answer_is_kept(world: World, on: Stack) -> None:
    """As if every plan were re-optimised alone; those that are slower without heat need not be."""
    system, options = with_stack(world.system, on), options_of(top=3)
    plans, _ = asked_plans(world.graph, system, Request(), world.assumptions)
    search = searched(Setting(world.graph, system, world.assumptions), plans, options)
    alone = []
    for one in search.state.solutions:
        try:
            alone.append(physical(made_aware(one, search.setting, options)[0].score).step_time_s)
        except (Infeasible, PlanError):
            continue
    assume(alone)
    best, proof = made_aware(search.state.solutions[0], search.setting, options, search.state.solutions[1:])
    assert physical(best.score).step_time_s == pytest.approx(min(alone), rel=1e-9)
    assert cool(best.score) and proof.interval_s > 0
    if len(search.state.solutions) > 1:
        assert f"of the {len(search.state.solutions)} fastest plans were chosen anew" in proof.note
    for one in search.state.solutions[1:]:
        slower = one.score.step_time_s >= physical(best.score).step_time_s * (1 + NEAR)
        assert not slower or "no faster even without heat" in proof.note or "no answer for" in proof.note


COVERED: dict[str, Any] = {
    "gradient_overlap": None,
    "empty_partitions": "allow",
    "forward_backward": ["separate", "shared"],
    "compute_model": ["fixed", "efficiency"],
    "execution": "dataflow",
}
"""Assumptions of worlds in which every sharding is one of few."""


@settings(max_examples=2)
@given(worlds(most=2, dims=1, max_pp=1, pieces=False, **COVERED))
def test_with_the_sharding_free_no_sharding_is_faster(world: World) -> None:
    hot = HtcPackage(mode="htc", htc_w_per_m2k=1e4)
    check_all_shardings(world, stack(dies=dies(1), package=hot, limits=Limits(logic=T0 + 45, power=40.0)))


@pytest.mark.nightly
@share(0.03)
@given(worlds(most=3, dims=1, max_pp=1, pieces=False, **COVERED), stacks())
def test_with_the_sharding_free_no_sharding_is_faster_nightly(world: World, on: Stack) -> None:
    check_all_shardings(world, on)


def check_all_shardings(world: World, on: Stack) -> None:
    """As if every sharding were pinned and re-optimised alone."""
    graph, plan, system = world.graph, world.plan, with_stack(world.system, on)
    menus = [ops.legal_schemes(kernel, plan.tp, world.assumptions) for kernel in graph.kernels]
    assume(plan.tp > 1 and 1 < np.prod([len(menu) for menu in menus]) <= 12)

    def aware(objective: str, **asked: Any) -> tuple[float, str]:
        setting = Setting(graph, system, world.assumptions.with_(sharding_objective=objective))
        search = searched(setting, [plan], options_of(**asked))
        if not search.state.solutions:
            return np.inf, ""
        try:
            best, proof = made_aware(search.state.solutions[0], setting, search.state.options)
        except (Infeasible, PlanError):
            return np.inf, ""
        assert cool(best.score)
        return physical(best.score).step_time_s, proof.note

    alone = []
    for schemes in itertools.product(*menus):
        sharding = {kernel.name: z for kernel, z in zip(graph.kernels, schemes, strict=True)}
        if sums_meet(graph, plan, world.assumptions, sharding):
            alone.append(aware("seconds", pin_sharding=sharding)[0])
    assume(np.isfinite(alone).any())
    found, note = aware("joint")
    assert found <= min(alone) * (1 + 2 * HEAT_GAP)
    assert f"{found:.6g} s per step" in note and "shardings more were chosen anew" in note


HOT_STACK = {"package.r_convec_k_per_w": 0.25, "cells": 8}  # a coarse grid: as hot, a quarter of the rows


def result_on(stack_name: str, overrides: dict[str, Any], **options: Any) -> Any:
    on = df.load_stack(stack_name, overrides)
    return df.optimize(df.load_graph("gpt3-175b"), df.load_system("sn10-8-ring"), tp=1, pp=8, stack=on, **options)


@pytest.fixture(scope="module")
def report() -> HeatReport:
    return heat_answers(result_on("hybrid-vault", HOT_STACK), gap=1e-3)


def test_three_answers_side_by_side(report: HeatReport) -> None:
    ignore, throttle, aware = report.answers
    assert [one.name for one in report.answers] == ["ignore", "throttle", "aware"]
    assert not ignore.keeps_limits and throttle.keeps_limits and aware.keeps_limits
    assert ignore.step_time_s < aware.step_time_s < throttle.step_time_s
    assert report.speedup is not None and report.speedup > 1.02
    assert aware.dram_max_c is not None and aware.dram_max_c <= 95.05
    assert report.price is not None and report.price.lp_dram_s_per_k > 0 and report.price.binding
    assert report.proof is not None and report.proof.gap <= 1e-3
    assert {one.frequency for one in report.slowed} <= {0.93, 0.86, 0.79, 0.72, 0.65, 0.58, 0.5}


def test_a_report_survives_its_file(report: HeatReport, tmp_path: Any) -> None:
    report.dump(tmp_path / "heat.json")
    assert HeatReport.load(tmp_path / "heat.json") == report


def test_a_kelvin_is_worth_about_what_the_duals_say(report: HeatReport) -> None:
    assert report.price is not None and report.price.one_kelvin_more_s is not None
    assert report.price.one_kelvin_more_s == pytest.approx(report.price.lp_dram_s_per_k, rel=0.5)


def test_a_higher_limit_and_a_better_package_are_never_slower(report: HeatReport) -> None:
    here = report.answer("aware")
    assert here is not None
    for better in ({"limits.dram": "97 degC"}, {"package.r_convec_k_per_w": 0.2}):
        there = heat_answers(result_on("hybrid-vault", {**HOT_STACK, **better}), gap=1e-3, one_kelvin=False)
        found = there.answer("aware")
        assert found is not None and found.step_time_s <= here.step_time_s * (1 + 1e-3)


def test_cool_enough_all_answers_are_one() -> None:
    cold = {"package.r_convec_k_per_w": 0.01, "ambient": "0 degC"}
    found = heat_answers(result_on("hybrid-vault", cold), one_kelvin=False)
    assert len({one.step_time_s for one in found.answers}) == 1
    assert not found.slowed and found.price is not None and found.price.lp_dram_s_per_k == 0


def test_a_heat_aware_result_is_verified() -> None:
    found = result_on("hybrid-vault", HOT_STACK, heat="aware")
    seen = found.score.physical
    assert found.mapping.clocks and seen is not None and seen.keeps_limits and seen.frequency == 1.0
    assert "limits on heat of the stack hybrid-vault" in found.proof
    checked = verify(type(found).from_data(json.loads(json.dumps(found.to_data()))))
    assert checked.ok, checked.problems


def test_without_a_stack_there_is_nothing_to_keep_cool() -> None:
    with pytest.raises(SystemSpecError, match=r"\$\.stack: found none, expected a stack of dies"):
        df.optimize(df.load_graph("gpt2-small"), df.load_system("sn10-8-ring"), tp=8, heat="aware")


def test_errors_say_what_to_do() -> None:
    graph, system = df.load_graph("gpt2-small"), df.load_system("sn10-8-ring")
    with pytest.raises(PlanError, match="heat: found 'cold', expected 'ignore' or 'aware'"):
        df.optimize(graph, system, tp=8, heat="cold")  # type: ignore[arg-type]
    scorched = df.load_stack("hybrid-vault", {"limits.logic": "36 degC", "package.r_convec_k_per_w": 0.5})
    # two kernels: each of their shardings is refused for the same reason, one after another
    up, down = (Kernel(name=name, op="gemm", m=1024, k=1024, n=1024) for name in ("up", "down"))
    pair = Graph(name="pair", batch=8, kernels=(up, down), tensors=(Tensor(src="up", dst="down"),))
    for how in ("joint", "seconds"):
        chosen = Assumptions(sharding_objective=how)
        with pytest.raises(Infeasible, match="above its limit while the chip rests"):
            df.optimize(pair, system, assumptions=chosen, tp=8, heat="aware", stack=scorched)
    with pytest.raises(PlanError, match="heat: found aware beside formulation: assignment"):
        df.optimize(
            graph, system, tp=8, heat="aware", stack=df.load_stack("hybrid-vault"), formulation="assignment", p_max=2
        )
