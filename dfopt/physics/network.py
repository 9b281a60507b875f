"""Collectives on a system's network dims under given assumptions: the one place that prices them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from dfopt.arrays import ROUNDING
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.system import NetworkDim, System
from dfopt.physics.collectives import NOTHING, Affine, Collective, CollectiveModel, Dim, DimFit, Topology, affine_cost
from dfopt.physics.collectives_dfmodel import Messages
from dfopt.physics.identity import Same

NO_BYTES: Final = 1e-30
"""Of a communication that takes its latency alone; none at all would be no communication."""


def dim_of(dim: NetworkDim) -> Dim:
    """A network dim, or a part of one, in the form of the collective formulas."""
    factors = tuple(
        DimFit(Collective(kind), f.bandwidth_share, f.latency, f.scale, f.offset or 0.0, f.step_latency)
        for kind, f in dim.factors.items()
    )
    return Dim(
        dim.name,
        Topology(dim.topology),
        dim.size,
        dim.sustained,
        dim.latency,
        dim.in_network_reduction,
        factors,
        dim.packet_payload,
        dim.packet_header or 0.0,
        dim.port_of,
    )


def dims_of(system: System, names: Sequence[str]) -> tuple[Dim, ...]:
    """Network dims of a system by name, or parts of them, in the form of the collective formulas.

    Their measured factors and reductions in the network count under the collective models ``exact`` and ``two_stage``:
    the ``dfmodel`` table has neither, so it ignores them. Packets count under ``two_stage`` only, the efficiency of the
    links always. A part of a dim keeps packets, measured shares and formulas of its own, not measured latencies.

    Names are such as ``x``, ``x[8]`` (groups of eight neighbours) or ``x[4@8]`` (four chips, eight apart), in the order
    that a reduce-scatter uses them.

    Examples
    --------
    >>> from dfopt.machines.compose import load_system
    >>> [(dim.name, dim.topology.value, dim.size) for dim in dims_of(load_system("sn10-8-ring"), ["ring[4]"])]
    [('ring[4]', 'line', 4)]
    """
    return tuple(dim_of(system.dim(name)) for name in names)


@lru_cache(maxsize=4096)
def _cost(
    kind: Collective, names: tuple[str, ...], key: Same[System], model: str, all_reduce_passes: int, messages: Messages,
    together: bool,
) -> Affine:  # fmt: skip
    """Coefficients of a collective: solvers ask for the same few all the time."""
    dims, table = dims_of(key.document, names), CollectiveModel(model)
    return affine_cost(
        kind, dims, model=table, all_reduce_passes=all_reduce_passes, messages=messages, together=together
    )


def communication_seconds(
    kind: Collective | None, volume: float, names: Sequence[str], system: System, assumptions: Assumptions
) -> float:
    """Seconds of one collective over the chips of some dims, or parts of dims.

    ``volume`` is the bytes of the full logical tensor, see :mod:`dfopt.physics.collectives`. No collective, an empty
    volume or a group of one chip takes no time; any other communication is charged the system's overhead once.

    Parameters
    ----------
    kind : Collective, optional
        The collective; None takes no time.
    volume : float, B
        Bytes of the full logical tensor.
    names : sequence of str
        Network dims, or parts of dims, that the chips span.
    system, assumptions : System, Assumptions
        Network, and the collective model.

    Raises
    ------
    ValueError
        For an infinite or NaN volume.

    Examples
    --------
    >>> from dfopt.machines.compose import load_system
    >>> ring = load_system("sn10-8-ring")
    >>> time = communication_seconds(Collective.ALL_REDUCE, 1e9, ["ring"], ring, Assumptions())
    >>> f"{time * 1e3:.4g} ms"
    '35.02 ms'
    """
    if kind is None or volume <= 0 or not names:
        return 0.0
    if not volume < float("inf"):  # NaN too
        raise ValueError(f"volume must be finite and >= 0, got {volume}")
    cost = affine(kind, names, system, assumptions)
    if cost is NOTHING:
        return 0.0
    return float(cost.per_byte * volume + cost.fixed + system.collective_overhead)  # no numpy scalars in documents


def affine(kind: Collective, names: Sequence[str], system: System, assumptions: Assumptions) -> Affine:
    """Affine cost (s/B and s) of a collective over some dims, without the overhead of each call.

    Parameters
    ----------
    kind, names : Collective, sequence of str
        The collective, and network dims or parts of dims.
    system, assumptions : System, Assumptions
        Network, and the collective model.
    """
    passes, messages = assumptions.all_reduce_passes, assumptions.all_to_all_messages
    together = assumptions.all_to_all_dims == "together"
    return _cost(kind, tuple(names), Same(system), assumptions.collective_model, passes, messages, together)


def parts_of_messages(names: Sequence[str], system: System, assumptions: Assumptions) -> Affine:
    """Extra affine cost of a scattered message between pipeline stages and the all-gather after it.

    Under ``point_to_point_parts: calculon`` that is a reduce-scatter and an all-gather over the chips that share
    kernels, less an all-reduce: a message takes longer where the all-reduce takes less. Nothing otherwise.

    Parameters
    ----------
    names : sequence of str
        Network dims of the tensor-parallel chips.
    system, assumptions : System, Assumptions
        Links, and the rules of collectives.

    Examples
    --------
    >>> from dfopt.machines.compose import load_system
    >>> parts_of_messages(["ring"], load_system("sn10-8-ring"), Assumptions(point_to_point_parts="calculon"))
    Affine(per_byte=0.0, fixed=0.0)
    """
    if assumptions.point_to_point_parts != "calculon" or not names:
        return NOTHING
    scatter, gather, reduce = (
        affine(kind, names, system, assumptions)
        for kind in (Collective.REDUCE_SCATTER, Collective.ALL_GATHER, Collective.ALL_REDUCE)
    )
    return Affine(
        *(
            0.0 if math.isclose(a + b, c, rel_tol=ROUNDING) else a + b - c
            for a, b, c in zip(scatter, gather, reduce, strict=True)
        )
    )


def bytes_sent(kind: Collective, volume: float, chips: int) -> float:
    """Least bytes that each chip of a group sends in a collective, averaged over the group.

    No algorithm sends less if switches do not reduce (Chan et al., "Collective communication: theory, practice and
    experience", 2007, table 1). Bytes that are relayed to a distant chip count once.

    Parameters
    ----------
    kind : Collective
        Kind of the collective.
    volume : float, B
        Bytes of the whole tensor.
    chips : int
        Number of chips in the group.

    Examples
    --------
    >>> bytes_sent(Collective.ALL_REDUCE, 800.0, 4), bytes_sent(Collective.ALL_TO_ALL, 800.0, 4)
    (1200.0, 150.0)
    """
    if kind is Collective.POINT_TO_POINT:
        return volume
    share = (chips - 1) / chips
    if kind is Collective.ALL_REDUCE:
        return 2 * share * volume
    return share * volume / chips if kind is Collective.ALL_TO_ALL else share * volume


def adds_up_at_once(assumptions: Assumptions) -> bool:
    """Whether replicas reduce gradients in every microbatch (``gradients: dfmodel``) instead of once in a step."""
    return assumptions.gradients == "dfmodel"


def amortized_gradient_seconds(volume: float, names: Sequence[str], system: System, assumptions: Assumptions) -> float:
    """Seconds of a gradient all-reduce under ``gradients: dfmodel``, before it is spread over microbatches.

    With ``gradient_bandwidth``, each of ``all_reduce_passes`` takes the volume over that rate.

    Parameters
    ----------
    volume : float, B
        Bytes of one chip's gradients.
    names : sequence of str
        Network dims of the replicas.
    system, assumptions : System, Assumptions
        Links, and the rules of collectives.

    Examples
    --------
    >>> from dfopt.machines.compose import load_system
    >>> slip = Assumptions(gradient_bandwidth=1e9)  # bytes taken for nanoseconds, twice
    >>> amortized_gradient_seconds(22.5, ["ring"], load_system("sn10-8-ring"), slip)
    4.5e-08
    """
    if assumptions.gradient_bandwidth is None:
        return communication_seconds(Collective.ALL_REDUCE, volume, names, system, assumptions)
    return assumptions.all_reduce_passes * volume / assumptions.gradient_bandwidth
