r"""Time of collectives by the table of the DFModel authors, for reproducing their figures.

One dimension of n chips, link bandwidth b, link latency a, V bytes of the full logical tensor (what that is for
each kind says `dfopt.physics.collectives`); all-gather and reduce-scatter also take (n-1) a:

==========================  ===============  ===============  ===============  ===============
kind                        ring             line             switch           fully connected
==========================  ===============  ===============  ===============  ===============
all_gather, reduce_scatter  (n-1)/(n b) V    (n-1)/(n b) V    (n-1)/(n b) V    V/(n b)
all_reduce                  the row above times ``all_reduce_passes`` (1 or 2)
all_to_all                  V/(8 b)          V/(4 b)          V/(4 n b)        V/(n^2 b)
broadcast, point_to_point   V/b              V/b              V/b              V/b
==========================  ===============  ===============  ===============  ===============

All-gather: no division of the ring ratio by two, so a ring is charged like a switch; the latency term
link_latency * (n-1) per pass is that of the authors' latest version (f9cda5e). Broadcast: volume over link
bandwidth, as in the authors' HPL model.

**All-to-all** counts what crosses a cut [1]_. Of c chips, c^2/4 pairs of one half and the other send each other
V/N^2 bytes (N chips in all), over the links of the cut. Dim i is cut with c = n_1 ... n_i, the chips of all dims
up to it, and the slowest cut decides. Links of a cut: 2 of a ring, 1 of a line, n of a switch, n^2/4 of a fully
connected dim. Where all dims are rings (a torus) c is N for each, and the links of a cut are n_i of two dims, N / n_i
of three. One dim gives the row above. ``messages`` chooses between versions of the program, both fitted to logs:

==========  ======  ====================================================================================
crossing    c^2/4   the stored first source (kernel_level.py, ``a2a_msg_factor``); the logs of Fig. 6 DLRM
                    (rings of fully connected nodes), of Figs. 12 and 16 (2-D torus) and of Fig. 16 (3-D torus,
                    switches of rings and of switches, dragonfly) agree to 1e-8
all         c^2     the logs of Fig. 6 FFT (switches of switches) agree to 1e-8; no source of it is stored
==========  ======  ====================================================================================

Known optimism and slips, kept as they are: a switch of n ports carries n/2 messages across its cut at a time, the
rule counts n, while ``all`` counts every message in both directions and those that stay on their side. A torus
has 2 N / n_i links across a cut of dim i, of which the rule counts half; of two dims it counts n_i, which is as many
only in a square one.

The table has no lines, because there a dim carries one parallelism as a whole. The column is ours, in its spirit: a
chain gathers as the ring does (its ratio is that of one direction), and its middle link carries all pairs across.

Measured factors and reductions in the network are not part of the table, so they do not count here.

References
----------
.. [1] DFModel, public source `src/intra_chip.py` and its first form `kernel_level.py`: ratios as recorded in this
   project's study of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from dfopt.physics.collectives_types import Affine, Collective, Dim, Topology

Messages = Literal["crossing", "all"]
_SHARE_OF_PAIRS: dict[str, float] = {"crossing": 0.25, "all": 1.0}


def _links_of_cut(dim: Dim) -> float:
    """Links, in the authors' count, that join the two halves of a dim that is no dim of a torus."""
    by_wiring = {Topology.RING: 2.0, Topology.LINE: 1.0, Topology.SWITCH: float(dim.size)}
    return by_wiring.get(dim.topology, dim.size**2 / 4)


def _all_to_all(dims: Sequence[Dim], messages: Messages) -> Affine:
    """The slowest cut, see the module docstring."""
    if messages not in _SHARE_OF_PAIRS:
        raise ValueError(f"messages must be one of {', '.join(_SHARE_OF_PAIRS)}, got {messages!r}")
    everyone = math.prod(dim.size for dim in dims)
    torus = len(dims) > 1 and all(dim.topology is Topology.RING for dim in dims)
    slowest, chips = 0.0, 1
    for dim in dims:
        chips = everyone if torus else chips * dim.size
        links = _links_of_cut(dim)
        if torus:
            links = dim.size if len(dims) == 2 else everyone / dim.size
        pairs = _SHARE_OF_PAIRS[messages] * chips**2
        slowest = max(slowest, pairs / everyone**2 / (links * dim.bandwidth))
    return Affine(slowest, 0.0)


def dfmodel_cost(
    kind: Collective, dims: Sequence[Dim], all_reduce_passes: int = 2, messages: Messages = "crossing"
) -> Affine:
    """Affine cost (s/B and s) of a collective over dims of two or more chips, by DFModel's table; inner dims first.

    Several dims are used one after the other: gathers and reductions with volumes that shrink by the sizes of
    the dims before, a broadcast with the full volume. An all-to-all takes the time of its slowest dim. A point-to-point
    message uses the first dim.

    Parameters
    ----------
    kind, dims
        The collective, and the dims that it uses, from the inside out.
    all_reduce_passes : int
        How often an all-reduce sends its volume: 2 for reduce-scatter and all-gather, 1 as their program prices it.
    messages : str
        Which messages of an all-to-all count, see :func:`dfopt.physics.collectives.affine_cost`.

    Examples
    --------
    >>> ring = [Dim("x", Topology.RING, 8, 25e9)]
    >>> f"{dfmodel_cost(Collective.ALL_REDUCE, ring, 1).per_byte * 1e9:.4g} s per GB"
    '0.035 s per GB'
    >>> nodes = [Dim("x", Topology.RING, 8, 600e9), Dim("y", Topology.FULLY_CONNECTED, 16, 25e9)]
    >>> round(dfmodel_cost(Collective.ALL_TO_ALL, nodes).per_byte * 6696000 * 128**2 * 1e9)  # their DLRM log, in ns
    17141760
    """
    if kind is Collective.ALL_TO_ALL:
        return _all_to_all(dims, messages)
    if kind in (Collective.POINT_TO_POINT, Collective.BROADCAST):
        crossed = dims[:1] if kind is Collective.POINT_TO_POINT else dims
        return Affine(sum(1 / dim.bandwidth for dim in crossed), 0.0)
    repeat = all_reduce_passes if kind is Collective.ALL_REDUCE else 1
    share, per_byte, fixed = 1.0, 0.0, 0.0  # share of V that the current dim works on
    for dim in dims:
        sent = 1 if dim.topology is Topology.FULLY_CONNECTED else dim.size - 1
        per_byte += repeat * share * (sent / (dim.size * dim.bandwidth))
        fixed += repeat * (dim.size - 1) * dim.latency
        share /= dim.size
    return Affine(per_byte, fixed)
