"""Recommendation models: FLOP, bytes and wiring against formulas per sample, DFModel's kernels, wrong parameters."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from graph_parts import by_name, product_flop
from hypothesis import given
from hypothesis import strategies as st
from workload_checks import refused, solved

from dfopt.documents.strict_yaml import load_strict
from dfopt.documents.zoo import find
from dfopt.errors import DocumentError
from dfopt.machines.compose import load_system
from dfopt.physics.ops import flop, weight_elements
from dfopt.workloads import WORKLOADS, load_graph
from dfopt.workloads.dlrm import DlrmParameters, Tables

build = WORKLOADS["dlrm"]

SMALL: dict[str, Any] = {
    "tables": (Tables(count=3, rows=1000, pooling=2), Tables(rows=50, pooling=9)),
    "embedding_dim": 16, "dense_features": 13, "bottom": (32, 16), "top": (64, 8, 1), "microbatch": 8,
}  # fmt: skip
SQUARE: dict[str, Any] = {
    "tables": (Tables(count=3, rows=1000, pooling=2),), "embedding_dim": 16, "interaction": "none",
    "mlp_dim": 24, "bottom_layers": 2, "top_layers": 3, "microbatch": 8, "encoding": "dfmodel",
}  # fmt: skip


def of_zoo(name: str) -> DlrmParameters:
    from pydantic import TypeAdapter

    return TypeAdapter(DlrmParameters).validate_python(load_strict(find("graphs", name))["parameters"])


def parameter_count(p: DlrmParameters) -> int:
    """All rows of all tables, and the matrices of MLPs and cross layers, without biases."""
    mlps = sum(a * b for widths in (p.bottom_widths, p.top_widths) for a, b in pairwise(widths))
    crossing = 2 * p.dcn_layers * p.dcn_rank * p.interaction_width if p.interaction == "dcn" else 0
    return p.rows * p.embedding_dim + mlps + crossing


# --- formulas per sample ------------------------------------------------------------------------------------


@st.composite
def models(draw: Any) -> dict[str, Any]:
    interaction = draw(st.sampled_from(["dot", "concat", "dcn", "none"]))
    widths = st.lists(st.integers(1, 30), min_size=1, max_size=4)
    dim = draw(st.integers(1, 20))
    bottom = [*draw(widths), dim] if interaction == "dot" else draw(widths)
    tables = st.builds(Tables, count=st.integers(1, 4), rows=st.integers(1, 99), pooling=st.integers(1, 9))
    return {
        "tables": tuple(draw(st.lists(tables, min_size=1, max_size=4))), "embedding_dim": dim,
        "dense_features": draw(st.integers(1, 30)), "bottom": tuple(bottom), "top": tuple(draw(widths)),
        "interaction": interaction, "dcn_layers": draw(st.integers(1, 3)), "dcn_rank": draw(st.integers(1, 9)),
        "microbatch": draw(st.integers(1, 9)), "word_bytes": draw(st.integers(1, 4)),
    }  # fmt: skip


def per_sample(p: dict[str, Any]) -> dict[str, int]:
    """Multiply-adds of one sample's matrix products, counted from the definition of the model."""
    features = 1 + sum(tables.count for tables in p["tables"])
    pooled = (features - 1) * p["embedding_dim"]
    dense = p["bottom"][-1]
    joined = dense + pooled
    handed = {"dot": dense + sum(range(features)), "concat": joined, "dcn": joined, "none": dense}[p["interaction"]]
    layers = [(p["dense_features"], p["bottom"][0]), *pairwise(p["bottom"]), (handed, p["top"][0]), *pairwise(p["top"])]
    between = {
        "dot": features * features * p["embedding_dim"],  # every feature with every other, and the mirrored half
        "dcn": p["dcn_layers"] * 2 * p["dcn_rank"] * joined,
    }.get(p["interaction"], 0)
    rows = sum(tables.count * tables.pooling for tables in p["tables"])
    return {
        "mlps": sum(a * b for a, b in layers), "between": between, "first": layers[0][0] * layers[0][1],
        "rows": rows, "pooled": pooled,
    }  # fmt: skip


@given(models())
def test_flop_of_a_sample(p: dict[str, Any]) -> None:
    graph, one = build(**p), per_sample(p)
    samples = p["microbatch"]
    forward = 2 * samples * (one["mlps"] + one["between"])
    assert product_flop(graph, "forward") == forward == product_flop(build(**p, mode="forward"), "forward")
    # Every product has two gradients, but the dense features need none.
    assert product_flop(graph, "backward", "update") == 2 * forward - 2 * samples * one["first"]


