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
*two* has one link, not two parallel ones (both neighbours are the same chip). A switch chip has one
port into a non-blocking switch, and chip-switch-chip costs one latency. A fully connected chip has
n - 1 links. Reductions are free, and switches neither reduce nor multicast.

`CollectiveModel.EXACT`, one dimension (n = 2 is the same single link on every topology):

==============  =============================  =============================  ======================
kind            ring                           switch                         fully connected
==============  =============================  =============================  ======================
all_gather,     (n-1)/n V/(2b) + (n-1) a       (n-1)/n V/b + ceil(lg n) a     V/(n b) + a
reduce_scatter  [n=2: V/(2b) + a]
all_reduce      twice the row above            twice the row above            twice the row above
all_to_all      n even V/(8b), n odd           (n-1)/n^2 V/b + (n-1) a        V/(n^2 b) + a
                (n^2-1)/n^2 V/(8b);
                + floor(n/2) a
                [n=2: V/(4b) + a]
broadcast       V/(2b) + floor(n/2) a          2(n-1)/n V/b + 2 ceil(lg n) a  2 V/(n b) + 2 a
                [n=2: V/b + a]                 [n=2: V/b + a]                 [n=2: V/b + a]
point_to_point  V/b + hops a                   V/b + a                        V/b + a
==============  =============================  =============================  ======================

`CollectiveModel.DFMODEL`, one dimension (table of the DFModel authors; all-gather also takes (n-1) a):

==========================  ===============  ===============  ===============
kind                        ring             switch           fully connected
==========================  ===============  ===============  ===============
all_gather, reduce_scatter  (n-1)/(n b) V    (n-1)/(n b) V    V/(n b)
all_reduce                  the row above times ``all_reduce_passes`` (1 or 2)
all_to_all                  V/(8 b)          V/(4 n b)        V/(n^2 b)
broadcast, point_to_point   V/b              V/b              V/b
==========================  ===============  ===============  ===============

Several dimensions (both models) are used one after the other; see `affine_cost`.

References
----------
.. [1] R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in
   MPICH", IJHPCA 19(1), 2005. The costs are also stated as comments in the MPICH source (algorithms
   `allgather/brucks`, `alltoall/pairwise`, `bcast`), which is what was checked, not the paper.
.. [2] J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal, D. Weathersby, "Efficient Algorithms for All-to-All
   Communications in Multiport Message-Passing Systems", IEEE TPDS 8(11), 1997 (through [1]).
.. [3] P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
   JPDC 69(2), 2009: ring algorithm and (n-1)/n bound (unconfirmed, from memory).
.. [4] M. Cho et al., "BlueConnect: Decomposing all-reduce for deep learning on heterogeneous network
   hierarchy", IBM J. R&D 63(6), 2019: one dimension after the other (content unconfirmed; with [1],
   what DFModel cites for its network model).
.. [5] DFModel, public source `src/intra_chip.py`: ratios as recorded in this project's study of it.
Formulas without a paper (ring all-to-all, ring broadcast, fully connected) are derived in the
docstrings; `tests/physics/step_simulator.py` checks all of them by moving chunks over explicit links.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

__all__ = ["Affine", "Collective", "CollectiveModel", "Dim", "Topology", "affine_cost", "seconds"]

Array = NDArray[np.floating[Any]] | NDArray[np.integer[Any]]


class Topology(str, Enum):
    """How the chips of one network dimension are wired."""

    RING = "ring"
    SWITCH = "switch"
    FULLY_CONNECTED = "fully_connected"


class Collective(str, Enum):
    """Kind of communication; the module docstring says what its volume means."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    POINT_TO_POINT = "point_to_point"


class CollectiveModel(str, Enum):
    """Alpha-beta cost of real algorithms (`EXACT`) or the DFModel authors' ratios (`DFMODEL`)."""

    EXACT = "exact"
    DFMODEL = "dfmodel"


@dataclass(frozen=True)
class Dim:
    """One network dimension.

    Parameters
    ----------
    name : str
        Label, not used in any formula.
    topology : Topology
        Wiring of the chips along this dimension.
    size : int
        Number of chips along this dimension, at least 1.
    bandwidth : float
        Bytes per second *per link and direction*; see the module docstring for the links of a chip.
    latency : float
        Seconds per hop; chip-switch-chip is one hop.

    Values outside these ranges raise `ValueError`.
    """

    name: str
    topology: Topology
    size: int
    bandwidth: float
    latency: float = 0.0

    def __post_init__(self) -> None:
        """Reject values no formula is defined for (`not >` also catches NaN)."""
        # A plain "ring" (from a file) must not fall through the `is` tests below to another wiring.
        object.__setattr__(self, "topology", Topology(self.topology))
        if self.size < 1 or self.size != int(self.size):
            raise ValueError(f"dimension {self.name!r}: size must be an integer >= 1, got {self.size}")
        if not self.bandwidth > 0:
            raise ValueError(f"dimension {self.name!r}: bandwidth must be > 0, got {self.bandwidth}")
        if not 0 <= self.latency < math.inf:
            raise ValueError(f"dimension {self.name!r}: latency must be finite and >= 0, got {self.latency}")


