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
of the other dims once, and from there on to the chips of the first one. Experts, and the copies of them that a routing
asks for, are placed so that loads are about even (:func:`dfopt.physics.spread.placed`), and every chip takes as long as
the one with the most.

Chips have whole sequences, of so many that each has as many as the one with the most; or tokens of every sequence
(``context``), where keys and values are gathered. Or each has some of the keys that are kept, and what they weigh up is
added, with the largest score and the sum of every row that a softmax is put together from. What an all-gather, a
dispatch or a combine brings to a chip beside its own share is written to DRAM, and read from there by all that need it.

When a graph trains, gradients lie as what they are gradients of. What the forward pass keeps for them lies as it was
made: the first of those that need it otherwise has it sent again. Gradients of keys, of which a chip has what its
queries leave, are sums. Each chip has the gradients of the weights that it has, from its tokens; what others have of
the same ones is added up after a step (``Kernel.copied``).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final

from dfopt.documents.axes import MODULES
from dfopt.documents.communication import CollectiveKind, Communication
from dfopt.documents.dtypes import FORMATS
from dfopt.documents.graph import Graph, Input, Kernel, Output, Tensor
from dfopt.documents.kernel import needed, operand_shape
from dfopt.documents.modules import Modules
from dfopt.setting.laid import Laid, Lies, Unsplit

_ROW_BYTES: Final = 8.0
"""Bytes that go with a row of a softmax in parts: its largest score and its sum, in fp32."""