@given(models())
def test_bytes_of_a_sample(p: dict[str, Any]) -> None:
    graph, one = build(**p), per_sample(p)
    each = p["microbatch"] * p["word_bytes"]
    there, back = by_name(graph)["Lookup"], by_name(graph)["Lookup_bwd"]
    assert there.dram_bytes == each * one["rows"] * p["embedding_dim"]
    assert back.dram_bytes == 2 * there.dram_bytes
    for kernel in (there, back):
        (exchange,) = kernel.communications
        assert (exchange.kind, exchange.over, exchange.bytes) == ("all_to_all", "all", each * one["pooled"])
        assert graph.output_bytes(kernel.name) == exchange.bytes
        assert kernel.distributed
    table_rows = sum(tables.count * tables.rows for tables in p["tables"])
    assert sum(kernel.resident_bytes for kernel in graph.kernels) == (table_rows * p["embedding_dim"] * p["word_bytes"])
    assert all(not kernel.communications for kernel in graph.kernels if kernel not in (there, back))
    elements = table_rows * p["embedding_dim"]
    for optimizer, moments in {
        "rowwise_adagrad": table_rows,
        "adagrad": elements,
        "adam": 2 * elements,
        "sgd": 0,
    }.items():
        held = [kernel.resident_optimizer_bytes for kernel in build(**p, table_optimizer=optimizer).kernels]
        assert [size for size in held if size is not None] == [4 * moments]


@given(models())
def test_every_parameter_is_drawn_once_and_updated_once(p: dict[str, Any]) -> None:
    graph = build(**p)
    drawn = sum(weight_elements(kernel) for kernel in graph.kernels if kernel.pass_ == "forward")
    resident = sum(kernel.resident_bytes for kernel in graph.kernels) / p["word_bytes"]
    assert drawn + resident == parameter_count(DlrmParameters(**p))
    assert sum(k.m * k.n for k in graph.kernels if k.op == "weight_update") == drawn
    for kernel in graph.kernels:
        if kernel.op == "weight_update":
            forward = by_name(graph)[str(kernel.stage_with)]
            assert (kernel.m, kernel.n) == (forward.k, forward.m)


@given(models())
def test_what_is_produced_is_read(p: dict[str, Any]) -> None:
    """All but the answer of a forward pass, and but updates and the way into the tables of a training step."""
    for mode, left in (("forward", 1), ("training", None)):
        graph = build(**p, mode=mode)
        read = {tensor.src for tensor in graph.tensors}
        ends = [k for k in graph.kernels if k.name not in read]
        if left:
            assert [kernel.name for kernel in ends] == [f"Top_{len(p['top'])}_Act"]
        else:
            assert all(kernel.op == "weight_update" or kernel.name == "Lookup_bwd" for kernel in ends)
        assert all((k.pass_ != "forward") == (k.stage_with is not None) for k in graph.kernels)


# --- DFModel's encoding -------------------------------------------------------------------------------------


def test_kernels_of_dfmodel() -> None:
    """Kernels, tensors and figures of DLRM/Compare_w_existing/A of github.com/fengqian-ayce/DFModel at 04f93d5."""
    graph = load_graph("dlrm-a")
    assert [kernel.name for kernel in graph.kernels] == [
        *(f"MLP_{n}" for n in range(1, 21)),
        *(f"MLP_{n}_bwd" for n in range(20, 0, -1)),
        *(f"MLP_{n}_bwd_weight_update" for n in range(20, 0, -1)),
    ]
    assert sum(int(flop(kernel)) for kernel in graph.kernels) == 699840000000
    assert {flop(kernel) for kernel in graph.kernels} == {11664000000}
    assert {(k.m, k.k, k.n) for k in graph.kernels if k.op == "gemm"} == {(3375, 3375, 512)}
    assert {(k.m, k.k, k.n) for k in graph.kernels if k.op == "weight_update"} == {(3375, 512, 3375)}
    tensors = [(t.src, t.dst) for t in graph.tensors]
    assert len(tensors) == 76
    assert set(tensors) == {
        *((f"MLP_{n}", f"MLP_{n + 1}") for n in range(1, 20)),
        *((f"MLP_{n + 1}_bwd", f"MLP_{n}_bwd") for n in range(1, 20)),
        *((f"MLP_{n}", f"MLP_{n + 1}_bwd_weight_update") for n in range(1, 20)),
        *((f"MLP_{n + 1}_bwd", f"MLP_{n}_bwd_weight_update") for n in range(1, 20)),
    }
    assert {graph.bytes_of(t) for t in graph.tensors} == {3456000}
    moved = {k.name: (k.dram_bytes, [c.bytes for c in k.communications]) for k in graph.kernels if k.dram_bytes}
    assert moved == {name: (857088000, [857088000]) for name in ("MLP_5", "MLP_5_bwd")}
    assert [k.name for k in graph.kernels if k.communications] == ["MLP_5", "MLP_5_bwd"]


