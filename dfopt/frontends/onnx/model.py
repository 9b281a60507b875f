"""An ONNX file as nodes that have something to do: shapes known, constants found, shape arithmetic gone.

Nodes are taken one after the other. ONNX's own shape inference gives the shapes of what a node produces, under the
sizes that symbolic dims were given; what depends on shapes and small constants alone is computed by ONNX's reference
implementation and is a constant from there on. Of large constants (weights) only the shape is kept, and external
data is never read.
"""

from __future__ import annotations

import math
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import networkx as nx
import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference
from onnx.reference import ReferenceEvaluator

from dfopt.documents.dtypes import Dtype
from dfopt.documents.strict_yaml import load_strict
from dfopt.errors import DocumentError, Issue, did_you_mean, shown
from dfopt.frontends.onnx.file import parse

_KINDS: Final[dict[int, str]] = {number: name for name, number in onnx.TensorProto.DataType.items()}
SMALL: Final = 4096
"""Elements up to which a constant is kept with its values: shapes, axes, indices."""
STANDARD: Final = ("", "ai.onnx")
FLOATS: Final = ("FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE")
ELEMENTS: Final[Mapping[str, tuple[float, Dtype | None]]] = {
    kind: (float(each), dtype) for kind, (each, dtype) in load_strict(Path(__file__).with_name("elements.yaml")).items()
}
"""Bytes of an element, and the type of a graph's data that it is, if any."""


@dataclass(frozen=True)
class Type:
    """Element type and shape of a value."""

    kind: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def item_bytes(self) -> float:
        """Bytes of an element in the file."""
        return ELEMENTS[self.kind][0]


@dataclass(frozen=True)
class OnnxNode:
    """A node with non-constant inputs, and its position in the file."""

    op: str
    domain: str
    name: str
    place: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    opset: int

    @property
    def where(self) -> str:
        """Path of the node in the file."""
        return f"$.graph.node[{self.place}]"

    @property
    def what(self) -> str:
        """Description of the node in words."""
        domain = f" of domain {self.domain!r}" if self.domain not in STANDARD else ""
        return f"{self.op}{domain}, node {self.name!r}"

    def refuse(self, message: str, remedy: str = "") -> DocumentError:
        """A `DocumentError` that the node is not supported."""
        return DocumentError("", [Issue(self.where, f"{self.what}: {message}", remedy)])


@dataclass(frozen=True)
class OnnxModel:
    """Nodes of a model in evaluation order, with types and constants.

    ``constants`` are values that depend on no input, with the stored tensors that they are made of; ``values`` are the
    arrays of the small ones.
    """

    nodes: tuple[OnnxNode, ...]
    types: Mapping[str, Type]
    constants: Mapping[str, frozenset[str]]
    values: Mapping[str, np.ndarray[Any, Any]]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    sizes: Mapping[str, int]

    @cached_property
    def readers(self) -> Mapping[str, list[OnnxNode]]:
        """Nodes that read each value, by its name."""
        readers: defaultdict[str, list[OnnxNode]] = defaultdict(list)
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                readers[name].append(node)
        return readers


def read_model(
    path: str | os.PathLike[str], dims: Mapping[str, int], shapes_of: Mapping[tuple[str, str], Any]
) -> OnnxModel:
    """Read an ONNX file and infer all shapes.

    Parameters
    ----------
    path : path
        The model file; files of external data may be missing.
    dims : mapping
        Sizes of symbolic dims, by their name, or as ``INPUT[AXIS]`` where a dim has none.
    shapes_of : mapping
        Rules for operators that ONNX has no schema of, by domain and name: from a node and the types of its inputs
        (none where one is left out) to those of its outputs.

    Raises
    ------
    DocumentError
        If it is no model, or the shape of something does not follow from the dims that are given.
    """
    file = os.fspath(path)
    try:
        return _ModelReader(parse(Path(path), file), dims, shapes_of).read()
    except DocumentError as error:
        if error.path:
            raise
        raise DocumentError(file, error.issues) from None


