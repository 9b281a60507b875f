"""What is mapped onto what: a setting, and an instance of it for every plan; what follows is worked out once.

Two plans share what a chip does in one evaluation when :attr:`Instance.shared` is equal: that is computed from a plan
that holds nothing else, so it cannot depend on anything else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Any, Self

import numpy as np

from dfopt.arrays import Floats, Ints
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.axes import Dims, Splits, groups
from dfopt.documents.graph import Graph
from dfopt.documents.modules import Modules
from dfopt.documents.plan import Plan
from dfopt.documents.saved import reduced_bytes
from dfopt.documents.system import System
from dfopt.physics.collectives import Collective
from dfopt.physics.communications import kernel_seconds
from dfopt.physics.dtypes import rate
from dfopt.physics.fill import Line, line_of
from dfopt.physics.library import as_computed
from dfopt.physics.network import adds_up_at_once, communication_seconds
from dfopt.physics.operands import adding
from dfopt.physics.pipeline import resolve
from dfopt.setting.members import member_graph
from dfopt.setting.placements import ALIKE, Counted, counted
from dfopt.setting.reads import ByReads, memoized
from dfopt.setting.stages import PipelineStage, pipeline_stages, stage_places


@dataclass(frozen=True, eq=False)
class Setting:
    """A graph on a system under resolved assumptions (no ``auto`` left): everything that plans have in common.

    ``of``: the whole graph, if ``graph`` is the one of a single chip of a second axis.
    """

    graph: Graph
    system: System
    assumptions: Assumptions
    of: Graph | None = None

    @classmethod
    def resolved(cls, graph: Graph, system: System, assumptions: Assumptions) -> Self:
        """Build a setting and resolve its assumptions: what they leave open follows from the chip.

        Parameters
        ----------
        graph
            The model as it is written; the setting has it as it is computed under the assumptions.
        system, assumptions
            The machine, and assumptions that may leave rules to its chips.
        """
        chip = system.chip
        rules = resolve(assumptions, chip.execution, chip.compute_utilization, chip.reserved(graph.trains), graph)
        computed: ByReads = graph.memo.setdefault("as computed", ByReads())
        return cls(computed.answer(rules, lambda rules: as_computed(graph, rules)), system, rules)

    @property
    def model(self) -> Graph:
        """The whole graph, before a second axis shares it."""
        return self.of or self.graph

    @cached_property
    def reads(self) -> defaultdict[Hashable, ByReads]:
        """Cached answers to questions about plans, by name of the question."""
        return defaultdict(ByReads)

    @cached_property
    def of_kernels(self) -> defaultdict[Hashable, ByReads]:
        """Cached answers to questions about kernels, shared by all graphs that chips see of one model."""
        answers: defaultdict[Hashable, ByReads] = self.model.memo.setdefault("kernels", defaultdict(ByReads))
        return answers

    @cached_property
    def between_copies(self) -> bool:
        """Whether some kernel communicates with other replicas in every evaluation."""
        listed = {communication.over for kernel in self.graph.kernels for communication in kernel.communications}
        return any(axis.splits == "batch" for over in listed for axis in groups()[over][0])

    @cached_property
    def only_forward(self) -> bool:
        """Whether only forward kernels store weights, which backward GEMMs read again."""
        return self.graph.trains and any(k.op == "gemm" and k.pass_ == "forward" for k in self.graph.kernels)

    @cached_property
    def rate_k(self) -> tuple[float, ...]:
        """Peak rate of the chip in the data type of each kernel, FLOP/s."""
        return tuple(rate(self.graph, kernel, self.system.chip) for kernel in self.graph.kernels)

    @cached_property
    def kind_k(self) -> Ints:
        """Kind of layer of every kernel, by number: int array, shape (kernels,)."""
        return np.array([self.graph.kind_of(kernel) for kernel in self.graph.kernels], dtype=np.int64)

    @cached_property
    def sum_kernels(self) -> frozenset[str]:
        """Names of the kernels that add up partial results, see :mod:`dfopt.physics.operands`."""
        names: frozenset[str] = self.model.memo.setdefault("sums", adding(self.model))  # one object
        return names

    @cached_property
    def copied_kk(self) -> tuple[Floats, Floats]:
        """Shares of each kernel's gradient, shape (kernels,): computed whole by one chip, and added up over chips."""
        copied_k = np.array([kernel.copied or 0.0 for kernel in self.graph.kernels])
        return 1.0 - copied_k, copied_k

    @cached_property
    def _of_members(self) -> Callable[[Modules, int, int], Setting]:
        """The setting as one chip of a second axis sees it; machines of one question share the graphs."""
        drawn = self.graph.memo.setdefault("member graphs", cache(partial(member_graph, self.graph)))

        @cache
        def of(modules: Modules, members: int, first: int) -> Setting:
            return replace(self, graph=drawn(modules, members, first), of=self.graph)

        return of

    @memoized
    def _hiding(self, way: str) -> Setting:
        """The setting with one way to hide collectives."""
        chosen = self.assumptions.hiding(way)
        return self if chosen == self.assumptions else replace(self, assumptions=chosen)

    @cached_property
    def weight_word_k(self) -> Floats:
        """Bytes of a kernel's weight for each byte of its gradient as replicas reduce it: shape (kernels,)."""
        words, reduced = self.graph.words, reduced_bytes(self.graph)
        return np.array([words.of_weight(kernel) / reduced for kernel in self.graph.kernels])

    def under(self, plan: Plan) -> Instance:
        """The setting under a plan."""
        return Instance(self.seen(plan), plan)

    def seen(self, plan: Plan) -> Setting:
        """The setting as one chip sees it under a plan: its graph on the second axis, and how collectives overlap."""
        if (way := plan.tensor_overlap) is not None and (other := self._hiding(way)) is not self:
            return other.seen(plan)
        if plan.modules is None or self.of is not None:  # it is what one chip sees already
            return self
        return self._of_members(plan.modules, plan.members, self.system.dim(plan.member_dims[0]).size)


