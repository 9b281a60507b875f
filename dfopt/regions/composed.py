"""Exact prices where a step is no function of the seconds of layers alone: the best paths of one plan and vector.

Passes of a layer hide exchanges and moving, or two microbatches take turns: then of several paths through a layer none
may be the best whatever the rest of the plan is. The paths are listed that no other one beats in every sum, or in every
piece, and that are short enough for a cutoff. All choices of one for each kind of layer are valued together.

Suffixes: a arc, b block, k kernel or kind of layer, n path, z sum of a path, v choice of a path for each kind.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple

import numpy as np

from dfopt.arrays import ROUNDING, Floats, Ints
from dfopt.bnb import UNLIMITED, Clock
from dfopt.fusion.turns import LayerTurns, pieces, together
from dfopt.physics.pipeline import with_point_to_point
from dfopt.regions.arcs import Arcs
from dfopt.regions.chains import pareto_fronts
from dfopt.regions.classes import PlanClass
from dfopt.regions.passes import fields_of, least_passes, seconds_of
from dfopt.setting.stages import in_order
from dfopt.terms.blocks import BlockPrices
from dfopt.terms.bounds.passes import PassSeconds
from dfopt.terms.bounds.transfers import Transfers

_MOST = 2_000
"""Paths to one down-set that are compared with one another, at most: 30 MB for each sum."""
_CHOICES = 20_000
"""Choices of a path for every kind of layer that are valued, at most."""
_SHARES = 1 / 64, 1 / 16, 1 / 4, 1.0
"""Of what lies between the least step and the cutoff, how much is looked at: the closer, the fewer paths matter."""


@dataclass(frozen=True, eq=False)
class Composed:
    """Exact pricing of one plan and one vector of options, where the step depends on more than layer seconds.

    Attributes
    ----------
    of : PlanClass
        Class with this plan alone.
    arcs_k : sequence of Arcs
        Blocks that may be used, by kind of layer.
    priced_k : sequence of BlockPrices
        Prices of these blocks under the vector.
    beside_layers : Transfers
        Seconds of the step outside of the layers, under the vector, without those of passes.
    clock : Clock
        Says when to list no more paths: then there are too many.
    """

    of: PlanClass
    arcs_k: Sequence[Arcs]
    priced_k: Sequence[BlockPrices]
    beside_layers: Transfers
    clock: Clock = UNLIMITED

    @property
    def _turns(self) -> bool:
        return bool(self.of.plans[0].two_batch_overlap)

    @cached_property
    def _price_kb(self) -> list[Floats]:
        return [seconds_of(priced)[0] for priced in self.priced_k]

    @cached_property
    def _shortest_k(self) -> list[tuple[float, Ints]]:
        """The shortest path of every kind of layer, with its seconds."""
        return [arcs.shortest(price_b) for arcs, price_b in zip(self.arcs_k, self._price_kb, strict=True)]

    @property
    def _layer_k(self) -> Floats:
        """Seconds of the shortest paths."""
        return np.array([seconds for seconds, _ in self._shortest_k])

    def best(self, cutoff: float) -> tuple[float, list[Ints] | None, float]:
        """The best combination of paths, one for each kind of layer, below a cutoff.

        Returns
        -------
        (float, list of int array or None, float)
            Seconds of the step, the paths, and a lower bound on the step under all paths that are not listed (infinite
            if all are).
        """
        if np.isinf(self._layer_k).any():
            return math.inf, None, math.inf
        paths = [path for _, path in self._shortest_k]
        value, low = float(self._values([[path] for path in paths])[0]), float(self._least()[0])
        if value <= low * (1 + ROUNDING):
            return value, paths, math.inf
        most, shown = min(cutoff, value * (1 + ROUNDING)), low
        for share in _SHARES:
            limit = min(low + share * (most - low), value * (1 + ROUNDING))
            menus = self._menus(limit)
            if menus is None or math.prod(map(len, menus)) > _CHOICES:
                return value, paths, shown
            if all(menus):
                values = self._values(menus)
                at = int(values.argmin())
                if values[at] < value:
                    value, paths = float(values[at]), list(list(product(*menus))[at])
                if value <= limit:
                    break
            shown = limit
        return value, paths, math.inf

    def _least(self) -> Floats:
        """Seconds of a step at least, by the shortest paths for every sum."""
        beside_layers = self.beside_layers
        if self.of.by_pass is not None:
            beside_layers = beside_layers._replace(passes=least_passes(self.of.by_pass, self.arcs_k, self.priced_k))
        return np.asarray(self.of.steps.of(self._layer_k[:, None], beside_layers)[0])

    # -- paths that matter --------------------------------------------------------------------------------------------

    def _menus(self, cutoff: float) -> list[list[Ints]] | None:
        """Paths of every kind that may be below a cutoff, and that none beats; none if there are too many."""
        menus = []
        for kind, (arcs, price_b) in enumerate(zip(self.arcs_k, self._price_kb, strict=True)):
            most = float(self.of.steps.most(cutoff, self._layer_k, kind, self.beside_layers)[0]) * (1 + ROUNDING)
            few = arcs.kept(arcs.through(price_b)[1] <= most)
            if few is None:
                return [[] for _ in self.arcs_k]
            some, blocks, arc_a = few
            menu = self._in_turns(some, price_b[blocks], most) if self._turns else self._by_sums(kind, *few[:2], most)
            if menu is None:
                return None
            menus.append([arc_a[path] for path in menu])
        return menus

    def _in_turns(self, arcs: Arcs, price_b: Floats, most: float) -> list[Ints] | None:
        """Paths that none beats in every piece."""
        return unbeaten_paths(arcs, price_b, price_b[:, None], most, self.clock, arcs.member_bk @ self._sent_k)

    def _by_sums(self, kind: int, arcs: Arcs, blocks: Ints, most: float) -> list[Ints] | None:
        """Paths that none beats in every sum that a step grows with."""
        assert self.of.by_pass is not None
        fields = fields_of(self.of.by_pass, self.arcs_k[kind], self.priced_k[kind])
        ahead, back, ahead_memory, back_memory, *others = (None if each is None else each[0, blocks] for each in fields)
        assert ahead is not None and back is not None
        if ahead_memory is not None and back_memory is not None and self.of.by_pass.waits_count:
            # what a pass waits grows with the time of memory beyond its work, which is less than none
            ahead_memory, back_memory = ahead_memory - ahead, back_memory - back
        used = [each for each in (ahead, back, ahead_memory, back_memory, *others) if each is not None]
        return unbeaten_paths(arcs, self._price_kb[kind][blocks], np.stack(used, axis=1), most, self.clock)

    # -- values -------------------------------------------------------------------------------------------------------

    def _values(self, menus: Sequence[Sequence[Ints]]) -> Floats:
        """Seconds of a step for every choice of a path of each kind, the last kind first: shape (choices,)."""
        if self._turns:
            return self._of_turns(menus)
        assert self.of.by_pass is not None
        pairs = zip(self.arcs_k, self.priced_k, strict=True)
        fields = [fields_of(self.of.by_pass, arcs, priced) for arcs, priced in pairs]
        place_kv = np.array(list(product(*(range(len(menu)) for menu in menus))), dtype=np.int64).T

        def path_sums(of_kind: Sequence[Floats | None]) -> Floats:
            """Of a sum of blocks, by kind: that of the chosen paths."""
            sum_kv = []
            for arcs, menu, place_v, each_b in zip(self.arcs_k, menus, place_kv, of_kind, strict=True):
                sum_n = np.array([0.0 if each_b is None else each_b[arcs.block_a[path]].sum() for path in menu])
                sum_kv.append(sum_n[place_v])
            return np.stack(sum_kv)

        of_field = [[None if each is None else each[0] for each in of] for of in zip(*fields, strict=True)]
        passes = PassSeconds(*(path_sums(each)[:, None] for each in of_field))
        beside_layers = self.beside_layers._replace(passes=passes, exact=True)
        return np.asarray(self.of.steps.of(path_sums(self._price_kb), beside_layers)[0])

    @cached_property
    def _sent_k(self) -> Floats:
        """Seconds of each kernel's communications while another microbatch computes."""
        return np.asarray(self.of.instance(0).hidden_s)

    def _of_turns(self, menus: Sequence[Sequence[Ints]]) -> Floats:
        """The same of two microbatches that take turns (:mod:`dfopt.fusion.turns`)."""
        instance, hop_r = self.of.instance(0), self.beside_layers.hop_rv[:, 0]
        hidden = self.of.table_of_plans.hides_hops_i[0]
        rows = [in_order(instance.graph, instance.plan, stage.number) for stage in instance.pipeline]
        pieces_kn = [[self._pieces(kind, path) for path in menu] for kind, menu in enumerate(menus)]
        seconds_nr = [[together((chosen[k], n) for k, n in row) for row in rows] for chosen in product(*pieces_kn)]
        hops = [list(zip(seconds_r, hop_r, strict=True)) for seconds_r in seconds_nr]
        busy_nr = [[with_point_to_point(seconds, 2.0 * hop, hidden) for seconds, hop in each] for each in hops]
        return np.asarray(self.of.steps.of_busy(np.array(busy_nr).T, self.beside_layers)[0])

    def _pieces(self, kind: int, path: Ints) -> LayerTurns:
        arcs, blocks = self.arcs_k[kind], self.arcs_k[kind].block_a[path]
        return pieces(self._price_kb[kind][blocks].tolist(), (arcs.member_bk[blocks] @ self._sent_k).tolist())


