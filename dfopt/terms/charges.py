"""Charges and terms: a charge is an incidence times an amount, a term is an accounting rule, which yields charges.

Suffixes: k kernel, o option of a kernel (a sharding scheme).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from dfopt.arrays import Floats
from dfopt.setting.reads import under
from dfopt.terms.incidence import Has, Incidence
from dfopt.terms.kernel import LayerKernel
from dfopt.terms.layer import Layer


@dataclass(frozen=True, slots=True, eq=False)
class Charge:
    """One cost item: an amount of a resource, such as DRAM bytes, and the condition under which a block pays it.

    A block is a set of kernels that run together on the chip. The amount depends on the options (sharding schemes) of a
    few kernels. How often a block pays it depends on the kernels that the block holds. Amounts are those of one chip in
    one evaluation, which is one microbatch.

    Attributes
    ----------
    resource : e.g. dram_bytes
        Name of what the amount adds to: a quantity that costs are counted in and summed up, in seconds, bytes or no
        unit. Sums are those of one chip in one evaluation: of each block, or of the whole layer whatever its blocks
        are. Some resources have levels: a sum for each latency that a block may have under the cycle model, see
        :attr:`dfopt.terms.layer.Layer.latency_l`.
    incidence
        The rule that says how often a block pays the amount, from the kernels that the block holds.
    scope : tuple of int
        Numbers of the kernels whose options decide the amount, ascending and each once. Empty: the amount is a
        constant.
    amount : float array, in the unit of the resource
        One axis for each kernel of the scope, over its options. If the resource has levels (an amount for each latency
        under the cycle model), they are one more axis, the last. Infinite where options cannot be together.
    """

    resource: str
    incidence: Incidence
    scope: tuple[int, ...]
    amount: Floats


Amounts = Iterable[tuple[str, Floats]]
"""What a rule says of one kernel: pairs of the name of a resource and a float array, shape (options,).

