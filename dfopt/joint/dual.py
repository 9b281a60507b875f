"""What a stage takes at least by each resource for itself: a Lagrangean dual, found by eliminating kernels.

Kernels of two *sides* share no block: passes, or kernels that always run alone. A stage takes no less than the sum over
its sides s of the largest of some sums R_sq of resources q: all compute, all DRAM traffic that no partitioning avoids,
with the communication that adds to either. For any weights w_sq >= 0 that add up to 1 in every side

    T  >=  sum_s max_q R_sq(z)  >=  sum_s,q w_sq R_sq(z)    for every vector z of options,

and the least of the right side over all vectors is exact by elimination (:mod:`dfopt.terms.elimination`). The first
weights are on what is largest anyway. The vector that is met says which sums are largest under it; the next weights are
the best for the last two vectors that were met. One or two eliminations mostly do, as one resource decides in a side.

Suffixes: k kernel, o option, s side, q sum, r resource, c charge.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dfopt.arrays import Bools, Floats, Ints
from dfopt.fusion.blocks import StageTables
from dfopt.fusion.partitioning import IntraChipLimits, sides_among
from dfopt.joint.menu import Menu
from dfopt.terms.blocks import Blocks
from dfopt.terms.chip import Chip
from dfopt.terms.elimination import Elimination, Factor, eliminated
from dfopt.terms.incidence import AnyOf, Crosses, Exactly, Has, Incidence
from dfopt.terms.table import Domain, Table, amounts_left

__all__ = ["Dual", "between", "least_by_side", "resource_dual", "stage_dual"]

ROUNDS: Final = 5
"""Most eliminations for one dual: later ones add little."""
CLOSE: Final = 1e-4
"""Share of the dual's value that better weights could add at most where it ends: far below what bounds leave open."""
HIDDEN: Final = 1e-3
"""Weight of what is hidden where options are taken: it decides between those that are as good otherwise."""


@dataclass(frozen=True, eq=False)
class Dual:
    """A bound on the seconds of a stage, and options that are good by the same measure.

    Attributes
    ----------
    seconds : s
        No mapping of the stage takes less in one evaluation. Infinite where no options can be together.
    elimination : Elimination
        With the best weights. Its marginals say what a stage takes at least with each option that is left.
    options_k : int array, shape (kernels,)
        Of all options of each kernel, the place of one: the best where what is largest anyway counts, and of those the
        ones with less work, as what is hidden counts a little.
    """

    seconds: float
    elimination: Elimination
    options_k: Ints


