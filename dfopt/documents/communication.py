"""Collectives that kernels need because of what they compute, whatever their sharding."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dfopt.documents.axes import groups
from dfopt.documents.base import Part
from dfopt.documents.on_axes import Group
from dfopt.units import Bytes

CollectiveKind = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "point_to_point"]


class Communication(Part):
    """A collective that a kernel needs in every evaluation, whatever its sharding.

    Examples are embedding rows that are stored on other chips, the transpose of an FFT, and the panel of an LU step:
    data that an operation sends by its nature. ``over`` is the group of chips, one of
    :func:`dfopt.documents.axes.groups`:

    * ``tp``: all tensor-parallel chips; ``tp_first``, ``tp_rest``: those along the first network dim that
      carries tensor parallelism, or along the others (the columns and rows of a process grid). Each such
      smaller group works on its share of the tensor, all at the same time.
    * ``dp``: the data-parallel copies; ``all``: tensor-parallel chips and copies together. Every copy brings a
      tensor of this size to an ``all_to_all`` or ``all_gather``.

    Communications of one kernel that use different network dims run at the same time.

    Attributes
    ----------
    kind : e.g. all_to_all
        Collective operation that the kernel needs. ``all_reduce``: sums a tensor, and every chip gets the sum.
        ``all_gather``: every chip gets the parts of all. ``reduce_scatter``: sums a tensor, and every chip gets a part.
        ``all_to_all``: every chip sends a part to every other chip. ``broadcast``: one chip sends to all.
        ``point_to_point``: one chip sends to another.
    bytes : e.g. 64 MB
        Size of the whole tensor of one evaluation.
    over : e.g. tp
        Group of chips that communicates. ``tp``: all tensor-parallel chips. ``tp_first``: those along the first network
        dim of tensor parallelism. ``tp_rest``: those along its other dims. ``mp``, ``mp_first`` and ``mp_rest``: the
        same for a module-wise parallel group. ``dp``: the data-parallel replicas. ``all``: tensor-parallel chips and
        replicas together.
    """

    kind: CollectiveKind
    bytes: Bytes = Field(gt=0)
    over: Group = next(iter(groups()))
