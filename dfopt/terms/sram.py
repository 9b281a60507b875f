"""What a chip can hold: limits of blocks of kernels, and the parts that weights are cut into so as to fit."""

from __future__ import annotations

import numpy as np

from dfopt.arrays import ROUNDING, Bools, Floats, Ints
from dfopt.terms.chip import ChipModel

FITS = 1e-9
"""Share of the SRAM by which a block may exceed it: sums of bytes are rounded."""


def parts_of(chip: ChipModel, rest: Floats, cut: Floats) -> Floats:
    """Number of parts that each kernel's weight must be cut into so that the kernel fits SRAM when it runs alone.

    A kernel that does not fit SRAM as a whole, and is alone in its block (a set of kernels that run together), runs one
    part of its weight after another. Its weight, its weight gradient and the buffers of its outputs are cut into so
    many parts. All else that it needs is in SRAM all the time. The number is ceil(``cut`` / (SRAM - ``rest``)), at
    least 1.

    Parameters
    ----------
    chip
        Its SRAM, and whether it may cut weights (``weight_tiling`` other than ``forbid``).
    rest : float array, B
        Bytes of SRAM that each kernel needs whatever its parts. Of any shape.
    cut : float array, B
        Bytes of SRAM that each kernel needs, as a whole, for what is cut. Of the shape of ``rest``.

    Returns
    -------
    float array, no unit
        Of the shape of ``rest``. Whole numbers: 1 where the kernel fits as a whole, has nothing to cut, or may not be
        cut. Infinite where it may be cut and does not fit in any number of parts, as ``rest`` alone takes all of SRAM.

    Examples
    --------
    >>> limits = {"sram": 10.0, "tiles": 4, "cuts_weights": True}
    >>> chip = ChipModel(dram_bandwidth=1.0, overlap="perfect", fused=True, library=False, **limits)
    >>> parts_of(chip, np.array([4.0, 4.0, 10.0]), np.array([6.0, 18.0, 1.0])).tolist()
    [1.0, 3.0, inf]
    """
    may_cut = (cut > 0) & (chip.cuts_weights)
    short = (rest + cut > chip.sram * (1 + ROUNDING)) & may_cut
    room = np.where(short & (rest < chip.sram), chip.sram - rest, np.inf)
    parts = np.maximum(np.ceil(cut / room - ROUNDING), 1.0)
    return np.asarray(np.where(short & (rest >= chip.sram), np.inf, parts))


def keeps_chip(
    chip: ChipModel, count: Ints, tiled: Ints | Floats, sram: Floats, ahead: Ints | Floats | None = None
) -> Bools:
    """Whether each block of kernels keeps the limits of the chip: its SRAM, its compute tiles, and what it may fuse.

    A block is a set of kernels that run together on the chip. Whether a library has one fused kernel for the kernels of
    a block is not checked.

    Parameters
    ----------
    chip
        The limits. If it is not ``fused``, a block may have one kernel only.
    count : int array, shape (blocks,)
        Number of kernels in each block. A block with more kernels than the chip has compute tiles is not legal.
    tiled : array, shape (blocks,) or (vectors, blocks)
        Number of kernels in each block that load their weight in parts, in the latter shape for several vectors of
        options (one sharding scheme of each kernel). A block with such a kernel and any other is not legal.
    sram : float array, B
        Bytes that each block holds in SRAM at a time. Of the shape of ``tiled``. They may exceed the SRAM of the chip
        by a share of :data:`FITS`.
    ahead : array, shape (blocks,), optional
        Number of forward kernels in each block. If given, a block that has both forward kernels and kernels of other
        passes is not legal. None: blocks may mix passes.

    Returns
    -------
    bool array
        Of the shape of ``sram``: true where a block keeps all limits.
    """
    legal: Bools = (sram <= chip.sram * (1 + FITS)) & (count <= chip.tiles) & ((tiled == 0) | (count <= 1))
    if not chip.fused:
        legal &= count <= 1
    if ahead is not None:
        legal &= (ahead == 0) | (ahead == count)
    return legal
