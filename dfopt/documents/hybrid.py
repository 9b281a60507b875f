"""Copies of the batch in groups: within one they share out what they hold, and all groups hold the same (HSDP).

Sources: hybrid sharding of PyTorch's FSDP (Zhao et al., VLDB 2023, arXiv:2304.11277, section 3.2.2) and of Megatron-LM
(several instances of its distributed optimizer); MiCS (Zhang et al., VLDB 2022, arXiv:2205.00119).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from pydantic import Field

from dfopt.documents.axes import Dims
from dfopt.documents.base import Part
from dfopt.documents.dim_names import part_name, split_part_name


class Hybrid(Part):
    """Groups of replicas for hybrid sharding: ZeRO shards states within each group only.

    Attributes
    ----------
    replicas : groups, e.g. 4
        Number of groups of data-parallel replicas. Each group stores everything once; the groups add up their shards
        (HSDP).
    over : e.g. [node]
        Network dims, or parts of dims, along which the replicas of one group lie.
    across : e.g. ["cluster[4@8]"]
        Network dims, or parts of dims, along which the groups lie.
    """

    replicas: int = Field(ge=2)
    over: Dims
    across: Dims


def hybrid_of(dims: Dims, replicas: int, size_of: Callable[[str], int]) -> Hybrid | None:
    """Groups of replicas along some dims; None if the dims cannot be cut into so many.

    A group has the first dims, and the nearest chips of a dim that it has in part, as its members exchange more than
    the groups do. The ring around a block of two dims is not cut.

    Parameters
    ----------
    dims
        Names of dims and parts of dims that the replicas are along, from the inside out.
    replicas : int
        Number of groups.
    size_of : callable
        Chips of a dim or part, from its name.

    Examples
    --------
    >>> sizes = {"node": 8, "cluster[16@2]": 16}
    >>> hybrid_of(("node", "cluster[16@2]"), 4, sizes.get)
    Hybrid(replicas=4, over=('node', 'cluster[4@2]'), across=('cluster[4@8]',))
    >>> hybrid_of(("node", "cluster[16@2]"), 3, sizes.get)
    """
    left, rest = divmod(math.prod(map(size_of, dims)), replicas)
    if rest or left < 2:
        return None
    over, across = list[str](), list[str]()
    for name in dims:
        size = size_of(name)
        if left % size == 0:
            over.append(name)
            left //= size
        elif left == 1:
            across.append(name)
        elif size % left == 0 and "+" not in name:
            dim, _, stride = split_part_name(name)
            over.append(part_name(dim, left, stride))
            across.append(part_name(dim, size // left, stride * left))
            left = 1
        else:
            return None
    return Hybrid(replicas=replicas, over=tuple(over), across=tuple(across))
