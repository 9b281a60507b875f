"""Types of gradients in exchange, main weights, moments and products: bytes and seconds by hand."""

from __future__ import annotations

from typing import Any

import pytest

import dfopt as df
from dfopt.documents.dtypes import FORMATS, Dtypes, Peaks, Trained
from dfopt.documents.graph import Graph
from dfopt.documents.mapping import Mapping
from dfopt.judge import evaluate
from dfopt.library import as_system
from dfopt.physics.collectives import Collective
from dfopt.physics.network import communication_seconds

PARAMETERS, COPIES = 12 * 7_077_888, 8
RULES = df.Assumptions(optimizer_step="adam", overlap="none")


def graph(**more: Any) -> Graph:
    return df.load_graph("gpt2-small", mode="training", batch=8, **more)


@pytest.fixture(scope="module")
def mapping() -> Mapping:
    return df.optimize(graph(), "a100-8", assumptions=RULES, tp=1, pp=1, zero=1, sensitivity=False).mapping


def scored(mapping: Mapping, rules: df.Assumptions = RULES, **trained: Any) -> df.Score:
    return evaluate(mapping, graph(trained=trained) if trained else graph(), as_system("a100-8"), rules)


def test_gradients_are_exchanged_in_their_own_type(mapping: Mapping) -> None:
    """A reduce-scatter of the gradients in the type that is said, then an all-gather of the weights in bf16."""
    system = as_system("a100-8")

    def once(kind: Collective, word: float) -> float:
        return 12 * communication_seconds(kind, word * PARAMETERS / 12, ["nvlink"], system, RULES)

    gathered = once(Collective.ALL_GATHER, 2.0)
    for said, word in ((None, 2.0), ("fp32", 4.0), ("bf16", 2.0), ("fp8", 1.0)):
        score = scored(mapping, reduced=said) if said else scored(mapping)
        exchanged = once(Collective.REDUCE_SCATTER, word) + gathered
        assert score.gradient_reduction_s == pytest.approx(exchanged, rel=1e-9)
        assert score.stages[0].states["dram"]["gradients"] == 4 * PARAMETERS  # held as main_gradients says


def test_gradients_are_added_to_in_the_type_that_they_are_held_in(mapping: Mapping) -> None:
    """Read and written in fp32 instead of bf16, by every weight update: four bytes more of each parameter."""
    moved = {}
    for way in (None, "accumulated", "held"):
        rules = df.Assumptions(optimizer_step="adam", overlap="none", gradient_traffic=way)
        moved[way] = sum(one.memory_s for one in scored(mapping, rules).partitions)
    more = 4 * PARAMETERS / 12 / as_system("a100-8").chip.fastest.bandwidth
    assert moved[None] == moved["accumulated"] == pytest.approx(moved["held"] - more, rel=1e-9)


@pytest.mark.parametrize(
    ("trained", "held", "weights"),
    [
        ({}, 12.0, 1),
        ({"main_weights": "fp32"}, 4 + 8, 1),
        ({"main_weights": "fp32", "moments": "fp32"}, 12.0, 1),
        ({"moments": "fp8"}, 4 + 2, 1),
        ({"main_weights": "fp16", "moments": "int8"}, 2 + 2, 1),
        ({"main_weights": "bf16", "moments": "bf16"}, 4.0, 2),  # the weights themselves, read and written
        ({"main_weights": "bf16"}, 8.0, 2),
    ],
)
def test_the_optimizer_holds_and_moves_what_its_types_say(
    mapping: Mapping, trained: dict[str, str], held: float, weights: int
) -> None:
    score, chip = scored(mapping, **trained), as_system("a100-8").chip
    mine = PARAMETERS / COPIES
    assert score.stages[0].states["dram"]["optimizer"] == held * mine
    moved = (2 * held + 2 + weights * 2) * mine  # state both ways, a gradient, weights
    seconds = score.optimizer_step_s
    assert seconds is not None
    compute = 11 * mine / (chip.peak_flops * (chip.compute_utilization or 1.0))
    assert seconds == pytest.approx(compute + moved / chip.fastest.bandwidth, rel=1e-9)


def test_weights_in_fp32_are_their_own_main_weights() -> None:
    wide = Dtypes(weights="fp32", activations="fp32", products="tf32")
    drawn = graph(dtypes=wide.model_dump(exclude_none=True), trained={"moments": "fp32"})
    found = df.optimize(drawn, "a100-8", assumptions="ideal", tp=1, pp=1, sensitivity=False)
    assert found.score.stages[0].states["dram"]["optimizer"] == 8 * PARAMETERS
    assert found.score.stages[0].states["dram"]["weights"] == 4 * PARAMETERS


def test_products_of_fp32_round_to_tf32_where_the_chip_has_it() -> None:
    """An A100 has 156 TFLOP/s in tf32 and 19.5 in fp32 (datasheet): products take an eighth, the rest as long."""
    seconds, rates = {}, {"bf16": "312 TFLOP/s", "fp32": "19.5 TFLOP/s"}
    for has, more in (("tf32", {"tf32": "156 TFLOP/s"}), ("fp32", dict[str, str]())):
        system = df.load_system("a100-8", {"chip.peak": rates | more})
        assert isinstance(system.chip.peak, Peaks)
        for products in (None, "tf32"):
            types = Dtypes(weights="fp32", activations="fp32", products=products)
            drawn = graph(dtypes=types.model_dump(exclude_none=True))
            rules = df.Assumptions(execution="kernel_by_kernel")
            found = df.optimize(drawn, system, assumptions=rules, tp=1, pp=1, sensitivity=False)
            seconds[has, products] = sum(one.compute_s for one in found.score.partitions)
            noted = any("has no tf32" in note for note in found.score.notes or ())
            assert noted == (products == "tf32" and has == "fp32")
    alone, fast = seconds["fp32", None], seconds["tf32", "tf32"]
    assert seconds["tf32", None] == seconds["fp32", "tf32"] == alone
    assert alone / 8 < fast < alone / 4  # elementwise kernels stay in fp32


def test_nothing_to_round_is_refused() -> None:
    with pytest.raises(
        df.DfoptError, match=r"dtypes\.products: found tf32, but nothing that a product takes is in fp32"
    ):
        graph(dtypes={"products": "tf32"})


@pytest.mark.parametrize("main", FORMATS)
def test_every_type_can_be_held(main: str) -> None:
    types = Trained.model_validate({"main_weights": main, "moments": main})
    copies = 0 if main == "bf16" else 1
    assert types.optimizer_bytes("bf16", 12.0) == float((copies + 2) * FORMATS[types.moments or "fp32"].bytes)


@pytest.mark.parametrize("said", [{"main_gradients": "bf16"}, {"trained": {"moments": "fp8"}}])
def test_a_forward_pass_has_no_types_of_training(said: dict[str, Any]) -> None:
    with pytest.raises(df.DocumentError, match="found it of a forward pass"):
        df.load_graph("gpt2-small", **said)
    assert df.load_graph("gpt2-small", mode="training", **said).trains
