"""How the tensors of a graph meet its kernels: which operand each is, what comes from DRAM, and what is wrong."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import networkx as nx

from dfopt.errors import Issue

if TYPE_CHECKING:
    from dfopt.documents.graph import Graph, Kernel

__all__ = ["operands", "reads", "structure_issues", "writes"]

_OPERANDS = {"gemm": 1, "matmul": 2, "weight_update": 2, "elementwise": 1}


def operands(graph: Graph) -> list[int]:
    """Which operand of its consumer each tensor is: 1 (the ``k x n`` side) or 2 (the ``m x k`` side).

    As stated in the graph, else by size; when both sides are the same size, by order of the tensors.

    Returns
    -------
    list of int
        One entry per tensor of ``graph.tensors``.
    """
    index = graph.index()
    found: list[int] = [tensor.operand or 0 for tensor in graph.tensors]
    for position, tensor in enumerate(graph.tensors):
        kernel = graph.kernels[index[tensor.dst]]
        if found[position]:
            continue
        if kernel.op in ("gemm", "elementwise"):
            found[position] = 1
            continue
        first, second = float(kernel.outer * kernel.k * kernel.n), float(kernel.outer * kernel.m * kernel.k)
        elements = graph.bytes_of(tensor) / graph.word_bytes
        if first != second:
            found[position] = 1 if abs(elements - first) <= abs(elements - second) else 2
    taken: dict[str, set[int]] = {}
    for tensor, operand in zip(graph.tensors, found, strict=True):
        taken.setdefault(tensor.dst, set()).add(operand)
    for position, tensor in enumerate(graph.tensors):
        if not found[position]:
            found[position] = 2 if 1 in taken[tensor.dst] else 1
            taken[tensor.dst].add(found[position])
    return found


def reads(graph: Graph) -> list[tuple[int, int, float]]:
    """Position of a kernel, operand and bytes of everything that a graph reads from DRAM."""
    taken: dict[str, list[int]] = {}
    for tensor, operand in zip(graph.tensors, operands(graph), strict=True):
        taken.setdefault(tensor.dst, []).append(operand)
    free = {
        k.name: [one for one in range(1, _OPERANDS[k.op] + 1) if one not in taken.get(k.name, ())]
        for k in graph.kernels
    }

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
    """Position of a kernel and bytes of everything that a graph writes to DRAM."""
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
    features, tokens = operand_shape(kernel, operand)
    return float((1 if kernel.op == "gemm" else kernel.outer) * features * tokens * graph.word_bytes)


def operand_shape(kernel: Kernel, operand: int) -> tuple[int, int]:
    """Features and tokens of one operand of one of the ``outer`` matrices.

    The operands of a weight update are features by tokens too, of the gradient and of the forward input.
    """
    if kernel.op == "elementwise":
        return kernel.m, kernel.n
    if operand == 2:
        return kernel.m, kernel.k
    return (kernel.n, kernel.k) if kernel.op == "weight_update" else (kernel.k, kernel.n)


def structure_issues(graph: Graph) -> Iterable[Issue]:
    """Everything that is wrong with names, references and cycles, all at once."""
    known: dict[str, int] = {}
    for position, kernel in enumerate(graph.kernels):
        if kernel.name in known:
            yield Issue(
                f"$.kernels[{position}].name",
                f"kernel {kernel.name!r} is defined twice, first as $.kernels[{known[kernel.name]}]"
                " (a tensor would have two producers)",
                "give every kernel a name of its own",
            )
        known.setdefault(kernel.name, position)
    for position, kernel in enumerate(graph.kernels):
        for key in ("accumulates_into", "stage_with"):
            other = getattr(kernel, key)
            if other is not None and (other not in known or other == kernel.name):
                yield Issue(
                    f"$.kernels[{position}].{key}",
                    f"no other kernel is called {other!r}",
                    _close(other, known),
                )
    for field, tensors in (("tensors", graph.tensors), ("carried", graph.carried)):
        for position, tensor in enumerate(tensors):
            for end in ("src", "dst"):
                name = getattr(tensor, end)
                if name not in known:
                    yield Issue(f"$.{field}[{position}].{end}", f"no kernel is called {name!r}", _close(name, known))
            if field == "tensors" and tensor.src == tensor.dst:
                yield Issue(
                    f"$.tensors[{position}]",
                    f"kernel {tensor.src!r} consumes its own output",
                    "remove the tensor, or put it under carried",
                )
            if tensor.bytes is not None and tensor.src in known:
                whole = graph.output_bytes(known[tensor.src])
                if tensor.bytes > whole * (1 + 1e-9):
                    yield Issue(
                        f"$.{field}[{position}].bytes",
                        f"found {tensor.bytes:.0f} B, but {tensor.src!r} produces only {whole:.0f} B"
                        " (outer x m x n x word_bytes)",
                        "correct the tensor or the producer's shape",
                    )
    yield from _end_issues(graph, known)
    yield from _operand_issues(graph, known)
    yield from _cycle_issues(graph, known)
    if graph.has_pieces:
        yield from _piece_issues(graph, known)


def _end_issues(graph: Graph, known: dict[str, int]) -> Iterable[Issue]:
    """Stated inputs and outputs."""
    incoming = Counter(tensor.dst for tensor in graph.tensors)
    for position, given in enumerate(graph.inputs or ()):
        where = f"$.inputs[{position}]"
        if given.dst not in known:
            yield Issue(f"{where}.dst", f"no kernel is called {given.dst!r}", _close(given.dst, known))
            continue
        incoming[given.dst] += 1
        kernel = graph.kernels[known[given.dst]]
        if kernel.op != "elementwise" and incoming[given.dst] > _OPERANDS[kernel.op]:
            message = f"{kernel.op} kernel {kernel.name!r} has its {_OPERANDS[kernel.op]} operand(s) already"
            yield Issue(where, message, "remove the input, or the tensor that brings the operand")
    for position, taken in enumerate(graph.outputs or ()):
        where = f"$.outputs[{position}]"
        if taken.src not in known:
            yield Issue(f"{where}.src", f"no kernel is called {taken.src!r}", _close(taken.src, known))
        elif taken.bytes is not None and taken.bytes > graph.output_bytes(taken.src) * (1 + 1e-9):
            message = f"found {taken.bytes:.0f} B, but {taken.src!r} produces {graph.output_bytes(taken.src):.0f} B"
            yield Issue(f"{where}.bytes", message, "correct the output or the kernel's shape")


def _piece_issues(graph: Graph, known: dict[str, int]) -> Iterable[Issue]:
    """What connects kernels that run in every repeat with those that run once."""
    apart = "what passes between pieces goes through DRAM: put it in dram_bytes of both kernels"
    runs = {name: graph.kernels[position].runs for name, position in known.items()}
    if "every_layer" not in runs.values():
        yield Issue(
            "$.repeat",
            f"found {graph.repeat}, but no kernel runs in every layer",
            "leave repeat out, or let some kernels run every_layer",
        )
    for position, kernel in enumerate(graph.kernels):
        for key in ("accumulates_into", "stage_with"):
            other = getattr(kernel, key)
            if other in runs and runs[other] != kernel.runs:
                yield Issue(
                    f"$.kernels[{position}].{key}",
                    f"kernel {kernel.name!r} runs {kernel.runs}, but {other!r} runs {runs[other]}",
                    "name a kernel of the same piece",
                )
    for field, tensors in (("tensors", graph.tensors), ("carried", graph.carried)):
        for position, tensor in enumerate(tensors):
            if tensor.src not in runs or tensor.dst not in runs:
                continue
            ends = runs[tensor.src], runs[tensor.dst]
            if ends[0] != ends[1]:
                message = f"{tensor.src!r} runs {ends[0]}, but {tensor.dst!r} runs {ends[1]}"
                yield Issue(f"$.{field}[{position}]", message, apart)
            elif field == "carried" and ends[0] != "every_layer":
                message = f"{tensor.src!r} runs {ends[0]} and not in every layer: nothing is carried to a next one"
                yield Issue(f"$.{field}[{position}]", message, "remove the tensor")


def _operand_issues(graph: Graph, known: dict[str, int]) -> Iterable[Issue]:
    incoming: dict[str, int] = {}
    for position, tensor in enumerate(graph.tensors):
        kernel = graph.kernels[known[tensor.dst]] if tensor.dst in known else None
        if kernel is None:
            continue
        incoming[tensor.dst] = incoming.get(tensor.dst, 0) + 1
        limit = _OPERANDS[kernel.op]
        if kernel.op != "elementwise" and incoming[tensor.dst] > limit:
            yield Issue(
                f"$.tensors[{position}].dst",
                f"{kernel.op} kernel {kernel.name!r} takes {limit} input tensor(s), this is number"
                f" {incoming[tensor.dst]} (two producers for one operand)",
                "add the inputs in an elementwise kernel first",
            )
        if tensor.bytes is None and tensor.src in known and kernel.op == "elementwise":
            found, own = (graph.output_bytes(name) / graph.word_bytes for name in (tensor.src, tensor.dst))
            if all(found % unit and unit % found for unit in (own, kernel.n, kernel.outer * kernel.m)):
                yield Issue(
                    f"$.tensors[{position}]",
                    f"shapes disagree: {tensor.src!r} produces {found:.0f} elements, no whole number for each token or"
                    f" each feature of elementwise kernel {kernel.name!r} of {kernel.outer * kernel.m} x {kernel.n}",
                    "correct the shapes, or state the tensor's bytes if only part of the output is read",
                )
        elif tensor.bytes is None and tensor.src in known:
            shapes = _operand_elements(kernel)
            found = graph.output_bytes(known[tensor.src]) / graph.word_bytes
            if all(abs(found - wanted) > 0.5 for wanted in shapes):
                yield Issue(
                    f"$.tensors[{position}]",
                    f"shapes disagree: {tensor.src!r} produces {found:.0f} elements, {kernel.op} kernel"
                    f" {kernel.name!r} expects {' or '.join(f'{s:.0f}' for s in shapes)}",
                    "correct the shapes, or state the tensor's bytes if only part of the output is read",
                )


def _operand_elements(kernel: Kernel) -> tuple[float, ...]:
    """Element counts that an input of this kernel may have."""
    shared, batched = kernel.k * kernel.n, kernel.outer * kernel.k * kernel.n
    if kernel.op == "gemm":
        return (float(shared),) if shared == batched else (float(shared), float(batched))
    return tuple(sorted({float(batched), float(kernel.outer * kernel.m * kernel.k)}))


def _cycle_issues(graph: Graph, known: dict[str, int]) -> Iterable[Issue]:
    drawn = nx.DiGraph((t.src, t.dst) for t in graph.tensors if t.src in known and t.dst in known and t.src != t.dst)
    try:
        cycle = nx.find_cycle(drawn)
    except nx.NetworkXNoCycle:
        return
    names = [edge[0] for edge in cycle]
    shown = names if len(names) <= 6 else [*names[:3], "...", *names[-2:]]
    yield Issue(
        "$.tensors",
        f"the tensors form a cycle: {' -> '.join([*shown, names[0]])}",
        "a graph is one evaluation and must be acyclic; a tensor that goes to the next layer belongs under carried",
    )


def _close(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=3)
    return f"did you mean {' or '.join(map(repr, near))}?" if near else "name one of the kernels of this graph"
