"""The backward pass of any forward graph: what it computes, reads again and adds up; and those of the workloads."""

from __future__ import annotations

import hashlib
import json
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfopt.documents.graph import Graph, Input, Kernel, Tensor
from dfopt.errors import GraphError
from dfopt.physics.ops import flop, gradient_elements, weight_elements
from dfopt.workloads import WORKLOADS
from dfopt.workloads.backward import backward_of

GOLDEN = json.loads(Path(__file__).resolve().parents[1].joinpath("golden", "training_graphs.json").read_text())
TOKENS = 6


@st.composite
def forward_graphs(draw: Any) -> Graph:
    """GEMMs, attention and elementwise kernels on features of a few tokens, in a random DAG."""
    kernels = [Kernel(name="k0", op="elementwise", m=draw(st.integers(1, 5)), n=TOKENS)]
    tensors: list[Tensor] = []

    def add(op: str, m: int, *sources: Kernel, k: int = 1) -> Kernel:
        kernel = Kernel(name=f"k{len(kernels)}", op=op, m=m, k=k, n=TOKENS)
        kernels.append(kernel)
        sides = (1, 2) if op == "matmul" else (None,) * len(sources)
        tensors.extend(Tensor(src=s.name, dst=kernel.name, operand=o) for s, o in zip(sources, sides, strict=True))
        return kernel

    for _ in range(draw(st.integers(1, 7))):
        wide = [kernel for kernel in kernels if kernel.m <= 5]
        source = draw(st.sampled_from(wide))
        alike = [kernel for kernel in wide if kernel.m == source.m]
        match draw(st.sampled_from(["gemm", "gemm", "elementwise", "sum", "attention", "source"])):
            case "gemm":
                add("gemm", draw(st.integers(1, 5)), source, k=source.m)
            case "elementwise":
                add("elementwise", source.m, source)
            case "sum":
                other = draw(st.sampled_from(alike))
                add("elementwise", source.m, *dict.fromkeys((source, other)))
            case "attention":
                keys, values = draw(st.sampled_from(alike)), draw(st.sampled_from(wide))
                scores = add("matmul", TOKENS, source, keys, k=source.m)
                weights = add("elementwise", TOKENS, scores)
                add("matmul", values.m, weights, values, k=TOKENS)
            case "source":
                add("gemm", draw(st.integers(1, 5)), k=3)
    carried = ()
    ends = [kernel for kernel in kernels if kernel.m == kernels[0].m]
    if draw(st.booleans()):
        carried = (Tensor(src=draw(st.sampled_from(ends)).name, dst="k0"),)
    return Graph(name="random", repeat=2, kernels=tuple(kernels), tensors=tuple(tensors), carried=carried)


def wanted(graph: Graph) -> set[str]:
    """Kernels behind a weight or, over a carried tensor, behind an earlier repeat."""
    edges = graph.networkx()
    roots = {k.name for k in graph.kernels if k.op == "gemm"} | {t.dst for t in graph.carried}
    return roots.union(*(nx.descendants(edges, root) for root in roots))


@given(graph=forward_graphs())
def test_producers_come_before_consumers_and_else_the_first_kernel_first(graph: Graph) -> None:
    order = nx.lexicographical_topological_sort(graph.networkx(), key=graph.index().__getitem__)
    assert graph.in_order() == list(order)


@given(graph=forward_graphs())
def test_training_takes_three_times_the_products_where_every_gradient_is_wanted(graph: Graph) -> None:
    trained, leads = backward_of(graph), wanted(graph)
    assert trained.kernels[: len(graph.kernels)] == graph.kernels
    assert trained.tensors[: len(graph.tensors)] == graph.tensors
    forward = {k.name: k for k in graph.kernels}
    products = [k for k in trained.kernels if k.op != "elementwise"]
    updates = sum(flop(k) for k in products if k.pass_ == "update")
    assert updates == sum(flop(k) for k in graph.kernels if k.op == "gemm")
    inputs = {(t.src, t.dst, t.operand) for t in graph.tensors if t.src in leads}
    due = sum(flop(forward[dst]) for _, dst, _ in inputs if forward[dst].op != "elementwise")
    assert sum(flop(k) for k in products if k.pass_ == "backward") == due


@given(graph=forward_graphs())
def test_every_weight_is_updated_once_by_what_the_forward_pass_saved(graph: Graph) -> None:
    trained = backward_of(graph)
    updates = [k for k in trained.kernels if k.op == "weight_update"]
    gemms = {k.name: k for k in graph.kernels if k.op == "gemm"}
    assert sorted(str(k.stage_with) for k in updates) == sorted(gemms)
    for update in updates:
        gemm = gemms[str(update.stage_with)]
        assert gradient_elements(update) == weight_elements(gemm)
        read = [t.src for t in trained.tensors if t.dst == update.name and t.operand == 2]
        assert read == [t.src for t in graph.tensors if t.dst == gemm.name]


