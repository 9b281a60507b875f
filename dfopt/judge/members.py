"""What one chip of a plan's second axis does, by the judge's own reading of the rules of modules.

Optimiser and judge share no line of this: the optimiser lays kernels out one after the other and then looks what their
readers ask for; the judge asks of every kernel what its place among the others makes of it, and of every output who
takes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import Final

from dfopt.documents.axes import MODULES
from dfopt.documents.communication import Communication
from dfopt.documents.dtypes import FORMATS
from dfopt.documents.graph import Graph, Input, Kernel, Output, Tensor
from dfopt.documents.plan import Plan
from dfopt.documents.system import System
from dfopt.errors import Issue
from dfopt.judge.member_parts import Parts
from dfopt.judge.types import made_word, word
from dfopt.physics import ops
from dfopt.physics.identity import Same

_REMEDY = "choose another scheme of the module, or another degree of the second axis"
_ROW_BYTES: Final = 8.0
"""Bytes that go with a row of a softmax in parts: a largest score and a sum of four bytes each."""


def issues(plan: Plan, graph: Graph, system: System) -> Iterator[Issue]:
    """Problems that keep the modules of a graph from sharing the second axis as a plan says.

    Parameters
    ----------
    plan, graph, system
        The plan with schemes of modules, the workload and the machine.
    """
    if (plan.modules is None) != (plan.members == 1):
        schemes = "none" if plan.modules is None else "some"
        message = f"found {schemes} on a second axis of {plan.members} chips"
        yield Issue("$.plan.modules", message, "schemes of modules belong to a second axis, and only to it")
        return
    if plan.modules is None:
        return
    listed = {kernel.module for kernel in graph.kernels} - {None}
    missing = sorted(str(module) for module in listed if getattr(plan.modules, str(module)) is None)
    if missing:
        yield Issue("$.plan.modules", f"no scheme of {', '.join(missing)}", "give one for every module of the graph")
    if any(kernel.distributed or kernel.communications for kernel in graph.kernels):
        message = "found a second axis of a graph that spreads kernels over chips itself"
        yield Issue(f"$.plan.{MODULES}", message, "use the other axes")
        return
    if graph.trains and plan.modules.stream != "context" and "context" in plan.modules.schemes.values():
        message = "found keys shared out (context), without the stream, by a graph that trains"
        yield Issue("$.plan.modules", message, "share tokens of the stream too, or sequences (n), or heads (outer)")
        return
    for kernel in graph.kernels:
        if kernel.pass_ == "update" and kernel.op != "weight_update":
            message = f"found a second axis, but the optimizer drawn as a kernel, {kernel.name!r}"
            yield Issue(f"$.plan.{MODULES}", message, "leave the optimizer to the assumptions")
            return
    view = _view(Same(graph), Same(plan), _near(plan, system))
    for kernel in graph.kernels:
        if problem := view.problem(kernel):
            yield Issue("$.plan.modules", problem, _REMEDY)


def seen_by_a_chip(graph: Graph, plan: Plan, system: System) -> Graph:
    """The graph that one chip of the second axis runs; the graph itself without a second axis.

    Parameters
    ----------
    graph, plan, system
        The workload, the plan with schemes of modules, and the machine.
    """
    return graph if plan.modules is None else _view(Same(graph), Same(plan), _near(plan, system)).graph


@lru_cache(maxsize=64)
def _view(graph: Same[Graph], plan: Same[Plan], near: int) -> _View:
    """Worked out once for every mapping under a plan, on any machine: that it fits and its times both ask."""
    return _View(graph.document, plan.document, near)


def _near(plan: Plan, system: System) -> int:
    """Chips of the second axis along its first network dim."""
    return system.dim(plan.member_dims[0]).size


class _View(Parts):
    """What the chips exchange, and the graph of one."""

    # -- what is exchanged ------------------------------------------------------------------
    def _asks(self, name: str, tensor: Tensor, *, carried: bool) -> str:
        """How a reader needs an output: all of it, its own rows, or what its experts were sent."""
        same = self.of[tensor.src].module == self.of[name].module and not carried
        role = self.role(name)
        if same and role in ("looked up", "merged") and self.role(tensor.src) == "looked up":
            return "handed on"
        attends = role == "rows" and self.modules.stream == "context" and self.of[name].op == "matmul"
        if attends and not carried and self._operand[id(tensor)] == 2:
            return "all"
        inner = ("out", "inside", "added up", "grown")
        if same and ((role == "sent") or (role in inner and self._hands_on_features(tensor.src))):
            return "handed on"
        return {"rows": "rows", "looked back": "rows", "sent": "sent"}.get(role, "all")

    @cached_property
    def _operand(self) -> dict[int, int]:
        return {id(tensor): operand for tensor, operand in zip(self.all.tensors, self.all.operands(), strict=True)}

    @cached_property
    def _everywhere(self) -> bool:
        """Whether tokens are on all chips in front of the experts."""
        before = {o for k in self.all.kernels if self.role(k.name) == "sent" for o in self.made_by[k.name]}
        return all(self.role(o) in ("copy", "out", "added up") for o in before if self.role(o) != "sent")

    @cached_property
    def _flows(self) -> list[tuple[Tensor, str, str]]:
        """What is taken from where it lies: how it is asked for, and the kernel that has it brought.

        That is the source; of what the forward pass keeps, where each chip has its rows, the first kernel of the way
        back that asks for more. What is added to the sum of another kernel is not brought by itself.
        """
        every: list[tuple[Tensor, str]] = []
        for carried, tensors in ((False, self.all.tensors), (True, self.all.carried)):
            asks = ((tensor, self._asks(tensor.dst, tensor, carried=carried)) for tensor in tensors)
            every += [(tensor, how) for tensor, how in asks if how != "handed on"]
        kept = [
            self.role(tensor.src) == "rows"
            and self.of[tensor.src].pass_ == "forward"
            and self.of[tensor.dst].pass_ != "forward"
            for tensor, _ in every
        ]
        first: dict[object, str] = {}
        behind = [flow for flow, late in zip(every, kept, strict=True) if late and flow[1] != "rows"]
        place = {name: number for number, name in enumerate(self.of)}
        for tensor, _ in sorted(behind, key=lambda flow: place[flow[0].dst]):
            first.setdefault(self.all.taken(tensor), tensor.dst)
        flows = []
        for (tensor, how), late in zip(every, kept, strict=True):
            payer = first.get(self.all.taken(tensor), tensor.src) if late else tensor.src
            if not self._rides_along(tensor.src, every):
                flows.append((tensor, how, payer))
        return flows

    def _rides_along(self, name: str, every: list[tuple[Tensor, str]]) -> bool:
        """Whether the partial sums of a kernel travel with those of an earlier one to the same readers."""
        kernel, role = self.of[name], self.role(name)
        if not self.leaves_parts(name):
            return False
        partial_sums = [
            other.name
            for other in self.all.kernels
            if (other.accumulates_into or other.name) == (kernel.accumulates_into or name)
            and (self.role(other.name) == "sent") == (role == "sent")
            and self.leaves_parts(other.name)
        ]
        takers = [
            {(tensor.dst, how, self.all.bytes_of(tensor)) for tensor, how in every if tensor.src == source}
            for source in (name, partial_sums[0])
        ]
        return partial_sums[0] != name and takers[0] <= takers[1]

    def exchanged(self, kernel: Kernel) -> list[Communication]:
        """What a kernel has brought, so that everyone has what he asks for."""
        asked: dict[tuple[str, float, str | None], set[str]] = {}
        for tensor, how, payer in self._flows:
            if payer == kernel.name:
                asked.setdefault(self.all.taken(tensor), set()).add(how)
        if self.leaves_parts(kernel.name) and not self.taken_by[kernel.name]:
            end = "all" if self.modules.stream == "none" else "rows"
            asked.setdefault((kernel.name, self.all.output_bytes(kernel.name), None), set()).add(end)
        return [
            communication
            for (src, size, _), hows in asked.items()
            for communication in self._brought(self.of[src], size, hows)
        ]

    def _brought(self, kernel: Kernel, size: float, hows: set[str]) -> list[Communication]:
        """Collectives that bring so many bytes of an output to all that ask for it."""
        role = self.role(kernel.name)
        if role in ("out", "added up", "looked back", "merged") or (role == "sent" and self._everywhere):
            rows = kernel.outer * (kernel.samples or 1) * kernel.n if role == "merged" else 0
            summed = "reduce_scatter" if hows == {"rows"} else "all_reduce"
            return [Communication.model_validate({"kind": summed, "bytes": size + _ROW_BYTES * rows, "over": MODULES})]
        collectives: list[Communication] = []
        if role == "sent":
            collectives += self._sent(kernel, size)
        if (role == "rows" and "all" in hows) or (role == "sent" and hows != {"rows"}):
            collectives.append(Communication(kind="all_gather", bytes=size, over=MODULES))
        if role == "rows" and "sent" in hows:
            collectives += self._sent(kernel, size * self._narrow)
        return collectives

    def through_dram(self, kernel: Kernel) -> float:
        """Bytes that come from other chips: read by a kernel, or written where its output goes."""
        taken, given = list[float](), dict[tuple[object, str], float]()
        for tensor, how, payer in self._flows:
            if kernel.name in (payer, tensor.dst):
                came = self._came(self.of[tensor.src], how, self.all.bytes_of(tensor))
                given.update({(self.all.taken(tensor), how): came} if kernel.name == payer else {})
                taken += [came] if kernel.name == tensor.dst else []
        if self.leaves_parts(kernel.name) and not self.taken_by[kernel.name]:
            size, end = self.all.output_bytes(kernel.name), "all" if self.modules.stream == "none" else "rows"
            given[(kernel.name, size, None), end] = self._came(kernel, end, size)
        return math.fsum([*taken, *given.values()])

    def _came(self, source: Kernel, how: str, size: float) -> float:
        """Bytes of an output that a chip gets from others, over its own share."""
        role, share = self.role(source.name), self._row_share(source)
        if how == "handed on" or role not in ("rows", "sent") or (role, how) == ("rows", "rows"):
            return 0.0
        if role == "sent" and (self._everywhere or how == "sent"):
            return 0.0
        if how == "all":
            return size - size * share
        here = self._spread(source.n)
        reached, own = here.chips / self.chips, here.load if how == "sent" else share
        return size * max(reached * (self._narrow if how == "sent" else 1.0) - own, 0.0)

    @property
    def _narrow(self) -> float:
        """Bytes of an element on its way to experts, over those of an activation."""
        types = self.all.dtypes
        narrow = types.operands if types is not None else None
        return float(FORMATS[narrow].bytes) / word(self.all) if narrow else 1.0

    def _sent(self, kernel: Kernel, size: float) -> list[Communication]:
        here = self._spread(kernel.n)
        near_and_far = {f"{MODULES}_first": here.chips, f"{MODULES}_rest": here.groups}
        ways = near_and_far if 1 < self.near < self.chips else {MODULES: here.chips}
        return [Communication(kind="all_to_all", bytes=size * copies, over=over) for over, copies in ways.items()]

    # -- the graph --------------------------------------------------------------------------
    @cached_property
    def graph(self) -> Graph:
        """Of one chip."""
        own_kernels = {}
        for kernel in self.all.kernels:
            listed, own = tuple(self.exchanged(kernel)), self.cut(kernel)
            more: dict[str, object] = {"communications": listed} if listed else {}
            if passed := self.through_dram(kernel):
                more["dram_bytes_per_chip"] = own.dram_bytes_per_chip + passed
            own_kernels[kernel.name] = own.model_copy(update=more)

        def size_of(kernel: Kernel, operand: int) -> int:
            return (kernel.matrices if kernel.op != "gemm" else 1) * ops.needed(kernel, operand)

        def output(name: str) -> float:
            kernel = own_kernels[name]
            return float(kernel.matrices * ops.needed(kernel)) * made_word(self.all, kernel)

        def tensor(whole_tensor: Tensor, operand: int) -> Tensor:
            reader, size, shape = (
                self.of[whole_tensor.dst],
                self.all.bytes_of(whole_tensor),
                ops.operand_shape(self.of[whole_tensor.dst], operand),
            )
            own = size * size_of(own_kernels[whole_tensor.dst], operand) / size_of(reader, operand)
            if self.role(whole_tensor.dst) in ("inside", "out", "added up", "grown") and not self._hands_on_features(
                whole_tensor.src
            ):
                elements, matrix = size / made_word(self.all, self.of[whole_tensor.src]), shape[0] * shape[1]
                common = elements < matrix * reader.matrices if reader.op == "elementwise" else elements <= matrix
                own = size if common and elements < matrix * reader.matrices else own
            if (
                self.role(whole_tensor.dst) in ("looked up", "merged")
                and operand == 2
                and self.role(whole_tensor.src) != "looked up"
            ):
                own = min(
                    size, size_of(own_kernels[whole_tensor.dst], 2) * made_word(self.all, self.of[whole_tensor.src])
                )
            asis = whole_tensor.bytes is None and math.isclose(own, output(whole_tensor.src))
            meant = operand if reader.op in ("matmul", "weight_update") else whole_tensor.operand
            sizes = {"bytes": None, "part": None} if asis else {"bytes": min(own, output(whole_tensor.src))}
            return whole_tensor.model_copy(update={**sizes, "operand": meant})

        kernels = self.all.kernels
        read = [
            Input(
                dst=kernels[k].name,
                operand=o if kernels[k].op in ("matmul", "weight_update") else None,
                bytes=size * size_of(own_kernels[kernels[k].name], o) / size_of(kernels[k], o),
            )
            for k, o, size in self.all.reads()
        ]
        written = [
            Output(src=kernels[k].name, bytes=size * output(kernels[k].name) / self.all.output_bytes(k))
            for k, size in self.all.writes()
        ]
        between = [tensor(each, operand) for each, operand in zip(self.all.tensors, self.all.operands(), strict=True)]
        handed = [
            tensor(each, each.operand or 1).model_copy(update={"operand": each.operand}) for each in self.all.carried
        ]
        parts = {"kernels": (*own_kernels.values(),), "tensors": (*between,), "carried": (*handed,)}
        return self.all.model_copy(update={**parts, "inputs": (*read,), "outputs": (*written,)})
