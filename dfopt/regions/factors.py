"""Seconds of each resource that a stage takes at least, as factors: amounts that the options of a few kernels decide.

A charge of the table is paid by blocks. Which blocks there are is open here. Kernels of two *sides* share no block
(:func:`dfopt.fusion.partitioning.sides`), so what the kernels of a side pay at least, however they are cut into blocks,
adds up over sides.

Suffixes: k kernel, o option, r resource, c charge.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np

from dfopt.arrays import Floats, Ints
from dfopt.terms.blocks import IN_PARTS, Blocks
from dfopt.terms.charges import Charge
from dfopt.terms.chip import ChipModel
from dfopt.terms.counting import single_kernels
from dfopt.terms.incidence import AnyOf, Crosses, Exactly, Has, Incidence
from dfopt.terms.layer import Layer
from dfopt.terms.table import Domain, Table, amounts_left
from dfopt.terms.token_blocks import token_rows

OF_SECONDS: Final = ("compute_s", "dram_bytes", "network_s", "sram_traffic_bytes")
"""Resources of charges that a stage has seconds of."""
MOST_APART: Final = 8
"""Of more kernels that pay by which of them share a block, only the block of the first one is charged: 3^8 sums."""


@dataclass(frozen=True, eq=False)
class SideFactor:
    """A factor: seconds of a resource that the blocks of a side take at least.

    Attributes
    ----------
    side : int
        Index of the resource; -1 for a factor that is infinite where options exclude each other in any blocks.
    resource : int
        Place among :attr:`dfopt.terms.chip.ChipModel.resources`.
    scope : tuple of int
        Kernels whose options decide the seconds.
    amount : float array, s
        An axis for each kernel of the scope, over its options that are left.
    """

    side: int
    resource: int
    scope: tuple[int, ...]
    amount: Floats


def least_by_side(incidence: Incidence, side_k: Ints) -> dict[int, float]:
    """Least number of times that the blocks of each side pay an incidence, over all partitionings.

    Parameters
    ----------
    incidence
        Incidence of a charge. ``Inside`` has no count, as blocks may go without it; neither has ``Exactly``, as the
        costs of blocks then depend on the way in which kernels are cut into blocks: :func:`least_of_sets`.
    side_k : int array, shape (kernels,)
        Side of each kernel: kernels of two sides share no block. Negative for kernels that are in no block here.

    Returns
    -------
    dict of float by int
        Least counts above 0, by side.

    Examples
    --------
    A tensor of kernel 0 with readers in its own side and another one is stored in the first and read in the second:

    >>> least_by_side(Crosses(0, (1, 2)), np.array([0, 0, 1]))
    {0: 1.0, 1: 1.0}
    """
    sides = side_k.tolist()
    match incidence:
        case Has(kernel):
            payers = [kernel]
        case AnyOf(kernels):
            payers = [*kernels]
        case Crosses(source, readers):
            others = [reader for reader in readers if sides[reader] != sides[source]]
            payers = [source, *others] if others else []
        case _:
            payers = []
    return {side: 1.0 for side in sorted({sides[kernel] for kernel in payers}) if side >= 0}


def least_of_sets(amount_of: Mapping[frozenset[int], Floats], kernels: Collection[int]) -> Floats | None:
    """Least total that blocks pay for some kernels, where the price depends on which of them a block holds.

    Parameters
    ----------
    amount_of : mapping from set of int to float array
        By set of kernels, the price of a block that holds exactly these of them, by options; all arrays of one shape.
        Sets that are left out cost nothing.
    kernels : collection of int
        Kernels on which the price depends.

    Returns
    -------
    float array or None
        The least over all ways to cut the kernels into blocks, for each vector of options by itself. None: nothing.

    Examples
    --------
    >>> least_of_sets({frozenset({0}): np.array([1.0]), frozenset({1}): np.array([2.0]),
    ...                frozenset({0, 1}): np.array([2.5])}, (0, 1))
    array([2.5])
    """
    least_of: dict[tuple[int, ...], Floats | None] = {(): None}

    def least(kernels: tuple[int, ...]) -> Floats | None:
        if kernels not in least_of:
            first, *rest = kernels
            paid = list[list[Floats | None]]()
            for size in range(len(kernels)):
                for some in combinations(rest, size):
                    others = tuple(k for k in rest if k not in some) if len(rest) < MOST_APART else ()
                    paid.append([amount_of.get(frozenset((first, *some))), least(others)])
            summands = [[each for each in terms if each is not None] for terms in paid]
            least_of[kernels] = np.min([np.sum(terms, axis=0) for terms in summands], axis=0) if all(summands) else None
        return least_of[kernels]

    return least(tuple(sorted(kernels)))


def parts_of_sides(
    layer: Layer,
    table: Table,
    domain: Domain,
    side_k: Ints,
    chip: ChipModel,
    counts: Callable[[Incidence], Mapping[int, float]],
) -> list[SideFactor]:
    """All factors of the sides of a layer, over the remaining options.

    Parameters
    ----------
    layer, table : Layer, Table
        The layer at some number of tiles, and its charges, without those of bytes in memory.
    domain : Domain
        Indices of the remaining options of every kernel.
    side_k : int array, shape (kernels,)
        Side of each kernel: kernels of two sides share no block. Negative for kernels that are in no block here.
    chip : ChipModel
        Limits and rates, as bounds see them.
    counts : callable
        Function from an incidence to the least number of times that the blocks of each side pay it, such as
        :func:`least_by_side`.
    """
    parts = list(parts_of_charges(table, domain, side_k, chip, counts))
    if layer.by_cycles:
        parts += _of_cycles(layer, domain, side_k, chip)
    return [*parts, *_read_again(table, domain, side_k, chip, token_rows(layer) is not None)]


def parts_of_charges(
    table: Table, domain: Domain, side_k: Ints, chip: ChipModel, counts: Callable[[Incidence], Mapping[int, float]]
) -> Iterator[SideFactor]:
    """The factors that charges give for each side, over the remaining options; see :func:`parts_of_sides`."""
    units = (
        ("compute", 1.0),
        ("memory", 1.0 / chip.dram_bandwidth),
        ("network", 1.0),
        ("sram", 1.0 / chip.sram_bandwidth),
    )
    unit_of = dict(zip(OF_SECONDS, units, strict=True))
    paid: dict[Incidence, Mapping[int, float]] = {}
    by_sets: dict[tuple[str, float, tuple[int, ...]], list[Charge]] = {}
    for charge in table.charges:
        if charge.resource == "legal":
            yield SideFactor(-1, 0, charge.scope, amounts_left(charge, domain))
            continue
        name, unit = unit_of.get(charge.resource, ("", 0.0))
        if not unit:
            continue
        if isinstance(charge.incidence, Exactly):
            by_sets.setdefault((name, unit, charge.incidence.kernels), []).append(charge)
            continue
        if charge.incidence not in paid:
            paid[charge.incidence] = counts(charge.incidence)
        for side, times in paid[charge.incidence].items():
            yield SideFactor(
                side, chip.resources.index(name), charge.scope, amounts_left(charge, domain) * (unit * times)
            )
    for (name, unit, kernels), charges in by_sets.items():
        scope, amount_of = _amounts_of_sets(charges, domain, side_k)
        for side in sorted(set(side_k[list(kernels)].tolist())):
            least = least_of_sets(amount_of, [k for k in kernels if side_k[k] == side])
            if side >= 0 and least is not None:
                yield SideFactor(side, chip.resources.index(name), scope, least * unit)


def _amounts_of_sets(
    charges: Sequence[Charge], domain: Domain, side_k: Ints
) -> tuple[tuple[int, ...], dict[frozenset[int], Floats]]:
    """What a block pays by which of a few kernels it holds, and the scope of these amounts."""
    scope = tuple(sorted({k for charge in charges for k in charge.scope}))
    amount_of: dict[frozenset[int], Floats] = {}
    for charge in charges:
        assert isinstance(charge.incidence, Exactly)
        held = frozenset(k for k, here in zip(charge.incidence.kernels, charge.incidence.held, strict=True) if here)
        shape = [len(domain[k]) if k in charge.scope else 1 for k in scope]
        amount = amounts_left(charge, domain).reshape(shape) if any(side_k[k] >= 0 for k in held) else np.zeros(1)
        full_amount = np.broadcast_to(amount, [len(domain[k]) for k in scope])
        amount_of[held] = amount_of[held] + full_amount if held in amount_of else full_amount
    return scope, amount_of


def _of_cycles(layer: Layer, domain: Domain, side_k: Ints, chip: ChipModel) -> Iterator[SideFactor]:
    """Compute seconds of the whole chip under the cycle model, at least."""
    for k in np.flatnonzero(side_k >= 0).tolist():
        ways_o = (layer.menus_ko[k][o] for o in domain[k])
        seconds_o = np.array([(used * s).min() for used, s in ways_o]) / chip.tiles
        yield SideFactor(int(side_k[k]), chip.resources.index("compute"), (k,), seconds_o)


def _read_again(
    table: Table, domain: Domain, side_k: Ints, chip: ChipModel, token_blocks: bool
) -> Iterator[SideFactor]:
    """What kernels that always run alone move again, for each further part that their weight is cut into."""
    if not chip.cuts_weights or token_blocks:  # in blocks of tokens a weight is never cut
        return
    few = table.of_resources(IN_PARTS)  # which say in how many parts a kernel alone has its weight
    heavy = {k for charge in few.charges if charge.resource == "stationary_bytes" for k in charge.scope}
    alone = np.bincount(side_k[side_k >= 0], minlength=1) == 1
    kernels = [k for k in sorted(heavy) if side_k[k] >= 0 and alone[side_k[k]]]
    if not kernels:
        return
    least_c, memory, counting = few.least(domain), chip.resources.index("memory"), single_kernels(len(side_k))
    blocks = Blocks(few, chip, counting.member_bk, shared_counting=counting)
    least_vc = np.concatenate([few.least_by_option(domain, least_c, k) for k in kernels])
    parts_vk = blocks.parts(least_vc)
    again_vk = blocks.moved_again(least_vc, parts_vk) / chip.dram_bandwidth
    ends = np.cumsum([len(domain[k]) for k in kernels])[:-1]
    for k, parts_ok, again_ok in zip(kernels, np.split(parts_vk, ends), np.split(again_vk, ends), strict=True):
        if np.isinf(parts_ok[:, k]).any():
            yield SideFactor(-1, 0, (k,), np.where(np.isinf(parts_ok[:, k]), np.inf, 0.0))
        if again_ok[:, k].any():
            yield SideFactor(int(side_k[k]), memory, (k,), again_ok[:, k])
