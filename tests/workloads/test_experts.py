"""Experts: what is held, read and computed; who chooses them; and measured steps of models that have them."""

from __future__ import annotations

import io
import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from rich.console import Console
from typer.testing import CliRunner

import dfopt as df
from dfopt.cli import app
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.experts import Experts
from dfopt.documents.graph import Graph, Kernel
from dfopt.documents.mapping import KernelMapping, Mapping
from dfopt.documents.plan import Plan
from dfopt.documents.routing import Routing
from dfopt.errors import GraphError
from dfopt.judge import evaluate
from dfopt.machines.compose import load_system
from dfopt.physics import ops
from dfopt.physics.ops import flop, legal_schemes, weight_elements
from dfopt.show.describe import report
from dfopt.show.report import result_report
from dfopt.workloads import WORKLOADS, load_graph
from dfopt.workloads.decoder import DecoderParameters, counts

build = WORKLOADS["decoder"]
SMALL: dict[str, Any] = {
    "hidden": 30, "heads": 6, "kv_heads": 2, "head_dim": 5, "ffn": 40, "vocab": 100, "seq": 12, "layers": 3,
}  # fmt: skip
CHIP = load_system("h100-8")


@pytest.mark.parametrize(("count", "chosen", "tokens"), [(3, 1, 3), (4, 2, 2), (4, 3, 2), (3, 3, 2)])
def test_touched_experts_are_those_of_every_choice(count: int, chosen: int, tokens: int) -> None:
    """Every token chooses any set of experts, each as likely."""
    sets = list(itertools.combinations(range(count), chosen))
    every = [len(set().union(*choices)) for choices in itertools.product(sets, repeat=tokens)]
    assert Routing().touched(count, chosen, tokens) == pytest.approx(sum(every) / len(every))


@given(st.integers(1, 300), st.data())
def test_more_tokens_touch_more(count: int, data: st.DataObject) -> None:
    chosen, tokens = data.draw(st.integers(1, count)), data.draw(st.integers(1, 1000))
    few, more = (Routing().touched(count, chosen, n) for n in (tokens, tokens + 1))
    assert chosen * (1 - 1e-12) <= few <= more * (1 + 1e-12) <= count * (1 + 1e-9)
    assert Experts(count=count, chosen=chosen, touched=few)


def test_a_grouped_product_reads_what_is_touched_and_holds_all() -> None:
    experts = Experts(count=8, chosen=2, touched=3.5)
    kernel = Kernel(name="up", op="gemm", m=2 * 64, k=32, n=4, experts=experts)
    graph = Graph(name="g", kernels=(kernel,), inputs=(), outputs=())
    plan = Plan()
    placed = (KernelMapping(name="up", sharding="none", stage=0, partition=0, tiles=CHIP.chip.tiles),)
    one = CHIP.model_copy(update={"network": ()})
    score = evaluate(
        Mapping(graph="g", system="h", plan=plan, tile_count=1, kernels=placed),
        graph,
        one,
        Assumptions(execution="dataflow"),
    )
    expert = 64 * 32 * 2  # bytes
    assert score.partitions[0].dram_bytes == 3.5 * expert
    assert score.stages[0].states["dram"] == {"weights": 8 * expert}
    assert score.partitions[0].sram_bytes == expert  # one after another
    assert score.partitions[0].flop == 2 * 2 * 64 * 32 * 4


def test_a_layer_of_experts() -> None:
    graph = build(**SMALL, experts=8, chosen=2, microbatch=1)
    kernels = {kernel.name: kernel for kernel in graph.kernels}
    touched = Routing().touched(8, 2, 12)
    assert "uniform routing: of 8 experts an evaluation reads " in graph.description
    for name, shape in (("Gate_Proj", (80, 30, 12)), ("Up_Proj", (80, 30, 12)), ("Down_Proj", (30, 80, 12))):
        kernel = kernels[name]
        assert (kernel.m, kernel.k, kernel.n) == shape
        assert kernel.experts == Experts(count=8, chosen=2, touched=touched)
        assert weight_elements(kernel) == 8 * 40 * 30 and flop(kernel) == 2 * 2 * 40 * 30 * 12
    assert (kernels["Router"].m, kernels["Router"].k) == (8, 30)
    assert "none" in legal_schemes(kernels["Router"], 2, Assumptions())
    assert "none" not in legal_schemes(kernels["Up_Proj"], 2, Assumptions())
    shares = next(t for t in graph.tensors if t.src == "Top_K")
    assert (shares.dst, shares.bytes) == ("Act_Mul", 2 * 12 * 2)


def test_one_expert_of_one_is_a_dense_layer_with_a_router() -> None:
    dense, one = build(**SMALL), build(**SMALL, experts=1)
    rest = [
        k.model_copy(update={"experts": None, "module": k.module and k.module.replace("experts", "dense")})
        for k in one.kernels
        if k.name not in ("Router", "Top_K")
    ]
    assert rest == list(dense.kernels)


