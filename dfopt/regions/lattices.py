"""The arcs of every kind of layer of a graph: which blocks may lead from which down-set to which.

Only the structure counts here: the tensors between kernels, the passes, the sets of kernels that a library fuses, and
the number of compute tiles. What fits SRAM, and what blocks cost, depends on prices.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dfopt.arrays import Bools, Ints, stable_order
from dfopt.bnb import Clock, OutOfTime
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.errors import Infeasible, NoSolution
from dfopt.fusion.blocks import StageTables, restrict, stage_tables
from dfopt.fusion.classes import GOLDEN
from dfopt.fusion.downsets import Lattice, down_sets, near_orders, one_by_one
from dfopt.fusion.partitioning import IntraChipLimits, sides_among
from dfopt.fusion.segments import topological_orders
from dfopt.regions.arcs import Arcs, chain_of
from dfopt.regions.numbering import Numbering
from dfopt.setting.instance import Instance, Setting
from dfopt.solving.fusing import limits_of
from dfopt.terms.chip import chip_of
from dfopt.terms.layer import counts_training
from dfopt.terms.sharded import LayerOptions

KnownArcs = dict[Hashable, tuple[Arcs | None, Numbering]]
"""Arcs by the structure that they follow from: graphs of one workload share them, and what is counted along them."""

MOST_SETS = 5_000
"""Down-sets of a layer, at most: the arcs between so many take a few seconds and about a gigabyte."""
MOST_OF_LIBRARY = 60_000
"""The same where a library says which kernels share a block: then few arcs leave a down-set."""
MOST_ARCS = 8_000_000
"""Arcs between down-sets, at most, each as often as there are numbers that count for its partition."""
_SOME = 400
"""Of more down-sets, those near topological orders that are listed: enough for good orders of partitions."""
_WORK = 4_000_000.0
"""Units of work for an order of partitions with numbers as asked for, where none is listed: about ten seconds."""
_PAIRS = 65_536
"""Pairs of down-sets that are compared at a time: half a megabyte for each word of their kernels, which stays in the
processor's cache."""


def arcs_of(
    instance: Instance, kind: int, asked: Request, known_arcs: KnownArcs | None = None
) -> tuple[Arcs | None, Numbering]:
    """The lattice of all blocks of one kind of layer, and the numbers of its partitions.

    Parameters
    ----------
    instance : Instance
        Setting, and a plan whose dims do not matter here.
    kind : int
        Number of the kind of layer; 0 for a graph that is not folded.
    asked : Request
        Limits on the partitions.
    known_arcs : dict, optional
        All arcs of other layers; those of this one are added.

    Returns
    -------
    (Arcs or None, Numbering)
        None: no partitions keep the limits.

    Raises
    ------
    OutOfTime
        If a layer has more than :data:`MOST_SETS` down-sets, or :data:`MOST_OF_LIBRARY` with a library, or more than
        :data:`MOST_ARCS` arcs, and an order of partitions that keeps the limits was neither found nor excluded.
    """
    return arcs_among(instance, _of_kind(instance, kind), kind, asked, known_arcs)


def arcs_among(
    instance: Instance, member_k: Bools, number: int, asked: Request, known_arcs: KnownArcs | None = None
) -> tuple[Arcs | None, Numbering]:
    """The lattice of some kernels, which form a layer or pipeline stage, and the numbers of its partitions.

    Parameters
    ----------
    member_k : bool array, shape (kernels,)
        The kernels.
    number : int
        Number of the layer or stage in the mapping.
    instance, asked, known_arcs
        Parameters, result and errors are those of :func:`arcs_of`.
    """
    tables, members = _structure(instance, member_k)
    rule, chip, sharded = rule_of_passes(instance), tables.chip, tables.sharded
    free = asked.model_copy(update={"formulation": "auto"})  # the default of a program takes prices, and is no limit
    elsewhere = counts_training(instance.graph, instance.assumptions)
    # of one order, with no other partitions
    limits = IntraChipLimits(len(members), forward_backward="shared", saved_in_dram=elsewhere)
    if chip.fused:
        limits = limits_of(instance, tables, number, free)
    arrays = member_k, sharded.forward_k, sharded.sets_k, sharded.src_t, sharded.dst_t
    key = rule, limits, chip.fused, chip.library, chip.tiles, *(part.tobytes() for part in arrays)
    known_arcs = {} if known_arcs is None else known_arcs
    if key in known_arcs:
        return known_arcs[key]
    listed = _listed(tables, members, len(member_k), rule, limits)
    if listed[0] is None or listed[0].complete:  # which kernels run alone, where others are not listed, takes sizes
        known_arcs[key] = listed
    return listed


