"""The two books of what a chip holds: the optimiser's and the judge's, and the bounds below both; who holds a table."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from sharded_cases import shard
from strategies import World, keeping, layered, shardings, share, with_dram, worlds

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.dtypes import Dtypes
from dfopt.documents.graph import Communication, Graph, Kernel, Tensor
from dfopt.documents.mapping import KernelMapping, Mapping
from dfopt.documents.placement import Placement
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.documents.system import Memory, System
from dfopt.errors import Infeasible
from dfopt.fusion.blocks import restrict, stage_tables
from dfopt.fusion.partitioning import IntraChipLimits, most_alive
from dfopt.judge import case as judged
from dfopt.judge import evaluate
from dfopt.judge import ledger as judge
from dfopt.judge.amounts import amounts_of_stage
from dfopt.physics.states import KINDS, LABELS, STATE_OF, Held, Kind
from dfopt.setting.instance import Setting
from dfopt.setting.plans import asked_plans
from dfopt.terms.bounds import PlanBounds
from dfopt.terms.chip import chip_of
from dfopt.terms.rules.held import waits
from dfopt.terms.step import ledger

PLAIN = Assumptions(execution="dataflow", overlap="perfect", compute_utilization=0.5)
SCHEDULES = ("one_f_one_b", "gpipe")


def machine(*sizes: int, dram: float | None = None) -> System:
    return System.model_validate(
        {
            "name": "m",
            "chip": {
                "name": "c", "tiles": 8, "peak": 1000.0, "sram": {"capacity": 1e9},
                "dram": {"bandwidth": 100.0, "capacity": dram},
            },
            "network": [
                {"name": name, "topology": "ring", "size": size, "link_bandwidth": 100.0}
                for name, size in zip("xy", sizes, strict=False)
            ],
        }
    )  # fmt: skip


@st.composite
def pipelines(draw: st.DrawFn) -> World:
    """Layers, and kernels before and after them, that all keep tensors for their backward pass."""
    kernels = [
        Kernel(name=f"{runs}_{pass_}", op="elementwise", m=draw(st.integers(1, 9)), n=3, layer=runs, pass_=pass_)
        for runs in (None, "first", "last")
        for pass_ in ("forward", "backward")
    ]
    tensors = [Tensor(src=f"{runs}_forward", dst=f"{runs}_backward") for runs in (None, "first", "last")]
    graph = layered(12, kernels, batch=6, tensors=tensors)
    system, rules = machine(draw(st.integers(1, 4))), PLAIN.with_(schedule=draw(st.sampled_from(SCHEDULES)))
    plans, _ = asked_plans(graph, system, Request(), rules)
    return World(graph, system, draw(st.sampled_from(plans)), rules)


@st.composite
def mapped(draw: st.DrawFn, drawn_worlds: st.SearchStrategy[World]) -> tuple[World, Mapping]:
    """A world and any mapping whose tensors run forward inside a stage."""
    world = draw(drawn_worlds)
    graph, plan = world.graph, world.plan
    sharding = draw(shardings(graph, plan, world.assumptions))
    drawn = graph.networkx()
    places: dict[str, tuple[int, int]] = {}
    for name in nx.topological_sort(drawn):
        kernel = graph.kernels[graph.index()[name]]
        stage = graph.kind_of(kernel) if graph.folded else draw(st.integers(0, plan.stages - 1))
        before = [places[one][1] for one in drawn.predecessors(name) if places[one][0] == stage]
        places[name] = stage, max([draw(st.integers(0, 2)), *before])
    kernels = [
        KernelMapping(name=one.name, sharding=sharding[one.name], stage=places[one.name][0],
                      partition=places[one.name][1])
        for one in graph.kernels
    ]  # fmt: skip
    return world, Mapping(graph=graph.name, system=world.system.name, plan=plan, kernels=tuple(kernels))


def optimisers(world: World, mapping: Mapping) -> Iterator[Held]:
    """The optimiser's books, with what waits between partitions as the fusion counts it."""
    graph, chosen = world.graph, world.assumptions
    sharded = shard(world.instance, {one.name: one.sharding for one in mapping.kernels})
    stage_k = np.array([one.stage for one in mapping.kernels])
    partition_k = np.array([one.partition for one in mapping.kernels])
    states, alive = {}, {}
    for number in set(stage_k.tolist()):
        mine = np.flatnonzero(stage_k == number)
        part = restrict(sharded, mine)
        states[number] = ledger.sharded_states(world.instance.setting, part)
        saved = chosen.gradients == "exact" and graph.trains
        limits = SimpleNamespace(saved_in_dram=saved)
        tables = stage_tables(part, chip_of(world.system, chosen))
        alive[number] = most_alive(tables, cast(IntraChipLimits, limits), partition_k[mine])
    for stage in world.instance.pipeline:
        books = ledger.held(world.instance, stage, states)
        apart = waits(world.instance.setting)
        books["dram"]["activations"] += apart * max(float(alive.get(number, 0.0)) for number, _ in stage.runs)
        yield {tier: {name: size for name, size in held.items() if size} for tier, held in books.items()}


