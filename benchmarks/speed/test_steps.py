"""The steps of a solve over several rounds: ``pytest benchmarks/speed`` (pytest-benchmark)."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from cases import BY_NAME, Case, shard

import dfopt as df
from dfopt.documents.assumptions import profile
from dfopt.documents.graph import Graph
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.documents.system import System
from dfopt.fusion import intrachip
from dfopt.fusion.blocks import StageTables, stage_tables
from dfopt.fusion.classes import interchangeable
from dfopt.fusion.columns import Columns
from dfopt.fusion.downsets import Lattice, down_sets
from dfopt.fusion.lattice import ShortestPath
from dfopt.fusion.one_block import OneBlock
from dfopt.fusion.partitioning import IntraChipLimits, objective
from dfopt.judge import evaluate
from dfopt.physics.pipeline import resolve
from dfopt.setting.instance import Setting
from dfopt.setting.plans import asked_plans
from dfopt.sharding import interchip
from dfopt.terms.chip import chip_of

SMALL = ["gpt-forward", "gpt-training", "gpt-2-layers", "gpt-96-layers", "sp-50"]  # few enough down-sets to list
WIDE = ["moe-8", "moe-64", "heads-96", "dlrm-a", "sp-200"]
QUICK = ["gpt-forward", "gpt-training", "gpt-training-cycle", "gpt-96-layers", "moe-8", "moe-64", "dlrm-26"]


class Ready:
    """One case up to its priced stage."""

    def __init__(self, case: Case) -> None:
        self.graph: Graph = case.graph()
        self.system: System = case.system()
        chosen = profile("default").with_(**case.assumptions)
        chip = self.system.chip
        self.assumptions = resolve(chosen, chip.execution, chip.compute_utilization)
        whole = self.assumptions.with_(network_dims="whole")
        legal, _ = asked_plans(self.graph, self.system, Request.of(tp=case.tp, pp=1, zero=(0,)), whole)
        self.plan: Plan = legal[0]
        self.rule = self.assumptions.forward_backward if self.graph.trains else "shared"
        self.tables: StageTables = self.price()
        self.limits = IntraChipLimits(p_max=case.p_max or self.tables.kernels, forward_backward=self.rule)
        self.lattice: Lattice | None = down_sets(self.tables, self.rule, 20_000)
        start = intrachip.greedy(self.tables, self.limits)
        assert start is not None
        self.known = objective(self.tables, start)

    def price(self) -> StageTables:
        """Sharding tables, the sharding, and the prices of the stage."""
        instance = Setting(self.graph, self.system, self.assumptions).under(self.plan)
        tables = interchip.build(instance, {})
        inter = interchip.optimize_interchip(instance.setting, tables)
        sharded = shard(instance, inter.sharding)
        return stage_tables(sharded, chip_of(self.system, self.assumptions))

    def search(self) -> ShortestPath:
        """A finished shortest path."""
        assert self.lattice is not None
        search = ShortestPath(self.tables, self.limits, self.lattice, self.known)
        search.run()
        return search


@cache
def ready(name: str) -> Ready:
    return Ready(BY_NAME[name])


@pytest.mark.parametrize("name", [*SMALL, *WIDE])
def test_tables(benchmark: Any, name: str) -> None:
    benchmark(ready(name).price)


@pytest.mark.parametrize("name", [*SMALL, *WIDE])
def test_enumerate(benchmark: Any, name: str) -> None:
    case = ready(name)
    found = benchmark(down_sets, case.tables, case.rule, 20_000)
    assert (found is not None) == (name in SMALL)


@pytest.mark.parametrize("name", SMALL)
def test_price(benchmark: Any, name: str) -> None:
    assert benchmark(ready(name).search).path


@pytest.mark.parametrize("name", SMALL)
def test_formulate_columns(benchmark: Any, name: str) -> None:
    search = ready(name).search()
    assert benchmark(Columns, search).model.columns


@pytest.mark.parametrize("name", WIDE)
def test_formulate_one_block(benchmark: Any, name: str) -> None:
    case = ready(name)
    assert benchmark(OneBlock, case.tables, case.limits, interchangeable(case.tables)).model.columns


@pytest.mark.parametrize("name", QUICK)
def test_solve(benchmark: Any, name: str) -> None:
    case = BY_NAME[name]
    graph, system = case.graph(), case.system()
    chosen = profile("default").with_(**case.assumptions)

    def solve() -> float:
        return df.solve(graph, system, assumptions=chosen, tp=case.tp, pp=1, zero=0, p_max=case.p_max).level_gap

    assert benchmark.pedantic(solve, rounds=3) < 0.02


@pytest.mark.parametrize("name", ["gpt-training", "gpt-96-layers", "moe-64"])
def test_judge(benchmark: Any, name: str) -> None:
    case = BY_NAME[name]
    graph, system = case.graph(), case.system()
    result = df.solve(graph, system, assumptions=profile("default").with_(**case.assumptions), tp=case.tp, pp=1, zero=0)
    score = benchmark(evaluate, result.mapping, graph, system, result.assumptions)
    assert score.feasible
