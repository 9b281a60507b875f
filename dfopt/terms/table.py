"""The table of charges of one problem, and what follows from it by code that knows no rule.

Suffixes: k kernel, o option of a kernel, v vector of options (one of each kernel), c charge, i incidence, b block, l
level of a resource. In arrays of amounts the axis c has columns: one for every charge, or one for each of its levels.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dfopt.arrays import Floats, Ints
from dfopt.terms.charges import Charge, Term, merged
from dfopt.terms.counting import Incidences
from dfopt.terms.incidence import Has, Incidence
from dfopt.terms.layer import Layer

Domain = tuple[tuple[int, ...], ...]
"""Options that are left, by kernel: places among all options of that kernel, at least one."""
MERGED = 4096
"""Most amounts of a merged charge: 32 kB. The largest rule of the zoo, a fan-out with five readers, has 729."""


@dataclass(frozen=True, eq=False)
class Table:
    """All cost items (charges) of one layer on one chip in one evaluation (one microbatch).

    A *charge* is an amount of one resource, such as bytes of DRAM traffic. The options (sharding schemes) of a few
    kernels, its *scope*, decide the amount. Its *incidence* says how often a *block* (kernels that run together on the
    chip) pays the amount, from the kernels that it holds. Some resources have *levels*: an amount for each latency that
    a block may have under the cycle model. A *domain* has, by kernel, the positions of the options left, ascending.

    Attributes
    ----------
    sizes_k : tuple of int
        Number of options of each kernel.
    charges : tuple of Charge
        The charges, as :meth:`of` merges them (:func:`dfopt.terms.charges.merged`).
    """

    sizes_k: tuple[int, ...]
    charges: tuple[Charge, ...]

    @classmethod
    def of(cls, layer: Layer, terms: Iterable[Term]) -> Table:
        """The table of all charges that some accounting rules make for a layer on one chip, partly added up.

        Charges of one resource and one incidence are added up (:func:`dfopt.terms.charges.merged`): always if they have
        the same scope, else if their sum has at most 4096 amounts. Charges that are 0 everywhere are left out.
        ``layer``: has kernels and their options. ``terms``: rules, such as :data:`dfopt.terms.rules.TERMS`, which may
        raise: AssertionError if the chip lacks figures that ``compute_model: cycle`` or ``efficiency`` needs.
        """
        charges = (charge for term in terms for charge in term.of(layer))
        return cls(tuple(map(len, layer.schemes_k)), merged(charges, MERGED))

    @cached_property
    def _tables(self) -> dict[frozenset[str], Table]:
        return {}

    def of_resources(self, resources: frozenset[str]) -> Table:
        """The charges of some resources as a table, cached."""
        if resources not in self._tables:
            charges = tuple(charge for charge in self.charges if charge.resource in resources)
            self._tables[resources] = Table(self.sizes_k, charges)
        return self._tables[resources]

    @cached_property
    def incidences(self) -> tuple[Incidence, ...]:
        """Distinct rules by which blocks pay charges, by first use."""
        return tuple(dict.fromkeys(charge.incidence for charge in self.charges))

    @cached_property
    def columns_c(self) -> tuple[slice, ...]:
        """Slice of the columns of each charge in arrays of amounts: one column, or one for each level."""
        widths = [charge.amount[(0,) * len(charge.scope)].size for charge in self.charges]  # under any options
        ends = itertools.accumulate(widths)
        return tuple(slice(end - width, end) for end, width in zip(ends, widths, strict=True))

    @property
    def width(self) -> int:
        """Number of columns of arrays of amounts: one for a charge, or for each of its levels. 0 without charges."""
        return self.columns_c[-1].stop if self.charges else 0

    @cached_property
    def incidence_c(self) -> Ints:
        """Position of the incidence of every charge in :attr:`incidences`: int array, shape (charges,)."""
        place = {incidence: i for i, incidence in enumerate(self.incidences)}
        return np.array([place[charge.incidence] for charge in self.charges], dtype=np.int64)

    @cached_property
    def of_resource(self) -> dict[str, tuple[Ints, Ints]]:
        """Positions and columns of the charges of each resource, by its name: a pair of int arrays for each resource.

        The first, shape (charges of the resource,), has positions in :attr:`charges`. The second, shape (charges of the
        resource, levels), has columns in arrays of amounts, one for each charge if the resource has no levels. A
        resource without charges has no entry.
        """
        places: dict[str, list[int]] = {}
        for c, charge in enumerate(self.charges):
            places.setdefault(charge.resource, []).append(c)
        numbers = np.arange(self.width)
        return {
            name: (np.array(listed, dtype=np.int64), np.stack([numbers[self.columns_c[c]] for c in listed]))
            for name, listed in places.items()
        }

    @cached_property
    def paid(self) -> dict[str, Incidences]:
        """Incidences of the charges of each resource, by its name, in the order of :attr:`of_resource`."""
        places = {name: of_name.tolist() for name, (of_name, _) in self.of_resource.items()}
        return {name: Incidences(self.charges[c].incidence for c in listed) for name, listed in places.items()}

    @cached_property
    def of_kernel(self) -> tuple[tuple[int, ...], ...]:
        """Positions in :attr:`charges` of all charges that each kernel's option decides, ascending."""
        places: list[list[int]] = [[] for _ in self.sizes_k]
        for c, charge in enumerate(self.charges):
            for k in charge.scope:
                places[k].append(c)
        return tuple(map(tuple, places))

    def exact(self, options_vk: Ints) -> Floats:
        """Amounts of all charges for given options of all kernels, for many choices of options at once.

        Parameters
        ----------
        options_vk : int array, shape (vectors, kernels)
            Each row is a choice: by kernel the position of its option, from 0, among all options of the kernel.

        Returns
        -------
        float array, shape (vectors, columns)
            A charge has the columns that :attr:`columns_c` says, in the unit of its resource. Infinite where options
            cannot be together (charges of the resource ``legal``).
        """
        amount_vc = np.empty((len(options_vk), self.width))
        for columns, charge in zip(self.columns_c, self.charges, strict=True):
            amount = charge.amount[tuple(options_vk[:, k] for k in charge.scope)]
            amount_vc[:, columns] = amount.reshape(-1, columns.stop - columns.start)
        return amount_vc

    def least(self, domain: Domain) -> Floats:
        """Least amount of every charge over the remaining options, each charge minimized separately.

        So the least amounts of two charges may need different options of one kernel.

        Parameters
        ----------
        domain
            By kernel the positions of the options that are left, at least one of every kernel.

        Returns
        -------
        float array, shape (columns,)
            In the unit of the resource of each charge, with the columns of :attr:`columns_c`. Equal to the row of
            :meth:`exact` if every kernel has one option.
        """
        pairs = ((charge, tuple(range(len(charge.scope)))) for charge in self.charges)
        least = [amounts_left(charge, domain).min(axis=axes).ravel() for charge, axes in pairs]
        return np.concatenate([*least, np.zeros(0)])

    def least_by_option(self, domain: Domain, least_c: Floats, kernel: int) -> Floats:
        """Least amount of every charge over the options that are left, for each option left to one kernel.

        Parameters
        ----------
        domain
            By kernel the positions of the options that are left, at least one of every kernel.
        least_c : float array, shape (columns,)
            The result of :meth:`least` for the domain.
        kernel : int
            Number of the kernel.

        Returns
        -------
        float array, shape (options of the kernel in the domain, columns), in the units of the charges
            Each row is the result of :meth:`least` for the domain in which only this option is left to the kernel.
        """
        least_oc = np.repeat(least_c[None], len(domain[kernel]), axis=0)
        for c in self.of_kernel[kernel]:
            charge = self.charges[c]
            axis = charge.scope.index(kernel)
            rest = tuple(other for other in range(len(charge.scope)) if other != axis)
            least = amounts_left(charge, domain).min(axis=rest)
            least_oc[:, self.columns_c[c]] = least.reshape(len(least_oc), -1)
        return least_oc

    def block_totals_at(self, amount_vc: Floats, count_bc: Floats, resource: str, level_vb: Ints) -> Floats:
        """Total of a resource that each block pays under each vector of options, at a given level of each block.

        It is a sum over charges of amount x number of times. Levels are latencies that a block may have.

        Parameters
        ----------
        amount_vc : float array, shape (vectors, columns)
            Amounts of all charges: the result of :meth:`exact`, or that of :meth:`least` as the only row.
        count_bc : float array, shape (blocks, charges of the resource)
            Number of times that blocks pay each charge of the resource: see :func:`dfopt.terms.incidence.counts`.
        resource
            Its name.
        level_vb : int array, shape (vectors, blocks)
            Level of each block, from 0 for the least latency (:attr:`dfopt.terms.layer.Layer.latency_l`).

        Returns
        -------
        float array, shape (vectors, blocks)
            In the unit of the resource.

        Raises
        ------
        KeyError
            If the resource has no charges.
        """
        _, columns = self.of_resource[resource]
        paid_vb, place_vb = np.zeros(level_vb.shape), level_vb + columns.shape[1] * np.arange(len(amount_vc))[:, None]
        for of_levels, count_b in zip(columns, count_bc.T, strict=True):
            paid_vb += amount_vc[:, of_levels].ravel()[place_vb] * count_b
        return paid_vb

    def totals(self, amount_vc: Floats, resource: str) -> Floats:
        """Total of a resource over a whole layer in one evaluation, where every charge counts once.

        Parameters
        ----------
        amount_vc : float array, shape (vectors, columns)
            Amounts of all charges: the result of :meth:`exact`, or that of :meth:`least` as the only row.
        resource
            Name of a resource without levels (charges have one amount each). That they count once is not checked.

        Returns
        -------
        float array, shape (vectors,)
            In the unit of the resource. Zeros if it has no charges.
        """
        if resource not in self.of_resource:
            return np.zeros(len(amount_vc))
        _, columns = self.of_resource[resource]
        return np.asarray(amount_vc[:, columns[:, 0]].sum(axis=1))

    def of_options(self, resource: str) -> list[Floats]:
        """Amounts that each option of each kernel adds to a resource, if every charge depends on one kernel only.

        Parameters
        ----------
        resource
            Name of a resource without levels. Each of its charges is decided by the option of one kernel (scope
            ``(k,)``) and paid once by the block of this kernel (incidence ``Has(k)``).

        Returns
        -------
        list of float array, shape (options of the kernel,)
            By kernel, in the unit of the resource. Zeros for kernels without such a charge.

        Raises
        ------
        AssertionError
            If the resource has a charge of another incidence or scope.
        """
        amount_ko = [np.zeros(size) for size in self.sizes_k]
        for charge in self.charges:
            if charge.resource == resource:
                assert isinstance(charge.incidence, Has) and charge.scope == (charge.incidence.kernel,)
                amount_ko[charge.incidence.kernel] += charge.amount
        return amount_ko

    def undominated(
        self, domain: Domain, kept_of: Callable[[int, Domain], Sequence[int]] | None = None, stays: Collection[int] = ()
    ) -> Domain:
        """Remaining options without dominated ones, which another option of the same kernel replaces at no cost.

        Parameters
        ----------
        domain
            By kernel the positions of the options that are left, at least one of every kernel.
        kept_of : callable, optional
            Options of a kernel that are not dominated with the options that are left to others; those of
            :meth:`undominated_of` if left out.
        stays
            Kernels whose options all stay.

        Returns
        -------
        Domain
            In the same form, at least one option of every kernel.
        """
        left, changed = list(domain), set(range(len(domain))) - {*stays}
        while changed:
            kernel = min(changed)
            changed.discard(kernel)
            kept = (kept_of or self.undominated_of)(kernel, tuple(left))
            if len(kept) < len(left[kernel]):
                left[kernel] = tuple(kept)
                changed |= {k for c in self.of_kernel[kernel] for k in self.charges[c].scope} - {*stays}
        return tuple(left)

    def undominated_of(
        self, kernel: int, domain: Domain, same: Collection[str] = (), further_ox: Floats | None = None
    ) -> list[int]:
        """Remaining options of one kernel without those that another of its options dominates.

        Option a dominates b if no charge has more under a, whatever others have. Of equal options the first is kept.

        Parameters
        ----------
        kernel : int
            Number of the kernel.
        domain
            By kernel the positions of the options that are left, at least one of every kernel.
        same
            Names of resources of which less may be worse: options with other amounts of them dominate no other.
        further_ox : float array, shape (options of the kernel, figures), optional
            Further costs of each option: none of these figures is larger under option a, either.

        Returns
        -------
        list of int
            Some of ``domain[kernel]`` in their order, at least one.
        """
        if len(options := domain[kernel]) == 1:
            return list(options)
        parts = [np.zeros((len(options), 0)) if further_ox is None else further_ox[list(options)]]
        for c in self.of_kernel[kernel]:
            axis = self.charges[c].scope.index(kernel)
            part = np.moveaxis(amounts_left(self.charges[c], domain), axis, 0).reshape(len(options), -1)
            parts += [part, -part] if self.charges[c].resource in same else [part]
        amounts_of = np.concatenate(parts, axis=1)
        kept = list(range(len(options)))
        for place in reversed(range(len(options))):
            others = [other for other in kept if other != place]
            if others and (amounts_of[others] <= amounts_of[place]).all(axis=1).any():
                kept.remove(place)
        return [options[place] for place in kept]

    def vectors(self, domain: Domain) -> Ints:
        """All choices of one option for each kernel from the options that are left; the last kernel's changes fastest.

        Parameters
        ----------
        domain
            By kernel the positions of the options that are left, at least one of every kernel.

        Returns
        -------
        int array, shape (vectors, kernels)
            Each row is a choice: by kernel the position of its option, as :meth:`exact` takes it.

        Examples
        --------
        >>> Table((2, 1), ()).vectors(((0, 1), (0,))).tolist()
        [[0, 0], [1, 0]]
        """
        return np.array(list(itertools.product(*domain)), dtype=np.int64).reshape(-1, len(domain))


def amounts_left(charge: Charge, domain: Domain) -> Floats:
    """Amounts of a charge under the options that are left to the kernels (``domain``: their positions, by kernel).

    Float array, in the unit of the resource, with the axes of ``charge.amount``, over the options that are left.
    """
    amount = charge.amount
    for axis, k in enumerate(charge.scope):
        if len(domain[k]) < amount.shape[axis]:
            amount = amount.take(domain[k], axis=axis)
    return amount
