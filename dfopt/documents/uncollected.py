"""Many objects at a time without a search for cycles among them, or with few."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# New objects after which Python looks for cycles among them, and how many such looks go before one at older objects.
# After 700 objects, its default, that is a tenth of all processor time and more, and next to nothing is freed by it.
SELDOM: Final = 50_000, 10, 10


@contextmanager
def uncollected(*thresholds: int) -> Iterator[None]:
    """Context manager and decorator that runs the garbage collector rarely while many acyclic objects are built.

    The collector of Python goes over all that there is whenever a quarter more was made: where nothing can be freed,
    that takes longer than to make it. ``thresholds``: how seldom to look, such as :data:`SELDOM`.

    Examples
    --------
    >>> before = gc.get_threshold()
    >>> with uncollected():
    ...     gc.get_threshold()[0]
    0
    >>> gc.get_threshold() == before
    True
    """
    before = gc.get_threshold()
    gc.set_threshold(*thresholds or (0,))
    try:
        yield
    finally:
        gc.set_threshold(*before)
