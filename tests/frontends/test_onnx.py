"""ONNX models as graphs: FLOP and weights against counts by hand, layers that repeat, and answers with a proof."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto
from onnx_models import RESNET, bert, gpt, llama, resnet50
from typer.testing import CliRunner

import dfopt as df
from dfopt.cli import app
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel
from dfopt.frontends.onnx import read
from dfopt.physics.ops import flop, weight_elements
from dfopt.workloads import load_graph

BATCH, SEQ = 8, 128
SIZES: dict[str, Any] = {"dims": {"batch": BATCH, "sequence": SEQ}, "samples": "batch", "tokens": "sequence"}


def times(graph: Graph, kernel: Kernel) -> int:
    return graph.times_of(kernel)


def work(graph: Graph) -> float:
    return sum(flop(kernel) * times(graph, kernel) for kernel in graph.kernels)


def held(graph: Graph, prefix: str = "") -> float:
    """Weights and other constants that are held, in elements."""
    mine = [kernel for kernel in graph.kernels if kernel.name.startswith(prefix)]
    each = [(weight_elements(one) + one.resident_bytes / graph.words.weights) * times(graph, one) for one in mine]
    return sum(each)


def bert_flop(layers: int, batch: int, seq: int, width: int, heads: int, inside: int) -> tuple[float, float]:
    """FLOP of BERT by hand: of its products, and of everything, each operation on an element as one."""
    tokens, scores = batch * seq, batch * heads * seq * seq
    products = layers * (2 * tokens * (4 * width**2 + 2 * width * inside) + 2 * 2 * scores * (width // heads))
    products += 2 * batch * width**2
    norm = tokens * (7 * width + 2)  # mean, difference, square, mean, division, gain, bias; epsilon and root by token
    biases, gelu, softmax = tokens * (5 * width + inside), 5 * tokens * inside, 5 * scores
    layer = biases + gelu + softmax + 2 * scores + 2 * tokens * width + 2 * norm  # scale and mask; two residuals
    embedding = 3 * tokens * width + norm + 2 * tokens  # a row of words, two sums; the mask of tokens
    return products, products + layers * layer + embedding + batch * width


def resnet_products(batch: int) -> float:
    """FLOP of the convolutions and of the classifier of ResNet-50, by hand."""
    found, side, wide = 3 * 64 * 49 * 112**2, 56, 64
    for inside, blocks, stride in RESNET:
        for block in range(blocks):
            out = side // stride if block == 0 else side
            found += wide * inside * side**2 + 9 * inside**2 * out**2 + 4 * inside**2 * out**2
            found += 4 * wide * inside * out**2 if block == 0 else 0
            side, wide = out, 4 * inside
    return 2.0 * batch * (found + 2048 * 1000)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    made = {"bert": bert(), "gpt": gpt(), "gpt-4": gpt(4), "resnet50": resnet50()}
    made |= {"bert-small": bert(3, 64, 4, 128, 100), "bert-norms": bert(decomposed=False)}
    return {name: writer.save(folder / f"{name}.onnx") for name, writer in made.items()}


@pytest.mark.parametrize("folded", [True, False])
def test_bert_is_counted_as_by_hand(models: dict[str, Path], folded: bool) -> None:
    graph = read(models["bert"], folded=folded, **SIZES)
    products, everything = bert_flop(12, BATCH, SEQ, 768, 12, 3072)
    assert work(graph) == everything == pytest.approx(products, rel=0.01)
    layer = 4 * (768**2 + 768) + 2 * 768 * 3072 + 3072 + 768 + 4 * 768
    if not folded:
        assert held(graph, "/encoder") == 12 * layer == 85_054_464
    embeddings = (30522 + SEQ + 2 + 2) * 768  # positions in use, types, and a norm
    assert held(graph) == 12 * layer + embeddings + 768**2 + 768
    assert (graph.microbatch, graph.batch, graph.evaluation_tokens.processed) == (BATCH, BATCH, BATCH * SEQ)


def test_resnet_is_counted_as_by_hand(models: dict[str, Path]) -> None:
    graph = read(models["resnet50"], {"N": 4}, samples="N")
    assert work(graph) == pytest.approx(resnet_products(4), rel=0.01)
    batch_norms = 2 * 26_560  # mean and variance of each of 26560 channels are no parameters
    assert held(graph) == 25_557_032 + batch_norms


def test_a_gpt_block_is_counted_as_by_hand(models: dict[str, Path]) -> None:
    graph = read(models["gpt"], {"batch": 2, "sequence": 1024}, samples="batch", tokens="sequence")
    tokens, width = 2 * 1024, 768
    products = 2 * tokens * 12 * width**2 + 2 * 2 * 2 * 12 * 1024**2 * 64
    assert work(graph) == pytest.approx(products, rel=0.01)
    mask = 1024**2 / 2  # one byte each, in words of two
    assert held(graph) == 12 * width**2 + 9 * width + 4 * width + 4 * width - 4 * width + mask
    assert [kernel.role for kernel in graph.kernels if kernel.role in ("scores", "softmax", "context")] == [
        "scores", "softmax", "softmax", "softmax", "context",
    ]  # fmt: skip


def test_a_decoder_with_grouped_queries_is_counted_as_by_hand(tmp_path: Path) -> None:
    graph = read(llama().save(tmp_path / "llama.onnx"), **SIZES)
    width, inside, heads, kv_heads, size, tokens = 512, 1408, 8, 2, 64, BATCH * SEQ
    scores = BATCH * heads * SEQ**2
    weights = width**2 * 2 + 2 * width * kv_heads * size + 3 * width * inside
    norm = tokens * (4 * width + 3)
    rotary = tokens * (heads + kv_heads) * (3 * size + size // 2 + size)  # the half that is turned, and its copy
    layer = (
        2 * tokens * weights + (4 * size + 6) * scores + 2 * norm + rotary + 2 * tokens * width + 3 * tokens * inside
    )
    entrance = tokens * width
    angles = 2 * 32 * SEQ + 3 * 64 * SEQ
    assert work(graph) == 4 * (layer + entrance) + angles
    assert held(graph) == 4 * (weights + 2 * width) + 32
    assert graph.repeat == 4 and len(graph.carried) == 1
    (k,) = (t for t in graph.tensors if t.operand == 2 and "Add" in t.src)
    assert k.bytes == 2 * tokens * kv_heads * size


def test_caches_of_a_decoder_are_states(tmp_path: Path) -> None:
    """Keys and values of earlier tokens are read where they lie, and only those of the new one are written."""
    sizes = {"batch": 16, "sequence": 1, "past_sequence": 1023}
    graph = read(llama(past=True).save(tmp_path / "llama.onnx"), sizes, samples="batch")
    assert graph.repeat == 4
    layer = [kernel for kernel in graph.kernels if kernel.layer is None]
    products = [kernel for kernel in layer if kernel.op == "matmul"]
    assert [(k.outer, k.samples, k.m, k.k, k.n) for k in products] == [(8, 16, 1024, 64, 1), (8, 16, 64, 1024, 1)]
    states = [state for kernel in layer for state in kernel.states or ()]
    assert [(one.sequences, one.heads, one.tokens, one.reads, one.writes) for one in states] == [
        (16, 2, 1024, 1023, 1)
    ] * 2
    assert {one.bytes_per_token for one in states} == {2 * 2 * 64}
    assert not any("Concat" in kernel.name and kernel.samples for kernel in layer)


@pytest.mark.parametrize(("used", "copied"), [(False, []), (True, [2 * 2 * 2 * 8 * 64])])
def test_a_prefix_that_is_no_output_or_that_something_else_reads_is_copied(
    tmp_path: Path, used: bool, copied: list[int]
) -> None:
    w = llama(1, past=True)
    if used:
        w.output(w.Relu(w.outputs[0].name))
    else:
        del w.outputs[0]
    graph = read(w.save(tmp_path / "llama.onnx"), {"batch": 2, "sequence": 1, "past_sequence": 7})
    assert [len(kernel.states or ()) for kernel in graph.kernels if kernel.op == "matmul"] == [0, 1]
    assert [out.bytes for out in graph.outputs or () if "Concat" in out.src] == copied


def test_shape_arithmetic_is_gone(models: dict[str, Path]) -> None:
    graph = read(models["bert"], folded=False, **SIZES)
    shapes = ("Shape", "Gather_", "Concat", "Unsqueeze", "Reshape", "Transpose", "Constant", "Slice")
    assert [k.name for k in graph.kernels if any(word in k.name for word in shapes)] == ["/Gather_11"]


def test_layers_that_repeat_are_folded(models: dict[str, Path]) -> None:
    graph = read(models["bert"], **SIZES)
    assert graph.repeat == 12 and len(graph.carried) == 1
    assert {kernel.layer for kernel in graph.kernels} == {"first", None, "last"}
    assert read(models["gpt-4"], {"batch": 1, "sequence": 64}).repeat == 4
    assert read(models["gpt"], {"batch": 1, "sequence": 64}).repeat == 1
    assert read(models["resnet50"], {"N": 1}).repeat == 1  # most would still be drawn
    graph = read(models["resnet50"], {"N": 1}, folded=True)
    layer = [kernel for kernel in graph.kernels if kernel.layer is None]
    assert graph.repeat == 5 and sum(kernel.op == "gemm" for kernel in layer) == 3
    assert {kernel.name.split("/")[2] for kernel in layer} == {"layer3.0", "layer3.1"}  # the first begins with a ReLU


@pytest.mark.parametrize("name", ["bert-small", "gpt-4", "resnet50"])
def test_folded_layers_are_those_that_were_drawn(models: dict[str, Path], name: str) -> None:
    sizes = {"N": 2} if name == "resnet50" else {"batch": 2, "sequence": 64}
    folded, drawn = (read(models[name], sizes, folded=one) for one in (True, False))
    assert work(folded) == work(drawn) and held(folded) == pytest.approx(held(drawn), rel=1e-12)
    chosen = Assumptions(execution="kernel_by_kernel", overlap="none")
    each = {"assumptions": chosen, "pp": 1, "dp": 8}
    batch = {"batch": 8}
    one, all_ = (df.optimize(graph.model_copy(update=batch), "sn10-8-ring", **each) for graph in (folded, drawn))
    assert one.step_time_s == pytest.approx(all_.step_time_s, rel=1e-9)


@pytest.mark.parametrize("name", ["bert-norms", "gpt", "resnet50"])
def test_models_are_solved_with_a_proof(models: dict[str, Path], name: str) -> None:
    """A step of 64 samples: of all plans, but for BERT, with tensor parallelism over all chips."""
    sizes, count = ({"N": 8}, "N") if name == "resnet50" else ({"batch": 8, "sequence": 128}, "batch")
    graph = read(models[name], sizes, samples=count).model_copy(update={"batch": 64})
    result = df.optimize(graph, "sn10-8-ring", time_limit=30, **({"tp": 8} if name == "bert-norms" else {}))
    assert result.gap <= 1e-3 and result.status.startswith("optimal")


def test_the_command_writes_a_graph(models: dict[str, Path], tmp_path: Path) -> None:
    words = ["import", "onnx", str(models["gpt-4"]), "-o", str(tmp_path / "gpt.yaml")]
    sizes = ["--set-dim", "batch=2", "--set-dim", "sequence=64", "--sample-dim", "batch", "--token-dim", "sequence"]
    done = CliRunner().invoke(app, [*words, *sizes])
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("gpt-4: ONNX model with 28.35 million parameters, 4 layers alike")
    sizes_ = {"dims": {"batch": 2, "sequence": 64}, "samples": "batch", "tokens": "sequence"}
    assert load_graph(tmp_path / "gpt.yaml") == read(models["gpt-4"], **sizes_)
    graph = load_graph(tmp_path / "gpt.yaml", batch=64)
    assert (graph.repeat, graph.microbatch, graph.batch, graph.evaluation_tokens.processed) == (4, 2, 64, 128)
    done = CliRunner().invoke(app, [*words, *sizes, "--no-fold"])
    assert done.exit_code == 0 and load_graph(tmp_path / "gpt.yaml").repeat == 1


def test_a_decomposed_norm_costs_what_a_whole_one_does(tmp_path: Path) -> None:
    whole, apart = (
        read(bert(2, 64, 4, 128, 100, decomposed=one).save(tmp_path / "x.onnx"), **SIZES) for one in (False, True)
    )
    tokens = BATCH * SEQ
    assert work(apart) - work(whole) == 5 * 2 * tokens  # of each of five norms epsilon and root
    assert held(apart) == held(whole)


def test_data_types_are_those_of_the_file(tmp_path: Path) -> None:
    for word, name in ((TensorProto.FLOAT16, "fp16"), (TensorProto.FLOAT, "fp32")):
        graph = read(gpt(1, 64, 4, word=word).save(tmp_path / "x.onnx"), {"batch": 1, "sequence": 8})
        assert graph.dtypes is not None and (graph.dtypes.activations, graph.dtypes.weights) == (name, name)