class _ModelReader:
    """A walk through the nodes of a model."""

    def __init__(
        self, model: onnx.ModelProto, dims: Mapping[str, int], shapes_of: Mapping[tuple[str, str], Any]
    ) -> None:
        self.graph, self.dims, self.shapes_of = model.graph, dims, shapes_of
        self.opsets = {opset.domain: opset.version for opset in model.opset_import}
        self.imports = list(model.opset_import)
        self.protos: dict[str, onnx.TypeProto] = {}
        self.types: dict[str, Type] = {}
        self.data: dict[str, onnx.TensorProto] = {}
        self.untyped: dict[str, DocumentError] = {}
        self.values: dict[str, np.ndarray[Any, Any]] = {}
        self.constants: dict[str, frozenset[str]] = {}

    def read(self) -> OnnxModel:
        """The model, without what no output needs."""
        if self.graph.sparse_initializer:
            message = "found a sparse initializer, which is not understood"
            raise DocumentError("", [Issue("$.graph.sparse_initializer[0]", message, "store it as a whole tensor")])
        for tensor in self.graph.initializer:
            self._constant(tensor.name, tensor)
        inputs = [value for value in self.graph.input if value.name not in self.constants]
        sizes = self._set_dims(inputs)
        nodes = []
        for place in self._order():
            node = _node(self.graph.node[place], place, self.opsets)
            if self._works(node):
                nodes.append(node)
        outputs = tuple(output.name for output in self.graph.output)
        self._check_typed(outputs)
        return OnnxModel(
            _needed(nodes, outputs), self.types, self.constants, self.values, tuple(value.name for value in inputs),
            outputs, sizes,
        )  # fmt: skip

    def _constant(self, name: str, tensor: onnx.TensorProto) -> None:
        self._typed(name, helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims)), f"constant {name!r}")
        self.constants[name] = frozenset({name})
        stored = tensor.data_location != onnx.TensorProto.EXTERNAL
        if self.types[name].size <= SMALL and stored:
            self.data[name] = onnx.TensorProto()
            self.data[name].CopyFrom(tensor)
            self.data[name].name = name
            try:
                self.values[name] = numpy_helper.to_array(tensor)
            except (ValueError, TypeError):
                message = f"the data of the constant {name!r} do not fit its type and shape"
                raise DocumentError("", [Issue("$.graph", message, "is the file whole?")]) from None

    def _check_typed(self, names: Iterable[str]) -> None:
        """Refuse values that are used and whose shape is not known."""
        for name in names:
            if name not in self.types:
                lost = DocumentError("", [Issue("$.graph.output", f"nothing produces the output {name!r}")])
                raise self.untyped.get(name, lost)

    def _typed(self, name: str, proto: onnx.TypeProto, what: str, where: str = "$.graph") -> None:
        """Note the type of a value; all of its dims must be known."""
        if not proto.HasField("tensor_type"):
            kind = proto.WhichOneof("value") or "value without a type"
            message = f"{what} is a {kind.replace('_type', '')}, expected a tensor of known shape"
            remedy = "only tensors whose shape follows from the inputs' are read"
            raise DocumentError("", [Issue(where, message, remedy)])
        tensor = proto.tensor_type
        kind = _KINDS.get(tensor.elem_type, "unknown")
        if kind not in ELEMENTS:
            raise DocumentError("", [Issue(where, f"{what} has elements of type {kind.lower()}, which are not read")])
        if not tensor.HasField("shape") or not all(dim.HasField("dim_value") for dim in tensor.shape.dim):
            message = f"the shape of {what} does not follow from those of the inputs"
            remedy = "it depends on values, or the file leaves it out; export the model with shapes that do not"
            raise DocumentError("", [Issue(where, message, remedy)])
        self.protos[name] = proto
        self.types[name] = Type(kind, tuple(dim.dim_value for dim in tensor.shape.dim))

    def _set_dims(self, inputs: Sequence[onnx.ValueInfoProto]) -> dict[str, int]:
        """Give every dim of the inputs a size; the sizes of all dims that have a name or a place."""
        issues, used, sizes = list[Issue](), set[str](), dict[str, int]()
        missing: dict[str, str] = {}
        for place, value in enumerate(inputs):
            where = f"$.graph.input[{place}]"
            if not value.type.HasField("tensor_type") or not value.type.tensor_type.HasField("shape"):
                message = f"the input {value.name!r} is no tensor whose shape the file says"
                issues.append(Issue(where, message, "export the model with the rank of its inputs"))
                continue
            for axis, dim in enumerate(value.type.tensor_type.shape.dim):
                names = [name for name in (dim.dim_param, f"{value.name}[{axis}]") if name]
                if dim.HasField("dim_value") and dim.dim_value > 0:
                    sizes[names[-1]] = dim.dim_value
                    continue
                given = [name for name in names if name in self.dims]
                used.update(given)
                if not given:
                    missing.setdefault(names[0], f"{where}.type.tensor_type.shape.dim[{axis}]")
                    continue
                dim.dim_value = self.dims[given[0]]
                sizes |= dict.fromkeys(names, dim.dim_value)
        for name, where in missing.items():
            issues.append(Issue(where, f"the dim {name!r} has no size", f"give --set-dim {name}=N"))
        for name in self.dims:
            if name not in used:
                message = f"found a size for {name!r}, but no input has such a dim without one"
                issues.append(Issue("$.graph.input", message, did_you_mean(name, [*missing, *sizes])))
        if issues:
            raise DocumentError("", issues)
        for place, value in enumerate(inputs):
            self._typed(value.name, value.type, f"the input {value.name!r}", f"$.graph.input[{place}]")
        return sizes

    def _order(self) -> list[int]:
        """Places of the nodes, each behind those that it reads; in the order of the file where that is one."""
        nodes = self.graph.node
        producer: dict[str, int] = {}
        for place, node in enumerate(nodes):
            for name in filter(None, node.output):
                if name in producer or name in self.types:
                    message = f"{name!r} is produced twice" if name in producer else f"{name!r} is an input already"
                    raise DocumentError("", [Issue(f"$.graph.node[{place}].output", message, "rename one of them")])
                producer[name] = place
        drawn: Any = nx.DiGraph()
        for place, node in enumerate(nodes):
            drawn.add_node(place)
            for name in node.input:
                if name in producer:
                    drawn.add_edge(producer[name], place)
                elif name and name not in self.types:
                    message = f"node {node.name or node.op_type!r} reads {name!r}, which nothing produces"
                    remedy = did_you_mean(name, [*producer, *self.types], "is the file whole?")
                    raise DocumentError("", [Issue(f"$.graph.node[{place}].input", message, remedy)])
        try:
            return list(nx.lexicographical_topological_sort(drawn))
        except nx.NetworkXUnfeasible:
            place = nx.find_cycle(drawn)[0][0]
            message = f"the nodes form a cycle through {nodes[place].name or nodes[place].op_type!r}"
            raise DocumentError("", [Issue(f"$.graph.node[{place}]", message, "a model is acyclic")]) from None

    def _works(self, node: OnnxNode) -> bool:
        """Whether a node has to be run for every input; the types of its outputs, and its values if they are small."""
        proto = self.graph.node[node.place]
        if any(attribute.g.node or attribute.graphs for attribute in proto.attribute):
            raise node.refuse("control flow is not understood", "export the model with its branches and loops unrolled")
        if node.op == "Constant" and node.domain in STANDARD:
            for name, value in node.attributes.items():
                if name == "sparse_value":
                    raise node.refuse("a sparse tensor is not understood", "store it as a whole tensor")
                kind = np.float32 if "float" in name else None
                tensor = value if name == "value" else numpy_helper.from_array(np.array(value, dtype=kind))
                self._constant(node.outputs[0], tensor)
            return False
        reads = [name for name in node.inputs if name]
        self._check_typed(reads)
        model = self._types_of(node, proto)
        if node.op in ("Shape", "Size") and node.domain in STANDARD and reads:
            shape = self.types[reads[0]].shape
            part = shape[slice(node.attributes.get("start"), node.attributes.get("end"))]
            value = np.array(part if node.op == "Shape" else math.prod(shape), dtype=np.int64)
            self._set_value(node.outputs[0], value, frozenset())
            return False
        if not reads or not all(name in self.constants or not self.types[name].size for name in reads):
            return True
        names = [name for name in node.outputs if name]
        made_of = frozenset[str]().union(*(self.constants.get(name, ()) for name in reads))
        if node.op == "ConstantOfShape":  # data of its own, however small the shape is that it is made of
            made_of = frozenset(names)
        self._check_typed(names)
        small = all(self.types[name].size <= SMALL for name in names)
        if small and model is not None and all(name in self.values for name in reads):
            model.graph.ClearField("value_info")
            try:
                values = ReferenceEvaluator(model).run(None, {})
            except Exception as error:  # whatever a kernel of the reference implementation raises
                raise node.refuse(f"its constant inputs do not fit: {_first_line(error)}") from None
            for name, value in zip(names, values, strict=True):
                self._set_value(name, np.asarray(value), made_of)
        else:
            self.constants |= dict.fromkeys(names, made_of)
        return False

    def _set_value(self, name: str, value: np.ndarray[Any, Any], made_of: frozenset[str]) -> None:
        self.constants[name], self.values[name] = made_of, value
        self.data[name] = numpy_helper.from_array(value, name)
        self._typed(name, helper.make_tensor_type_proto(self.data[name].data_type, list(value.shape)), repr(name))

    def _types_of(self, node: OnnxNode, proto: onnx.NodeProto) -> onnx.ModelProto | None:
        """Find the types of a node's outputs; the node as a model of its own, if ONNX knows it."""
        rule = self.shapes_of.get((node.domain, node.op))
        if rule is not None:
            given = [self.types[name] if name else None for name in node.inputs]
            for name, inferred in zip(node.outputs, rule(node, given), strict=False):
                if name and inferred is not None:
                    kind = onnx.TensorProto.DataType.Value(inferred.kind)
                    inferred_type = helper.make_tensor_type_proto(kind, list(inferred.shape))
                    self._typed(name, inferred_type, f"{name!r} of {node.what}")
            return None
        if node.domain not in STANDARD or not onnx.defs.has(node.op, max_inclusive_version=node.opset):
            raise node.refuse("the operator is not known", "nor does the file have a function of this name")
        names = dict.fromkeys(name for name in node.inputs if name)
        copy = onnx.NodeProto()
        copy.CopyFrom(proto)
        graph = helper.make_graph(
            [copy], "node",
            [helper.make_value_info(name, self.protos[name]) for name in names if name not in self.data],
            [onnx.ValueInfoProto(name=name) for name in node.outputs if name],
            initializer=[self.data[name] for name in names if name in self.data],
        )  # fmt: skip
        model = helper.make_model(graph, opset_imports=self.imports, ir_version=10)
        try:
            done = shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
        except shape_inference.InferenceError as error:
            raise node.refuse(f"its inputs do not fit: {_first_line(error)}") from None
        for out in done.graph.output:
            try:
                self._typed(out.name, out.type, f"the output {out.name!r} of {node.what}", node.where)
            except DocumentError as error:  # it may be that nothing reads it
                self.untyped[out.name] = error
        return model


