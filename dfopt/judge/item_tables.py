"""Tables of what blocks of kernels pay, item by item: the judge's charges in cases of few kernels in two places.

At *home* are the kernels of a block, *away* are all others. So no rule is stated here.

Suffixes: k kernel, z option of a kernel (a sharding scheme), p pattern of who is at home, r resource.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from dfopt.arrays import ROUNDING, Floats, Ints
from dfopt.documents.graph import Graph
from dfopt.documents.mapping import Sharding
from dfopt.judge import breakdown, limits, network, timing, token_blocks, traffic
from dfopt.judge.block_time import again, reread
from dfopt.judge.case import Case, Consumer, End, Fan, Place, Placed
from dfopt.judge.traffic import WeightParts
from dfopt.physics import ops
from dfopt.physics.communications import Price
from dfopt.physics.token_blocks import takes_blocks

_HOME: Final[Place] = (0, 0)
_AWAY: Final[Place] = (0, 1)
_LARGEST: Final = 4_000_000
"""Entries of a table, at most."""
_LAYOUTS: Final[tuple[ops.Layout, ...]] = ("RR", "SR", "RS")
_NEEDED: Final = 1 << len(_LAYOUTS)  # below it a code has a bit for each layout that readers need
_WHOLE: Final = WeightParts({}, {}, {})
Key = tuple[tuple[int, ...], tuple[int, ...]]
"""Scope and inside of an item."""


class NotItems(ValueError):
    """Raised where the costs of blocks are not a sum of items over few kernels each."""


class BlockItem(NamedTuple):
    """An additive part of what blocks pay, decided by a few kernels.

    Attributes
    ----------
    name : str
        Name of the item in messages.
    scope : tuple of int
        Kernels whose options decide how much it is, ascending.
    inside : tuple of int
        Kernels whose presence in a block decides how much of the item it pays, ascending.
    """

    name: str
    scope: tuple[int, ...]
    inside: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class ItemTables:
    """Builds the cost tables of block items from the judge's rules.

    Attributes
    ----------
    cases : sequence of Case
        In the first each kernel has its first scheme, in the second its second one, and so on, or its last one. Each
        kernel is in a partition of its own, in the stage of its kind of layer.
    schemes_k : sequence of tuples of Sharding
        Legal schemes of every kernel.
    resources : sequence of str
        Names of the resources that blocks pay.
    latency_l : float array, s, shape (levels,)
        Seconds that kernels may take under the cycle model, as `BlockTime` has them.
    tile_counts : sequence of int
        Numbers of tiles; tables hold the least amounts over all of them. The cases are those of the largest number, as
        a tile of a tensor is then smallest.
    """

    cases: Sequence[Case]
    schemes_k: Sequence[tuple[Sharding, ...]]
    resources: Sequence[str]
    latency_l: Floats
    tile_counts: Sequence[int]
    _cache: dict[tuple[int, int, bool], Placed] = field(default_factory=dict, init=False)

    def _add(self, row_r: Floats, name: str, amount: float) -> None:
        row_r[self._column[name]] += amount

    def kernels(self) -> Iterator[tuple[BlockItem, Floats]]:
        """Items of what single kernels pay, each with its table."""
        rows_zk = [self._of_kernels(case) for case in self.cases]
        for k, schemes in enumerate(self.schemes_k):
            table = np.zeros((len(schemes), 2, len(self.resources)))
            table[:, 1] = [rows_zk[z][k] for z in range(len(schemes))]
            yield BlockItem(self._graph.kernels[k].name, (k,), (k,)), table

    def _of_kernels(self, case: Case) -> Floats:
        """Amounts of all kernels without tensors, each in a place of its own: shape (kernels, resources)."""
        bare, rows = replace(case, fans=(), carried=(), ends=()), ops.streamed_rows(case.graph)
        rows_kr, number = np.zeros((len(case.kernels), len(self.resources))), {}
        sent = breakdown.sent_by_place(bare, network.tensor_parallel(bare), self._price)
        accessed, stationary = traffic.sram_traffic(bare), traffic.sram_need(bare, _WHOLE)
        for k, placed in enumerate(bare.kernels):
            row_r, number[placed.place] = rows_kr[k], k
            if min(self.tile_counts) > -(-rows // limits.tile_rows(case, placed)):
                self._add(row_r, "legal", math.inf)
            if len(self.latency_l):
                cuts = [replace(bare, tile_count=count) for count in self.tile_counts]
                fewest = [self._tiles(*timing.latencies(cut, placed)) for cut in cuts]
                row_r[-len(self.latency_l) :] = np.minimum.reduce(fewest)
            else:
                self._add(row_r, "compute_s", timing.compute_s(bare, [placed]))
            for name, each in sent.get(placed.place, {}).items():
                self._add(row_r, "network_s", 0.0 if name == "overhead_s" else math.fsum(each))
            self._add(row_r, "accessed", accessed[k])
            for name in ("held", "cut"):
                self._add(row_r, name, stationary.get(placed.place, 0.0))
        for moved in traffic.moves(bare, _WHOLE):
            self._add(rows_kr[number[moved.place]], traffic.tier_of(bare, moved), moved.bytes)
        if case.assume.blocks_tokens:
            bare = replace(bare, token_blocks=dict.fromkeys(number, 2))  # one further block each
            for k, size in token_blocks.accessed_again(bare).items():
                self._add(rows_kr[k], "accessed again", size)
                self._add(rows_kr[k], "at_once", 0.0 if takes_blocks(bare.kernels[k].kernel) else math.inf)
            for place, size in token_blocks.in_sram(bare):
                self._add(rows_kr[number[place]], "beside", size)
            for place, what, size, of in token_blocks.again(bare):
                tier = traffic.tier_of(bare, traffic.Moved(place, what, size, of))
                self._add(rows_kr[number[place]], again(tier), size)
        return rows_kr

    def _tiles(self, tiles: Ints, seconds: Floats) -> Floats:
        """Fewest tiles to take no longer than each latency, ascending; more than there are where none does."""
        order = np.argsort(seconds, kind="stable")
        fewest = np.minimum.accumulate(tiles[order])
        place_l = np.searchsorted(seconds[order], self.latency_l, side="right") - 1
        return np.where(place_l >= 0, fewest[place_l], self.cases[0].system.chip.tiles + 1.0)

    def tensors(self) -> Iterator[tuple[BlockItem, Floats]]:
        """Items of DRAM traffic and SRAM buffers of tensors and of graph inputs and outputs, each with its table."""
        case, by_scheme = self.cases[0], self.cases[0].assume.operand_traffic is not None
        for place, of in enumerate(case.tensors):
            decides = of.src if isinstance(of, Fan) else of.kernel if of.carried is None else of.carried
            inside = tuple(sorted({of.src, *of.readers})) if isinstance(of, Fan) else (of.kernel,)
            table, sizes = self._zeros((decides,), inside), dict[tuple[float, float], int]()
            case_p = [self._case({k for i, k in enumerate(inside) if p >> i & 1}) for p in range(1, 2 ** len(inside))]
            for z in range(len(self.schemes_k[decides])):
                as_held = self.cases[z].tensors[place]
                same = sizes.setdefault((as_held.chip, as_held.tile), z)
                for pattern, here in enumerate(case_p if same == z else (), 1):
                    self._of_tensor(table[z, pattern], here, as_held, by_scheme=by_scheme and isinstance(of, Fan))
                table[z] = table[same]
            name = self._graph.kernels[decides].name
            yield BlockItem(f"output of {name}" if decides in inside else f"carried {name}", (decides,), inside), table
            if by_scheme and isinstance(of, Fan):
                yield from self._own_moves(of, inside)

    def _of_tensor(self, row_r: Floats, case: Case, of: Fan | End, *, by_scheme: bool) -> None:
        """Add what the block at home pays; ``by_scheme``: but for what kernels move of it as their schemes say."""
        of = of.among(case.kernels) if isinstance(of, Fan) else of
        for moved in () if by_scheme else traffic.moved(case, of):
            self._add(row_r, self._tier, moved.bytes if moved.place == _HOME else 0.0)
        for moved in traffic.moved_again(case, of, self._twice):
            self._add(row_r, reread(self._tier), moved.bytes if moved.place == _HOME else 0.0)
        for place, size in traffic.held(case, of, _WHOLE):
            self._add(row_r, "held", size if place == _HOME else 0.0)
        for k, size, is_cut in traffic.buffered(of):
            if case.place(k) == _HOME:
                self._add(row_r, "cut" if is_cut and case.kernels[k].stationary > 0 else "buffers", size)
        for k, size, _ in traffic.touched(of):
            self._add(row_r, "accessed", size if case.place(k) == _HOME else 0.0)
        if not case.assume.blocks_tokens:
            return
        for size, is_cut in token_blocks.held(case, of, _HOME):
            self._add(row_r, "cut by tokens" if is_cut else "beside", size)
        readers = token_blocks.whole_readers(case, of, _HOME)
        if readers:
            self._add(row_r, again(self._tier), of.chip)
            self._add(row_r, "accessed again", len(readers) * of.chip)
        if isinstance(of, Fan) and of.home == _HOME and any(token_blocks.needed_at_once(case, of)):
            self._add(row_r, "at_once", math.inf)

    def _own_moves(self, of: Fan, inside: tuple[int, ...]) -> Iterator[tuple[BlockItem, Floats]]:
        """What each kernel alone moves of a tensor, where that is by its own scheme."""
        for k in inside:
            table = self._zeros((k,), (k,))
            for z in range(len(self.schemes_k[k])):
                case = self._case({k}, {k: z})
                for moved in traffic.moved(case, of.among(case.kernels)):
                    self._add(table[z, 1], self._tier, moved.bytes if moved.place == _HOME else 0.0)
            yield BlockItem(f"output of {self._graph.kernels[of.src].name}", (k,), (k,)), table

    def conversions(self) -> Iterator[tuple[BlockItem, Floats]]:
        """Items of layout conversions over the tensor-parallel group, each with its table."""
        case = self.cases[0]
        if case.plan.shards == 1:
            return
        for fan in case.fans:
            separately = case.kernels[fan.src].forward and network.gathered_late(case, fan)
            late = [reader for reader in fan.consumers if separately and not case.kernels[reader.kernel].forward]
            rest = [reader for reader in fan.consumers if reader not in late]
            yield from self._converted(fan, rest, separately=separately, by_reader=False)
            yield from self._converted(fan, late, separately=separately, by_reader=case.assume.backward_gathers is None)
        for fan in case.between_layers:
            yield from self._converted(fan, fan.consumers, separately=False, by_reader=False)

    def _converted(
        self, fan: Fan, consumers: Sequence[Consumer], *, separately: bool, by_reader: bool
    ) -> Iterator[tuple[BlockItem, Floats]]:
        """Conversions for some readers, which their block pays for or that of the source.

        They depend on the layouts alone that the source leaves and that readers in the block need: one choice of
        options stands for all that are alike in these.
        """
        produced_z = np.array([_LAYOUTS.index(ops.PRODUCED[z]) for z in self.schemes_k[fan.src]])
        if not consumers or not produced_z.any():
            return
        readers = {reader.kernel for reader in consumers}
        scope, inside = tuple(sorted({fan.src, *readers})), tuple(sorted(readers)) if by_reader else (fan.src,)
        table = self._zeros(scope, inside)
        code = np.zeros(table.shape[:-1], dtype=np.int64)
        for reader in consumers:
            bit_z = np.array([1 << _LAYOUTS.index(network.required(self.cases[z], fan, reader))
                              for z in range(len(self.schemes_k[reader.kernel]))])  # fmt: skip
            payer = inside.index(reader.kernel if by_reader else fan.src)
            pays_p = np.arange(2 ** len(inside)) >> payer & 1
            code |= _along(bit_z, scope.index(reader.kernel), code.ndim) * pays_p
        code += _NEEDED * _along(produced_z, scope.index(fan.src), code.ndim)
        kinds, first, which = np.unique(code, return_index=True, return_inverse=True)
        seconds = np.zeros(len(kinds))
        for number, (kind, place) in enumerate(zip(kinds.tolist(), first.tolist(), strict=True)):
            *chosen, pattern = map(int, np.unravel_index(place, code.shape))
            if kind % _NEEDED and kind // _NEEDED:
                case = self._case(set(scope), dict(zip(scope, chosen, strict=True)))
                here = [reader for reader in consumers if not by_reader or pattern >> inside.index(reader.kernel) & 1]
                of = replace(fan, consumers=tuple(here))
                sent = [paid for paid in network.conversions(case, of, self._price, separately) if paid.total > 0]
                seconds[number] = math.fsum(network.between_shards_s(case, paid, self._price) for paid in sent)
        table[..., self._column["network_s"]] = seconds[which.reshape(code.shape)]
        yield BlockItem(f"conversions of {self._graph.kernels[fan.src].name}", scope, inside), table

    def pairs(self) -> Iterator[tuple[BlockItem, Floats]]:
        """Items of incompatible options of two kernels (infinite entries); the block of the second kernel pays."""
        case, index = self.cases[0], self._graph.index()
        pairs: list[tuple[int, int, Callable[[Case, Placed, Placed], bool]]] = []
        for k, kernel in enumerate(self._graph.kernels):
            if kernel.accumulates_into is not None:
                pairs.append((index[kernel.accumulates_into], k, limits.lack_reduction))
        for source, target in limits.handed_on(case):
            pairs.append((index[source.kernel.name], index[target.kernel.name], limits.hand_on_otherwise))
        for first, second, refuse in pairs:
            scope = tuple(sorted({first, second}))
            table = self._zeros(scope, (second,))
            for z, y in np.ndindex(*(len(self.schemes_k[k]) for k in scope)):
                chosen = {k: self.cases[at].kernels[k] for k, at in zip(scope, (z, y), strict=True)}
                if refuse(case, chosen[second], chosen[first]):
                    table[z, y, 1, self._column["legal"]] = math.inf
            name = f"{self._graph.kernels[first].name} beside {self._graph.kernels[second].name}"
            yield BlockItem(name, scope, (second,)), table

    def must_be_alone(self, tables: dict[Key, Floats]) -> Iterator[tuple[BlockItem, Floats]]:
        """Items that force kernels to run alone because their own weights need too much SRAM.

        A block needs no less where tensors inside it are buffered for two tiles at least.
        """
        case = self.cases[0]
        capacity = case.system.chip.sram.capacity * (1 + ROUNDING)
        buffered = all(reader.depth >= 2 for fan in case.fans for reader in fan.consumers)
        if buffered or case.assume.weight_tiling == "forbid":
            return
        for k, placed in enumerate(case.kernels):
            if placed.stationary <= 0:
                continue
            paid = [(key, table) for key, table in tables.items() if k in key[1]]
            scope = tuple(sorted({k for (scope, _), _ in paid for k in scope}))
            table = self._zeros(scope, (k,))
            need = np.zeros(table.shape[:-2])
            for (of, inside), amounts in paid:
                alone = amounts[..., 1 << inside.index(k), :]
                alone = alone[..., self._column["buffers"]] + alone[..., self._column["cut"]]
                need += alone.reshape([len(self.schemes_k[v]) if v in of else 1 for v in scope])
            table[..., 1, self._column["alone"]] = np.where(need > capacity, math.inf, 0.0)
            yield BlockItem(f"{placed.kernel.name} alone", scope, (k,)), table

    # -- help -------------------------------------------------------------------------------
    def _zeros(self, scope: Sequence[int], inside: Sequence[int]) -> Floats:
        shape = *(len(self.schemes_k[k]) for k in scope), 2 ** len(inside), len(self.resources)
        if math.prod(shape) > _LARGEST:
            raise NotItems(f"{len(scope)} kernels together decide what an item comes to, and {len(inside)} pay for it")
        return np.zeros(shape)

    def _case(self, home: Collection[int], scheme_k: dict[int, int] | None = None) -> Case:
        """A case with some kernels at home, and all others away; of some the option is given."""
        kernels = list(self._away_k)
        for k in {*home, *(scheme_k or ())}:
            kernels[k] = self._placed(k, (scheme_k or {}).get(k, 0), k in home)
        case = self.cases[0]
        blocks = {_HOME: 2} if case.assume.blocks_tokens else {}
        return replace(case, kernels=tuple(kernels), token_blocks=blocks)

    def _placed(self, kernel: int, scheme: int, home: bool) -> Placed:
        key = kernel, scheme, home
        if key not in self._cache:
            self._cache[key] = replace(self.cases[scheme].kernels[kernel], place=_HOME if home else _AWAY)
        return self._cache[key]

    @cached_property
    def _away_k(self) -> tuple[Placed, ...]:
        return tuple(self._placed(k, 0, False) for k in range(len(self.schemes_k)))

    @property
    def _graph(self) -> Graph:
        return self.cases[0].graph

    @cached_property
    def _column(self) -> dict[str, int]:
        return {name: r for r, name in enumerate(self.resources)}

    @cached_property
    def _tier(self) -> str:
        """The memory that tensors pass through."""
        case = self.cases[0]
        return traffic.tier_of(case, traffic.Moved(_HOME, "tensor", 0.0, case.tensors[0]))

    @cached_property
    def _price(self) -> Price:
        return network.price_list(self.cases[0])

    @cached_property
    def _twice(self) -> WeightParts:
        """All weights in two parts."""
        return WeightParts(dict.fromkeys(range(len(self.schemes_k)), 2), {}, {})


def _along(values: Ints, axis: int, axes: int) -> Ints:
    """Values along one of some axes."""
    return values.reshape([len(values) if place == axis else 1 for place in range(axes)])