# --- the zoo ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dlrm-a", "dlrm-793b"])
def test_models_of_793_billion(name: str) -> None:
    assert parameter_count(of_zoo(name)) == pytest.approx(793e9, rel=0.002)  # DFModel, section VI.C
    graph = load_graph(name)
    assert product_flop(graph, "forward") / graph.microbatch == 20 * 2 * 3375**2


def test_the_model_of_mlperf() -> None:
    p, graph = of_zoo("dlrm-v2-mlperf"), load_graph("dlrm-v2-mlperf")
    assert p.table_count == 26
    assert p.lookups == 214
    # Rows of the README's command line times 128; 91 GiB of 4-byte words is what an older one-hot data set holds there.
    (lookup,) = (kernel for kernel in graph.kernels if kernel.resident_bytes)
    assert lookup.resident_bytes == lookup.resident_optimizer_bytes == 4 * 26135627264
    # Interaction of 26 tables and the bottom MLP's output, each of 128
    assert p.interaction_width == 27 * 128
    mlps = 13 * 512 + 512 * 256 + 256 * 128 + 3456 * 1024 + 1024 * 1024 + 1024 * 512 + 512 * 256 + 256
    assert parameter_count(p) - 26135627264 == mlps + 3 * 2 * 512 * 3456


@pytest.mark.parametrize(
    ("name", "change", "plan"),
    [
        ("dlrm-v2-mlperf", {}, {"dp": 8}),
        ("dlrm-v2-mlperf", {"interaction": "dot", "batch": 8192}, {"tp": 8}),
        ("dlrm-a", {"batch": 4096, "bottom_layers": 2, "top_layers": 4}, {"dp": 8}),
    ],
)
def test_a_model_solves(name: str, change: dict[str, Any], plan: dict[str, int]) -> None:
    graph, system = load_graph(name, **change), load_system("sn10-8-ring")
    result = solved(graph, system, sensitivity=False, **plan)
    assert result.score.collectives["all_to_all.forward"] >= 1
    assert result.score.collectives["all_to_all.backward"] >= 1


# --- wrong parameters ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "change", "where", "says"),
    [
        (SMALL, {"bottom": None}, "$.dense_features", "found dense_features, top, expected dense_features, bottom and"),
        (SMALL, {"mlp_dim": 8}, "$.dense_features", "found dense_features, bottom, top, mlp_dim, expected"),
        (SMALL, {"top": None, "bottom": None, "dense_features": None}, "$", "found no sizes of the MLPs"),
        (SMALL, {"tables": ()}, "$.tables", "found an empty list"),
        (SMALL, {"top": ()}, "$.top", "found an empty list"),
        (SMALL, {"bottom": (32, 8)}, "$.bottom", "found 8 features behind the bottom MLP"),
        (SQUARE, {"interaction": "dot", "encoding": "exact"}, "$.mlp_dim", "found 24 features behind the bottom MLP"),
        (SMALL, {"encoding": "dfmodel"}, "$.encoding", "square layers and no interaction"),
        (SQUARE, {"interaction": "concat"}, "$.encoding", "square layers and no interaction"),
        (SMALL, {"batch": 7}, "$.batch", "found 7 samples in a step, fewer than the 8 of one microbatch"),
    ],
)
def test_bad_parameters_give_one_error(base: dict[str, Any], change: dict[str, Any], where: str, says: str) -> None:
    refused(build, base | change, where, says)


def test_bad_overrides_are_issues_at_their_parameters() -> None:
    for override, *where in (
        ({"interaction": "sum"}, "interaction"),
        ({"batch": 5}, "batch"),
        ({"tables": [{"rows": 0}]}, "tables[0].rows"),
        ({"tables": []}, "tables"),
        ({"bottom": [512, 0], "top": [10**8]}, "bottom[1]", "top[0]"),
    ):
        with pytest.raises(DocumentError) as caught:
            load_graph("dlrm-v2-mlperf", **override)
        assert [issue.where for issue in caught.value.issues] == [f"$.parameters.{one}" for one in where]
