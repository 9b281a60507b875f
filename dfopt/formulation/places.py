"""Which blocks there may be: the paper's matrix A, and what orders its columns.

Of *ordered* places each is a partition, one stage of the mapping after the other. Where a chip runs kernel by kernel or
the kernels of a library, blocks can be *listed* instead: a column is one block, taken or not. Then nothing but an order
in which they can run is left to show, and a relaxation is far tighter. What waits in DRAM between partitions depends on
their order, so listed blocks say nothing about it.

Suffixes: k kernel, b block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from dfopt.arrays import Bools, Floats, Ints
from dfopt.bnb import UNLIMITED, Clock
from dfopt.documents.graph import Graph
from dfopt.fusion.assignment import at_once, order, passes
from dfopt.fusion.library import convex
from dfopt.fusion.partitioning import IntraChipLimits
from dfopt.fusion.segments import order_by_rank
from dfopt.milp import Model
from dfopt.physics.library import sets_of
from dfopt.terms.chip import ChipModel

_MOST = 20_000  # kernels times blocks that are listed: beyond it a model is larger than with places


@dataclass(frozen=True)
class BlockStructure:
    """Restrictions on blocks: graph, chip, limits and stages.

    Attributes
    ----------
    graph : Graph
        Kernels and tensors.
    chip : ChipModel
        Whether it fuses kernels, and how many.
    limits : sequence of IntraChipLimits
        Limits of every stage of the mapping; pins by number of the kernel in the graph.
    stage_k : int array or None
        The stage of every kernel, unless that is a choice.
    """

    graph: Graph
    chip: ChipModel
    limits: Sequence[IntraChipLimits]
    stage_k: Ints | None

    @property
    def is_listable(self) -> bool:
        """Whether blocks are few and their order does not matter."""
        chip, limits = self.chip, self.limits
        numbered = any(each.pins or (chip.fused and each.forward_backward == "halves") for each in limits)
        return self.stage_k is not None and (chip.library or not chip.fused) and not numbered

    @cached_property
    def edges(self) -> Ints:
        """Distinct (source, reader) pairs of tensors within an evaluation: shape (pairs, 2)."""
        index = self.graph.index()
        pairs = {(index[tensor.src], index[tensor.dst]): None for tensor in self.graph.tensors}
        return np.array(list(pairs), dtype=np.int64).reshape(-1, 2)

    @cached_property
    def forward_k(self) -> Bools:
        """Mask of the forward kernels: shape (kernels,)."""
        return np.array([kernel.pass_ == "forward" for kernel in self.graph.kernels])

    @cached_property
    def sets_ks(self) -> Bools:
        """Membership of kernels in the sets of the fusion library: shape (kernels, sets)."""
        return np.array([sets_of(kernel) for kernel in self.graph.kernels])


class Places(Protocol):
    """Interface of the MILP columns that place kernels in blocks."""

    A_kb: Ints
    stage_b: Ints

    def start(self, stage_k: Ints, partition_k: Ints) -> dict[str, Floats] | None:
        """Column values of a mapping as a MIP start; None if it uses a block without a column."""
        ...

    def partitions(self, x: Floats) -> tuple[Ints, Ints]:
        """Stage and partition of every kernel in a solution."""
        ...


class Ordered:
    """Placement in numbered partitions, in running order over all stages of the mapping.

    Parameters
    ----------
    model : Model
        Gets the columns and rows.
    structure : BlockStructure
        Data that decide which blocks are possible.
    clock : Clock
        When it is over, :class:`dfopt.bnb.OutOfTime` is raised.
    """

    def __init__(self, model: Model, structure: BlockStructure, clock: Clock = UNLIMITED) -> None:
        self.model, self.structure = model, structure
        limits, self.forward_k = structure.limits, structure.forward_k
        self.stage_b = np.repeat(np.arange(len(limits)), [each.p_max for each in limits])
        kernels, places = len(self.forward_k), len(self.stage_b)
        may_kb = self._may()
        self.A_kb = np.full((kernels, places), -1, dtype=np.int64)
        self.A_kb[may_kb] = model.binary("A", (int(may_kb.sum()),))
        model.rows("one_partition", [(self.A_kb, 1.0)], 1, 1)
        self._order()
        self._passes()
        self._pins()
        if kernels > structure.chip.tiles:
            model.rows("kernels_per_partition", [(self.A_kb.T, 1.0)], upper=structure.chip.tiles)
        if structure.chip.library:
            at_once(model, self.A_kb, convex(structure.edges[:, 0], structure.edges[:, 1], structure.sets_ks, clock))

    def _may(self) -> Bools:
        """Where each kernel may be, shape (kernels, places)."""
        of, places = self.structure, len(self.stage_b)
        if of.stage_k is None:
            may_kb = np.ones((len(self.forward_k), places), dtype=bool)
        else:
            may_kb = of.stage_k[:, None] == self.stage_b
        if of.chip.fused:
            return may_kb
        rank = _in_order(of.edges, ~self.forward_k)
        alone_kb = np.zeros_like(may_kb)  # in the one order in which they run
        for stage in range(len(of.limits)):
            of_stage = np.flatnonzero(self.stage_b == stage)
            line = rank if of.stage_k is None else rank[np.isin(rank, np.flatnonzero(of.stage_k == stage))]
            alone_kb[line, of_stage[: len(line)]] = True
        return may_kb & alone_kb

    def _order(self) -> None:
        """No kernel runs before one that it needs; gradients flow from later stages to earlier ones."""
        of, edges = self.structure, self.structure.edges
        back = ~self.forward_k[edges[:, 0]] & ~self.forward_k[edges[:, 1]] & (of.stage_k is None)
        order(self.model, self.A_kb, edges[~back])
        order(self.model, self.A_kb[:, np.argsort(-self.stage_b, kind="stable")], edges[back], "precedence_back")
        index = of.graph.index()
        for k, kernel in enumerate(of.graph.kernels if of.stage_k is None else ()):
            for stage in range(len(of.limits) if kernel.stage_with is not None else 0):
                own = self.A_kb[k, self.stage_b == stage]
                theirs = self.A_kb[index[str(kernel.stage_with)], self.stage_b == stage]
                terms = [(own[None, :], 1.0), (theirs[None, :], -1.0)]
                self.model.rows(f"together_{k}_{stage}", terms, 0, 0)

    def _passes(self) -> None:
        """What may share a partition, and which may be empty."""
        of = self.structure
        for stage, limits in enumerate(of.limits if of.chip.fused else ()):
            at = np.flatnonzero(self.stage_b == stage)
            members = np.arange(len(self.forward_k)) if of.stage_k is None else np.flatnonzero(of.stage_k == stage)
            if len(members):
                here = self._here(stage, at) if of.stage_k is None else None
                passes(self.model, self.A_kb[np.ix_(members, at)], self.forward_k[members], limits, f"_{stage}", here)

    def _here(self, stage: int, at: Ints) -> Ints:
        """Whether kernels of the forward pass are in a stage, and whether others are."""
        here = self.model.continuous(f"here_{stage}", (2,), 0.0, 1.0)
        for of, side in enumerate((self.forward_k, ~self.forward_k)):
            if side.any():
                columns = np.full((int(side.sum()), 1), here[of])
                self.model.rows(f"here_{stage}_{of}", [(columns, 1.0), (self.A_kb[np.ix_(side, at)], -1.0)], lower=0)
        return here

    def _pins(self) -> None:
        """Kernels that the user has fixed to a partition of whatever stage they are in."""
        of = self.structure
        for k, partition in sorted({pin for limits in of.limits for pin in limits.pins}):
            places = (np.flatnonzero(self.stage_b == stage) for stage in range(len(of.limits)))
            pinned = [of_stage[partition] for of_stage in places if len(of_stage) > partition]
            self.model.rows(f"pin_{k}_{partition}", [(self.A_kb[k, pinned][None, :], 1.0)], lower=1)

    def start(self, stage_k: Ints, partition_k: Ints) -> dict[str, Floats] | None:
        """Column values of a mapping as a MIP start, by name of the columns; see :class:`Places`."""
        first = np.searchsorted(self.stage_b, np.arange(len(self.structure.limits)))
        taken_kb = (first[stage_k] + partition_k)[:, None] == np.arange(len(self.stage_b))
        inside = bool((taken_kb & (self.A_kb >= 0)).any(axis=1).all())
        return {"A": taken_kb[self.A_kb >= 0].astype(float)} if inside else None

    def partitions(self, x: Floats) -> tuple[Ints, Ints]:
        """Stage and partition of every kernel in a solution: int arrays, shape (kernels,); see :class:`Places`."""
        taken_kb = np.where(self.A_kb >= 0, x[self.A_kb], 0.0)
        place_k = np.argmax(taken_kb, axis=1)
        stage_k = self.stage_b[place_k]
        return stage_k, place_k - np.searchsorted(self.stage_b, stage_k)


class BlockList:
    """Placement by selection from a list of all blocks.

    Parameters
    ----------
    model : Model
        Gets the columns and rows.
    structure : BlockStructure
        Data that decide which blocks are possible.
    member_kb : bool array, shape (kernels, blocks)
        Kernels of each block, from :func:`listed`.
    """

    def __init__(self, model: Model, structure: BlockStructure, member_kb: Bools) -> None:
        assert structure.stage_k is not None
        self.member_kb, self.structure = member_kb, structure
        self.stage_b = structure.stage_k[np.argmax(member_kb, axis=0)]
        self.z_b = model.binary("A", (member_kb.shape[1],))
        self.A_kb = np.where(member_kb, self.z_b, -1)
        model.rows("one_block", [(self.A_kb, 1.0)], 1, 1)
        for stage, limits in enumerate(structure.limits):
            columns = self.z_b[self.stage_b == stage][None, :]
            if columns.size:
                fewest = limits.p_max if limits.exactly else 0
                model.rows(f"partitions_{stage}", [(columns, 1.0)], fewest, limits.p_max)
        if (member_kb.sum(axis=0) > 1).any():
            self._one_after_the_other(model)

    def _one_after_the_other(self, model: Model) -> None:
        """Each kernel has a place in the order: the same in a block, a later one in a block that needs another."""
        kernels, edges = len(self.member_kb), self.structure.edges
        place = model.continuous("order", (kernels,), 0.0, float(kernels - 1))
        both = np.where(self.member_kb[edges[:, 0]] & self.member_kb[edges[:, 1]], self.z_b, -1)
        ends: list[tuple[Ints, float]] = [(place[edges[:, 1]], 1.0), (place[edges[:, 0]], -1.0)]
        model.rows("order_later", [*ends, (both, 1.0)], lower=1.0)
        model.rows("order_same", [*ends, (both, float(kernels))], upper=float(kernels))
        for b in np.flatnonzero(self.member_kb.sum(axis=0) > 1).tolist():
            first, *others = np.flatnonzero(self.member_kb[:, b]).tolist()
            columns = np.full(len(others), self.z_b[b])
            for sign in (1.0, -1.0):  # those that no tensor joins directly, too
                terms = [(place[others], sign), (np.full(len(others), place[first]), -sign), (columns, float(kernels))]
                model.rows(f"order_{b}_{'after' if sign > 0 else 'before'}", terms, upper=float(kernels))

    def start(self, stage_k: Ints, partition_k: Ints) -> dict[str, Floats] | None:
        """Column values of a mapping as a MIP start; None if it uses an unlisted block; see :class:`Places`."""
        blocks = {row.tobytes(): b for b, row in enumerate(self.member_kb.T)}
        taken = np.zeros(len(self.z_b))
        for stage, partition in sorted(set(zip(stage_k.tolist(), partition_k.tolist(), strict=True))):
            block = blocks.get(((stage_k == stage) & (partition_k == partition)).tobytes())
            if block is None:
                return None
            taken[block] = 1.0
        return {"A": taken}

    def partitions(self, x: Floats) -> tuple[Ints, Ints]:
        """Stage and partition of every kernel in a solution: int arrays, shape (kernels,); see :class:`Places`."""
        assert self.structure.stage_k is not None
        taken, block_k = np.unique(np.argmax(np.where(self.member_kb, x[self.z_b], 0.0), axis=1), return_inverse=True)
        edges = block_k[self.structure.edges]
        later = np.asarray((self.member_kb[:, taken] & ~self.structure.forward_k[:, None]).any(axis=0))
        order = _in_order(edges[edges[:, 0] != edges[:, 1]], later)
        return self.structure.stage_k, np.argsort(order)[block_k]


def _in_order(edges: Ints, later: Bools) -> Ints:
    """Kernels or blocks after all that they need, those that come ``later`` as late as that allows."""
    src, dst = edges.T
    before = [np.unique(src[dst == k]).tolist() for k in range(len(later))]
    return order_by_rank(before, [(of, k) for k, of in enumerate(later.tolist())])


def listed(structure: BlockStructure, clock: Clock) -> Bools | None:
    """Membership of all possible blocks, shape (kernels, blocks); None if not listable or too many.

    Raises
    ------
    OutOfTime
        When the clock is over.
    """
    chip, limits = structure.chip, structure.limits
    if not structure.is_listable:
        return None
    kernels, forward_k = len(structure.graph.kernels), structure.forward_k
    several = convex(structure.edges[:, 0], structure.edges[:, 1], structure.sets_ks, clock) if chip.library else []
    separate = any(each.forward_backward == "separate" for each in limits)
    mixed = [bool(separate and forward_k[block].any() and not forward_k[block].all()) for block in several]
    several = [block for block, mixes in zip(several, mixed, strict=True) if len(block) <= chip.tiles and not mixes]
    if kernels * (kernels + len(several)) > _MOST:
        return None
    member_kb = np.zeros((kernels, kernels + len(several)), dtype=bool)
    member_kb[np.arange(kernels), np.arange(kernels)] = True
    for b, block in enumerate(several, kernels):
        member_kb[block, b] = True
    return member_kb