@given(graph=forward_graphs())
def test_gradients_mirror_the_tensors_and_saved_ones_are_those_of_the_ops(graph: Graph) -> None:
    trained, leads = backward_of(graph), wanted(graph)
    forward = {k.name: k for k in graph.kernels}
    kernels = {k.name: k for k in trained.kernels}
    back = {k.name: k for k in trained.kernels if k.pass_ != "forward"}
    assert all(k.stage_with in forward and k.pass_ != "forward" for k in back.values())
    # A gradient of every tensor that leads to parameters, as large as the tensor, from the reader to the producer.
    sent = [(t, kernels[t.src], kernels[t.dst]) for t in trained.tensors if t.src in back]
    for tensor in graph.tensors:
        if tensor.src in leads and forward[tensor.src].op != "elementwise":
            sizes = [
                trained.bytes_of(t)
                for t, src, dst in sent
                if (src.stage_with, dst.stage_with) == (tensor.dst, tensor.src)
            ]
            assert sizes and set(sizes) == {graph.output_bytes(tensor.src)}
    read_again = {(t.src, back[t.dst].stage_with) for t in trained.tensors if t.src in forward and t.dst in back}
    due = set()
    for name, kernel in forward.items():
        inputs = [t for t in graph.tensors if t.dst == name]
        if kernel.op == "gemm":
            due |= {(t.src, name) for t in inputs}
        elif kernel.op == "matmul":
            due |= {(t.src, name) for t in inputs if any(o.src in leads and o.operand != t.operand for o in inputs)}
        elif len(inputs) == 1 and inputs[0].src in leads and all(t.dst != name for t in graph.carried):
            due.add((inputs[0].src, name))
    assert read_again == due


@given(graph=forward_graphs())
def test_gradients_of_carried_tensors_go_the_other_way(graph: Graph) -> None:
    trained = backward_of(graph)
    stage = {k.name: k.stage_with for k in trained.kernels}
    for tensor in graph.carried:
        gradients = trained.carried[len(graph.carried) :]
        assert gradients and all(t.direction == "backward" and stage[t.src] == tensor.dst for t in gradients)
        assert {stage[t.dst] for t in gradients} == {tensor.src}


def reads(graph: Graph, name: str) -> list[str]:
    return [t.src for t in graph.tensors if t.dst == name]


def chain(*kernels: Kernel, **more: Any) -> Graph:
    tensors = tuple(Tensor(src=a.name, dst=b.name) for a, b in pairwise(kernels))
    return Graph(name="chain", kernels=kernels, tensors=more.pop("tensors", tensors), **more)


def test_products_of_one_input_accumulate_and_sums_go_where_they_can_be_added() -> None:
    start = Kernel(name="start", op="gemm", m=4, k=3, n=5)
    heads = [Kernel(name=name, op="gemm", m=4, k=4, n=5) for name in "ab"]
    tensors = tuple(Tensor(src="start", dst=name) for name in "ab")
    trained = backward_of(Graph(name="g", kernels=(start, *heads), tensors=tensors))
    kernels = {k.name: k for k in trained.kernels}
    # consumers are passed last one first
    assert (kernels["a_bwd"].accumulates_into, kernels["b_bwd"].accumulates_into) == ("b_bwd", None)
    assert kernels["start_bwd_sum"].stage_with == "start"
    assert kernels["start_bwd_sum"].flop_per_element == 1
    assert sorted(reads(trained, "start_bwd_sum")) == ["a_bwd", "b_bwd"]
    assert reads(trained, "start_bwd_weight_update") == ["start_bwd_sum"]  # what it read is no tensor of the graph
    assert "start_bwd" not in kernels  # nothing in front of it has parameters


def test_heads_with_inputs_of_their_own_have_weights_of_their_own() -> None:
    first = Kernel(name="first", op="gemm", outer=2, m=3, k=4, n=5)
    second = Kernel(name="second", op="gemm", outer=2, m=7, k=3, n=5)
    trained = backward_of(chain(first, second))
    update, back = (next(k for k in trained.kernels if k.name == f"second_bwd{end}") for end in ("_weight_update", ""))
    assert (update.outer, update.m, update.k, update.n) == (2, 3, 5, 7)
    assert (back.outer, back.m, back.k, back.n) == (2, 3, 7, 5)


def test_what_lies_side_by_side_is_cut_into_its_parts_and_what_is_spread_is_added_up() -> None:
    a, b = (Kernel(name=name, op="gemm", m=m, k=2, n=5) for name, m in (("a", 3), ("b", 1)))
    beside = Kernel(name="beside", op="elementwise", m=4, n=5)
    wide = Kernel(name="wide", op="elementwise", m=9, n=5)
    tensors = tuple(
        Tensor(src=s, dst=d) for s, d in (("a", "beside"), ("b", "beside"), ("b", "wide"), ("beside", "wide"))
    )
    trained = backward_of(Graph(name="g", kernels=(a, b, beside, wide), tensors=tensors))
    (part,) = [t for t in trained.tensors if (t.src, t.dst) == ("beside_bwd", "a_bwd_weight_update")]
    assert part.bytes == 3 * 5 * 2
    assert reads(trained, "b_bwd_sum") == ["wide_bwd", "beside_bwd"]
    summed = next(kernel for kernel in trained.kernels if kernel.name == "b_bwd_sum")
    assert summed.flop_per_element == 9  # nine features and one of beside become one


