"""Many objects at a time without a search for cycles among them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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