class _Paths(NamedTuple):
    """Paths to a down-set that send the same: their lengths and sums, the last arc of each and the path before that."""

    length_n: Floats
    sum_nz: Floats
    arc_n: Ints
    from_n: Ints

    def with_block(self, arc: int, length: float, sum_z: Floats, sent: tuple[float, ...], sending: float) -> _Paths:
        """The same with one more block, see :func:`unbeaten_paths`.

        ``sent``: what they send, ``sending``: what the block sends behind that.
        """
        length_n, sum_nz = self.length_n + length, self.sum_nz.copy()
        sum_nz[:, -len(sum_z) :] += sum_z
        if sending > 0:
            messages = (sent[-1], sending) if sent else ()
            length_n = length_n + sum(np.maximum(each - sum_nz[:, -1], 0.0) for each in messages) / 2
            sum_nz = np.pad(sum_nz, ((0, 0), (0, len(sum_z))))
        return _Paths(length_n, sum_nz, np.full(len(length_n), arc), np.arange(len(length_n)))

    def of(self, some: Ints) -> _Paths:
        """Some of them."""
        return _Paths(self.length_n[some], self.sum_nz[some], self.arc_n[some], self.from_n[some])

    @property
    def unbeaten(self) -> _Paths:
        """Those of which no other one is nowhere above; the first of those that are alike."""
        return self.of(np.sort(pareto_fronts(np.zeros_like(self.arc_n), self.sum_nz)))

    def and_(self, others: _Paths) -> _Paths:
        """They and others that send the same."""
        length_n, sum_nz, arc_n, from_n = (np.concatenate(pair) for pair in zip(self, others, strict=True))
        return _Paths(length_n, sum_nz, arc_n, from_n)


