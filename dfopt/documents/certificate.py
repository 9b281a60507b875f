"""A certificate: what makes the proof of a result short to follow, on any machine, by code that trusts nothing of it.

Bounds are shown region by region (:mod:`dfopt.proof`). What takes long is to find how a region is divided, and by which
weights of resources its bound is high enough. A certificate says both. Whoever follows it lists plans and members of
regions, and computes every bound, without it: one that was forged shows less, or nothing.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from dfopt.documents.base import Document, Part
from dfopt.documents.plan import Plan

Number = Annotated[int, Field(ge=0)]


class CertifiedRegion(Part):
    """A proof step: how a region is bounded, or into which parts it is divided.

    Kernels, schemes and weights have numbers from 0 on: kernels in the order of the graph, schemes in that of all which
    a kernel may have.

    Attributes
    ----------
    parts : regions, e.g. 2
        Number of regions that it is divided into. 0: it is shown.
    weights : 1, e.g. 0
        Number of the weights by which the region is bounded. None: no weights are needed.
    priced : 1, e.g. [0]
        Groups of kernels, a pass or all, of which every choice of schemes is priced instead. None: of no group.
    enough : s, e.g. [0.5]
        Seconds from which on the layers of each group, of a pass or all, exclude all plans: blocks that take so many
        with others are left out. None: all blocks may be part of a faster mapping.
    excluded : 1, e.g. [[3, 1]]
        Kernels, each with a scheme that these weights or prices exclude. None: no scheme is excluded.
    dominated : 1, e.g. [[3, 0, 2]]
        Kernels, each with a scheme, and with another one that is nowhere more. None: there is no such scheme.
    kernel : 1, e.g. 5
        Kernel by whose schemes the rest is divided into regions. None: it is not divided by schemes.
    blocks_of : 1, e.g. 5
        Kernel by whose blocks the rest is divided into regions. None: it is not divided by blocks.
    """

    parts: Number = 0
    weights: Number | None = None
    priced: tuple[Number, ...] | None = None
    enough: tuple[float | None, ...] | None = None
    excluded: tuple[tuple[Number, Number], ...] | None = None
    dominated: tuple[tuple[Number, Number, Number], ...] | None = None
    kernel: Number | None = None
    blocks_of: Number | None = None


class CertifiedPlans(Part):
    """Proof steps for plans whose layers cost the same, for some numbers of tiles.

    Attributes
    ----------
    microbatch : samples, e.g. 1
        Microbatch of the graph that the plans are for.
    variant : e.g. "recompute: full"
        Variant of that graph. None: the graph has no variants.
    plan : e.g. {microbatches: 16}
        The first of the plans.
    tile_counts : tiles, e.g. [16, 8]
        Numbers of tiles of the mappings. In none of them does a block pay less than these regions say.
    left_open : 1, e.g. [2]
        Numbers of plans that the regions do not show, in the order in which the plans are listed.
    weights : 1, e.g. [[[0.5, 0.5]]]
        Weights of the resources that take time, for every group of kernels that may share blocks.
    regions : e.g. [{parts: 2, kernel: 5}, {weights: 0}, {weights: 0}]
        The regions, the first of which has all schemes. Behind each come those that it is divided into, with all that
        these are divided into, from the last one on.
    """

    microbatch: int
    variant: str | None = None
    plan: Plan
    tile_counts: tuple[int, ...]
    left_open: tuple[Number, ...] = ()
    weights: tuple[tuple[tuple[Annotated[float, Field(ge=0)], ...], ...], ...] = ()
    regions: tuple[CertifiedRegion, ...] = ()


class Certificate(Document):
    """Proof of a result found by `dfopt check`, with which a later check takes less time.

    Attributes
    ----------
    result : e.g. 0123456789abcdef
        Seal of the result whose claims are shown.
    classes : e.g. []
        Plans by class. The claims of a missing class follow from the separate costs of its kernels.
    """

    SCHEMA: ClassVar[str] = "dfopt/certificate/1"

    result: str
    classes: tuple[CertifiedPlans, ...] = ()
