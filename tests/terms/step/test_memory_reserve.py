"""A share of a chip's memory is not the model's: search, messages and judge keep to the rest, each by itself."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

import dfopt as df
from dfopt.cli import app
from dfopt.documents.parts import ChipPart
from dfopt.documents.zoo import find, zoo
from dfopt.errors import Infeasible

GRAPH = df.load_graph("gpt2-small")


def machine(capacity: float, **reserve: float) -> df.System:
    fields = {"chip.dram.capacity": f"{capacity} B", "chip.memory_reserve": reserve or None}
    return df.load_system("h100-8:1", fields)


def solved(system: df.System, reserve: float | None = None, graph: df.Graph = GRAPH) -> df.Result:
    chosen = df.Assumptions(memory_reserve=reserve, execution="kernel_by_kernel")
    return df.optimize(graph, system, assumptions=chosen, sensitivity=False)


@pytest.fixture(scope="module")
def held() -> float:
    """Bytes that the model needs."""
    return solved(machine(80e9)).score.stages[0].dram_bytes


def test_search_and_judge_keep_to_what_is_left(held: float) -> None:
    fits, short = held / 0.9 * (1 + 1e-4), held / 0.9 * (1 - 1e-4)
    result = solved(machine(fits, serving=0.1, training=0.5))
    assert result.assumptions.memory_reserve == 0.1 and not result.score.violations
    with pytest.raises(Infeasible, match=r"GB, 10 % is reserved\): short by"):
        solved(machine(short, serving=0.1))

    def violations(system: df.System, **assumed: float) -> tuple[str, ...]:
        chosen = df.Assumptions(execution="kernel_by_kernel", **assumed)
        return df.evaluate(result.mapping, GRAPH, system, chosen).violations

    assert "10 % is reserved" in violations(machine(short, serving=0.1))[0]
    assert not violations(machine(fits, serving=0.1)) and not violations(machine(short, training=0.1))
    assert not violations(machine(short, serving=0.1), memory_reserve=0.0)


def test_an_assumption_goes_before_the_chip(held: float) -> None:
    assert solved(machine(held * 1.001, serving=0.1), 0.0).assumptions.memory_reserve == 0.0
    with pytest.raises(Infeasible, match="20 % is reserved"):
        solved(machine(held / 0.85, serving=0.1), 0.2)
    assert solved(machine(held / 0.75), 0.2).assumptions.memory_reserve == 0.2


def test_training_has_a_share_of_its_own() -> None:
    graph = df.load_graph("gpt2-small", mode="training", batch=8)
    system = machine(80e9, serving=0.1, training=0.05)
    assert solved(system, graph=graph).assumptions.memory_reserve == 0.05


def test_profiles_of_other_programs_have_none() -> None:
    assert df.profile("dfmodel").memory_reserve == 0.0 and df.profile("default").memory_reserve is None
    result = df.optimize(GRAPH, "h100-8:1", assumptions="dfmodel", sensitivity=False)
    assert result.assumptions.memory_reserve == 0.0


def test_gpus_of_the_zoo_say_theirs() -> None:
    """Those that run vLLM's gpu_memory_utilization, 0.9 of what there is; DFModel's H100 and other chips have none."""
    for chip in (ChipPart.load(find("chips", name)) for name in zoo("chips")):
        own = chip.memory_reserve
        if own is not None:
            assert chip.dram is not None and chip.dram.capacity is not None
            assert own.serving == pytest.approx(0.1 + own.training), chip.name
            assert own.training * chip.dram.capacity == pytest.approx(3.58 * 2**30, rel=0.07), chip.name
        gpu = chip.execution == "kernel_by_kernel" and chip.name.startswith(("NVIDIA", "AMD")) and chip.dram is not None
        assert (own is not None) == gpu, chip.name


@pytest.mark.parametrize(
    "words",
    [
        ("deepseek-v3", "h100-8", "--batch", "1", "--context", "4096"),  # InternLM/lmdeploy#2960: out of memory
        ("kimi-k2", "h200-8", "--batch", "1", "--context", "131072"),  # MoonshotAI/Kimi-K2: 16 of them are the least
    ],
)
def test_what_runs_out_of_memory_does_not_fit(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, ["solve", *words, "--phase", "decode", "-q", "--tp", "8", "--no-sensitivity"])
    assert done.exit_code == 4 and "% is reserved): short by" in done.stderr
