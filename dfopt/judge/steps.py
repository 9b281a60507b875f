"""What a step of a plan takes, and what chips hold, from seconds of layers and options of kernels.

A step is a function of few figures: the seconds of the partitions of every kind of layer, and what there is beside
them, which follows from how each kernel is split. That is exact for a mapping. Where kernels may still be split in
several ways, each figure counts as it is at least under any of them, and the rule of a step, which is non-decreasing in
all, says what no mapping undercuts. Of memories the same is said of what a chip holds, less what waits between
partitions.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph
from dfopt.documents.mapping import KernelMapping, Sharding
from dfopt.documents.plan import Plan
from dfopt.documents.system import System
from dfopt.judge import ledger, limits, network, stages, turns
from dfopt.judge.amounts import AmountsOf, amounts_of_stage
from dfopt.judge.case import Case, Fan, fans_of, totals
from dfopt.judge.members import seen_by_a_chip
from dfopt.judge.placed import Placed
from dfopt.judge.placing import Placing, least, no_more
from dfopt.physics import library, ops, overlap, pipeline
from dfopt.physics.identity import Same

SchemeDomain = tuple[tuple[Sharding, ...], ...]
"""Schemes that are left for each kernel of the graph that a chip sees, in its order."""
_KEPT = ("kept", "kept_calculon")


class NotSteps(Exception):
    """Raised where a step is not a function of layer seconds and kernel schemes; the message says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class PlanSteps:
    """The step and memory of one plan as functions of layer seconds and kernel options.

    Parameters
    ----------
    graph, system, assumptions, plan
        Documents and plan, as to judge a mapping; the plan must fit graph and system. The number of tiles makes no
        difference.

    Attributes
    ----------
    inexact
        Reason why the step also depends on other figures of a mapping, so that results are lower bounds; empty if it
        does not.

    Raises
    ------
    NotSteps
        If there is not even a lower bound.

    Examples
    --------
    >>> from dfopt.documents.graph import Kernel, Tensor
    >>> from dfopt.documents.system import Chip, Dram, NetworkDim, Sram
    >>> chip = Chip(name="c", tiles=1, peak=1e6, sram=Sram(capacity=1e6), dram=Dram(bandwidth=1e6, capacity=5e4))
    >>> ring = NetworkDim(name="x", topology="ring", size=2, link_bandwidth=1e3)
    >>> kernels = (Kernel(name="a", op="gemm", m=100, k=100, n=100),)
    >>> carried = (Tensor(src="a", dst="a"),)
    >>> graph = Graph(name="g", kernels=kernels, repeat=4, batch=8, carried=carried)
    >>> plan = Plan(pp=2, pp_dims=("x",), layers_per_stage=2, microbatches=8)
    >>> steps = PlanSteps(graph, System(name="s", chip=chip, network=(ring,)), Assumptions(), plan)
    >>> steps.seconds({(0, True): 5.0}, ("none",)), steps.least({(0, True): 5.0}, (("none",),))
    (180.0, 180.0)
    >>> steps.may_fit((("none",),))
    True
    """

    def __init__(self, graph: Graph, system: System, assumptions: Assumptions, plan: Plan) -> None:
        like = _Plan(plan.apart_from_stages, plan)
        self._alike = _plans(Same(graph), Same(system), Same(assumptions), like)
        self._case = replace(self._alike.case, plan=plan)
        self.inexact = _inexact(self._case)
        if reason := _obstacle(self._case):
            raise NotSteps(reason)

    @property
    def by_total(self) -> bool:
        """Whether only the sum of a layer's passes matters."""
        return not stages.tells_passes_apart(self._case)

    def seconds(self, pass_s: Mapping[tuple[int, bool], float], schemes_k: Sequence[Sharding]) -> float:
        """Step of a mapping, s, from the seconds of its layers' passes.

        Parameters
        ----------
        pass_s : s
            Partitions for one microbatch, by stage of the mapping and whether they begin in the forward pass.
        schemes_k
            Scheme of every kernel that a chip sees.

        Raises
        ------
        NotSteps
            If :attr:`inexact` gives a reason.
        """
        if self.inexact:
            raise NotSteps(self.inexact)
        return self.least(pass_s, tuple((scheme,) for scheme in schemes_k))

    def least(self, pass_s: Mapping[tuple[int, bool], float], domain_k: SchemeDomain) -> float:
        """Lower bound on the step, s, over schemes of a domain, given least seconds of passes.

        It is non-decreasing in the seconds, and no less for fewer schemes. Where it is :attr:`inexact`, nothing shows
        of slower memories, of exchanges in a window that of one layer, and of two microbatches that take turns the chip
        or the network is always busy.
        """
        figures = self._alike.figures(domain_k)
        takes = {stage: pass_s.get((stage, True), 0.0) + pass_s.get((stage, False), 0.0) for stage in self._case.ran}
        taken = self._case.ranks if self._case.plan.two_batch_overlap else ()
        extra = stages.Extra(
            hops=network.handed_on(self._case, figures.hop_f),
            exchanges=figures.exchanges,
            updates=figures.updates,
            per_step_s=self._alike.per_step_s,
            turns={rank.number: turns.least_s(rank, takes, self._alike.sends) for rank in taken},
            window_s=math.fsum(figures.exchanges[0].groups_s) if _in_windows(self._case) else None,
        )
        return stages.step(self._case, {key: (seconds,) for key, seconds in pass_s.items()}, extra).time.total

    def may_fit(self, domain_k: SchemeDomain) -> bool:
        """Whether some mapping with schemes of a domain may fit the memories; False is proof that none does.

        Nothing waits between partitions here, and nothing that is gathered is kept while schemes are open.
        """
        if self._case.assume.by_layer and self._case.assume.backward_gathers in _KEPT and _is_open(domain_k):
            return True  # what is kept is no part of the layer at work, which then holds less
        amounts = self._alike.figures(domain_k).amounts
        books = (ledger.books_of(ledger.entries(self._case, rank, amounts)) for rank in self._case.ranks)
        return not any(any(limits.overfull(self._case, held)) for held in books)

    def replaces(self, number: int, scheme: Sharding, other: Sharding) -> bool:
        """Whether ``scheme`` of a kernel is never worse than ``other`` in all that blocks do not pay.

        These are the kernel's FLOP, traffic, stored bytes and outputs, and the time of its messages.

        Parameters
        ----------
        number : int
            Number of the kernel.
        scheme, other
            Two sharding schemes that it can take.
        """
        if self._case.assume.backward_gathers in _KEPT:
            return False  # what is gathered and kept depends on the layouts of readers
        return self._alike.replaces(number, scheme, other)


