"""How the tensors of a graph meet its kernels: which operand each is, what comes from DRAM, and what is wrong."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

import networkx as nx

from dfopt.documents.sections import LAYER
from dfopt.errors import Issue, did_you_mean, repeated

if TYPE_CHECKING:
    from dfopt.documents.graph import Graph, Kernel, Output, Tensor

_OPERANDS = {"gemm": 1, "matmul": 2, "weight_update": 2, "elementwise": 1}


def operands(graph: Graph) -> list[int]:
    """Which operand of its consumer each tensor is: 1 (the ``k x n`` side) or 2 (the ``m x k`` side).

    As stated in the graph, else by size; when both sides are the same size, by order of the tensors.
    """
    found = [tensor.operand or _by_size(graph, tensor) for tensor in graph.tensors]
    taken = _taken(graph, found)
    for position, tensor in enumerate(graph.tensors):
        if not found[position]:
            found[position] = 2 if 1 in taken[tensor.dst] else 1
            taken[tensor.dst].add(found[position])
    return found


def _by_size(graph: Graph, tensor: Tensor) -> int:
    """The operand that a tensor is by its size; 0 where both are of one size."""
    kernel = graph.kernels[graph.index()[tensor.dst]]
    if kernel.op in ("gemm", "elementwise"):
        return 1
    first, second = (float(kernel.matrices * needed(kernel, operand)) for operand in (1, 2))
    elements = graph.elements_of(tensor)
    return 0 if first == second else 1 if abs(elements - first) <= abs(elements - second) else 2


def _taken(graph: Graph, found: list[int]) -> defaultdict[str, set[int]]:
    """The operands that tensors bring, by kernel."""
    taken: defaultdict[str, set[int]] = defaultdict(set)
    for tensor, operand in zip(graph.tensors, found, strict=True):
        taken[tensor.dst].add(operand)
    return taken


def reads(graph: Graph) -> list[tuple[int, int, float]]:
    """What comes from DRAM, stated or by the rule of ``inputs``: position of a kernel, operand and bytes.

    Examples
    --------
    >>> from dfopt.documents.graph import Graph, Kernel
    >>> Graph(name="g", kernels=(Kernel(name="a", op="gemm", m=4, k=8, n=16),)).reads()
    [(0, 1, 256.0)]
    """
    taken = _taken(graph, operands(graph))
    free = {k.name: [one for one in range(1, _OPERANDS[k.op] + 1) if one not in taken[k.name]] for k in graph.kernels}

    def brought(name: str, operand: int | None) -> int:
        left = free[name]
        found = operand or (left[0] if left else 1)
        if found in left:
            left.remove(found)
        return found

    for tensor in graph.carried:
        brought(tensor.dst, tensor.operand)
    index = graph.index()
    if graph.inputs is not None:
        stated = [(index[one.dst], brought(one.dst, one.operand), one.bytes) for one in graph.inputs]
        return [(k, o, _operand_bytes(graph, k, o) if size is None else size) for k, o, size in stated]
    return [
        (position, operand, _operand_bytes(graph, position, operand))
        for position, kernel in enumerate(graph.kernels)
        if not (kernel.dram_bytes or kernel.dram_bytes_per_chip)
        for operand in free[kernel.name]
    ]


def writes(graph: Graph) -> list[tuple[int, float]]:
    """What goes to DRAM, stated or by the rule of ``outputs``: position of a kernel and bytes."""
    if graph.outputs is not None:
        index = graph.index()
        return [(k, one.bytes or graph.output_bytes(k)) for one in graph.outputs for k in (index[one.src],)]
    taken = {tensor.src for tensor in (*graph.tensors, *graph.carried)}
    return [
        (position, graph.output_bytes(position))
        for position, kernel in enumerate(graph.kernels)
        if kernel.name not in taken
        and kernel.op != "weight_update"
        and kernel.accumulates_into is None
        # what a kernel says that it moves holds its ends
        and not (kernel.dram_bytes or kernel.dram_bytes_per_chip)
    ]


def _operand_bytes(graph: Graph, position: int, operand: int) -> float:
    """Of one operand; heads of a GEMM share theirs."""
    kernel = graph.kernels[position]
    return float((1 if kernel.op == "gemm" else kernel.matrices) * needed(kernel, operand) * graph.words.activations)


def operand_shape(kernel: Kernel, operand: int) -> tuple[int, int]:
    """Features and tokens of one operand of one of the ``outer`` matrices.

    The operands of a weight update are features by tokens too, of the gradient and of the forward input.
    """
    if kernel.op == "elementwise":
        return kernel.m, kernel.n
    if operand == 2:
        return kernel.m, kernel.k
    return (kernel.n, kernel.k) if kernel.op == "weight_update" else (kernel.k, kernel.n)


def needed(kernel: Kernel, operand: int = 0) -> int:
    """Elements that a mask leaves of one of the ``outer`` matrices: of the output, or of an operand.

    Examples
    --------
    >>> from dfopt.documents.graph import Kernel
    >>> scores = Kernel(name="scores", op="matmul", m=8, k=4, n=8, density=9 / 16)
    >>> needed(scores), needed(scores, 1)
    (36, 32)
    """
    rows, columns = operand_shape(kernel, operand) if operand else (kernel.m, kernel.n)
    here = kernel.op == "elementwise" or operand == (kernel.masked or 0)
    return max(round(kernel.density * rows * columns), 1) if here and kernel.density is not None else rows * columns


def structure_issues(graph: Graph) -> Iterator[Issue]:
    """Everything that is wrong with names, references and cycles, all at once."""
    known = {graph.kernels[position].name: position for position in range(len(graph.kernels) - 1, -1, -1)}
    for position, name, first in repeated(kernel.name for kernel in graph.kernels):
        again = f"first as $.kernels[{first}] (a tensor would have two producers)"
        message = f"kernel {name!r} is defined twice, {again}"
        yield Issue(f"$.kernels[{position}].name", message, "give every kernel a name of its own")
    for where, kernel, other in _partners(graph):
        if other not in known or other == kernel.name:
            yield _unknown(where, other, known, "other ")
    for where, tensor in _tensors(graph):
        for end in ("src", "dst"):
            if (name := getattr(tensor, end)) not in known:
                yield _unknown(f"{where}.{end}", name, known)
        if tensor.src == tensor.dst and not where.startswith("$.carried"):
            message = f"kernel {tensor.src!r} consumes its own output"
            yield Issue(where, message, "remove the tensor, or put it under carried")
        yield from _excess(where, tensor, graph, known)
    for position, taken in enumerate(graph.outputs or ()):
        if taken.src not in known:
            yield _unknown(f"$.outputs[{position}].src", taken.src, known)
        yield from _excess(f"$.outputs[{position}]", taken, graph, known)
    yield from _operand_issues(graph, known)
    yield from _cycle_issues(graph, known)
    yield from _layer_issues(graph, known)
    for position, kernel in enumerate(graph.kernels if graph.trains else ()):
        if kernel.experts is not None and kernel.experts.routing is not None and kernel.experts.routing.redundant:
            message = "found copies of experts that train, whose gradients would have to be added up"
            yield Issue(f"$.kernels[{position}].experts.routing.redundant", message, "leave them to serving")


def _partners(graph: Graph) -> Iterator[tuple[str, Kernel, str]]:
    """Kernels that name another one: where, and which."""
    for position, kernel in enumerate(graph.kernels):
        for key in ("accumulates_into", "stage_with"):
            if (other := getattr(kernel, key)) is not None:
                yield f"$.kernels[{position}].{key}", kernel, other


def _tensors(graph: Graph) -> Iterator[tuple[str, Tensor]]:
    """All tensors, also those that are carried, with their places."""
    for field, tensors in (("tensors", graph.tensors), ("carried", graph.carried)):
        for position, tensor in enumerate(tensors):
            yield f"$.{field}[{position}]", tensor


def _unknown(where: str, name: str, known: Iterable[str], other: str = "") -> Issue:
    remedy = did_you_mean(name, known, "name one of the kernels of this graph")
    return Issue(where, f"no {other}kernel is called {name!r}", remedy)


def _excess(where: str, one: Tensor | Output, graph: Graph, known: dict[str, int]) -> Iterator[Issue]:
    """That more is taken from a kernel than it produces."""
    whole = graph.output_bytes(known[one.src]) if one.src in known else math.inf
    if one.bytes is not None and one.bytes > whole * (1 + 1e-9):
        shape = "outer x m x n x bytes of an element"
        message = f"found {one.bytes:.0f} B, but {one.src!r} produces only {whole:.0f} B ({shape})"
        yield Issue(f"{where}.bytes", message, "correct the bytes or the producer's shape")


def _layer_issues(graph: Graph, known: dict[str, int]) -> Iterator[Issue]:
    """Layers without kernels, kernels without a layer, and what connects kernels of different kinds."""
    of = {name: graph.kernels[position].layer or LAYER for name, position in known.items()}
    names, drawn = {name for one in graph.sections or () for name in one.layers} or {LAYER}, {*of.values()}
    yield from _recomputed_issues(graph, names, drawn)
    names |= set((graph.recomputed or {}).values())
    for position, kernel in enumerate(graph.kernels):
        if (kernel.layer or LAYER) not in names:
            lack = f"no section has it: {', '.join(sorted(names))}" if graph.folded else "the graph has no sections"
            remedy = did_you_mean(kernel.layer or LAYER, names, "name one of the sections' layers")
            yield Issue(f"$.kernels[{position}].layer", f"found {kernel.layer or LAYER!r}, but {lack}", remedy)
    for number, section in enumerate(graph.sections or ()):
        for place, name in enumerate(section.layers):
            if name not in drawn:
                where = f"$.sections[{number}].layers[{place}]"
                yield Issue(where, f"no kernel belongs to {name!r}", did_you_mean(name, drawn, "draw some"))
    apart = "what passes between kinds of layers goes through DRAM: put it in dram_bytes of both kernels"
    for where, kernel, other in _partners(graph):
        if other in of and of[other] != of[kernel.name]:
            message = f"kernel {kernel.name!r} belongs to {of[kernel.name]!r}, but {other!r} to {of[other]!r}"
            yield Issue(where, message, "name a kernel of the same layer")
    for where, tensor in _tensors(graph):
        if tensor.src in of and tensor.dst in of and of[tensor.src] != of[tensor.dst]:
            message = f"{tensor.src!r} belongs to {of[tensor.src]!r}, but {tensor.dst!r} to {of[tensor.dst]!r}"
            yield Issue(where, message, apart)
    if graph.layers.counted > 1:
        yield from _handing_on_issues(graph, of)


def _recomputed_issues(graph: Graph, names: set[str], drawn: set[str]) -> Iterator[Issue]:
    """Kinds that are recomputed: each has all kernels of the kind that it stands for, and such as compute again."""
    taken: Counter[str] = Counter((graph.recomputed or {}).values())
    for kind, again in (graph.recomputed or {}).items():
        where = f"$.recomputed.{kind}"
        if not graph.folded or kind not in names or kind not in graph.layers.kinds[: graph.layers.counted]:
            yield Issue(where, f"no section repeats {kind!r}", did_you_mean(kind, names, "name one that does"))
        elif again not in drawn or again in names or taken[again] > 1:
            message = f"found {again!r}, which is no kind of its own with kernels"
            yield Issue(where, message, "draw it, and leave it out of all sections")
        elif (mine := _work(graph, kind)) - (theirs := _work(graph, again)):
            message = f"{again!r} lacks kernels that {kind!r} has, such as {next(iter(mine - theirs)).op} kernels"
            yield Issue(where, message, "draw all of them, and beside them what computes again")
        elif any(one.pass_ != "recompute" for one in theirs - mine):
            message = f"{again!r} has other kernels than {kind!r} beside those of pass: recompute"
            yield Issue(where, message, "draw the same ones")


def _work(graph: Graph, kind: str) -> Counter[Kernel]:
    """The kernels of a kind, whatever they are called and keep."""
    unnamed: dict[str, object] = {"name": "k", "layer": None, "stage_with": None, "accumulates_into": None}
    unnamed |= {"output_saved": None, "mask_bytes": None}
    mine = (kernel for kernel in graph.kernels if (kernel.layer or LAYER) == kind)
    return Counter(kernel.model_copy(update=unnamed) for kernel in mine)


def _handing_on_issues(graph: Graph, of: dict[str, str]) -> Iterator[Issue]:
    """Kinds of layers that follow one another and do not hand on the same tensors."""
    handed: dict[str, list[tuple[str, float]]] = {name: [] for name in graph.layers.kinds[: graph.layers.counted]}
    for tensor in graph.carried:
        if tensor.src in of and of[tensor.src] in handed:
            handed[of[tensor.src]].append((tensor.direction, graph.bytes_of(tensor)))
    first, *others = handed
    for name in others:
        if handed[name] != handed[first]:
            message = f"{first!r} hands on {_listed(handed[first])}, but {name!r} {_listed(handed[name])}"
            yield Issue("$.carried", message, "all layers of a model hand on the same tensors, in the same order")


def _listed(handed: list[tuple[str, float]]) -> str:
    return " and ".join(f"{size:.0f} B {direction}" for direction, size in handed) or "nothing"


def _operand_issues(graph: Graph, known: dict[str, int]) -> Iterator[Issue]:
    """Operands that come twice, and shapes that disagree."""
    incoming, parted = Counter[str](), _parted(graph, known)
    for position, tensor in enumerate(graph.tensors):
        if tensor.dst not in known:
            continue
        where, kernel = f"$.tensors[{position}]", graph.kernels[known[tensor.dst]]
        incoming[kernel.name] += 1
        most = _OPERANDS[kernel.op]
        if kernel.op != "elementwise" and incoming[kernel.name] > most and kernel.name not in parted:
            twice = f"this is number {incoming[kernel.name]} (two producers for one operand)"
            message = f"{kernel.op} kernel {kernel.name!r} takes {most} input tensor(s), {twice}"
            remedy = "add the inputs in an elementwise kernel first, or state the bytes of each if they are parts"
            yield Issue(f"{where}.dst", message, remedy if kernel.op == "gemm" else remedy.partition(",")[0])
        if tensor.bytes is None and tensor.src in known:
            src = graph.kernels[known[tensor.src]]
            elements = float(src.matrices * needed(src))
            if wanted := _misfit(elements, kernel):
                message = f"shapes disagree: {tensor.src!r} produces {elements:.0f} elements, {wanted}"
                remedy = "correct the shapes, or state the tensor's bytes if only part of the output is read"
                yield Issue(where, message, remedy)
    for position, given in enumerate(graph.inputs or ()):
        where = f"$.inputs[{position}]"
        if given.dst not in known:
            yield _unknown(f"{where}.dst", given.dst, known)
            continue
        incoming[given.dst] += 1
        kernel = graph.kernels[known[given.dst]]
        if kernel.op != "elementwise" and incoming[given.dst] > _OPERANDS[kernel.op]:
            message = f"{kernel.op} kernel {kernel.name!r} has its {_OPERANDS[kernel.op]} operand(s) already"
            yield Issue(where, message, "remove the input, or the tensor that brings the operand")


def _parted(graph: Graph, known: dict[str, int]) -> set[str]:
    """GEMMs whose operand several tensors bring in parts, each with its bytes, together no more than it."""
    parts: defaultdict[str, list[float]] = defaultdict(list)
    for tensor in graph.tensors:
        if {tensor.src, tensor.dst} <= known.keys() and graph.kernels[known[tensor.dst]].op == "gemm":
            parts[tensor.dst].append(math.nan if tensor.bytes is None else graph.elements_of(tensor))
    several = ((graph.kernels[known[name]], math.fsum(sizes)) for name, sizes in parts.items() if len(sizes) > 1)
    return {kernel.name for kernel, whole in several if whole <= kernel.outer * kernel.k * kernel.n * (1 + 1e-9)}


def _misfit(elements: float, kernel: Kernel) -> str:
    """What a kernel expects, if an input of so many elements is none of its operands."""
    rows, shared, batched = kernel.matrices * kernel.m, kernel.k * kernel.n, kernel.matrices * needed(kernel, 1)
    if kernel.op == "elementwise":
        if all(elements % unit and unit % elements for unit in (batched, kernel.n, rows)):
            each = f"no whole number for each token or each feature of elementwise kernel {kernel.name!r}"
            return f"{each} of {rows} x {kernel.n}"
        return ""
    shapes = sorted({shared, batched} if kernel.op == "gemm" else {batched, kernel.matrices * needed(kernel, 2)})
    if any(abs(elements - size) <= 0.5 for size in shapes):
        return ""
    return f"{kernel.op} kernel {kernel.name!r} expects {' or '.join(map(str, shapes))}"


def _cycle_issues(graph: Graph, known: dict[str, int]) -> Iterator[Issue]:
    edges = [(t.src, t.dst) for t in graph.tensors if t.src in known and t.dst in known and t.src != t.dst]
    feeds: dict[str, list[str]] = {}
    for src, dst in edges:
        feeds.setdefault(dst, []).append(src)
    try:  # every graph that is drawn is asked, and to sort it is five times as quick as to look for a cycle
        return TopologicalSorter(feeds).prepare()
    except CycleError:
        names = [edge[0] for edge in nx.find_cycle(nx.DiGraph(edges))]
    shown = names if len(names) <= 6 else [*names[:3], "...", *names[-2:]]
    remedy = "a graph is one evaluation and must be acyclic; a tensor that goes to the next layer belongs under carried"
    yield Issue("$.tensors", f"the tensors form a cycle: {' -> '.join([*shown, names[0]])}", remedy)
