"""One stage of a mapping, its schemes and its fusion found together: what no choice of both beats, and the best one.

Three bounds, each at least as high as the one before: the relaxed stage (every figure at its least), cells (each block
with schemes of its own), labels (blocks that agree about tracked groups). A trial looks at all paths below a value:
if there is none the value is proven; the path that it finds says which groups blocks have to agree about next.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from dfopt.bnb import Clock
from dfopt.errors import Infeasible
from dfopt.fusion.blocks import StageTables, part_of, price_blocks, price_each, restrict, singles, stage_tables, ways_of
from dfopt.fusion.downsets import Lattice
from dfopt.fusion.lattice import ShortestPath
from dfopt.fusion.partitioning import IntraChipLimits
from dfopt.joint.cells import CellBook, Cells
from dfopt.joint.choices import AGAIN, FIGURES, GRADIENT, OUTPUTS, SRAM, choices_of
from dfopt.joint.labels import Labels, Rows
from dfopt.joint.menu import Menu
from dfopt.joint.paths import SAME, Blocks, within
from dfopt.joint.relaxed_blocks import Relaxed
from dfopt.terms.sharded_graph import Bools, Floats, Ints

_WIDTH, _WIDER, _WIDEST = 5e-4, 3.0, 3.0  # first trial: so much above what is proven; then three times as much
_FIRST = 27.0  # widths above what is proven that the first look takes in: the next is seldom needed
_MANY_BLOCKS, _MANY_CELLS, _SLOWER = 50_000, 150, 1.5  # after a trial with more the next is only so much wider
_AROUND = 1.1  # how much slower a first guess may be to be of interest
_LOT = 5_000  # blocks priced together
_AHEAD = 20_000  # blocks among which the next are chosen
_AT_ONCE = 256  # kinds of blocks whose cells are worked out before others are excluded by what they show


@dataclass(frozen=True, eq=False)
class _Look:
    """Blocks of the relaxed stage on paths below a ceiling, and their seconds."""

    ceiling: float
    search: ShortestPath
    blocks: Blocks
    seconds: Floats


@dataclass(eq=False)
class LayerSearch:
    """The best schemes and fusion of one stage, by deepening.

    Parameters
    ----------
    menu : Menu
        Figures of all options.
    allowed_o : bool array
        Options that are left.
    members : int array
        Kernels of the stage.
    tables, limits : StageTables, IntraChipLimits
        The relaxed stage, and its limits with the DRAM that is left where every kernel keeps the least.
    lattice : Lattice
        Its down-sets.
    weighed_o : float array, optional
        Seconds of one evaluation that the gradient of every option is worth.
    about : set of str
        Kernels about whose outputs blocks have to agree from the start.

    Attributes
    ----------
    low : float
        Proven: no choice of schemes and fusion takes less, in seconds of one evaluation with weighted gradients beside
        the least.
    answer : (seconds, option of each kernel), optional
        The best choice, once ``low`` reaches it.
    """

    menu: Menu
    allowed_o: Bools
    members: Ints
    tables: StageTables
    limits: IntraChipLimits
    lattice: Lattice
    weighed_o: Floats | None = None
    about: frozenset[str] = frozenset()
    low: float = 0.0
    answer: tuple[float, dict[int, int]] | None = None
    known: tuple[float, dict[int, int]] = (np.inf, {})
    tracked: frozenset[int] = frozenset()
    width: float = _WIDTH
    seen: _Look | None = None
    memo: dict[tuple[bytes, bool, frozenset[int]], Cells] = field(default_factory=dict)
    tried: set[bytes] = field(default_factory=set)  # options that were proposed

    def __post_init__(self) -> None:
        sharded = self.tables.sharded
        stage = self.menu, self.allowed_o, self.members, self.tables, self.weighed_o
        self.choices, self.options = choices_of(*stage)
        made_by = enumerate(sharded.names[group.src] for group in self.choices.groups)
        self.tracked |= {g for g, name in made_by if name in self.about}
        self.whole = replace(
            self.tables,
            parts_k=np.ones_like(self.tables.parts_k),
            sram_k=sharded.stationary_k + sharded.fixed_buffer_k,
            mem_k=sharded.mem_k,
        )
        singles = np.eye(self.tables.kernels, dtype=bool)
        alone = ways_of(self.whole, singles).holding.sram_bytes
        short = alone + self.choices.most_sram(singles) > self.tables.chip.sram * (1 + 1e-12)
        self.tight_k = short & self.choices.relevant_k  # of the others the relaxed price is exact
        heavy = self.tight_k & (sharded.stationary_k > 0) & self.tables.chip.cuts_weights
        heavy &= self.tables.chip.library
        self.book = CellBook(self.choices, {k: float(alone[k]) for k in np.flatnonzero(heavy).tolist()})

    @property
    def agreed(self) -> set[str]:
        """Kernels about whose outputs blocks have to agree."""
        return {self.tables.sharded.names[self.choices.groups[g].src] for g in self.tracked}

    def root(self, upper: float, start: Ints | None, floor: float, clock: Clock) -> None:
        """Prove what the relaxed stage shows: its best path, none below ``upper``, or a start that meets the floor."""
        partition_k, low = start, floor
        if start is None or upper > floor * (1 + SAME):
            path = ShortestPath(self.tables, self.limits, self.lattice, upper).run(clock)
            partition_k, low = path.partition_k, upper if path.complete else min(path.bound, upper)
            if partition_k is not None:
                low = path.objective
        self.low = max(self.low, low)
        if partition_k is not None:
            self._guess(partition_k == np.unique(partition_k)[:, None], self.low, self.low * _AROUND)

    def trial(self, upper: float, clock: Clock, *, at_once: bool = False) -> None:
        """Look at all paths a little above what is proven: afterwards ``low`` is higher, or the best is known.

        Parameters
        ----------
        upper : float, s
            Above which nothing matters.
        clock : Clock
            Of this trial.
        at_once : bool
            Whether to look at all paths below ``upper``, if that has an end.

        Raises
        ------
        OutOfTime
            When the clock is over; what is proven so far stays.
        """
        # a stage with one path, or a wide trial without an answer: all there is at once
        whole = not self.tables.chip.fused or self.width > _WIDEST or (at_once and np.isfinite(upper))
        level = upper if whole else min(self.low * (1 + self.width), upper)
        known = len(self.memo)
        blocks = self._below(level, upper, clock)
        little = blocks / _MANY_BLOCKS + (len(self.memo) - known) / _MANY_CELLS < 1
        self.width *= _WIDER if little else _SLOWER

    def _look(self, level: float, upper: float, clock: Clock) -> _Look:
        """The blocks of all paths below a value in the relaxed stage."""
        if self.seen is None or self.seen.ceiling < level:
            ahead = self.width * (_FIRST if self.seen is None else _WIDER)
            ceiling = min(max(self.low * (1 + ahead), level), upper)
            search = ShortestPath(self.tables, self.limits, self.lattice, ceiling)
            if self.tables.chip.fused:
                search.run(clock)
                clock.check()
                before, after, seconds = search.blocks()
                order = np.argsort(before, kind="stable")
                blocks, seconds = Blocks(self.lattice, before[order], after[order]), seconds[order]
            else:  # one path, whatever it takes
                after = np.arange(1, self.tables.kernels + 1)
                blocks = Blocks(self.lattice, after - 1, after)
                prices = price_blocks(self.tables, blocks.member)
                seconds = np.where(prices.legal, prices.time, np.inf)
            self.seen = _Look(ceiling, search, blocks, seconds)
        return self.seen

    def _below(self, level: float, upper: float, clock: Clock) -> int:
        """Look at all paths below a value; how many blocks these have."""
        found = self._look(level, upper, clock)
        room = min(level, self.known[0]) * (1 + SAME)
        keep, _ = found.blocks.within(found.seconds, room)
        blocks, seconds = found.blocks.part(keep), found.seconds[keep]
        count = len(blocks)
        while len(blocks):
            rows, least = self._rows(blocks, seconds, room, clock, upper)
            if self.answer is not None:
                return count
            room = min(room, self.known[0] * (1 + SAME))
            keep, rest = blocks.within(least, room)
            labels = Labels(found.search, self.choices.groups, tuple(sorted(self.tracked)), blocks, rest, room)
            labels.run(_near_rows(rows, blocks, least, room), clock)
            if not labels.path:
                break
            taken = np.array([block for _, block, _ in labels.path])
            schemes, clash = self._schemes(labels.path, blocks.member[taken])
            if not clash:
                self.low, self.answer = labels.value, (labels.value, schemes)
                return count
            real = self.exactly(schemes, min(upper, self.known[0]), blocks)  # above the room it is still a mapping
            if real < self.known[0]:
                self.known = real, schemes
            if self.known[0] <= labels.value * (1 + SAME):
                break
            room = min(room, self.known[0] * (1 + SAME))
            self.tracked |= clash
            blocks, seconds = blocks.part(keep), seconds[keep]
        if self.known[1] and self.known[0] <= level * (1 + SAME):  # no path below the best that is known
            self.low, self.answer = self.known[0], self.known
        else:
            self.low = level
        return count

    def exactly(self, schemes: dict[int, int], upper: float, blocks: Blocks | None = None) -> float:
        """Seconds of the best fusion (of some blocks) under given schemes, or infinity if it is not below."""
        fixed_o = self.allowed_o & ~np.isin(self.menu.tables.kernel_o, self.members)
        fixed_o[[self.options[k][z] for k, z in schemes.items()]] = True
        gradients = sum(float(self.choices.figures_kz[k][z, GRADIENT]) for k, z in schemes.items())
        try:
            stage = self.menu.stage(fixed_o, self.tables.sharded.tile_count)
            tables = stage_tables(restrict(stage, self.members), self.tables.chip)
        except Infeasible:
            return np.inf
        if not tables.chip.fused:
            tables = tables if self.menu.slower is None else replace(tables, chip=self.menu.slower)
            alone = price_each(tables, singles(tables))
            return float(alone.time.sum()) + gradients if alone.legal.all() else np.inf
        among = None if blocks is None else (blocks.before, blocks.after)
        path = ShortestPath(tables, self.limits, self.lattice, max(upper - gradients, 0.0)).run(among=among)
        return np.inf if path.partition_k is None else path.objective + gradients

    # -- blocks and their cells

    def _prices(self, member: Bools) -> Relaxed:
        """Relaxed prices of blocks."""
        found = []
        for start in range(0, len(member), _LOT):
            lot = member[start : start + _LOT]
            here = np.flatnonzero(lot.any(axis=0)).astype(np.int64)
            found.append(Relaxed.of(part_of(self.tables, here), lot[:, here]))
        return Relaxed.joined(found)

    def _rows(
        self, blocks: Blocks, least: Floats, room: float, clock: Clock, upper: float | None
    ) -> tuple[list[tuple[Cells, Ints, Floats]], Floats]:
        """Cells, numbers and seconds (by interface) of blocks that share them, and the least seconds of every block.

        The most promising blocks are looked at first: what is learnt of them excludes others. As soon as the shortest
        path is made of blocks that are known, its schemes are tried, unless there is no ``upper`` for their value:
        they may be the best, or exclude more.
        """
        member = blocks.member
        relaxed = self._prices(member)
        tight = (member.sum(axis=1) == 1) & member[:, self.tight_k].any(axis=1)
        ample = ~tight & (relaxed.sram + self.choices.most_sram(member) <= self.tables.chip.sram)
        kind = _kinds(np.concatenate([member[:, self.choices.relevant_k], tight[:, None], ample[:, None]], axis=1))
        found: list[tuple[Cells, Ints, Floats]] = []
        least, open_, path = least.copy(), np.ones(len(blocks), dtype=bool), np.zeros(0, dtype=np.int64)
        while True:
            clock.check(100.0 + len(blocks) / 5)
            ahead, rest = blocks.distances(least)
            total = blocks.through(least, ahead, rest)
            if upper is not None and ahead[-1] <= room:
                path = blocks.shortest(least, rest, ~open_)
                if not open_[path].any():
                    self.low = max(self.low, float(ahead[-1]))
                    self._guess(member[path], self.low, upper, blocks)
                    upper, room = None, min(room, self.known[0] * (1 + SAME))
            near = np.flatnonzero(open_ & within(total, room))
            if not len(near) or self.answer is not None:
                return found, least
            if len(near) > _AHEAD:
                near = near[np.argpartition(total[near], _AHEAD)[:_AHEAD]]
            near = near[np.argsort(total[near], kind="stable")]
            kinds, first = np.unique(kind[near], return_index=True)
            chosen = np.zeros(len(kind), dtype=bool)
            chosen[kinds[np.argsort(first)[:_AT_ONCE]]] = True
            chosen[kind[path]] |= upper is not None
            mine = np.flatnonzero(open_ & within(total, room) & chosen[kind])
            mine = mine[np.argsort(kind[mine], kind="stable")]
            open_[mine] = False
            for alike in np.split(mine, np.flatnonzero(np.diff(kind[mine])) + 1):
                one = int(alike[0])
                base = relaxed.rows(alike) if not tight[one] else self._whole(member[one])
                cells = self._cells(member[one], bool(tight[one]), bool(ample[one]))
                least[alike] = np.inf
                if len(cells.start_i):
                    seconds = cells.least(base, self.tables.chip)
                    seconds = np.broadcast_to(seconds, (len(alike), seconds.shape[1]))  # a kernel alone: once for all
                    least[alike] = seconds.min(axis=1)
                    found.append((cells, alike, seconds))

    def _guess(self, member: Bools, value: float, upper: float, blocks: Blocks | None = None) -> None:
        """Take the schemes that the blocks of a path, which no other one beats, would take by themselves."""
        steps, relaxed = [], self._prices(member)
        for number, inside in enumerate(member):
            tight = bool(inside.sum() == 1 and self.tight_k[inside].any())
            base = self._whole(inside) if tight else relaxed.rows(np.array([number]))
            if not len((cells := self._cells(inside, tight, False)).start_i):
                return
            steps.append((cells, number, int(np.argmin(cells.least(base, self.tables.chip)[0]))))
        schemes, _ = self._schemes(steps, member)
        real = self.exactly(schemes, min(upper, self.known[0]), blocks)
        if real < self.known[0]:
            self.known = real, schemes
        if self.known[0] <= value * (1 + SAME):
            self.low, self.answer = self.known[0], self.known

    def _cells(self, inside: Bools, tight: bool, ample: bool) -> Cells:
        key = np.packbits(inside & self.choices.relevant_k).tobytes() + bytes([tight]), ample, self._touched(inside)
        if key not in self.memo:
            whole = self._figures(inside) if tight else None
            self.memo[key] = self.book.cells(inside, key[2], ample=ample, whole=whole)
        return self.memo[key]

    def _touched(self, inside: Bools) -> frozenset[int]:
        """Tracked groups that a block touches."""
        here = np.flatnonzero(inside & self.choices.relevant_k).tolist()
        return self.tracked & {g for k in here for g in self.choices.of_k[k]}

    def _whole(self, inside: Bools) -> Relaxed:
        """A kernel alone with its weight in one part, at its relaxed price."""
        return Relaxed.of(self.whole, inside[None, :], in_parts=True)

    def _figures(self, inside: Bools) -> Floats:
        """What deciding about parts of a weight needs of a kernel alone, at its relaxed figures."""
        sharded, tables, k = self.tables.sharded, self.whole, int(np.flatnonzero(inside)[0])
        found = np.zeros(FIGURES)
        found[SRAM] = self._whole(inside).sram[0]
        made = tables.src_g == k
        found[OUTPUTS] = 2.0 * tables.tile_g[made].sum()
        found[AGAIN] = sharded.again_k[k]
        return found

    # -- schemes of a path

    def _schemes(self, path: list[tuple[Cells, int, int]], member: Bools) -> tuple[dict[int, int], frozenset[int]]:
        """The scheme that each block of a path takes for its kernels, and the groups that blocks do not agree about."""
        chosen = dict.fromkeys(range(self.tables.kernels), 0)
        relaxed = self._prices(member)
        for number, (cells, _, interface) in enumerate(path):
            base = relaxed.rows(np.array([number]))
            if member[number].sum() == 1 and self.tight_k[member[number]].any():
                base = self._whole(member[number])
            seconds = cells.seconds(base, self.tables.chip)[0]
            first, last = np.append(cells.start_i, len(seconds))[interface : interface + 2]
            cell = int(first) + int(np.argmin(seconds[first:last]))
            chosen |= {k: int(schemes[cell]) for k, schemes in cells.scheme_ck.items()}
        clash = (g for inside in member for g in self._seen(inside) - self.tracked if self._clashes(g, inside, chosen))
        return chosen, frozenset(clash)

    def _seen(self, inside: Bools) -> set[int]:
        return {g for k in np.flatnonzero(inside).tolist() for g in self.choices.of_k[k]}

    def _clashes(self, g: int, inside: Bools, chosen: dict[int, int]) -> bool:
        """Whether a block took something about a group that the schemes of all blocks do not keep."""
        group = self.choices.groups[g]
        cls = int(group.class_z[chosen[group.src]])
        asks = [(int(asks_z[chosen[kernel]]), bool(inside[kernel])) for kernel, _, asks_z in group.readers]
        asked = int(np.bitwise_or.reduce([one for one, here in asks if here] or [0]))
        if group.toll_r is not None:
            return not inside[group.src] and bool(group.seconds_ca[cls, asked] > group.seconds_ca[:, asked].min())
        if not inside[group.src]:
            return bool(group.share_c[cls] > group.share_c.min())
        if not group.read_outside(inside):
            return False
        wanted = int(np.bitwise_or.reduce([one for one, _ in asks] or [0]))
        promised = min(group.seconds_ca[cls, group.asked_ca[cls, asked | one]] for one in group.unions(inside))
        return bool(group.seconds_ca[cls, group.asked_ca[cls, wanted]] > promised)


def _near_rows(rows: list[tuple[Cells, Ints, Floats]], blocks: Blocks, least: Floats, room: float) -> list[Rows]:
    """Blocks and interfaces that some path below the room may use."""
    ahead, rest = blocks.distances(least)
    found = []
    for cells, mine, seconds in rows:
        around = ahead[blocks.before[mine]] + rest[blocks.after[mine]]
        block, interface = np.nonzero((seconds + around[:, None] <= room) & np.isfinite(seconds))
        if len(block):
            found.append(Rows(cells, mine[block], interface, seconds[block, interface]))
    return found


def _kinds(looks: Bools) -> Ints:
    """A number for each row, the same for equal rows."""
    bits = np.packbits(looks, axis=1)
    words = np.ascontiguousarray(np.pad(bits, ((0, 0), (0, -bits.shape[1] % 8)))).view(np.uint64)
    kind = np.zeros(len(looks), dtype=np.int64)
    for word in words.T:
        found = np.unique(word, return_inverse=True)[1].astype(np.int64)
        kind = np.unique(kind * (int(found.max(initial=0)) + 1) + found, return_inverse=True)[1].astype(np.int64)
    return kind
