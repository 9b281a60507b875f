"""Cuts of a stage into partitions: every sequence of blocks of kernels, a set of which is the bits of an int."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from oracles import at_once, kinds
from strategies import World

from dfopt.documents.request import Request


@dataclass(frozen=True)
class Sequences:
    """Sequences of blocks, filled up with empty ones; ``number`` is the place of each in ``blocks``."""

    rows: np.ndarray
    partitions: list[tuple[int, ...]]
    blocks: list[int]
    number: np.ndarray

    @classmethod
    def of(cls, listed: list[tuple[tuple[int, ...], tuple[int, ...]]]) -> Sequences:
        """From (blocks, partitions)."""
        width = max((len(blocks) for blocks, _ in listed), default=0)
        rows = np.zeros((len(listed), width), dtype=np.int64)
        for row, (blocks, _) in zip(rows, listed, strict=True):
            row[: len(blocks)] = blocks
        blocks = sorted({mask for sequence, _ in listed for mask in sequence})
        place = {mask: number for number, mask in enumerate(blocks)} | {0: len(blocks)}
        number = np.array([[place[mask] for mask in row] for row in rows.tolist()], dtype=np.int64)
        return cls(rows, [partitions for _, partitions in listed], blocks, number.reshape(rows.shape))


class Cuts:
    """The sequences of blocks of one plan, each list worked out once."""

    def __init__(self, world: World, asked: Request) -> None:
        self.world, self.asked = world, asked
        self.index = world.graph.index()
        self.edges = sorted({(self.index[t.src], self.index[t.dst]) for t in world.graph.tensors})
        self.found: dict[tuple[int, bool], Sequences] = {}

    def _once(self, stage: int) -> bool:
        """Whether a stage of the mapping is a layer at one of the ends."""
        return self.world.graph.folded and kinds(self.world.graph)[stage] in ("first", "last")

    def of(self, members: int, stage: int) -> Sequences:
        """The sequences of blocks that the kernels of a stage may run as."""
        key = members, self._once(stage)
        if key not in self.found:
            self.found[key] = Sequences.of(list(self._listed(members, stage)))
        return self.found[key]

    def _listed(self, members: int, stage: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """(blocks, their partitions), nothing looked at but the rules."""
        world, asked = self.world, self.asked
        graph, chosen = world.graph, world.assumptions
        forward = sum(1 << k for k, kernel in enumerate(graph.kernels) if kernel.pass_ == "forward") & members
        before = [0] * len(graph.kernels)
        for a, b in self.edges:
            if members >> a & members >> b & 1:
                before[b] |= 1 << a
        kernels = [k for k in range(len(graph.kernels)) if members >> k & 1]
        if chosen.execution == "kernel_by_kernel":
            order: list[int] = []
            while len(order) < len(kernels):  # as listed, forward kernels first
                done = sum(1 << k for k in order)
                ready = [k for k in kernels if not done >> k & 1 and not before[k] & ~done]
                order.append(min(ready, key=lambda k: (not forward >> k & 1, k)))
            yield tuple(1 << k for k in order), tuple(range(len(order)))
            return
        most = asked.p_max if asked.p_max is not None else len(kernels)
        exactly = chosen.empty_partitions == "forbid"
        if exactly and self._once(stage):
            most = min(most, len(kernels))
        rule = chosen.forward_backward if graph.trains and forward not in (0, members) else "shared"
        pins = {self.index[name]: p for name, p in asked.pin_partition.items() if members >> self.index[name] & 1}
        gaps = chosen.forward_backward == "halves" and graph.trains
        for blocks in self._cuts(members, before, forward if rule == "separate" else members, most):
            if exactly and len(blocks) < most:
                continue
            # which partition is empty matters only where the middle of them does
            numbers = itertools.combinations(range(most), len(blocks)) if gaps else [tuple(range(len(blocks)))]
            for partitions in numbers:
                where = {k: p for p, mask in zip(partitions, blocks, strict=True) for k in kernels if mask >> k & 1}
                if any(where[k] != p for k, p in pins.items()):
                    continue
                if rule == "halves" and not all(
                    p < (most + 1) // 2 if forward >> k & 1 else p >= most // 2 for k, p in where.items()
                ):
                    continue
                yield blocks, partitions
                break

    def _cuts(self, members: int, before: list[int], first: int, most: int) -> Iterator[tuple[int, ...]]:
        """Sequences of at most so many blocks in which nothing runs before what it needs, nor beside or before `first`
        what is not of it."""

        def after(done: int, left: int) -> Iterator[tuple[int, ...]]:
            rest = members & ~done
            if not rest:
                yield ()
                return
            pool = rest & first or rest
            block = pool if left else 0
            while block:  # every subset
                small = block.bit_count() <= self.world.system.chip.tiles and self.at_once(block)
                if small and not any(before[k] & ~(done | block) for k in range(len(before)) if block >> k & 1):
                    for later in after(done | block, left - 1):
                        yield (block, *later)
                block = (block - 1) & pool

        return after(0, most)

    @functools.cache  # noqa: B019
    def at_once(self, block: int) -> bool:
        """Whether the chip runs these kernels as one."""
        return at_once(self.world, [kernel for k, kernel in enumerate(self.world.graph.kernels) if block >> k & 1])
