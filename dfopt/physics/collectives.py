r"""Time of a collective operation on a network of one or several dimensions.

Pure functions, SI units (bytes, bytes per second, seconds). Every formula is affine in the volume,
``seconds = per_byte * volume + fixed``, so a solver can take the two coefficients (`affine_cost`) and
an evaluator can price a whole vector of volumes at once (`seconds`).

Notation: V volume, n chips, b bandwidth of one link in one direction, a latency.

**Volume** is always the size of the *full logical tensor*, whatever share a chip holds:

==================  ==================================================================================
all_reduce          each chip holds a V-byte partial sum and ends with the V-byte total
reduce_scatter      each chip holds a V-byte partial sum and ends with V/n bytes of the total
all_gather          each chip holds V/n bytes and ends with all V
all_to_all          V is spread over the chips; each chip sends V/n^2 bytes to each other chip
broadcast           the root's V bytes reach every chip
point_to_point      V bytes go from one chip to one other
==================  ==================================================================================

**Network** conventions. Links are full duplex. A ring chip has one link to each neighbour; a ring of
*two* has one link, not two parallel ones (both neighbours are the same chip). A line is a chain: its end chips
have one link. A switch chip has one port into a non-blocking switch, and chip-switch-chip costs one latency;
switches neither reduce nor multicast, unless ``in_network_reduction`` says so (the second switch column). A fully
connected chip has n - 1 links. Reductions are free. The root of a broadcast is the worst one (the end of a line).

`CollectiveModel.EXACT`, one dimension; n = 2 is the same single link on every topology, so that an all_reduce or a
broadcast takes V/b + a, an all_gather V/(2b) + a and an all_to_all V/(4b) + a. Let f = (n-1)/n and L = ceil(lg n):

==============  =====================  =======================  ================  ============  ===============
kind            ring, n > 2            line                     switch            that reduces  fully connected
==============  =====================  =======================  ================  ============  ===============
all_gather,     f V/(2b) + (n-1) a     f V/b + (n-1) a          f V/b + L a       f V/b + a     V/(n b) + a
reduce_scatter
all_reduce      f V/b + 2(n-1) a       V/b + (n-1) a            2f V/b + 2L a     V/b + a       2 V/(n b) + 2 a
all_to_all      n even V/(8b),         floor(n/2) ceil(n/2)     f V/(n b)         as a switch   V/(n^2 b) + a
                n odd (n^2-1)/n^2      /n^2 V/b + (n-1) a       + (n-1) a
                V/(8b); + floor(n/2) a
broadcast       V/(2b) + floor(n/2) a  V/b + (n-1) a            2f V/b + 2L a     V/b + a       2 V/(n b) + 2 a
point_to_point  V/b + hops a           V/b + hops a             V/b + a           V/b + a       V/b + a
==============  =====================  =======================  ================  ============  ===============

`dfopt.physics.collectives_exact` says by which algorithms, and which of them no other can beat. Measured figures
(`Factor`) take the place of a dim's terms: the bandwidth term is divided by the share, the fixed term replaced.

`CollectiveModel.TWO_STAGE`: the same algorithms with two latencies per round and the headers of packets, for small
messages; see `dfopt.physics.two_stage`.

`CollectiveModel.DFMODEL`: the table of the DFModel authors, see `dfopt.physics.collectives_dfmodel`.

Several dimensions (all models) are used one after the other; see `affine_cost`. An algorithm that keeps the links of
all dimensions busy at once could be up to as many times faster as there are dimensions, and is that many times faster
where they are equal, as in a torus with equal sides: for an all-to-all see `dfopt.physics.collectives_bounds`; an
all-gather takes (N-1)/N V/(2b) there, while the links of a chip, 2b in each of k dimensions, could bring its bytes
in a k-th of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from dfopt.physics.collectives_bounds import bisection_bound
from dfopt.physics.collectives_dfmodel import Messages, dfmodel_cost
from dfopt.physics.collectives_exact import exact_cost, farthest
from dfopt.physics.collectives_types import Affine, Collective, CollectiveModel, Dim, Factor, Topology
from dfopt.physics.two_stage import charged

__all__ = [
    "Affine", "Collective", "CollectiveModel", "Dim", "Factor", "Topology", "affine_cost", "bisection_bound", "seconds"
]  # fmt: skip

Array = NDArray[np.floating[Any]] | NDArray[np.integer[Any]]


def _hops_per_dim(dims: Sequence[Dim], hops: int | Sequence[int]) -> tuple[int, ...]:
    """Hops along each dim; one number is for the first dim with more than one chip."""
    if isinstance(hops, int):
        if hops < 1:
            raise ValueError(f"hops must be >= 1, got {hops}")
        first = next((i for i, dim in enumerate(dims) if dim.size > 1), None)
        return tuple(hops if i == first else 0 for i in range(len(dims)))
    if len(hops) != len(dims):
        raise ValueError(f"hops: one number for each of {len(dims)} dims expected, got {len(hops)}")
    return tuple(hops)


def affine_cost(
    kind: Collective,
    dims: Sequence[Dim],
    *,
    model: CollectiveModel = CollectiveModel.EXACT,
    all_reduce_passes: int = 2,
    hops: int | Sequence[int] = 1,
    messages: Messages = "crossing",
) -> Affine:
    r"""Coefficients of the (affine) time of a collective over the group spanned by `dims`.

    With sizes n_1, n_2, ... and N their product, the dimensions are used one after the other (BlueConnect,
    reference 4 of `dfopt.physics.collectives_exact`):

    * reduce_scatter: along `dims` in order, dimension i on V / (n_1 ... n_{i-1});
    * all_gather: the mirror image, last dimension first, so the same time;
    * all_reduce: reduce-scatter along the first dimension, the rest on V / n_1, all-gather along the first; where
      the all-reduce of a dimension on the whole tensor takes less time per byte (a line, a switch that reduces,
      mostly as the last one), it is taken instead;
    * broadcast: likewise scatter, the rest on V / n_1, all-gather, or the first dimension on the whole tensor;
    * all_to_all: dimension i exchanges all V/N bytes of each chip within every group along it, which is
      an all-to-all of a tensor of V n_i / N bytes;
    * point_to_point: along the first dimension with more than one chip, unless `hops` says otherwise. The message
      crosses the given links of each dimension, and the narrowest of them sets the bandwidth.

    The order of `dims` matters for all but the last two: the one with the most bandwidth per chip goes first. Where
    the DFModel table is asked for, an all_reduce takes one or two all-gather chains, a broadcast the full V
    in each dimension, an all_to_all what its slowest dimension takes.

    The parameters are those of `seconds`; `messages` is of the DFModel table. Both are 0 for a group of one chip.

    Examples
    --------
    >>> torus = [Dim("x", Topology.RING, 4, 100e9, 1e-6), Dim("y", Topology.RING, 2, 50e9, 1e-6)]
    >>> cost = affine_cost(Collective.REDUCE_SCATTER, torus)  # 3/4 / 200e9 + 1/4 * 1/2 / 50e9
    >>> f"{cost.per_byte:.4g} {cost.fixed:.1e}"
    '6.25e-12 4.0e-06'
    >>> cost = affine_cost(Collective.POINT_TO_POINT, torus, hops=(2, 1))
    >>> f"{cost.per_byte:.4g} {cost.fixed:.1e}"
    '2e-11 3.0e-06'
    """
    kind, model = Collective(kind), CollectiveModel(model)
    if all_reduce_passes not in (1, 2):
        raise ValueError(f"all_reduce_passes must be 1 or 2, got {all_reduce_passes}")
    ways = _hops_per_dim(dims, hops)
    charge = charged if model is CollectiveModel.TWO_STAGE else None
    if kind is not Collective.POINT_TO_POINT:
        if model is not CollectiveModel.DFMODEL:
            return exact_cost(kind, dims, charge=charge)
        return dfmodel_cost(kind, dims, all_reduce_passes, messages)
    for dim, count in zip(dims, ways, strict=True):
        if not 0 <= count <= farthest(dim):
            raise ValueError(f"dimension {dim.name!r}: hops must be in 0..{farthest(dim)}, got {count}")
    if model is not CollectiveModel.DFMODEL:
        return exact_cost(kind, dims, ways, charge)
    crossed = [dim for dim, count in zip(dims, ways, strict=True) if count]
    return dfmodel_cost(kind, [min(crossed, key=lambda dim: dim.bandwidth)]) if crossed else Affine(0.0, 0.0)


@overload
def seconds(
    kind: Collective,
    volume: float,
    dims: Sequence[Dim],
    *,
    model: CollectiveModel = ...,
    all_reduce_passes: int = ...,
    hops: int | Sequence[int] = ...,
) -> float: ...


@overload
def seconds(
    kind: Collective,
    volume: Array,
    dims: Sequence[Dim],
    *,
    model: CollectiveModel = ...,
    all_reduce_passes: int = ...,
    hops: int | Sequence[int] = ...,
) -> NDArray[np.float64]: ...


def seconds(
    kind: Collective,
    volume: float | Array,
    dims: Sequence[Dim],
    *,
    model: CollectiveModel = CollectiveModel.EXACT,
    all_reduce_passes: int = 2,
    hops: int | Sequence[int] = 1,
) -> float | NDArray[np.float64]:
    """Time of one collective over the group spanned by `dims`.

    Parameters
    ----------
    kind : Collective
        What is communicated.
    volume : float or array
        Bytes of the full logical tensor (module docstring). An array is priced element by element.
    dims : sequence of Dim
        Dimensions the group spans, in the order a reduce-scatter uses them (`affine_cost`). Dimensions
        of size 1 are ignored; a group of one chip takes no time.
    model : CollectiveModel
        Formulas to use.
    all_reduce_passes : {1, 2}
        `DFMODEL` only: charge an all-reduce as one or as two all-gathers (the authors' published
        figures use both).
    hops : int or sequence of int
        `POINT_TO_POINT` only: links crossed, more than one only on a ring or line. One number is for the
        first dimension with more than one chip, a sequence has a number (0 or more) for each of `dims`.

    Returns
    -------
    float or ndarray
        Seconds, a float for a scalar volume. A volume of 0 takes 0 s: no message, so no latency.

    Raises
    ------
    ValueError
        For a negative, infinite or NaN volume, or `all_reduce_passes` or `hops` out of range.

    Examples
    --------
    >>> ring = [Dim("tp", Topology.RING, 8, 25e9)]
    >>> seconds(Collective.ALL_REDUCE, 1e9, ring)
    0.035
    >>> seconds(Collective.ALL_REDUCE, 1e9, ring, model=CollectiveModel.DFMODEL, all_reduce_passes=1)
    0.035
    >>> seconds(Collective.ALL_GATHER, np.array([0.0, 1e9, 2e9]), ring).tolist()
    [0.0, 0.0175, 0.035]
    """
    cost = affine_cost(kind, dims, model=model, all_reduce_passes=all_reduce_passes, hops=hops)
    volumes = np.asarray(volume, dtype=np.float64)
    if not np.all((volumes >= 0) & (volumes < np.inf)):
        raise ValueError(f"volume must be finite and >= 0, got {volume}")
    times = np.where(volumes > 0, cost.per_byte * volumes + cost.fixed, 0.0)
    return times if isinstance(volume, np.ndarray) else float(times)