def test_stated_inputs_are_read_again_where_they_are_saved() -> None:
    graph = chain(Kernel(name="a", op="gemm", m=2, k=3, n=4), Kernel(name="b", op="gemm", m=5, k=2, n=4))
    stated = graph.model_copy(update={"inputs": (Input(dst="a"),), "outputs": ()})
    found = [(one.dst, one.operand) for one in backward_of(stated).inputs or ()]
    # b's output has no reader here, so its gradient comes from outside too
    assert found == [("a", None), ("b_bwd", 1), ("b_bwd_weight_update", 1), ("a_bwd_weight_update", 2)]
    assert backward_of(stated).outputs == () and backward_of(graph).inputs is None
    assert backward_of(graph.model_copy(update={"inputs": ()})).inputs == ()


def test_bad_input_is_refused() -> None:
    graph = chain(Kernel(name="a", op="gemm", m=2, k=2, n=2), Kernel(name="b", op="gemm", m=2, k=2, n=2))
    with pytest.raises(GraphError, match=r"\$\.kernels\[2\]: 'b_bwd' is no forward kernel"):
        backward_of(backward_of(graph))
    into = graph.model_copy(
        update={"kernels": (graph.kernels[0].model_copy(update={"accumulates_into": "b"}), graph.kernels[1])}
    )
    with pytest.raises(GraphError, match=r"\$\.kernels\[0\]\.accumulates_into"):
        backward_of(into)
    with pytest.raises(ValueError, match="passes 'a' before 'b', which reads it"):
        backward_of(graph, order=("a", "b"))


# --- the workloads' training graphs, as they have always been ---------------------------------------------------

DECODER = {"hidden": 64, "heads": 8, "head_dim": 8, "ffn": 192, "vocab": 1000, "layers": 4, "batch": 8, "microbatch": 2}
TABLES = ({"count": 3, "rows": 1000, "pooling": 2}, {"count": 2, "rows": 10})
DLRM = {"tables": TABLES, "embedding_dim": 16, "microbatch": 8}


def cases() -> dict[str, tuple[str, dict[str, Any]]]:
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for rotary, gated, post, kv, seq in product((True, False), (True, False), (True, False), (8, 2), (32, 8)):
        drawn, ends = (2, True) if post else (1, gated)
        name = f"decoder-{'rotary-' * rotary}{'gated-' * gated}{'post-' * post}{kv}-{seq}"
        more = {"rotary": rotary, "gated_mlp": gated, "post_norm": post, "kv_heads": kv, "seq": seq}
        ends_too = {"drawn": drawn, "ends": ends, "tie_embeddings": rotary, "learned_positions": 4}
        found[name] = ("decoder", {**DECODER, **more, **ends_too})
    for interaction, stream in product(("dot", "concat", "dcn", "none"), ("n", "none")):
        sizes = {"dense_features": 13, "bottom": (32, 16), "top": (64, 1), "dcn_rank": 5, "interaction": interaction}
        found[f"dlrm-{interaction}-{stream}"] = ("dlrm", {**DLRM, **sizes, "stream": stream})
    square = {"mlp_dim": 16, "bottom_layers": 2, "top_layers": 2, "interaction": "none", "encoding": "dfmodel"}
    found["dlrm-dfmodel"] = ("dlrm", {**DLRM, **square})
    for seq in (32, 16):
        sizes = {"hidden": 64, "heads": 4, "head_dim": 16, "seq": seq, "layers": 4, "drawn": 2, "microbatch": 3}
        found[f"transformer-{seq}"] = ("transformer", {**sizes, "batch": 12})
    return found


def rows(graph: Graph) -> list[list[Any]]:
    """Kernels, tensors and carried tensors in order, with every field that training gives them.

    Attention once had heads and samples on one axis: matrices are counted, whatever they are of.
    """
    kernels = [
        [
            k.name, k.op, k.pass_, k.matrices, k.m, k.k, k.n, k.stream, k.flop_per_element, k.normalizes,
            k.accumulates_into, k.stage_with, k.distributed, [[c.kind, c.bytes, c.over] for c in k.communications],
            k.dram_bytes, k.resident_bytes, {"embedding": "first", "head": "last"}.get(k.layer, "every_layer"),
        ]
        for k in graph.kernels
    ]  # fmt: skip
    return [*kernels, *([t.src, t.dst, t.bytes, t.operand, t.direction] for t in (*graph.tensors, *graph.carried))]


@pytest.mark.parametrize("case", cases())
def test_training_graphs_are_as_they_have_always_been(case: str) -> None:
    workload, parameters = cases()[case]
    found = rows(WORKLOADS[workload](**parameters, mode="training"))
    if case in GOLDEN:
        assert found == GOLDEN[case]
    assert hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16] == GOLDEN["digests"][case]
