"""Seconds of blocks of kernels from sums of what they pay: overlap, bandwidths, SRAM, weight parts, blocks of tokens.

All that does not add up over kernels and tensors is here; :mod:`dfopt.judge.items` has what does. No sum makes a block
faster, nor lets it fit, by being larger. So sums of least amounts give seconds at least.

Suffixes: b block, r resource, l latency.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from dfopt.arrays import ROUNDING, Bools, Floats, Ints
from dfopt.judge import limits, token_blocks, traffic
from dfopt.judge.case import Case
from dfopt.physics import ops
from dfopt.physics.efficiency import bandwidth_share, memory_rows
from dfopt.physics.token_blocks import block_share, most_blocks

_REORDERED: Final = 10 * ROUNDING
"""Share by which a sum over a block may be above that of the score, which adds its kernels up in another order."""
RESOURCES: Final = (
    "legal",  # infinite where options of kernels cannot be together, or one cannot be at all
    "compute_s",
    "network_s",
    "accessed",  # bytes read from SRAM and written there
    "held",  # bytes of SRAM of several kernels together
    "buffers",  # bytes of SRAM of a kernel alone that parts of its weight do not cut
    "cut",  # bytes that they do: weight, accumulator, outputs; of kernels with weights only
    "alone",  # infinite for a kernel that runs in weight parts, and so alone
    "at_once",  # infinite where tokens cannot come in blocks
    "beside",  # bytes of SRAM of kernels that take their tokens in blocks, however many
    "cut by tokens",  # and of those that one block would have of them
    "accessed again",  # bytes read from SRAM again for each further block of tokens
)
"""What blocks pay, whatever memories a chip has; of each of these there are three more."""


def reread(tier: str) -> str:
    """Resource name for bytes of memory ``tier`` that a kernel alone moves again for each further weight part."""
    return f"{tier} reread"


def again(tier: str) -> str:
    """Name of the resource: bytes of memory ``tier`` that each further block of tokens reads again."""
    return f"{tier} again"


class ModeFigures(NamedTuple):
    """Seconds and SRAM bytes of blocks in one mode: weights in SRAM, or tokens in blocks.

    Attributes
    ----------
    seconds : float array, s, shape (blocks,)
        Infinite where blocks do not fit in SRAM, or cannot run in this way.
    sram : float array, B, shape (blocks,)
        SRAM bytes that they store at a time.
    """

    seconds: Floats
    sram: Floats


@dataclass(frozen=True, eq=False)
class BlockTime:
    """Times of blocks of kernels, from sums of what they pay for each resource.

    Attributes
    ----------
    case : Case
        A case with the system, the plan, the assumptions and the graph; the places of its kernels are not used.
    latency_l : float array, s, shape (levels,)
        Under the cycle model the seconds that kernels may take on some number of compute tiles, ascending; of each
        blocks pay the tiles that their kernels need to take no longer. Empty under others.
    most_bandwidth : bool
        Whether memories always have the most bandwidth that they have for any number of bytes.
    """

    case: Case
    latency_l: Floats
    most_bandwidth: bool = False

    @cached_property
    def at_most_bandwidth(self) -> BlockTime:
        """The block times at the highest sustained bandwidths: never longer, and proportional to bytes."""
        return replace(self, most_bandwidth=True)

    @cached_property
    def resources(self) -> tuple[str, ...]:
        """Names of the resources that blocks pay, in the order of axis r of the sums."""
        tiers = self.case.system.chip.tiers
        moved = (name for tier in tiers for name in (tier, reread(tier), again(tier)))
        return (*RESOURCES, *moved, *(f"tiles {level}" for level in range(len(self.latency_l))))

    @cached_property
    def by_bytes(self) -> bool:
        """Whether the sustained bandwidth depends on the bytes of a block, so that time is not proportional to them."""
        return any(row.bytes for row in memory_rows(self.case.system.chip, self.case.assume))

    def seconds(self, sums_br: Floats, count_b: Ints, *, decided: bool = False) -> Floats:
        """Seconds of blocks in their fastest mode; infinite where none fits. Non-decreasing in every sum.

        They are those of the judge, for sums of one option of every kernel. Where bandwidth depends on bytes
        (:attr:`by_bytes`), more of these may take less time: seconds then are those of no fewer bytes at least.

        Parameters
        ----------
        sums_br : float array, shape (blocks, resources)
            Amount of each resource that each block pays.
        count_b : int array, shape (blocks,)
            Number of kernels of each block, at least 1.
        decided : bool
            Whether sums are of one option of every kernel. Blocks that hold their weights then have the bandwidth of
            their very bytes, and seconds are not monotone in these.
        """
        found_b = self.held(sums_br, count_b, decided=decided).seconds
        if self.case.assume.blocks_tokens:
            found_b = np.minimum(found_b, self.in_token_blocks(sums_br).seconds)
        return found_b

    def held(self, sums_br: Floats, count_b: Ints, *, decided: bool = False) -> ModeFigures:
        """Seconds and SRAM bytes of blocks that store their weights; a kernel alone stores one part at a time.

        Arguments are those of :meth:`seconds`.
        """
        of, capacity, alone_b = self._by_name(sums_br), self.case.system.chip.sram.capacity, count_b == 1
        buffers_b, cut_b, parts_b = of["buffers"], of["cut"], np.ones(len(sums_br))
        if self.case.assume.weight_tiling != "forbid":
            for b in np.flatnonzero(alone_b & (cut_b > 0) & (buffers_b + cut_b > capacity)).tolist():
                count = traffic.parts_of(float(buffers_b[b]), float(cut_b[b]), capacity * (1 + ROUNDING))
                parts_b[b] = np.inf if count is None else count
        runs_b = np.isfinite(parts_b)
        parts_b[~runs_b] = 1.0
        sram_b = np.where(alone_b, buffers_b + cut_b / parts_b, of["held"])
        runs_b &= self._fits(sram_b) & (alone_b | (of["alone"] == 0)) & (of["legal"] == 0)
        moved = {tier: (parts_b - 1) * of[reread(tier)] for tier in self._tiers}
        seconds_b = self._seconds(of, moved, of["accessed"], decided=decided)
        return ModeFigures(np.where(runs_b, seconds_b, np.inf), sram_b)

    def in_token_blocks(self, sums_br: Floats, blocks_b: Ints | None = None) -> ModeFigures:
        """Seconds and SRAM bytes of blocks that take tokens in ``blocks_b`` blocks; by default the fewest that fit."""
        of = self._by_name(sums_br)
        rows, least = ops.streamed_rows(self.case.graph), token_blocks.least_rows(self.case)
        if blocks_b is None:
            blocks_b = self._fewest(of["beside"], of["cut by tokens"], rows)
        sram_b = of["beside"] + of["cut by tokens"] * block_share(rows, blocks_b)  # type: ignore[arg-type]
        runs_b = self._fits(sram_b) & (of["at_once"] == 0) & (of["legal"] == 0)
        runs_b &= (blocks_b <= most_blocks(rows, least)) & self.case.assume.blocks_tokens
        more_b = np.where(runs_b, blocks_b - 1, 0)
        moved = {tier: more_b * of[again(tier)] for tier in self._tiers}
        seconds_b = self._seconds(of, moved, of["accessed"] + more_b * of["accessed again"])
        return ModeFigures(np.where(runs_b, seconds_b, np.inf), sram_b)

    def _fewest(self, beside_b: Floats, cut_b: Floats, rows: int) -> Ints:
        """Fewest blocks of tokens for which the largest one leaves room; as many as rows where none does."""
        room_b = self.case.system.chip.sram.capacity * (1 + limits.SLACK) - beside_b
        share_b = np.clip(room_b / np.where(cut_b > 0, cut_b, 1.0), 0.0, 1.0)
        largest_b = np.where(cut_b > 0, np.floor(rows * share_b * (1 + ROUNDING)), rows).clip(1, rows)
        return np.asarray(-(-rows // largest_b), dtype=np.int64)

    def _by_name(self, sums_br: Floats) -> dict[str, Floats]:
        return dict(zip(self.resources, sums_br.T, strict=True))

    @property
    def _tiers(self) -> tuple[str, ...]:
        return tuple(self.case.system.chip.tiers)

    def _fits(self, sram_b: Floats) -> Bools:
        return np.asarray(sram_b <= self.case.system.chip.sram.capacity * (1 + limits.SLACK) * (1 + _REORDERED))

    def _seconds(
        self, of: dict[str, Floats], more: dict[str, Floats], accessed_b: Floats, *, decided: bool = False
    ) -> Floats:
        """Seconds of blocks that move more bytes through memories than once; as `pipeline.partition_time` adds up."""
        chip, overlap = self.case.system.chip, self.case.assume.overlap
        memory_b = np.zeros(len(accessed_b))
        for tier in self._tiers:
            memory_b += self._memory_s(tier, of[tier] + more[tier], decided=decided)
        compute_b = of["compute_s"]
        if len(self.latency_l):  # the least latency for which the tiles suffice
            suffice_bl = np.stack([of[f"tiles {level}"] for level in range(len(self.latency_l))], axis=1) <= chip.tiles
            compute_b = np.where(suffice_bl.any(axis=1), self.latency_l[suffice_bl.argmax(axis=1)], np.inf)
        network_b = of["network_s"] + (self.case.assume.kernel_overhead or 0.0)
        sram_b = np.zeros(len(accessed_b)) if chip.sram.bandwidth is None else accessed_b / chip.sram.bandwidth
        if overlap == "none":
            return np.asarray(compute_b + memory_b + network_b + sram_b)
        on_chip_b = np.maximum.reduce([compute_b, memory_b, sram_b])
        return np.asarray(np.maximum(on_chip_b, network_b) if overlap == "perfect" else on_chip_b + network_b)

    def _memory_s(self, tier: str, moved_b: Floats, *, decided: bool) -> Floats:
        """Seconds to move so many bytes; unless they are decided, or more, where these take less time."""
        chip = self.case.system.chip
        rows = memory_rows(chip, self.case.assume)

        def at(bytes_b: Floats) -> Floats:
            return np.asarray(bytes_b / (chip.tiers[tier].bandwidth * bandwidth_share(rows, bytes_b, tier)))

        if self.most_bandwidth:
            sizes = np.array([0.0, *(row.bytes or 0.0 for row in rows)])
            most = float(bandwidth_share(rows, sizes, tier).max())
            return np.asarray(moved_b / (chip.tiers[tier].bandwidth * most))
        found_b = at(moved_b)
        for row in rows if self.by_bytes and not decided else ():
            found_b = np.minimum(found_b, at(np.maximum(moved_b, (row.bytes or 0.0) * (1 - ROUNDING))))
        return found_b
