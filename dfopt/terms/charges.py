"""A charge: an incidence times an amount; a term: an accounting rule, which yields charges."""

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

__all__ = ["Amounts", "Charge", "Resource", "Term", "merged"]

Unit = Literal["s", "B", "1"]


@dataclass(frozen=True, slots=True)
class Resource:
    """What charges add up to.

    Attributes
    ----------
    name : e.g. dram_bytes
        Key by which charges and sums name it.
    unit : e.g. B
        Unit of its sums.
    of : e.g. block
        Whose sums they are: each ``block`` has its own, which the block rule makes a time of; of a ``layer`` there is
        one, whatever its partitions are.
    label : e.g. bytes to and from DRAM
        Words for people.
    levels : e.g. false
        Whether there is a sum for each latency that a block may have, see :attr:`dfopt.terms.layer.Layer.latency_l`.
    """

    name: str
    unit: Unit
    of: Literal["block", "layer"]
    label: str
    levels: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Charge:
    """What blocks pay of one rule: as often as its incidence says, the amount that options of a few kernels decide.

    Attributes
    ----------
    resource : e.g. dram_bytes
        Name of the resource that it adds to.
    incidence
        How often a block pays it.
    scope
        Kernels whose options decide the amount, ascending and each once; none for a constant.
    amount : float array
        One axis for each kernel of the scope, over its options; of a resource with levels these are the last axis.
        Infinite where options cannot be together.
    """

    resource: str
    incidence: Incidence
    scope: tuple[int, ...]
    amount: Floats


Amounts = Iterable[tuple[str, Floats]]
"""Names of resources, and what a kernel adds to each under each of its options, shape (options,)."""


@dataclass(frozen=True, slots=True)
class Term:
    """An accounting rule: the word that people read, where its formula is from, and the charges that it makes.

    ``amounts``: of a rule of single kernels what it says of one, see :meth:`of_kernel`.
    """

    name: str
    source: str
    charges: Callable[[Layer], Iterable[Charge]]
    amounts: Callable[[LayerKernel], Amounts] | None = None

    @classmethod
    def of_kernel(cls, name: str, source: str, amounts: Callable[[LayerKernel], Amounts]) -> Term:
        """A rule of single kernels: what it says of one is paid once, by its block, and decided by its option alone.

        Parameters
        ----------
        name, source
            As of any rule.
        amounts
            What it says of a kernel: worked out once for all that look the same to it.
        """

        def charges(layer: Layer) -> Iterator[Charge]:
            for k, kernel in enumerate(LayerKernel.all_of(layer)):
                for resource, amount_o in kernel.answer(name, lambda of: tuple(amounts(of))):
                    yield Charge(resource, Has(k), (k,), amount_o)

        return cls(name, source, charges, amounts)

    def of(self, layer: Layer) -> tuple[Charge, ...]:
        """Its charges of a layer, worked out once for all plans that look the same to it."""
        question = layer.instance.setting.reads[self.name, layer.tiles]
        found: tuple[Charge, ...] = question.answer(
            layer.instance.plan, lambda plan: tuple(self.charges(under(layer, plan)))
        )
        return found


def merged(charges: Iterable[Charge], most: int) -> tuple[Charge, ...]:
    """Charges that blocks pay together, as one where that is small enough: its least amount is then attained.

    The sum of the least amounts of two charges may be below every amount of their sum, never above.

    Parameters
    ----------
    charges
        In any order.
    most
        Amounts that a merged charge may have: the product of the options of all kernels in its scope.

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
