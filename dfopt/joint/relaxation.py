"""What a relaxation says of a stage: seconds that no mapping is below, and options that come to about that."""

from __future__ import annotations

from dataclasses import dataclass

from dfopt.arrays import Ints

__all__ = ["Relaxation"]


@dataclass(frozen=True)
class Relaxation:
    """A lower bound of a stage, whatever its partitions are, and the options behind it.

    Attributes
    ----------
    seconds : s
        No mapping takes less in one evaluation. 0 where nothing is shown, infinite where nothing is possible.
    option_k : int array, shape (kernels,), optional
        An option of every kernel: a start. None where the relaxation has no solution.
    """

    seconds: float
    option_k: Ints | None