def _listed(
    tables: StageTables, members: Ints, count: int, rule: str, limits: IntraChipLimits
) -> tuple[Arcs | None, Numbering]:
    """All arcs between down-sets of some kernels; only some where there are too many."""
    # under halves one block at most mixes the passes: before it there is only forward work, behind it none
    passes = "shared" if rule == "shared" else "separate"
    lattice, apart_k = _down_sets(tables, passes), None
    numbering = Numbering(limits, tables.sharded.forward_k)
    if lattice is not None and tables.chip.fused:
        before, after = _joins(lattice, tables, rule)
        lattice = None if len(before) * numbering.most(len(members)) > MOST_ARCS else lattice
    if lattice is None:
        lattice = near_orders(tables, passes, topological_orders(tables), _SOME)
        apart_k = sides_among(tables, rule, members, count).astype(np.int64)
        before, after = _joins(lattice, tables, rule)
    if not tables.chip.fused:  # one order, and no other partition for any kernel
        before = np.arange(len(members))
        return _arcs(count, lattice, members, before, before + 1), numbering
    arcs = _arcs(count, lattice, members, before, after)
    if apart_k is None:
        return numbering.kept(arcs), numbering
    some = replace(arcs, apart_k=apart_k)
    return numbering.kept(some) or _one_order(some, tables, limits), numbering


def _joins(lattice: Lattice, tables: StageTables, rule: str) -> tuple[Ints, Ints]:
    """Pairs of down-sets of which a block leads from the first to the second, sorted by the second."""
    ahead = (lattice.member & tables.sharded.forward_k).sum(axis=1)
    behind, pairs = lattice.size - ahead, [lattice.steps(tables)[:2]] if tables.chip.library else _pairs(lattice)
    joins = list[tuple[Ints, Ints]]()
    for before, after in pairs:
        keep = lattice.size[after] - lattice.size[before] <= tables.chip.tiles
        if rule == "separate":
            keep &= (ahead[after] == ahead[before]) | (behind[after] == behind[before])
        joins.append((before[keep].astype(np.int32), after[keep].astype(np.int32)))  # memory that is new takes long
    before, after = (np.concatenate(parts, dtype=np.int64) for parts in zip(*joins, strict=True))
    order = stable_order(after) if tables.chip.library else slice(None)
    return before[order], after[order]


def _one_order(some: Arcs, tables: StageTables, limits: IntraChipLimits) -> Arcs | None:
    """One order of partitions with numbers as asked for, where none of those that are listed has them.

    Raises
    ------
    OutOfTime
        If none was found, nor shown not to exist, within the work for it.
    """
    from dfopt.fusion.intrachip import greedy, optimize_intrachip  # not for those who never ask

    free = replace(tables, sharded=replace(tables.sharded, compute_k=np.ones(tables.kernels)))
    try:
        fusion = optimize_intrachip(free, limits, gap=1.0, clock=Clock(work=_WORK), start=greedy(free, limits))
    except Infeasible:
        return None
    except NoSolution as error:
        raise OutOfTime from error
    return chain_of(some, fusion.partition_k)


def down_sets_by_kind(setting: Setting, plans: Sequence[Plan]) -> dict[int, Lattice | None]:
    """By kind of layer its lattice of down-sets, for any partition numbers; None for a kind with too many.

    Empty without a plan; of several one, whether it fits or not.
    """
    lattice_of_kind = dict[int, Lattice | None]()
    for instance in map(setting.under, plans[:1]):
        for kind in kinds_of(instance):
            tables, _ = _structure(instance, _of_kind(instance, kind))
            lattice_of_kind[kind] = _down_sets(tables, rule_of_passes(instance))
    return lattice_of_kind


