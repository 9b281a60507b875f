"""Streams of bursts in the patterns of kernels: whole rows, random transactions, round robins, strides, mixes."""

from __future__ import annotations

import itertools
import random as _random
from collections.abc import Iterator, Sequence

from dram_channel.policy import Request
from dram_channel.types import Organisation, refuse

__all__ = [
    "address_map",
    "interleaved_groups",
    "random_visits",
    "read_write",
    "round_robin",
    "sequential_rows",
    "stride",
    "take_turns",
]

_FIELDS = ("ch", "ra", "bg", "ba", "ro", "co")


def take_turns(organisation: Organisation, count: int | None = None, first: int = 0) -> list[int]:
    """Banks in an order in which neighbours are in different bank groups.

    Examples
    --------
    >>> take_turns(Organisation(bank_groups=2, banks_per_group=2))
    [0, 2, 1, 3]
    """
    count = organisation.banks if count is None else count
    if not 0 < first + count <= organisation.banks:
        refuse("pattern", "banks", first + count, f"1 to {organisation.banks} banks")
    groups, each = organisation.bank_groups, organisation.banks_per_group
    return [(i % groups) * each + i // groups % each for i in range(first, first + count)]


def sequential_rows(organisation: Organisation, rows: int, banks: Sequence[int] | None = None) -> Iterator[Request]:
    """Whole rows, one bank after the other, then the next row, without end."""
    banks = take_turns(organisation) if banks is None else banks
    return round_robin(organisation, rows, organisation.bursts_per_row, banks)


def round_robin(organisation: Organisation, rows: int, u: int, banks: Sequence[int]) -> Iterator[Request]:
    """Visit ``banks`` in turn, ``u`` bursts from column 0 of a new row at each visit, without end.

    Examples
    --------
    >>> [tuple(r) for r in itertools.islice(round_robin(Organisation(), 8, 2, [0, 4]), 5)]
    [(0, 0, 0, False), (0, 0, 1, False), (4, 0, 0, False), (4, 0, 1, False), (0, 1, 0, False)]
    """
    for visit in itertools.count():
        for bank in banks:
            for column in range(u):
                yield Request(bank, visit % rows, column)


def random_visits(organisation: Organisation, rows: int, u: int, seed: int = 7) -> Iterator[Request]:
    """A random bank, row and aligned start column, then ``u`` bursts, without end; the same for the same seed."""
    draw = _random.Random(seed)
    starts, turns = max(1, organisation.bursts_per_row // u), take_turns(organisation)
    while True:
        bank, row, start = turns[draw.randrange(len(turns))], draw.randrange(rows), draw.randrange(starts) * u
        for column in range(start, start + u):
            yield Request(bank, row, column)


def read_write(organisation: Organisation, rows: int, reads: int, writes: int) -> Iterator[Request]:
    """``reads`` reads, then ``writes`` writes, and again: each a stream of whole rows over its half of the banks."""
    half = max(1, organisation.banks // 2)
    upper = take_turns(organisation, organisation.banks - half, half) if organisation.banks > 1 else [0]
    read = sequential_rows(organisation, rows, take_turns(organisation, half))
    write = sequential_rows(organisation, rows, upper)
    while True:
        yield from itertools.islice(read, reads)
        for request in itertools.islice(write, writes):
            yield request._replace(write=True)


def address_map(organisation: Organisation, rows: int, order: str) -> dict[str, tuple[int, int]]:
    """Where each field of a byte address lies: (lowest bit, number of values).

    Parameters
    ----------
    order : str
        The six fields ch, ra, bg, ba, ro, co from the most to the least significant, such as "rorabgbachco".

    Raises
    ------
    SystemSpecError
        Another set of fields, or a size that is not a power of two.

    Examples
    --------
    >>> address_map(Organisation(), 32768, "rorabgbachco")["ba"]
    (11, 4)
    """
    parts = [order[i : i + 2] for i in range(0, len(order), 2)]
    if sorted(parts) != sorted(_FIELDS):
        refuse("pattern", "address_mapping", repr(order), f"each of {', '.join(_FIELDS)} once")
    sizes = {
        "ch": 1, "ra": 1, "bg": organisation.bank_groups, "ba": organisation.banks_per_group,
        "ro": rows, "co": organisation.bursts_per_row,
    }  # fmt: skip
    for name, size in (*sizes.items(), ("burst_bytes", organisation.burst_bytes)):
        if size < 1 or size & (size - 1):
            refuse("pattern", name, size, "a power of two, as bits of an address are")
    found, low = {}, organisation.burst_bytes.bit_length() - 1
    for name in reversed(parts):
        found[name] = (low, sizes[name])
        low += sizes[name].bit_length() - 1
    return found


def stride(organisation: Organisation, rows: int, step: int, order: str = "rorabgbachco") -> Iterator[Request]:
    """Byte addresses 0, step, 2 step, ... through an address map, without end."""
    fields = address_map(organisation, rows, order)
    (bg, groups), (ba, banks), (ro, _), (co, columns) = (fields[name] for name in ("bg", "ba", "ro", "co"))
    for address in itertools.count(0, step):
        bank = (address >> bg & groups - 1) * banks + (address >> ba & banks - 1)
        yield Request(bank, address >> ro & rows - 1, address >> co & columns - 1)


def interleaved_groups(organisation: Organisation, rows: int) -> Iterator[Request]:
    """Neighbouring bursts in different bank groups, in rows that stay open until they are read to the end."""
    each = organisation.banks_per_group
    for row in itertools.count():
        for bank in range(each):
            for column in range(organisation.bursts_per_row):
                for group in range(organisation.bank_groups):
                    yield Request(group * each + bank, row % rows, column)
