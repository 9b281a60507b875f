"""A proof log replayed without the search: what it shows, or where it shows nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from dfopt.bnb import BoundRaised, Branched, Closed, ProofLog, Reduced

__all__ = ["replay"]

Region = TypeVar("Region", bound=Hashable)


def replay(
    log: ProofLog[Region],
    roots: Sequence[Region],
    covers: Callable[[Region, Sequence[Region]], bool],
    shows: Callable[[Region, str, float], bool] = lambda region, relaxation, value: True,
) -> float:
    """What no member of the roots is below by a log alone, but for members that its solutions are.

    Parameters
    ----------
    covers
        Whether some regions together hold every member of a region.
    shows
        Whether a bound that the log says a relaxation gives does hold. By default the log is believed.

    Returns
    -------
    float
        The least bound of all regions that were closed.

    Raises
    ------
    ValueError
        If a region is closed at a bound that nothing shows, or twice, or never, or its children do not cover it.

    Examples
    --------
    >>> log = ProofLog(["ab", "a", "b"], [Branched(0, (1, 2), (1.0, 1.0)), BoundRaised(2, "sum", 3.0)])
    >>> log.events += [Closed(2, 3.0, None, 3.0), Closed(1, 1.0, None, 1.0)]
    >>> replay(log, ["ab"], lambda whole, parts: whole == "".join(parts))
    1.0
    """
    if log.regions[: len(roots)] != list(roots):
        raise ValueError("the first regions of the log are not the roots")
    shown = dict.fromkeys(range(len(roots)), -math.inf)
    least = math.inf
    for event in log.events:
        if event.node not in shown:
            raise ValueError(f"region {event.node} is not open at {event}")
        region, low = log.regions[event.node], shown[event.node]
        match event:
            case BoundRaised(node, relaxation, value):
                if not shows(region, relaxation, value):
                    raise ValueError(f"{relaxation} does not show {value!r} of {region}")
                shown[node] = max(low, value)
                continue
            case Branched(_, children, bounds):
                # a rule may know more of a child than of the whole: that is its word, as a bound is a relaxation's
                given = zip(children, bounds, strict=True)
                further = {child: max(low, bound) for child, bound in given}
            case Reduced(_, _, child):
                further = {child: low}
            case Closed(bound=bound, value=value):
                if value is None and bound > low:
                    raise ValueError(f"region {event.node} is closed at {bound!r}, and {low!r} is shown of it")
                least, further = min(least, bound), {}
        if further and isinstance(event, Branched) and not covers(region, [log.regions[child] for child in further]):
            raise ValueError(f"what {region} is divided into does not cover it")
        del shown[event.node]
        shown |= further
    if shown:
        raise ValueError(f"{len(shown)} regions are still open, such as {log.regions[min(shown)]}")
    return least
