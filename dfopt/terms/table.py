"""The table of charges of one problem, and what follows from it by code that knows no rule.

Suffixes: k kernel, o option of a kernel, v vector of options (one of each kernel), c charge, i incidence, b block.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dfopt.arrays import Floats, Ints
from dfopt.terms.charges import Charge, Term, merged
from dfopt.terms.incidence import Has, Incidence
from dfopt.terms.layer import Layer

__all__ = ["Domain", "Table", "whole_domain"]

Domain = tuple[tuple[int, ...], ...]
"""Options that are left, by kernel: places among all options of that kernel."""
MERGED = 4096
"""Amounts of a merged charge: 32 kB. The largest rule of the zoo, a fan-out with five readers, has 729."""


def whole_domain(sizes_k: Sequence[int]) -> Domain:
    """All options of kernels that have so many.

    Examples
    --------
    >>> whole_domain([2, 1])
    ((0, 1), (0,))
    """
    return tuple(tuple(range(size)) for size in sizes_k)


@dataclass(frozen=True, eq=False)
class Table:
    """All charges of one problem.

    Attributes
    ----------
    sizes_k
        Options of each kernel.
    charges
        Merged, see :func:`dfopt.terms.charges.merged`.
    """

    sizes_k: tuple[int, ...]
    charges: tuple[Charge, ...]

    @classmethod
    def of(cls, layer: Layer, terms: Iterable[Term]) -> Table:
        """The table of a layer under some rules."""
        made = (charge for term in terms for charge in term.of(layer))
        return cls(tuple(map(len, layer.schemes_k)), merged(made, MERGED))

    @cached_property
    def incidences(self) -> tuple[Incidence, ...]:
        """The distinct incidences of its charges."""
        return tuple(dict.fromkeys(charge.incidence for charge in self.charges))

    @cached_property
    def columns_c(self) -> tuple[slice, ...]:
        """Columns of every charge in arrays of amounts: one, or one for each level of its resource."""
        widths = [int(np.prod(charge.amount.shape[len(charge.scope) :], dtype=int)) for charge in self.charges]
        ends = itertools.accumulate(widths)
        return tuple(slice(end - width, end) for end, width in zip(ends, widths, strict=True))

    @property
    def width(self) -> int:
        """Columns of all charges."""
        return self.columns_c[-1].stop if self.charges else 0

    @cached_property
    def incidence_c(self) -> Ints:
        """Of every charge the place of its incidence in :attr:`incidences`."""
        place = {incidence: i for i, incidence in enumerate(self.incidences)}
        return np.array([place[charge.incidence] for charge in self.charges], dtype=np.int64)

    @cached_property
    def of_resource(self) -> dict[str, tuple[Ints, Ints]]:
        """Charges of every resource that has any, and their columns, shape (charges, levels)."""
        places: dict[str, list[int]] = {}
        for c, charge in enumerate(self.charges):
            places.setdefault(charge.resource, []).append(c)
        numbers = np.arange(self.width)
        return {
            name: (np.array(listed, dtype=np.int64), np.stack([numbers[self.columns_c[c]] for c in listed]))
            for name, listed in places.items()
        }

    @cached_property
    def of_kernel(self) -> tuple[tuple[int, ...], ...]:
        """Places of the charges that have each kernel in their scope."""
        places: list[list[int]] = [[] for _ in self.sizes_k]
        for c, charge in enumerate(self.charges):
            for k in charge.scope:
                places[k].append(c)
        return tuple(map(tuple, places))

    def exact(self, options_vk: Ints) -> Floats:
        """Amounts of all charges under vectors of options.

        Parameters
        ----------
        options_vk : int array, shape (vectors, kernels)
            An option of each kernel, as a place among its options.

        Returns
        -------
        float array, shape (vectors, columns)
            Of a charge :attr:`columns_c`.
        """
        amount_vc = np.empty((len(options_vk), self.width))
        for columns, charge in zip(self.columns_c, self.charges, strict=True):
            amount = charge.amount[tuple(options_vk[:, k] for k in charge.scope)]
            amount_vc[:, columns] = amount.reshape(-1, columns.stop - columns.start)
        return amount_vc

    def least(self, domain: Domain) -> Floats:
        """Least amount of every charge over a domain, each by itself: no block pays less under any options of it.

        Returns
        -------
        float array, shape (columns,)
            Equal to :meth:`exact` where every kernel has one option.
        """
        least = [_cut(charge, domain).min(axis=tuple(range(len(charge.scope)))).ravel() for charge in self.charges]
        return np.concatenate([*least, np.zeros(0)])

    def least_by_option(self, domain: Domain, least_c: Floats, kernel: int) -> Floats:
        """The same with each option of one kernel that the domain leaves it.

        Parameters
        ----------
        least_c : float array, shape (columns,)
            Of :meth:`least` for the domain.

        Returns
        -------
        float array, shape (options of the kernel, columns)
        """
        least_oc = np.repeat(least_c[None], len(domain[kernel]), axis=0)
        for c in self.of_kernel[kernel]:
            charge = self.charges[c]
            axis = charge.scope.index(kernel)
            rest = tuple(other for other in range(len(charge.scope)) if other != axis)
            least = _cut(charge, domain).min(axis=rest)
            least_oc[:, self.columns_c[c]] = least.reshape(len(least_oc), -1)
        return least_oc

    def sums(self, amount_vc: Floats, count_bi: Floats, resource: str) -> Floats:
        """What blocks pay of a resource without levels.

        Parameters
        ----------
        amount_vc : float array, shape (vectors, columns)
            Of :meth:`exact`, or one vector of :meth:`least`.
        count_bi : float array, shape (blocks, incidences)
            How often blocks pay :attr:`incidences`, see :func:`dfopt.terms.incidence.counts`.

        Returns
        -------
        float array, shape (vectors, blocks)
        """
        if resource not in self.of_resource:
            return np.zeros((len(amount_vc), len(count_bi)))
        places, columns = self.of_resource[resource]
        return np.asarray(amount_vc[:, columns[:, 0]] @ count_bi[:, self.incidence_c[places]].T)

    def sums_at(self, amount_vc: Floats, count_bi: Floats, resource: str, level_vb: Ints) -> Floats:
        """What blocks pay of a resource with levels, each at one of them.

        Parameters
        ----------
        level_vb : int array, shape (vectors, blocks)
            The level of each.

        Returns
        -------
        float array, shape (vectors, blocks)
        """
        places, columns = self.of_resource[resource]
        paid_vb = np.zeros(level_vb.shape)
        for place, of_levels in zip(places, columns, strict=True):
            amount_vl = amount_vc[:, of_levels]
            paid_vb += np.take_along_axis(amount_vl, level_vb, axis=1) * count_bi[:, self.incidence_c[place]]
        return paid_vb

    def totals(self, amount_vc: Floats, resource: str) -> Floats:
        """What a layer has of a resource of which every charge is paid once, shape (vectors,)."""
        if resource not in self.of_resource:
            return np.zeros(len(amount_vc))
        _, columns = self.of_resource[resource]
        return np.asarray(amount_vc[:, columns[:, 0]].sum(axis=1))

    def of_options(self, resource: str) -> list[Floats]:
        """What kernels have of a resource of which each charge is paid once and decided by its kernel alone.

        Returns
        -------
        list of float array, shape (options,)
            By kernel.
        """
        amount_ko = [np.zeros(size) for size in self.sizes_k]
        for charge in self.charges:
            if charge.resource == resource:
                assert isinstance(charge.incidence, Has) and charge.scope == (charge.incidence.kernel,)
                amount_ko[charge.incidence.kernel] += charge.amount
        return amount_ko

    def undominated(self, domain: Domain) -> Domain:
        """The domain without options that another option of their kernel replaces whatever the others are.

        An option is dominated where no charge has more under the other one, for any options of the other kernels. What
        is left has an optimum under every rule that grows with the sums of its resources.
        """
        left = [list(options) for options in domain]
        changed = set(range(len(left)))
        while changed:
            kernel = min(changed)
            changed.discard(kernel)
            kept = self.undominated_of(kernel, tuple(map(tuple, left)))
            if len(kept) < len(left[kernel]):
                left[kernel] = kept
                changed |= {k for c in self.of_kernel[kernel] for k in self.charges[c].scope}
        return tuple(map(tuple, left))

    def undominated_of(self, kernel: int, domain: Domain) -> list[int]:
        """Options of one kernel that no other one of them replaces, whatever options the domain leaves the others.

        Of options that are equal the first is left.
        """
        options = domain[kernel]
        if len(options) == 1:
            return list(options)
        parts = []
        for c in self.of_kernel[kernel]:
            part = np.moveaxis(_cut(self.charges[c], domain), self.charges[c].scope.index(kernel), 0)
            parts.append(part.reshape(len(options), -1))
        amounts_of = np.concatenate(parts, axis=1) if parts else np.zeros((len(options), 0))
        kept = list(range(len(options)))
        for place in range(len(options) - 1, -1, -1):
            others = [other for other in kept if other != place]
            if others and (amounts_of[others] <= amounts_of[place]).all(axis=1).any():
                kept.remove(place)
        return [options[place] for place in kept]

    def vectors(self, domain: Domain) -> Ints:
        """All vectors of options of a domain, shape (vectors, kernels); the number of them is not limited here."""
        return np.array(list(itertools.product(*domain)), dtype=np.int64).reshape(-1, len(domain))


def _cut(charge: Charge, domain: Domain) -> Floats:
    """Amounts of a charge under the options that are left."""
    return charge.amount[np.ix_(*(domain[k] for k in charge.scope))] if charge.scope else charge.amount
