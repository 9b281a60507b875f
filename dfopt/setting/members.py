"""What one chip of the second axis does: a graph whose modules are shared out by their schemes.

Under a plan with a second axis everything else sees this graph in place of the model's: kernels of the size that a chip
has of them, and what the chips of the axis exchange as communications of the kernels whose outputs it is. So the first
axis, fusion, pipelines, memory and proofs are as they are without one. Schemes are those of
:mod:`dfopt.documents.modules`.

How outputs lie on the axis, and what brings them to whom needs them otherwise:

===========  ========================  ===================================  ===============================
it lies      readers need all tokens   readers need their own tokens        experts need those sent to them
===========  ========================  ===================================  ===============================
``whole``    nothing                   nothing                              nothing
``tokens``   all-gather                nothing                              dispatch
``sums``     all-reduce                reduce-scatter, if nobody needs all  all-reduce
``experts``  combine, all-gather       combine                              combine, all-gather
===========  ========================  ===================================  ===============================

Dispatch sends every token once to each of the distinct chips that hold one of its experts, as expected under the
routing, in the type that products take; combine brings as many back. Over two network dims a token goes to each group
of the other dims once, and from there on to the chips of the first one. Experts are placed so that loads are as even as
they get without copies, and every chip takes as long as the one with the most.

Chips have whole sequences: of so many that each has as many as the one with the most. What an all-gather, a dispatch
or a combine brings to a chip beside its own share is written to DRAM, and read from there by all that need it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import networkx as nx

from dfopt.documents.axes import MODULES
from dfopt.documents.communication import CollectiveKind, Communication
from dfopt.documents.dtypes import FORMATS
from dfopt.documents.experts import Experts
from dfopt.documents.graph import Graph, Input, Kernel, Output, Tensor
from dfopt.documents.modules import Modules, ModuleScheme
from dfopt.documents.wiring import needed, operand_shape, operands
from dfopt.physics.spread import spread

__all__ = ["Unsplit", "able", "member_graph"]

Lies = Literal["whole", "tokens", "sums", "experts", "features"]


_CLOSE = 1e-12


class Unsplit(Exception):
    """A scheme that a module cannot take, and why."""


def member_graph(graph: Graph, modules: Modules, members: int, first: int) -> Graph:
    """The graph of one chip of the second axis.

    Parameters
    ----------
    graph : Graph
        The model.
    modules : Modules
        Scheme of each module.
    members, first : int
        Chips of the axis, and those along its first network dim.

    Raises
    ------
    Unsplit
        If a module cannot take its scheme.

    Examples
    --------
    >>> up = Kernel(name="up", op="gemm", m=8, k=4, n=6, module="dense")
    >>> down = Kernel(name="down", op="gemm", m=4, k=8, n=6, module="dense")
    >>> graph = Graph(name="g", kernels=(up, down), tensors=(Tensor(src="up", dst="down"),))
    >>> split = member_graph(graph, Modules(dense="m"), 2, 2)
    >>> [(one.m, one.k, one.n) for one in split.kernels]
    [(4, 4, 6), (4, 4, 6)]
    >>> [one.kind for one in split.kernels[1].communications]
    ['all_reduce']
    """
    return _Member(graph, modules, members, first).graph


def able(graph: Graph, modules: Modules, members: int) -> bool:
    """Whether modules can take their schemes over so many chips."""
    try:
        _Member(graph, modules, members, members).kernels  # noqa: B018
    except Unsplit:
        return False
    return True


@dataclass(frozen=True)
class _Laid:
    """A kernel on one chip of the axis: how it needs its inputs, and how its output lies."""

    kernel: Kernel
    needs: Lies
    makes: Lies


class _Member:
    """A graph that is shared out."""

    def __init__(self, whole: Graph, modules: Modules, members: int, first: int) -> None:
        self.whole, self.modules, self.members, self.first = whole, modules, members, first
        self.samples = Fraction(-(-whole.microbatch // members), whole.microbatch)
        self.into: dict[str, list[Tensor]] = defaultdict(list)
        self.out: dict[str, list[Tensor]] = defaultdict(list)
        for tensor in whole.tensors:
            self.into[tensor.dst].append(tensor)
            self.out[tensor.src].append(tensor)

    @cached_property
    def laid(self) -> dict[str, _Laid]:
        """Every kernel, in the order of the tensors."""
        index, found = self.whole.index(), dict[str, _Laid]()
        for name in nx.topological_sort(self.whole.networkx()):
            kernel = self.whole.kernels[index[name]]
            of_module = {found[t.src].makes for t in self.into[name] if found[t.src].kernel.module == kernel.module}
            found[name] = self._of(kernel, self.modules.of(kernel.module), of_module)
        return found

    def _of(self, kernel: Kernel, scheme: ModuleScheme, read: set[Lies]) -> _Laid:
        """``read``: how what it reads from kernels of its own module lies."""
        if scheme == "none":
            return _Laid(kernel, "whole", "whole")
        if scheme == "n":
            return _Laid(self._by_samples(kernel), "tokens", "tokens")
        if kernel.module == "experts" and scheme == "outer":
            return _Laid(self._by_expert(kernel), "experts", "experts")
        return self._by_features(kernel, "features" in read)

    def _by_samples(self, kernel: Kernel) -> Kernel:
        """Some of the sequences."""

        def of(size: int, what: str) -> int:
            part = size * self.samples
            if part.denominator != 1 or self.samples == 1:
                raise Unsplit(f"{what} of {kernel.name!r}, {size}, are not those of {self.whole.microbatch} sequences")
            return int(part)

        changes: dict[str, Any] = {}
        if kernel.samples is not None:
            changes["samples"] = of(kernel.samples, "samples")
        elif kernel.op == "matmul":
            raise Unsplit(f"{kernel.name!r} is not apart for every sequence")
        else:
            changes["n"] = of(kernel.n, "tokens")
        if kernel.states:
            changes["states"] = tuple(
                one.model_copy(update={"sequences": of(one.sequences, "sequences")}) for one in kernel.states
            )
        if kernel.experts is not None:
            changes["experts"] = kernel.experts.for_tokens(changes["n"])
        for name in ("dram_bytes", "dram_bytes_per_chip"):
            if size := getattr(kernel, name):
                changes[name] = size * float(self.samples)
        return kernel.model_copy(update=changes)

    def _by_expert(self, kernel: Kernel) -> Kernel:
        """Some of the experts, with the tokens sent to the most loaded chip."""
        experts, always = self.experts, self.experts.always or 0
        if kernel.op not in ("gemm", "elementwise") or kernel.samples is not None:
            raise Unsplit(f"{kernel.name!r} is no work on tokens apart")
        here = spread(experts, self.members, self.first, kernel.n)
        part = ((experts.chosen - always) * here.load + always / self.members) / experts.chosen
        changes: dict[str, Any] = {"n": max(math.ceil(kernel.n * part * (1 - _CLOSE)), 1)}
        if kernel.experts is not None:
            own = {"count": here.held, "touched": here.touched, "held": experts.count}
            changes["experts"] = kernel.experts.model_copy(update=own)
        return kernel.model_copy(update=changes)

    @cached_property
    def experts(self) -> Experts:
        """Those of the module, of which there is one kind."""
        found = {k.experts for k in self.whole.kernels if k.module == "experts" and k.experts is not None}
        if len(found) != 1:
            raise Unsplit(f"experts of {len(found)} kinds")
        experts = found.pop()
        if experts.count - (experts.always or 0) < self.members:
            raise Unsplit(f"{self.members} chips for {experts.count - (experts.always or 0)} experts")
        return experts

    def _by_features(self, kernel: Kernel, split: bool) -> _Laid:
        """Heads, or features: ``split`` where it reads some of its module that are."""
        members, name = self.members, kernel.name

        def of(size: int, what: str) -> int:
            if size % members:
                raise Unsplit(f"{what} of {name!r}, {size}, are not shared by {members} chips")
            return size // members

        if kernel.op == "weight_update":
            raise Unsplit(f"{name!r} is a gradient")
        if kernel.outer > 1:
            if kernel.op == "gemm" or split or kernel.op == "matmul":
                return _Laid(self._by_heads(kernel, of(kernel.outer, "heads")), "features", "features")
            return _Laid(kernel, "whole", "whole")
        if kernel.op == "matmul":
            raise Unsplit(f"{name!r} has one head")
        if kernel.op == "elementwise":
            if not split:
                return _Laid(kernel, "whole", "whole")
            if kernel.normalizes:
                raise Unsplit(f"{name!r} needs all features")
            return _Laid(kernel.model_copy(update={"m": of(kernel.m, "features")}), "features", "features")
        if split:
            return _Laid(kernel.model_copy(update={"k": of(kernel.k, "features")}), "features", "sums")
        index = self.whole.index()
        readers = [self.whole.kernels[index[t.dst]] for t in self.out[name]]
        whole = any(one.normalizes and one.outer == 1 and one.module == kernel.module for one in readers)
        if whole or kernel.role in ("router", "latent"):
            return _Laid(kernel, "whole", "whole")
        return _Laid(kernel.model_copy(update={"m": of(kernel.m, "features")}), "whole", "features")

    def _by_heads(self, kernel: Kernel, heads: int) -> Kernel:
        """So many of the heads, and what is kept for them: one that all share is on every chip."""
        states = []
        for one in kernel.states or ():
            own = -(-one.heads // self.members)
            if heads % own or one.bytes_per_token * own % one.heads or one.bytes_per_sequence * own % one.heads:
                raise Unsplit(f"{one.name} of {kernel.name!r} belong to {one.heads} heads")
            sizes = {name: getattr(one, name) * own // one.heads for name in ("bytes_per_token", "bytes_per_sequence")}
            states.append(one.model_copy(update={"heads": own, **sizes}))
        return kernel.model_copy(update={"outer": heads, "states": tuple(states) or None})

    # -- what is exchanged ------------------------------------------------------------------
    @cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        """With what they exchange."""
        wanted: dict[tuple[str, float, str | None], set[Lies]] = defaultdict(set)
        passed: dict[str, list[float]] = defaultdict(list)  # through DRAM
        within = len(self.whole.tensors)
        for place, tensor in enumerate((*self.whole.tensors, *self.whole.carried)):
            src, dst = self.laid[tensor.src], self.laid[tensor.dst]
            inside = src.kernel.module == dst.kernel.module and place < within
            if inside and src.makes in ("features", "experts") and src.makes == dst.needs:
                continue
            if src.makes == "features":
                raise Unsplit(f"{tensor.dst!r} needs all features of {tensor.src!r}")
            needs = "whole" if dst.needs == "features" else dst.needs
            wanted[self.whole.taken(tensor)].add(needs)
            passed[tensor.dst].append(self._arrives(tensor.src, needs, self.whole.bytes_of(tensor)))
        for kernel in self.whole.kernels:  # the end of a graph is whole, or as the residual stream
            if self.laid[kernel.name].makes in ("sums", "experts") and not self.out[kernel.name]:
                end: Lies = "tokens" if self.modules.stream == "n" else "whole"
                wanted[kernel.name, self.whole.output_bytes(kernel.name), None].add(end)
        listed: dict[str, list[Communication]] = defaultdict(list)
        for (name, size, _), asked in wanted.items():
            listed[name] += self._exchanged(name, self.laid[name].makes, asked, size)
            for need in asked:  # what arrives is written once, and read by everyone
                passed[name].append(self._arrives(name, need, size))
        found = []
        for kernel in self.whole.kernels:
            own, part = tuple(listed[kernel.name]), self.laid[kernel.name].kernel
            changes: dict[str, Any] = {"communications": own} if own else {}
            if moved := math.fsum(passed[kernel.name]):
                changes["dram_bytes_per_chip"] = part.dram_bytes_per_chip + moved
            found.append(part.model_copy(update=changes))
        return tuple(found)

    def _arrives(self, name: str, needs: Lies, size: float) -> float:
        """Bytes of an output that come to a chip beside its own share of it."""
        makes, samples = self.laid[name].makes, float(self.samples)
        if makes not in ("tokens", "experts") or makes == needs or (makes == "experts" and self._gathered):
            return 0.0
        if needs == "whole":
            return size * (1.0 - samples)
        here = spread(self.experts, self.members, self.first, self.whole.kernels[self.whole.index()[name]].n)
        copies = here.chips / self.members * (self._dispatched if needs == "experts" else 1.0)
        return size * max(copies - (here.load if needs == "experts" else samples), 0.0)

    def _exchanged(self, name: str, makes: Lies, needs: set[Lies], size: float) -> Iterator[Communication]:
        """What brings an output of so many bytes, of all chips together, to all that need it."""

        def over_all(kind: CollectiveKind) -> Communication:
            return Communication(kind=kind, bytes=size, over=MODULES)

        if makes == "tokens":
            if "whole" in needs:
                yield over_all("all_gather")
            if "experts" in needs:
                yield from self._sent(name, size * self._dispatched)
        elif makes == "sums":
            yield over_all("reduce_scatter" if needs == {"tokens"} else "all_reduce")
        elif makes == "experts":
            if self._gathered:
                yield over_all("reduce_scatter" if needs == {"tokens"} else "all_reduce")
                return
            yield from self._sent(name, size)
            if needs != {"tokens"}:
                yield over_all("all_gather")

    @cached_property
    def _gathered(self) -> bool:
        """Whether experts find all tokens on every chip, and therefore leave partial sums."""
        readers = {tensor.dst for tensor in self.whole.tensors if self.laid[tensor.dst].needs == "experts"}
        sources = {t.src for name in readers for t in self.into[name] if self.laid[t.src].kernel.module != "experts"}
        return all(self.laid[name].makes in ("whole", "sums") for name in sources)

    @property
    def _dispatched(self) -> float:
        """Bytes of what is dispatched over those of an activation: products may take a smaller type."""
        types = self.whole.dtypes
        if types is None or types.operands is None:
            return 1.0
        return float(FORMATS[types.operands].bytes) / self.whole.words.activations

    def _sent(self, name: str, size: float) -> Iterator[Communication]:
        """Every token to, or from, the distinct chips with its experts."""
        tokens = self.whole.kernels[self.whole.index()[name]].n
        here = spread(self.experts, self.members, self.first, tokens)
        if self.first in (1, self.members):
            yield Communication(kind="all_to_all", bytes=size * here.chips, over=MODULES)
        else:
            yield Communication(kind="all_to_all", bytes=size * here.chips, over=f"{MODULES}_first")
            yield Communication(kind="all_to_all", bytes=size * here.groups, over=f"{MODULES}_rest")

    # -- the graph --------------------------------------------------------------------------
    @cached_property
    def graph(self) -> Graph:
        """Kernels, tensors and ends of one chip."""
        whole, kernels = self.whole, self.kernels
        index, words = whole.index(), whole.words
        made = {k.name: float(k.matrices * needed(k)) * words.of_output(k) for k in kernels}

        def tensor(one: Tensor, operand: int | None) -> Tensor:
            old, src, dst = whole.kernels[index[one.dst]], kernels[index[one.src]], kernels[index[one.dst]]
            size = whole.bytes_of(one)
            elements, shape = size / words.of_output(src), math.prod(operand_shape(old, operand or 1))
            share = _operand(dst, operand or 1) / _operand(old, operand or 1)
            if self.laid[one.dst].needs == "features" and self.laid[one.src].makes != "features":
                # what all heads share, or all features of a token
                pointwise = old.op == "elementwise"
                share = 1.0 if elements < shape * old.matrices and (pointwise or elements <= shape) else share
            whole_output = one.bytes is None and math.isclose(size * share, made[src.name])
            sizes = {"bytes": None, "part": None} if whole_output else {"bytes": min(size * share, made[src.name])}
            return one.model_copy(update={**sizes, "operand": operand})

        meant = zip(whole.tensors, operands(whole), strict=True)
        tensors = [tensor(t, o if _two(whole.kernels[index[t.dst]]) else t.operand) for t, o in meant]
        inputs = []
        for k, operand, size in whole.reads():
            share = _operand(kernels[k], operand) / _operand(whole.kernels[k], operand)
            inputs.append(Input(dst=kernels[k].name, operand=operand if _two(kernels[k]) else None, bytes=size * share))
        outputs = [
            Output(src=kernels[k].name, bytes=size * made[kernels[k].name] / whole.output_bytes(k))
            for k, size in whole.writes()
        ]
        found = {
            "kernels": kernels,
            "tensors": tuple(tensors),
            "carried": tuple(tensor(one, one.operand) for one in whole.carried),
            "inputs": tuple(inputs),
            "outputs": tuple(outputs),
        }
        return whole.model_copy(update=found)


def _operand(kernel: Kernel, operand: int) -> int:
    """Elements of an operand, of all matrices but of a GEMM, whose heads share one."""
    return (1 if kernel.op == "gemm" else kernel.matrices) * needed(kernel, operand)


def _two(kernel: Kernel) -> bool:
    return kernel.op in ("matmul", "weight_update")
