"""What a kernel's own communications cost: which chips take part, how many bytes, and what runs at the same time."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable

from dfopt.documents.dim_names import parts_of, split_part_name
from dfopt.documents.graph import Communication, Kernel
from dfopt.documents.plan import Plan
from dfopt.physics.collectives import Collective
from dfopt.physics.network import bytes_sent

Price = Callable[[Collective, float, tuple[str, ...]], float]
_EACH_COPY_BRINGS_ONE = (Collective.ALL_TO_ALL, Collective.ALL_GATHER)


def group_volume(communication: Communication, plan: Plan, group_chips: int) -> float:
    """Bytes of the whole tensor that one group of chips communicates.

    Groups smaller than the chips that share a kernel share the tensor. If replicas take part, each contributes its own
    tensor to an all-to-all or all-gather; in other collectives all have the same tensor.

    Parameters
    ----------
    communication, plan
        The communication that a kernel states, and the plan whose chips take part.
    group_chips : int
        Chips of the group, replicas that take part included.

    Examples
    --------
    >>> plan = Plan(tp=8, dp=4, tp_dims=("x", "y"), dp_dims=("z",))
    >>> group_volume(Communication(kind="broadcast", bytes=64, over="tp_rest"), plan, 2)
    16.0
    >>> group_volume(Communication(kind="all_to_all", bytes=64, over="all"), plan, 32)
    256.0
    """
    copies = plan.group(communication.over)[1]
    brought = copies if Collective(communication.kind) in _EACH_COPY_BRINGS_ONE else 1
    return communication.bytes * brought * (group_chips // copies) / plan.sharing(communication.over)


def kernel_seconds(kernel: Kernel, plan: Plan, price: Price, chips: Callable[[str], int]) -> float:
    """Seconds of the communications that a kernel states itself.

    Those that use different network dims run at the same time, those that share a dim one after the other:
    the dim with the most to do decides.

    Parameters
    ----------
    kernel, plan
        The kernel that states communications, and the plan whose chips take part.
    price : callable
        Seconds of a collective, from its kind, the bytes of the whole tensor and the names of its dims.
    chips : callable
        Number of chips in a network dim or a part of one, from its name.

    Examples
    --------
    >>> step = Kernel(name="a", op="elementwise", m=1, n=1, communications=(
    ...     Communication(kind="broadcast", bytes=8, over="tp_rest"),
    ...     Communication(kind="point_to_point", bytes=6, over="tp_first")))
    >>> kernel_seconds(step, Plan(tp=4, tp_dims=("x", "y")), lambda kind, size, dims: size, lambda dim: 2)
    4.0
    """
    busy: dict[str, list[float]] = defaultdict(list)
    for own in kernel.communications:
        dims, _ = plan.group(own.over)
        group = math.prod(chips(dim) for dim in dims)
        if group == 1:
            continue
        spent = price(Collective(own.kind), group_volume(own, plan, group), dims)
        for dim in {split_part_name(name)[0] for name in parts_of(dims)}:  # parts of one dim share its links
            busy[dim].append(spent)
    return max((math.fsum(times) for times in busy.values()), default=0.0)


def kernel_bytes(kernel: Kernel, plan: Plan, chips: Callable[[str], int]) -> float:
    """Bytes that one chip sends in the communications that a kernel states itself.

    Parameters
    ----------
    kernel, plan : Kernel, Plan
        The kernel with its ``communications``, and the plan.
    chips : callable
        Function from the name of a dim, or of a part of one, to its number of chips.
    """
    sent = []
    for own in kernel.communications:
        group = math.prod(chips(dim) for dim in plan.group(own.over)[0])
        if group > 1:
            sent.append(bytes_sent(Collective(own.kind), group_volume(own, plan, group), group))
    return math.fsum(sent)
