"""How often a block pays a charge, from the kernels that it holds and from nothing else.

A block is any set of kernels that one partition runs. The paper's matrices are incidences of the partitions of a
mapping: `Has` is A, `Crosses` is what D and L say of a tensor, `Inside` is B (DFModel, section IV). Kernels are given
by their numbers in the graph.

Suffixes: b block, k kernel, i incidence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dfopt.arrays import Bools, Floats


class Incidence(ABC):
    """A rule that says how many times a block of kernels pays a cost, from the kernels that the block holds.

    A block is any set of kernels that one on-chip partition runs. Such a cost is a
    :class:`~dfopt.terms.charges.Charge`. Charges of equal incidences are always paid together. Each subclass is one
    kind of rule, and depends on nothing but the kernels that a block holds. Numbers of kernels are their places in the
    graph, from 0.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def payers(self) -> tuple[int, ...]:
        """Kernels of which every paying block holds at least one."""

    @classmethod
    @abstractmethod
    def of_blocks(cls, incidences: Sequence[Self], member_bk: Bools) -> Floats | Bools:
        """Number of times that each block pays a cost under each of some rules of this class.

        Parameters
        ----------
        incidences
            The rules: at least one, all of this class.
        member_bk : bool array, shape (blocks, kernels)
            Whether each block holds each kernel.

        Returns
        -------
        float or bool array, shape (blocks, incidences)
            Never negative. The amount of a charge with this incidence counts that many times for the block.
        """


@dataclass(frozen=True, slots=True)
class Has(Incidence):
    """A rule that a block of kernels pays a cost once if it holds one given kernel.

    For the partitions of a mapping it is row ``kernel`` of matrix A (DFModel, section IV).

    Attributes
    ----------
    kernel : int
        Number of the kernel.

    Examples
    --------
    >>> Has.of_blocks([Has(0), Has(1)], np.array([[True, False]])).tolist()
    [[True, False]]
    """

    kernel: int

    @property
    def payers(self) -> tuple[int, ...]:
        """The one kernel without which no block pays, as a tuple."""
        return (self.kernel,)

    @classmethod
    def of_blocks(cls, incidences: Sequence[Self], member_bk: Bools) -> Bools:
        """Whether each block pays: it does if it holds the kernel of the rule.

        Parameters
        ----------
        incidences
            At least one, all of this class.
        member_bk : bool array, shape (blocks, kernels)
            Whether each block holds each kernel.

        Returns
        -------
        bool array, shape (blocks, incidences)
            By block and rule, whether it pays.
        """
        return member_bk[:, [each.kernel for each in incidences]]


@dataclass(frozen=True, slots=True)
class AnyOf(Incidence):
    """A rule that a block of kernels pays a cost once if it holds at least one of some given kernels.

    Attributes
    ----------
    kernels : tuple of int
        Numbers of these kernels.

    Examples
    --------
    >>> AnyOf.of_blocks([AnyOf((0, 2))], np.array([[True, False, True], [False, True, False]])).tolist()
    [[True], [False]]
    """

    kernels: tuple[int, ...]

    @property
    def payers(self) -> tuple[int, ...]:
        """The kernels of which a block must hold at least one to pay."""
        return self.kernels

    @classmethod
    def of_blocks(cls, incidences: Sequence[Self], member_bk: Bools) -> Bools:
        """Whether each block pays: it does if it holds at least one of the kernels of the rule.

        Parameters
        ----------
        incidences
            At least one, all of this class.
        member_bk : bool array, shape (blocks, kernels)
            Whether each block holds each kernel.

        Returns
        -------
        bool array, shape (blocks, incidences)
            By block and rule, whether it pays.
        """
        return _held(member_bk, [each.kernels for each in incidences]) > 0


@dataclass(frozen=True, slots=True)
class OfTensor(Incidence):
    """A rule about a tensor between kernels: whether a block holds its source, and which of its readers.

    Attributes
    ----------
    source : int
        Number of the kernel that makes the tensor.
    readers : tuple of int
        Numbers of the kernels that read it.
    """

    source: int
    readers: tuple[int, ...]

    @property
    def payers(self) -> tuple[int, ...]:
        """Source and readers of the tensor, of which a block must hold at least one to pay."""
        return self.source, *self.readers


