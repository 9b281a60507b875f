"""Many objects at a time without a search for cycles among them, or with few."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SELDOM: Final = 50_000, 10, 10
"""New objects after which Python looks for cycles among them, and how many such looks go before one at older objects.
After 700 objects, its default, that is a fifth of all processor time, and next to nothing is freed by it."""


@contextmanager
def uncollected() -> Iterator[None]:
    """While hundreds of thousands of objects are made that hold no cycles, look for none.

    The collector of Python goes over all that there is whenever a quarter more was made: where nothing can be freed,
    that takes longer than to make it.

    Examples
    --------
    >>> with uncollected():
    ...     gc.isenabled()
    False
    >>> gc.isenabled()
    True
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def seldom_collected() -> Iterator[None]:
    """While a search makes objects that mostly stay until it ends, look for cycles among them seldom."""
    before = gc.get_threshold()
    gc.set_threshold(*SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*before)