def test_the_count_of_parameters_is_that_of_the_graph() -> None:
    sizes = DecoderParameters(**SMALL, experts=8, chosen=2)
    graph = build(**SMALL, experts=8, chosen=2, ends=True)
    weights = sum(weight_elements(k) * graph.times_of(k) for k in graph.kernels)
    norms = 30 * (2 * 3 + 1)
    assert counts(sizes).parameters == weights + norms + 100 * 30
    looked_up = 100 * 30  # the table: a token is multiplied with none of it
    assert counts(sizes).parameters - counts(sizes).active == 3 * 3 * 6 * 40 * 30 + looked_up


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"experts": 4, "chosen": 5}, "found 5 experts for a token, of 4"),
        ({"chosen": 2}, "found 2 experts for a token, of 1"),
        ({"routing": "uniform"}, "found a routing of a model without experts"),
        (
            {"experts": 4, "routing": {"law": "counts", "counts": [1.0, 2.0]}},
            "found 2 counts, 2 of them above 0, for 4",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        build(**SMALL | changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"op": "matmul"}, "found experts of a matmul"),
        ({"op": "elementwise", "k": 1}, "found experts of a elementwise"),
    ],
)
def test_only_products_with_weights_and_their_gradients_have_experts(changes: dict[str, Any], said: str) -> None:
    experts = Experts(count=8, chosen=2, touched=3.5)
    with pytest.raises(ValidationError, match=said):
        Kernel(**{"name": "a", "op": "gemm", "m": 4, "k": 4, "n": 4, "experts": experts, **changes})
    with pytest.raises(ValidationError, match="of which a token chooses 2"):
        Experts(count=8, chosen=2, touched=1.5)
    with pytest.raises(ValidationError, match="of which a token chooses 2"):
        Experts(count=8, chosen=2, touched=8.5)


@pytest.mark.parametrize(
    ("routing", "read"),
    [
        ("uniform", 8 * (1 - 0.75**12)),
        ("balanced", 8.0),
        ({"law": "counts", "counts": (9.0,) + (1.0,) * 7}, 1 + 7 * (1 - (6 / 7) ** 12)),
    ],
)
def test_a_routing_says_what_is_read(routing: Any, read: float) -> None:
    graph = build(**SMALL, experts=8, chosen=2, routing=routing)
    experts = next(kernel.experts for kernel in graph.kernels if kernel.experts)
    assert experts.touched == pytest.approx(read)
    assert experts.routing == (None if routing == "uniform" else Routing.model_validate(routing))
    assert f"{Routing.model_validate(routing).words} routing: of 8 experts an evaluation reads" in graph.description


def test_every_result_says_which_routing_it_assumes(tmp_path: Path) -> None:
    graph = build(**SMALL, name="small", experts=8, chosen=2, routing="power_law(1.2)")
    result = df.optimize(graph, CHIP.model_copy(update={"network": ()}), sensitivity=False)
    read = Routing.model_validate("power_law(1.2)").touched(8, 2, 12)
    result.dump(tmp_path / "r.json")
    judged = CliRunner().invoke(app, ["score", str(tmp_path / "r.json")], env={"COLUMNS": "400"}).output
    for shown in (repr(result), _printed(result), _printed(graph), result_report(result), judged):
        assert f"power_law(1.2): 2 of 8 experts for a token, {read:.4g} read in an evaluation" in shown
    again = df.Result.from_data(result.to_data())
    assert again.graph == graph and df.verify(again).ok


def test_copies_of_experts_are_said_and_checked(tmp_path: Path) -> None:
    """Over two chips they cost weights and take load from the busiest; the rest of a result knows of them too."""
    asked = {"ep": 2, "sensitivity": False, "assumptions": df.Assumptions(sharding_objective="joint")}
    results = [
        df.optimize(build(**SMALL, name="small", experts=8, chosen=2, routing=routing), CHIP, **asked)
        for routing in ("power_law(2.5)", "power_law(2.5) + 2")
    ]
    held = [one.score.stages[0].states["dram"]["weights"] for one in results]
    assert held[1] > held[0]
    again = df.Result.from_data(results[1].to_data())
    assert again == results[1] and df.verify(again).ok
    words = "power_law(2.5) + 2 redundant: 2 of 8 experts for a token"
    assert words in repr(again) and words in _printed(again)


def test_copies_of_experts_are_for_serving() -> None:
    with pytest.raises(ValidationError, match="found 2 copies of experts in a training step"):
        build(**SMALL, experts=8, chosen=2, mode="training", routing="uniform + 2")
    trained = build(**SMALL, experts=8, chosen=2, mode="training")
    (experts,) = {kernel.experts for kernel in trained.kernels if kernel.experts}
    copied = experts.model_copy(update={"routing": Routing.model_validate("uniform + 2")})
    kernels = [k.model_copy(update={"experts": copied}) if k.experts else k for k in trained.kernels]
    with pytest.raises(GraphError, match="copies of experts that train, whose gradients would have to be added up"):
        Graph(**{**dict(trained), "kernels": kernels})