def _obstacle(case: Case) -> str:
    """Why seconds of layers and schemes say nothing of a step; nothing if they do."""
    plan, assume = case.plan, case.assume
    if plan.stages > 1 and not case.graph.folded:
        return "kernels are drawn once on several pipeline stages"
    each_counts = overlap.hides(assume, case.graph) and assume.bubble == "stages" and len(case.ranks) > 1
    if each_counts and plan.interleave > 1:  # a slower stage hides more than the pipeline takes longer
        return "gradients hide behind chunks of unequal stages that each count"
    return ""


def _inexact(case: Case) -> str:
    """Why they say no more than what a step takes at least; nothing if they say what it takes."""
    if case.plan.two_batch_overlap:
        return "two microbatches take turns"
    if ledger.offloaded(case):
        return "slower memories move what layers need to train"
    return "exchanges hide in windows of memory and compute" if _in_windows(case) else ""


def _in_windows(case: Case) -> bool:
    """Whether what copies exchange hides as Calculon has it."""
    ways = ("calculon", "calculon_or_none")
    return case.assume.gradient_overlap in ways and case.trains and case.plan.copies > 1


def _is_open(domain_k: SchemeDomain) -> bool:
    return any(len(schemes) > 1 for schemes in domain_k)


@dataclass(frozen=True)
class _Figures:
    """What there is beside the seconds of layers, at least under any schemes of a domain.

    ``hop_f``: s, of each carried tensor; ``exchanges``, ``updates``: s, by stage of the mapping.
    """

    hop_f: tuple[float, ...]
    exchanges: Mapping[int, network.ExchangeSeconds]
    updates: Mapping[int, float]
    amounts: AmountsOf