@dataclass(frozen=True, eq=False)
class Instance:
    """A setting under one plan, with everything that follows from both."""

    setting: Setting
    plan: Plan

    @property
    def graph(self) -> Graph:
        """The workload as one chip sees it."""
        return self.setting.graph

    @property
    def system(self) -> System:
        """The machine that the workload is mapped onto."""
        return self.setting.system

    @property
    def assumptions(self) -> Assumptions:
        """The assumptions, resolved."""
        return self.setting.assumptions

    @cached_property
    def memo(self) -> dict[str, Any]:
        """Cache for values that callers compute from this instance, by a name of their own."""
        return {}

    @cached_property
    def counted(self) -> Counted:
        """Weights of bytes in slower memories, relative to bytes in the fastest."""
        return ALIKE if self.graph.trains else counted(self.plan, self.system.chip)

    @cached_property
    def pipeline(self) -> tuple[PipelineStage, ...]:
        """The distinct pipeline stages."""
        return pipeline_stages(self.setting.model, self.plan)  # a chip of a second axis has as many of its layers

    @cached_property
    def line(self) -> Line | None:
        """Order of the pipeline stages, for schedules in which each stage's own time counts; else None."""
        places = stage_places(self.setting.model, self.plan)
        return line_of(self.plan, self.assumptions, self.graph.trains, places)

    @cached_property
    def mapped_stages(self) -> int:
        """Number of stages of the mapping: distinct fusion problems, some of them without kernels."""
        return len(self.graph.layers.kinds) if self.graph.folded else self.plan.stages

    @cached_property
    def shared(self) -> Instance:
        """The setting under that part of the plan that decides the work of one chip in one evaluation.

        For a folded graph, the pipeline and data-parallel degrees change how often a layer runs, and which bytes a
        stage stores and sends, but neither the layer itself nor the kernels before the first or after the last layer.
        Costs of kernels are computed from this instance only, so that they are shared by all plans that are equal in
        it.
        """
        if not self.graph.folded and self.plan.stages > 1:  # which kernels share a stage is part of the question
            return self
        return self.on_chip

    @cached_property
    def on_chip(self) -> Instance:
        """A representative of all plans under which kernels and blocks cost a chip the same.

        The stage of a kernel makes no difference to it.
        """
        shared: Instance = self.setting.reads["shared"].answer(self.plan, self._shared)
        return shared

    def _shared(self, plan: Plan) -> Instance:
        graph = self.graph
        # while it trains all kernels work from the fastest memory
        placed, splits = None if graph.trains else plan.placement, list[Splits](["kernels", "modules"])
        priced: dict[str, Any] = {"placement": placed, "two_batch_overlap": plan.two_batch_overlap}
        if graph.trains and adds_up_at_once(self.assumptions):
            splits, priced = [*splits, "batch"], priced | {"microbatches": plan.microbatches}
        elif self.setting.between_copies:
            splits = [*splits, "batch"]
        return Instance(self.setting, Plan.saying(plan.axis_values(*splits), **priced))

    @cached_property
    def adding(self) -> tuple[tuple[Dims, Floats], ...]:
        """Groups of chips that reduce weight gradients: network dims, and the share of each kernel's gradient.

        Data-parallel replicas reduce all gradients; those of which chips of the second axis have partial sums are
        reduced over these chips as well.
        """
        copies, everyone = self.plan.copy_dims, self.plan.member_dims + self.plan.copy_dims
        ways = zip((copies, everyone), self.setting.copied_kk, strict=True)
        return tuple((dims, share_k) for dims, share_k in ways if dims and share_k.any())

    @cached_property
    def own_communication_s(self) -> Floats:
        """Seconds of the communications that each kernel states itself, charged to its block: shape (kernels,)."""
        return np.zeros_like(self._sent_s) if self.plan.two_batch_overlap else self._sent_s

    @cached_property
    def hidden_s(self) -> Floats:
        """Seconds of each kernel's stated communications that overlap with another microbatch: shape (kernels,)."""
        return self._sent_s if self.plan.two_batch_overlap else np.zeros_like(self._sent_s)

    @cached_property
    def _sent_s(self) -> Floats:
        seconds: Floats = self.setting.reads["sent"].answer(self.plan, self._sent_under)
        return seconds

    def _sent_under(self, plan: Plan) -> Floats:
        def chips(dim: str) -> int:
            return self.system.dim(dim).size

        return np.array(
            [
                kernel_seconds(k, plan, self.communication_s, chips) if k.communications else 0.0
                for k in self.graph.kernels
            ]
        )

    def communication_s(self, kind: Collective | None, volume: float, dims: tuple[str, ...]) -> float:
        """Seconds of a collective on the system, see :mod:`dfopt.physics.network`.

        Parameters
        ----------
        kind
            Kind of the collective. None: 0 s.
        volume
            Bytes of the whole tensor.
        dims
            Network dims that it is over.
        """
        return communication_seconds(kind, volume, dims, self.system, self.assumptions)