def case_of(world: World, mapping: Mapping) -> judged.Case:
    """The mapping as the evaluator sees it."""
    return judged.build(mapping, world.graph, world.system, world.assumptions)


def narrow(world: World) -> World:
    """The same world, whose weight updates take a byte for an element."""
    types = world.graph.dtypes or Dtypes()
    return replace(world, graph=world.graph.model_copy(update={"dtypes": types.model_copy(update={"saved": "fp8"})}))


TRAINING = worlds(roomy=True, zero=True, trains=True)
WORLDS = {
    "any": st.one_of(worlds(roomy=True, zero=True), pipelines()),
    "kernels say what they keep": keeping(st.one_of(TRAINING, pipelines())),
    "products take a type of their own": keeping(TRAINING).map(narrow),
}


@pytest.mark.parametrize("of", WORLDS)
@given(data=st.data())
def test_both_books_are_equal_and_none_is_below_the_bound(of: str, data: st.DataObject) -> None:
    """What is refused before anything is solved fits under no sharding; what a mapping holds is never refused."""
    world, mapping = data.draw(mapped(WORLDS[of]))
    case, most = case_of(world, mapping), 0.0
    for rank, mine in zip(case.ranks, optimisers(world, mapping), strict=True):
        theirs = judge.held(case, rank)
        assert theirs.get("dram", {}) == pytest.approx(mine["dram"], rel=1e-12, abs=1e-12)
        size = math.fsum(mine["dram"].values())
        parts = judge.memory(judge.entries(case, rank, partial(amounts_of_stage, case)))
        assert parts.total == pytest.approx(size, rel=1e-9, abs=1e-9)
        assert min(dict(parts).values()) >= -1e-9 * (1 + size)
        most = max(most, size)
    setting = Setting(world.graph, with_dram(world.system, most * (1 + 1e-9) + 1e-9), world.assumptions)
    PlanBounds(setting).check_dram(setting.under(world.plan))


@share(0.5)
@given(mapped(TRAINING))
def test_a_state_has_the_bytes_per_parameter_of_the_assumption_that_it_names(drawn: tuple[World, Mapping]) -> None:
    """For layers and tables, and whatever ZeRO shares out of it; all other states are as without it."""
    world, mapping = drawn
    stated = world.assumptions.all_reduce_passes  # any number of the assumptions
    each = {"part": "optimizer", "label": "averages", "trained": True}
    states = [
        Kind(f"{name}{level}", of, shared_from=level, per_parameter=per, **each)
        for of in ("parameters", "table parameters")
        for level in (None, 1, 3)
        for name, per in ((f"averages of {of}", "all_reduce_passes"), (f"bytes of {of}", None))
    ]
    before = [judge.held(case, rank) for case in [case_of(world, mapping)] for rank in case.ranks]
    with patch.object(ledger, "KINDS", (*KINDS, *states)), patch.object(judge, "KINDS", (*KINDS, *states)):
        case = case_of(world, mapping)
        for rank, books, old in zip(case.ranks, optimisers(world, mapping), before, strict=True):
            dram = judge.held(case, rank).get("dram", {})
            assert dram == pytest.approx(books["dram"], rel=1e-12, abs=1e-12)
            assert {name: size for name, size in dram.items() if " of " not in name} == old.get("dram", {})
            for bytes_ in [name for name in dram if name.startswith("bytes")]:
                assert dram[bytes_.replace("bytes", "averages")] == pytest.approx(stated * dram[bytes_])


def test_entries_of_one_item_have_one_name() -> None:
    """A placement moves an item, and offloading books it under its name."""
    pairs = {(kind.item, kind.name) for kind in KINDS if kind.item is not None}
    names = {"experts": "weights"}  # of the same state as other weights
    assert len(pairs) == len(STATE_OF) and all(STATE_OF[item] == names.get(item, item) for item in STATE_OF)


@share(0.5)
@given(mapped(worlds(roomy=True, zero=True)), st.sampled_from([0.999, 1.001]))
def test_the_fullest_stage_decides(drawn: tuple[World, Mapping], part: float) -> None:
    """A mapping breaks the limit of the DRAM exactly when the sum over some stage's states exceeds it."""
    world, mapping = drawn
    most = max(sum(books["dram"].values()) for books in optimisers(world, mapping))
    if most == 0:
        return
    system = with_dram(world.system, part * most)
    violations = evaluate(mapping, world.graph, system, world.assumptions).violations
    assert any("of DRAM per chip" in one for one in violations) == (part < 1)


# -- tables ------------------------------------------------------------------------------------------

ROWS = Communication(kind="all_to_all", bytes=8, over="all")
SIX = Plan(tp=2, dp=3, tp_dims=("x",), dp_dims=("y",))


def table(**more: Any) -> Kernel:
    return Kernel(**{"name": "lookup", "op": "elementwise", "m": 4, "n": 4, "resident_bytes": 480.0, **more})


