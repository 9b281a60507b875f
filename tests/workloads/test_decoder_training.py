"""A decoder's training step and its ends: FLOP, wiring, sizes, and what solves."""

from __future__ import annotations

from typing import Any

import pytest
from graph_parts import by_name, reads
from hypothesis import given
from hypothesis import strategies as st
from workload_checks import solved

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph
from dfopt.documents.strict_yaml import load_strict
from dfopt.documents.zoo import find, zoo
from dfopt.machines.compose import load_system
from dfopt.physics.ops import flop, weight_elements
from dfopt.search import solve
from dfopt.show.omissions import left_out
from dfopt.units import show_unit
from dfopt.workloads import WORKLOADS, load_graph
from dfopt.workloads.decoder import DecoderParameters, counts

# the sharding that is best by itself, with whole tokens
MEGATRON = Assumptions(sharding_objective="seconds", sequence_parallelism="none")

build = WORKLOADS["decoder"]

SMALL: dict[str, Any] = {
    "hidden": 24, "heads": 6, "kv_heads": 2, "head_dim": 5, "ffn": 50, "vocab": 100, "seq": 7,
}  # fmt: skip
PLAIN: dict[str, Any] = {"rotary": False, "gated_mlp": False, "norm": "layernorm", "kv_heads": 6}
ZOO = [name for name in zoo("graphs") if load_strict(find("graphs", name)).get("workload") == "decoder"]


def products(graph: Graph, *passes: str) -> float:
    return sum(flop(kernel) for kernel in graph.kernels if kernel.op != "elementwise" and kernel.pass_ in passes)


@st.composite
def decoders(draw: Any) -> dict[str, Any]:
    kv_heads, group = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    layers = draw(st.integers(1, 3))
    return {
        "hidden": draw(st.integers(1, 30)), "heads": kv_heads * group, "kv_heads": kv_heads,
        "head_dim": draw(st.integers(1, 9)), "ffn": draw(st.integers(1, 60)), "gated_mlp": draw(st.booleans()),
        "norm": draw(st.sampled_from(["rmsnorm", "layernorm"])), "rotary": draw(st.booleans()),
        "post_norm": draw(st.booleans()), "microbatch": draw(st.integers(1, 3)), "seq": draw(st.integers(1, 9)),
        "vocab": draw(st.integers(1, 40)), "tie_embeddings": draw(st.booleans()), "layers": layers,
        "learned_positions": draw(st.integers(0, 9)), "word_bytes": draw(st.integers(1, 4)),
        "drawn": draw(st.sampled_from([1, layers])), "mode": "training", "ends": False,
    }  # fmt: skip


# --- training -----------------------------------------------------------------------------------------------


@given(decoders())
def test_training_takes_three_times_the_products(p: dict[str, Any]) -> None:
    graph, forward = build(**p), build(**p | {"mode": "forward"})
    once = products(forward, "forward")
    assert products(graph, "forward") == once
    assert products(graph, "backward", "update") == 2 * once
    weights = sum(flop(kernel) for kernel in forward.kernels if kernel.op == "gemm")
    assert products(graph, "update") == weights
    assert graph.kernels[: len(forward.kernels)] == forward.kernels if p["drawn"] == 1 else graph.trains


@given(decoders())
def test_every_weight_is_updated_in_its_stage(p: dict[str, Any]) -> None:
    graph = build(**p)
    kernels = by_name(graph)
    updates = {k.name: k for k in graph.kernels if k.op == "weight_update"}
    assert {k.stage_with for k in updates.values()} == {
        k.name for k in graph.kernels if k.op == "gemm" and k.pass_ == "forward"
    }
    for kernel in updates.values():
        forward = kernels[str(kernel.stage_with)]
        assert (kernel.m, kernel.n, kernel.k) == (forward.k, forward.outer * forward.m, forward.n)
    for kernel in graph.kernels:
        assert (kernel.stage_with is None) == (kernel.pass_ == "forward")
        if kernel.stage_with is not None:
            assert kernels[kernel.stage_with].pass_ == "forward"


