"""The shortest path through the down-sets of a stage on which all blocks agree about the tracked groups.

A label is a way to a down-set: its seconds, and the state of every tracked group that kernels on both sides touch. The
state is 0 as long as nothing is known of a group, and again once nobody touches it any more; else one more than a code
of :mod:`dfopt.joint.couplings`, higher by :func:`dfopt.joint.cells.outer_code` while its source has not run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dfopt.bnb import UNLIMITED, Clock, OutOfTime
from dfopt.fusion.lattice import ShortestPath
from dfopt.joint.cells import Cells, code_of, outer_code
from dfopt.joint.couplings import SETS, Group
from dfopt.joint.paths import Blocks
from dfopt.terms.sharded_graph import Bools, Floats, Ints

_MOST = 20_000_000  # labels
_COMPARED = 256  # labels of a down-set that the others are compared with


@dataclass(frozen=True, eq=False)
class Rows:
    """Blocks under one interface each, of blocks that share their cells: interface and seconds, block by number."""

    cells: Cells
    block: Ints
    interface: Ints
    seconds: Floats


_Back = tuple[Ints, Ints, Ints, Ints]  # of each label: down-set before, family, label there, row in the family


@dataclass(frozen=True, eq=False)
class _Family:
    """Rows whose cells show the same groups to the outside, sorted by the down-set that they leave.

    Attributes
    ----------
    columns : list of int
        Places of the groups in a state.
    codes : int
        Their codes in every row.
    number, place : int
        The `Rows` that every row is from, and its place there.
    """

    columns: list[int]
    block: Ints
    seconds: Floats
    codes: Ints
    number: Ints
    place: Ints


@dataclass(frozen=True, eq=False)
class _Arrival:
    """Labels that one family of rows brings to a down-set."""

    seconds: Floats
    states: Ints
    label: Ints
    row: Ints
    before: int
    family: int


class Meeting:
    """What two blocks say of a group, put together.

    Attributes
    ----------
    next_xy : int
        State after a block with code y (less than 0 in ``next_xy`` where they contradict each other), from state x.
    better_xy : bool
        Whether state x leaves at least as much to those who come as state y.
    """

    def __init__(self, group: Group) -> None:
        count = outer_code(group)
        codes = np.arange(2 * count)
        outer, cls, asked = codes >= count, codes % count // SETS, codes % SETS
        known = cls < group.classes
        free = np.where(known, group.free_ca[np.minimum(cls, group.classes - 1), asked], 0)
        share = group.share_c[np.minimum(cls, group.classes - 1)]
        # x the state so far, y what a block says; of both the readers' sets must be covered by what the source pays
        agree = cls[:, None] == cls[None, :]
        covered = (asked[None, :] & ~free[:, None]) == 0  # y asks for what x has paid
        paying = (asked[:, None] & ~free[None, :]) == 0  # y pays for what x has asked for
        x_outer, y_outer = outer[:, None], outer[None, :]
        ok = agree & np.where(x_outer, np.where(y_outer, True, paying), np.where(y_outer, covered, False))
        after = np.where(
            x_outer & y_outer, codes[:, None] | asked[None, :], np.where(x_outer, codes[None, :], codes[:, None])
        )
        self.next_xy = np.full((2 * count + 1, 2 * count), -1)
        self.next_xy[1:] = np.where(ok, after + 1, -1)
        self.next_xy[0] = codes + 1
        self.better_xy = np.eye(2 * count + 1, dtype=bool)
        inner = ~x_outer & ~y_outer & known[:, None] & known[None, :]
        better = (share[:, None] <= share[None, :]) & ((free[None, :] & ~free[:, None]) == 0)
        if group.toll_r is not None:  # whatever is still to be read
            seconds = group.seconds_ca[np.minimum(cls, group.classes - 1)]
            better = (seconds[:, None, :] <= seconds[None, :, :]).all(axis=2)
        self.better_xy[1:, 1:] |= inner & better


class Labels:
    """Labels of every down-set, from the empty one on; ``value`` and ``path`` of the best that reaches the full one."""

    def __init__(
        self,
        search: ShortestPath,
        groups: tuple[Group, ...],
        tracked: tuple[int, ...],
        blocks: Blocks,
        rest: Floats,
        room: float,
    ) -> None:
        self.search, self.tracked, self.rest, self.room = search, tracked, rest, room
        self.before, self.after = blocks.before, blocks.after
        self.meetings = [Meeting(groups[g]) for g in tracked]
        member = search.lattice.member
        of_group = [sorted(groups[g].kernels()) for g in tracked]
        touched = [member[:, kernels] for kernels in of_group]
        # a group needs a place in the state while some of its kernels have run and others not
        under_way = [some.any(axis=1) & ~some.all(axis=1) for some in touched]
        self.open = np.array(under_way, dtype=bool).T.reshape(len(member), len(tracked))
        self.made = 0
        self.value = np.inf
        self.path: list[tuple[Cells, int, int]] = []  # cells, block and interface

    def run(self, rows: list[Rows], clock: Clock = UNLIMITED) -> None:
        """Follow the rows from down-set to down-set.

        Raises
        ------
        OutOfTime
            When the clock is over, or if there are more labels than memory is good for.
        """
        sets = len(self.search.lattice.size)
        width = len(self.tracked) + 1  # the last column counts the blocks, where their number matters
        arrivals: list[list[_Arrival]] = [[] for _ in range(sets)]
        kept: list[tuple[Floats, Ints]] = [(np.zeros(0), np.zeros((0, width), dtype=np.int64))] * sets
        back: dict[int, _Back] = {}
        families = self._families(rows)
        leaving = self._leaving(families)
        charged = self.made
        for here in range(sets):
            if self.made >= _MOST:
                raise OutOfTime
            clock.check(5.0 + (self.made - charged) / 4)
            charged = self.made
            if here == 0:
                kept[0] = np.zeros(1), np.zeros((1, width), dtype=np.int64)
            elif arrivals[here]:
                kept[here], back[here] = self._settle(arrivals[here])
                arrivals[here] = []
            if not len(kept[here][0]):
                continue
            labels = self._numbered(*kept[here])
            for number, first, end in leaving.get(here, ()):
                for target, entry in self._follow(here, labels, families[number], first, end, number):
                    arrivals[target].append(entry)
        self._finish(kept[-1], back, families, rows)

    def _numbered(self, seconds: Floats, states: Ints) -> tuple[Floats, Ints, Ints]:
        """Labels with their numbers; where partitions may stay empty, with every higher count too."""
        numbers = np.arange(len(seconds))
        if self.search.may_skip:
            more = [
                np.flatnonzero(states[:, -1] + skipped <= self.search.layers)
                for skipped in range(self.search.layers + 1)
            ]
            numbers = np.concatenate(more)
            states = states[numbers]
            states[:, -1] += np.repeat(np.arange(len(more)), [len(part) for part in more])
        return seconds[numbers], states, numbers

    def _families(self, rows: list[Rows]) -> list[_Family]:
        """Rows that show the same groups put together: each step takes all of them at once."""
        alike: dict[tuple[int, ...], list[int]] = {}
        for number, row in enumerate(rows):
            alike.setdefault(row.cells.groups, []).append(number)
        column = {g: place for place, g in enumerate(self.tracked)}
        found = []
        for groups, numbers in alike.items():
            mine = [rows[number] for number in numbers]
            block = np.concatenate([row.block for row in mine])
            order = np.argsort(self.before[block], kind="stable")
            lengths = [len(row.block) for row in mine]
            one = _Family(
                columns=[column[g] for g in groups],
                block=block[order],
                seconds=np.concatenate([row.seconds for row in mine])[order],
                codes=np.concatenate([row.cells.codes_ig[row.interface] for row in mine])[order],
                number=np.repeat(numbers, lengths)[order],
                place=np.concatenate([np.arange(length) for length in lengths])[order],
            )
            found.append(one)
        return found

    def _leaving(self, families: list[_Family]) -> dict[int, list[tuple[int, int, int]]]:
        """By down-set, the rows that leave it: number of the family, first row and end."""
        found: dict[int, list[tuple[int, int, int]]] = {}
        for number, family in enumerate(families):
            start = self.before[family.block]
            cuts = [0, *(np.flatnonzero(np.diff(start)) + 1).tolist(), len(start)]
            for first, end in pairwise(cuts):
                found.setdefault(int(start[first]), []).append((number, first, end))
        return found

    def _follow(
        self, here: int, labels: tuple[Floats, Ints, Ints], family: _Family, first: int, end: int, number: int
    ) -> Iterator[tuple[int, _Arrival]]:
        """The labels that rows of one family make of those of a down-set, by the down-set that they lead to."""
        seconds, states, origin = labels
        if len(seconds) * (end - first) > _MOST:
            raise OutOfTime
        total = seconds[:, None] + family.seconds[first:end]
        after = self.after[family.block[first:end]]
        alive = total + self.rest[after] <= self.room
        if self.search.counted:
            alive &= self._may_be(here, states[:, -1], after)
        codes = family.codes[first:end]
        for place, column in enumerate(family.columns):
            alive &= self.meetings[column].next_xy[states[:, column][:, None], codes[:, place]] >= 0
        label, which = np.nonzero(alive)
        if not len(label):
            return
        new = states[label]
        for place, column in enumerate(family.columns):
            new[:, column] = self.meetings[column].next_xy[new[:, column], codes[which, place]]
        target = after[which]
        new[:, :-1] *= self.open[target]
        new[:, -1] += self.search.counted
        total = total[label, which]
        order = np.argsort(target, kind="stable")
        cuts = np.flatnonzero(np.diff(target[order])) + 1
        for part in np.split(order, cuts):
            came = _Arrival(total[part], new[part], origin[label[part]], first + which[part], here, number)
            yield int(target[part[0]]), came

    def _may_be(self, here: int, count: Ints, after: Ints) -> Bools:
        """Whether the blocks may have the number that the label's count gives them."""
        search = self.search
        member = search.lattice.member[after] & ~search.lattice.member[here]
        allowed = np.stack(
            [search.allowed(member, layer) for layer in range(search.layers)] + [np.zeros(len(after), bool)]
        )
        return np.asarray(allowed[count])

    def _settle(self, arrivals: list[_Arrival]) -> tuple[tuple[Floats, Ints], _Back]:
        """Of the labels of a down-set those that no other one beats."""
        total, states, label, row = (
            np.concatenate([getattr(came, name) for came in arrivals]) for name in ("seconds", "states", "label", "row")
        )
        source = np.repeat(np.arange(len(arrivals)), [len(came.seconds) for came in arrivals])
        order = np.argsort(total, kind="stable")
        _, first = np.unique(code_of(iter(states[order].T), len(order)), return_index=True)
        picked = order[np.sort(first)]
        keep: list[int] = []
        ahead = np.zeros((0, states.shape[1]), dtype=np.int64)
        for one in picked.tolist():
            if len(keep) and self._beaten(ahead, states[one]):
                continue
            keep.append(one)
            if len(ahead) < _COMPARED:
                ahead = np.concatenate([ahead, states[one : one + 1]])
        self.made += len(total)
        chosen = np.array(keep, dtype=np.int64)
        where = np.array([(came.before, came.family) for came in arrivals])[source[chosen]]
        return (total[chosen], states[chosen]), (where[:, 0], where[:, 1], label[chosen], row[chosen])

    def _beaten(self, ahead: Ints, state: Ints) -> bool:
        """Whether one of some states that cost no more leaves at least as much."""
        search, count = self.search, ahead[:, -1]
        good = count == state[-1] if search.limits.exactly or search.numbered else count <= state[-1]
        for place, meeting in enumerate(self.meetings):
            good &= meeting.better_xy[ahead[:, place], state[place]]
        return bool(good.any())

    def _finish(
        self, last: tuple[Floats, Ints], back: dict[int, _Back], families: list[_Family], rows: list[Rows]
    ) -> None:
        """Walk back from the best label of the full down-set."""
        seconds, states = last
        if self.search.limits.exactly:
            ends = np.flatnonzero(states[:, -1] == self.search.limits.p_max)
        else:
            ends = np.arange(len(seconds))
        if not len(ends):
            return
        label = int(ends[np.argmin(seconds[ends])])
        self.value = float(seconds[label])
        here = len(self.search.lattice.size) - 1
        while here != 0:
            before, number, parent, row = (int(of[label]) for of in back[here])
            family = families[number]
            source = rows[family.number[row]]
            self.path.append((source.cells, int(family.block[row]), int(source.interface[family.place[row]])))
            here, label = before, parent
        self.path.reverse()