def unbeaten_paths(
    arcs: Arcs, length_b: Floats, sum_bz: Floats, most: float, clock: Clock = UNLIMITED, sent_b: Floats | None = None
) -> list[Ints] | None:
    """Pareto-optimal paths of limited length: no other path is smaller in every sum; of equal ones, one.

    Where two microbatches take turns (:mod:`dfopt.fusion.turns`), sums begin anew behind each message, and a path beats
    only those that send the same. What the first piece of a layer is hidden behind depends on the layer before, and it
    may have worked on that one's last kernels; the pieces after it are its own. So both take no less than

    ``2 C_1 + sum over i > 1 of (max(C_i, N_{i-1}) + max(C_i, N_i)) + 2 C_rest``

    in every such layer, wherever it stands, and layers add up. Half of that is the length of a path.

    Parameters
    ----------
    arcs : Arcs
        Down-sets and the blocks between them.
    length_b : float array, shape (blocks,)
        Length of every block.
    sum_bz : float array, shape (blocks, sums)
        Amount that every block adds to each sum; it may be negative.
    most : float
        Length above which a path is of no interest.
    clock : Clock
        Charged one unit for every path to a down-set.
    sent_b : float array, s, shape (blocks,), optional
        Message that each block sends after its seconds, which are then its length and its only sum. Left out: no
        messages.

    Returns
    -------
    list of int array, or None
        Arcs of each path. None: there are too many, or the time for them is over.

    Examples
    --------
    >>> sets = np.array([[False, False], [True, False], [True, True]])
    >>> blocks = np.array([[True, False], [False, True], [True, True]])
    >>> arcs = Arcs(blocks, sets, np.array([0, 1, 0]), np.array([1, 2, 2]), np.array([0, 1, 2]))
    >>> sums = np.array([[1.0, 0.0], [1.0, 1.0], [3.0, 0.5]])
    >>> [path.tolist() for path in unbeaten_paths(arcs, np.ones(3), sums, 9.0)]
    [[0, 1], [2]]
    """
    rest_j, sent_b = arcs.remaining(length_b), np.zeros(len(length_b)) if sent_b is None else sent_b
    start = _Paths(np.zeros(1), np.zeros((1, sum_bz.shape[1])), *np.zeros((2, 1), dtype=np.int64))
    labels_j: list[dict[tuple[float, ...], _Paths]] = [{(): start}, *({} for _ in arcs.set_jk[1:])]
    for arc, (before, after, block) in enumerate(zip(arcs.before_a, arcs.after_a, arcs.block_a, strict=True)):
        sending = float(sent_b[block])
        for sent, labels in labels_j[before].items():
            longer = labels.with_block(arc, length_b[block], sum_bz[block], sent, sending)
            extended = longer.of(np.flatnonzero(longer.length_n + rest_j[after] <= most))
            if len(extended.length_n):
                key = (*sent, sending) if sending > 0 else sent
                labels_j[after][key] = labels_j[after][key].and_(extended) if key in labels_j[after] else extended
        if arc + 1 == len(arcs.after_a) or arcs.after_a[arc + 1] != after:
            count = sum(len(labels.length_n) for labels in labels_j[after].values())
            clock.charge(count)
            if count > _MOST or clock.over:
                return None
            labels_j[after] = {sent: labels.unbeaten for sent, labels in labels_j[after].items()}
    ends = [(sent, n) for sent, labels in labels_j[-1].items() for n in range(len(labels.length_n))]
    return [_traced(arcs, labels_j, sent_b, *end) for end in ends]


def _traced(
    arcs: Arcs, labels_j: Sequence[dict[tuple[float, ...], _Paths]], sent_b: Floats, sent: tuple[float, ...], n: int
) -> Ints:
    """Arcs of a path to the last down-set."""
    place, path = len(labels_j) - 1, list[int]()
    while place > 0:
        labels = labels_j[place][sent]
        path.append(int(labels.arc_n[n]))
        n, place = int(labels.from_n[n]), int(arcs.before_a[path[-1]])
        sent = sent[:-1] if sent_b[arcs.block_a[path[-1]]] > 0 else sent
    return np.array(path[::-1], dtype=np.int64)
