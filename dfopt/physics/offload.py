"""What lies in a slower memory of a chip that trains: what moves between that and the fastest, and what shows of it.

A layer computes from the fastest memory. Where weights, saved activations or gradients lie in another one, what a layer
needs is brought while the layer before it runs, and what it leaves is taken away while the next one does: the fastest
memory has room for two layers of it (prefetching, as in ZeRO-Infinity: Rajbhandari et al., SC'21). In steady state each
pass of a layer moves as much as one layer has:

* weights are read in the forward pass and again in the backward pass;
* saved activations are written in the forward pass and read in the backward pass;
* gradients are read and written in the backward pass, as every microbatch adds to them.

A memory has one rate, which reads and writes share, as all memories here; of a link that carries as much in both
directions at once that is the safe side. Its bytes come from the fastest memory or go there, which serves one at a
time: they move while the kernels of a pass leave that memory idle. So of ``O`` seconds of moving those show that are
left beside a pass of ``T`` seconds that uses the fastest memory for ``M``,

    max(0, O + M - T)

which is Calculon's rule (Isaev et al., SC'23, section 3). A pass then takes ``max(T, O + M)``: non-decreasing in each.

The optimizer's step reads and writes its state where that lies, gradients and weights too, once in a step
(:func:`dfopt.physics.beside.optimizer_s`).

``offload: calculon`` has what that program does otherwise (github.com/calculon-ai/calculon, `calculon/llm/llm.py`):

* in the forward pass weights come while activations go, at the full rate each;
* the optimizer's state is read beside the backward pass of every microbatch, never written, and its step takes as long
  as if it lay in the fastest memory; gradients take no time;
* what is computed again keeps the fastest memory free;
* beside the last layer of a chunk there is the message to the next stage, too;
* two layers of everything are in the fastest memory even where a stage has one, of gradients one. (Its other memory
  also holds what only the layer at work needs of activations; that is not done here.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from dfopt.arrays import Floats
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.placement import Item
from dfopt.documents.plan import Plan
from dfopt.documents.system import Chip
from dfopt.physics.efficiency import memory_rows, one_bandwidth_share

LAYERS: Final = 2
"""Layers of what lies elsewhere that the fastest memory has room for."""


def moved_s(moved: float, tier: str, chip: Chip, assumptions: Assumptions) -> float:
    """Seconds in which memory ``tier`` reads or writes ``moved`` bytes in one go.

    It is non-decreasing: where more bytes would take less time by the chip's table, fewer take as long as those.

    Parameters
    ----------
    moved : float, B
        Bytes in one go.
    tier : str
        Name of the memory.
    chip, assumptions
        The chip that has this memory, and resolved assumptions.

    Examples
    --------
    >>> from dfopt.documents.system import Memory, Sram
    >>> memories = Memory(name="HBM", bandwidth=1e12), Memory(name="DDR", bandwidth=100e9)
    >>> chip = Chip(name="c", tiles=4, peak=1e12, sram=Sram(capacity=1e6), memories=memories)
    >>> moved_s(50e9, "DDR", chip, Assumptions())
    0.5
    """
    if moved <= 0:
        return 0.0
    rows = memory_rows(chip, assumptions)
    sizes = [moved, *(row.bytes for row in rows if row.bytes and row.bytes > moved and row.memory in (None, tier))]
    rate = chip.tiers[tier].bandwidth
    return min(size / (rate * one_bandwidth_share(rows, size, tier)) for size in sizes)


def passes_s(kept: Mapping[Item, float], plan: Plan, chip: Chip, assumptions: Assumptions) -> tuple[float, float]:
    """Seconds of offload transfers of one layer during its forward and its backward pass.

    Parameters
    ----------
    kept : mapping of item to float, B
        Bytes of one layer and microbatch that one chip stores.
    plan, chip, assumptions
        The plan, which says in which memory each item lies, the chip, and resolved assumptions.

    Examples
    --------
    >>> from dfopt.documents.placement import Placement
    >>> from dfopt.documents.system import Memory, Sram
    >>> memories = Memory(name="HBM", bandwidth=1e12), Memory(name="DDR", bandwidth=100e9)
    >>> chip = Chip(name="c", tiles=4, peak=1e12, sram=Sram(capacity=1e6), memories=memories)
    >>> plan = Plan(placement=Placement(weights="DDR", activations="DDR", optimizer="DDR"))
    >>> kept = {"weights": 1e9, "activations": 2e9, "optimizer": 6e9}
    >>> [passes_s(kept, plan, chip, Assumptions(offload=how)) for how in (None, "calculon")]
    [(0.03, 0.03), (0.02, 0.09)]
    """
    ahead, back = moved_passes({item: np.asarray(size) for item, size in kept.items()}, plan, chip, assumptions)
    return float(ahead), float(back)


def moved_passes(
    kept: Mapping[Item, Floats], plan: Plan, chip: Chip, assumptions: Assumptions
) -> tuple[Floats, Floats]:
    """:func:`passes_s` for many layers at once, with arrays of one shape.

    Parameters
    ----------
    kept : mapping of item to float array, B
        Bytes of each layer and one microbatch that one chip stores.
    plan, chip, assumptions
        As for :func:`passes_s`.
    """
    away: dict[str, dict[Item, Floats]] = {}
    for item, size in kept.items():
        if (tier := plan.tier_of(item, chip)) != chip.fastest_tier:
            away.setdefault(tier, {})[item] = size
    forward = backward = np.zeros(())
    for tier, of in away.items():
        nothing = np.zeros(())
        weights = of.get("weights", nothing) + of.get("experts", nothing)
        saved, gradients, state = (of.get(item, nothing) for item in ("activations", "gradients", "optimizer"))
        if assumptions.offload == "calculon":
            ahead, back = np.maximum(weights, saved), weights + saved + state
        else:
            ahead, back = weights + saved, weights + saved + assumptions.gradient_passes * gradients
        forward = forward + _moved(ahead, tier, chip, assumptions)
        backward = backward + _moved(back, tier, chip, assumptions)
    return forward, backward


def _moved(moved: Floats, tier: str, chip: Chip, assumptions: Assumptions) -> Floats:
    """:func:`moved_s` of each of an array."""
    if not memory_rows(chip, assumptions):
        return np.asarray(np.maximum(moved, 0.0) / chip.tiers[tier].bandwidth)
    each = [moved_s(size, tier, chip, assumptions) for size in moved.ravel().tolist()]
    return np.array(each).reshape(moved.shape)


def shows_s(moving_s: float, memory_s: float, work_s: float) -> float:
    """Seconds of offload transfers that are not hidden behind a pass.

    Parameters
    ----------
    moving_s : float, s
        Transfers of slower memories.
    memory_s, work_s : float, s
        Time in which the pass uses the fastest memory, and its whole time.

    Examples
    --------
    >>> shows_s(3.0, 1.0, 2.0), shows_s(0.5, 1.0, 2.0)
    (2.0, 0.0)
    """
    return max(0.0, moving_s + memory_s - work_s) if moving_s > 0 else 0.0


def buffered(total: float, of_a_layer: float, item: Item, assumptions: Assumptions) -> float:
    """Bytes of the fastest memory for copies of an offloaded item.

    Parameters
    ----------
    total, of_a_layer : float, B
        Bytes of the item in a pipeline stage, and in one of its layers.
    item, assumptions
        The item, and resolved assumptions.

    Examples
    --------
    >>> [buffered(total, 2.0, "weights", Assumptions()) for total in (16.0, 2.0)]
    [4.0, 2.0]
    """
    if assumptions.offload == "calculon":
        return of_a_layer if item == "gradients" else LAYERS * of_a_layer
    return min(total, LAYERS * of_a_layer)