def least_by_side(incidence: Incidence, side_k: Ints) -> dict[int, float]:
    """How often the blocks of each side pay an incidence at least, however the kernels are cut into blocks.

    Parameters
    ----------
    incidence
        Of a charge. One that some blocks may go without is not in the result, such as ``Inside``.
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
    match incidence:
        case Has(kernel):
            payers = {int(side_k[kernel])}
        case AnyOf(kernels):
            payers = {int(side_k[kernel]) for kernel in kernels}
        case Crosses(source, readers):
            others = {int(side_k[reader]) for reader in readers} - {int(side_k[source])}
            payers = {int(side_k[source]), *others} if others else set()
        case Exactly(kernels, held):
            inside = [int(side_k[kernel]) for kernel, here in zip(kernels, held, strict=True) if here]
            outside = {int(side_k[kernel]) for kernel, here in zip(kernels, held, strict=True) if not here}
            payers = {*inside} if len(inside) == 1 and not outside & {*inside} else set()
        case _:
            payers = set()
    return {side: 1.0 for side in sorted(payers) if side >= 0}


def stage_dual(
    menu: Menu,
    allowed_o: Bools,
    tables: StageTables,
    limits: IntraChipLimits,
    members: Ints,
    weighed_o: Floats | None = None,
) -> Dual:
    """The dual of a stage with the options of a menu that are left.

    Parameters
    ----------
    menu : Menu
        Figures of all options.
    allowed_o : bool array
        Options that are left.
    tables, limits : StageTables, IntraChipLimits
        The stage, every figure at its least over those options.
    members : int array
        Kernels of the stage.
    weighed_o : float array, optional
        Seconds of one evaluation that the gradient of every option is worth; what is beside the least counts too.
    """
    tiles = tables.sharded.tile_count
    layer, table = menu.figures.layer.at(tiles), menu.of_blocks(tiles)
    side_k = sides_among(tables, limits.forward_backward, members, len(layer.kernels))
    compute_ko = None
    if layer.by_cycles:
        compute_ko = [
            np.array([(used * s).min() for used, s in ways_o]) / tables.chip.tiles for ways_o in layer.menus_ko
        ]
    domain, extra_ko = menu.domain_of(allowed_o), None
    if weighed_o is not None and weighed_o.any():
        beside_o = menu.beyond(weighed_o, allowed_o)
        inside = set(members.tolist())
        extra_ko = [beside_o[of[allowed_o[of]]] * (k in inside) for k, of in enumerate(menu.tables.of_kernel)]
    return resource_dual(table, domain, side_k, tables.chip, compute_ko, extra_ko)


def resource_dual(
    table: Table,
    domain: Domain,
    side_k: Ints,
    chip: Chip,
    compute_ko: Sequence[Floats] | None = None,
    extra_ko: Sequence[Floats] | None = None,
) -> Dual:
    """The dual of a stage with the options that are left.

    Parameters
    ----------
    table : Table
        Charges of the layer.
    domain : Domain
        Options that are left.
    side_k : int array, shape (kernels,)
        Side of each kernel of the stage, from 0; negative for all other kernels of the layer.
    chip : Chip
        Its rates, without :attr:`~dfopt.terms.chip.Chip.memory_rows`, and which resources hide behind each other.
    compute_ko : sequence of float array, shape (options,), optional
        By kernel, seconds of the whole chip at least for each option, where the table's amounts of ``compute_s`` do not
        say it: under the cycle model.
    extra_ko : sequence of float array, shape (options,), optional
        By kernel, seconds that each option of the domain adds whatever hides.
    """
    sizes, sums = [len(options) for options in domain], chip.rule.sums
    parts = list(_parts(table, domain, side_k, chip, compute_ko))
    fixed: list[Factor] = [((k,), extra) for k, extra in enumerate(extra_ko or ()) if extra.any()]
    fixed += [(part.scope, part.amount) for part in parts if part.side < 0]
    parts = [part for part in parts if part.side >= 0]
    of_sums = np.array([[r in together for r in range(len(chip.resources))] for together in sums], dtype=float)
    least_sr = np.zeros((int(side_k.max(initial=-1)) + 1, len(chip.resources)))
    for part in parts:
        least_sr[part.side, part.resource] += part.amount.min()
    first_sq, met = _largest(least_sr @ of_sums.T), list[Floats]()
    best, weight_sq = None, first_sq
    for _ in range(ROUNDS):
        found = eliminated([*fixed, *_weighted(parts, weight_sq @ of_sums)], sizes)
        if best is None or found.least > best.least:
            best = found
        if not np.isfinite(found.least) or len(sums) == 1:
            break
        met_sr = np.zeros_like(least_sr)
        for part in parts:
            met_sr[part.side, part.resource] += part.amount[tuple(found.options_k[list(part.scope)])]
        met_sq = met_sr @ of_sums.T
        if met_sq.max(axis=1).sum() - (met_sq * weight_sq).sum() <= CLOSE * best.least:  # nothing hides behind more
            break
        met.append(met_sq)
        weight_sq = _largest(met_sq) if len(met) == 1 else between(*met[-2:])
    assert best is not None
    if len(sums) > 1 and np.isfinite(best.least):
        found = eliminated([*fixed, *_weighted(parts, (first_sq + HIDDEN) @ of_sums)], sizes)
    options = [left[option] for left, option in zip(domain, found.options_k.tolist(), strict=True)]
    return Dual(best.least, best, np.array(options, dtype=np.int64))


def _weighted(parts: Iterable[_Part], weight_sr: Floats) -> Iterator[Factor]:
    """Amounts of the resources of all sides that have any weight."""
    for part in parts:
        if (weight := float(weight_sr[part.side, part.resource])) > 0:
            yield part.scope, part.amount * weight


def _largest(met_sq: Floats) -> Floats:
    """All weight of each side on its largest sum."""
    return np.asarray(np.eye(met_sq.shape[1])[met_sq.argmax(axis=1)])


def between(one_sq: Floats, other_sq: Floats) -> Floats:
    """The best weights for two vectors of options: the least of their weighted sums is as large as it can be.

    With a share t of one vector and 1 - t of the other, the largest sums of all sides come to a convex function of t
    that bends where two sums of a side are equal. At its least the sums of one side change places there: their weights
    are such that both vectors have the same weighted sum, as far as that is possible.

    Parameters
    ----------
    one_sq, other_sq : float array, shape (sides, sums), s
        What each vector comes to.

    Returns
    -------
    float array, shape (sides, sums)
        They add up to 1 in every side.
    """
    apart_sq = one_sq - other_sq
    left, right = np.triu_indices(one_sq.shape[1], 1)
    rate = apart_sq[:, left] - apart_sq[:, right]
    with np.errstate(divide="ignore", invalid="ignore"):
        bends = (other_sq[:, right] - other_sq[:, left]) / rate
    shares = np.unique(np.concatenate([bends[(bends > 0) & (bends < 1)], [0.0, 1.0]]))
    totals = (other_sq + shares[:, None, None] * apart_sq).max(axis=2).sum(axis=1)
    share = float(shares[totals.argmin()])
    step = 1e-9
    low_sq, high_sq = (_largest(other_sq + at * apart_sq) for at in (share - step, share + step))
    slope, change = float((low_sq * apart_sq).sum()), float(((high_sq - low_sq) * apart_sq).sum())
    part = min(max(-slope / change, 0.0), 1.0) if change > 0 else 0.5
    return low_sq + part * (high_sq - low_sq)


@dataclass(frozen=True, eq=False)
class _Part:
    """Seconds of a resource that the blocks of a side take at least; side -1: what options cannot be together."""

    side: int
    resource: int
    scope: tuple[int, ...]
    amount: Floats


def _parts(
    table: Table, domain: Domain, side_k: Ints, chip: Chip, compute_ko: Sequence[Floats] | None
) -> Iterator[_Part]:
    """What charges say of each side, with the options that are left."""
    unit_of = {
        "compute_s": ("compute", 1.0),
        "dram_bytes": ("memory", 1.0 / chip.dram_bandwidth),
        "network_s": ("network", 1.0),
        "sram_traffic_bytes": ("sram", 1.0 / chip.sram_bandwidth),
    }
    paid: dict[Incidence, dict[int, float]] = {}
    for charge in table.charges:
        if charge.resource == "legal":
            yield _Part(-1, 0, charge.scope, amounts_left(charge, domain))
            continue
        name, unit = unit_of.get(charge.resource, ("", 0.0))
        if not unit or (name == "compute" and compute_ko is not None):
            continue
        if charge.incidence not in paid:
            paid[charge.incidence] = least_by_side(charge.incidence, side_k)
        for side, times in paid[charge.incidence].items():
            yield _Part(side, chip.resources.index(name), charge.scope, amounts_left(charge, domain) * (unit * times))
    for k, compute_o in enumerate(compute_ko or ()):
        if side_k[k] >= 0:
            yield _Part(int(side_k[k]), chip.resources.index("compute"), (k,), compute_o[list(domain[k])])
    yield from _read_again(table, domain, side_k, chip)


def _read_again(table: Table, domain: Domain, side_k: Ints, chip: Chip) -> Iterator[_Part]:
    """What kernels that always run alone move again, for each further part that their weight is cut into."""
    if not chip.cuts_weights:
        return
    least_c, memory = table.least(domain), chip.resources.index("memory")
    blocks = Blocks(table, chip, np.eye(len(side_k), dtype=bool))
    alone = np.bincount(side_k[side_k >= 0], minlength=1) == 1
    heavy = {k for charge in table.charges if charge.resource == "stationary_bytes" for k in charge.scope}
    for k in sorted(heavy):
        if side_k[k] < 0 or not alone[side_k[k]]:
            continue
        least_oc = table.least_by_option(domain, least_c, k)
        parts_ok = blocks.parts(least_oc)
        again_o = blocks.moved_again(least_oc, parts_ok)[:, k] / chip.dram_bandwidth
        yield _Part(-1, 0, (k,), np.where(np.isinf(parts_ok[:, k]), np.inf, 0.0))
        if again_o.any():
            yield _Part(int(side_k[k]), memory, (k,), again_o)