class _Options:
    """Kernels of a graph under each of their schemes, on chips that share them: no plan matters beyond their number."""

    def __init__(self, graph: Graph, system: System, assume: Assumptions, degree: int) -> None:
        self._graph, self._placing = graph, Placing(graph, system, assume, degree)
        self._stages = tuple(map(graph.kind_of, graph.kernels))
        self.of, self.placed = cache(self._of), lru_cache(maxsize=1024)(self._placed)
        self.first: SchemeDomain = tuple(ops.legal_schemes(kernel, degree, assume)[:1] for kernel in graph.kernels)

    def _of(self, number: int, schemes: tuple[Sharding, ...]) -> Placed:
        """A kernel as it is at least under any of some schemes."""
        if len(schemes) > 1:
            return least([self.of(number, (scheme,)) for scheme in schemes])
        kernel = self._graph.kernels[number]
        here = KernelMapping(name=kernel.name, sharding=schemes[0], stage=self._stages[number], partition=0)
        return self._placing.of(kernel, here)

    def _placed(self, domain_k: SchemeDomain) -> tuple[tuple[Placed, ...], tuple[Fan, ...], tuple[Fan, ...]]:
        """Kernels, tensors between them and carried ones, as they are at least."""
        kernels = tuple(self.of(number, schemes) for number, schemes in enumerate(domain_k))
        return kernels, *fans_of(self._graph, self._placing.assume, kernels, tile_count=1)


class _Alike:
    """Plans that differ in nothing but how their stages hold layers: what depends on all else."""

    def __init__(self, options: _Options, case: Case) -> None:
        self._options = options
        self.case = self._with(case, options.first)
        self._price = network.price_list(case)
        self.per_step_s = network.point_to_point_per_step_s(self.case, self._price)
        hidden = network.hidden_seconds(self.case, self._price)
        self.sends = {
            stage: seconds for (stage, _), seconds in totals((self.case.place(k), s) for k, s in hidden).items()
        }
        self.figures, self.replaces = lru_cache(maxsize=32)(self._figures), cache(self._replaces)

    def _replaces(self, number: int, scheme: Sharding, other: Sharding) -> bool:
        first, second = (self._options.of(number, (each,)) for each in (scheme, other))
        if not no_more(first, second):
            return False
        return all(
            network.hop_s(self.case, fan, first, self._price) <= network.hop_s(self.case, fan, second, self._price)
            for fan in (self.case.carried if self.case.plan.stages > 1 else ())
            if fan.src == number
        )

    def _with(self, case: Case, domain_k: SchemeDomain) -> Case:
        kernels, fans, carried = self._options.placed(domain_k)
        return replace(case, kernels=kernels, fans=fans, carried=carried)

    def _figures(self, domain_k: SchemeDomain) -> _Figures:
        case, price = self._with(self.case, domain_k), self._price
        hop_f = [
            min(network.hop_s(case, fan, self._options.of(fan.src, (scheme,)), price) for scheme in domain_k[fan.src])
            for fan in (case.carried if case.plan.stages > 1 else ())
        ]
        of = sorted(case.of_stage)
        if _is_open(domain_k):
            case = replace(case, assume=case.assume.model_copy(update={"backward_gathers": None}))
        return _Figures(
            tuple(hop_f) or (0.0,) * len(case.carried),
            {stage: network.exchange(case, stage, price) for stage in of},
            {stage: network.optimizer_s(case, stage) for stage in of},
            cache(partial(amounts_of_stage, case)),
        )


@dataclass(frozen=True)
class _Plan:
    """A plan, equal to all that read alike but for how their stages hold layers."""

    key: Hashable
    plan: Plan = field(compare=False)


@lru_cache(maxsize=1024)
def _plans(graph: Same[Graph], system: Same[System], assumptions: Same[Assumptions], like: _Plan) -> _Alike:
    model, assume = _resolved(graph, system, assumptions, like.plan.tensor_overlap)
    seen = seen_by_a_chip(model, like.plan, system.document)
    case = Case(
        model=model,
        graph=seen,
        system=system.document,
        plan=like.plan,
        assume=assume,
        tile_count=1,
        kernels=(),
        fans=(),
        carried=(),
        members={},
    )
    return _Alike(_options(Same(seen), system, Same(assume), like.plan.shards), case)


@lru_cache(maxsize=64)
def _resolved(
    graph: Same[Graph], system: Same[System], assumptions: Same[Assumptions], hiding: str | None
) -> tuple[Graph, Assumptions]:
    """The graph as it is computed, and assumptions that say everything."""
    chip = system.document.chip
    assume = pipeline.resolve(assumptions.document.hiding(hiding), chip.execution, chip.compute_utilization)
    return library.as_computed(graph.document, assume), assume


@lru_cache(maxsize=256)
def _options(graph: Same[Graph], system: Same[System], assume: Same[Assumptions], degree: int) -> _Options:
    return _Options(graph.document, system.document, assume.document, degree)
