r"""Time of a collective operation on a network of one or several dimensions.

SI units (bytes, bytes per second, seconds). Every formula is affine in the volume,
``seconds = per_byte * volume + fixed``; `affine_cost` gives the two coefficients.

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
point_to_point  V/b + a                V/b + a                  V/b + a           V/b + a       V/b + a
==============  =====================  =======================  ================  ============  ===============

`dfopt.physics.collectives_exact` says by which algorithms, and which of them no other can beat. Measured figures
(`DimFit`) take the place of a dim's terms: the bandwidth term is divided by the share, the fixed term replaced.
One with a ``scale`` is a formula of its own: ``scale * (1 + offset / n) V/b``, whatever the wiring.

`CollectiveModel.TWO_STAGE`: the same algorithms with two latencies per round and the headers of packets, for small
messages; see `dfopt.physics.two_stage`.

`CollectiveModel.DFMODEL`: the table of the DFModel authors, see `dfopt.physics.collectives_dfmodel`.

Several dimensions are used one after the other, but for an all-to-all; see `affine_cost`. That is bound by the bytes
that cross the narrowest cut between coordinates of one dimension, and attains the bound where parts of the tensor take
all dimensions at the same time, as direct messages do. For the others an algorithm that keeps the links of all
dimensions busy at once could be up to as many times faster as there are dimensions, and is that many times faster where
they are equal, as in a torus with equal sides: an all-gather takes (N-1)/N V/(2b) there, while the links of a chip, 2b
in each of k dimensions, could bring its bytes in a k-th of that.
"""

from __future__ import annotations

from collections.abc import Sequence

from dfopt.physics.collectives_dfmodel import Messages, dfmodel_cost
from dfopt.physics.collectives_exact import exact_cost
from dfopt.physics.collectives_types import NOTHING, Affine, Collective, CollectiveModel, Dim, DimFit, Topology
from dfopt.physics.two_stage import charged

__all__ = ["NOTHING", "Affine", "Collective", "CollectiveModel", "Dim", "DimFit", "Topology", "affine_cost"]


def affine_cost(
    kind: Collective,
    dims: Sequence[Dim],
    *,
    model: CollectiveModel = CollectiveModel.EXACT,
    all_reduce_passes: int = 2,
    messages: Messages = "crossing",
    together: bool = True,
) -> Affine:
    """Affine cost (s/B and s) of a collective over the chips of the network dims `dims`.

    With sizes n_1, n_2, ... and N their product, the dimensions are used one after the other (BlueConnect,
    reference 4 of `dfopt.physics.collectives_exact`), but for an all-to-all:

    * reduce_scatter: along `dims` in order, dimension i on V / (n_1 ... n_{i-1});
    * all_gather: the mirror image, last dimension first, so the same time;
    * all_reduce: reduce-scatter along the first dimension, the rest on V / n_1, all-gather along the first; where
      the all-reduce of a dimension on the whole tensor takes less time per byte (a line, a switch that reduces,
      mostly as the last one), it is taken instead;
    * broadcast: likewise scatter, the rest on V / n_1, all-gather, or the first dimension on the whole tensor;
    * all_to_all: dimension i exchanges all V/N bytes of each chip within every group along it, which is
      an all-to-all of a tensor of V n_i / N bytes; all dimensions at once, each with other parts of the tensor, so
      that the slowest decides, after the latencies of all;
    * point_to_point: one hop along the first dimension with more than one chip.

    The order of `dims` matters for all but all_to_all: the one with the most bandwidth per chip goes first. With the
    DFModel table, an all_reduce takes one or two all-gather chains, a broadcast the full V in each dimension, and an
    all_to_all the time of its slowest dimension.

    Parameters
    ----------
    dims
        The group, in the order a reduce-scatter uses them; those of size 1 are ignored.
    all_reduce_passes, messages
        `DFMODEL` only: all-gathers that an all-reduce is charged as, 1 or 2 (the authors' published figures use both),
        and messages of an all-to-all that a cut of c chips is charged (``crossing``: c^2/4, ``all``: c^2).
    together
        Whether dims carry parts of an all-to-all at the same time, or one after the other; not used by the model
        `DFMODEL`.

    Returns
    -------
    Affine
        Seconds per byte and seconds; of a group of one chip `NOTHING`.

    Raises
    ------
    ValueError
        For `all_reduce_passes` or `messages` out of range.

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
    used = [dim for dim in dims if dim.size > 1]
    if not used:
        return NOTHING
    if model is CollectiveModel.DFMODEL:
        return dfmodel_cost(kind, used, all_reduce_passes, messages)
    return exact_cost(kind, used, charged if model is CollectiveModel.TWO_STAGE else None, together=together)
