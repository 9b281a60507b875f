"""Find the layers of a drawn graph that repeat, and draw one of them for all: the opposite of :mod:`.unroll`.

Kernels are compared in their order. Layers are alike if their kernels have the same figures and read the same from each
other, from the layer before and from what lies before all layers; nothing but the last layer is read behind them. Where
several kernels of a layer read the same tensor of the layer before, as a residual and the norm beside it do, they read
it from a kernel at the entrance of the layer, as decoders of the zoo have one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dfopt.documents.graph import Graph, Input, Kernel, Output, Tensor
from dfopt.documents.sections import Section

ENTRANCE = "Layer_In"
_TRIED = 64  # places where a layer may begin: those where least enters it


@dataclass(frozen=True)
class Run:
    """Equal consecutive layers: ``repeat`` layers of ``period`` kernels from position ``start``."""

    start: int
    period: int
    repeat: int

    @property
    def end(self) -> int:
        """Position of the first kernel after the run."""
        return self.start + self.period * self.repeat

    @property
    def saved(self) -> int:
        """Number of kernels that folding saves."""
        return self.period * (self.repeat - 1)

    def place(self, kernel: int) -> tuple[int, int] | None:
        """Layer of a kernel and its position in it; None outside of the run."""
        inside = self.start <= kernel < self.end
        return divmod(kernel - self.start, self.period) if inside else None


_Source = tuple[str, int, int, float, str | None]  # where, place in it, and a read but for its source


class _Read(NamedTuple):
    """What a kernel reads: of which kernel (-1: from DRAM), as which operand, how much, and which part."""

    src: int
    operand: int
    bytes: float
    part: str | None = None


@dataclass(frozen=True)
class _Wiring:
    """A graph by positions of its kernels."""

    graph: Graph
    codes: np.ndarray[Any, np.dtype[np.int64]]
    reads: list[list[_Read]]
    readers: list[list[int]]
    writes: list[float]


def _wiring(graph: Graph) -> _Wiring:
    index, count = graph.index(), len(graph.kernels)
    reads: list[list[_Read]] = [[] for _ in range(count)]
    readers: list[list[int]] = [[] for _ in range(count)]
    writes = [0.0] * count
    for tensor in graph.tensors:
        src, dst = index[tensor.src], index[tensor.dst]
        reads[dst].append(_Read(src, tensor.operand or 0, *graph.taken(tensor)[1:]))
        readers[src].append(dst)
    for given in graph.inputs or ():
        reads[index[given.dst]].append(_Read(-1, given.operand or 0, float(given.bytes or 0)))
    for out in graph.outputs or ():
        writes[index[out.src]] += float(out.bytes or graph.output_bytes(out.src))
    seen: dict[tuple[Any, ...], int] = {}
    codes = []
    for kernel, own in zip(graph.kernels, reads, strict=True):
        figures = kernel.model_dump(exclude={"name"}).items()
        taken = tuple(sorted((read.operand, read.bytes) for read in own))
        codes.append(seen.setdefault((repr(sorted(figures, key=str)), taken), len(seen)))
    return _Wiring(graph, np.array(codes, dtype=np.int64), reads, readers, writes)


def find_run(graph: Graph) -> Run | None:
    """The run of equal layers whose folding saves most kernels; None if nothing with weights repeats.

    Examples
    --------
    >>> from dfopt.workloads import WORKLOADS
    >>> from dfopt.workloads.unroll import unroll
    >>> layer = WORKLOADS["transformer"](hidden=64, heads=4, head_dim=16, seq=32, layers=12)
    >>> drawn = unroll(layer)
    >>> given = Input(dst=drawn.kernels[0].name, bytes=drawn.output_bytes(0))
    >>> find_run(drawn.model_copy(update={"carried": (), "inputs": (given,), "outputs": ()}))
    Run(start=0, period=18, repeat=12)
    """
    plain = not graph.folded and not graph.carried and None not in (graph.inputs, graph.outputs)
    if not plain or any(kernel.accumulates_into or kernel.stage_with for kernel in graph.kernels):
        return None
    wiring, best = _wiring(graph), Run(0, 0, 1)
    for most, period, low, high in sorted(_candidates(wiring), key=lambda candidate: (-candidate[0], candidate[1:])):
        if most <= best.saved:
            break
        starts = range(low, min(low + period, high - 2 * period + 1))
        ordered = sorted(starts, key=lambda start: (len(_entering(wiring, start, period)), start))
        for start in ordered[:_TRIED]:
            for run in _segments(wiring, Run(start, period, (high - start) // period)):
                if run.saved > best.saved and _is_alike(wiring, run):
                    best = run
            if best.saved == most:
                break
    return best if best.repeat > 1 else None


def _segments(wiring: _Wiring, run: Run) -> Iterator[Run]:
    """The parts of a run that may be alike: no layer but the last is read from further away, and they read alike."""
    period = run.period
    first, before = 0, list[Any]()
    for layer in range(run.repeat):
        here = range(run.start + layer * period, run.start + (layer + 1) * period)
        reads = [_sources(wiring, run, kernel) for kernel in here]
        if layer - first >= 2 and reads != before:
            yield Run(run.start + first * period, period, layer - first)
            first = layer - 1
        before = reads
        if layer == run.repeat - 1 or any(dst >= here[-1] + 1 + period for k in here for dst in wiring.readers[k]):
            if layer > first:
                yield Run(run.start + first * period, period, layer + 1 - first)
            first = layer + 1


def _candidates(wiring: _Wiring) -> Iterator[tuple[int, int, int, int]]:
    """Runs of kernels with equal figures: kernels that may be saved, period, and where they lie."""
    codes, weighted = wiring.codes, np.array([kernel.op == "gemm" for kernel in wiring.graph.kernels])
    for period in range(1, len(codes) // 2 + 1):
        same = np.concatenate([[False], codes[:-period] == codes[period:], [False]])
        edges = np.flatnonzero(same[1:] != same[:-1]).reshape(-1, 2)
        for low, high in edges[edges[:, 1] - edges[:, 0] >= period].tolist():
            if weighted[low : low + period].any():
                yield (high - low) // period * period, period, low, high + period


def _entering(wiring: _Wiring, start: int, period: int) -> set[tuple[int, int]]:
    """Tensors that the second layer reads of the first one: which kernel, and who reads it."""
    second = range(start + period, start + 2 * period)
    return {
        (read.src - start, dst - start - period)
        for dst in second
        for read in wiring.reads[dst]
        if start <= read.src < start + period
    }


def _is_alike(wiring: _Wiring, run: Run) -> bool:
    """Whether the layers of a run read alike, and nothing else reads any of them but the last."""
    handed = {src for src, _ in _entering(wiring, run.start, run.period)}
    for place in range(run.period):
        layers = [run.start + layer * run.period + place for layer in range(run.repeat)]
        first, second, *others = (_sources(wiring, run, kernel) for kernel in layers)
        shared = [key[1] for reads in (first, second, *others) for key in reads if key[0] == "shared"]
        if any(reads != second for reads in others) or any(src >= run.start for src in shared):
            return False
        # what the second reads of the first, the first reads of whatever lies before
        own = Counter({key: n for key, n in second.items() if key[0] != "before"})
        wanted = Counter({key: n for key, n in second.items() if key[0] == "before"})
        rest = first - own
        if own - first or Counter(key[2:] for key in rest.elements()) != Counter(key[2:] for key in wanted.elements()):
            return False
        writes = [wiring.writes[kernel] for kernel in layers]
        if len({*writes[:-1]}) > 1 or (writes[-1] != writes[0] and place not in handed):
            return False
        for layer, kernel in enumerate(layers):
            outside = [dst for dst in wiring.readers[kernel] if run.place(dst) is None]
            if outside and (layer < run.repeat - 1 or place not in handed):
                return False
    return True


def _sources(wiring: _Wiring, run: Run, kernel: int) -> Counter[_Source]:
    """What a kernel of a layer reads, in words that are the same for every layer unless it is of one further back."""
    sources: Counter[_Source] = Counter()
    here = run.place(kernel)
    for read in wiring.reads[kernel]:
        there = run.place(read.src)
        if there is not None and here is not None and there[0] in (here[0], here[0] - 1):
            sources["inner" if there[0] == here[0] else "before", there[1], *read[1:]] += 1
        else:
            sources["shared", *read] += 1
    return sources


def with_entrances(graph: Graph, run: Run) -> tuple[Graph, Run]:
    """Add a kernel to every layer through which all inputs from the previous layer enter.

    Returns
    -------
    Graph, Run
        The graph as it is where no tensor is read by several.
    """
    wiring, period = _wiring(graph), run.period
    heads: defaultdict[tuple[int, float], list[tuple[int, int]]] = defaultdict(list)
    for dst in range(run.start + period, run.start + 2 * period):
        for read in wiring.reads[dst]:
            if run.start <= read.src < run.start + period:
                heads[read.src - run.start, read.bytes].append((dst - run.start - period, read.operand))
    several = {key: dsts for key, dsts in heads.items() if len(dsts) > 1 and _has_one_source(wiring, run, key, dsts)}
    if not several:
        return graph, run
    names = {kernel.name for kernel in graph.kernels}
    kernels, tensors, inputs = list(graph.kernels[: run.start]), list[Tensor](), list[Input]()
    moved: dict[tuple[str, str, int, float], str] = {}  # reads of a source that now are of an entrance
    for layer in range(run.repeat):
        first = run.start + layer * period
        for number, ((place, size), dsts) in enumerate(several.items()):
            source = graph.kernels[run.start + place]
            name = f"{ENTRANCE}_{number}.{layer}" if len(several) > 1 else f"{ENTRANCE}.{layer}"
            while name in names:
                name = f"{name}_"
            more = {"stream": source.stream, "role": "residual", "op": "elementwise", "samples": source.samples}
            kernels.append(Kernel(name=name, outer=source.outer, m=source.m, n=source.n, **more))
            before = _before(wiring, run, layer, place, dsts[0], size)
            if before < 0:
                inputs.append(Input(dst=name, bytes=size))
            else:
                tensors.append(Tensor(src=graph.kernels[before].name, dst=name, bytes=size))
            for dst, operand in dsts:
                key = graph.kernels[before].name if before >= 0 else ""
                moved[key, graph.kernels[first + dst].name, operand, size] = name
        kernels += graph.kernels[first : first + period]
    for tensor in graph.tensors:
        entrance = moved.get((tensor.src, tensor.dst, tensor.operand or 0, graph.bytes_of(tensor)))
        tensors.append(tensor if entrance is None else tensor.model_copy(update={"src": entrance}))
    for given in graph.inputs or ():
        entrance = moved.get(("", given.dst, given.operand or 0, float(given.bytes or 0)))
        if entrance is None:
            inputs.append(given)
        else:
            tensors.append(Tensor(src=entrance, dst=given.dst, operand=given.operand, bytes=given.bytes))
    kernels += graph.kernels[run.end :]
    fields = {"kernels": tuple(kernels), "tensors": tuple(tensors), "inputs": tuple(inputs)}
    return graph.model_copy(update=fields), Run(run.start, period + len(several), run.repeat)


def _before(wiring: _Wiring, run: Run, layer: int, place: int, dst: tuple[int, int], size: float) -> int:
    """The kernel of which a layer reads what others read of the layer before; -1: it comes from DRAM."""
    if layer:
        return run.start + (layer - 1) * run.period + place
    rest = _sources(wiring, run, run.start + dst[0]) - _sources(wiring, run, run.start + run.period + dst[0])
    return next((key[1] for key in rest if key[2:] == (dst[1], size, None)), -1)


def _has_one_source(wiring: _Wiring, run: Run, key: tuple[int, float], dsts: list[tuple[int, int]]) -> bool:
    """Whether all of a kernel's output is handed on, and the first layer reads it of one kernel, or from DRAM, too."""
    place, size = key
    complete = wiring.graph.output_bytes(run.start + place) == size
    return complete and len({_before(wiring, run, 0, place, dst, size) for dst in dsts}) == 1


