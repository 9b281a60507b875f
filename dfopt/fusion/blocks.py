"""Price blocks of kernels exactly: what a set of kernels costs when it runs as one on-chip partition.

A block's cost depends on the block alone, so many are priced at once from a membership matrix.
A tensor end outside the stage (another pipeline stage) is the virtual kernel ``n``, a member of no block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dfopt.arrays import LEAST_DIVISOR, ROUNDING, Bools, Floats, Ints
from dfopt.errors import Infeasible
from dfopt.fusion import library
from dfopt.fusion.adding import added
from dfopt.terms.blocks import BlockPrices
from dfopt.terms.chip import CROSSING_TILES, ChipModel, combine
from dfopt.terms.cycle import least_level, tiles_for
from dfopt.terms.sharded_graph import ShardedGraph
from dfopt.terms.sram import keeps_chip, parts_of

_OF_KERNELS, _OF_TENSORS = ([f.name for f in fields(ShardedGraph) if f.name.endswith(end)] for end in ("_k", "_t"))
_LOT = 64  # blocks that are given by their kernels and priced together


@dataclass(frozen=True)
class StageTables:
    """The kernels of a stage with figures derived from their sharding and the chip.

    Attributes
    ----------
    sharded : ShardedGraph
        Kernels of the stage; tensor ends outside it are ``len(names)``.
    parts_k : int
        Parts that a kernel's weight, and with it its output, is cut into; above 1 it must be alone.
    sram_k : float
        SRAM bytes of a kernel without the buffers of its tensors; for a kernel with its weight in parts, less the bytes
        that its output buffers save.
    mem_k : float
        DRAM bytes per kernel, re-read inputs of weight-tiled kernels included.
    steady_rk : float
        Seconds of each kernel by further resource of the chip, the same in every block; see `RESOURCES`.
    width_g : int
        Tensors in each fan-out group.
    more_k : float
        Lower bound on the DRAM bytes that a kernel adds to a set of kernels in addition to `sharded.mem_k`: bytes read
        again because its weight is in parts, or because tokens are taken in blocks.
    single_k : bool
        Whether the kernel is alone in its partition however it runs.
    latency_l, tiles_kl : float, int
        Under the cycle model the distinct latencies, ascending, and the fewest compute tiles with which
        each kernel reaches them; empty under the others.
    """

    sharded: ShardedGraph
    chip: ChipModel
    parts_k: Ints
    sram_k: Floats
    mem_k: Floats
    steady_rk: Floats
    src_g: Ints
    bytes_g: Floats
    moved_g: Floats
    tile_g: Floats
    width_g: Ints
    latency_l: Floats
    tiles_kl: Ints
    more_k: Floats
    single_k: Bools

    @property
    def kernels(self) -> int:
        """Number of kernels."""
        return len(self.sharded.names)


def restrict(sharded: ShardedGraph, members: Ints) -> ShardedGraph:
    """The part of a sharded graph in one stage; tensor ends elsewhere become the virtual kernel ``len(names)``."""
    count = len(members)
    if count == len(sharded.names):
        return sharded
    place = np.full(len(sharded.names) + 1, count, dtype=np.int64)
    place[members] = np.arange(count)
    src, dst = place[sharded.src_t], place[sharded.dst_t]
    here = (src < count) | (dst < count)
    # numbered as they come up, so that without shared tensors a group still is its tensor
    _, first, groups = np.unique(sharded.group_t[here], return_index=True, return_inverse=True)
    groups = np.argsort(np.argsort(first))[groups]
    per_k = {name: getattr(sharded, name)[members] for name in _OF_KERNELS}
    per_t = {name: getattr(sharded, name)[here] for name in _OF_TENSORS}
    payers_xk = sharded.payers_xk[:, members]
    some = payers_xk.any(axis=1)
    return replace(
        sharded,
        names=tuple(sharded.names[k] for k in members),
        menus=tuple(sharded.menus[k] for k in members) if sharded.menus else (),
        toll_x=sharded.toll_x[some],
        sent_x=sharded.sent_x[some],
        payers_xk=payers_xk[some],
        token_charges=None if sharded.token_charges is None else sharded.token_charges.part(members),
        **per_k,
        **per_t | {"src_t": src[here], "dst_t": dst[here], "group_t": groups},
    )


def part_of(tables: StageTables, members: Ints) -> StageTables:
    """The tables of some kernels of a stage; their blocks cost the same as in the whole stage."""
    if len(members) == tables.kernels:
        return tables
    sharded = restrict(tables.sharded, members)
    return replace(
        tables,
        sharded=sharded,
        tiles_kl=tables.tiles_kl[members] if sharded.menus else tables.tiles_kl,
        **{name: getattr(tables, name)[members] for name in ("parts_k", "sram_k", "mem_k", "more_k", "single_k")},
        **derived(sharded, tables.chip),
    )


def derived(sharded: ShardedGraph, chip: ChipModel) -> dict[str, Any]:
    """Fields of :class:`StageTables` that follow from sharded graph and chip: fan-out groups and steady resources."""
    width_g = np.bincount(sharded.group_t).astype(np.int64)
    src_g, (bytes_g, moved_g, tile_g) = np.zeros_like(width_g), np.zeros((3, len(width_g)))
    src_g[sharded.group_t], moved_g[sharded.group_t] = sharded.src_t, sharded.moved_t
    bytes_g[sharded.group_t], tile_g[sharded.group_t] = sharded.b_t, sharded.tile_t
    steady = [sharded.sram_traffic_k / chip.sram_bandwidth] if "sram" in chip.resources else []
    steady_rk = np.array(steady).reshape(len(steady), len(sharded.names))
    sizes = {"bytes_g": bytes_g, "moved_g": moved_g, "tile_g": tile_g}
    return {"src_g": src_g, **sizes, "width_g": width_g, "steady_rk": steady_rk}


def stage_tables(sharded: ShardedGraph, chip: ChipModel) -> StageTables:
    """Build the tables of a stage: its kernels on a chip, with weight tiling and fan-out groups.

    Raises
    ------
    Infeasible
        If a kernel does not fit the chip even alone, with its weight in parts.
    """
    latency_l, tiles_kl = _tiles_table(sharded.menus, chip.tiles)
    tables = StageTables(
        sharded=sharded,
        chip=chip,
        parts_k=np.ones(len(sharded.names), dtype=np.int64),
        sram_k=sharded.stationary_k + sharded.fixed_buffer_k,
        mem_k=sharded.mem_k,
        more_k=np.zeros(len(sharded.names)),
        single_k=np.zeros(len(sharded.names), dtype=bool),
        latency_l=latency_l,
        tiles_kl=tiles_kl,
        **derived(sharded, chip),
    )
    held = replace(tables, sharded=replace(sharded, token_charges=None))
    alone = price_each(held, singles(tables))
    oversized = alone.sram_bytes > chip.sram * (1 + ROUNDING)
    if not oversized.any():
        return tables
    outputs = 2.0 * np.bincount(tables.src_g, weights=tables.tile_g, minlength=len(sharded.names) + 1)[:-1]
    cut = np.where(sharded.stationary_k > 0, sharded.stationary_k + outputs, 0.0)
    parts_k = parts_of(chip, alone.sram_bytes - cut, cut)
    # beside its neighbours a kernel of a library needs less: then those that cannot be cut may fit
    hopeless = np.isinf(parts_k) | (oversized & (parts_k == 1) & (not chip.library))
    takes_blocks, again_k = _in_token_blocks(tables)
    if (hopeless & ~takes_blocks).any():
        raise Infeasible(_too_large(sharded, chip, alone.sram_bytes, alone.sram_bytes - cut, hopeless))
    parts = np.where(hopeless, 1.0, parts_k).astype(np.int64)  # what is hopeless does not fit in one part either
    more_k = (parts - 1) * sharded.again_k
    mem_k, single_k = sharded.mem_k + more_k, (parts > 1) & ~takes_blocks
    more_k = np.minimum(np.where(hopeless, np.inf, more_k), again_k)
    in_parts = sharded.fixed_buffer_k + cut / parts - outputs
    sram_k = np.where(parts > 1, in_parts, tables.sram_k)
    return replace(tables, parts_k=parts, sram_k=sram_k, mem_k=mem_k, more_k=more_k, single_k=single_k)


def _in_token_blocks(tables: StageTables) -> tuple[Bools, Floats]:
    """Whether each kernel alone can take its tokens in blocks, and the DRAM bytes that it reads again then at least.

    Any block with it takes no fewer blocks of tokens, and reads its weight again for each.
    """
    charges = tables.sharded.token_charges
    if charges is None:
        return np.zeros(tables.kernels, dtype=bool), np.full(tables.kernels, np.inf)
    needs = charges.needs(tables.chip, np.eye(tables.kernels, dtype=bool))
    return needs.legal, np.where(needs.legal, (needs.blocks - 1) * charges.own_again_k, np.inf)


def _too_large(sharded: ShardedGraph, chip: ChipModel, need: Floats, buffers: Floats, hopeless: Bools) -> str:
    worst = int(np.argmax(np.where(hopeless, need, 0.0)))
    allowed = ", weight_tiling allowed" * (not chip.cuts_weights)
    return (
        f"kernel {sharded.names[worst]!r} alone needs {need[worst] / 1e6:.4g} MB of SRAM (weights"
        f" {sharded.stationary_k[worst] / 1e6:.4g} MB, buffers {buffers[worst] / 1e6:.4g} MB), the chip has"
        f" {chip.sram / 1e6:.4g} MB: short by {(need[worst] - chip.sram) / 1e6:.4g} MB; levers: a larger"
        " tensor-parallel degree, a smaller microbatch or tile_rows" + allowed
    )


def price_blocks(tables: StageTables, member: Bools) -> BlockPrices:
    """Price blocks of kernels, given as a membership matrix of shape (blocks, kernels).

    A block is legal when it fits SRAM and tiles, a weight-tiled kernel is alone in it, and the chip runs all at once.
    Where it may take its tokens in blocks, it does so if that is faster, or if it is not legal otherwise.
    """
    held = holding(tables, member)
    blocks = np.flatnonzero(may_take_blocks(tables, member, held))
    return held.faster(in_token_blocks(tables, member[blocks]), blocks) if len(blocks) else held


def may_take_blocks(tables: StageTables, member: Bools, held: BlockPrices) -> Bools:
    """Mask of the blocks of kernels that blocks of tokens may make legal or faster: bool array, shape (blocks,).

    They cannot help if a block fits with all weights whole (``held``: prices in that mode) and reads nothing twice,
    unless bandwidth depends on bytes, as more bytes may then take less time.
    """
    if tables.sharded.token_charges is None:
        return np.zeros(len(member), dtype=bool)
    return np.asarray(~held.legal | (member & (tables.parts_k > 1)).any(axis=1) | bool(tables.chip.memory_rows))


def holding(tables: StageTables, member: Bools) -> BlockPrices:
    """Price blocks that store their weights in SRAM; a kernel alone may store its weight part by part.

    ``member``: bool array, shape (blocks, kernels).
    """
    sharded, chip = tables.sharded, tables.chip
    count, weight = member.sum(axis=1), member.astype(np.float64)
    stored, read, kept = crossings(tables, member)
    moved = (stored | read).astype(float)  # never both
    sram = kept + CROSSING_TILES * added(moved, tables.tile_g) + added(weight, tables.sram_k)
    legal = keeps_chip(chip, count, weight @ (tables.parts_k > 1), sram)
    if chip.library:
        legal &= library.allowed(sharded, member)
    if sharded.menus:
        latency, fits = least_latency(tables, member)
        compute, legal = np.where(count > 0, latency, 0.0), legal & fits
    else:
        compute = added(weight, sharded.compute_k)
    dram = added(moved, tables.moved_g) + added(weight, tables.mem_k)
    terms = np.stack([compute, chip.dram_seconds(dram), *_sent_and_steady(tables, weight)])
    return BlockPrices(terms, combine(terms, chip), dram, sram, legal, np.zeros(len(member)))


def in_token_blocks(tables: StageTables, member: Bools, count_b: Floats | None = None) -> BlockPrices:
    """Price blocks of kernels that take their tokens in blocks, and read their weights again for each.

    Parameters
    ----------
    tables : StageTables
        The stage.
    member : bool array, shape (blocks, kernels)
        Kernels of every block.
    count_b : float array, shape (blocks,), optional
        Number of blocks of tokens of each, a whole number; by default the fewest that fit. Blocks of kernels that do
        not fit are not legal.
    """
    sharded, chip = tables.sharded, tables.chip
    assert sharded.token_charges is not None
    needs, weight = sharded.token_charges.needs(chip, member, count_b), member.astype(np.float64)
    stored, read, _ = crossings(tables, member)
    dram = added((stored | read).astype(float), tables.moved_g) + added(weight, sharded.mem_k) + needs.read_again
    network, *steady = _sent_and_steady(tables, weight)
    steady = [seconds + needs.accessed_again / chip.sram_bandwidth for seconds in steady]
    terms = np.stack([added(weight, sharded.compute_k), chip.dram_seconds(dram), network, *steady])
    legal = keeps_chip(chip, member.sum(axis=1), np.zeros(len(member)), needs.sram) & needs.legal
    return BlockPrices(terms, combine(terms, chip), dram, needs.sram, legal, needs.blocks)


def _sent_and_steady(tables: StageTables, weight: Floats) -> list[Floats]:
    """Seconds of communication, and of each further resource, of blocks given by what they have of each kernel."""
    sharded = tables.sharded
    network = added(weight, sharded.net_k)
    if len(sharded.toll_x):
        network += added(tolls(tables, weight > 0), sharded.toll_x)
    return [network, *(added(weight, seconds_k) for seconds_k in tables.steady_rk)]


def tolls(tables: StageTables, member: Bools) -> Bools:
    """Mask of the tolls that blocks pay: bool array, shape (blocks, tolls)."""
    return np.asarray(member.astype(np.float32) @ tables.sharded.payers_xk.T.astype(np.float32) > 0)


def crossings(tables: StageTables, member: Bools) -> tuple[Bools, Bools, Floats]:
    """Tensors that blocks store to and read from DRAM, and SRAM bytes of the tensors inside them.

    Returns
    -------
    (stored, read, kept)
        Fan-out groups that each block stores (made in it, needed elsewhere) and reads (made elsewhere, needed in it),
        both of shape (blocks, groups), and SRAM bytes of the tensors that its kernels pass on.
    """
    sharded = tables.sharded
    # kernels by blocks, and tensors by blocks: numpy is fast at rows that are long
    padded = np.concatenate([member.T, np.zeros((1, len(member)), dtype=bool)])
    to_here, source_g = padded[sharded.dst_t], padded[tables.src_g]
    inside = padded[sharded.src_t] & to_here
    if len(tables.src_g) == len(sharded.src_t):  # every tensor is a group of its own, in order
        return (source_g & ~inside).T, (~source_g & to_here).T, (sharded.depth_t * sharded.tile_t) @ inside
    members = members_of_groups(sharded.group_t)
    stored = source_g & ~over_groups(np.logical_and, inside, members)
    read = ~source_g & over_groups(np.logical_or, to_here, members)
    # inside a block a tensor is buffered as deep as its deepest consumer needs
    deepest = over_groups(np.maximum, inside * sharded.depth_t[:, None], members)
    return stored.T, read.T, tables.tile_g @ deepest


def members_of_groups(group_t: Ints) -> list[tuple[Ints, Ints]]:
    """The tensors of fan-out groups by rank: pairs of groups and their first tensors, second tensors, and so on."""
    width = np.bincount(group_t)
    width = width[width > 0]
    first, by_group = np.cumsum(width) - width, np.argsort(group_t, kind="stable")
    wide = (np.flatnonzero(width > member) for member in range(int(width.max(initial=0))))
    return [(groups, by_group[first[groups] + member]) for member, groups in enumerate(wide)]


def over_groups(rule: np.ufunc, rows: NDArray[Any], members: list[tuple[Ints, Ints]]) -> NDArray[Any]:
    """Reduce an array over tensors (first axis) to one over fan-out groups, with a ufunc such as ``np.logical_or``.

    ``members``: as :func:`members_of_groups` gives them. It is faster than ``reduceat``, which works number by number.
    """
    if not members:
        return rows
    reduced = rows[members[0][1]]
    for groups, tensors in members[1:]:
        reduced[groups] = rule(reduced[groups], rows[tensors])
    return reduced


def lots(tables: StageTables, blocks: Sequence[Ints]) -> Iterator[tuple[Ints, StageTables, Bools]]:
    """Batches of blocks given by their kernels: the kernels of each batch, their tables, and block membership."""
    for at in range(0, max(len(blocks), 1), _LOT):
        lot = blocks[at : at + _LOT]
        here, place = np.unique(np.concatenate([*lot, np.zeros(0, dtype=np.int64)]), return_inverse=True)
        member = np.zeros((len(lot), len(here)), dtype=bool)
        member[np.repeat(np.arange(len(lot)), [len(block) for block in lot]), place] = True
        yield here, part_of(tables, here), member


def price_each(tables: StageTables, blocks: Sequence[Ints]) -> BlockPrices:
    """Prices of blocks given by their kernels."""
    return BlockPrices.joined([price_blocks(part, member) for _, part, member in lots(tables, blocks)])


def singles(tables: StageTables) -> list[Ints]:
    """Every kernel of a stage as a block of its own."""
    return list(np.arange(tables.kernels, dtype=np.int64)[:, None])


def _tiles_table(menus: tuple[tuple[Ints, Floats], ...], tiles: int) -> tuple[Floats, Ints]:
    """Distinct latencies, ascending, and the fewest tiles each kernel needs to reach them."""
    if not menus:
        return np.zeros(0), np.zeros((0, 0), dtype=np.int64)
    latencies = np.unique(np.concatenate([seconds for _, seconds in menus]))
    return latencies, np.array([tiles_for(menu, latencies, tiles + 1) for menu in menus])


def least_latency(tables: StageTables, member: Bools) -> tuple[Floats, Bools]:
    """Least latency of each block under the best split of compute tiles over its kernels, and whether there is one."""
    return latency_by(tables, lambda level_b: (member * tables.tiles_kl[:, level_b].T).sum(axis=1), len(member))


def latency_by(tables: StageTables, used: Callable[[Ints], Ints], blocks: int) -> tuple[Floats, Bools]:
    """Least latency of each block, s, from a count of compute tiles, and whether any latency is possible.

    Parameters
    ----------
    tables : StageTables
        The stage, with its latencies.
    used : callable
        From a latency's position for every block, int array of shape (blocks,), to the compute tiles each needs.
    blocks : int
        Number of blocks.
    """
    level, fits = least_level(lambda level_b: used(level_b) <= tables.chip.tiles, (blocks,), len(tables.latency_l))
    return tables.latency_l[level], fits


def tiles_of(tables: StageTables, member: Bools) -> Ints:
    """Compute tiles given to every kernel of blocks, both of shape (blocks, kernels).

    Cycle model: the fewest that reach the block's latency. The others take perfect balance for granted: in
    proportion to the kernels' times, each at least one, by largest remainder.
    """
    if tables.sharded.menus:
        latency, _ = least_latency(tables, member)
        return np.where(member, tables.tiles_kl[:, np.searchsorted(tables.latency_l, latency)].T, 0)
    work = np.where(member, tables.sharded.compute_k, 0.0)
    spare = tables.chip.tiles - member.sum(axis=1)
    exact = work / np.maximum(work.sum(axis=1), LEAST_DIVISOR)[:, None] * spare[:, None]
    tiles = np.floor(exact).astype(np.int64)
    rest = spare - tiles.sum(axis=1)
    order = np.argsort(np.where(member, tiles - exact, np.inf), axis=1, kind="stable")
    rank = np.argsort(order, axis=1, kind="stable")
    return np.where(member, tiles + 1 + (rank < rest[:, None]), 0)
