"""The backward pass and the weight updates of a graph: one rule for each op of a forward kernel.

============  ====================================================================================================
op            what training adds, for an output whose gradient is ``dy``
============  ====================================================================================================
gemm          ``NAME_bwd``, the weight times ``dy``, if anything wants the input's gradient; and
              ``NAME_bwd_weight_update``, ``dy`` times the input that the forward pass has saved
matmul        ``NAME_bwd1`` and ``NAME_bwd2``, ``dy`` times the other operand, saved, for each of its two operands
elementwise   ``NAME_bwd``, as large as the kernel or as its input if that is larger; it reads a saved input where
              there is one, and nothing but ``dy`` where there are several, as if it added them
============  ====================================================================================================

So every matrix product of the forward pass has two gradients, each as much work as the product itself, and nothing is
computed again. A gradient is wanted where it leads to parameters: a weight, a table, or an earlier repeat.

What several kernels read has several gradients. An elementwise backward kernel adds those that it reads; in front of
others, and where a gradient is larger than what it belongs to because that was read by several at once (a head of K
by its group), a kernel adds them up. Of products for one sum, all but the first accumulate into it: one collective.

Every backward kernel sits in the stage of its forward kernel, whose saved activations or weight it needs. Where a
backward pass departs from these rules, `Gradient` says so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from dfopt.documents.graph import Graph, Input, Kernel, Tensor
from dfopt.documents.kernel import needed
from dfopt.errors import GraphError, Issue


@dataclass(frozen=True)
class Gradient:
    """Rule for a backward kernel where it differs from the default of the op.

    Parameters
    ----------
    name
        ``NAME_bwd`` if left out; of a matmul ``NAME_bwd1`` and ``NAME_bwd2``.
    of
        Producers of the inputs whose gradient it gives; all if left out.
    reads
        Forward kernels whose outputs it reads again, of an elementwise kernel.
    drawn
        ``False``: there is no kernel, the output's gradient is the inputs'.
    to
        Kernel whose output's gradient this one is a part of, if not the inputs' producers.
    adds
        Whether it reads the gradient accumulated so far, and returns the sum.
    turned
        Whether the gradient of a matmul's second operand (``m x k``) comes out as ``k x m``; found by the shape of
        the operand's producer if left out, which an operand with ``m = k`` does not tell.
    fields
        Fields of the kernel, such as its sizes.

    Examples
    --------
    >>> Gradient("Act_bwd_gate", of=("Gate",), reads=("Gate", "Up")).drawn
    True
    """

    name: str | None = None
    of: tuple[str, ...] | None = None
    reads: tuple[str, ...] | None = None
    drawn: bool = True
    to: str | None = None
    adds: bool = False
    turned: bool | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)


def backward_of(
    graph: Graph,
    rules: Mapping[str, Gradient | tuple[Gradient, ...]] | None = None,
    *,
    sum_kernels: Mapping[str, tuple[str, str]] | None = None,
    order: Sequence[str] | None = None,
    updates: Literal["last", "beside"] = "last",
) -> Graph:
    """Training step of a forward graph: adds the backward pass and weight updates.

    Parameters
    ----------
    graph
        Forward kernels only. A loss is an elementwise kernel at its end.
    rules
        Gradient rules of forward kernels that differ from those of their op; a kernel named here has them even if no
        gradient is needed.
    sum_kernels
        For producers whose gradients are added up: name of the adding kernel, and the kernel whose stage it shares.
    order
        Forward kernels in the order in which the gradient passes them: consumers first. The reverse if left out.
    updates
        Weight updates behind all other kernels, the last one first, or each in front of its GEMM's backward kernel.

    Returns
    -------
    Graph
        The forward kernels and tensors, followed by those of the backward pass and of the updates. Communications and
        additional traffic of a kernel also apply to its gradient; rows of a table are read and written. Gradients of
        carried tensors are carried in the reverse direction.

    Raises
    ------
    GraphError
        For a graph that trains already, or whose forward kernels accumulate into others.

    Examples
    --------
    >>> from dfopt.documents.graph import Graph, Kernel, Tensor
    >>> first = Kernel(name="first", op="gemm", m=8, k=4, n=16)
    >>> act = Kernel(name="act", op="elementwise", m=8, n=16)
    >>> second = Kernel(name="second", op="gemm", m=2, k=8, n=16)
    >>> tensors = (Tensor(src="first", dst="act"), Tensor(src="act", dst="second"))
    >>> trained = backward_of(Graph(name="mlp", kernels=(first, act, second), tensors=tensors))
    >>> [kernel.name for kernel in trained.kernels[3:]]
    ['second_bwd', 'act_bwd', 'second_bwd_weight_update', 'first_bwd_weight_update']
    >>> [(tensor.src, tensor.dst) for tensor in trained.tensors[2:5]]
    [('second_bwd', 'act_bwd'), ('first', 'act_bwd'), ('act', 'second_bwd_weight_update')]
    """
    _check(graph)
    given = {name: rule if isinstance(rule, tuple) else (rule,) for name, rule in (rules or {}).items()}
    way = _Pass(graph, given, sum_kernels or {})
    for name in order if order is not None else reversed(graph.in_order()):
        way.through(name, update_first=updates == "beside")
    if updates == "last":
        for kernel in reversed(graph.kernels):
            way.update(kernel)
    fields: dict[str, Any] = {name: getattr(graph, name) for name in Graph.model_fields if name != "schema_"}
    fields["kernels"] += tuple(way.kernels.values())
    fields["tensors"] += tuple(way.tensors)
    fields["carried"] += tuple(way.carried())
    if graph.inputs:  # where they are stated, what the backward pass reads of them again is too
        read, forward = Graph(**fields | {"inputs": None}).reads(), len(graph.kernels)
        again = [(fields["kernels"][k].name, o, size) for k, o, size in read if k >= forward]
        fields["inputs"] += tuple(Input(dst=dst, operand=o, bytes=size) for dst, o, size in again)
    return Graph(**fields)


def _check(graph: Graph) -> None:
    issues = []
    for position, kernel in enumerate(graph.kernels):
        if kernel.pass_ != "forward" or kernel.op == "weight_update":
            issues.append(Issue(f"$.kernels[{position}]", f"{kernel.name!r} is no forward kernel", "leave it out"))
        if kernel.accumulates_into is not None:
            message = f"{kernel.name!r} accumulates into {kernel.accumulates_into!r}, which has no gradient rule"
            issues.append(Issue(f"$.kernels[{position}].accumulates_into", message, "add in an elementwise kernel"))
    if issues:
        raise GraphError(graph.name, issues)


def _mirror(kernel: Kernel, name: str, **changes: Any) -> Kernel:
    """A backward kernel that stays with its forward one."""
    streamed = "none" if kernel.stream == "none" else None
    back = {"name": name, "pass_": "backward", "stage_with": kernel.name, "stream": streamed, **_BARE}
    return Kernel(**{**dict(kernel), **back, **changes})


def _elements(kernel: Kernel) -> int:
    return kernel.matrices * needed(kernel)


# Fields of a kernel that moves nothing but its tensors.
_ALONE: dict[str, Any] = {"communications": (), "dram_bytes": 0.0, "dram_bytes_per_chip": 0.0, "normalizes": False}
_NONE = ("resident_over", "resident_optimizer_bytes", "masked", "output_class", "output_saved", "mask_bytes")
_BARE: dict[str, Any] = {"resident_bytes": 0.0, **dict.fromkeys(_NONE)}
_BACK: dict[str, Literal["forward", "backward"]] = {"forward": "backward", "backward": "forward"}
_Operand = Literal[1, 2] | None


@dataclass(frozen=True)
class _Input:
    """A tensor that a forward kernel reads; ``place`` counts the tensors and then the carried ones."""

    tensor: Tensor
    place: int
    operand: int
    carried: bool


@dataclass(frozen=True)
class _Sent:
    """A gradient of a kernel's output, or of a part of it, on its way to the kernel.

    ``src`` is who gives it, or the place of the carried tensor whose gradient comes from another repeat. ``product``:
    of a GEMM for one input; ``added``: in the first of these already; ``running``: a sum to which others are added.
    """

    src: str | int
    elements: float
    place: int = 0
    bytes: float | None = None
    part: str | None = None
    product: bool = False
    added: bool = False
    running: bool = False


class _Pass:
    """The way back through a graph, kernel by kernel."""

    def __init__(
        self, graph: Graph, rules: Mapping[str, tuple[Gradient, ...]], sum_kernels: Mapping[str, tuple[str, str]]
    ) -> None:
        self.graph, self.rules, self.sum_kernels = graph, rules, sum_kernels
        self.forward = {kernel.name: kernel for kernel in graph.kernels}
        self.inputs: dict[str, list[_Input]] = defaultdict(list)
        self.readers: dict[str, set[str]] = defaultdict(set)  # of a kernel's output, that are not passed yet
        self.arrived: dict[str, list[_Sent]] = defaultdict(list)  # gradients of a kernel's output
        for place, (tensor, operand) in enumerate(zip(graph.tensors, graph.operands(), strict=True)):
            self.inputs[tensor.dst].append(_Input(tensor, place, operand, False))
            self.readers[tensor.src].add(tensor.dst)
        for place, tensor in enumerate(graph.carried, start=len(graph.tensors)):
            self.inputs[tensor.dst].append(_Input(tensor, place, tensor.operand or 1, True))
            self.arrived[tensor.src].append(_Sent(place, graph.elements_of(tensor), place))
        for name, rule in rules.items():
            for gradient in rule:
                if gradient.to is not None:
                    self.readers[gradient.to].add(name)
        self.wanted: set[str] = set()  # kernels whose output depends on parameters, of this repeat or an earlier one
        for name in graph.sorter().static_order():
            own = self.forward[name].op == "gemm" or self.forward[name].resident_bytes or name in rules
            if own or any(edge.carried or edge.tensor.src in self.wanted for edge in self.inputs[name]):
                self.wanted.add(name)
        self.settled: set[str] = set()
        self.kernels: dict[str, Kernel] = {}
        self.tensors: list[Tensor] = []
        self.given: dict[int, list[_Sent]] = defaultdict(list)  # gradients of carried inputs, by place
        self.taken: dict[int, list[tuple[str, _Operand]]] = defaultdict(list)  # and who reads them in another repeat

    def through(self, name: str, update_first: bool) -> None:
        """Draw the backward kernels of a forward kernel, all of whose readers have been passed."""
        if self.readers[name]:
            raise ValueError(f"the gradient passes {name!r} before {min(self.readers[name])!r}, which reads it")
        kernel = self.forward[name]
        if name in self.wanted:
            self._settle(kernel)
            if update_first:
                self.update(kernel)
            for number, gradient in enumerate(self._gradients(kernel), start=1):
                self._draw(kernel, number, gradient)
        passed = [edge.tensor.src for edge in self.inputs[name] if not edge.carried]
        passed += [rule.to for rule in self.rules.get(name, ()) if rule.to is not None]
        for producer in dict.fromkeys(passed):
            self.readers[producer].discard(name)
            if producer in self.wanted and not self.readers[producer]:
                self._settle(self.forward[producer])

    def update(self, kernel: Kernel) -> None:
        """Draw the weight update of a GEMM: the output's gradient times the input."""
        if kernel.op != "gemm":
            return
        (outer, rows), name = self._weight(kernel), f"{kernel.name}_bwd_weight_update"
        sizes = {"op": "weight_update", "pass_": "update", "outer": outer, "m": kernel.k, "k": kernel.n, "n": rows}
        self.kernels[name] = _mirror(kernel, name, **_ALONE, **sizes)
        for term in self.arrived[kernel.name]:
            self._read(term, name, 1)
        inputs = [edge.tensor for edge in self.inputs[kernel.name] if not edge.carried]
        self.tensors += [tensor.model_copy(update={"dst": name, "operand": 2}) for tensor in inputs]

    def carried(self) -> Iterator[Tensor]:
        """The gradients of carried tensors, which go the other way."""
        for place, tensor in enumerate(self.graph.carried, start=len(self.graph.tensors)):
            for term in self.given[place]:
                for reader, operand in self.taken[place]:
                    ends = {"src": str(term.src), "dst": reader, "direction": _BACK[tensor.direction]}
                    yield Tensor(**ends, bytes=term.bytes, operand=operand)

    def _gradients(self, kernel: Kernel) -> tuple[Gradient, ...]:
        return self.rules.get(kernel.name, (Gradient(),) * (2 if kernel.op == "matmul" else 1))

    def _settle(self, kernel: Kernel) -> None:
        """Add up the gradients of a kernel's output, as far as its backward kernels cannot."""
        name = kernel.name
        if name in self.settled:
            return
        self.settled.add(name)
        arrived = self.arrived[name]
        first = next((term for term in arrived if term.product), None)
        for place, term in enumerate(arrived):
            if first and term.product and term is not first and term.elements == first.elements:
                into = {"accumulates_into": first.src}
                self.kernels[str(term.src)] = self.kernels[str(term.src)].model_copy(update=into)
                arrived[place] = replace(term, added=True)
        drawn = sum(gradient.drawn for gradient in self._gradients(kernel))
        if not drawn:  # what it passes on is the first, which stands for the sum
            arrived[:] = [term for term in arrived if not term.added]
        parts, own = [term for term in arrived if not term.running], _elements(kernel)
        total = sum(term.elements for term in parts)
        fits = total in (0, own) if kernel.op != "elementwise" else all(term.elements <= own for term in parts)
        adds = kernel.op == "elementwise" and drawn == 1 and name not in self.sum_kernels
        if not fits or not (adds or len(parts) < 2):
            called, stage = self.sum_kernels.get(name, (f"{name}_bwd_sum", name))
            sizes: dict[str, Any] = {"op": "elementwise", "k": 1, "flop_per_element": max(1, round(total / own) - 1)}
            sizes |= {"experts": None, "density": None if kernel.masked else kernel.density}
            self.kernels[called] = _mirror(kernel, called, **_ALONE, **sizes, stage_with=stage)
            for term in parts:
                self._read(term, called)
            arrived[:] = [_Sent(called, own, min(term.place for term in parts)), *(o for o in arrived if o.running)]
        arrived.sort(key=lambda term: term.place)

    def _read(self, term: _Sent, reader: str, operand: _Operand = None) -> None:
        if isinstance(term.src, int):
            self.taken[term.src].append((reader, operand))
        else:
            self.tensors.append(Tensor(src=term.src, dst=reader, bytes=term.bytes, part=term.part, operand=operand))

    def _draw(self, kernel: Kernel, number: int, gradient: Gradient) -> None:
        """One gradient kernel; of a matmul that of operand ``number``."""
        inputs = [edge for edge in self.inputs[kernel.name] if kernel.op != "matmul" or edge.operand == number]
        if gradient.of is not None:
            inputs = [edge for edge in inputs if edge.tensor.src in gradient.of]
        inputs = [edge for edge in inputs if edge.carried or edge.tensor.src in self.wanted]
        table = kernel.op == "elementwise" and kernel.resident_bytes > 0
        if not (inputs or kernel.name in self.rules or table):
            return
        sent = self.arrived[kernel.name]
        if not gradient.drawn:
            for into in inputs:
                for term in sent:
                    self._send(gradient, kernel, into, replace(term, product=False))
            return
        name = gradient.name or f"{kernel.name}_bwd{number if kernel.op == 'matmul' else ''}"
        sizes, operand, saved = self._rule(kernel, number, gradient, inputs)
        self.kernels[name] = drawn = _mirror(kernel, name, **{**sizes, **gradient.fields})
        start = len(self.tensors)
        for term in sent:
            self._read(term, name, operand)
        self.tensors += [tensor.model_copy(update={"dst": name}) for tensor in saved]
        self.tensors[start:] = sorted(self.tensors[start:], key=lambda tensor: tensor.operand or 0)
        for into in inputs:
            so_far = self.arrived[into.tensor.src]
            for term in [term for term in so_far if term.running and gradient.adds]:
                self._read(term, name)
                so_far.remove(term)
            term = _Sent(name, _elements(drawn), product=kernel.op == "gemm", running=gradient.adds)
            self._send(gradient, kernel, into, term)

    def _send(self, gradient: Gradient, kernel: Kernel, into: _Input, term: _Sent) -> None:
        """Hand a gradient to the producer of an input: of one side by side with others, or read in part, its part."""
        graph, inputs, term = self.graph, self.inputs[kernel.name], replace(term, place=into.place)
        if kernel.op == "elementwise" and len(inputs) > 1:
            own, part = float(_elements(self.forward[into.tensor.src])), graph.elements_of(into.tensor)
            concatenates = sum(graph.elements_of(each.tensor) for each in inputs) == _elements(kernel)
            given, most = (own, term.elements) if concatenates else (part, own)
            if given < most:
                term = replace(term, elements=given, bytes=given * graph.words.activations, part=into.tensor.src)
        if into.carried:
            self.given[into.place].append(term)
        else:
            self.arrived[gradient.to or into.tensor.src].append(term)

    def _weight(self, kernel: Kernel) -> tuple[int, int]:
        """Independent matrices and rows of the weight: heads that read one input are one matrix."""
        shared = sum(self.graph.elements_of(edge.tensor) for edge in self.inputs[kernel.name]) <= kernel.k * kernel.n
        return (1, kernel.outer * kernel.m) if shared else (kernel.outer, kernel.m)

    def _rule(
        self, kernel: Kernel, number: int, gradient: Gradient, inputs: list[_Input]
    ) -> tuple[dict[str, Any], _Operand, list[Tensor]]:
        """By op: sizes of the backward kernel, which operand the output's gradient is, saved tensors that it reads."""
        m, k, n = kernel.m, kernel.k, kernel.n
        here = [edge for edge in self.inputs[kernel.name] if not edge.carried]
        if kernel.op == "gemm":
            outer, rows = self._weight(kernel)
            return {"outer": outer, "m": k, "k": rows}, None, []
        if kernel.op == "matmul":
            turned = gradient.turned
            if turned is None:  # as the operand's producer holds it
                turned = not (inputs and self.forward[inputs[0].tensor.src].m == m != k)
            sizes = {"m": k, "k": m} if number == 1 else {"m": k, "k": n, "n": m} if turned else {"k": n, "n": k}
            own: Literal[1, 2] = 1 if number == 1 or turned else 2
            masked = {0: own, number: None}.get(kernel.masked or 0, 3 - own) if kernel.density else None
            others = [edge.tensor for edge in here if edge.operand != number]
            return {**sizes, "masked": masked}, own, [other.model_copy(update={"operand": 3 - own}) for other in others]
        fields: dict[str, Any] = {}
        if kernel.resident_bytes:
            fields["dram_bytes"] = 2 * kernel.dram_bytes  # rows are read and written
        for producer in (self.forward[edge.tensor.src] for edge in inputs):
            if _elements(producer) > _elements(kernel):
                fields |= {name: getattr(producer, name) for name in ("outer", "samples", "m", "n")}
                fields["density"] = None if producer.masked else producer.density
        alone = len(self.inputs[kernel.name]) == 1
        reads = gradient.reads if gradient.reads is not None else tuple(edge.tensor.src for edge in here if alone)
        read = {edge.tensor.src: edge.tensor for edge in here}
        return fields, None, [read.get(src) or Tensor(src=src, dst=kernel.name) for src in reads]