def fold(graph: Graph, run: Run) -> Graph:
    """Fold a graph: draw the equal layers of a run once.

    Kernels before and after them are separate layers; tensors between those and the layers, or past the layers, go
    through DRAM, from which they are read in any layout.
    """
    wiring, kernels, period = _wiring(graph), graph.kernels, run.period
    tensors, inputs = list[Tensor](), list[Input]()
    carried: dict[Tensor, None] = {}
    wanted: dict[tuple[int, float, str | None], None] = {}  # what kernels before the layers write for others

    def tensor(src: int, dst: int, read: _Read) -> Tensor:
        ends = {"src": kernels[src].name, "dst": kernels[dst].name}
        return Tensor(**ends, operand=_operand(read), bytes=read.bytes, part=read.part)

    for dst, reads in enumerate(wiring.reads):
        layer = run.place(dst)
        wanted.update({(read.src, read.bytes, read.part): None for read in reads if 0 <= read.src < run.start <= dst})
        if layer is not None and layer[0] != 1:  # the second layer says what all of them read
            continue
        here = dst if layer is None else dst - period
        for read in reads:
            if layer is not None and run.start <= read.src < run.start + period:
                carried[tensor(read.src, here, read)] = None
            elif layer is not None and read.src >= run.start:
                tensors.append(tensor(read.src - period, here, read))
            elif layer is None and read.src >= (run.end if dst >= run.end else 0):
                tensors.append(tensor(read.src, here, read))
            else:
                inputs.append(Input(dst=kernels[here].name, operand=_operand(read), bytes=read.bytes))
    drawn = [place for place in range(len(kernels)) if not run.start + period <= place < run.end]
    outputs = [output for output in graph.outputs or () if graph.index()[output.src] in set(drawn)]
    written = {(graph.index()[output.src], float(output.bytes or 0)) for output in outputs}
    outputs += [Output(src=kernels[src].name, bytes=size) for src, size, _ in wanted if (src, size) not in written]
    layers = ["first" if place < run.start else "last" if place >= run.end else None for place in drawn]
    ends = [(Section(layers=(name,)),) if name in layers else () for name in ("first", "last")]
    sections = (*ends[0], Section(repeat=run.repeat), *ends[1])
    fields: dict[str, Any] = {"sections": sections, "tensors": tuple(tensors), "carried": tuple(carried)}
    fields |= {"inputs": tuple(inputs), "outputs": tuple(outputs)}
    labelled = (kernels[place].model_copy(update={"layer": of}) for place, of in zip(drawn, layers, strict=True))
    return graph.model_copy(update={**fields, "kernels": tuple(labelled)})


def _operand(read: _Read) -> Any:
    return read.operand or None
