"""Layers of recurrent cells in ONNX: FLOP and parameters by hand, and those of the same cell written out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx_models import Writer

from dfopt.documents.graph import Graph
from dfopt.errors import DocumentError
from dfopt.frontends.onnx import read
from dfopt.physics.ops import flop, weight_elements
from dfopt.workloads import expand

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STATE = {"LSTM": 5, "GRU": 5, "RNN": 0}  # FLOP of a hidden feature, behind the gates


def layer(
    folder: Path, op: str, tokens: int, samples: int, inside: int, hidden: int, both: bool = False, layout: int = 0,
    bias: bool = True, outputs: tuple[int, ...] = (0,), peepholes: bool = False, **attributes: Any,
) -> Graph:  # fmt: skip
    """The graph of a layer whose outputs of these numbers are the model's."""
    w, directions, gates = Writer(), 1 + both, GATES[op]
    x = w.input("x", [samples, tokens, inside] if layout else [tokens, samples, inside])
    state = [samples, directions, hidden] if layout else [directions, samples, hidden]
    reads = [x, w.weight(directions, gates * hidden, inside), w.weight(directions, gates * hidden, hidden)]
    reads += [w.weight(directions, 2 * gates * hidden) if bias else "", "", w.input("h", state)]
    reads += [w.input("c", state)] if op == "LSTM" else []
    reads += [w.weight(directions, 3 * hidden)] if peepholes else []
    direction = "bidirectional" if both else attributes.pop("direction", "forward")
    names = w.node(
        op, *reads, outputs=max(outputs) + 1, hidden_size=hidden, layout=layout, direction=direction, **attributes
    )
    if 0 not in outputs:
        w.nodes[-1].output[0] = ""
    w.output(*(w.Relu(names[number]) for number in outputs))
    return read(w.save(folder / "model.onnx"), folded=False)


def products(graph: Graph) -> float:
    return sum(flop(kernel) for kernel in graph.kernels if kernel.op == "gemm")


@settings(max_examples=20)
@given(
    op=st.sampled_from(sorted(GATES)), tokens=st.integers(1, 7), samples=st.integers(1, 4), inside=st.integers(1, 9),
    hidden=st.integers(2, 9), both=st.booleans(), layout=st.sampled_from([0, 1]),
)  # fmt: skip
def test_a_layer_costs_what_its_definition_says(
    tmp_path_factory: pytest.TempPathFactory, op: str, tokens: int, samples: int, inside: int, hidden: int, both: bool,
    layout: int,
) -> None:  # fmt: skip
    graph = layer(tmp_path_factory.mktemp("onnx"), op, tokens, samples, inside, hidden, both, layout)
    cells, gates = tokens * samples * (1 + both), GATES[op]
    assert products(graph) == 2 * gates * hidden * (inside + hidden) * cells
    relu = hidden * cells
    assert sum(flop(kernel) for kernel in graph.kernels) - products(graph) == pytest.approx(
        (3 * gates + STATE[op]) * hidden * cells + relu
    )
    (product,) = [kernel for kernel in graph.kernels if kernel.op == "gemm"]
    assert weight_elements(product) == gates * hidden * (inside + hidden) * (1 + both)
    assert sum(kernel.resident_bytes for kernel in graph.kernels) == 8 * gates * hidden * (1 + both)  # two biases
    assert f"matrices and state of {op} stay on the chip" in graph.description
    reads = {entry.dst.rpartition(".")[2] for entry in graph.inputs}
    assert {"product", "gates" if op != "GRU" else "hidden"} <= reads


def test_the_cell_is_that_of_the_workload_of_cells(tmp_path: Path) -> None:
    """As many FLOP of a token as a layer of the workload ``lstm`` has, which draws two products."""
    cell = layer(tmp_path, "LSTM", 5, 3, 8, 8)
    sizes = {"hidden": 8, "layers": 2, "vocab": 11, "seq": 5, "microbatch": 3}
    about = {"schema": "dfopt/graph/3", "name": "l", "source": "", "description": ""}
    model = expand({**about, "workload": "lstm", "parameters": sizes})
    names = ("X_Proj", "H_Proj", "Gates", "Cell", "Hidden")
    wanted = sum(
        flop(kernel) for kernel in model.kernels if kernel.pass_ == "forward" and kernel.name.startswith(names)
    )
    assert sum(flop(kernel) for kernel in cell.kernels if kernel.name != cell.kernels[-1].name) == wanted


@pytest.mark.parametrize("outputs", [(1,), (1, 2), (0, 1, 2)])
def test_the_last_state_may_be_read(tmp_path: Path, outputs: tuple[int, ...]) -> None:
    graph = layer(tmp_path, "LSTM", 5, 3, 6, 4, outputs=outputs)
    sizes = {0: 5 * 3 * 4 * 4.0, 1: 3 * 4 * 4.0, 2: 3 * 4 * 4.0}
    assert sorted(entry.bytes for entry in graph.outputs) == sorted(sizes[number] for number in outputs)
    sources = {tensor.src.rpartition(".")[2] for tensor in graph.tensors if "Relu" in tensor.dst}
    assert sources == ({"hidden", "cell"} if 2 in outputs else {"hidden"})


def test_what_a_cell_may_have_counts(tmp_path: Path) -> None:
    plain = sum(map(flop, layer(tmp_path, "LSTM", 5, 3, 6, 4).kernels))

    def more(**given: Any) -> float:
        return sum(map(flop, layer(tmp_path, "LSTM", 5, 3, 6, 4, **given).kernels)) - plain

    assert more(peepholes=True) == 6 * 5 * 3 * 4
    assert more(clip=3.0) == 2 * 5 * 3 * 16
    assert more(bias=False) == -5 * 3 * 16
    assert more(direction="reverse") == 0
    assert more(both=True) == plain


def test_weights_that_are_computed_are_refused(tmp_path: Path) -> None:
    w = Writer()
    x, weight = w.input("x", [5, 1, 6]), w.input("w", [1, 16, 6])
    w.output(w.Relu(w.LSTM(x, weight, w.weight(1, 16, 4), hidden_size=4)))
    with pytest.raises(DocumentError, match="its weights are computed"):
        read(w.save(tmp_path / "model.onnx"))
