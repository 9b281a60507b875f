"""Drawing the nodes of an ONNX model: kernels, what they read, and the graph that they make."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from dfopt.documents.dtypes import Dtypes
from dfopt.documents.graph import Graph, Input, Kernel, Output, SequenceState, Tensor
from dfopt.documents.kernel import needed
from dfopt.errors import DocumentError, Issue
from dfopt.frontends.onnx.model import ELEMENTS, FLOATS, OnnxModel, OnnxNode, Type
from dfopt.frontends.onnx.values import Axes, OnnxValue, extents, of_products, one_each

Operand = Literal[1, 2] | None
_INDICES: Final = frozenset({"INT32", "INT64"})  # shapes and axes, with which weights were reshaped
_LONGEST: Final = 180  # characters of a kernel's name


@dataclass(frozen=True)
class _Held:
    """A constant that a kernel reads beside the weights of a product: elements read and held, and bytes of each."""

    kernel: str
    made_of: frozenset[str]
    read: float
    size: float
    each: float
    trained: bool


class Canvas:
    """The graph under construction from an ONNX model.

    Parameters
    ----------
    model : OnnxModel
        Its constants and inputs are values from the start.
    """

    def __init__(self, model: OnnxModel) -> None:
        self.model, self.kind = model, _kind_of_activations(model)
        self.word = ELEMENTS[self.kind][0]
        self.kernels: dict[str, dict[str, Any]] = {}
        self.reads: list[tuple[str, Operand, OnnxValue]] = []
        self.values: dict[str, OnnxValue] = {}
        self.size_of = Counter[str]()
        self.weights: dict[str, tuple[frozenset[str], str]] = {}
        self.held: list[_Held] = []
        self.kept: set[str] = set()
        self.parameters = 0.0
        for name in model.inputs:
            kind = model.types[name]
            letters = "n" * (len(kind.shape) - 1) + "m" if len(kind.shape) > 1 else "n" * len(kind.shape)
            self.values[name] = OnnxValue(name, kind, one_each(letters, kind.shape), "", kind.size)

    def value(self, name: str) -> OnnxValue:
        """A drawn value or a constant, by name."""
        value = self.values.get(name)
        if value is not None:
            return value
        kind = self.model.types[name]
        if name not in self.model.constants and kind.size:
            message = f"{name!r} is an output that is not understood of the operator that produces it"
            raise DocumentError("", [Issue("$.graph", message, "export the model without it")])
        axes = one_each("?" * len(kind.shape), kind.shape)
        return OnnxValue(name, kind, axes, constant=True, made_of=self.model.constants.get(name, frozenset()))

    def inputs(self, node: OnnxNode) -> list[OnnxValue]:
        """All inputs that a node has."""
        return [self.value(name) for name in node.inputs if name]

    def draw(
        self,
        node: OnnxNode,
        op: str,
        sizes: dict[str, Any],
        *reads: OnnxValue | tuple[OnnxValue, Operand],
        part: str = "",
        **more: Any,
    ) -> str:
        """Add a kernel that reads some values, with constants from DRAM; return its name.

        ``sizes`` are fields of the kernel, ``part`` tells kernels of one node from each other.
        """
        name = self.unused(node.name[:_LONGEST] + (f".{part}" if part else ""))
        self.kernels[name] = {"name": name, "op": op, **sizes, **more}
        for read in reads:
            value, operand = read if isinstance(read, tuple) else (read, None)
            if value.constant:
                self.hold(name, value)
            else:
                self.reads.append((name, operand, value))
        return name

    def unused(self, name: str) -> str:
        """An unused kernel name based on ``name``."""
        again = (f"{name}_{number}" for number in range(2, len(self.kernels) + 3))
        return next(other for other in (name, *again) if other not in self.kernels)

    def hold(self, kernel: str, value: OnnxValue, read: float | None = None) -> None:
        """Let a kernel read a constant, or ``read`` elements of it, from DRAM; scalars are ignored."""
        if value.type.size > 1:
            kinds = [self.model.types[name] for name in value.made_of]
            stored = sum(kind.size for kind in kinds if kind.kind not in _INDICES) or value.type.size
            size = min(value.type.size, stored)
            each, trained = self._stored(value).item_bytes, value.type.kind in FLOATS
            self.held.append(_Held(kernel, value.made_of, size if read is None else read, size, each, trained))

    def share_constants(self, kernel: str, parts: Mapping[str, float]) -> None:
        """Give kernels that are parts of another one their shares of its constants."""
        constants = [constant for constant in self.held if constant.kernel == kernel]
        self.held = [constant for constant in self.held if constant.kernel != kernel]
        for part, share in parts.items():
            for constant in constants:
                of = constant.made_of | {part} if constant.made_of else constant.made_of  # no other part reads this
                read, size = constant.read * share, constant.size * share
                self.held.append(replace(constant, kernel=part, made_of=of, read=read, size=size))

    def weigh(self, kernel: str, weight: OnnxValue) -> None:
        """Set a constant as the weight of a product."""
        self.weights[kernel] = weight.made_of, self._stored(weight).kind

    def _stored(self, value: OnnxValue) -> Type:
        """The type in which a constant lies in DRAM: that of the largest tensor it is made of, if that is smaller."""
        kinds = [self.model.types[name] for name in value.made_of]
        largest = max((t for t in kinds if t.kind not in _INDICES), key=lambda t: t.size, default=value.type)
        return min(value.type, largest, key=lambda kind: kind.item_bytes)

    def give(self, name: str, kernel: str, axes: Axes) -> OnnxValue:
        """Register a kernel's output as the value ``name``."""
        kind = self.model.types[name]
        self.size_of[kernel] += kind.size
        several = self.size_of[kernel] > kind.size
        self.values[name] = OnnxValue(name, kind, axes, kernel, kind.size, name if several else "")
        return self.values[name]

    def inner(self, kernel: str, axes: Axes) -> OnnxValue:
        """Output of a kernel for another kernel of the same node."""
        sizes = extents(axes)
        kind = Type("FLOAT", (math.prod(sizes.values()),))
        self.size_of[kernel] = kind.size
        return OnnxValue(kernel, kind, axes, kernel, kind.size)

    def pointwise(
        self, node: OnnxNode, axes: Axes, *reads: OnnxValue, flop: int = 1, part: str = "", **more: Any
    ) -> str:
        """Draw an elementwise kernel with these output axes and ``flop`` FLOP per element; return its name."""
        return self.draw(node, "elementwise", extents(axes), *reads, part=part, flop_per_element=flop, **more)

    def product(
        self,
        node: OnnxNode,
        a: tuple[OnnxValue, Sequence[str]],
        b: tuple[OnnxValue, Sequence[str]],
        out: Sequence[str],
        *others: OnnxValue,
        part: str = "",
        **more: Any,
    ) -> tuple[str, Axes]:
        """Draw a product of values with labelled dims, as in an Einsum; return the kernel and its axes.

        Labels of both that the output has are independent products, others of both are contracted. The side of a
        constant is a weight, else the labels of the first alone are the tokens and those of the second the features.
        """
        if a[0].constant:
            a, b = b, a
        size: dict[str, int] = {}
        for value, labels in (a, b):
            for label, count in zip(labels, value.shape, strict=True):
                if size.setdefault(label, count) != count and 1 not in (size[label], count):
                    raise node.refuse(f"dims of {size[label]} and {count} do not fit each other")
                size[label] = max(size[label], count)
        first, second = ({la for la, n in zip(labels, value.shape, strict=True) if n > 1} for value, labels in (a, b))
        if lost := {label for label in first ^ second if label not in out}:
            raise node.refuse(f"sums over a dim of one operand alone ({', '.join(sorted(lost))})")
        batch = first & second & set(out)

        def many(labels: Iterable[str]) -> int:
            return math.prod(size[label] for label in labels)

        letter = {**dict.fromkeys(out, "n"), **dict.fromkeys(second, "m")}
        axes: Axes = one_each((letter[label] for label in out), [size[label] for label in out])
        weight = b[0].constant
        of = dict(zip(a[1], a[0].axes, strict=True)), dict(zip(b[1], b[0].axes, strict=True))
        for place, label in enumerate(out):
            if label in batch:
                dims = [axis_of[label] for axis_of in of]
                origin = next((dim for dim in dims if any(tag in "mh" for tag, _ in dim)), dims[0])
                dim = (("h", size[label]),) if weight else of_products(origin)
                axes = (*axes[:place], dim, *axes[place + 1 :])
        sizes = extents(axes)
        rows, columns = ((labels - batch) & set(out) for labels in (first, second))
        sizes |= {"m": many(columns), "k": many((first & second) - batch), "n": many(rows)}
        if weight:
            kernel = self.draw(node, "gemm", sizes, (a[0], 1), *others, part=part, **more)
            self.weigh(kernel, b[0])
        else:
            kept = [_divided(value.cache, sizes["outer"]) for value in (a[0], b[0]) if value.cache is not None]
            more |= {"states": tuple(kept)} if kept else {}
            kernel = self.draw(node, "matmul", sizes, (a[0], 1), (b[0], 2), *others, part=part, **more)
        return kernel, axes

    # -- the whole -----------------------------------------------------------------------------
    def graph(self, **about: Any) -> Graph:
        """The graph of everything drawn."""
        self._place_constants()
        self._mark_attention()
        self._choose_streams()
        kernels = {name: Kernel(**fields) for name, fields in self.kernels.items()}
        most, numbers = {name: kernel.matrices * needed(kernel) for name, kernel in kernels.items()}, self._numbers()

        def size(value: OnnxValue) -> float:
            return float(min(value.elements, most[value.source]) * self.word)

        tensors, inputs = list[Tensor](), list[Input]()
        for dst, operand, value in self._distinct_reads():
            if value.source:
                part = numbers.get((value.source, value.elements, value.part))
                tensors.append(Tensor(src=value.source, dst=dst, operand=operand, bytes=size(value), part=part))
            else:
                stored = value.elements * value.type.item_bytes
                inputs.append(Input(dst=dst, operand=operand, bytes=stored))
        written = dict[tuple[str, str], float]()
        for name in self.model.outputs:
            output = None if name in self.kept else self.value(name)
            if output is not None and output.source:
                written[output.source, output.part] = size(output)
        outputs = tuple(Output(src=src, bytes=count) for (src, _), count in written.items())
        ends = {"inputs": tuple(inputs), "outputs": outputs}
        drawn = {"kernels": tuple(kernels.values()), "tensors": tuple(tensors), **ends, **self._types()}
        return Graph(**drawn, **about)

    def _types(self) -> dict[str, Any]:
        """The types of the graph: those of most that is computed, and of most weights of products."""
        activations, weights = (ELEMENTS[kind][1] for kind in (self.kind, self._kind_of_weights()))
        if activations is None or weights is None:
            return {"word_bytes": int(self.word)}
        return {"dtypes": Dtypes(activations=activations, weights=weights)}

    def _kind_of_weights(self) -> str:
        elements = Counter[str]()
        for name, (_, kind) in self.weights.items():
            if ELEMENTS[kind][1] is not None:
                elements[kind] += self._elements(name)
        return elements.most_common(1)[0][0] if elements else self.kind

    def _elements(self, product: str) -> int:
        """Weights of a product."""
        fields = self.kernels[product]
        return int(fields.get("outer", 1) * fields["m"] * fields["k"])

    def notes(self) -> str:
        """Text on differences from the file: weights have one data type, and each product its own weight."""
        used: defaultdict[frozenset[str], list[int]] = defaultdict(list)
        for name, (made_of, _) in self.weights.items():
            used[made_of].append(self._elements(name))
        again = 0
        for made_of, sizes in used.items():
            stored = [kind.size for kind in map(self.model.types.__getitem__, made_of) if kind.kind not in _INDICES]
            again += len(sizes) - 1 if sum(sizes) > sum(stored) > 0 else 0
        most = self._kind_of_weights()
        others = sorted({kind.lower() for _, kind in self.weights.values() if kind != most})
        note = f"; weights of type {' and '.join(others)} count as {most.lower()}" if others else ""
        return note + (f"; {again} products use weights of another one, and count them again" if again else "")

    def _numbers(self) -> dict[tuple[str, int, str], str]:
        """Numbers of parts that are as large as another one of the same output, by source, elements and part."""
        parts: defaultdict[str, dict[tuple[int, str], None]] = defaultdict(dict)
        for _, _, value in self.reads:
            parts[value.source].setdefault((value.elements, value.part))
        numbers = dict[tuple[str, int, str], str]()
        for source, shapes in parts.items():
            alike = Counter(elements for elements, _ in shapes)
            for number, (elements, part) in enumerate(shapes, 1):
                if alike[elements] > 1:
                    numbers[source, elements, part] = str(number)
        return numbers

    def _distinct_reads(self) -> list[tuple[str, Operand, OnnxValue]]:
        """What kernels read; an elementwise kernel takes the same thing once."""
        distinct: dict[tuple[Any, ...], tuple[str, Operand, OnnxValue]] = {}
        for dst, operand, value in self.reads:
            what = value.source or value.name
            distinct.setdefault((dst, operand, what, value.part, value.elements), (dst, operand, value))
        return list(distinct.values())

    def _place_constants(self) -> None:
        """Let kernels hold and read constants: those of a product's weight once, what several read by shares."""
        tied = {made_of for made_of, _ in self.weights.values() if made_of}
        users = Counter((constant.made_of, constant.size) for constant in self.held)
        self.parameters = float(sum(map(self._elements, self.weights)))
        for constant in self.held:
            fields = self.kernels[constant.kernel]
            fields["dram_bytes"] = fields.get("dram_bytes", 0.0) + constant.read * constant.each
            if constant.made_of not in tied:
                share = constant.size / (users[constant.made_of, constant.size] if constant.made_of else 1)
                fields["resident_bytes"] = fields.get("resident_bytes", 0.0) + share * constant.each
                self.parameters += share if constant.trained else 0.0

    def _mark_attention(self) -> None:
        """Give products of activations with a softmax between them their roles: a library does them at once.

        Between the two are elementwise kernels of the scores' size and reductions of them alone, each read by none
        else, and one of them normalises.
        """
        readers: defaultdict[str, list[tuple[str, Operand]]] = defaultdict(list)
        for dst, operand, value in self._distinct_reads():
            readers[value.source].append((dst, operand))
        shown = {self.values[name].source for name in self.model.outputs if name in self.values}
        for start, fields in self.kernels.items():
            if fields["op"] != "matmul" or "role" in fields:
                continue
            size, between, ends, open_ = _shape(fields), set[str](), set[str](), [start]
            while open_:
                for dst, operand in readers[open_.pop()]:
                    other = self.kernels[dst]
                    if other["op"] == "elementwise" and _shape(other) == size:
                        if dst not in between:
                            between.add(dst)
                            open_.append(dst)
                    else:
                        ends.add(dst if other["op"] == "matmul" and operand == 1 else "")
            inner = [self.kernels[name] for name in between]
            if shown & {start, *between}:
                continue
            if len(ends) == 1 and "" not in ends and any(kernel.get("normalizes") for kernel in inner):
                fields["role"] = "scores"
                self.kernels[ends.pop()]["role"] = "context"
                for kernel in inner:
                    kernel["role"] = "softmax"

    def _choose_streams(self) -> None:
        """Say which kernels stream: all are cut into as many tiles as the shortest token axis that streams has tokens.

        Those with fewer tokens than that are whole. The number is the one that leaves the least output in SRAM.
        """
        free = [fields for fields in self.kernels.values() if "stream" not in fields]
        lengths = sorted({fields["n"] for fields in free})
        size = [(fields["n"], math.prod(_shape(fields))) for fields in free]

        def left(rows: int) -> float:
            return sum(elements / rows if n >= rows else elements for n, elements in size)

        if lengths:
            rows = min(lengths, key=lambda length: (left(length), length))
            for fields in free:
                if fields["n"] < rows:
                    fields["stream"] = "none"


def _divided(cache: SequenceState, outer: int) -> SequenceState:
    """A cache of a product; heads that are not those of the product are not told apart."""
    return cache if outer % cache.heads == 0 else cache.model_copy(update={"heads": 1})


def _shape(fields: dict[str, Any]) -> tuple[int, ...]:
    return tuple(fields.get(key, 1) for key in ("outer", "samples", "m", "n"))


def _kind_of_activations(model: OnnxModel) -> str:
    """The type of most that is computed, or else of most constants."""
    computed = [name for node in model.nodes for name in node.outputs]
    for names in (computed, model.constants):
        elements = Counter[str]()
        for name in names:
            kind = model.types.get(name)
            if kind is not None and kind.kind in FLOATS:
                elements[kind.kind] += kind.size
        if elements:
            return elements.most_common(1)[0][0]
    return "FLOAT"