@dataclass(frozen=True, slots=True)
class Crosses(OfTensor):
    """A rule that a block of kernels pays a cost once if it stores a tensor for other blocks or reads it from one.

    The block that makes the tensor pays if a reader is in another block. Every other block that reads it pays. For the
    partitions of a mapping, matrices D and L say that of each tensor (DFModel, section IV).

    Attributes
    ----------
    source : int
        Number of the kernel that makes the tensor.
    readers : tuple of int
        Numbers of the kernels that read the tensor. All that they take from one output is one tensor: it is stored
        once, and read once by a block.

    Examples
    --------
    A tensor of kernel 0 that 1 and 2 read, in blocks of all three, of two, and of one reader:

    >>> blocks = np.array([[True, True, True], [True, True, False], [False, False, True]])
    >>> Crosses.of_blocks([Crosses(0, (1, 2))], blocks).T.tolist()
    [[False, True, True]]
    """

    @classmethod
    def of_blocks(cls, incidences: Sequence[Self], member_bk: Bools) -> Bools:
        """Whether each block pays: it does if it stores the tensor for others or reads it from another.

        Parameters
        ----------
        incidences
            At least one, all of this class.
        member_bk : bool array, shape (blocks, kernels)
            Whether each block holds each kernel.

        Returns
        -------
        bool array, shape (blocks, incidences)
            By block and rule, whether it pays.
        """
        source_bi = member_bk[:, [each.source for each in incidences]]
        read_bi = _held(member_bk, [each.readers for each in incidences])
        every_i = np.array([len(each.readers) for each in incidences], dtype=np.uint16)
        return np.where(source_bi, read_bi < every_i, read_bi > 0)


@dataclass(frozen=True, slots=True)
class Inside(OfTensor):
    """A rule that a block of kernels pays a cost for each tile of a tensor that waits between kernels of the block.

    Only the block that makes the tensor pays. The number of tiles is the largest of ``depths`` over the readers in this
    block. Readers in other blocks do not count. For the partitions of a mapping these numbers
    are matrix B (DFModel, section IV).

    Attributes
    ----------
    source : int
        Number of the kernel that makes the tensor.
    readers : tuple of int
        Numbers of the kernels that read it.
    depths : tuple of float
        By reader, tiles of the tensor that wait on the chip between the source and this reader, if one block holds
        both.

    Examples
    --------
    >>> blocks = np.array([[True, True, True], [True, True, False], [False, True, True]])
    >>> Inside.of_blocks([Inside(0, (1, 2), (2.0, 3.0))], blocks).T.tolist()
    [[3.0, 2.0, 0.0]]
    """

    depths: tuple[float, ...]

    @classmethod
    def of_blocks(cls, incidences: Sequence[Self], member_bk: Bools) -> Floats:
        """Number of times that each block pays: most tiles that wait in it for any of the readers that it holds.

        Parameters
        ----------
        incidences
            At least one, all of this class.
        member_bk : bool array, shape (blocks, kernels)
            Whether each block holds each kernel.

        Returns
        -------
        float array, shape (blocks, incidences)
            By block and rule the largest of ``depths`` (tiles that wait for each reader) over the readers in the block.
            0 for a block without the kernel that makes the tensor, or without any reader.
        """
        deepest_bi = np.zeros((len(member_bk), len(incidences)), order="F")
        for reader in range(max(len(each.readers) for each in incidences)):
            having = [i for i, each in enumerate(incidences) if reader < len(each.readers)]
            kernels = [incidences[i].readers[reader] for i in having]
            depth_i = np.array([incidences[i].depths[reader] for i in having])
            deepest_bi[:, having] = np.maximum(deepest_bi[:, having], member_bk[:, kernels] * depth_i)
        return deepest_bi * member_bk[:, [each.source for each in incidences]]


