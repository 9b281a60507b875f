"""Communication between chips that share a product, hidden behind the product: tile by tile.

A product is cut into as many tiles as chips share it, and a tile is sent while another one is computed: Megatron-LM
calls that ``--tp-comm-overlap``. What is gathered is hidden behind the products that read it, what is reduced behind
the one that makes it. Meanwhile a share ``u`` of the processor sees to the communication, so it computes slower.

Source: Calculon (Isaev et al., SC23; github.com/calculon-ai/calculon, commit caa4b11, `calculon/llm/layers.py`,
`LinearOverlapped`). With ``N`` seconds on the network and ``F`` of computing, both in ``t`` tiles, a product takes as
long as its first tile and ``t - 1`` tiles that overlap. If ``N > F / (1 - u)`` these wait for the network, which costs
them ``N - F``; if not they are slowed down by ``u N``. The two meet, so what a communication costs beside the work is

    (t - 1) / t  max(u N, N - F)        and in a ``pipe`` a first tile more, N / t, which a ``ring`` does not wait for.

Non-decreasing in ``N``; and ``F`` with it is non-decreasing in ``F``. Where a product waits for memory, which hides its
computing, a chip that computes faster takes longer: less of ``N`` is hidden, and the product is not faster. What bounds
several chips therefore counts ``F`` as on the slowest of them (``hiding_share`` of a chip).

``F`` is that of the products' work spread evenly over the chips, whatever schemes they have: then it is a figure of the
communication alone, and prices of pairs of schemes stay what they are.

**Waves.** A kernel that is fused with its collective computes its output tiles in ``w`` waves, as many tiles at once as
the chip has units, and sends each wave while the next one computes (DeepStack, arXiv:2604.04750; TileLink and Flux are
such kernels). With a latency of ``h`` and ``L = N - h`` for the bytes the whole takes

    F / w  +  max((w - 1) / w F, h + (w - 1) / w L)  +  h + L / w

that is its first wave, those that overlap, and the message of the last one. It is non-decreasing in ``F``, ``h`` and
``L``. Nothing overlaps in a single wave. What a chip does itself for the collective (`dfopt.physics.beside`), such as
to add up what it has got, comes after all of it has arrived, so it is not hidden.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Kernel
from dfopt.documents.system import Chip, System
from dfopt.physics import ops
from dfopt.physics.collectives import Collective
from dfopt.physics.efficiency import efficiency_share

_TILED: Final = (
    Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALL_REDUCE, Collective.ALL_TO_ALL,
)  # fmt: skip
_WIDE: Final = 1e15  # extents of a product that is spread evenly: no condition on thin shards applies
_FIRST: Final = {"ring": 0, "pipe": 1, "pipe_twice": 2}  # tiles that are waited for
_WAVE: Final = (256, 128)  # features and tokens of an output tile; the largest of CUTLASS's kernels for an H100


class CommunicationTime(NamedTuple):
    """Seconds of a communication.

    Attributes
    ----------
    network_s, latency_s : float, s
        Seconds on the network, and the part of them that bandwidth does not shorten.
    chip_s : float, s
        Work of the chip itself.
    """

    network_s: float
    latency_s: float = 0.0
    chip_s: float = 0.0


class Products(NamedTuple):
    """Matrix products that hide a communication.

    ``compute_s``: seconds that they compute; ``tiles``: chips that share them; ``usage``: share of a processor that
    sees to the communication; ``waves``: waves of output tiles in which they compute.
    """

    compute_s: float
    tiles: int
    usage: float = 0.0
    waves: int = 1


def beside_s(kind: Collective, sent: CommunicationTime, products: Products, assumptions: Assumptions) -> float:
    """Seconds that a communication adds to the products that hide it; all its seconds if there are none.

    Parameters
    ----------
    kind, sent : Collective, CommunicationTime
        The communication and its time.
    products : Products
        Products that may hide it.
    assumptions : Assumptions
        Way to overlap them (``tensor_overlap``).

    Examples
    --------
    >>> def cost(way, network_s):
    ...     chosen = Assumptions(tensor_overlap=way)
    ...     products = Products(compute_s=6.0, tiles=4, usage=0.1, waves=3)
    ...     sent = CommunicationTime(network_s, latency_s=1.0)
    ...     return round(beside_s(Collective.ALL_GATHER, sent, products, chosen), 12)
    >>> cost(None, 4.0), cost("ring", 4.0), cost("ring", 8.0), cost("pipe", 4.0), cost("pipe_twice", 4.0)
    (4.0, 0.3, 1.5, 1.3, 2.3)
    >>> cost("waves", 4.0), cost("waves", 10.0)
    (2.0, 7.0)
    """
    way, whole_s = assumptions.tensor_overlap, sent.network_s + sent.chip_s
    if way is None or products.compute_s <= 0 or products.tiles == 1 or kind not in _TILED:
        return whole_s
    if way != "waves":
        shown_s = max(products.usage * whole_s, whole_s - products.compute_s)
        return ((products.tiles - 1) * shown_s + _FIRST[way] * whole_s) / products.tiles
    if products.waves == 1:
        return whole_s
    link_s, last = sent.network_s - sent.latency_s, 1 / products.waves
    shown_s = max(0.0, sent.latency_s + (1 - last) * (link_s - products.compute_s))
    return shown_s + sent.latency_s + last * link_s + sent.chip_s


def waves_of(products: Sequence[Kernel], chips: int, chip: Chip) -> int:
    """Number of waves of output tiles in which a chip computes its part of some products in sequence.

    Parameters
    ----------
    products
        The products, one after the other. Elementwise kernels are passed over.
    chips : int
        Chips that share each product.
    chip
        The chip, whose units compute one output tile each at a time.

    Examples
    --------
    A product of 1,376 features for 8,192 tokens on each of 8 chips with 132 units has 6 x 64 tiles: 3 waves.

    >>> from dfopt.documents.system import Dram, Sram
    >>> gpu = Chip(name="c", tiles=132, peak=1e15, sram=Sram(capacity=1e6), dram=Dram(bandwidth=1e12))
    >>> waves_of([Kernel(name="a", op="gemm", m=8 * 1376, k=4096, n=8192)], 8, gpu)
    3
    """
    waves, (features, tokens) = 0, _WAVE
    for kernel in products:
        if kernel.op != "elementwise":
            tiles = math.ceil(kernel.m / features) * math.ceil(kernel.n / tokens) * kernel.outer
            waves += math.ceil(tiles / (chips * chip.tiles))
    return max(waves, 1)


def spread_s(products: Sequence[tuple[Kernel, float]], chips: int, chip: Chip, assumptions: Assumptions) -> float:
    """Seconds of products spread evenly over ``chips`` chips.

    Infinite where a chip that stands for several designs hides all that can be hidden (``hiding_share`` 0).

    Parameters
    ----------
    products
        Each product with the peak FLOP/s of a chip in its data type.
    chips : int
        Chips that share the work.
    chip, assumptions
        The chip, and resolved assumptions.
    """
    seconds = 0.0
    for kernel, peak in products:
        if kernel.op == "elementwise":
            continue
        flop = ops.flop(kernel) / chips
        share = assumptions.compute_utilization or 1.0
        if assumptions.compute_model == "efficiency" and chip.efficiency is not None:
            share = float(efficiency_share(chip.efficiency, False, flop, (_WIDE, _WIDE, _WIDE)))
        rate = peak * share * (1.0 if chip.hiding_share is None else chip.hiding_share)
        seconds += flop / rate if rate else math.inf
    return seconds


def hides_less(assumptions: Assumptions, way: str | None = None) -> bool:
    """Whether a chip that computes faster may hide less of a collective and so gain nothing.

    ``way``: the method of hiding that a request states in addition to the assumptions.

    Examples
    --------
    >>> [hides_less(Assumptions(tensor_overlap="ring", overlap=overlap)) for overlap in ("perfect", "none")]
    [True, False]
    >>> hides_less(Assumptions()), hides_less(Assumptions(), "any")
    (False, True)
    """
    return assumptions.overlap != "none" and bool({assumptions.tensor_overlap, way} - {None, "none"})


def usage_of(system: System, dims: Sequence[str]) -> float:
    """Largest share of a processor that communication over some network dims occupies."""
    return max((system.dim(name).processor_usage or 0.0 for name in dims), default=0.0)
