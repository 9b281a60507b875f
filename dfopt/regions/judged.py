"""From a mapping by arrays to a mapping that the judge has valued: only these count as solutions."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace

import numpy as np

from dfopt.bnb import Candidate
from dfopt.documents.mapping import Mapping
from dfopt.documents.plan import Plan
from dfopt.errors import Infeasible
from dfopt.regions.classes import PlanClass
from dfopt.regions.pricing import Priced
from dfopt.search.candidate import given_work, prepare
from dfopt.search.options import Options
from dfopt.search.sharing import given_record
from dfopt.search.solved import Solved, scored

__all__ = ["JudgedMapping", "judged"]


@dataclass(frozen=True)
class JudgedMapping:
    """A mapping that the judge has valued; equal to another one of the same plan, schemes, tiles and partitions.

    Attributes
    ----------
    plan : Plan
    kernels : tuple
        Scheme and partition of every kernel.
    tiles : int
        Tiles of the streamed axis.
    solved : Solved
        The mapping with its score.
    """

    plan: Plan
    kernels: tuple[Hashable, ...]
    tiles: int
    solved: Solved = field(compare=False)

    @classmethod
    def of(cls, solved: Solved) -> JudgedMapping:
        """A mapping with what makes it different from others."""
        mapping: Mapping = solved.mapping
        kernels = tuple((one.name, one.sharding, one.partition) for one in mapping.kernels)
        return cls(solved.plan, kernels, mapping.tile_count, solved)


def judged(of: PlanClass, priced: Priced, options: Options) -> Candidate:
    """The mapping with the judge's value.

    Raises
    ------
    ScoreMismatch
        If the judge values it otherwise, or finds that it does not fit: that is a bug.
    """
    instance = of.instance(priced.plan)
    names = [kernel.name for kernel in of.layer.kernels]
    work = given_work(
        instance, of.schemes(priced.option_k), dict.fromkeys(names, 0), given_record("found among regions")
    )
    work = replace(work, counts=(of.tiles,), lattices=dict.fromkeys(range(of.kinds), None))
    for ready in prepare(instance, options, {instance.shared: work}):
        partition_k = np.array(priced.partition_k, dtype=np.int64)
        most = max(numbering.limits.p_max for numbering in of.numbering_k)
        solved = scored(ready, partition_k, priced.step_s, priced.step_s, (), most)
        return Candidate(solved.value, JudgedMapping.of(solved))
    raise Infeasible("no tile count fits")