def _printed(document: Any) -> str:
    console = Console(width=400, record=True, file=io.StringIO())
    console.print(report(document, detail=["all"]))
    return console.export_text()


def test_a_training_step_holds_gradients_of_all_experts_and_adds_to_those_that_are_touched() -> None:
    graph = build(**SMALL, experts=8, chosen=2, mode="training", microbatch=2, batch=8)
    kernels = {kernel.name: kernel for kernel in graph.kernels}
    expert, held = 40 * 30, 8 * 40 * 30
    touched = Routing().touched(8, 2, 24)
    for name in ("Gate_Proj", "Up_Proj", "Down_Proj"):
        back, update = kernels[f"{name}_bwd"], kernels[f"{name}_bwd_weight_update"]
        assert back.experts == update.experts == kernels[name].experts
        assert ops.weights_read(back) == pytest.approx(touched * expert)
        assert ops.gradient_elements(update) == held and ops.gradients_at_once(update) == expert
        assert ops.gradients_added(update) == pytest.approx(touched * expert)
        assert flop(back) == flop(update) == flop(kernels[name])
    assert (kernels["Router_bwd"].m, kernels["Router_bwd"].k) == (30, 8)
    assert ops.gradient_elements(kernels["Router_bwd_weight_update"]) == 8 * 30
    shares = 24 * 2 * graph.word_bytes  # of every token and expert that it chooses, as in the forward pass
    into = {t.src: graph.bytes_of(t) for t in graph.tensors if t.dst == "Top_K_bwd"}
    assert into == {"Act_Mul_bwd_shares": shares, "Top_K": 24 * 8 * graph.word_bytes}
    assert kernels["Top_K_bwd"].m == 8


def test_a_plain_mlp_of_experts_trains_too() -> None:
    graph = build(**SMALL, experts=8, chosen=2, mode="training", gated_mlp=False)
    reads = {name: {t.src for t in graph.tensors if t.dst == name} for name in ("Act_bwd_up", "Act_bwd_shares")}
    assert reads == {
        "Act_bwd_up": {"Down_Proj_bwd", "Up_Proj", "Top_K"},
        "Act_bwd_shares": {"Down_Proj_bwd", "Up_Proj"},
    }


def test_latent_and_shared_experts_train_too() -> None:
    """Both the experts and the gate of the shared ones send gradients to the kernel that chose them."""
    experts = {"kind": "moe", "experts": 8, "chosen": 2, "ffn": 40, "latent": 10, "shared": 25, "shared_gate": True}
    sizes = {"hidden": 30, "vocab": 100, "seq": 12, "mode": "training", "routing": "balanced"}
    layer = {"mixer": {"kind": "attention", "heads": 6, "head_dim": 5}, "feed_forward": experts}
    graph = WORKLOADS["stack"](**sizes, layers={"layer": layer}, sections=[{"layers": ["layer"]}])
    kernels = {kernel.name: kernel for kernel in graph.kernels}
    into = {t.src: graph.bytes_of(t) for t in graph.tensors if t.dst == "Top_K_bwd"}
    assert into == {"Act_Mul_bwd_shares": 12 * 2 * 2, "Shared_Act_Mul_bwd_shares": 12 * 2, "Top_K": 12 * 9 * 2}
    assert kernels["Up_Proj_bwd"].experts is not None
    assert ops.gradient_elements(kernels["Up_Proj_bwd_weight_update"]) == 8 * 40 * 10
    assert ops.gradient_elements(kernels["Shared_Up_Proj_bwd_weight_update"]) == 25 * 30
    assert ops.gradient_elements(kernels["Latent_Down_bwd_weight_update"]) == 10 * 30


def test_a_training_step_of_mixtral_holds_what_a_count_by_hand_gives() -> None:
    """Weights of 2 bytes, gradients of 4, optimizer states of 12, of every matrix of a layer, on one chip."""
    graph = load_graph("mixtral-8x7b", mode="training", seq=256, batch=1, ends=False)
    attention = 4096 * (4096 + 2 * 1024) + 4096 * 4096
    layer = attention + 8 * 3 * 4096 * 14336 + 8 * 4096
    dram = CHIP.chip.dram.model_copy(update={"capacity": 1e13})
    one = CHIP.model_copy(update={"network": (), "chip": CHIP.chip.model_copy(update={"dram": dram})})
    assume = Assumptions(optimizer_bytes_per_parameter=12.0, execution="kernel_by_kernel")
    result = df.optimize(graph, one, assumptions=assume, sensitivity=False)
    states = result.score.stages[0].states["dram"]
    assert (states["weights"], states["gradients"]) == (2 * 32 * layer, 4 * 32 * layer)
    assert states["optimizer"] == 12 * 32 * layer