@dataclass(frozen=True, slots=True)
class Open(OfTensor):
    """A rule that a set of kernels pays a cost once if it makes a given tensor and does not hold all readers of it.

    The tensor waits in memory for the other readers. While a block runs, the bytes that wait are the sum of what two
    sets pay: the set of all kernels that ran before the block, and the block itself.

    Attributes
    ----------
    source : int
        Number of the kernel that makes the tensor.
    readers : tuple of int
        Numbers of the kernels that read it.

    Examples
    --------
    >>> sets = np.array([[True, False, False], [True, True, False], [True, True, True], [False, True, True]])
    >>> Open.of_blocks([Open(0, (1, 2))], sets).T.tolist()
    [[True, True, False, False]]
    """

    @classmethod
    def of_blocks(cls, incidences: Sequence[Self], member_bk: Bools) -> Bools:
        """Whether each set of kernels pays: it does if it makes the tensor but lacks any of its readers.

        Here a block may be any set of kernels, such as all that ran before.

        Parameters
        ----------
        incidences
            At least one, all of this class.
        member_bk : bool array, shape (blocks, kernels)
            Whether each block holds each kernel.

        Returns
        -------
        bool array, shape (blocks, incidences)
            By set and rule, whether it pays.
        """
        read_bi = _held(member_bk, [each.readers for each in incidences])
        every_i = np.array([len(each.readers) for each in incidences], dtype=np.uint16)
        source_bi = member_bk[:, [each.source for each in incidences]]
        return source_bi & (read_bi < every_i)


@dataclass(frozen=True, slots=True)
class Exactly(Incidence):
    """A rule that a block pays a cost once if, of a few given kernels, it holds certain ones and none of the others.

    Any cost that depends on which of a few kernels a block holds is a sum of costs under such rules: one for every way
    to hold some of them.

    Attributes
    ----------
    kernels : tuple of int
        Numbers of the few kernels.
    held : tuple of bool
        For each of ``kernels`` in their order, whether a block must hold it (true) or must not (false) to pay.

    Examples
    --------
    >>> Exactly.of_blocks([Exactly((0, 1), (True, False))], np.array([[True, False], [True, True]])).T.tolist()
    [[True, False]]
    """

    kernels: tuple[int, ...]
    held: tuple[bool, ...]

    @property
    def payers(self) -> tuple[int, ...]:
        """The kernels on which the rule depends."""
        return self.kernels

    @classmethod
    def of_blocks(cls, incidences: Sequence[Self], member_bk: Bools) -> Bools:
        """Whether each block pays: it does if it holds all kernels that the rule asks for and none that it bars.

        A rule has a few kernels (``kernels``). It says of each whether a block must hold it or must not (``held``). All
        other kernels do not matter. All other blocks pay 0 times.

        Parameters
        ----------
        incidences
            At least one, all of this class.
        member_bk : bool array, shape (blocks, kernels)
            Whether each block holds each kernel.

        Returns
        -------
        bool array, shape (blocks, incidences)
            By block and rule, whether it pays.
        """
        columns = [(member_bk[:, each.kernels] == np.array(each.held)).all(axis=1) for each in incidences]
        return np.stack(columns, axis=1)


def counts(incidences: Sequence[Incidence], member_bk: Bools) -> Floats:
    """Number of times that each block of kernels pays a cost under each of some rules (:class:`Incidence`).

    Parameters
    ----------
    incidences
        The rules. They may be of different classes, and there may be none.
    member_bk : bool array, shape (blocks, kernels)
        Whether each block holds each kernel.

    Returns
    -------
    float array, shape (blocks, incidences)
        Never negative. The amount of a charge with such an incidence counts that many times for the block. Incidences
        are in the order given.

    Examples
    --------
    >>> counts([Has(1), AnyOf((0, 1))], np.array([[True, False]])).tolist()
    [[0.0, 1.0]]
    """
    member_bk = np.asfortranarray(member_bk)
    count_bi = np.zeros((len(member_bk), len(incidences)), order="F")
    of_class: dict[type[Incidence], list[int]] = {}
    for i, incidence in enumerate(incidences):
        of_class.setdefault(type(incidence), []).append(i)
    for kind, places in of_class.items():
        count_bi[:, places] = kind.of_blocks([incidences[i] for i in places], member_bk)
    return count_bi


def _held(member_bk: Bools, kernels_i: Sequence[tuple[int, ...]]) -> NDArray[np.uint16]:
    """How many of some kernels each block holds, shape (blocks, incidences)."""
    held_bi = np.zeros((len(member_bk), len(kernels_i)), dtype=np.uint16, order="F")
    some_i = [list(dict.fromkeys(kernels)) for kernels in kernels_i]
    for place in range(max(map(len, some_i), default=0)):  # most incidences have two kernels or three
        having = [i for i, some in enumerate(some_i) if place < len(some)]
        held_bi[:, having] += member_bk[:, [some_i[i][place] for i in having]]
    return held_bi
