"""Parts that add up to a whole, in words."""

from __future__ import annotations

from dfopt.documents.breakdown import Breakdown, LinkTime
from dfopt.documents.memory_breakdown import MemoryBreakdown

__all__ = ["dollars", "hidden_words", "parts_words", "percent"]


def percent(value: float) -> str:
    """A share as a percentage; small gaps keep their digits."""
    return f"{100 * value:.2g} %" if value < 0.001 else f"{100 * value:.4g} %"


def dollars(value: float) -> str:
    """A price as one says it.

    Examples
    --------
    >>> dollars(84_800_000), dollars(28_000), dollars(950.5)
    ('84.8 M USD', '28 k USD', '950.5 USD')
    """
    scale, prefix = next(((s, p) for s, p in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if abs(value) >= s), (1.0, ""))
    return f"{value / scale:.4g} {prefix} USD" if prefix else f"{value:.4g} USD"


def parts_words(breakdown: Breakdown | MemoryBreakdown) -> str:
    """The parts of a step, or of what a chip holds, with their shares of it, in their order.

    Examples
    --------
    >>> parts_words(Breakdown(forward_s=1.0, backward_s=3.0))
    'forward 25 %, backward 75 %'
    """
    told = {name.replace("_", " "): part / breakdown.total for name, part in breakdown.parts.items()}
    return ", ".join(f"{name} {percent(share)}" for name, share in told.items())


def hidden_words(breakdown: Breakdown, link_time: LinkTime | None) -> str:
    """Of communication that is hidden in part: how long links are busy with it, and how much of that shows.

    Examples
    --------
    >>> hidden_words(Breakdown(forward_s=0.9, data_parallel_s=0.1), LinkTime(data_parallel_s=0.4))
    'data parallel 40 % (10 % shows)'
    """
    told, exposed = [], dict(breakdown)
    for name, busy in (link_time.parts if link_time else {}).items():
        shows = exposed[f"{name}_s"]
        if shows < 0.99 * busy:
            shares = percent(busy / breakdown.total), percent(shows / breakdown.total)
            told.append(f"{name.replace('_', ' ')} {shares[0]} ({shares[1]} shows)")
    return ", ".join(told)
