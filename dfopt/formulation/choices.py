"""Options of kernels as columns of a MILP, and kernels in blocks together with them.

A charge depends on the options of the kernels in its *scope*. Options under which it is the same are one *class*, and
one column stands for a kernel in a block while the scope has some combination of classes. Marginal rows tie it to the
columns of the options and of the places; so it is 0 or 1 wherever these are.

Suffixes: k kernel, o option (a kernel with one of its schemes), b block, c class of options.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dfopt.arrays import Floats, Ints
from dfopt.milp import Model
from dfopt.setting.reads import memoized
from dfopt.terms.table import Domain

Scope = tuple[int, ...]
"""Kernels whose options decide an amount, ascending."""
OptionClasses = tuple[tuple[int, ...], ...]
"""For each kernel of a scope the class of each option that its domain leaves, numbered from 0."""


class Choices:
    """MILP columns for options of kernels, kernels in blocks, and their products.

    Parameters
    ----------
    model : Model
        Gets the columns and rows.
    domain : Domain
        Options that each kernel may take.
    A_kb : int array, shape (kernels, blocks)
        Columns of kernels in blocks; -1 where a kernel is never in a block.
    """

    def __init__(self, model: Model, domain: Domain, A_kb: Ints) -> None:
        self.model, self.domain, self.A_kb = model, domain, A_kb
        sizes = [len(options) for options in domain]
        ends = np.cumsum(sizes)
        self.s_o = model.binary("s", (int(ends[-1]),))
        self.s_ko = np.split(self.s_o, ends[:-1])
        for k, columns in enumerate(self.s_ko):
            model.rows(f"one_option_{k}", [(columns[None, :], 1.0)], 1, 1)
        self._of_place: dict[tuple[Scope, OptionClasses], dict[int, Ints]] = {}

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return int(self.A_kb.shape[1])

    def taken(self, x: Floats) -> list[int]:
        """Option of every kernel in a solution, as a place among those of its domain."""
        return [int(np.argmax(x[columns])) for columns in self.s_ko]

    @memoized
    def chosen(self, kernel: int, classes: tuple[int, ...]) -> Ints:
        """Columns that are 1 for the chosen class of a kernel's options: shape (classes,)."""
        return self._summed(f"class_{len(self.model.column_blocks)}", self.s_ko[kernel][:, None], classes)[:, 0]

    @memoized
    def placed(self, kernel: int, scope: Scope, classes: OptionClasses) -> Ints:
        """Columns that are 1 where a block holds a kernel and the scope has a given combination of classes.

        Parameters
        ----------
        kernel
            Number of the kernel.
        scope, classes
            Kernels whose options count, and by each of them the class of each option.

        Returns
        -------
        int array, shape (classes of the first kernel of the scope, ..., blocks)
            -1 where the kernel is never in a block.
        """
        shape = tuple(max(each) + 1 for each in classes)
        kept = [axis for axis, size in enumerate(shape) if size > 1]
        if len(kept) < len(scope):  # whatever the others take
            fewer = self.placed(kernel, tuple(scope[a] for a in kept), tuple(classes[a] for a in kept))
            return fewer.reshape(*shape, self.blocks)
        if not scope:
            return np.asarray(self.A_kb[kernel])
        finest = tuple(range(len(classes[0])))
        if scope == (kernel,) and classes != (finest,):
            columns = self.placed(kernel, scope, (finest,))
            return self._summed(f"classes_{len(self.model.column_blocks)}", columns, classes[0])
        here = np.flatnonzero(self.A_kb[kernel] >= 0)
        placed = np.full((self.blocks, *shape), -1, dtype=np.int64)
        placed[here] = self._of_places(self.A_kb[kernel, here], scope, classes, shape)
        placed = np.moveaxis(placed, 0, -1)
        for axis, other in enumerate(scope):
            name, columns = f"scope_{len(self.model.row_blocks)}", np.moveaxis(placed, axis, 0)[..., here]
            if other == kernel and len(scope) > 1:  # with each of its own classes, block by block
                own = self.placed(kernel, (kernel,), (classes[axis],))[:, here]
                columns = np.moveaxis(columns, -1, 1).reshape(own.size, -1)
                self.model.rows(name, [(columns, 1.0), (own.ravel(), -1.0)], 0, 0)
            else:
                chosen = self.chosen(other, classes[axis])
                self.model.rows(name, [(columns.reshape(shape[axis], -1), 1.0), (chosen, -1.0)], 0, 0)
        return placed

    def _of_places(self, place_b: Ints, scope: Scope, classes: OptionClasses, shape: tuple[int, ...]) -> Ints:
        """Columns of a scope beside those of places; kernels of one place, as in a listed block, share them."""
        columns_of = self._of_place.setdefault((scope, classes), {})
        new = [place for place in dict.fromkeys(place_b.tolist()) if place not in columns_of]
        if new:
            name = f"placed_{len(self.model.column_blocks)}"
            columns = self.model.continuous(name, (len(new), *shape), 0.0, 1.0)
            self.model.rows(name, [(columns.reshape(len(new), -1), 1.0), (np.array(new), -1.0)], 0, 0)
            columns_of |= dict(zip(new, columns, strict=True))
        return np.stack([columns_of[place] for place in place_b.tolist()])

    def _summed(self, name: str, columns_ob: Ints, classes: Sequence[int]) -> Ints:
        """Columns of options added up by their classes, shape (classes, blocks)."""
        summed = np.full((max(classes) + 1, columns_ob.shape[1]), -1, dtype=np.int64)
        here = np.flatnonzero(columns_ob[0] >= 0)
        for c in range(len(summed)):
            members = columns_ob[[o for o, of in enumerate(classes) if of == c]][:, here]
            if len(members) == 1:
                summed[c, here] = members[0]
                continue
            summed[c, here] = self.model.continuous(f"{name}_{c}", (len(here),), 0.0, 1.0)
            self.model.rows(f"{name}_{c}", [(summed[c, here], 1.0), (members.T, -1.0)], 0, 0)
        return summed
