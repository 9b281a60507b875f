"""Communication between chips that share a product, hidden behind the product: tile by tile.

A product is cut into as many tiles as chips share it, and a tile is sent while another one is computed: Megatron-LM
calls that ``--tp-comm-overlap``. What is gathered is hidden behind the products that read it, what is reduced behind
the one that makes it. Meanwhile a share ``u`` of the processor sees to the communication, so it computes slower.

Source: Calculon (Isaev et al., SC23; github.com/calculon-ai/calculon, commit caa4b11, `calculon/llm/layers.py`,
`LinearOverlapped`). With ``N`` seconds on the network and ``F`` of computing, both in ``t`` tiles, a product takes as
long as its first tile and ``t - 1`` tiles that overlap. If ``N > F / (1 - u)`` these wait for the network, which costs
them ``N - F``; if not they are slowed down by ``u N``. The two meet, so what a communication costs beside the work is

    (t - 1) / t  max(u N, N - F)        and in a ``pipe`` a first tile more, N / t, which a ``ring`` does not wait for.

Non-decreasing in ``N``; and ``F`` with it is non-decreasing in ``F``. ``F`` is that of the products' work spread evenly
over the chips, whatever schemes they have: then it is a figure of the communication alone, and prices of pairs of
schemes stay what they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Kernel
from dfopt.documents.system import Chip, System
from dfopt.physics import ops
from dfopt.physics.collectives import Collective
from dfopt.physics.efficiency import efficiency_share

__all__ = ["beside_s", "spread_s", "usage_of"]

_TILED: Final = (
    Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALL_REDUCE, Collective.ALL_TO_ALL,
)  # fmt: skip
_WIDE: Final = 1e15  # extents of a product that is spread evenly: no condition on thin shards applies


def beside_s(
    kind: Collective, network_s: float, compute_s: float, tiles: int, usage: float, assumptions: Assumptions
) -> float:
    """What a communication adds to the work of the products that hide it; all of it where there are none.

    Examples
    --------
    >>> def cost(way, network_s):
    ...     chosen = Assumptions(tensor_overlap=way)
    ...     return round(beside_s(Collective.ALL_GATHER, network_s, 6.0, 4, 0.1, chosen), 12)
    >>> cost(None, 4.0), cost("ring", 4.0), cost("ring", 8.0), cost("pipe", 4.0), cost("pipe_twice", 4.0)
    (4.0, 0.3, 1.5, 1.3, 2.3)
    """
    way = assumptions.tensor_overlap
    if way is None or compute_s <= 0 or tiles == 1 or kind not in _TILED:
        return network_s
    first = {"ring": 0, "pipe": 1, "pipe_twice": 2}[way]
    return ((tiles - 1) * max(usage * network_s, network_s - compute_s) + first * network_s) / tiles


def spread_s(products: Sequence[tuple[Kernel, float]], chips: int, chip: Chip, assumptions: Assumptions) -> float:
    """Seconds of products spread evenly over so many chips; each with the peak of a chip in its type, FLOP/s."""
    seconds = 0.0
    for kernel, peak in products:
        if kernel.op == "elementwise":
            continue
        flop = ops.flop(kernel) / chips
        share = assumptions.compute_utilization or 1.0
        if assumptions.compute_model == "efficiency" and chip.efficiency is not None:
            share = float(efficiency_share(chip.efficiency, False, flop, (_WIDE, _WIDE, _WIDE)))
        seconds += flop / (peak * share)
    return seconds


def usage_of(system: System, dims: Sequence[str]) -> float:
    """Share of a processor that communication over some dims takes: the most of them."""
    return max((system.dim(name).processor_usage or 0.0 for name in dims), default=0.0)
