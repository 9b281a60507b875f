"""A share of a study's cells for one of several sweeps that run apart, such as the tasks of a Slurm array."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple, Self

from dfopt.errors import PlanError


class Shard(NamedTuple):
    """Share ``number`` of ``of`` equal shares of a study, counted from 1.

    Examples
    --------
    >>> keys = ["b", "d", "a", "c", "e"]
    >>> sorted(Shard.parse("1/2").share(keys)), sorted(Shard.parse("2/2").share(keys))
    (['a', 'c', 'e'], ['b', 'd'])
    """

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``i/n``, or raise a `PlanError` unless 1 <= i <= n."""
        match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise PlanError(f"--part: found {text!r}, expected i/n with i from 1 to n, such as 1/4, 2/4, 3/4 and 4/4")
        return cls(int(match[1]), int(match[2]))

    def share(self, keys: Iterable[str]) -> frozenset[str]:
        """Keys of this share, chosen by keys only; sizes of shares differ by at most one."""
        return frozenset(sorted(set(keys))[self.number - 1 :: self.of])

    @property
    def suffix(self) -> str:
        """Suffix of the share's store, such as ``1-of-4``."""
        return f"{self.number}-of-{self.of}"
