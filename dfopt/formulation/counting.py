"""How often blocks pay an incidence, as columns and rows of a MILP: the matrices of the paper.

Every incidence of :mod:`dfopt.terms.incidence` is a statement about which kernels a block holds. Beside options it is
the same statement about columns that are 1 where a block holds a kernel *and* a scope has a combination of classes
(:meth:`dfopt.formulation.choices.Choices.placed`). Counts are held up from below: amounts are never negative, so
nothing is gained by counting more, unless more bytes take less time. Then they are exact wherever places are 0 or 1.

Suffixes: b block, f combination of classes of a scope, i incidence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import singledispatchmethod

import numpy as np

from dfopt.arrays import Floats, Ints
from dfopt.formulation.choices import Choices, OptionClasses, Scope
from dfopt.milp import Model
from dfopt.setting.reads import memoized
from dfopt.terms.incidence import AnyOf, Crosses, Exactly, Has, Incidence, Inside

Summands = tuple[tuple[int, float], ...]
"""Columns with coefficients, of which a count is at least the sum."""


@dataclass(frozen=True)
class Tally:
    """Multiples of columns that count a charge by block: ``times`` the column, 0 where the column is -1."""

    columns: Ints
    times: Floats


@dataclass
class CountRows:
    """MILP columns for incidence counts, each built once.

    Attributes
    ----------
    choices : Choices
        Options and places.
    exact : bool
        Whether nothing may be counted that a block does not pay.
    """

    choices: Choices
    exact: bool = False

    @memoized
    def count(self, incidence: Incidence, scope: Scope, classes: OptionClasses) -> Tally:
        """Count columns of an incidence by block, for each combination of option classes of a scope.

        Parameters
        ----------
        incidence
            The incidence.
        scope, classes
            Kernels whose options count, and by each of them the class of each option.
        """
        count: Tally = self._counted(incidence, scope, classes)
        return count

    @singledispatchmethod
    def _counted(self, incidence: Incidence, scope: Scope, classes: OptionClasses) -> Tally:
        raise TypeError(f"{type(incidence).__name__} has no rows")

    @_counted.register
    def _has(self, incidence: Has, scope: Scope, classes: OptionClasses) -> Tally:
        columns = self._placed(incidence.kernel, scope, classes)
        return Tally(columns, np.ones(columns.shape))

    @_counted.register
    def _any_of(self, incidence: AnyOf, scope: Scope, classes: OptionClasses) -> Tally:
        held = [self._placed(kernel, scope, classes) for kernel in incidence.kernels]
        return self._largest(len(held[0]), lambda f, b: [((int(each[f, b]), 1.0),) for each in held if each[f, b] >= 0])

    @_counted.register
    def _crosses(self, incidence: Crosses, scope: Scope, classes: OptionClasses) -> Tally:
        written = self._placed(incidence.source, scope, classes)
        read = [self._placed(kernel, scope, classes) for kernel in incidence.readers]
        inside = [self.both(incidence.source, kernel, scope, classes) for kernel in incidence.readers]

        def parts(f: int, b: int) -> list[Summands]:
            source = int(written[f, b])
            terms = list[Summands]()
            for reader, both in zip(read, inside, strict=True):
                taken, within = int(reader[f, b]), int(both[f, b])
                ends = {column for column in (source, taken) if column >= 0}
                if len(ends) == 2:
                    terms.append(((source, 1.0), (taken, 1.0), (within, -2.0)))
                elif ends and source != taken:
                    terms.append(((ends.pop(), 1.0),))
            return terms

        return self._largest(len(written), parts)

    @_counted.register
    def _deep(self, incidence: Inside, scope: Scope, classes: OptionClasses) -> Tally:
        inside = [self.both(incidence.source, kernel, scope, classes) for kernel in incidence.readers]

        def parts(f: int, b: int) -> list[Summands]:
            deep = zip(inside, incidence.depths, strict=True)
            return [((int(both[f, b]), depth),) for both, depth in deep if both[f, b] >= 0 and depth > 0]

        return self._largest(len(inside[0]), parts)

    @_counted.register
    def _exactly(self, incidence: Exactly, scope: Scope, classes: OptionClasses) -> Tally:
        pairs = list(zip(incidence.kernels, incidence.held, strict=True))
        held = [self._placed(kernel, scope, classes) for kernel, here in pairs if here]
        absent = self.choices.A_kb[[kernel for kernel, here in pairs if not here]]
        present = self.choices.A_kb[[kernel for kernel, here in pairs if here]]

        def parts(f: int, b: int) -> list[Summands]:
            columns = {int(each[f, b]) for each in held}
            others = {int(column) for column in absent[:, b] if column >= 0}
            if -1 in columns or others & set(present[:, b].tolist()):
                return []
            less = tuple((column, -1.0) for column in sorted(others))
            return [(*((column, 1.0) for column in sorted(columns)), *less)]

        return self._largest(len(held[0]), parts, sum(incidence.held))

    # -- rows ---------------------------------------------------------------------------------
    def _placed(self, kernel: int, scope: Scope, classes: OptionClasses) -> Ints:
        """Columns of a kernel in blocks beside a scope, shape (combinations, blocks)."""
        return self.choices.placed(kernel, scope, classes).reshape(-1, self.choices.blocks)

    @memoized
    def both(self, source: int, reader: int, scope: Scope, classes: OptionClasses) -> Ints:
        """Columns that are 1 where a block holds both kernels (matrix B of DFModel); -1 where it never does.

        Parameters
        ----------
        source, reader : int
            Two kernels.
        scope, classes : Scope, OptionClasses
            Kernels with their option classes, for each combination of which there is a row.
        """
        model = self.choices.model
        written, read = self._placed(source, scope, classes), self._placed(reader, scope, classes)
        both = np.where(written == read, written, -1)
        f, b = np.nonzero((written >= 0) & (read >= 0) & (written != read))
        if len(f):
            name, ends = f"B_{len(model.column_blocks)}_{source}_{reader}", (written[f, b], read[f, b])
            columns = model.continuous(name, (len(f),), 0.0, 1.0)
            for side, end in zip(("source", "reader"), ends, strict=True):
                model.rows(f"{name}_{side}", [(columns, 1.0), (end, -1.0)], upper=0)
            chosen = self._chosen(scope, classes)
            less = -1.0 if chosen is None else 0.0
            terms = [(columns, 1.0), *((end, -1.0) for end in ends)]
            model.rows(f"{name}_both", terms if chosen is None else [*terms, (chosen[f], 1.0)], lower=less)
            both[f, b] = columns
        return both

    def _chosen(self, scope: Scope, classes: OptionClasses) -> Ints | None:
        """Columns that are 1 for the combination of a scope, where they are those of one kernel."""
        several = [axis for axis, each in enumerate(classes) if max(each)]
        return self.choices.chosen(scope[several[0]], classes[several[0]]) if len(several) == 1 else None

    def _largest(self, combinations: int, parts: Callable[[int, int], Iterable[Summands]], together: int = 0) -> Tally:
        """Counts that are at least each of some parts; ``together``: columns of the only part that must all be 1."""
        blocks, model = self.choices.blocks, self.choices.model
        columns, times = np.full((combinations, blocks), -1, dtype=np.int64), np.ones((combinations, blocks))
        open_ = list[tuple[int, int, list[Summands]]]()
        for f in range(combinations):
            for b in range(blocks):
                listed = list(dict.fromkeys(parts(f, b)))
                if not listed:
                    continue
                if len({part[0][0] for part in listed}) == 1 and all(
                    len(part) == 1 and part[0][1] > 0 for part in listed
                ):
                    columns[f, b], times[f, b] = listed[0][0][0], max(part[0][1] for part in listed)
                else:
                    open_.append((f, b, listed))
        if open_:
            name = f"count_{len(model.column_blocks)}"
            counted = model.continuous(name, (len(open_),), 0.0)
            rows, lower = list[Summands](), list[float]()
            for column, (f, b, listed) in zip(counted.tolist(), open_, strict=True):
                columns[f, b] = column
                for part in listed:
                    rows.append(((column, 1.0), *((other, -weight) for other, weight in part)))
                    positive = sum(1 for _, weight in part if weight > 0)
                    lower.append(-float(max(min(together, positive) - 1, 0)))
            _rows(model, name, rows, lower)
            if self.exact:
                counts = [(int(columns[f, b]), listed) for f, b, listed in open_]
                self._no_more(name, counts, together > 0)
        return Tally(columns, times)

    def _no_more(self, name: str, counted: list[tuple[int, list[Summands]]], together: bool) -> None:
        """Counts are no more than all their parts together, nor than the largest.

        With ``together`` a count has one part, whose kernels must all be as it says. So it is no more than each column
        of a kernel that is held, and than 1 less each column of a kernel that must be elsewhere.
        """
        rows, lower = list[Summands](), list[float]()
        for column, listed in counted:
            if together:
                (part,) = listed
                rows += [((column, -1.0), entry) for entry in part]
                lower += [min(weight, 0.0) for _, weight in part]
            else:
                rows.append(((column, -1.0), *_summed(entry for part in listed for entry in part)))
                lower.append(0.0)
        _rows(self.choices.model, f"{name}_most", rows, lower)
        most = [max(weight for part in listed for _, weight in part) for _, listed in counted]
        self.choices.model.bound(np.array([column for column, _ in counted]), upper=np.array(most))


def _summed(entries: Iterable[tuple[int, float]]) -> Summands:
    """Entries of one column added up."""
    weights: dict[int, float] = {}
    for column, weight in entries:
        weights[column] = weights.get(column, 0.0) + weight
    return tuple(weights.items())


def _rows(model: Model, name: str, rows: list[Summands], lower: list[float]) -> None:
    """Add rows of different lengths."""
    width = max(map(len, rows))
    columns, weights = np.full((len(rows), width), -1, dtype=np.int64), np.zeros((len(rows), width))
    for row, part in enumerate(rows):
        columns[row, : len(part)] = [column for column, _ in part]
        weights[row, : len(part)] = [weight for _, weight in part]
    model.rows(name, [(columns, weights)], lower=np.array(lower))
