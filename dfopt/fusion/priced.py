"""A plan with its sharding and priced stages: all that is left to choose is which kernels are fused, and how hot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dfopt.arrays import Bools, Ints
from dfopt.documents.mapping import KernelMapping, Mapping, Sharding, TokenBlocks
from dfopt.fusion.blocks import StageTables, lots, price_blocks, tiles_of
from dfopt.fusion.downsets import Lattice
from dfopt.fusion.partitioning import IntraChipLimits, blocks_of
from dfopt.setting.instance import Instance
from dfopt.terms.sharded_graph import ShardedGraph


@dataclass(frozen=True)
class PricedStage:
    """One distinct stage of the mapping.

    Attributes
    ----------
    members : int array
        Numbers of its kernels in the graph.
    tables, limits : StageTables, IntraChipLimits
        Prices, and limits on partitions.
    lattice : Lattice, optional
        Down-sets, if they are listed.
    """

    members: Ints
    tables: StageTables
    limits: IntraChipLimits
    lattice: Lattice | None


@dataclass(frozen=True)
class PricedPlan:
    """A plan with its sharding and the priced stages of its mapping.

    Attributes
    ----------
    instance : Instance
        Setting and plan.
    sharding : dict
        Scheme of each kernel, by name.
    sharded : ShardedGraph
        Figures of all kernels and tensors under it.
    stage_k : int array, shape (kernels,)
        Stage of every kernel.
    stages : dict
        Priced stages that have kernels, by number.
    """

    instance: Instance
    sharding: dict[str, Sharding]
    sharded: ShardedGraph
    stage_k: Ints
    stages: dict[int, PricedStage]

    def _lots(self, partition_k: Ints) -> Iterator[tuple[Ints, StageTables, Bools]]:
        """The blocks that partitions make, some at a time: kernels, their part of a stage, and which each block has."""
        for stage in self.stages.values():
            for here, part, member in lots(stage.tables, blocks_of(partition_k[stage.members])):
                yield stage.members[here], part, member

    def fastest_tokens(self, partition_k: Ints) -> Ints:
        """Blocks of tokens in the fastest way to run each kernel's partition; 0 where it stores its weights."""
        tokens_k = np.zeros(len(self.sharded.names), dtype=np.int64)
        for members, part, member in self._lots(partition_k):
            tokens_k[members] = (price_blocks(part, member).block_count @ member).astype(np.int64)
        return tokens_k

    def partitions(self, mapping: Mapping) -> Ints:
        """Partition of every kernel in a mapping: int array, shape (kernels,)."""
        at = {kernel.name: kernel.partition for kernel in mapping.kernels}
        return np.array([at[name] for name in self.sharded.names], dtype=np.int64)

    def mapping(self, partition_k: Ints, tokens_k: Ints | None = None) -> Mapping:
        """The mapping of given partitions, with the compute tiles of every kernel.

        ``tokens_k``: number of blocks of tokens of the partition of each kernel, 0 if it stores its weights; by default
        :meth:`fastest_tokens`.
        """
        tiles_k = np.ones(len(self.sharded.names), dtype=np.int64)
        taken_k = self.fastest_tokens(partition_k) if tokens_k is None else tokens_k
        for members, part, member in self._lots(partition_k):
            tiles_k[members] = tiles_of(part, member).sum(axis=0)
        token_blocks = {
            (int(self.stage_k[k]), int(partition_k[k])): int(taken_k[k]) for k in np.flatnonzero(taken_k).tolist()
        }
        kernels = tuple(
            KernelMapping(
                name=name,
                sharding=self.sharding[name],
                stage=int(self.stage_k[k]),
                partition=int(partition_k[k]),
                tiles=int(tiles_k[k]),
            )
            for k, name in enumerate(self.sharded.names)
        )
        return Mapping(
            graph=self.instance.graph.name,
            system=self.instance.system.name,
            plan=self.instance.plan,
            kernels=kernels,
            tile_count=self.sharded.tile_count,
            token_blocks=tuple(
                TokenBlocks(stage=stage, partition=partition, blocks=count)
                for (stage, partition), count in sorted(token_blocks.items())
            )
            or None,
        )