class Affine(NamedTuple):
    """Cost ``per_byte * volume + fixed`` of a collective, in seconds per byte and seconds."""

    per_byte: float
    fixed: float


def _log2_rounds(n: int) -> int:
    # Integer arithmetic: math.log2 rounds, which could add a round near a large power of two.
    return (n - 1).bit_length()


def _all_gather(dim: Dim) -> Affine:
    r"""All-gather, and by time reversal reduce-scatter, on one dimension of n > 1 chips.

    * Ring [3]_: each V/n chunk is cut in two halves that travel the ring in opposite directions, n - 1
      steps of V/(2n) per link. Both halves of a ring of two share its only link. (Sending whole chunks
      along shortest paths has the same bandwidth term and only floor(n/2) steps; the n - 1 steps here
      are those of ring libraries and of the DFModel authors' latency term.)
    * Switch: Bruck's circulant algorithm [1]_ [2]_, ceil(lg n) rounds for any n, one message per port
      and round. The reduce-scatter is the same schedule run backwards.
    * Fully connected: every chip sends its V/n chunk on all links at once.
    """
    n, b, a = dim.size, dim.bandwidth, dim.latency
    if dim.topology is Topology.RING:
        links = 1 if n == 2 else 2
        return Affine((n - 1) / n / (links * b), (n - 1) * a)
    if dim.topology is Topology.SWITCH:
        return Affine((n - 1) / n / b, _log2_rounds(n) * a)
    return Affine(1 / (n * b), a)


