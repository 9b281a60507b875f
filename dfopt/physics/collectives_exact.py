r"""Alpha-beta time of collectives by real algorithms: one dimension, and several one after the other or at once.

The conventions (volumes, links, latencies) and the table of results stand in `dfopt.physics.collectives`; here
is why. V volume, n chips, b bandwidth of one link in one direction, a latency. Everything is checked by
``tests/physics/step_simulator.py``, which moves the data over explicit links.

Where an algorithm is said to be pipelined, its time is the limit of infinitely small packets; P finite packets add
at most (hops V)/(P b), which is left out.

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
Formulas without a paper (lines, ring all-to-all, ring broadcast, fully connected, switches that reduce) are
derived in the docstrings.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence

from dfopt.documents.dim_names import parts_of, split_part_name
from dfopt.physics.collectives_types import Affine, Collective, Dim, Topology


def _log2_rounds(n: int) -> int:
    # Integer arithmetic: math.log2 rounds, which could add a round near a large power of two.
    return (n - 1).bit_length()


def _plus(*costs: Affine) -> Affine:
    return Affine(sum(cost.per_byte for cost in costs), sum(cost.fixed for cost in costs))


def _all_gather(dim: Dim) -> Affine:
    r"""All-gather, and by time reversal reduce-scatter, on one dimension of n > 1 chips.

    * Ring [3]_: each V/n chunk is cut in two halves that travel the ring in opposite directions, n - 1
      steps of V/(2n) per link. Both halves of a ring of two share its only link. (Sending whole chunks
      along shortest paths has the same bandwidth term and only floor(n/2) steps; the n - 1 steps here
      are those of ring libraries and of the DFModel authors' latency term.)
    * Line: every chunk travels both ways to the ends, one hop per step, n - 1 steps of V/n per link. No algorithm
      does better in either term: an end receives (n-1)/n V over its only link, some of it from the other end.
    * Switch: Bruck's circulant algorithm [1]_ [2]_, ceil(lg n) rounds for any n, one message per port
      and round. The reduce-scatter is the same schedule run backwards.
    * Switch that reduces: in one round, each port sends its V/n and receives the (n-1)/n V of the others, which the
      switch multicasts. In a reduce-scatter each port sends its terms for the other chips, (n-1)/n V (it keeps
      its own), and receives V/n, the sum of the others'. The bandwidth terms are those of any switch.
    * Fully connected: every chip sends its V/n chunk on all links at once.
    """
    n, b, a = dim.size, dim.bandwidth, dim.latency
    match dim.topology:
        case Topology.RING:
            return Affine((n - 1) / n / (1 if n == 2 else 2) / b, (n - 1) * a)
        case Topology.LINE:
            return Affine((n - 1) / n / b, (n - 1) * a)
        case Topology.SWITCH:
            return Affine((n - 1) / n / b, a if dim.in_network_reduction else _log2_rounds(n) * a)
    return Affine(1 / (n * b), a)


def _all_reduce_whole(dim: Dim) -> Affine | None:
    r"""All-reduce without scattering the sum first, where that can be better; n > 1 chips.

    * Two chips: each sends all it has, V/b + a, one latency less than scatter and gather.
    * Line, pipelined: partial sums flow from both ends to the middle, the two middle chips exchange theirs (an odd
      line has one, which gets both), and the total flows back on the links' other direction. A link carries V each
      way, over n - 1 hops in all: V/b + (n-1) a. No algorithm does better in either term: every half of the chips
      must hear of the other's V bytes, and the ends of each other. Scatter and gather take 2(n-1)/n V/b.
    * Switch that reduces: every port sends V once and receives the sum once, V/b + a.
    """
    n, b, a = dim.size, dim.bandwidth, dim.latency
    if n == 2 or dim.topology is Topology.LINE:
        return Affine(1 / b, (n - 1) * a)
    return Affine(1 / b, a) if dim.in_network_reduction else None


def _all_to_all(dim: Dim) -> Affine:
    r"""All-to-all on one dimension of n > 1 chips.

    * Ring: shortest paths, the antipodal message of an even ring cut in two. By symmetry the load of a
      link is V/n^2 times the distances travelled in its direction: sum(1..(n-1)/2) = (n^2-1)/8 for n
      odd, n^2/8 for n even. In step s every message that has at least s hops to go moves one hop, so
      floor(n/2) latencies. A ring of two sends V/4 over its only link.
    * Line: the middle link carries floor(n/2) ceil(n/2) messages of V/n^2 each way, which is a lower bound. The
      schedule that attains it: a message to the right for chip j (counted from the left, 0 to n-1) starts in step
      n-1-j and then moves one hop per step; mirrored to the left. In step s the link from chip l to l+1 then
      carries min(l+1, n-1-l, s+1, n-1-s) messages, so a middle link is the busiest in every step, and there
      are n - 1 steps.
    * Switch: pairwise exchange [1]_, n - 1 rounds of V/n^2.
    * Fully connected: V/n^2 on every link, one round.
    """
    n, b, a = dim.size, dim.bandwidth, dim.latency
    match dim.topology:
        case Topology.RING if n > 2:
            return Affine((n * n - n % 2) / (n * n) / (8 * b), (n // 2) * a)
        case Topology.RING | Topology.LINE:
            return Affine((n // 2) * (n - n // 2) / (n * n) / b, (n - 1) * a)
        case Topology.SWITCH:
            return Affine((n - 1) / (n * n) / b, (n - 1) * a)
    return Affine(1 / (n * n * b), a)


def _scatter(dim: Dim) -> Affine:
    r"""Scatter of V bytes from the worst root to n > 1 chips: the first half of a broadcast.

    The root sends (n-1)/n V over all its links, which bounds the time. Ring and line: the chunk for the farthest
    chip first, so that every link carries one chunk per step (a ring's antipodal chunk is cut in two); the worst
    root of a line is an end. Switch: binomial tree [1]_. Fully connected: directly.
    """
    n, b, a = dim.size, dim.bandwidth, dim.latency
    if dim.topology is Topology.RING and n > 2:
        return Affine((n - 1) / n / (2 * b), (n // 2) * a)
    if dim.topology is Topology.FULLY_CONNECTED:
        return Affine(1 / (n * b), a)
    return Affine((n - 1) / n / b, (_log2_rounds(n) if dim.topology is Topology.SWITCH else n - 1) * a)


def _broadcast_whole(dim: Dim) -> Affine | None:
    r"""Broadcast on one dimension of n > 1 chips without scattering the tensor first, where that can be better.

    * Two chips are one link whatever the topology, and the message is sent in one go.
    * Ring, pipelined: one direction from the front of the tensor, the other from its back. A chip d hops away starts
      to receive after d a on one side and (n-d) a on the other, and is done when prefix and suffix meet: V/(2b) +
      n a/2, which is the formula for n even and, for n odd, at most a/2 above it (the formula is then a lower bound).
    * Line, pipelined, from the worst root: an end.
    * Switch that multicasts: V/b + a.

    Otherwise scatter and all-gather [1]_ are better, which `_nested` prices.
    """
    n, b, a = dim.size, dim.bandwidth, dim.latency
    if n == 2 or dim.topology is Topology.LINE:
        return Affine(1 / b, (n - 1) * a)
    if dim.topology is Topology.RING:
        return Affine(1 / (2 * b), (n // 2) * a)
    return Affine(1 / b, a) if dim.in_network_reduction else None


def _measured(kind: Collective, dim: Dim, cost: Affine) -> Affine:
    """The cost with the dim's measured factor for this collective, if there is one."""
    for factor in dim.factors:
        if factor.kind is kind:
            fixed = cost.fixed if factor.latency is None else factor.latency
            if factor.step is not None:
                rounds = (dim.size - 1) * (2 if kind is Collective.ALL_REDUCE else 1)
                fixed = (factor.latency or 0.0) + rounds * factor.step
            per_byte = cost.per_byte
            if factor.scale is not None:
                per_byte = factor.scale * (1 + factor.offset / dim.size) / dim.bandwidth
            return Affine(per_byte / factor.bandwidth_share, fixed)
    return cost


def _chain(kind: Collective, dims: Sequence[Dim]) -> Affine:
    """All-gather or reduce-scatter: dimension i works on V / (n_1 ... n_{i-1})."""
    share, per_byte, fixed = 1.0, 0.0, 0.0
    for dim in dims:
        cost = _measured(kind, dim, _all_gather(dim))
        per_byte, fixed = per_byte + share * cost.per_byte, fixed + cost.fixed
        share /= dim.size
    return Affine(per_byte, fixed)


def _ways(kind: Collective, dim: Dim, rest: Affine) -> list[Affine]:
    """An all-reduce or broadcast along one dimension and then the rest: first split, then whole if there is a way."""
    if kind is Collective.ALL_REDUCE:
        halves, unsplit = (_all_gather(dim), _all_gather(dim)), _all_reduce_whole(dim)
    else:
        halves, unsplit = (_scatter(dim), _all_gather(dim)), _broadcast_whole(dim)
    ways = [_plus(_measured(kind, dim, _plus(*halves)), Affine(rest.per_byte / dim.size, rest.fixed))]
    if unsplit is not None:
        ways.append(_plus(_measured(kind, dim, unsplit), rest))
    return ways


def _nested(kind: Collective, dims: Sequence[Dim], priced: Sequence[Dim]) -> tuple[Affine, list[int]]:
    """All-reduce or broadcast: each dimension either splits the tensor for those after it, or works on it whole.

    Split: scatter along the dimension (an all-reduce: reduce-scatter), the rest on 1/n of the bytes in each of its
    n groups, all-gather along it. Whole: the collective along the dimension, then the rest on the same bytes. Of
    the two, from the last dimension to the first, the one with less time per byte is taken, on a tie the
    one with less latency: the best of all 2^k choices for large tensors, since the rest enters both linearly.
    The choice is made for `dims`; what it costs is that of `priced`. Beside that, of every dim, 0 for split, else 1.
    """
    best, price, taken = Affine(0.0, 0.0), Affine(0.0, 0.0), list[int]()
    for dim, paid in zip(reversed(dims), reversed(priced), strict=True):
        ways, prices = _ways(kind, dim, best), _ways(kind, paid, price)
        chosen = min(range(len(ways)), key=ways.__getitem__)
        best, price, taken = ways[chosen], prices[chosen], [chosen, *taken]
    return price, taken


def _slowest(dims: Sequence[Dim], busy: Sequence[float]) -> float:
    """The links that are busy longest, where dims carry parts of a tensor at the same time, each part along all dims.

    Parts of one dim are on the same links, and so is what goes through a port of another dim.
    """
    links: dict[str, float] = defaultdict(float)
    for dim, seconds in zip(dims, busy, strict=True):
        port = [dim.port_of] if dim.port_of else []
        for name in {*(split_part_name(part)[0] for part in parts_of([dim.name])), *port}:
            links[name] += seconds
    return max(links.values())


def exact_cost(
    kind: Collective, dims: Sequence[Dim], charge: Callable[[Dim], Dim] | None = None, *, together: bool = True
) -> Affine:
    """Affine cost (s/B and s) of a collective over dims of two or more chips, by the algorithms of this module.

    Parameters
    ----------
    kind, dims : Collective, sequence of Dim
        The collective, and the network dims that it spans.
    charge : callable, optional
        Replaces each dim by the one to price, with other figures and the same wiring. The algorithms remain those that
        are best on `dims`.
    together : bool
        Whether dims carry parts of an all-to-all at the same time, or one after the other.

    Examples
    --------
    >>> chain = [Dim("x", Topology.LINE, 4, 25e9)]
    >>> f"{exact_cost(Collective.ALL_REDUCE, chain).per_byte * 1e9:.4g} s per GB"
    '0.04 s per GB'
    """
    priced = [charge(dim) for dim in dims] if charge else dims
    if kind is Collective.POINT_TO_POINT:
        first = priced[0]
        return _measured(kind, first, Affine(1 / first.bandwidth, first.latency))
    if kind is Collective.ALL_TO_ALL:
        chips = math.prod(dim.size for dim in priced)
        costs = [_measured(kind, dim, _all_to_all(dim)) for dim in priced]
        busy = [dim.size / chips * cost.per_byte for dim, cost in zip(priced, costs, strict=True)]
        return Affine(_slowest(priced, busy) if together else sum(busy), sum(cost.fixed for cost in costs))
    if kind in (Collective.ALL_REDUCE, Collective.BROADCAST):
        return _nested(kind, dims, priced)[0]
    return _chain(kind, priced)


_GATHERS = {Topology.RING: "ring", Topology.LINE: "line", Topology.SWITCH: "Bruck", Topology.FULLY_CONNECTED: "direct"}


def algorithm(kind: Collective, dims: Sequence[Dim], *, together: bool = True) -> str:
    """Names of the algorithms that `exact_cost` prices, dim by dim.

    Parameters
    ----------
    kind, dims
        The collective, and the dims that it uses, from the inside out. Dims of one chip are passed over.
    together : bool
        Whether an all-to-all uses all dims at the same time. Otherwise one dim follows the other.

    Examples
    --------
    >>> dims = [Dim("node", Topology.SWITCH, 8, 450e9), Dim("rail", Topology.RING, 4, 50e9)]
    >>> algorithm(Collective.ALL_REDUCE, dims)
    'node: reduce-scatter and all-gather by Bruck; rail: reduce-scatter and all-gather by ring; one after the other'
    """
    used = [dim for dim in dims if dim.size > 1]
    nested = kind in (Collective.ALL_REDUCE, Collective.BROADCAST)
    taken = _nested(kind, used, used)[1] if nested else [0] * len(used)
    steps = []
    for dim, unsplit in zip(used, taken, strict=True):
        way = "through the switch" if dim.in_network_reduction else _GATHERS[dim.topology]
        if kind is Collective.ALL_TO_ALL:
            way = "shortest paths" if dim.topology in (Topology.RING, Topology.LINE) else "pairwise exchange"
        elif nested:
            first = "reduce-scatter" if kind is Collective.ALL_REDUCE else "scatter"
            in_one = "through the switch" if dim.in_network_reduction else "along the links"
            way = f"in one go, {in_one}" if unsplit else f"{first} and all-gather by {way}"
        measured = " (measured)" if any(factor.kind is kind for factor in dim.factors) else ""
        steps.append(f"{dim.name}: {way}{measured}")
    if kind is Collective.POINT_TO_POINT:
        return f"one hop along {used[0].name}"
    at_once = kind is Collective.ALL_TO_ALL and together
    order = ["at the same time" if at_once else "one after the other"] if len(used) > 1 else []
    return "; ".join([*steps, *order])
