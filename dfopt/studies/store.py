"""The file of record of a sweep: JSON Lines, one line per solved cell, appended as the cells end.

A line is written with one call and reaches the disk before the sweep goes on, so a sweep that is killed loses no
cell that it has reported. What a kill in the middle of a write leaves is a last line without its end: it is moved
to a file beside the store, and its cell is solved again. Of two lines with the same key the later one counts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dfopt.errors import DocumentError, Issue, shown

__all__ = ["SCHEMA", "Record", "Store", "read_records"]

SCHEMA = "dfopt/run/1"
Record = Mapping[str, Any]
_NEEDED = {"cell": str, "status": str}


class Store:
    """A store that is open for appending, by one sweep at a time.

    Parameters
    ----------
    path : str or Path
        The file; it is made if it does not exist.

    Raises
    ------
    DocumentError
        If it is no store, has a broken line before the last one, or another sweep writes to it.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "runs.jsonl"
    >>> with Store(path) as store:
    ...     store.append({"cell": "c0ffee", "status": "infeasible"})
    >>> with Store(path) as store:
    ...     store.records["c0ffee"]["status"], store.set_aside
    ('infeasible', '')
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.set_aside = ""
        self.records: dict[str, Record] = {}
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        except OSError as error:
            what = f"cannot be opened: {error.strerror or error}"
            raise _refused(self.path, what, "name a file in an existing folder that you may write to") from None
        try:
            self._lock()
            whole, tail = _split(self.path.read_bytes())
            self.records = _parse(whole, self.path)
            if tail:
                self._set_aside(len(whole), tail)
        except BaseException:
            os.close(self._file)
            raise

    def append(self, record: Record) -> None:
        """Write one line, and wait until the disk has it."""
        line = json.dumps({"schema": SCHEMA, **record}, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        written = os.write(self._file, line)
        if written != len(line):  # a full disk may take a part: do not let the next line start in the middle
            os.ftruncate(self._file, os.fstat(self._file).st_size - written)
            raise _refused(self.path, "the disk is full", "make room; the sweep goes on where it stopped")
        os.fsync(self._file)
        self.records[str(record["cell"])] = record

    def close(self) -> None:
        """Close the file; another sweep may have it."""
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _lock(self) -> None:
        try:
            import fcntl
        except ImportError:  # no such lock on Windows: two sweeps at once on one store are the user's to avoid there
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise _refused(self.path, "another sweep writes to it", "wait for it, or name another store") from None

    def _set_aside(self, end: int, tail: bytes) -> None:
        beside = self.path.with_name(self.path.name + ".damaged")
        with beside.open("ab") as file:
            file.write(tail + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.ftruncate(self._file, end)
        self.set_aside = f"the last line of {self.path} had no end: moved to {beside}, its cell is solved again"


def read_records(path: str | os.PathLike[str]) -> dict[str, Record]:
    """The records of a store by cell, without changing it: also while a sweep writes to it.

    Raises
    ------
    DocumentError
        If there is no such file, or it is no store.
    """
    try:
        whole, _ = _split(Path(path).read_bytes())
    except OSError as error:
        raise _refused(path, f"cannot be read: {error.strerror or error}", "name a store that a sweep wrote") from None
    return _parse(whole, path)


def _split(data: bytes) -> tuple[bytes, bytes]:
    """Whole lines, and what follows the last end of a line."""
    end = data.rfind(b"\n") + 1
    return data[:end], data[end:]


def _parse(whole: bytes, path: str | os.PathLike[str]) -> dict[str, Record]:
    found: dict[str, Record] = {}
    for number, line in enumerate(whole.splitlines(), start=1):
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if not isinstance(record, dict) or record.get("schema") != SCHEMA:
            said = record.get("schema") if isinstance(record, dict) else line.decode(errors="replace")
            message = f"found {shown(said)}, expected a record with schema {SCHEMA!r}"
            raise _refused(path, f"line {number}: {message}", "name a store that a sweep wrote, or remove this line")
        for key, kind in _NEEDED.items():
            if not isinstance(record.get(key), kind):
                message = f"line {number}: found {shown(record.get(key))} for {key!r}, expected text"
                raise _refused(path, message, "remove this line: its cell is solved again")
        found[record["cell"]] = record
    return found


def _refused(path: str | os.PathLike[str], message: str, remedy: str) -> DocumentError:
    return DocumentError(os.fspath(path), [Issue("$", message, remedy)])
