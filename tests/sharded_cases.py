"""A layer with a given sharding, and all options of its kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dfopt.documents.mapping import Sharding
from dfopt.setting.instance import Instance
from dfopt.terms.sharded import LayerOptions
from dfopt.terms.sharded_graph import ShardedGraph, least_rows, tile_counts
from dfopt.terms.table import Domain


def shard(instance: Instance, sharding: Mapping[str, Sharding], tiles: int | None = None) -> ShardedGraph:
    """A layer on one chip with a scheme for each kernel; without tiles in the most that are worth trying."""
    layer = LayerOptions.of(instance)
    if tiles is None:
        schemes = [sharding[kernel.name] for kernel in instance.graph.kernels]
        tiles = tile_counts(instance.graph, instance.assumptions, least_rows(instance, schemes))[0]
    return layer.least(chosen(layer, sharding), tiles)


def chosen(layer: LayerOptions, sharding: Mapping[str, Sharding]) -> Domain:
    """The option of every kernel under a sharding, and no other."""
    return tuple((number,) for number in layer.figures.numbers(sharding))


def whole_domain(sizes_k: Sequence[int]) -> Domain:
    """All options of every kernel."""
    return tuple(tuple(range(size)) for size in sizes_k)
