"""Two microbatches that take turns on a chip: while one of them communicates, the other one computes.

Both are worked through by the same partitions in the same order, cut into *pieces*: each is some partitions, of which
the last has kernels that communicate by themselves (dispatch, combine, gathers), and then that communication. Chip and
network change sides together, when both have done what they were given:

====================  ========  ========  ========  ===  =========  ========
the chip works on     A, C_1    B, C_1    A, C_2    ...  B, C_n
the network sends                         ...
of                              A, N_1    B, N_1    ...  A, N_n     B, N_n
====================  ========  ========  ========  ===  =========  ========

So both together take ``sum over pieces of max(C_i, N_{i-1}) + max(C_i, N_i)``, and N_n at the end: the first half
fills, the last one drains. ``C`` is all that partitions take besides, under any assumption about overlap, for one
microbatch: each of the two reads the weights. The sum grows with every C.

Source: two microbatches "simultaneously, overlapping the attention and MoE of one micro-batch with the dispatch and
combine of another", DeepSeek-V3 Technical Report (arXiv:2412.19437), sections 3.4.1 and 3.4.2. The formula is the
length of the schedule above; an implementation that does not wait for both sides can only be faster.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class LayerTurns:
    """Seconds that a layer computes and sends in each piece, for two-batch overlap.

    ``busy`` has one entry more than ``sent``: the work after the last message.
    """

    busy: tuple[float, ...]
    sent: tuple[float, ...]


def pieces(busy: Sequence[float], sent: Sequence[float]) -> LayerTurns:
    """Cut a layer into pieces for two-batch overlap, from the seconds that its partitions compute and send.

    Examples
    --------
    >>> pieces([1.0, 2.0, 4.0], [0.0, 3.0, 0.0])
    LayerTurns(busy=(3.0, 4.0), sent=(3.0,))
    """
    cut, open_ = list[float](), 0.0
    for computing, sending in zip(busy, sent, strict=True):
        open_ += computing
        if sending > 0:
            cut.append(open_)
            open_ = 0.0
    return LayerTurns((*cut, open_), tuple(seconds for seconds in sent if seconds > 0))


def together(rows: Iterable[tuple[LayerTurns, int]]) -> float:
    """Seconds of two microbatches in two-batch overlap, over rows of (layer, number of repetitions) in their order.

    Examples
    --------
    >>> together([(LayerTurns((2.0, 1.0), (2.5,)), 1)])  # 2 + 2.5 + 2.5 + 1: the second half waits for its message
    8.0
    >>> together([(LayerTurns((2.0, 1.0), (0.5,)), 10)])  # all that is sent is hidden
    60.0
    """
    total = open_ = before = 0.0
    for layer, times in rows:
        if not layer.sent:
            open_ += times * layer.busy[0]
            continue
        for done in range(times):
            was = total
            for computing, sending in zip(layer.busy, layer.sent, strict=False):
                open_ += computing
                total += max(open_, before) + max(open_, sending)
                open_, before = 0.0, sending
            open_ = layer.busy[-1]
            if done == 1:  # from here on all are alike
                total += (times - 2) * (total - was)
                break
    return total + max(open_, before) + open_