def _node(proto: onnx.NodeProto, place: int, opsets: Mapping[str, int]) -> OnnxNode:
    name = proto.name or next((output for output in proto.output if output), proto.op_type)
    opset = opsets.get(proto.domain, opsets.get("", opsets.get("ai.onnx", 1)))
    values = {a.name: a.t if a.HasField("t") else helper.get_attribute_value(a) for a in proto.attribute}
    values = {key: value.decode() if isinstance(value, bytes) else value for key, value in values.items()}
    return OnnxNode(proto.op_type, proto.domain, name, place, tuple(proto.input), tuple(proto.output), values, opset)


def _needed(nodes: Sequence[OnnxNode], outputs: Iterable[str]) -> tuple[OnnxNode, ...]:
    """The nodes that the outputs of a model depend on."""
    wanted, needed = set(outputs), list[OnnxNode]()
    for node in reversed(nodes):
        if wanted.intersection(filter(None, node.outputs)):
            wanted.update(node.inputs)
            needed.append(node)
    return tuple(reversed(needed))


def _first_line(error: Exception) -> str:
    """What an error of ONNX says, in one line."""
    lines = [line.strip() for line in str(error).replace("[ShapeInferenceError]", "").splitlines() if line.strip()]
    text = re.sub(r"^Inference error\(s\): \(op_type:[^)]*\): *", "", " ".join(lines))
    return shown(text[:300], 300).strip("'\"") or type(error).__name__
