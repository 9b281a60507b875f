"""Broken ONNX files, and what is not understood: one clear error each, with the node and its place."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx_models import Writer, bert, gpt
from typer.testing import CliRunner

from dfopt.cli import app
from dfopt.errors import DocumentError
from dfopt.frontends.onnx import read
from dfopt.frontends.onnx.ops import OPERATORS


def refusal(path: Path, **dims: int) -> str:
    with pytest.raises(DocumentError) as caught:
        read(path, dims)
    said = str(caught.value)
    assert said.startswith(f"{path}: 1 problem\n") and said.count("\n") == 1
    return said


def small(tmp_path: Path, build: Callable[[Writer, str], str], opset: int = 17) -> Path:
    w = Writer(opset)
    w.output(build(w, w.input("x", [2, 8, 16])))
    return w.save(tmp_path / "model.onnx")


def _if(w: Writer, x: str) -> str:
    body = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "branch", [], [onnx.ValueInfoProto(name="y")])
    condition = w.Cast(w.ReduceSum(x, keepdims=0), to=TensorProto.BOOL)
    return str(w.If(condition, then_branch=body, else_branch=body))


def _loop(w: Writer, x: str) -> str:
    ins = [helper.make_tensor_value_info(n, k, s) for n, k, s in (("i", 7, []), ("c", 9, []), ("s", 1, [2, 8, 16]))]
    nodes = [helper.make_node("Identity", ["c"], ["go"]), helper.make_node("Relu", ["s"], ["t"])]
    body = helper.make_graph(nodes, "body", ins, [onnx.ValueInfoProto(name="go"), onnx.ValueInfoProto(name="t")])
    return w.node("Loop", w.data(3), "", x, body=body)[0]


def _cycle(w: Writer, x: str) -> str:
    w.nodes += [
        helper.make_node("Add", [x, "b"], ["a"], name="one"),
        helper.make_node("Relu", ["a"], ["b"], name="two"),
    ]
    return "b"


def _norm_in_training(w: Writer, x: str) -> str:
    return w.node("BatchNormalization", x, *(w.weight(8) for _ in range(4)), outputs=3, training_mode=1)[0]


def _reads_nothing(w: Writer, x: str) -> str:
    return str(w.Add(x, "hidden_stat"))


def _twice(w: Writer, x: str) -> str:
    w.nodes += [helper.make_node("Relu", [x], ["y"], name=name) for name in ("one", "two")]
    return "y"


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (_if, "$.graph.node[2]: If, node '/If_2': control flow is not understood (export the model with its branches"),
        (_loop, "Loop, node '/Loop_0': control flow is not understood"),
        (_cycle, "$.graph.node[0]: the nodes form a cycle through 'one' (a model is acyclic)"),
        (_reads_nothing, "node '/Add_0' reads 'hidden_stat', which nothing produces (is the file whole?)"),
        (_twice, "$.graph.node[1].output: 'y' is produced twice (rename one of them)"),
        (lambda w, x: w.Det(x), "$.graph.node[0]: Det, node '/Det_0': its inputs do not fit"),
        (lambda w, x: w.Det(w.MatMul(x, w.weight(16, 8))), "Det, node '/Det_1': what the operator costs is not known"),
        (lambda w, x: w.Sofmax(x), "Sofmax, node '/Sofmax_0': the operator is not known"),
        (lambda w, x: w.FancyNorm(x, domain="my.company"), "FancyNorm of domain 'my.company', node '/FancyNorm_0'"),
        (lambda w, x: w.MatMul(x, w.weight(15, 16)), "MatMul, node '/MatMul_0': its inputs do not fit"),
        (lambda w, x: w.Reshape(x, w.data([3, -1])), "Reshape, node '/Reshape_0': its inputs do not fit"),
        (lambda w, x: w.NonZero(x), "NonZero, node '/NonZero_0' does not follow from those of the inputs"),
        (
            lambda w, x: w.Expand(x, w.Cast(w.ReduceMax(x, axes=[0, 1], keepdims=0), to=7)),
            "does not follow from those of the inputs",
        ),
        (
            lambda w, x: w.Dropout(x, w.number(0.5), w.data(True, bool)),
            "Dropout, node '/Dropout_0': it is drawn for training (export the model for inference)",
        ),
        (_norm_in_training, "BatchNormalization, node '/BatchNormalization_0': it is drawn for training"),
        (
            lambda w, x: w.MatMulInteger(w.Cast(x, to=TensorProto.INT8), w.data([[1]] * 16, "int8")),
            "MatMulInteger, node '/MatMulInteger_1': what the operator costs is not known",
        ),
        (lambda w, x: w.Conv(x, x), "Conv, node '/Conv_0': its weights are computed"),
        (lambda w, x: w.Einsum(x, x, equation="bij,bkj->bi"), "sums over a dim of one operand alone (k)"),
        (lambda w, x: w.node("SequenceConstruct", x, x)[0], "is a sequence, expected a tensor of known shape"),
        (lambda w, x: w.Gradient(x, domain="ai.onnx.preview.training", xs=["x"], y="x"), "the operator is not known"),
        (lambda w, x: w.Identity(x), "found nothing that costs anything (is it the right file?)"),
    ],
)
def test_what_is_not_understood_is_refused_by_its_name(
    tmp_path: Path, build: Callable[[Writer, str], str], said: str
) -> None:
    assert said in refusal(small(tmp_path, build))


def test_all_operators_that_are_not_known_are_named_at_once(tmp_path: Path) -> None:
    path = small(tmp_path, lambda w, x: w.Det(w.MatMul(w.Hardmax(w.LinearOdd(x)), w.weight(16, 8))))
    assert "LinearOdd" in refusal(path)
    path = small(tmp_path, lambda w, x: w.Det(w.MatMul(w.node("Bernoulli", w.Bernoulli(x))[0], w.weight(16, 8))))
    with pytest.raises(DocumentError) as caught:
        read(path)
    said = str(caught.value)
    assert "2 problems" in said
    assert "$.graph.node[0]: Bernoulli, node '/Bernoulli_0' and 1 more: what the operator costs is not known" in said
    assert "$.graph.node[3]: Det, node '/Det_3': what the operator costs is not known" in said


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "found no nodes, expected an ONNX model"),
        (b"schema: dfopt/graph/3\nname: x\n", "found no ONNX model, or one that was cut off"),
        (b"PK\x03\x04 a zip of PyTorch", "found no ONNX model, or one that was cut off"),
        (None, "found no ONNX model, or one that was cut off"),
    ],
)
def test_a_file_that_is_no_whole_model_is_refused(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "model.onnx"
    whole = gpt(1, 64, 4).model().SerializeToString()
    path.write_bytes(whole[: len(whole) // 2] if content is None else content)
    assert said in refusal(path)


def test_a_path_that_is_no_file_is_refused(tmp_path: Path) -> None:
    assert "found a directory" in refusal(tmp_path)
    assert "no such file" in refusal(tmp_path / "none.onnx")


def test_dims_without_a_size_are_named(tmp_path: Path) -> None:
    path = bert(1, 64, 4, 128, 100).save(tmp_path / "bert.onnx")
    said = refusal(path, batch=2)
    assert "$.graph.input[0].type.tensor_type.shape.dim[1]: the dim 'sequence' has no size" in said
    assert "(give --set-dim sequence=N)" in said
    with pytest.raises(DocumentError, match=r"2 problems"):
        read(path)
    assert "found a size for 'squence', but no input has such a dim without one (did you mean 'sequence'?)" in refusal(
        path, batch=2, sequence=8, squence=8
    )
    with pytest.raises(DocumentError, match=r"--sample-dim: no input has a dim 'btch' \(did you mean 'batch'\?\)"):
        read(path, {"batch": 2, "sequence": 8}, samples="btch")


def test_a_dim_without_a_name_is_given_by_its_place(tmp_path: Path) -> None:
    w = Writer()
    x = w.input("x", [None, 16])  # type: ignore[list-item]
    w.output(w.MatMul(x, w.weight(16, 16)))
    path = w.save(tmp_path / "model.onnx")
    assert "the dim 'x[0]' has no size (give --set-dim x[0]=N)" in refusal(path)
    assert read(path, {"x[0]": 32}).kernels[0].n == 32


def test_an_input_without_a_rank_is_refused(tmp_path: Path) -> None:
    w = Writer()
    w.inputs.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, None))
    w.output(w.Relu("x"))
    said = refusal(w.save(tmp_path / "m.onnx"))
    assert "$.graph.input[0]: the input 'x' is no tensor whose shape the file says" in said


def test_sizes_that_no_kernel_may_have_are_refused(tmp_path: Path) -> None:
    path = gpt(1, 64, 4).save(tmp_path / "gpt.onnx")
    said = refusal(path, batch=10**13, sequence=999)
    assert "count of a kernel: n: found 9990000000000000, expected a number of 1e+15 or less" in said


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda model: model.ClearField("opset_import"), "the file does not say of which opset its operators are"),
        (lambda model: setattr(model.training_info.add().algorithm, "name", "step"), "found a training graph"),
    ],
)
def test_a_model_that_is_for_no_use_here_is_refused(
    tmp_path: Path, change: Callable[[onnx.ModelProto], None], said: str
) -> None:
    model = gpt(1, 64, 4).model()
    change(model)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    assert said in refusal(tmp_path / "m.onnx")


def test_a_function_of_the_file_is_taken_apart_and_a_missing_one_refused(tmp_path: Path) -> None:
    w = Writer()
    w.output(w.Square(w.input("x", [4, 8]), domain="mine"))
    model = w.model()
    model.opset_import.append(helper.make_opsetid("mine", 1))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    assert "Square of domain 'mine', node '/Square_0': the operator is not known" in refusal(tmp_path / "m.onnx")
    body = [helper.make_node("Mul", ["a", "a"], ["b"])]
    model.functions.append(helper.make_function("mine", "Square", ["a"], ["b"], body, [helper.make_opsetid("", 17)]))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    assert [kernel.op for kernel in read(tmp_path / "m.onnx").kernels] == ["elementwise"]


CHANGES = ("drop", "op", "input", "attribute", "constant", "swap", "dim", "type", "cut", "flip")


def changed(model: onnx.ModelProto, what: str, pick: Callable[[int], int]) -> bytes:
    """A model with one thing changed, at random."""
    graph = model.graph
    node, tensor = graph.node[pick(len(graph.node))], graph.initializer[pick(len(graph.initializer))]
    if what == "drop":
        graph.node.remove(node)
    elif what == "op":
        node.op_type = (*sorted(OPERATORS), "SequenceAt", "Odd")[pick(len(OPERATORS) + 2)]
    elif what == "input":
        other = graph.node[pick(len(graph.node))].output[0]
        node.input[pick(len(node.input))] = ("", other, tensor.name, "odd")[pick(4)]
    elif what == "attribute" and node.attribute:
        node.attribute.pop(pick(len(node.attribute)))
    elif what == "constant" and tensor.dims:
        tensor.dims[0] = (0, 1, 3, 7, 10**6)[pick(5)]
    elif what == "swap":
        other = graph.node[pick(len(graph.node))]
        node.output[0], other.output[0] = other.output[0], node.output[0]
    elif what == "dim":
        graph.input[0].type.tensor_type.shape.dim[0].dim_value = (0, 3, 10**9, -1)[pick(4)]
    elif what == "type":
        tensor.data_type = (7, 9, 10, 11, 8, 86)[pick(6)]
    whole = bytearray(model.SerializeToString())
    if what == "flip":
        whole[pick(len(whole))] = pick(256)
    return bytes(whole[: pick(len(whole))] if what == "cut" else whole)


@given(st.sampled_from(CHANGES), st.randoms(use_true_random=False))
def test_changed_files_are_read_or_refused(what: str, random: Random) -> None:
    model = gpt(1, 64, 4).model()
    model.graph.initializer.pop(0)  # the mask, which is large
    model.graph.input.append(helper.make_tensor_value_info("const_0", TensorProto.BOOL, [1, 1, 64, 64]))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(changed(model, what, random.randrange))
        said = ""
        try:
            graph = read(path, {"batch": 1, "sequence": 8})
        except DocumentError as error:
            said = str(error)
        assert said.startswith(f"{path}: ") if said else graph.kernels


def test_the_command_line_refuses_in_one_line(tmp_path: Path) -> None:
    path = gpt(1, 64, 4).save(tmp_path / "gpt.onnx")
    words = ["import", "onnx", str(path), "-o", str(tmp_path / "gpt.yaml")]
    for size, said in (("batch=many", "found 'many'"), ("batch=0", "found 0"), ("batch", "expected KEY=VALUE")):
        done = CliRunner().invoke(app, [*words, "--set-dim", size])
        assert done.exit_code == 2 and said in done.stderr and done.stderr.count("\n") == 1
    assert CliRunner().invoke(app, words).exit_code == 3
    assert not (tmp_path / "gpt.yaml").exists()
    done = CliRunner().invoke(app, ["solve", str(path), "sn10-8-ring"])
    assert done.exit_code == 3 and "turn it into one with `dfopt import onnx`" in done.stderr


def test_without_the_package_one_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = gpt(1, 64, 4).save(tmp_path / "gpt.onnx")
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert "found no onnx, the package that reads such files (python -m pip install onnx)" in refusal(path)