def _all_to_all(dim: Dim) -> Affine:
    r"""All-to-all on one dimension of n > 1 chips.

    * Ring: shortest paths, the antipodal message of an even ring cut in two. By symmetry the load of a
      link is V/n^2 times the distances travelled in its direction: sum(1..(n-1)/2) = (n^2-1)/8 for n
      odd, n^2/8 for n even. In step s every message that has at least s hops to go moves one hop, so
      floor(n/2) latencies. A ring of two sends V/4 over its only link.
    * Switch: pairwise exchange [1]_, n - 1 rounds of V/n^2.
    * Fully connected: V/n^2 on every link, one round.
    """
    n, b, a = dim.size, dim.bandwidth, dim.latency
    if dim.topology is Topology.RING:
        if n == 2:
            return Affine(1 / (4 * b), a)
        return Affine((n * n - n % 2) / (n * n) / (8 * b), (n // 2) * a)
    if dim.topology is Topology.SWITCH:
        return Affine((n - 1) / (n * n) / b, (n - 1) * a)
    return Affine(1 / (n * n * b), a)


def _broadcast(dim: Dim) -> Affine:
    r"""Broadcast on one dimension of n > 1 chips.

    * Ring: pipelined in *infinitely small* packets, one direction from the front of the tensor, the
      other from its back. A chip d hops away starts to receive after d a on one side and (n-d) a on the
      other, and is done when prefix and suffix meet: V/(2b) + n a/2, which is the formula for n even
      and, for n odd, at most a/2 above it (the formula is then a lower bound). P finite packets add at
      most n V/(P b), which is left out.
    * Switch: binomial scatter, then the all-gather [1]_, no multicast.
    * Fully connected: direct scatter, then direct all-gather, V/(n b) + a each.

    Two chips are one link whatever the topology, and the message is then sent in one go.
    """
    n, b, a = dim.size, dim.bandwidth, dim.latency
    if n == 2:
        return Affine(1 / b, a)
    if dim.topology is Topology.RING:
        return Affine(1 / (2 * b), (n // 2) * a)
    gather = _all_gather(dim)  # the scatter costs as much as the all-gather on both topologies
    return Affine(2 * gather.per_byte, 2 * gather.fixed)


_EXACT = {
    Collective.ALL_GATHER: _all_gather,
    Collective.ALL_TO_ALL: _all_to_all,
    Collective.BROADCAST: _broadcast,
}


def _dfmodel(kind: Collective, dim: Dim) -> Affine:
    r"""`DFMODEL` cost of the 1-D building blocks [5]_.

    The authors' all-to-all ratios (ring n^2/(8b), switch n/(4b), fully connected 1/b) multiply the bytes
    of *one pair of chips*, V/n^2: hence V/(8b), V/(4 n b) and V/(n^2 b). For switches this is about a
    quarter of the time the ports need, (n-1)/n^2 V/b: a known optimism of the table, kept as it is.
    All-gather: no division of the ring ratio by two, so a ring is charged like a switch; the latency
    term link_latency * (n-1) per pass is that of the authors' latest version (f9cda5e). Broadcast:
    volume over link bandwidth, as in the authors' HPL model.
    """
    n, b = dim.size, dim.bandwidth
    ring, switch = dim.topology is Topology.RING, dim.topology is Topology.SWITCH
    if kind is Collective.ALL_GATHER:
        return Affine((n - 1) / (n * b) if ring or switch else 1 / (n * b), (n - 1) * dim.latency)
    if kind is Collective.ALL_TO_ALL:
        return Affine(1 / (8 * b) if ring else 1 / (4 * n * b) if switch else 1 / (n * n * b), 0.0)
    return Affine(1 / b, 0.0)


def _point_to_point(dim: Dim, hops: int, model: CollectiveModel) -> Affine:
    """One message, cut through (the packets pipeline over the hops, so only latency adds up)."""
    farthest = dim.size - 1 if dim.topology is Topology.RING else 1
    if not 1 <= hops <= farthest:
        raise ValueError(f"dimension {dim.name!r}: hops must be in 1..{farthest}, got {hops}")
    return Affine(1 / dim.bandwidth, hops * dim.latency if model is CollectiveModel.EXACT else 0.0)


def affine_cost(
    kind: Collective,
    dims: Sequence[Dim],
    *,
    model: CollectiveModel = CollectiveModel.EXACT,
    all_reduce_passes: int = 2,
    hops: int = 1,
) -> Affine:
    r"""Coefficients of the (affine) time of a collective over the group spanned by `dims`.

    With sizes n_1, n_2, ... and N their product, the dimensions are used one after the other [4]_:

    * reduce_scatter: along `dims` in order, dimension i on V / (n_1 ... n_{i-1});
    * all_gather: the mirror image, last dimension first, so the same time;
    * all_reduce: the reduce-scatter chain, then the all-gather chain;
    * all_to_all: dimension i exchanges all V/N bytes of each chip within every group along it, which is
      an all-to-all of a tensor of V n_i / N bytes;
    * broadcast: the full V along each dimension in turn;
    * point_to_point: along the first dimension with more than one chip.

    The order of `dims` matters for the first three: the one with the most bandwidth per chip goes first.

    The parameters are those of `seconds`. Both coefficients are 0 for a group of one chip.

    Examples
    --------
    >>> torus = [Dim("x", Topology.RING, 4, 100e9, 1e-6), Dim("y", Topology.RING, 2, 50e9, 1e-6)]
    >>> cost = affine_cost(Collective.REDUCE_SCATTER, torus)  # 3/4 / 200e9 + 1/4 * 1/2 / 50e9
    >>> f"{cost.per_byte:.4g} {cost.fixed:.1e}"
    '6.25e-12 4.0e-06'
    """
    kind, model = Collective(kind), CollectiveModel(model)
    if all_reduce_passes not in (1, 2):
        raise ValueError(f"all_reduce_passes must be 1 or 2, got {all_reduce_passes}")
    if hops < 1:
        raise ValueError(f"hops must be >= 1, got {hops}")
    used = [dim for dim in dims if dim.size > 1]
    if not used:
        return Affine(0.0, 0.0)
    if kind is Collective.POINT_TO_POINT:
        return _point_to_point(used[0], hops, model)

    block, repeat = kind, 1
    if kind in (Collective.REDUCE_SCATTER, Collective.ALL_REDUCE):
        block = Collective.ALL_GATHER  # its mirror image, hence the same time
    if kind is Collective.ALL_REDUCE:
        repeat = 2 if model is CollectiveModel.EXACT else all_reduce_passes

    chips = math.prod(dim.size for dim in used)
    share = 1.0  # of V, that the current dimension works on
    per_byte = fixed = 0.0
    for dim in used:
        if kind is Collective.ALL_TO_ALL:
            share = dim.size / chips
        cost = _EXACT[block](dim) if model is CollectiveModel.EXACT else _dfmodel(block, dim)
        per_byte += repeat * share * cost.per_byte
        fixed += repeat * cost.fixed
        if block is Collective.ALL_GATHER:
            share /= dim.size
    return Affine(per_byte, fixed)


@overload
def seconds(
    kind: Collective,
    volume: float,
    dims: Sequence[Dim],
    *,
    model: CollectiveModel = ...,
    all_reduce_passes: int = ...,
    hops: int = ...,
) -> float: ...


@overload
def seconds(
    kind: Collective,
    volume: Array,
    dims: Sequence[Dim],
    *,
    model: CollectiveModel = ...,
    all_reduce_passes: int = ...,
    hops: int = ...,
) -> NDArray[np.float64]: ...


def seconds(
    kind: Collective,
    volume: float | Array,
    dims: Sequence[Dim],
    *,
    model: CollectiveModel = CollectiveModel.EXACT,
    all_reduce_passes: int = 2,
    hops: int = 1,
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
        figures use both). `EXACT` always takes reduce-scatter plus all-gather.
    hops : int
        `POINT_TO_POINT` only: links crossed, more than one only on a ring.

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
