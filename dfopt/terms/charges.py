"""Charges and terms: a charge is an incidence times an amount, a term is an accounting rule, which yields charges.

Suffixes: k kernel, o option of a kernel (a sharding scheme).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dfopt.arrays import Floats
from dfopt.setting.reads import under
from dfopt.terms.incidence import Has, Incidence
from dfopt.terms.kernel import LayerKernel
from dfopt.terms.layer import Layer

__all__ = ["Amounts", "Charge", "Resource", "Term", "amounts_of", "merged"]

Unit = Literal["s", "B", "1"]


@dataclass(frozen=True, slots=True)
class Resource:
    """A quantity that charges add up to, such as the DRAM bytes of a block.

    Sums are those of one chip in one evaluation of the layer, which processes one microbatch.

    Attributes
    ----------
    name : e.g. dram_bytes
        Key by which charges and sums name it.
    unit : e.g. B
        Unit of its amounts and sums: ``s``, ``B``, or ``1`` for none.
    of : e.g. block
        Whose sums they are. ``block``: every block has a sum of its own. ``layer``: there is one sum for the layer,
        whatever its blocks are.
    label : e.g. bytes to and from DRAM
        Words for people.
    levels : e.g. false
        Whether there is a sum for each latency that a block may have under the cycle model, see
        :attr:`dfopt.terms.layer.Layer.latency_l`.
    """

    name: str
    unit: Unit
    of: Literal["block", "layer"]
    label: str
    levels: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Charge:
    """What blocks pay under one rule: an amount that options of a few kernels decide, as often as an incidence says.

    An option of a kernel is a sharding scheme that it may take. Amounts are those of one chip in one evaluation.

    Attributes
    ----------
    resource : e.g. dram_bytes
        Name of the resource that the amount adds to.
    incidence
        How often a block pays the amount, from the kernels that the block holds.
    scope : tuple of int
        Numbers of the kernels whose options decide the amount, ascending and each once. Empty: the amount is a
        constant.
    amount : float array, in the unit of the resource
        One axis for each kernel of the scope, over its options. If the resource has levels, they are one more axis, the
        last. Infinite where options cannot be together.
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
    """An accounting rule: its name, the source of its formula, and the function that makes its charges.

    A rule of single kernels also has the function that says what one kernel adds to resources.

    Attributes
    ----------
    name : str
        Words for people. No other rule has the same.
    source : str
        Where the formula is from, such as a section of a paper.
    charges : callable
        Makes the charges of a layer anew. :meth:`of` calls it, and remembers what it made.
    amounts : callable, optional
        Of a rule of single kernels: takes a :class:`~dfopt.terms.kernel.LayerKernel`, and yields pairs of the name of a
        resource and a float array, shape (options,): what the kernel adds to the resource under each option, in its
        unit. None for all other rules.
    """

    name: str
    source: str
    charges: Callable[[Layer], Iterable[Charge]]
    amounts: Callable[[LayerKernel], Amounts] | None = None

    @classmethod
    def of_kernel(cls, name: str, source: str, amounts: Callable[[LayerKernel], Amounts]) -> Term:
        """A rule of single kernels: every amount is paid once, by the block of a kernel whose option decides it.

        Parameters
        ----------
        name : str
            Words for people. No other rule has the same.
        source : str
            Where the formula is from, such as a section of a paper.
        amounts : callable
            Takes a kernel, and yields pairs of the name of a resource and a float array, shape (options,): what the
            kernel adds to the resource under each of its options, in the unit of the resource. It is worked out once
            for all kernels that look the same to it, so it must read nothing but the kernel.

        Returns
        -------
        Term
            For every kernel k and every pair it makes one charge, with the incidence ``Has(k)`` and the scope ``(k,)``.
        """

        def charges(layer: Layer) -> Iterator[Charge]:
            for k, kernel in enumerate(LayerKernel.all_of(layer)):
                for resource, amount_o in kernel.answer(name, lambda of: tuple(amounts(of))):
                    yield Charge(resource, Has(k), (k,), amount_o)

        return cls(name, source, charges, amounts)

    def of(self, layer: Layer) -> tuple[Charge, ...]:
        """The charges of this rule for a layer.

        They are worked out once for all plans that agree in what the rule reads of a plan.

        Parameters
        ----------
        layer
            The layer. Under its setting and number of tiles, charges of earlier plans may be used again.

        Returns
        -------
        tuple of Charge
            As the rule makes them: not merged, and with those that are zero. Empty where the rule does not apply.
        """
        question = layer.instance.setting.reads[self.name, layer.tiles]
        found: tuple[Charge, ...] = question.answer(
            layer.instance.plan, lambda plan: tuple(self.charges(under(layer, plan)))
        )
        return found


def amounts_of(kernel: LayerKernel, terms: Iterable[Term]) -> dict[str, Floats]:
    """What some rules of single kernels add to resources for one kernel, all rules together.

    Parameters
    ----------
    kernel
        The kernel.
    terms
        Rules of single kernels, made by :meth:`Term.of_kernel`.

    Returns
    -------
    dict of float array, shape (options of the kernel,)
        By the name of a resource, in its unit: the sum over the rules, on one chip in one evaluation. A resource that
        no rule adds to is left out.

    Raises
    ------
    AssertionError
        If a rule is not one of single kernels.
    """
    found: dict[str, Floats] = {}
    for term in terms:
        assert term.amounts is not None
        for resource, amount_o in term.amounts(kernel):
            found[resource] = found[resource] + amount_o if resource in found else amount_o
    return found


def merged(charges: Iterable[Charge], most: int) -> tuple[Charge, ...]:
    """Charges of which those that blocks always pay together, of one resource and one incidence, are added up.

    The least amount of one charge is attained by some options. The sum of the least amounts of two charges may be below
    every amount of their sum, and never above. So merging makes bounds tighter.

    Parameters
    ----------
    charges
        In any order.
    most : int
        Most amounts that a merged charge of several scopes may have: the product of the numbers of options of all
        kernels in its scope. Charges that would have more together stay apart. Charges of the same scope are always
        merged.

    Returns
    -------
    tuple of Charge
        Without those that are zero under all options.

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
