"""The file of record of a sweep or an exploration: JSON Lines, one line per solved cell, appended as the cells end.

What is guaranteed: a line is written with one call and is on the disk (``fsync``) before the sweep counts its cell
as done, so that a sweep that is killed, at any point, loses no cell that it has reported. Each line ends with a
checksum. A line that is cut or damaged, wherever it stands, is moved to ``NAME.damaged`` beside the store, and its
cell is solved again; the store is replaced in one step then. Of two lines with the same key the later one counts.
A file that does not start as a store does is never changed, whatever it has.

One sweep writes at a time, the one that holds the lock of ``NAME.lock`` beside the store (``filelock``). The lock ends
with its process, however that dies; the empty file stays.
"""

from __future__ import annotations

import itertools
import json
import operator
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NoReturn

from filelock import FileLock, Timeout

from dfopt.documents.files import replaced
from dfopt.errors import refuse, shown

SCHEMA = "dfopt/run/1"
Record = Mapping[str, Any]
_START = f'{{"schema":"{SCHEMA}"'.encode()
# CRC-32 of the line without it.
_CHECKSUM = re.compile(rb',"crc32":"([0-9a-f]{8})"\}$')
_TYPED = (
    ("axes", dict, "a mapping"), ("figures", dict, "a mapping"), ("message", str, "text"), ("study", str, "text"),
    ("dfopt", str, "text"), ("calibrated_by", str, "text"), ("seconds", int | float, "a number"),
    ("result", dict, "a mapping"), ("bound", int | float, "a number"), ("refused", str, "text"),
    ("mapping", dict, "a mapping"), ("asked", dict, "a mapping"), ("variant", str, "text"),
)  # fmt: skip
_NAME = "name a file in an existing folder that you may write to"


class Store(AbstractContextManager["Store"]):
    """A store of records open for appending by one sweep at a time; created if missing.

    Raises
    ------
    DocumentError
        If it is no store, has lines of another version, or another run writes to it.

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
        self.path = Path(os.path.realpath(path))  # a link stays a link when the store is replaced
        self.set_aside = ""
        self.records: dict[str, Record] = {}
        os.close(self._open())  # where no file can be there is no lock to make either
        parse(_read(self.path), path)  # nor where there is another file
        self._lock = FileLock(f"{self.path}.lock", blocking=False, thread_local=False)
        self._file = -1
        with _explained(self.path, f"cannot be locked with {self._lock.lock_file}", _NAME):
            if os.path.lexists(self._lock.lock_file) and os.path.getsize(self._lock.lock_file):  # a lock is empty
                raise FileExistsError(0, "there is a file of that name which is no lock")
            try:
                self._lock.acquire()
            except Timeout:
                refuse(self.path, "another run writes to it", "wait for it, or name another store")
        try:
            self._file = self._open()  # once more: a sweep that has just ended may have replaced it
            self.records, kept, damaged = parse(_read(self.path), path)
            if damaged:
                self._replace(kept, damaged)
        except BaseException:
            self.close()
            raise

    def append(self, *records: Record) -> None:
        """Append one line for each record and wait until they are on disk."""
        lines = b"".join(line_of(record) for record in records)
        remedy = "make room; the sweep goes on where it stopped"
        with _explained(self.path, "cannot be written", remedy):
            written = os.write(self._file, lines)
        if written != len(lines):  # a full disk may take a part: do not let the next line start in the middle
            os.ftruncate(self._file, os.fstat(self._file).st_size - written)
            refuse(self.path, "the disk is full", remedy)
        with _explained(self.path, "cannot be written", remedy):
            os.fsync(self._file)
        for record in records:
            self.records[str(record["cell"])] = record

    def close(self) -> None:
        """Close the file and release it for other sweeps."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        self._lock.release()

    def __exit__(self, *error: object) -> None:
        self.close()

    def _open(self) -> int:
        with _explained(self.path, "cannot be opened", _NAME):
            if self.path.exists() and not self.path.is_file():
                raise IsADirectoryError(0, "it is a folder, a device or a pipe")
            return os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)

    def _replace(self, kept: list[bytes], damaged: list[bytes]) -> None:
        """Put the good lines in place of the file in one step, after the others are safe beside it."""
        names = (f"{self.path.name}.damaged{number or ''}" for number in itertools.count())
        aside = next(file for file in map(self.path.with_name, names) if not os.path.lexists(file))
        with _explained(self.path, f"damaged lines cannot be moved to {aside}", "make room there, or make it writable"):
            _write_new(aside, b"".join(line + b"\n" for line in damaged))
            with replaced(self.path) as part:
                part.write_bytes(b"".join(kept))
            os.close(self._file)
            self._file = -1
            self._file = self._open()
        lines, were, cells = f"{len(damaged)} lines", "were", "their cells are"
        if len(damaged) == 1:
            lines, were, cells = "1 line", "was", "its cell is"
        self.set_aside = f"{lines} of {self.path} had no end or {were} damaged: moved to {aside}, {cells} solved again"