The array has what the kernel adds to the resource under each of its options, in the unit of the resource.
"""


@dataclass(frozen=True, slots=True)
class Term:
    """An accounting rule: its name, the source of its formula, and the function that lists its costs for a layer.

    Costs are objects of :class:`Charge`. If each cost depends on one kernel only, the rule also has the function that
    gives the amounts of one kernel. Such a rule is made by :meth:`of_kernel`.

    Attributes
    ----------
    name : str
        Name for reports, unique among all rules.
    source : str
        Source of the formula, such as a section of a paper.
    charges : callable
        Takes a :class:`~dfopt.terms.layer.Layer` and returns or yields its charges, made anew. :meth:`of` calls it, and
        caches the result.
    amounts : callable, optional
        Of a rule of single kernels: takes a :class:`~dfopt.terms.kernel.LayerKernel`, and yields pairs of the name of a
        resource and a float array, shape (options,): what the kernel adds to the resource under each of its options, in
        the unit of the resource. None for all other rules.
    by_tiles : bool
        Whether the number of tiles decides anything. The layer that other rules are given has none: 0.
    """

    name: str
    source: str
    charges: Callable[[Layer], Iterable[Charge]]
    amounts: Callable[[LayerKernel], Amounts] | None = None
    by_tiles: bool = False

    @classmethod
    def of_kernel(
        cls, name: str, source: str, amounts: Callable[[LayerKernel], Amounts], *, by_tiles: bool = False
    ) -> Term:
        """Make an accounting rule whose every amount depends on the option (sharding scheme) of one kernel only.

        The block of kernels that holds this kernel pays the amount, once.

        Parameters
        ----------
        name : str
            Name for reports, unique among all rules. Cached amounts are kept under this name.
        source : str
            Source of the formula, such as a section of a paper.
        amounts : callable
            Takes a :class:`~dfopt.terms.kernel.LayerKernel`, and yields pairs of the name of a resource and a float
            array, shape (options,): what the kernel adds to the resource under each of its options, in the unit of the
            resource, on one chip in one evaluation. Its result may be used again for all kernels that look the same to
            it, so it must read nothing but the kernel.
        by_tiles : bool
            Whether the number of tiles decides an amount.

        Returns
        -------
        Term
            For every kernel k and every pair it makes one :class:`Charge`, with the scope ``(k,)`` and the incidence
            :class:`Has(k) <dfopt.terms.incidence.Has>`.
        """

        def charges(layer: Layer) -> Iterator[Charge]:
            for k, kernel in enumerate(LayerKernel.all_of(layer)):
                for resource, amount_o in kernel.answer(name, lambda of: tuple(amounts(of))):
                    yield Charge(resource, Has(k), (k,), amount_o)

        return cls(name, source, charges, amounts, by_tiles)

    def of(self, layer: Layer) -> tuple[Charge, ...]:
        """All charges (cost items) of this rule for a layer, on one chip in one evaluation.

        Results are cached: layers of one setting share them if their plans agree in all that the rule reads of a plan,
        and if they have as many tiles or these decide nothing (:attr:`by_tiles`).

        Parameters
        ----------
        layer
            The layer: a setting (workload, machine and assumptions) under a plan, and a number of tiles.

        Returns
        -------
        tuple of Charge
            As the rule makes them: not merged (:func:`merged`), and with those that are zero. Empty where the rule does
            not apply.

        Raises
        ------
        SystemSpecError, AssertionError
            If the rule raises it, as its own function says: for example if the chip lacks a rate for a data type.
        """
        layer = layer if self.by_tiles else layer.at(0)
        question = layer.instance.setting.reads[self.name, layer.tiles]
        charges: tuple[Charge, ...] = question.answer(
            layer.instance.plan, lambda plan: tuple(self.charges(under(layer, plan)))
        )
        return charges


def amounts_of(kernel: LayerKernel, terms: Iterable[Term]) -> dict[str, Floats]:
    """Sum, for one kernel, of what some accounting rules add to each resource under each option of the kernel.

    Parameters
    ----------
    kernel
        The kernel. Its options are the sharding schemes that it may take.
    terms
        Rules whose amounts depend on one kernel only, made by :meth:`Term.of_kernel`.

    Returns
    -------
    dict of float array, shape (options of the kernel,)
        By the name of a resource, in its unit: the sum over the rules, on one
        chip in one evaluation, which is one microbatch. A resource that no rule adds to is left out.

    Raises
    ------
    AssertionError
        If a rule is of another kind: its ``amounts`` is None. Also if a rule raises it, as its own function says.
    SystemSpecError
        If a rule raises it, for example if the chip lacks a rate for a data type.
    """
    amounts: dict[str, Floats] = {}
    for term in terms:
        assert term.amounts is not None
        for resource, amount_o in term.amounts(kernel):
            amounts[resource] = amounts[resource] + amount_o if resource in amounts else amount_o
    return amounts


def merged(charges: Iterable[Charge], most: int) -> tuple[Charge, ...]:
    """The same costs in fewer charges: those of one resource that blocks always pay together are added up to one.

    Blocks always pay charges of equal incidences together. The least amount of a sum of two charges is never below the
    sum of their least amounts, and often above. So merging makes lower bounds tighter.

    Parameters
    ----------
    charges
        Charges of one layer, in any order.
    most : int
        Most amounts that a charge merged from charges of different scopes may have. The number of amounts is the
        product of the numbers of options of all kernels in its scope. Charges that would have more together stay apart.
        Charges of the same scope are always merged.

    Returns
    -------
    tuple of Charge
        Charges with the same sums for every block. Given charges that are zero under all options are left out.

    Examples
    --------
    >>> from dfopt.terms.incidence import Has
    >>> rising, falling = np.array([0.0, 1.0]), np.array([1.0, 0.0])
    >>> parts = [Charge("seconds", Has(0), (0,), amount) for amount in (rising, falling)]
    >>> [charge.amount.tolist() for charge in merged(parts, most=4)]
    [[1.0, 1.0]]
    """
    groups: dict[tuple[str, Incidence], list[Charge]] = {}
    for charge in charges:
        if not np.count_nonzero(charge.amount):  # faster than any() on a few amounts
            continue
        group = groups.setdefault((charge.resource, charge.incidence), [])
        for place, other in enumerate(group):
            if (together := _together(charge, other, most)) is not None:
                group[place] = together
                break
        else:
            group.append(charge)
    return tuple(charge for group in groups.values() for charge in group)


def _together(charge: Charge, other: Charge, most: int) -> Charge | None:
    """Two charges of one resource and incidence as one, unless that has more amounts than allowed."""
    if charge.scope == other.scope:
        return Charge(charge.resource, charge.incidence, charge.scope, charge.amount + other.amount)
    scope = tuple(sorted({*charge.scope, *other.scope}))
    sizes = _sizes(charge) | _sizes(other)
    if np.prod([sizes[kernel] for kernel in scope], dtype=float) > most:
        return None
    return Charge(charge.resource, charge.incidence, scope, _spread(charge, scope) + _spread(other, scope))


def _sizes(charge: Charge) -> dict[int, int]:
    """Options of each kernel in the scope of a charge."""
    return dict(zip(charge.scope, charge.amount.shape, strict=False))


def _spread(charge: Charge, scope: tuple[int, ...]) -> Floats:
    """Amounts of a charge with an axis of length one for every kernel of a larger scope that it does not have."""
    sizes, levels = _sizes(charge), charge.amount.shape[len(charge.scope) :]
    return charge.amount.reshape([*(sizes.get(kernel, 1) for kernel in scope), *levels])