def sides_of(instance: Instance) -> Ints:
    """Sides of all kernels of an unrolled graph: kernels of two sides never share a partition.

    Int array, shape (kernels,).
    """
    tables, members = _structure(instance, _of_kind(instance, 0))
    return sides_among(tables, rule_of_passes(instance), members, len(members)).astype(np.int64)


def _down_sets(tables: StageTables, rule: str) -> Lattice | None:
    return down_sets(tables, rule, _most(tables)) if tables.chip.fused else one_by_one(topological_orders(tables)[0])


def _most(tables: StageTables) -> int:
    """Down-sets that are listed, at most."""
    return MOST_OF_LIBRARY if tables.chip.library else MOST_SETS


def rule_of_passes(instance: Instance) -> str:
    """How passes share partitions."""
    return instance.assumptions.forward_backward if instance.graph.trains else "shared"


def _of_kind(instance: Instance, kind: int) -> Bools:
    """Kernels of the layers of one kind."""
    return np.array([instance.graph.kind_of(kernel) == kind for kernel in instance.graph.kernels])


def _structure(instance: Instance, member_k: Bools) -> tuple[StageTables, Ints]:
    """Some kernels and their tensors, without prices: nothing is too large for a chip; and their numbers."""
    members = np.flatnonzero(member_k).astype(np.int64)
    chip = chip_of(instance.system, instance.assumptions, bounding=True)
    return stage_tables(restrict(LayerOptions.of(instance).plain, members), chip), members


def _pairs(lattice: Lattice) -> Iterator[tuple[Ints, Ints]]:
    """Pairs of down-sets of which the second holds the first, and more: some at a time, sorted by the second."""
    step = max(_PAIRS // len(lattice.size), 1)
    for first in range(1, len(lattice.size), step):
        yield lattice.smaller(np.arange(first, min(first + step, len(lattice.size))))


def _arcs(kernels: int, lattice: Lattice, members: Ints, before: Ints, after: Ints) -> Arcs:
    """Arcs between down-sets of the kernels of a layer, sorted, with each distinct block once."""
    words = lattice.words.take(after, axis=0)
    words &= (~lattice.words).take(before, axis=0)
    first, block_a = distinct_blocks(words)
    set_jk = np.zeros((len(lattice.size), kernels), dtype=bool)
    set_jk[:, members] = lattice.member
    return Arcs(set_jk[after[first]] & ~set_jk[before[first]], set_jk, before, after, block_a)


def distinct_blocks(words: NDArray[np.uint64]) -> tuple[Ints, Ints]:
    """One row for each distinct block, in ascending order, and the index of the block of every given row.

    A row has a bit for each kernel. Of rows with one word, a place in a table decides (multiplicative hashing: Knuth,
    The Art of Computer Programming 3, 6.4). Only those that share it with others are compared: to sort a million takes
    three times as long.
    """
    if words.shape[1] > 1:
        _, first, number = np.unique(words, axis=0, return_index=True, return_inverse=True)
        return first, number.ravel()
    word, row = words[:, 0], np.arange(len(words), dtype=np.int32)
    bits = len(row).bit_length()
    place = ((word * np.uint64(GOLDEN)) >> np.uint64(64 - bits)).view(np.int64)
    row_of = np.zeros(1 << bits, dtype=np.int32)
    row_of[place] = row
    like = row_of[place]
    others = np.flatnonzero(word[like] != word)
    _, first, number = np.unique(word[others], return_index=True, return_inverse=True)
    like[others] = others[first[number]]
    distinct = np.flatnonzero(like == row)
    distinct = distinct[np.argsort(word[distinct])]
    number_of = np.zeros(len(row), dtype=np.int32)
    number_of[distinct] = np.arange(len(distinct))
    return distinct, number_of[like].astype(np.int64)


def kinds_of(instance: Instance) -> range:
    """Numbers of the kinds of layers of a graph."""
    kinds = {instance.graph.kind_of(kernel) for kernel in instance.graph.kernels}
    assert kinds == set(range(len(kinds)))
    return range(len(kinds))
