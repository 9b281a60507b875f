"""Collectives on a system's network dims under given assumptions: the one place that prices them."""

from __future__ import annotations

from collections.abc import Sequence

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.system import System
from dfopt.physics.collectives import Collective, CollectiveModel, Dim, Topology, seconds


def dims_of(system: System, names: Sequence[str]) -> tuple[Dim, ...]:
    """Network dims of a system as the collective formulas want them."""
    found = (system.dim(name) for name in names)
    return tuple(Dim(d.name, Topology(d.topology), d.size, d.link_bandwidth, d.latency) for d in found)


def communication_seconds(
    kind: Collective | None, volume: float, names: Sequence[str], system: System, assumptions: Assumptions
) -> float:
    """Seconds of one communication over the group of chips spanned by some dims.

    Parameters
    ----------
    kind : Collective or None
        None, an empty volume or a group of one chip takes no time.
    volume : float
        Bytes of the full logical tensor, see :mod:`dfopt.physics.collectives`.
    names : sequence of str
        Network dims of the group.
    system : System
        Gives the dims and ``collective_overhead``, charged once per communication.
    assumptions : Assumptions
        Give the ``collective_model`` and ``all_reduce_passes``.

    Returns
    -------
    float
        Seconds.
    """
    dims = [dim for dim in dims_of(system, names) if dim.size > 1]
    if kind is None or volume <= 0 or not dims:
        return 0.0
    model = CollectiveModel(assumptions.collective_model)
    time = seconds(kind, volume, dims, model=model, all_reduce_passes=assumptions.all_reduce_passes)
    return time + system.collective_overhead