def member_graph(graph: Graph, modules: Modules, members: int, first: int) -> Graph:
    """The graph that one chip of the second axis runs.

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


def obstacle(graph: Graph, modules: Modules, members: int) -> str:
    """A sentence on why modules cannot take their schemes; empty if they can.

    Parameters
    ----------
    graph, modules
        The workload, and the scheme of each of its modules.
    members : int
        Chips of the second axis.
    """
    try:
        drawn = _Member(graph, modules, members, members)
        drawn.laid, drawn.taken  # noqa: B018 - what is exchanged can always be
    except Unsplit as found:
        return str(found)
    return ""


class _Member(Laid):
    """A graph that is shared out."""

    # -- what is exchanged ------------------------------------------------------------------
    @cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        """Kernels of one chip, with the collectives and the DRAM traffic of what chips exchange."""
        wanted: dict[tuple[str, tuple[str, float, str | None]], set[Lies]] = defaultdict(set)  # by who pays
        passed: dict[str, list[float]] = defaultdict(list)  # through DRAM
        for tensor, needs in self.taken:
            if tensor.src in self.added:
                continue
            taken = self.model.taken(tensor)
            wanted[self.again.get(taken, tensor.src) if self._late(tensor) else tensor.src, taken].add(needs)
            passed[tensor.dst].append(self._arrives(tensor.src, needs, self.model.bytes_of(tensor)))
        for kernel in self.model.kernels:  # the end of a graph is whole, or as the residual stream
            if self.laid[kernel.name].makes in ("sums", "experts") and not self.out[kernel.name]:
                end: Lies = "whole" if self.modules.stream == "none" else "tokens"
                wanted[kernel.name, (kernel.name, self.model.output_bytes(kernel.name), None)].add(end)
        listed: dict[str, list[Communication]] = defaultdict(list)
        for (payer, (name, size, _)), asked in wanted.items():
            listed[payer] += self._exchanged(name, self.laid[name].makes, asked, size)
            for need in asked:  # what arrives is written once, and read by everyone
                passed[payer].append(self._arrives(name, need, size))
        kernels, memo = [], self.model.memo.setdefault("kernels of members", {})  # many graphs have the same
        for kernel in self.model.kernels:
            own, part = tuple(listed[kernel.name]), self.laid[kernel.name].kernel
            changes: dict[str, Any] = {"communications": own} if own else {}
            if moved := math.fsum(passed[kernel.name]):
                changes["dram_bytes_per_chip"] = part.dram_bytes_per_chip + moved
            drawn = part.model_copy(update=changes) if changes else part
            kernels.append(memo.setdefault(drawn, drawn))
        return tuple(kernels)

    @cached_property
    def taken(self) -> list[tuple[Tensor, Lies]]:
        """What is not just handed on inside of a module, and how its readers need it."""
        taken = []
        within = len(self.model.tensors)
        meant = (*self.operands, *(tensor.operand or 1 for tensor in self.model.carried))
        for place, tensor in enumerate((*self.model.tensors, *self.model.carried)):
            src, dst = self.laid[tensor.src], self.laid[tensor.dst]
            inside = src.kernel.module == dst.kernel.module and place < within and dst.cut in (None, meant[place])
            if inside and src.makes in ("features", "experts", "keys") and src.makes == dst.needs:
                continue
            if src.makes in ("features", "keys", "gradient"):
                raise Unsplit(f"{tensor.dst!r} needs all {src.makes} of {tensor.src!r}")
            taken.append((tensor, self.needs(tensor, meant[place])))
        return taken

    @cached_property
    def again(self) -> dict[tuple[str, float, str | None], str]:
        """Outputs that are kept as they lie, and first read otherwise by a kernel that is no forward one."""
        order, readers = self.model.index(), defaultdict[tuple[str, float, str | None], list[str]](list)
        for tensor, needs in self.taken:
            if self._late(tensor) and needs != "tokens":
                readers[self.model.taken(tensor)].append(tensor.dst)
        return {taken: min(names, key=order.__getitem__) for taken, names in readers.items()}

    def _late(self, tensor: Tensor) -> bool:
        """Whether it reads tokens that the forward pass has kept: what it was sent of others then is gone."""
        kept = self.of[tensor.src].pass_ == "forward" and self.of[tensor.dst].pass_ != "forward"
        return kept and self.laid[tensor.src].makes == "tokens"

    @cached_property
    def added(self) -> set[str]:
        """Kernels whose parts of sums are added, where they are made, to those of another one with the same readers."""
        takers: dict[str, set[tuple[str, Lies, float]]] = defaultdict(set)
        for tensor, needs in self.taken:
            takers[tensor.src].add((tensor.dst, needs, self.model.bytes_of(tensor)))
        added, first = set[str](), dict[tuple[str, Lies], str]()
        for kernel in self.model.kernels:
            makes = self.laid[kernel.name].makes
            if makes in ("sums", "experts"):
                sends = first.setdefault((kernel.accumulates_into or kernel.name, makes), kernel.name)
                if sends != kernel.name and takers[kernel.name] <= takers[sends]:
                    added.add(kernel.name)
        return added

    def _arrives(self, name: str, needs: Lies, size: float) -> float:
        """Bytes of an output that come to a chip beside its own share of it."""
        makes, kernel = self.laid[name].makes, self.of[name]
        if makes not in ("tokens", "experts") or makes == needs or (makes == "experts" and self._gathered):
            return 0.0
        if needs == "whole":
            return size * (1.0 - self.share(kernel))
        here = self.spread(kernel)
        copies = here.chips / self.members * (self._dispatched if needs == "experts" else 1.0)
        return size * max(copies - (here.load if needs == "experts" else self.share(kernel)), 0.0)

    def _exchanged(self, name: str, makes: Lies, needs: set[Lies], size: float) -> Iterator[Communication]:
        """What brings an output of so many bytes, of all chips together, to all that need it."""

        def over_all(kind: CollectiveKind) -> Communication:
            return Communication(kind=kind, bytes=size, over=MODULES)

        if makes == "tokens":
            if "whole" in needs:
                yield over_all("all_gather")
            if "experts" in needs:
                yield from self._sent(name, size * self._dispatched)
        elif makes == "sums" or (makes == "experts" and self._gathered):
            size += self._statistics(name)
            yield over_all("reduce_scatter" if needs == {"tokens"} else "all_reduce")
        elif makes == "experts":
            yield from self._sent(name, size)
            if needs != {"tokens"}:
                yield over_all("all_gather")

    def _statistics(self, name: str) -> float:
        """Bytes that go with the parts of a softmax: the largest score of every row, and its sum, in fp32."""
        kernel = self.laid[name].kernel
        return _ROW_BYTES * kernel.matrices * kernel.n if self.laid[name].needs == "keys" else 0.0

    @cached_property
    def _gathered(self) -> bool:
        """Whether experts find all tokens on every chip, and therefore leave partial sums."""
        readers = {tensor.dst for tensor in self.model.tensors if self.laid[tensor.dst].needs == "experts"}
        sources = {t.src for name in readers for t in self.into[name] if self.laid[t.src].kernel.module != "experts"}
        return all(self.laid[name].makes in ("whole", "sums") for name in sources)

    @property
    def _dispatched(self) -> float:
        """Bytes of what is dispatched over those of an activation: products may take a smaller type."""
        types = self.model.dtypes
        if types is None or types.operands is None:
            return 1.0
        return float(FORMATS[types.operands].bytes) / self.model.words.activations

    def _sent(self, name: str, size: float) -> Iterator[Communication]:
        """Every token to, or from, the distinct chips with its experts."""
        here = self.spread(self.of[name])
        if self.first in (1, self.members):
            yield Communication(kind="all_to_all", bytes=size * here.chips, over=MODULES)
        else:
            yield Communication(kind="all_to_all", bytes=size * here.chips, over=f"{MODULES}_first")
            yield Communication(kind="all_to_all", bytes=size * here.groups, over=f"{MODULES}_rest")

    # -- the graph --------------------------------------------------------------------------
    @cached_property
    def graph(self) -> Graph:
        """Kernels, tensors and ends of one chip."""
        model, kernels = self.model, self.kernels
        index, words = model.index(), model.words
        output_bytes = {k.name: float(k.matrices * needed(k)) * words.of_output(k) for k in kernels}

        def tensor(full: Tensor, operand: int | None) -> Tensor:
            old, src, dst = model.kernels[index[full.dst]], kernels[index[full.src]], kernels[index[full.dst]]
            size = model.bytes_of(full)
            elements, shape = size / words.of_output(src), math.prod(operand_shape(old, operand or 1))
            share = _operand(dst, operand or 1) / _operand(old, operand or 1)
            if self.laid[full.dst].needs == "features" and self.laid[full.src].makes != "features":
                # what all heads share, or all features of a token
                pointwise = old.op == "elementwise"
                share = 1.0 if elements < shape * old.matrices and (pointwise or elements <= shape) else share
            if self.laid[full.dst].needs == "keys" and operand == 2:  # keys and values, which lie on every chip
                share = min(_operand(dst, 2) / elements, 1.0)
            most = output_bytes[src.name]
            whole_output = full.bytes is None and math.isclose(size * share, most)
            sizes = {"bytes": None, "part": None} if whole_output else {"bytes": min(size * share, most)}
            changes = {**sizes, "operand": operand}
            return full if changes.items() <= full.__dict__.items() else full.model_copy(update=changes)

        meant = zip(model.tensors, self.operands, strict=True)
        tensors = [tensor(t, o if _two(model.kernels[index[t.dst]]) else t.operand) for t, o in meant]
        inputs = []
        for k, operand, size in model.reads():
            share = _operand(kernels[k], operand) / _operand(model.kernels[k], operand)
            inputs.append(Input(dst=kernels[k].name, operand=operand if _two(kernels[k]) else None, bytes=size * share))
        outputs = [
            Output(src=kernels[k].name, bytes=size * output_bytes[kernels[k].name] / model.output_bytes(k))
            for k, size in model.writes()
        ]
        fields = {
            "kernels": kernels,
            "tensors": tuple(tensors),
            "carried": tuple(tensor(t, t.operand) for t in model.carried),
            "inputs": tuple(inputs),
            "outputs": tuple(outputs),
        }
        return model.model_copy(update=fields)


def _operand(kernel: Kernel, operand: int) -> int:
    """Elements of an operand, of all matrices but of a GEMM, whose heads share one."""
    return (1 if kernel.op == "gemm" else kernel.matrices) * needed(kernel, operand)


def _two(kernel: Kernel) -> bool:
    return kernel.op in ("matmul", "weight_update")