def books_of(*kernels: Kernel, **rules: Any) -> dict[str, float]:
    """What a chip of 2 shards x 3 copies holds."""
    graph = Graph(name="g", batch=3, kernels=kernels)
    places = tuple(KernelMapping(name=one.name, partition=at) for at, one in enumerate(kernels))
    mapping = Mapping(graph="g", system="m", plan=SIX, kernels=places)
    return evaluate(mapping, graph, machine(2, 3), PLAIN.with_(**rules)).stages[0].states["dram"]


def test_copies_that_fetch_no_rows_hold_the_whole_table() -> None:
    assert books_of(table()) == {"tables": 240.0}
    assert books_of(table(communications=(ROWS,))) == {"tables": 80.0}
    assert books_of(table(communications=(ROWS,), resident_over=("shards",))) == {"tables": 240.0}
    assert books_of(table(resident_over=())) == {"tables": 480.0}


def test_a_table_spread_over_copies_that_fetch_nothing_is_refused() -> None:
    with pytest.raises(ValidationError, match="no communication of the kernel fetches what another copy holds"):
        table(resident_over=("shards", "copies"))


def test_tables_that_are_trained_have_an_optimizer() -> None:
    """Of 240 parameters, by default as much for each as for a weight; a gradient where a backward kernel holds one."""
    back = table(name="back", pass_="backward", communications=(ROWS,))
    assert books_of(table(), back) == {"tables": 240.0, "optimizer": 12 * 240 / 2, "gradients": 80.0}
    rows = table(communications=(ROWS,), resident_optimizer_bytes=36.0)
    assert books_of(rows, back.model_copy(update={"resident_bytes": 0.0})) == {"tables": 80.0, "optimizer": 6.0}
    assert "optimizer" not in books_of(table(), back, gradients="dfmodel")
    assert books_of(table(resident_optimizer_bytes=36.0)) == {"tables": 240.0}  # nothing is trained


@pytest.mark.parametrize(
    ("more", "size"), [({}, 120.0), ({"communications": (ROWS,)}, 40.0), ({"resident_over": ()}, 240.0)]
)
def test_tables_have_parameters_too(more: dict[str, Any], size: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state of `table parameters` has two bytes of table for each, on as many chips as hold parts; in both books."""
    for module in (ledger, judge):
        monkeypatch.setattr(module, "KINDS", (*KINDS, Kind("averages", "table parameters", "optimizer", "averages")))
    assert books_of(table(**more)) == {"tables": 2 * size, "averages": size}
    instance = Setting(Graph(name="g", batch=3, kernels=(table(**more),)), machine(2, 3), PLAIN).under(SIX)
    states = {0: ledger.sharded_states(instance.setting, shard(instance, {"lookup": "none"}))}
    assert ledger.held(instance, instance.pipeline[0], states)["dram"] == {"tables": 2 * size, "averages": size}


def test_a_stage_that_is_too_full_is_told_state_by_state() -> None:
    graph = Graph(name="g", batch=3, kernels=(table(), table(name="back", pass_="backward")))
    setting = Setting(graph, machine(2, 3, dram=1000.0), PLAIN)
    with pytest.raises(Infeasible) as refused:
        PlanBounds(setting).check_dram(setting.under(SIX))
    assert str(refused.value.report) == (
        "the heaviest stage needs at least 1.92e-06 GB of DRAM per chip (gradients 2.4e-07 GB, optimizer state"
        " 1.44e-06 GB, tables and matrices 2.4e-07 GB), the chip has 1e-06 GB: short by 9.2e-07 GB; levers: more tensor"
        " or pipeline parallelism, more chips, phase forward instead of training, a smaller"
        " optimizer_bytes_per_parameter"
    )


def test_another_state_is_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the tables in a second memory: in both books, in the score, in the limits and in the refusal."""
    copy = Kind("copies", "tables", "weights", "copies of tables", "fewer copies", item="caches")
    for module in (ledger, judge):
        monkeypatch.setattr(module, "KINDS", (*KINDS, copy))
    monkeypatch.setitem(LABELS, copy.name, copy.label)
    memories = (Memory(name="HBM", bandwidth=1e12), Memory(name="host", bandwidth=1e12, capacity=200.0))
    system = machine(2, 3)
    chip = system.chip.model_copy(update={"dram": None, "memories": memories})
    system = system.model_copy(update={"chip": chip})
    graph, placement = Graph(name="g", batch=3, kernels=(table(),)), Placement(caches="host")
    plan = SIX.model_copy(update={"placement": placement})
    mapping = Mapping(graph="g", system="m", plan=plan, kernels=(KernelMapping(name="lookup", partition=0),))
    score = evaluate(mapping, graph, system, PLAIN)
    assert score.stages[0].states == {"HBM": {"tables": 240.0}, "host": {"copies": 240.0}}
    assert score.violations == ("stage 0 needs 240 B of HOST per chip, the chip has 200 B",)
    instance = Setting(graph, system, PLAIN).under(plan)
    sharded = shard(instance, {"lookup": "none"})
    with pytest.raises(Infeasible, match=r"of HOST per chip \(copies of tables 2.4e-07 GB\), .* fewer copies"):
        ledger.dram_left(instance, {0: ledger.sharded_states(instance.setting, sharded)})
