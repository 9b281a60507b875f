"""Matrices that took long to work out: the last few in memory, all of them as small files.

A file that cannot be read, or does not say what it must, counts as absent and is written anew; a directory that
cannot be written costs time, not results. So neither is an error.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from dfopt.arrays import Floats

_IN_MEMORY: Final = 16  # matrices of 32 MB at most
_LARGEST: Final = 4_000_000  # entries that are worth a file: 32 MB. A larger matrix is worked out in every process
_MEMORY: OrderedDict[str, Floats] = OrderedDict()


def directory() -> Path | None:
    """Cache directory: ``$XDG_CACHE_HOME/dfopt`` or ``~/.cache/dfopt``; None with ``DFOPT_CACHE=off``."""
    if os.environ.get("DFOPT_CACHE", "").lower() in ("off", "0", "no"):
        return None
    base = os.environ.get("XDG_CACHE_HOME", "")
    # the XDG base directory specification: a relative path counts as unset
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache"
    return root / "dfopt" / "thermal"


def kept(name: str, shape: tuple[int, int], work: Callable[[], Floats]) -> Floats:
    """A cached read-only matrix by name: from memory, from a file, or computed by ``work``.

    Parameters
    ----------
    name : str
        Name of the matrix, which says all that decides it.
    shape : (int, int)
        Its shape.
    work : callable
        Computes it.
    """
    if shape[0] * shape[1] > _LARGEST:
        return work()
    matrix = _MEMORY.pop(name, None)
    if matrix is None or matrix.shape != shape:
        folder = directory()
        path = None if folder is None else folder / f"{name}.npz"
        matrix = None if path is None else _read(path, name, shape)
        if matrix is None:
            matrix = work()
            if path is not None:
                with contextlib.suppress(OSError):
                    _write(path, name, matrix)
        matrix.setflags(write=False)
    _MEMORY[name] = matrix
    while len(_MEMORY) > _IN_MEMORY:
        _MEMORY.popitem(last=False)
    return matrix


def _read(path: Path, key: str, shape: tuple[int, int]) -> Floats | None:
    try:
        with np.load(path, allow_pickle=False) as data:
            if str(data["key"]) != key:
                return None
            matrix = data["matrix"]
    except (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile):
        return None
    if matrix.dtype != np.float64 or matrix.shape != shape or not np.all(np.isfinite(matrix)):
        return None
    return np.asarray(matrix)


def _write(path: Path, key: str, matrix: Floats) -> None:
    """Write a file that appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.stem[:8], suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, key=np.array(key), matrix=matrix)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
