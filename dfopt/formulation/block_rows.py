"""What blocks take, as rows of a MILP: the block rule of :mod:`dfopt.terms.blocks` over counts and amounts.

A sum of a resource is the product of how often a block pays and how much, over the combinations of classes under which
the amounts differ. What the block rule makes of the sums, that is its time, its limits, the parts of a weight and the
tiles of the cycle model, stands here as rows and there as arrays; a test holds one against the other.

Suffixes: k kernel, o option, b block, f combination of classes, c charge, l latency.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from dfopt.arrays import ROUNDING, Floats, Ints
from dfopt.bnb import UNLIMITED, Clock
from dfopt.documents.system import EfficiencyRow
from dfopt.formulation.choices import Choices, OptionClasses, Scope
from dfopt.formulation.counting import CountRows
from dfopt.fusion.token_rows import Sum, TokenBlockRows
from dfopt.milp import Terms
from dfopt.terms.charges import Charge
from dfopt.terms.chip import ChipModel
from dfopt.terms.incidence import Incidence, Inside, counts
from dfopt.terms.sram import FITS, parts_of
from dfopt.terms.table import Table, amounts_left
from dfopt.terms.token_blocks import TOKEN_RESOURCES, TokenRows


class ChargeRows:
    """MILP rows for sums, limits and times of blocks, from the table of charges.

    Parameters
    ----------
    choices : Choices
        Options and places, with the model that gets columns and rows.
    table, chip : Table, ChipModel
        Charges of the layer, limits and rates.
    latency_l : float array, s
        Possible compute seconds under the cycle model, see :attr:`dfopt.terms.layer.Layer.latency_l`.
    unit_s : float, s
        Seconds that are one unit of the model. A unit of bytes is the SRAM.
    clock : Clock
        When it is over, :class:`dfopt.bnb.OutOfTime` is raised.
    token_rows : TokenRows, optional
        Tokens that are cut into blocks. None: no block of kernels takes its tokens in blocks.
    """

    def __init__(
        self, choices: Choices, table: Table, chip: ChipModel, latency_l: Floats, unit_s: float,
        clock: Clock = UNLIMITED, token_rows: TokenRows | None = None,
    ) -> None:  # fmt: skip
        self.choices, self.table, self.chip, self.latency_l = choices, table, chip, latency_l
        self.unit_s, self.model = unit_s, choices.model
        self.counting = CountRows(choices, exact=bool(chip.memory_rows))
        self.sums: dict[str, list[tuple[Ints, Floats]]] = {}
        self._most: dict[str, Floats] = {}
        self.clock = clock
        self._sum_up()
        self._forbid()
        self._token_blocks = None if token_rows is None else self._in_token_blocks(token_rows)
        self._weight_parts()
        self._sram()

    @cached_property
    def _rates(self) -> list[EfficiencyRow]:
        """Rows of the memory's shares of bandwidth, from fewest bytes on."""
        return sorted(self.chip.memory_rows, key=lambda row: row.bytes or 0.0)

    @property
    def bounding(self) -> bool:
        """Whether the rows may underestimate block times, so that the MILP gives only a bound.

        This happens if the share of bandwidth falls at a limit of bytes that is just met. With any dependence on bytes,
        more blocks of tokens than needed may also seem faster, as they move more bytes.
        """
        falls = any(later.share < row.share for row, later in itertools.pairwise(self._rates))
        return falls or (bool(self._rates) and self._token_blocks is not None)

    # -- sums ---------------------------------------------------------------------------------
    def _sum_up(self) -> None:
        """Sums of what blocks pay: charges of one incidence and scope share the columns of their count."""
        gathered: dict[tuple[Incidence, Scope], list[Charge]] = {}
        for charge in self.table.charges:
            if charge.resource in _OF_BLOCKS:
                gathered.setdefault((charge.incidence, charge.scope), []).append(charge)
        for (incidence, scope), charges in gathered.items():
            self.clock.check()
            classes = self._classes(charges, scope)
            count = self.counting.count(incidence, scope, classes)
            for charge in charges:
                amount_f = _of_classes(amounts_left(charge, self.choices.domain), classes).ravel()
                some = np.flatnonzero(amount_f)
                if len(some):
                    amounts = (amount_f[some, None] * count.times[some]).T
                    self.sums.setdefault(charge.resource, []).append((count.columns[some].T, amounts))
                    most = max(incidence.depths) if isinstance(incidence, Inside) else 1.0
                    self._note_most(charge.resource, count.columns[some].T, np.max(amount_f[some]) * most)

    def _note_most(self, resource: str, columns: Ints, most: float) -> None:
        """A charge adds at most so much to the sums of a resource, where it has columns."""
        most_b = self._most.setdefault(resource, np.zeros(self.choices.blocks))
        most_b += np.where((columns >= 0).any(axis=1), max(most, 0.0), 0.0)

    def classified(self, charge: Charge) -> tuple[Scope, OptionClasses, Floats]:
        """Scope of a charge, classes of equivalent options, and amounts by class."""
        classes = self._classes([charge], charge.scope)
        return charge.scope, classes, _of_classes(amounts_left(charge, self.choices.domain), classes)

    def _classes(self, charges: Sequence[Charge], scope: Scope) -> OptionClasses:
        """Classes of the options of each kernel of a scope: under those of one class no charge differs."""
        classes = list[tuple[int, ...]]()
        for kernel in scope:
            along = [
                np.moveaxis(amounts_left(charge, self.choices.domain), charge.scope.index(kernel), 0).reshape(
                    len(self.choices.domain[kernel]), -1
                )
                for charge in charges
                if kernel in charge.scope
            ]
            classes.append(_labels(np.concatenate(along, axis=1)))
        return tuple(classes)

    def terms(self, resource: str, scale: float) -> Terms:
        """Linear terms of the resource use of blocks, one row for each block, multiplied by ``scale``."""
        return [(columns, amounts * scale) for columns, amounts in self.sums.get(resource, ())]

    def _sum(self, *resources: str) -> Sum:
        """What blocks have of some resources together, in bytes."""
        none = np.zeros(self.choices.blocks)
        terms = [term for name in resources for term in self.terms(name, 1.0)]
        return Sum(terms, none + sum(self._most.get(name, none) for name in resources))

    # -- limits -------------------------------------------------------------------------------
    def _in_token_blocks(self, of: TokenRows) -> TokenBlockRows:
        """Which blocks take their tokens in blocks, and what these read again from DRAM and SRAM."""
        terms: dict[str, Sum] = {name: self._sum(name) for name in TOKEN_RESOURCES if name in self.sums}
        rows = TokenBlockRows(self.model, self.chip, of, self._sum(*_HELD), terms)
        for resource, again in (("dram_bytes", "block_reread_bytes"), ("sram_traffic_bytes", "block_access_bytes")):
            if (term := rows.again(again)) is not None:
                self.sums.setdefault(resource, []).append(term)
        return rows

    def _forbid(self) -> None:
        """Options that cannot be together, wherever the first of their kernels is."""
        for charge in (each for each in self.table.charges if each.resource == "legal"):
            scope, classes, amount = self.classified(charge)
            self.model.bound(self.choices.placed(scope[0], scope, classes)[np.isinf(amount)], upper=0.0)

    def _sram(self) -> None:
        """What waits, moves and stays on the chip fits into its SRAM."""
        terms = [term for name in _HELD for term in self.terms(name, 1 / self.chip.sram)]
        if terms and self._token_blocks is not None:
            self._token_blocks.fits("sram", terms, self._sum(*_HELD).most_b)
        elif terms:
            self.model.rows("sram", terms, upper=1.0 + FITS)

    def _weight_parts(self) -> None:
        """A kernel whose weight does not fit is alone, in parts: it needs less SRAM, and moves some bytes again."""
        if not self.chip.cuts_weights:
            return
        for k in range(len(self.choices.domain)):
            self.clock.check()
            alone = np.arange(len(self.choices.domain))[None] == k
            paid_i = counts(self.table.incidences, alone)[0]
            own = [
                c
                for c in np.flatnonzero(paid_i[self.table.incidence_c] > 0)
                if self.table.charges[c].resource in _PARTS
            ]
            charges = [self.table.charges[c] for c in own]
            if not any(charge.resource == "stationary_bytes" for charge in charges):
                continue
            scope = tuple(sorted({kernel for charge in charges for kernel in charge.scope}))
            classes = self._classes(charges, scope)
            shape = [max(each) + 1 for each in classes]
            totals = {name: np.zeros(shape) for name in _PARTS}
            for c, charge in zip(own, charges, strict=True):
                of_charge = [classes[scope.index(kernel)] for kernel in charge.scope]
                amount = _of_classes(amounts_left(charge, self.choices.domain), of_charge)
                axes = [shape[axis] if kernel in charge.scope else 1 for axis, kernel in enumerate(scope)]
                totals[charge.resource] += amount.reshape(axes) * paid_i[self.table.incidence_c[c]]
            self._in_parts(k, scope, classes, {name: each.ravel() for name, each in totals.items()})

    def _in_parts(self, k: int, scope: Scope, classes: OptionClasses, totals: dict[str, Floats]) -> None:
        cut_f = totals["stationary_bytes"] + totals["cut_buffer_bytes"]
        parts_f = parts_of(self.chip, totals["buffer_bytes"] - totals["cut_buffer_bytes"], cut_f)
        cut = np.flatnonzero(parts_f > 1)
        if not len(cut):
            return
        columns = self.choices.placed(k, scope, classes).reshape(len(parts_f), -1)[cut]
        if self._token_blocks is not None:
            columns = self._token_blocks.where_held(f"in_parts_{k}", columns)
        never = np.isinf(parts_f[cut])
        self.model.bound(columns[never], upper=0.0)
        columns, cut = columns[~never], cut[~never]
        if not len(cut):
            return
        parts = parts_f[cut]
        again = (parts - 1) * totals["reread_bytes"][cut]
        less = cut_f[cut] * (1 - 1 / parts)
        shape = columns.T.shape
        self.sums.setdefault("dram_bytes", []).append((columns.T, np.broadcast_to(again, shape)))
        self.sums.setdefault("stationary_bytes", []).append((columns.T, np.broadcast_to(-less, shape)))
        others = np.delete(self.choices.A_kb, k, axis=0).T
        rows = (columns >= 0).any(axis=0) & (others >= 0).any(axis=1)
        if rows.any():  # its weight streams through the whole chip
            most = float(others.shape[1])
            self.model.rows(f"alone_{k}", [(others[rows], 1.0), (columns.T[rows], most)], upper=most)

    # -- times --------------------------------------------------------------------------------
    def times(self) -> Ints:
        """Add columns for the scaled seconds of blocks, with the rows that bound them from below; shape (blocks,)."""
        model, blocks = self.model, self.choices.blocks
        column_of = {name: model.continuous(name, (blocks,), 0.0) for name in self.chip.resources}
        self._compute(column_of["compute"])
        self._memory(column_of["memory"])
        self._at_least("network", column_of["network"], self.terms("network_s", 1 / self.unit_s))
        if "sram" in column_of:
            scale = 1 / (self.chip.sram_bandwidth * self.unit_s)
            self._at_least("sram_access", column_of["sram"], self.terms("sram_traffic_bytes", scale))
        time = model.continuous("time", (blocks,), 0.0)
        for summed in self.chip.rule.serial_sets:
            names = [self.chip.resources[each] for each in summed]
            self._at_least(f"time_{'_'.join(names)}", time, [(column_of[name], 1.0) for name in names])
        return time

    def _at_least(self, name: str, column: Ints, terms: Terms) -> None:
        less: Terms = [(columns, -np.asarray(amounts)) for columns, amounts in terms]
        self.model.rows(f"{name}_time", [(column, 1.0), *less], lower=0)

    def _compute(self, compute: Ints) -> None:
        """Seconds of compute; under the cycle model each kernel takes tiles for a latency, and blocks the longest."""
        if not len(self.latency_l):
            self._at_least("compute", compute, self.terms("compute_s", 1 / self.unit_s))
            return
        tiles, least = Terms(), Terms()
        for charge in self.table.charges:
            if charge.resource != "compute_tiles":
                continue
            (k,) = charge.scope
            scope, classes, needed_cl = self.classified(charge)
            placed = self.choices.placed(k, scope, classes)
            here = np.flatnonzero(placed[0] >= 0)
            for c, needed_l in enumerate(needed_cl):
                first = np.flatnonzero((np.diff(needed_l, prepend=np.inf) < 0) & (needed_l <= self.chip.tiles))
                used, seconds = needed_l[first], self.latency_l[first] / self.unit_s
                columns = np.full((self.choices.blocks, len(first)), -1, dtype=np.int64)
                columns[here] = self.model.binary(f"tiles_{k}_{c}", (len(here), len(first)))
                self.model.rows(f"tiles_{k}_{c}", [(columns[here], 1.0), (placed[c, here], -1.0)], 0, 0)
                self.model.rows(f"pace_{k}_{c}", [(compute[here], 1.0), (columns[here], -seconds)], lower=0)
                tiles.append((columns, used / self.chip.tiles))
                least.append((columns, used * seconds / self.chip.tiles))
        self.model.rows("tiles", tiles, upper=1.0)
        self._at_least("work", compute, least)  # over the whole chip: a tighter relaxation

    def _memory(self, memory: Ints) -> None:
        """Seconds of DRAM; where its rate depends on the bytes of a block, of the row that these reach."""
        rate = self.chip.dram_bandwidth * self.unit_s
        if not self.chip.memory_rows:
            self._at_least("memory", memory, self.terms("dram_bytes", 1 / rate))
            return
        rows, blocks = self._rates, self.choices.blocks
        shares = np.array([row.share for row in rows])
        moved = self.terms("dram_bytes", 1.0)
        # of the columns of a term one at most is not 0
        most_b = sum((np.where(columns >= 0, np.maximum(amounts, 0.0), 0.0)).max(axis=1) for columns, amounts in moved)
        unit = float(np.max(most_b)) or 1.0
        least = np.array([row.bytes or 0.0 for row in rows]) / unit * (1 - ROUNDING)
        falls = [shares[j:].min() < share for j, share in enumerate(shares)]
        below = np.where(falls, np.append(least[1:], 1.0), 1.0)  # a faster row is taken wherever it is reached
        reached = self.model.binary("rate", (blocks, len(rows)))
        bytes_bj = self.model.continuous("moved", (blocks, len(rows)), 0.0, 1.0)
        self.model.rows("one_rate", [(reached, 1.0)], 1, 1)
        scaled: Terms = [(columns, -np.asarray(amounts) / unit) for columns, amounts in moved]
        self.model.rows("moved", [(bytes_bj, 1.0), *scaled], 0, 0)
        flat = bytes_bj.ravel(), reached.ravel()
        self.model.rows("rate_most", [(flat[0], 1.0), (flat[1], -np.tile(below, blocks))], upper=0)
        self.model.rows("rate_least", [(flat[0], 1.0), (flat[1], -np.tile(least, blocks))], lower=0)
        self._at_least("memory", memory, [(bytes_bj, shares.max() / shares * unit / rate)])


_OF_BLOCKS = {
    "compute_s", "network_s", "dram_bytes", "sram_traffic_bytes", "buffer_bytes", "stationary_bytes", *TOKEN_RESOURCES,
}  # fmt: skip
_HELD = ("buffer_bytes", "stationary_bytes")
_PARTS = ("buffer_bytes", "cut_buffer_bytes", "stationary_bytes", "reread_bytes")


def _labels(amounts_ox: Floats) -> tuple[int, ...]:
    """Class of each option: options with equal amounts share one, numbered by first appearance."""
    seen: dict[bytes, int] = {}
    return tuple(seen.setdefault((row + 0.0).tobytes(), len(seen)) for row in amounts_ox)


def _of_classes(amount: Floats, classes: Sequence[Sequence[int]]) -> Floats:
    """Amounts of classes, from those of options: of the first option of each."""
    firsts = [[each.index(c) for c in range(max(each) + 1)] for each in classes]
    return amount[np.ix_(*firsts)] if firsts else amount