@given(decoders())
def test_gradients_are_as_large_as_what_they_are_of(p: dict[str, Any]) -> None:
    """Along the way back, a gradient has the features of the forward tensor that it belongs to."""
    graph = build(**p | {"drawn": 1})
    kernels = by_name(graph)

    def elements(name: str) -> int:
        return kernels[name].matrices * kernels[name].m * kernels[name].n

    grouped = p["kv_heads"] < p["heads"]
    pairs = {
        "O_Proj_bwd": "AV",
        "V_Sum_bwd" if grouped else "AV_bwd_values": "V_Proj",
        "K_Sum_bwd" if grouped else "QK_bwd_keys": "K_Proj",
        "QK_bwd_queries": "Q_Proj",
        "AV_bwd_scores": "Softmax",
        "Softmax_bwd": "QK",
        "Q_Proj_bwd": "Residual_In",
        "Down_Proj_bwd": "Act_Mul" if p["gated_mlp"] else "Act",
        "Up_Proj_bwd": "Add_1",
        "Residual_In_bwd": "Residual_In",
    }
    for gradient, of in pairs.items():
        assert elements(gradient) == elements(of)
    sums = [kernels[name] for name in kernels if name.endswith("_Sum_bwd")]
    assert [kernel.flop_per_element for kernel in sums] == [p["heads"] // p["kv_heads"] - 1] * (2 if grouped else 0)


def test_wiring() -> None:
    found = reads(build(**SMALL, mode="training", ends=False))
    assert {name: sources for name, sources in found.items() if "_bwd" in name} == {
        "Down_Proj_bwd": ["Add_2_bwd"],
        "Act_Mul_bwd_gate": ["Down_Proj_bwd", "Gate_Proj", "Up_Proj"],
        "Act_Mul_bwd_up": ["Down_Proj_bwd", "Gate_Proj"],
        "Gate_Proj_bwd": ["Act_Mul_bwd_gate"],
        "Up_Proj_bwd": ["Act_Mul_bwd_up"],
        "RMSNorm_2_bwd": ["Gate_Proj_bwd", "Up_Proj_bwd", "Add_1"],
        "Add_1_bwd": ["RMSNorm_2_bwd", "Add_2_bwd"],
        "O_Proj_bwd": ["Add_1_bwd"],
        "AV_bwd_scores": ["O_Proj_bwd", "V_Proj"],
        "AV_bwd_values": ["Softmax", "O_Proj_bwd"],
        "V_Sum_bwd": ["AV_bwd_values"],
        "Softmax_bwd": ["AV_bwd_scores", "Softmax"],
        "QK_bwd_queries": ["Softmax_bwd", "K_RoPE"],
        "QK_bwd_keys": ["Softmax_bwd", "Q_RoPE"],
        "K_Sum_bwd": ["QK_bwd_keys"],
        "Q_RoPE_bwd": ["QK_bwd_queries"],
        "K_RoPE_bwd": ["K_Sum_bwd"],
        "Q_Proj_bwd": ["Q_RoPE_bwd"],
        "K_Proj_bwd": ["K_RoPE_bwd"],
        "V_Proj_bwd": ["V_Sum_bwd"],
        "RMSNorm_1_bwd": ["Q_Proj_bwd", "K_Proj_bwd", "V_Proj_bwd", "Residual_In"],
        "Residual_In_bwd": ["RMSNorm_1_bwd", "Add_1_bwd"],
        "Down_Proj_bwd_weight_update": ["Add_2_bwd", "Act_Mul"],
        "Up_Proj_bwd_weight_update": ["Act_Mul_bwd_up", "RMSNorm_2"],
        "Gate_Proj_bwd_weight_update": ["Act_Mul_bwd_gate", "RMSNorm_2"],
        "O_Proj_bwd_weight_update": ["Add_1_bwd", "AV"],
        "V_Proj_bwd_weight_update": ["V_Sum_bwd", "RMSNorm_1"],
        "K_Proj_bwd_weight_update": ["K_RoPE_bwd", "RMSNorm_1"],
        "Q_Proj_bwd_weight_update": ["Q_RoPE_bwd", "RMSNorm_1"],
    }


def test_wiring_of_the_variants() -> None:
    found = reads(build(**SMALL | PLAIN, post_norm=True, mode="training"))
    changed = {
        "LayerNorm_2_Post_bwd": ["Add_2_bwd", "Down_Proj"],
        "Down_Proj_bwd": ["LayerNorm_2_Post_bwd"],
        "Act_bwd": ["Down_Proj_bwd", "Up_Proj"],
        "Up_Proj_bwd": ["Act_bwd"],
        "LayerNorm_2_bwd": ["Up_Proj_bwd", "Add_1"],
        "LayerNorm_1_Post_bwd": ["Add_1_bwd", "O_Proj"],
        "O_Proj_bwd": ["LayerNorm_1_Post_bwd"],
        "Q_Proj_bwd": ["QK_bwd_queries"],
        "K_Proj_bwd": ["QK_bwd_keys"],
        "V_Proj_bwd": ["AV_bwd_values"],
        "Down_Proj_bwd_weight_update": ["LayerNorm_2_Post_bwd", "Act"],
        "O_Proj_bwd_weight_update": ["LayerNorm_1_Post_bwd", "AV"],
        "V_Proj_bwd_weight_update": ["AV_bwd_values", "LayerNorm_1"],
    }
    assert {name: found[name] for name in changed} == changed
    assert not any("Sum" in name or "RoPE" in name or "Gate" in name for name in found)


@pytest.mark.parametrize("kv_heads", [1, 2, 6])
def test_operands_of_the_backward_products(kv_heads: int) -> None:
    graph = build(**SMALL | {"kv_heads": kv_heads}, mode="training")
    sides = {
        (t.src, t.dst): side
        for t, side in zip(graph.tensors, graph.operands(), strict=True)
        if by_name(graph)[t.dst].op == "matmul" and by_name(graph)[t.dst].pass_ == "backward"
    }
    assert sides == {
        ("O_Proj_bwd", "AV_bwd_scores"): 1,
        ("V_Proj", "AV_bwd_scores"): 2,
        ("Softmax", "AV_bwd_values"): 1,
        ("O_Proj_bwd", "AV_bwd_values"): 2,
        ("Softmax_bwd", "QK_bwd_queries"): 1,
        ("K_RoPE", "QK_bwd_queries"): 2,
        ("Softmax_bwd", "QK_bwd_keys"): 1,
        ("Q_RoPE", "QK_bwd_keys"): 2,
    }
    sizes = {(t.src, t.dst): graph.bytes_of(t) for t in graph.tensors}
    assert sizes["V_Proj", "AV_bwd_scores"] == sizes["K_RoPE", "QK_bwd_queries"] == kv_heads * 5 * 7 * 2


def test_a_plain_layer_does_the_products_of_the_transformer() -> None:
    """Against DFModel's list: the same backward and update products, but for how Q_bwd and K_bwd are cut in heads."""
    sizes: dict[str, Any] = {"hidden": 24, "heads": 4, "head_dim": 6, "ffn": 96, "seq": 7, "microbatch": 2}
    ours = build(**sizes, **PLAIN | {"kv_heads": 4}, vocab=100, mode="training", ends=False)
    theirs = WORKLOADS["transformer"](**sizes, mode="training")
    for op in ("gemm", "matmul", "weight_update"):
        flops = [sorted(flop(k) for k in graph.kernels if k.op == op) for graph in (ours, theirs)]
        assert flops[0] == flops[1]


@pytest.mark.parametrize("recompute, again", [("none", []), ("attention", ["Scores_Dropout_again"])])
def test_dropped_scores_are_one_kernel_in_each_pass(recompute: str, again: list[str]) -> None:
    plain, dropped = (
        build(**SMALL, layers=2, mode="training", recompute=recompute, scores_dropout=drops) for drops in (False, True)
    )
    more = [name for name in by_name(dropped) if name not in by_name(plain)]
    assert more == ["Scores_Dropout", *again, "Scores_Dropout_bwd"]
    kept = (again or more)[0]
    assert sorted(reads(dropped)[kept]) == ["Softmax_again" if again else "Softmax"]
    assert sorted(reads(dropped)["Scores_Dropout_bwd"]) == sorted(["AV_bwd_scores", kept])
    assert len({(by_name(dropped)[name].matrices, by_name(dropped)[name].m) for name in (*more, "Softmax")}) == 1


def test_serving_drops_nothing() -> None:
    assert build(**SMALL, scores_dropout=True) == build(**SMALL)


def test_a_loss_of_several_kernels_moves_its_bytes_for_every_logit() -> None:
    once, many = (build(**SMALL, layers=1, mode="training", batch=8, **m) for m in ({}, {"loss_bytes": 44.0}))
    changed = [(k.name, k.dram_bytes) for k in many.kernels if k != by_name(once)[k.name]]
    assert changed == [("Loss", 44.0 * SMALL["vocab"] * SMALL["seq"])]
    system = load_system("h100-8")
    assert system.chip.dram is not None
    times = {tp: [solve(graph, system, assumptions=MEGATRON, tp=tp, pp=1, dp=8 // tp).score.partitions
                  for graph in (once, many)] for tp in (1, 8)}  # fmt: skip
    for tp, (before, after) in times.items():
        moved = [sum(part.dram_bytes for part in parts) for parts in (before, after)]
        assert moved[1] - moved[0] == pytest.approx(changed[0][1] / tp)
    with pytest.raises(ValueError, match="found it without a loss"):
        build(**SMALL, layers=1, mode="training", ends=False, loss_bytes=44.0)


def test_a_loss_in_fp32_holds_its_bytes_for_every_logit_of_a_chip() -> None:
    """While it runs, in the stage that has it; the two books are compared by the search. Left out, it is named."""
    some = SMALL | {"layers": 1, "mode": "training", "batch": 8, "vocab": 104}
    fused, apart = (build(**some, **more) for more in ({}, {"loss_held": 12.0}))
    logits = 104 * SMALL["seq"]
    for tp in (1, 8):
        asked = {"assumptions": MEGATRON, "tp": tp, "pp": 1, "dp": 8 // tp, "sensitivity": False}
        results = [solve(graph, load_system("h100-8"), **asked) for graph in (fused, apart)]
        before, after = (result.score.memory[0] for result in results)
        assert after.working_b - before.working_b == pytest.approx(12 * logits / tp)
        told = [left_out(result) for result in results]
        assert f"a loss in fp32 ({show_unit(12 * logits / tp, 'bytes')}: --param loss_held=12B)" in told[0]
        assert "loss" not in told[1]
    with pytest.raises(ValueError, match="found it without a loss"):
        build(**SMALL, layers=1, mode="training", ends=False, loss_held=12.0)


def test_gradients_go_to_the_layer_in_front() -> None:
    graph = build(**SMALL, layers=4, drawn=2, mode="training")
    assert [(t.src, t.dst, t.direction) for t in graph.carried] == [
        ("Add_2.1", "Residual_In.0", "forward"),
        ("Residual_In_bwd.0", "Add_2_bwd.1", "backward"),
    ]
    assert ("Residual_In_bwd.1", "Add_2_bwd.0") in {(t.src, t.dst) for t in graph.tensors}


# --- ends ---------------------------------------------------------------------------------------------------


def test_a_training_step_has_its_ends_unless_they_are_left_out() -> None:
    """As a served one; of a whole sample that is only evaluated they have to be asked for."""
    ends = [{}, {"ends": True}, {"ends": False}]
    default, drawn, without = (build(**SMALL, layers=2, mode="training", **each) for each in ends)
    assert default == drawn and reads(default)["Loss"] == ["Logits"]
    assert {kernel.module for kernel in default.kernels} - {kernel.module for kernel in without.kernels} == {"ends"}
    assert build(**SMALL, layers=2) == build(**SMALL, layers=2, ends=False)


@given(decoders())
def test_with_ends_every_parameter_but_norms_is_drawn(p: dict[str, Any]) -> None:
    p = p | {"drawn": p["layers"], "ends": True}
    graph, counted = build(**p), DecoderParameters(**p)
    weights = sum(weight_elements(kernel) for kernel in graph.kernels if kernel.pass_ == "forward")
    tables = sum(k.resident_bytes for k in graph.kernels if k.pass_ == "forward") / p["word_bytes"]
    norms = sum(k.m for k in graph.kernels if k.normalizes and k.pass_ == "forward" and "Norm" in k.name)
    assert weights + tables + norms * (2 if p["norm"] == "layernorm" else 1) == counts(counted).parameters
    assert graph.repeat == 1
    assert not graph.carried


@given(decoders())
def test_ends_cost_their_lookups_and_logits(p: dict[str, Any]) -> None:
    p = p | {"drawn": p["layers"]}
    inner, graph = build(**p), build(**p | {"ends": True})
    tokens = p["seq"] * p["microbatch"]
    logits = 2 * p["hidden"] * p["vocab"] * tokens
    assert products(graph, "forward") == products(inner, "forward") + logits
    assert products(graph, "backward", "update") == 2 * products(graph, "forward")
    rows = tokens * p["hidden"] * p["word_bytes"] * (2 if p["learned_positions"] else 1)
    kernels = by_name(graph)
    assert (kernels["Embedding"].dram_bytes, kernels["Embedding_bwd"].dram_bytes) == (rows, 2 * rows)


@pytest.mark.parametrize("layers", [1, 2])
def test_wiring_of_the_ends(layers: int) -> None:
    graph = build(**SMALL, layers=layers, drawn=layers, mode="training")
    found = reads(graph)
    first, last = (".0", ".1") if layers == 2 else ("", "")
    assert found[f"Residual_In{first}"] == ["Embedding"]
    assert found["RMSNorm_Final"] == [f"Add_2{last}"]
    assert found["Logits"] == ["RMSNorm_Final"]
    assert found["Loss"] == ["Logits"]
    assert found["Logits_bwd"] == ["Loss"]
    assert found["Logits_bwd_weight_update"] == ["Loss", "RMSNorm_Final"]
    assert found["RMSNorm_Final_bwd"] == ["Logits_bwd", f"Add_2{last}"]
    assert found[f"Add_2_bwd{last}"] == ["RMSNorm_Final_bwd"]
    assert found["Embedding_bwd"] == [f"Residual_In_bwd{first}"]
    assert "Embedding" not in found


@given(decoders())
def test_ends_of_layers_that_repeat_are_drawn_once(p: dict[str, Any]) -> None:
    """The same kernels, FLOP and weights; what passes between ends and layers is DRAM traffic of the ends."""
    p = p | {"layers": 6, "drawn": 2, "ends": True}
    graph, whole = build(**p), build(**p | {"drawn": 6})
    ends = {k.name: k for k in graph.kernels if k.layer}
    assert graph.repeat == 3
    assert graph.carried
    for name, kernel in ends.items():
        same = by_name(whole)[name]
        assert kernel.layer == ("embedding" if name.startswith("Embedding") else "head")
        assert kernel.model_copy(update={"layer": None, "dram_bytes": same.dram_bytes}) == same
    activation = p["seq"] * p["microbatch"] * p["hidden"] * p["word_bytes"]
    more = {name: ends[name].dram_bytes - by_name(whole)[name].dram_bytes for name in ends}
    final = next(name for name in ends if name.endswith("_Final"))
    wanted = {"Embedding": 1, "Embedding_bwd": 1, final: 1, f"{final}_bwd": 2}
    assert {name: size / activation for name, size in more.items() if size} == {
        name: count for name, count in wanted.items() if name in ends
    }
    place = {k.name: k.layer for k in graph.kernels}
    assert all(place[t.src] == place[t.dst] for t in graph.tensors)


def test_tied_embeddings_are_held_once() -> None:
    for tied, wanted in ((False, 100 * 24 * 2), (True, 0)):
        graph = build(**SMALL, ends=True, tie_embeddings=tied)
        assert by_name(graph)["Embedding"].resident_bytes == wanted
        assert weight_elements(by_name(graph)["Logits"]) == 100 * 24


@pytest.mark.parametrize("name", ZOO)
def test_the_models_of_the_zoo_with_their_ends(name: str) -> None:
    recipe = load_strict(find("graphs", name))
    p = DecoderParameters(**recipe["parameters"])
    graph = load_graph(name, ends=True, drawn=p.layers)
    weights = sum(weight_elements(kernel) for kernel in graph.kernels)
    held = weights + sum(kernel.resident_bytes for kernel in graph.kernels) / p.word_bytes
    assert held == pytest.approx(recipe["published"]["parameters"], rel=0.015)


# --- solving ------------------------------------------------------------------------------------------------

MEGATRONS = {"all_reduce.forward": 2, "all_reduce.backward": 2}


@pytest.mark.parametrize(
    ("name", "change", "plan", "collectives"),
    [
        # Forward, the sums behind O_Proj and Down_Proj; backward, those of what Q, K, V and gate, up have read.
        ("llama-3.1-8b", {"batch": 2, "ends": False}, {"tp": 8}, MEGATRONS),
        ("gemma-2-9b", {"batch": 2, "seq": 1024, "ends": False}, {"tp": 8}, MEGATRONS),
        ("llama-68m", {"batch": 8, "drawn": 2}, {"tp": 4, "dp": 2}, None),
    ],
)
def test_a_training_step_solves(
    name: str, change: dict[str, Any], plan: dict[str, int], collectives: dict[str, int] | None
) -> None:
    graph, system = load_graph(name, mode="training", **change), load_system("sn10-8-ring")
    result = solved(graph, system, assumptions=MEGATRON, **plan)
    if collectives is not None:
        assert result.score.collectives == collectives