def is_store(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a store, by its suffix or its first bytes."""
    if Path(path).suffix == ".jsonl" or not os.path.isfile(path):
        return Path(path).suffix == ".jsonl"
    with open(path, "rb") as file:
        return file.read(len(_START)) == _START


def _read(path: str | os.PathLike[str]) -> bytes:
    with _explained(path, "cannot be read", "name a store that a sweep wrote"):
        return Path(path).read_bytes()


def _write_new(path: Path, data: bytes) -> None:
    """Write a file that does not exist yet, whole or not at all."""
    with open(path, "xb") as file:
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            path.unlink()
            raise


def line_of(record: Record) -> bytes:
    """A record as a line of a store, with its checksum.

    Examples
    --------
    >>> line_of({"cell": "c0ffee", "status": "optimal"})
    b'{"schema":"dfopt/run/1","cell":"c0ffee","status":"optimal","crc32":"09323f8d"}\\n'
    """
    text = json.dumps({"schema": SCHEMA, **record}, separators=(",", ":"), allow_nan=False).encode()
    return text[:-1] + b',"crc32":"%08x"}\n' % zlib.crc32(text)


def read_records(*paths: str | os.PathLike[str]) -> dict[str, Record]:
    """Records of several stores by cell, read-only and safe while a sweep is writing.

    Damaged lines are left out; a sweep sets them aside. Of several records of one cell, one with figures goes before
    one without, and then the later one.

    Raises
    ------
    DocumentError
        If there is no such file, or it is no store.
    """
    records: dict[str, Record] = {}
    for path in paths:
        for key, record in parse(_read(path), path)[0].items():
            if key not in records or "figures" in record or "figures" not in records[key]:
                records[key] = record
    return records


def damage(stores: Iterable[str | os.PathLike[str]]) -> str:
    """Warning about damaged lines that `read_records` skipped; empty if there are none.

    Raises
    ------
    DocumentError
        If there is no such file, or it is no store.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "runs.jsonl"
    >>> size = path.write_bytes(line_of({"cell": "c0ffee", "status": "infeasible"}))
    >>> damage([path])
    ''
    >>> size = path.write_bytes(path.read_bytes() + b"{")
    >>> damage([path]).partition(" (")[0]
    '1 cut or damaged line is left out'
    """
    counts = {os.fspath(path): len(parse(_read(path), path)[2]) for path in stores}
    total = sum(counts.values())
    if not total:
        return ""
    where = ", ".join(f"{path}: {count}" if len(counts) > 1 else path for path, count in counts.items() if count)
    lines, cells = ("line is", "its cell") if total == 1 else ("lines are", "their cells")
    return f"{total} cut or damaged {lines} left out ({where}): the next sweep with this store solves {cells} again"


def parse(data: bytes, path: str | os.PathLike[str]) -> tuple[dict[str, Record], list[bytes], list[bytes]]:
    """Records by cell, their lines, and damaged lines of a store's bytes.

    Raises
    ------
    DocumentError
        If it is no file that dfopt began: it must be empty, or its first line a record, if need be a damaged one.
    """
    records: dict[str, Record] = {}
    kept, damaged = [], []
    lines = data.split(b"\n")
    tail = lines.pop()
    for number, line in enumerate(lines, start=1):
        record = _record(line, path, number)
        if record is None:
            damaged.append(line)
            if number == 1 and not _is_begun(line, cut=False):
                _refuse_foreign(line, path)
        else:
            kept.append(line + b"\n")
            records[record["cell"]] = record
    if tail:
        damaged.append(tail)
        if not lines and not _is_begun(tail, cut=True):
            _refuse_foreign(tail, path)
    return records, kept, damaged


def _is_begun(line: bytes, cut: bool) -> bool:
    """Whether a line that is no record starts as one does, up to one byte; where it is ``cut``, as far as it goes."""
    start = _START[: len(line)] if cut else _START
    return len(line) >= len(start) and sum(map(operator.ne, line, start)) <= (len(start) == len(_START))


def _record(line: bytes, path: str | os.PathLike[str], number: int) -> dict[str, Any] | None:
    """The record of a line; none if it is damaged."""
    checked = _CHECKSUM.search(line)
    if checked is not None:
        line = line[: checked.start()] + b"}"
        if zlib.crc32(line) != int(checked[1], 16):
            return None
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    schema = record.get("schema")
    if isinstance(schema, str) and schema != SCHEMA:  # of a newer dfopt, or of no sweep: not ours to move
        message = f"line {number}: found {shown(schema)}, expected a record with schema {SCHEMA!r}"
        refuse(path, message, "name a store that this version of dfopt wrote")
    complete = schema == SCHEMA and all(isinstance(record.get(key), str) for key in ("cell", "status"))
    for key, kind, expected in _TYPED if complete else ():
        if not isinstance(record.get(key), kind | None):
            message = f"line {number}, {key}: found {shown(record[key])}, expected {expected}"
            refuse(path, message, "name a store that a sweep wrote")
    return record if complete and checked is not None else None


def _refuse_foreign(line: bytes, path: str | os.PathLike[str]) -> NoReturn:
    message = f"line 1: found {shown(line[:99].decode(errors='replace'))}, expected a record of schema {SCHEMA!r}"
    refuse(path, message, "name a store that a sweep wrote, or a file that does not exist yet")


def write_new(path: str | os.PathLike[str], records: Iterable[Record]) -> None:
    """Write records to a store that does not exist yet.

    Raises
    ------
    DocumentError
        If the file exists, or cannot be written.
    """
    with _explained(path, "cannot be written", _NAME):
        try:
            _write_new(Path(path), b"".join(map(line_of, records)))
        except FileExistsError:
            refuse(path, "the file exists", "name a new one")


@contextmanager
def _explained(path: str | os.PathLike[str], cannot: str, remedy: str) -> Iterator[None]:
    """What the system refuses is told with what cannot be done because of it."""
    try:
        yield
    except OSError as error:
        refuse(path, f"{cannot}: {error.strerror or error}", remedy)
