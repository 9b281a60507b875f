"""What the judge looks at one by one: kernels in their places, and the tensors that they hand on.

Names: *total* bytes are those of a full tensor, *chip* bytes what one tensor-parallel chip holds of it,
*tile* bytes one piece of that when its producer streams along the token axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dfopt.documents.graph import Kernel
from dfopt.documents.mapping import Sharding

Place = tuple[int, int]
"""Stage and partition: where a kernel runs."""


@dataclass(frozen=True)
class Placed:
    """A kernel with its sharding and place, and the work and bytes of one chip for one microbatch and layer.

    Attributes
    ----------
    kernel, sharding, place : Kernel, str, Place
        The kernel, its scheme, and its stage and partition.
    tiles : int
        Number of its compute tiles.
    forward : bool
        Whether it belongs to the forward pass.
    flop, peak : float, FLOP and FLOP/s
        Its work, and the peak of the chip in its data type.
    share : float
        Share of its output that a chip stores.
    parameters : float
        Number of parameters on the chip.
    weight, read, at_once : float, B
        Weight: of all experts, of those that some token selects, and of one.
    gradient, accumulator, adding : float, B
        Weight gradient: of all experts, of those that some token selects, and of one.
    cached : float, B
        Caches of sequences.
    buffers, activation_gradients : float, B
        Collective buffers and gradients of activations while a layer runs, as Calculon counts them.
    """

    kernel: Kernel
    sharding: Sharding
    place: Place
    tiles: int
    forward: bool
    flop: float
    peak: float
    share: float
    parameters: float
    weight: float
    read: float
    at_once: float
    adding: float
    accumulator: float
    gradient: float
    cached: float
    buffers: float = 0.0
    activation_gradients: float = 0.0

    @property
    def stationary(self) -> float:
        """SRAM bytes that stay while the kernel streams: its weights and its gradient accumulator."""
        return self.at_once + self.adding


@dataclass(frozen=True)
class Consumer:
    """A reader of a tensor: kernel, operand, and number of tiles buffered between source and reader."""

    kernel: int
    operand: int
    depth: int


@dataclass(frozen=True)
class Fan:
    """A tensor that is stored once, with all its readers: one per reader, or shared under ``fanout: shared``.

    All rules are written for fans; a tensor with one reader is a fan with one consumer.

    Attributes
    ----------
    src : int
        Number of the kernel that makes it.
    total, chip, tile : float, B
        The whole tensor, the share of one chip, and one tile of that.
    consumers : tuple of Consumer
        Readers, each with its operand.
    home, away : Place, tuple of Place
        Place of the source, and the other places of readers.
    readers : tuple of int
        Numbers of the reading kernels, without repeats.
    """

    src: int
    total: float
    chip: float
    tile: float
    consumers: tuple[Consumer, ...]
    home: Place
    readers: tuple[int, ...]
    away: tuple[Place, ...]

    @classmethod
    def of(
        cls,
        kernels: Sequence[Placed],
        src: int,
        total: float,
        chip: float,
        tile: float,
        consumers: tuple[Consumer, ...],
    ) -> Fan:
        """Build the tensor that kernel ``src`` makes for its consumers.

        Parameters
        ----------
        kernels : sequence of Placed
            All kernels in their places.
        src : int
            Number of the kernel that makes it.
        total, chip, tile : float, B
            The whole tensor, the share of one chip, and one tile of that.
        consumers : tuple of Consumer
            Readers.
        """
        home, readers = kernels[src].place, tuple({reader.kernel: None for reader in consumers})
        away = tuple({place: None for number in readers if (place := kernels[number].place) != home})
        return cls(src, total, chip, tile, consumers, home, readers, away)

    def among(self, kernels: Sequence[Placed]) -> Fan:
        """The tensor with its places recomputed for kernels in other places."""
        return Fan.of(kernels, self.src, self.total, self.chip, self.tile, self.consumers)


@dataclass(frozen=True)
class End:
    """A tensor that always passes through DRAM: an end of a carried tensor, or an input or output of the graph.

    Attributes
    ----------
    kernel : int
        Number of the kernel that reads or writes it.
    chip, tile : float, B
        Share of one chip, and one tile of that.
    write : bool
        Whether the kernel writes it.
    row, rows : float, B, and int
        Contiguous bytes of one token's features on a chip, and tokens in a tile.
    split : int
        Number of chips that share the features of a token.
    operand : int
        Operand of the kernel; 0 for its output.
    carried : int, optional
        Kernel that makes it, if it is a carried tensor.
    """

    kernel: int
    chip: float
    tile: float
    write: bool
    row: float
    rows: int
    split: int
    operand: int = 0
    carried: int | None = None
