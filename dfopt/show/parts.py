"""Parts that add up to a whole, in words."""

from __future__ import annotations

from dfopt.documents.breakdown import Breakdown
from dfopt.documents.memory_breakdown import MemoryBreakdown

__all__ = ["parts_words", "percent"]


def percent(value: float) -> str:
    """A share as a percentage; small gaps keep their digits."""
    return f"{100 * value:.2g} %" if value < 0.001 else f"{100 * value:.4g} %"


def parts_words(breakdown: Breakdown | MemoryBreakdown) -> str:
    """The parts of a step, or of what a chip holds, with their shares of it, in their order.

    Examples
    --------
    >>> parts_words(Breakdown(forward_s=1.0, backward_s=3.0))
    'forward 25 %, backward 75 %'
    """
    told = {name.replace("_", " "): part / breakdown.total for name, part in breakdown.parts.items()}
    return ", ".join(f"{name} {percent(share)}" for name, share in told.items())
