"""A chip of several equal dies: a grid of them, as square as can be, with links along the seams between neighbours.

Memory is spread evenly over the dies, and each die works on all of it: bytes go along the rows of the grid and then
along its columns. What is on a chip, and at its outer edge, is counted of all dies together. These are assumptions;
two dies side by side, such as those of B200, are the plainest case.
"""

from __future__ import annotations

from functools import cache

from dfopt.technology.arithmetic import Numbers, arithmetic_of
from dfopt.technology.components import ChipDram, Links
from dfopt.technology.operating import DIES


def seam_mm(dies: int, chip_area: Numbers) -> Numbers:
    """Total length of die edges that face another die, mm; both sides count.

    Examples
    --------
    >>> seam_mm(2, 1600.0), seam_mm(4, 1600.0), seam_mm(1, 800.0)
    (56.568542494923804, 160.0, 0.0)
    """
    return _seams(dies) * arithmetic_of(chip_area).sqrt(chip_area / dies)


def memory_per_link_rate(dies: int) -> float:
    """Memory bandwidth that links between dies can serve, relative to the total rate of the links.

    Examples
    --------
    Of two dies each reads half of its bytes, a quarter of all, from the other one:

    >>> memory_per_link_rate(2), memory_per_link_rate(4)
    (2.0, 1.0)
    """
    rows, columns = _grid(dies)
    # through the middle seam, in each direction, go the bytes that half of the dies read from the other half
    served = [
        wide**2 / ((wide // 2) * (wide - wide // 2)) * high
        for wide, high in ((columns, rows), (rows, columns))
        if wide > 1
    ]
    return min(served) / _seams(dies)


def across(dram: ChipDram, links: Links, dies: int) -> ChipDram:
    """DRAM of a chip of several dies, with bandwidth limited by the links between dies.

    Parameters
    ----------
    dram
        DRAM of the chip as if it were one die.
    links
        Links between dies.
    dies : int
        Number of dies, at least two.
    """
    most = links.rate * memory_per_link_rate(dies)
    do = arithmetic_of(dram.rate, most)
    return dram._replace(rate=do.minimum(dram.rate, most), bound=do.where(dram.rate > most, DIES, dram.bound))


@cache
def _grid(dies: int) -> tuple[int, int]:
    rows = max(rows for rows in range(1, dies + 1) if dies % rows == 0 and rows * rows <= dies)
    return rows, dies // rows


def _seams(dies: int) -> int:
    """Edges of dies that face another one."""
    rows, columns = _grid(dies)
    return 2 * (rows * (columns - 1) + columns * (rows - 1))
