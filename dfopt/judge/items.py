"""What blocks of kernels pay under a plan, as sums over kernels and tensors: for those who ask about many blocks.

An *item* is a kernel by itself, a tensor with all its readers, its conversions, or an end of a carried tensor. What it
adds to a block depends on the options (sharding schemes) of few kernels, and on which of few kernels are in the block.
Every amount is what the judge charges to one of two places: there are the kernels of the block, all others are in the
other one. So no rule is stated here. What does not add up is in :mod:`dfopt.judge.block_time`.

Suffixes: k kernel, z option of a kernel, b block, r resource.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, get_args

import numpy as np

from dfopt.arrays import Floats, Ints
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.axes import Splits
from dfopt.documents.graph import Graph
from dfopt.documents.mapping import KernelMapping, Mapping, Sharding
from dfopt.documents.plan import Plan
from dfopt.documents.system import System
from dfopt.judge import fit, limits, members
from dfopt.judge.block_time import BlockTime
from dfopt.judge.case import Case, build
from dfopt.judge.item_tables import BlockItem, ItemTables, Key, NotItems
from dfopt.judge.timing import latencies
from dfopt.physics import ops, pipeline

__all__ = ["BlockItem", "ItemCache", "LayerItems", "NotItems"]


ItemCache = dict[Hashable, list[tuple[BlockItem, Floats]]]
"""What tensors and their conversions pay, by what it depends on."""


class LayerItems:
    """Costs of all blocks of a graph under a plan and number of tiles, as a sum of items.

    Parameters
    ----------
    graph, system, assumptions, plan
        As of `dfopt.evaluate`, with ``token_blocks: auto`` resolved for the graph.
    *tile_counts : tiles
        Number of tiles of the streamed axis; for several numbers, amounts are the least over all of them.
    shared : dict, optional
        Cache of the amounts of tensors under other plans with these documents, which do not depend on network dims, and
        of the amounts of conversions, which do not depend on the number of tiles.

    Attributes
    ----------
    graph : Graph
        The graph of one chip, whose kernels the items refer to.
    schemes_k : tuple of tuples of Sharding
        Legal schemes of every kernel.
    time : BlockTime
        Function from sums of amounts to seconds of blocks.

    Raises
    ------
    NotItems
        For an unrolled graph on several pipeline stages, for an item that depends on too many kernels, and for times
        that differ by the number of tiles under the cycle model.
    PlanError
        If the plan does not fit the system or the graph.
    """

    def __init__(
        self,
        graph: Graph,
        system: System,
        assumptions: Assumptions,
        plan: Plan,
        *tile_counts: int,
        shared: ItemCache | None = None,
    ) -> None:
        chip = system.chip
        chosen = assumptions.hiding(plan.tensor_overlap)
        chosen = pipeline.resolve(chosen, chip.execution, chip.compute_utilization, graph=graph)
        if not graph.folded and plan.stages > 1:
            raise NotItems("kernels drawn once are on several pipeline stages")
        alike = self.alike(plan, graph, assumptions)
        seen, read = members.seen_by_a_chip(graph, plan, system), Plan.saying(alike)
        legal = tuple(ops.legal_schemes(kernel, plan.shards, chosen) for kernel in seen.kernels)
        self.schemes_k: tuple[tuple[Sharding, ...], ...] = legal
        counts = tile_counts or (1,)
        finest, cases = max(counts), list[Case]()
        for z in range(max(map(len, legal))):
            schemes = [schemes[min(z, len(schemes) - 1)] for schemes in legal]
            if not z:
                fit.check(_mapped(seen, system, plan, schemes, finest), graph, system, chosen)
            cases.append(build(_mapped(seen, system, read, schemes, finest), graph, system, chosen))
        latency_l = np.zeros(0)
        if chosen.compute_model == "cycle":
            latency_l, *others = (_latencies([replace(case, tile_count=count) for case in cases]) for count in counts)
            if not all(np.array_equal(latency_l, other) for other in others):
                raise NotItems("kernels take other seconds in each number of tiles")
        self._case, self.graph, self.time = cases[0], cases[0].graph, BlockTime(cases[0], latency_l)
        self._builder = ItemTables(cases, legal, self.resources, latency_l, counts)
        members_of = plan.members, plan.member_dims, plan.modules, plan.placement, plan.tensor_overlap
        self._shared = {} if shared is None else shared
        self._like, self._converted = (plan.shards, *members_of, finest), (alike, len(self.resources))

    @property
    def is_exact(self) -> bool:
        """Whether the least costs over numbers of tiles are attained by one of them, the largest."""
        finest = replace(self._builder, tile_counts=(self._case.tile_count,))
        return all(
            np.array_equal(table, own) for (_, table), (_, own) in zip(self._kernels, finest.kernels(), strict=True)
        )

    @staticmethod
    def alike(plan: Plan, graph: Graph, assumptions: Assumptions) -> tuple[tuple[str, Any], ...]:
        """Key of all that items read of a plan: plans with equal keys have equal items.

        Its stages, copies, microbatches and levels of ZeRO belong to the step, but for gradients that are spread over
        microbatches, and for kernels that list communications over all chips.

        Parameters
        ----------
        plan, graph, assumptions
            The plan, the workload and resolved assumptions.
        """
        splits: list[Splits] = ["kernels", "modules"]
        fields = {name: getattr(plan, name) for name in ("modules", "placement", "tensor_overlap")}
        if assumptions.gradients == "dfmodel":
            splits.append("batch")
            fields["microbatches"] = plan.microbatches
        if any(kernel.communications for kernel in graph.kernels):
            splits = list(get_args(Splits))
        return (*plan.axis_values(*splits), *fields.items())

    @property
    def resources(self) -> tuple[str, ...]:
        """Names of the resources that blocks pay, in the order of axis r, see :mod:`dfopt.judge.block_time`."""
        return self.time.resources

    @property
    def mixes_passes(self) -> bool:
        """Whether kernels of both passes may share a block."""
        assume = self._case.assume
        return assume.forward_backward != "separate" and assume.execution != "kernel_by_kernel"

    @cached_property
    def _kernels(self) -> list[tuple[BlockItem, Floats]]:
        return [*self._builder.kernels()]

    @cached_property
    def _tables(self) -> dict[BlockItem, Floats]:
        if self._like not in self._shared:
            self._shared[self._like] = [*self._builder.tensors()]
        if self._converted not in self._shared:
            self._shared[self._converted] = [*self._builder.conversions()]
        return _merged(self._builder, [*self._kernels, *self._shared[self._like], *self._shared[self._converted]])

    @cached_property
    def items(self) -> tuple[BlockItem, ...]:
        """All cost items of the layer."""
        return tuple(self._tables)

    @cached_property
    def own_kz(self) -> tuple[Floats, ...]:
        """Amounts that every kernel adds to its block on its own: by kernel, shape (schemes, resources)."""
        return tuple(table[:, 1] for _, table in self._kernels)

    def table(self, item: BlockItem) -> Floats:
        """Amounts that an item adds to a block, by schemes and kernels present.

        Returns
        -------
        float array, shape (schemes of scope[0], ..., schemes of scope[-1], 2 ** len(inside), resources)
            The axis before the last is the pattern: bit i says whether inside[i] is in the block.
        """
        return self._tables[item]

    def seconds(self, sums_br: Floats, count_b: Ints, *, decided: bool = False) -> Floats:
        """Seconds of blocks, see :meth:`BlockTime.seconds`: non-decreasing in every sum.

        Parameters
        ----------
        sums_br, count_b, decided
            As for :meth:`BlockTime.seconds`.
        """
        return self.time.seconds(sums_br, count_b, decided=decided)

    def mapping(self, plan: Plan, scheme_k: Sequence[int], partition_k: Sequence[int]) -> Mapping:
        """The mapping with the given option (number) and partition of every kernel.

        Parameters
        ----------
        plan
            The plan.
        scheme_k, partition_k : sequence of int
            By kernel, the number of its option and of its partition.
        """
        schemes = [schemes[z] for schemes, z in zip(self.schemes_k, scheme_k, strict=True)]
        return _mapped(self.graph, self._case.system, plan, schemes, self._case.tile_count, partition_k)

    def allowed(self, kernels: Sequence[int]) -> bool:
        """Whether some kernels may form a block, apart from its SRAM and its position among other blocks.

        Where passes have halves of the partitions (``forward_backward: halves``) blocks may be allowed that cannot be.
        """
        case = self._case
        if len({case.place(k)[0] for k in kernels}) > 1 or any(limits.refused(case, kernels)):
            return False
        if case.assume.forward_backward != "separate":
            return True
        ways = [{0} if any(case.kernels[k].forward == way for k in kernels) else set() for way in (True, False)]
        return not all(ways) or not any(limits.separate(0, *ways))


def _latencies(cases: Iterable[Case]) -> Floats:
    """Seconds that kernels may take under the cycle model, ascending."""
    menus = (latencies(case, placed) for case in cases for placed in case.kernels)
    return np.unique(np.concatenate([seconds for _, seconds in menus]))


def _mapped(
    graph: Graph,
    system: System,
    plan: Plan,
    schemes: Sequence[Sharding],
    tile_count: int,
    partition_k: Sequence[int] | None = None,
) -> Mapping:
    """A mapping of kernels with these schemes, each in a partition of its own unless these are given."""
    numbers = range(len(schemes)) if partition_k is None else partition_k
    kinds = [graph.kind_of(kernel) if graph.folded else 0 for kernel in graph.kernels]
    kernels = tuple(
        KernelMapping(name=kernel.name, sharding=scheme, stage=kind, partition=number)
        for kernel, scheme, kind, number in zip(graph.kernels, schemes, kinds, numbers, strict=True)
    )
    return Mapping(graph=graph.name, system=system.name, plan=plan, kernels=kernels, tile_count=tile_count)


def _merged(of: ItemTables, given: Iterable[tuple[BlockItem, Floats]]) -> dict[BlockItem, Floats]:
    """All items, those of the same kernels as one."""
    names, tables = dict[Key, str](), dict[Key, Floats]()

    def add(parts: Iterable[tuple[BlockItem, Floats]]) -> None:
        for item, table in parts:
            key = item.scope, item.inside
            names.setdefault(key, item.name)
            tables[key] = tables[key] + table if key in tables else table

    add((*given, *of.pairs()))
    add(list(of.must_be_alone(tables)))
    return {BlockItem(names[key], *key): table for key, table in tables.items() if table.any()}
