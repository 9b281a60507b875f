"""What a chip does beside its kernels: the work of a collective on the chip itself, and the step of the optimizer.

Both are elementwise: some FLOP, and bytes through the fastest memory, at the shares that the compute model has for a
kernel of that size.

**Collectives.** A chip that adds up partial sums adds (n-1)/n of the tensor's elements, and it reads its tensor and
writes it. Source: Calculon (Isaev et al., SC23; github.com/calculon-ai/calculon, commit caa4b11,
`calculon/llm/layers.py`), which charges that beside the time of the network, of communications that are done again the
network alone.

**Optimizer.** Adam is 11 FLOP for a parameter (Calculon, same file: `get_optim_step_flops`). It reads its state (a copy
of the weight in full precision and two moments) and the gradient, and writes state and weight: Rajbhandari et al.,
ZeRO, SC'20, section 3.1, has what there is; each is moved once each way. Copies of the batch that share out the state
update a share of the parameters each. The parameters of a kernel are updated together. What lies in a slower memory is
read and written there, at its rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.placement import Item
from dfopt.documents.plan import Plan
from dfopt.documents.system import Chip
from dfopt.physics.collectives import Collective
from dfopt.physics.efficiency import memory_rows, one_bandwidth_share, vector_share
from dfopt.physics.pipeline import partition_time

_ADDS: Final = (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER)
ADAM_FLOP: Final = 11


def elementwise_s(
    flop: float,
    moved: float | Mapping[str, float],
    chip: Chip,
    assumptions: Assumptions,
    op: Literal["optimizer"] | None = None,
) -> float:
    """Seconds of elementwise work, from its FLOP and the bytes that it moves.

    Parameters
    ----------
    flop : float
        Work.
    moved : float or dict, B
        Bytes through the fastest memory, or by memory.
    chip, assumptions : Chip, Assumptions
        Rates, and the compute model and overlap.
    op : str, optional
        Operation whose own share of a memory's bandwidth counts, if the chip's table has one.

    Examples
    --------
    >>> from dfopt.documents.system import Dram, Sram
    >>> chip = Chip(name="c", tiles=4, peak=1e3, sram=Sram(capacity=1e6), dram=Dram(bandwidth=100.0))
    >>> [elementwise_s(4e3, 200.0, chip, Assumptions(overlap=one)) for one in ("none", "compute_memory")]
    [6.0, 4.0]
    """
    if assumptions.compute_model == "cycle" and chip.lanes and chip.frequency:  # an element a lane and cycle
        rate = float(chip.lanes * chip.tiles * chip.frequency)
    elif assumptions.compute_model == "efficiency" and chip.efficiency is not None:
        rate = chip.peak_flops * vector_share(chip.efficiency, flop)
    else:
        rate = chip.peak_flops * (assumptions.compute_utilization or 1.0)
    rows, tiers = memory_rows(chip, assumptions, op), chip.tiers
    by_tier = moved if isinstance(moved, Mapping) else {chip.fastest_tier: moved}
    memory_s = sum(
        size / (tiers[tier].bandwidth * one_bandwidth_share(rows, size, tier)) for tier, size in by_tier.items()
    )
    return partition_time(flop / rate, memory_s, 0.0, assumptions.overlap)


def collective_s(
    kind: Collective, volume: float, elements: float, chips: int, chip: Chip, assumptions: Assumptions, again: bool
) -> float:
    """Seconds in which a chip itself adds up and moves its part of a collective.

    Parameters
    ----------
    kind : Collective
        The collective.
    volume, elements : float, B, and count
        The full logical tensor, see :mod:`dfopt.physics.collectives`.
    chips : int
        Chips of the group.
    chip, assumptions : Chip, Assumptions
        Rates, and conventions (``collective_work``).
    again : bool
        Whether the collective repeats one of the forward pass.

    Examples
    --------
    >>> from dfopt.documents.system import Dram, Sram
    >>> chip = Chip(name="c", tiles=4, peak=1e3, sram=Sram(capacity=1e6), dram=Dram(bandwidth=100.0))
    >>> every = Assumptions(overlap="none", collective_work="every")
    >>> collective_s(Collective.ALL_REDUCE, 400.0, 200.0, 4, chip, every, False)
    8.15
    >>> collective_s(Collective.ALL_GATHER, 400.0, 200.0, 4, chip, every.with_(collective_work="first"), True)
    0.0
    """
    work = assumptions.collective_work
    if work is None or chips == 1 or volume <= 0 or (again and work != "every"):
        return 0.0
    added = elements * (chips - 1) / chips if kind in _ADDS else 0.0
    share = chips if kind is Collective.ALL_TO_ALL else 1
    moved = 0.0 if work == "first_adds" else 2 * volume / share
    return elementwise_s(added, moved, chip, assumptions)


def optimizer_s(
    parameters: float,
    gradient_bytes: float,
    weight_bytes: float,
    chip: Chip,
    assumptions: Assumptions,
    plan: Plan | None = None,
    routed: bool = False,
    state: float | None = None,
) -> float:
    """Seconds of an optimizer step on one chip.

    They are non-decreasing in the parameters: where more would take less time by the chip's table, fewer take as long
    as those.

    Parameters
    ----------
    parameters : float
        Number of parameters.
    gradient_bytes, weight_bytes : float, B
        Bytes of one gradient, and of one weight.
    chip, assumptions : Chip, Assumptions
        Rates, and conventions.
    plan : Plan, optional
        Says in which memories the data lie; by default in the fastest.
    routed : bool
        Whether the parameters are of routed experts.
    state : float, B, optional
        Bytes of optimizer state for one parameter; by default as assumed.

    Examples
    --------
    >>> from dfopt.documents.system import Dram, Sram
    >>> chip = Chip(name="c", tiles=4, peak=1e3, sram=Sram(capacity=1e6), dram=Dram(bandwidth=100.0))
    >>> adam, once = (Assumptions(overlap="none", optimizer_step=which) for which in ("adam", "adam_once"))
    >>> optimizer_s(100.0, 2.0, 2.0, chip, adam), optimizer_s(100.0, 2.0, 2.0, chip, once)
    (29.1, 13.1)
    >>> from dfopt.documents.efficiency import EfficiencyRow as Row
    >>> rows = [Row(unit="memory", op="optimizer", share=0.8), Row(unit="memory", share=0.4)]
    >>> rows += [Row(unit="matrix", share=1.0), Row(unit="vector", share=1.0)]
    >>> chip = chip.model_copy(update={"efficiency": tuple(rows)})
    >>> round(optimizer_s(100.0, 2.0, 2.0, chip, adam.with_(compute_model="efficiency")), 9)
    36.1
    """
    step = assumptions.optimizer_step
    if step is None or parameters <= 0:
        return 0.0
    state = assumptions.optimizer_bytes_per_parameter if state is None else state
    gone = (gradient_bytes, weight_bytes) if step == "adam" else (0.0, 0.0)
    moved = {chip.fastest_tier: (1 if step == "adam_once" else 2) * state + gone[0] + gone[1]}
    if plan is not None and plan.placement is not None and assumptions.offload != "calculon":
        items: tuple[Item, ...] = ("optimizer", "gradients", "experts" if routed else "weights")
        moved = {}
        for item, size in zip(items, ((1 if step == "adam_once" else 2) * state, *gone), strict=True):
            tier = plan.tier_of(item, chip)
            moved[tier] = moved.get(tier, 0.0) + size
    sizes = {parameters}
    for row in chip.efficiency or () if assumptions.compute_model == "efficiency" else ():
        least = [(row.flop or 0.0) / ADAM_FLOP]
        if row.unit == "memory":
            least = [
                (row.bytes or 0.0) / bytes_ for tier, bytes_ in moved.items() if bytes_ and row.memory in (None, tier)
            ]
        sizes |= {from_ for from_ in least if from_ > parameters}
    return min(
        elementwise_s(
            ADAM_FLOP * size, {tier: size * bytes_ for tier, bytes_ in moved.items()}, chip, assumptions, "optimizer"
        )
        for size in sizes
    )
