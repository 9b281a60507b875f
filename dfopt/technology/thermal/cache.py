"""Known influence matrices: the last few in memory, all of them as small files.

A file that cannot be read, or does not say what it must, counts as absent and is written anew; a directory that
cannot be written costs time, not results. So neither is an error.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import zipfile
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from dfopt.technology.thermal.types import Floats

__all__ = ["Cache"]

_IN_MEMORY: Final = 32  # matrices; one of 600 tiles is 3 MB
_MEMORY: OrderedDict[str, Floats] = OrderedDict()


def _directory() -> Path | None:
    """Where matrices are kept for this user; None if switched off."""
    if os.environ.get("DFOPT_CACHE", "").lower() in ("off", "0", "no"):
        return None
    base = os.environ.get("XDG_CACHE_HOME", "")
    # the XDG base directory specification: a relative path counts as unset
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache"
    return root / "dfopt" / "thermal"


@dataclass(frozen=True)
class Cache:
    """Where influence matrices are kept.

    Parameters
    ----------
    directory
        Of the files; None keeps nothing on disk.
    memory
        The matrices in memory, oldest use first; shared by all caches if left out.

    Examples
    --------
    >>> cache = Cache(None, OrderedDict())
    >>> cache.put("a", np.eye(2)), cache.get("a", (2, 2)) is None, cache.get("b", (2, 2)) is None
    (None, False, True)
    """

    directory: Path | None
    memory: OrderedDict[str, Floats] = field(default_factory=lambda: _MEMORY)

    @classmethod
    def default(cls) -> Cache:
        """The user's: ``$XDG_CACHE_HOME/dfopt`` or ``~/.cache/dfopt``; in memory only with ``DFOPT_CACHE=off``."""
        return cls(_directory())

    def get(self, key: str, shape: tuple[int, int]) -> Floats | None:
        """The matrix of a key, or None; read-only."""
        known = self.memory.get(key)
        if known is not None and known.shape == shape:
            self.memory.move_to_end(key)
            return known
        found = None if self.directory is None else _read(self.directory / f"{key}.npz", key, shape)
        if found is not None:
            self._remember(key, found)
        return found

    def put(self, key: str, matrix: Floats) -> None:
        """Keep a matrix, in memory and as a file that appears whole or not at all."""
        self._remember(key, matrix)
        if self.directory is not None:
            with contextlib.suppress(OSError):
                _write(self.directory / f"{key}.npz", key, matrix)

    def _remember(self, key: str, matrix: Floats) -> None:
        matrix.setflags(write=False)
        self.memory[key] = matrix
        self.memory.move_to_end(key)
        while len(self.memory) > _IN_MEMORY:
            self.memory.popitem(last=False)


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
