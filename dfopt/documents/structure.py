"""What is wrong with a graph: names, references, shapes, cycles, and layers that do not fit together."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from dfopt.documents.kernel import OPERANDS, Kernel, Tensor, is_training, needed
from dfopt.documents.sections import LAYER, Layers, Section
from dfopt.documents.wiring import Output, Wiring
from dfopt.errors import Issue, did_you_mean, repeated


def structure_issues(
    wiring: Wiring, layers: Layers, sections: Sequence[Section] | None, recomputed: Mapping[str, str] | None
) -> Iterator[Issue]:
    """All problems of names, references, shapes, cycles and layers of a graph.

    Parameters
    ----------
    wiring : Wiring
        Kernels and tensors, of which names and references need not be right.
    layers : Layers
        The layers that follow from ``sections`` and ``recomputed``.
    sections : Sequence[Section] or None
        The sections as they are stated; None of a graph that is drawn as a whole.
    recomputed : Mapping[str, str] or None
        For kinds of layers the kind that each is computed again as, as stated.

    Yields
    ------
    Issue
        With its place in the document of a graph.

    Examples
    --------
    >>> from dfopt.documents.dtypes import words_of
    >>> from dfopt.documents.sections import layers_of
    >>> kernels = (Kernel(name="a", op="gemm", m=4, k=8, n=16),)
    >>> wiring = Wiring(kernels, (Tensor(src="a", dst="b"),), (), None, None, words_of(None, 2))
    >>> [issue.where for issue in structure_issues(wiring, layers_of(None), None, None)]
    ['$.tensors[0].dst']
    """
    positions = {wiring.kernels[position].name: position for position in range(len(wiring.kernels) - 1, -1, -1)}
    for position, name, first in repeated(kernel.name for kernel in wiring.kernels):
        again = f"first as $.kernels[{first}] (a tensor would have two producers)"
        message = f"kernel {name!r} is defined twice, {again}"
        yield Issue(f"$.kernels[{position}].name", message, "give every kernel a name of its own")
    for where, kernel, other in _partners(wiring):
        if other not in positions or other == kernel.name:
            yield _unknown(where, other, positions, "other ")
    for where, tensor in _tensors(wiring):
        for end in ("src", "dst"):
            if (name := getattr(tensor, end)) not in positions:
                yield _unknown(f"{where}.{end}", name, positions)
        if tensor.src == tensor.dst and not where.startswith("$.carried"):
            message = f"kernel {tensor.src!r} consumes its own output"
            yield Issue(where, message, "remove the tensor, or put it under carried")
        yield from _excess(where, tensor, wiring, positions)
    for position, taken in enumerate(wiring.outputs or ()):
        if taken.src not in positions:
            yield _unknown(f"$.outputs[{position}].src", taken.src, positions)
        yield from _excess(f"$.outputs[{position}]", taken, wiring, positions)
    yield from _operand_issues(wiring, positions)
    yield from _cycle_issues(wiring, positions)
    yield from _layer_issues(wiring, positions, layers, sections, recomputed)
    for position, kernel in enumerate(wiring.kernels if is_training(wiring.kernels) else ()):
        if kernel.experts is not None and kernel.experts.routing is not None and kernel.experts.routing.redundant:
            message = "found copies of experts that train, whose gradients would have to be added up"
            yield Issue(f"$.kernels[{position}].experts.routing.redundant", message, "leave them to serving")


def _partners(wiring: Wiring) -> Iterator[tuple[str, Kernel, str]]:
    """Kernels that name another one: where, and which."""
    for position, kernel in enumerate(wiring.kernels):
        for key in ("accumulates_into", "stage_with"):
            if (other := getattr(kernel, key)) is not None:
                yield f"$.kernels[{position}].{key}", kernel, other


def _tensors(wiring: Wiring) -> Iterator[tuple[str, Tensor]]:
    """All tensors with their places in the document, carried ones included."""
    for field, tensors in (("tensors", wiring.tensors), ("carried", wiring.carried)):
        for position, tensor in enumerate(tensors):
            yield f"$.{field}[{position}]", tensor


def _unknown(where: str, name: str, names: Iterable[str], other: str = "") -> Issue:
    remedy = did_you_mean(name, names, "name one of the kernels of this graph")
    return Issue(where, f"no {other}kernel is called {name!r}", remedy)


def _excess(where: str, end: Tensor | Output, wiring: Wiring, positions: dict[str, int]) -> Iterator[Issue]:
    """That more is taken from a kernel than it produces."""
    produced = wiring.output_bytes(positions[end.src]) if end.src in positions else math.inf
    if end.bytes is not None and end.bytes > produced * (1 + 1e-9):
        shape = "outer x m x n x bytes of an element"
        message = f"found {end.bytes:.0f} B, but {end.src!r} produces only {produced:.0f} B ({shape})"
        yield Issue(f"{where}.bytes", message, "correct the bytes or the producer's shape")


def _layer_issues(
    wiring: Wiring,
    positions: dict[str, int],
    layers: Layers,
    sections: Sequence[Section] | None,
    recomputed: Mapping[str, str] | None,
) -> Iterator[Issue]:
    """Layers without kernels, kernels without a layer, and what connects kernels of different kinds."""
    of = {name: wiring.kernels[position].layer or LAYER for name, position in positions.items()}
    names, drawn = {name for section in sections or () for name in section.layers} or {LAYER}, {*of.values()}
    counted = layers.kinds[: layers.counted]
    yield from _recomputed_issues(wiring.kernels, recomputed or {}, names, drawn, () if sections is None else counted)
    names |= set((recomputed or {}).values())
    for position, kernel in enumerate(wiring.kernels):
        if (kernel.layer or LAYER) not in names:
            lack = "the graph has no sections"
            if sections is not None:
                lack = f"no section has it: {', '.join(sorted(names))}"
            remedy = did_you_mean(kernel.layer or LAYER, names, "name one of the sections' layers")
            yield Issue(f"$.kernels[{position}].layer", f"found {kernel.layer or LAYER!r}, but {lack}", remedy)
    for number, section in enumerate(sections or ()):
        for place, name in enumerate(section.layers):
            if name not in drawn:
                where = f"$.sections[{number}].layers[{place}]"
                yield Issue(where, f"no kernel belongs to {name!r}", did_you_mean(name, drawn, "draw some"))
    through_dram = "what passes between kinds of layers goes through DRAM: put it in dram_bytes of both kernels"
    for where, kernel, other in _partners(wiring):
        if other in of and of[other] != of[kernel.name]:
            message = f"kernel {kernel.name!r} belongs to {of[kernel.name]!r}, but {other!r} to {of[other]!r}"
            yield Issue(where, message, "name a kernel of the same layer")
    for where, tensor in _tensors(wiring):
        if tensor.src in of and tensor.dst in of and of[tensor.src] != of[tensor.dst]:
            message = f"{tensor.src!r} belongs to {of[tensor.src]!r}, but {tensor.dst!r} to {of[tensor.dst]!r}"
            yield Issue(where, message, through_dram)
    if layers.counted > 1:
        yield from _handing_on_issues(wiring, counted, of)


def _recomputed_issues(
    kernels: Sequence[Kernel], recomputed: Mapping[str, str], names: set[str], drawn: set[str], counted: Sequence[str]
) -> Iterator[Issue]:
    """Kinds that are recomputed: each has all kernels of the kind that it stands for, and such as compute again.

    ``names``: kinds that sections name; ``drawn``: kinds of kernels; ``counted``: kinds of counted layers.
    """
    taken: Counter[str] = Counter(recomputed.values())
    for kind, again in recomputed.items():
        where = f"$.recomputed.{kind}"
        if kind not in names or kind not in counted:
            yield Issue(where, f"no section repeats {kind!r}", did_you_mean(kind, names, "name one that does"))
        elif again not in drawn or again in names or taken[again] > 1:
            message = f"found {again!r}, which is no kind of its own with kernels"
            yield Issue(where, message, "draw it, and leave it out of all sections")
        elif (work := _work(kernels, kind)) - (work_again := _work(kernels, again)):
            message = f"{again!r} lacks kernels that {kind!r} has, such as {next(iter(work - work_again)).op} kernels"
            yield Issue(where, message, "draw all of them, and beside them what computes again")
        elif any(kernel.pass_ != "recompute" for kernel in work_again - work):
            message = f"{again!r} has other kernels than {kind!r} beside those of pass: recompute"
            yield Issue(where, message, "draw the same ones")


def _work(kernels: Iterable[Kernel], kind: str) -> Counter[Kernel]:
    """Kernels of a kind of layer with their counts, equal but for names and what they keep."""
    unnamed: dict[str, object] = {"name": "k", "layer": None, "stage_with": None, "accumulates_into": None}
    unnamed |= {"output_saved": None, "mask_bytes": None}
    return Counter(kernel.model_copy(update=unnamed) for kernel in kernels if (kernel.layer or LAYER) == kind)


def _handing_on_issues(wiring: Wiring, counted: Sequence[str], of: dict[str, str]) -> Iterator[Issue]:
    """Kinds of layers that follow one another and do not hand on the same tensors."""
    handed: dict[str, list[tuple[str, float]]] = {name: [] for name in counted}
    for tensor in wiring.carried:
        if tensor.src in of and of[tensor.src] in handed:
            handed[of[tensor.src]].append((tensor.direction, wiring.bytes_of(tensor)))
    first, *others = handed
    for name in others:
        if handed[name] != handed[first]:
            message = f"{first!r} hands on {_listed(handed[first])}, but {name!r} {_listed(handed[name])}"
            yield Issue("$.carried", message, "all layers of a model hand on the same tensors, in the same order")


def _listed(handed: list[tuple[str, float]]) -> str:
    return " and ".join(f"{size:.0f} B {direction}" for direction, size in handed) or "nothing"


def _operand_issues(wiring: Wiring, positions: dict[str, int]) -> Iterator[Issue]:
    """Operands that come twice, and shapes that disagree."""
    incoming, parted = Counter[str](), _parted(wiring, positions)
    for position, tensor in enumerate(wiring.tensors):
        if tensor.dst not in positions:
            continue
        where, kernel = f"$.tensors[{position}]", wiring.kernels[positions[tensor.dst]]
        incoming[kernel.name] += 1
        most = OPERANDS[kernel.op]
        if kernel.op != "elementwise" and incoming[kernel.name] > most and kernel.name not in parted:
            twice = f"this is number {incoming[kernel.name]} (two producers for one operand)"
            message = f"{kernel.op} kernel {kernel.name!r} takes {most} input tensor(s), {twice}"
            remedy = "add the inputs in an elementwise kernel first, or state the bytes of each if they are parts"
            yield Issue(f"{where}.dst", message, remedy if kernel.op == "gemm" else remedy.partition(",")[0])
        if tensor.bytes is None and tensor.src in positions:
            src = wiring.kernels[positions[tensor.src]]
            elements = float(src.matrices * needed(src))
            if wanted := _misfit(elements, kernel):
                message = f"shapes disagree: {tensor.src!r} produces {elements:.0f} elements, {wanted}"
                remedy = "correct the shapes, or state the tensor's bytes if only part of the output is read"
                yield Issue(where, message, remedy)
    for position, given in enumerate(wiring.inputs or ()):
        where = f"$.inputs[{position}]"
        if given.dst not in positions:
            yield _unknown(f"{where}.dst", given.dst, positions)
            continue
        incoming[given.dst] += 1
        kernel = wiring.kernels[positions[given.dst]]
        if kernel.op != "elementwise" and incoming[given.dst] > OPERANDS[kernel.op]:
            message = f"{kernel.op} kernel {kernel.name!r} has its {OPERANDS[kernel.op]} operand(s) already"
            yield Issue(where, message, "remove the input, or the tensor that brings the operand")


def _parted(wiring: Wiring, positions: dict[str, int]) -> set[str]:
    """GEMMs whose operand several tensors bring in parts, each with its bytes, together no more than it."""
    parts: defaultdict[str, list[float]] = defaultdict(list)
    for tensor in wiring.tensors:
        if {tensor.src, tensor.dst} <= positions.keys() and wiring.kernels[positions[tensor.dst]].op == "gemm":
            parts[tensor.dst].append(math.nan if tensor.bytes is None else wiring.elements_of(tensor))
    several = ((wiring.kernels[positions[name]], math.fsum(sizes)) for name, sizes in parts.items() if len(sizes) > 1)
    return {kernel.name for kernel, total in several if total <= kernel.outer * kernel.k * kernel.n * (1 + 1e-9)}


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


def _cycle_issues(wiring: Wiring, positions: dict[str, int]) -> Iterator[Issue]:
    edges = [(t.src, t.dst) for t in wiring.tensors if t.src in positions and t.dst in positions and t.src != t.dst]
    feeds: dict[str, list[str]] = {}
    for src, dst in edges:
        feeds.setdefault(dst, []).append(src)
    try:  # every graph that is drawn is asked, and to sort it is five times as quick as to look for a cycle
        return TopologicalSorter(feeds).prepare()
    except CycleError:
        import networkx as nx  # it takes long to import

        names = [edge[0] for edge in nx.find_cycle(nx.DiGraph(edges))]
    shown = names if len(names) <= 6 else [*names[:3], "...", *names[-2:]]
    remedy = "a graph is one evaluation and must be acyclic; a tensor that goes to the next layer belongs under carried"
    yield Issue("$.tensors", f"the tensors form a cycle: {' -> '.join([*shown, names[0]])}", remedy)
