"""Partitions that take their tokens in blocks: what they keep in SRAM, what they read again, and what cannot be.

The kernels of such a partition work through a block one after another. Tensors are in SRAM for two blocks. Weights, and
what every token needs all of, pass by in slices, for every block again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Literal

from dfopt.documents.kernel import Kernel
from dfopt.judge.case import Case, End, Fan, Place, Placed
from dfopt.judge.types import weight_word
from dfopt.physics import ops, token_blocks
from dfopt.physics.states import cache_traffic

Again = tuple[Place, Literal["weight", "cache", "tensor"], float, Fan | End | Placed]
"""A partition, and what each further block of its tokens reads from DRAM again: what it is, bytes, and of what."""


def whole_readers(case: Case, of: Fan | End, place: Place) -> list[int]:
    """Kernels of a partition in which every token needs all of a tensor or graph input.

    Parameters
    ----------
    case : Case
        The mapping.
    of : Fan or End
        The tensor, or the input or output of the graph.
    place : (int, int)
        Stage and number of the partition.
    """
    if isinstance(of, End):
        reads = not of.write and of.carried is None and case.place(of.kernel) == place
        return [of.kernel] if reads and _reads_whole(case, of.kernel, of.operand) else []
    if case.kernels[of.src].kernel.streamed != "n":
        return []
    return [
        number
        for number in of.readers
        if case.place(number) == place
        and any(_reads_whole(case, number, reader.operand) for reader in of.consumers if reader.kernel == number)
    ]


def _reads_whole(case: Case, number: int, operand: int) -> bool:
    return token_blocks.reads_whole(case.kernels[number].kernel, operand)


def in_sram(case: Case) -> Iterator[tuple[Place, float]]:
    """SRAM bytes, by place, of partitions that take their tokens in blocks."""
    rows = ops.streamed_rows(case.graph)
    for place, count in case.token_blocks.items():
        share = token_blocks.block_share(rows, count)
        for of in case.tensors:
            for size, is_cut in held(case, of, place):
                yield place, size * share if is_cut else size
    for placed in case.kernels:
        if placed.place in case.token_blocks:
            degree, rules = case.plan.shards, case.assume.sharding_rules
            if placed.at_once:
                row = token_blocks.slice_elements(placed.kernel, placed.sharding, degree, rules)
                yield placed.place, 2 * row * weight_word(case.graph, placed.kernel)
            yield placed.place, placed.adding


def held(case: Case, of: Fan | End, place: Place) -> Iterator[tuple[float, bool]]:
    """(bytes, whether blocks cut them) that a partition buffers of a tensor, if one block had all tokens.

    Parameters
    ----------
    case : Case
        The mapping.
    of : Fan or End
        The tensor, or the input or output of the graph.
    place : (int, int)
        Stage and number of the partition.
    """
    if isinstance(of, End):
        if case.place(of.kernel) == place:
            yield _of_end(case, of)
    elif place in (of.home, *of.away):
        source = case.kernels[of.src].kernel
        whole_readers_ = whole_readers(case, of, place)
        if whole_readers_:
            yield 2 * of.chip * token_blocks.row_share(source), False
        readers = [reader for reader in of.consumers if case.place(reader.kernel) == place]
        if place == of.home or any(
            not (reader.kernel in whole_readers_ and _reads_whole(case, reader.kernel, reader.operand))
            for reader in readers
        ):
            yield _with_tokens(of.chip, source, 0, source.streamed == "n")


def _of_end(case: Case, end: End) -> tuple[float, bool]:
    """The same of an end: of one that every token needs all of, a slice."""
    if end.carried is not None:
        source = case.kernels[end.carried].kernel
        return _with_tokens(end.chip, source, 0, source.streamed == "n")
    kernel = case.kernels[end.kernel].kernel
    if not end.write and token_blocks.reads_whole(kernel, end.operand):
        return 2 * end.chip * token_blocks.slice_share(kernel), False
    return _with_tokens(end.chip, kernel, end.operand, not end.write or kernel.streamed == "n")


def _with_tokens(chip: float, kernel: Kernel, operand: int, has_tokens: bool) -> tuple[float, bool]:
    """Bytes of two blocks of a tensor, and whether it has tokens to cut."""
    return 2 * chip * (token_blocks.unmasked(kernel, operand) if has_tokens else 1.0), has_tokens


def again(case: Case) -> Iterator[Again]:
    """DRAM bytes that each further block of tokens in a partition reads again, by place and kind of data."""
    for placed in case.kernels:
        if placed.place in case.token_blocks:
            if placed.read:
                yield placed.place, "weight", placed.read, placed
            read, _ = cache_traffic(placed.kernel, placed.sharding, case.plan.shards)
            if read:
                yield placed.place, "cache", read, placed
    for place in case.token_blocks:
        for of in case.tensors:
            if whole_readers(case, of, place):
                yield place, "tensor", of.chip, of


def accessed_again(case: Case) -> dict[int, float]:
    """SRAM bytes that all further blocks of tokens read again, by kernel."""
    bytes_by_kernel: dict[int, float] = defaultdict(float)
    for number, placed in enumerate(case.kernels):
        more = case.token_blocks.get(placed.place, 1) - 1
        bytes_by_kernel[number] += more * (
            placed.read + cache_traffic(placed.kernel, placed.sharding, case.plan.shards)[0]
        )
    for place, count in case.token_blocks.items():
        for of in case.tensors:
            for number in whole_readers(case, of, place):
                bytes_by_kernel[number] += (count - 1) * of.chip
    return bytes_by_kernel


def least_rows(case: Case) -> int:
    """Fewest rows that the largest block of tokens must have."""
    return max(case.assume.tile_rows or 1, case.plan.shards if case.assume.splits_tokens else 1)


def refused(case: Case) -> Iterator[str]:
    """Sentences on why partitions cannot take their tokens in blocks, or in so many."""
    rows, least = ops.streamed_rows(case.graph), least_rows(case)
    for place, count in case.token_blocks.items():
        name = f"partition {place[1]} of stage {place[0]} takes its tokens in blocks"
        if not case.assume.blocks_tokens:
            yield f"{name}, which the assumptions or the chip do not allow"
        if count > token_blocks.most_blocks(rows, least):
            yield f"{name}, {count} of {rows} rows, but each of these has at least {least}"
        for placed in (case.kernels[number] for number in case.members[place]):
            if not token_blocks.takes_blocks(placed.kernel):
                yield f"{name}, but kernel {placed.kernel.name!r} needs all tokens at once"
        for fan in case.fans:
            if fan.home == place:
                yield from (f"{name}, but {reason}" for reason in needed_at_once(case, fan))


def needed_at_once(case: Case, fan: Fan) -> Iterator[str]:
    """Sentences on why a tensor made in a partition cannot be read there by blocks of tokens."""
    source = case.kernels[fan.src].kernel
    count = token_blocks.tokens(source) if source.streamed == "n" else 0
    for reader in fan.consumers:
        kernel = case.kernels[reader.kernel].kernel
        if case.place(reader.kernel) != fan.home:
            continue
        if source.streamed == "n" and token_blocks.reads_whole(kernel, reader.operand):
            yield f"every token of {kernel.name!r} needs all of what {source.name!r} makes there"
        elif token_blocks.tokens(kernel) != count:
            yield f"{kernel.name!r} has not as many tokens as {source.name!r}, which it reads"
