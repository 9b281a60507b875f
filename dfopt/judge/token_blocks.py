"""Partitions that take their tokens in blocks: what they keep in SRAM, what they read again, and what cannot be.

The kernels of such a partition work through a block one after another. Tensors are in SRAM for two blocks. Weights, and
what every token needs all of, pass by in slices, for every block again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Literal

from dfopt.judge.case import Case, End, Fan, Place, Placed
from dfopt.judge.types import weight_word
from dfopt.physics import ops, token_blocks
from dfopt.physics.states import cache_traffic

Again = tuple[Place, Literal["weight", "cache", "tensor"], float, Fan | End | Placed]
"""A partition, and what each further block of its tokens reads from DRAM again: what it is, bytes, and of what."""


def whole_readers(case: Case, fan: Fan, place: Place) -> list[int]:
    """Kernels of a partition of which every token needs all of a fan."""
    if case.kernels[fan.src].kernel.streamed != "n":
        return []
    return [
        number
        for number in fan.readers
        if case.place(number) == place
        and any(_whole(case, number, reader.operand) for reader in fan.consumers if reader.kernel == number)
    ]


def _whole(case: Case, number: int, operand: int) -> bool:
    return token_blocks.reads_whole(case.kernels[number].kernel, operand)


def in_sram(case: Case) -> Iterator[tuple[Place, float]]:
    """Bytes that partitions keep in SRAM that take their tokens in blocks."""
    rows = ops.streamed_rows(case.graph)
    share = {place: token_blocks.block_share(rows, count) for place, count in case.token_blocks.items()}
    for fan in case.fans:
        source = case.kernels[fan.src].kernel
        for place in share.keys() & {fan.home, *fan.away}:
            whole = whole_readers(case, fan, place)
            if whole:
                yield place, 2 * fan.chip * token_blocks.row_share(source)
            readers = [reader for reader in fan.consumers if case.place(reader.kernel) == place]
            if place == fan.home or any(
                not (reader.kernel in whole and _whole(case, reader.kernel, reader.operand)) for reader in readers
            ):
                part = token_blocks.unmasked(source, 0) * share[place] if source.streamed == "n" else 1.0
                yield place, 2 * fan.chip * part
    for end in case.ends:
        place = case.place(end.kernel)
        if place in share:
            yield place, 2 * _of_end(case, end, share[place])
    for one in case.kernels:
        if one.place in share:
            degree, rules = case.plan.shards, case.assume.sharding_rules
            if one.at_once:
                row = token_blocks.slice_elements(one.kernel, one.sharding, degree, rules)
                yield one.place, 2 * row * weight_word(case.graph, one.kernel)
            yield one.place, one.adding


def _of_end(case: Case, end: End, share: float) -> float:
    """Bytes of an end in one block of tokens, or in one slice if every token needs all of it."""
    if end.carried is not None:
        source = case.kernels[end.carried].kernel
        return end.chip * (token_blocks.unmasked(source, 0) * share if source.streamed == "n" else 1.0)
    kernel = case.kernels[end.kernel].kernel
    if not end.write and token_blocks.reads_whole(kernel, end.operand):
        return end.chip * token_blocks.slice_share(kernel)
    has_tokens = not end.write or kernel.streamed == "n"
    return end.chip * (token_blocks.unmasked(kernel, end.operand) * share if has_tokens else 1.0)


def again(case: Case) -> Iterator[Again]:
    """What each further block of tokens of each partition reads from DRAM again."""
    for one in case.kernels:
        if one.place in case.token_blocks:
            if one.read:
                yield one.place, "weight", one.read, one
            read, _ = cache_traffic(one.kernel, one.sharding, case.plan.shards)
            if read:
                yield one.place, "cache", read, one
    for fan in case.fans:
        for place in case.token_blocks.keys() & {fan.home, *fan.away}:
            if whole_readers(case, fan, place):
                yield place, "tensor", fan.chip, fan
    for end in case.ends:
        if case.place(end.kernel) in case.token_blocks and _is_whole(case, end):
            yield case.place(end.kernel), "tensor", end.chip, end


def _is_whole(case: Case, end: End) -> bool:
    return not end.write and end.carried is None and _whole(case, end.kernel, end.operand)


def accessed_again(case: Case) -> dict[int, float]:
    """Bytes of SRAM that all further blocks of tokens read again, by kernel."""
    found: dict[int, float] = defaultdict(float)
    for number, one in enumerate(case.kernels):
        more = case.token_blocks.get(one.place, 1) - 1
        found[number] += more * (one.read + cache_traffic(one.kernel, one.sharding, case.plan.shards)[0])
    for fan in case.fans:
        for place, count in case.token_blocks.items():
            for number in whole_readers(case, fan, place):
                found[number] += (count - 1) * fan.chip
    for end in case.ends:
        if _is_whole(case, end):
            found[end.kernel] += (case.token_blocks.get(case.place(end.kernel), 1) - 1) * end.chip
    return found


def refused(case: Case) -> Iterator[str]:
    """Partitions that cannot take their tokens in blocks, or not in so many, one sentence for each reason."""
    rows, least = ops.streamed_rows(case.graph), case.assume.tile_rows or 1
    if case.assume.splits_tokens:
        least = max(least, case.plan.shards)
    for place, count in case.token_blocks.items():
        name = f"partition {place[1]} of stage {place[0]} takes its tokens in blocks"
        if not case.assume.blocks_tokens:
            yield f"{name}, which the assumptions or the chip do not allow"
        if count > token_blocks.most_blocks(rows, least):
            yield f"{name}, {count} of {rows} rows, but each of these has at least {least}"
        for one in (case.kernels[number] for number in case.members[place]):
            if not token_blocks.takes_blocks(one.kernel):
                yield f"{name}, but kernel {one.kernel.name!r} needs all tokens at once"
        for fan in case.fans:
            if fan.home == place:
                yield from (f"{name}, but {reason}" for reason in _at_once(case, fan))


def _at_once(case: Case, fan: Fan) -> Iterator[str]:
    """Why a fan that is made in a partition cannot be read there by blocks of tokens."""
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
