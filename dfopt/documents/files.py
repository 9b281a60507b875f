"""Files that are written whole or not at all, and told to be impossible before the work."""

from __future__ import annotations

import os
import re
import secrets
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NoReturn

from dfopt.errors import refuse

MAX_BYTES: Final = 20_000_000
"""What is read of a file at most, but of the JSON that dfopt writes."""
_COMMENTED: Final = (".yaml", ".yml", ".toml", ".args")  # formats whose first line says who wrote the rest
_MARK: Final = re.compile(rb"# written by dfopt, crc32 ([0-9a-f]{8}): .*\n")
_FORMS: Final = re.compile(  # of other formats, how they start or end when dfopt wrote them
    rb"""\{\s*"schema":\s*"dfopt/(result|certificate|exploration|heat|calibration)/ | \{"traceEvents":.*"writer":"dfopt"
    | <!DOCTYPE\ html>.*<meta\ name="generator"\ content="dfopt | <\?xml.*<dc:title>dfopt</ | \x89PNG.*Software\0dfopt
    | %PDF.*/Creator\ \(dfopt\) | PAR1.*"writer":\ "dfopt" | [^\n]*\bstep_time_s,[^\n]*\butilization,
    | \d+\ decisions\ of\ [^\n]*\ cannot\ express:\n | \\\*\ dfopt\ \*\\ | \*SENSE:Minimize\r?\nNAME\ +dfopt\b""",
    re.DOTALL | re.VERBOSE,
)


_UNREADABLE: Final[dict[type[Exception], tuple[str, str]]] = {
    FileNotFoundError: ("no such file", "check the spelling and the folder you are in"),
    IsADirectoryError: ("found a directory, expected a file", "name a file in it"),
    PermissionError: ("permission denied", "make the file readable, e.g. with chmod +r"),
}


def check_size(size: int, name: str, most: int) -> None:
    """Check that a file is not too large.

    Parameters
    ----------
    size, most : int, B
        Its bytes, and the most that are allowed.
    name : str
        Its name, for messages.

    Raises
    ------
    DocumentError
        If it has more bytes.
    """
    if size > most:
        message = f"{size:,} bytes or more, at most {most:,} are read"
        refuse(name, message, "split the file, or is it the wrong one?")


def read_bytes(path: str | os.PathLike[str], most: int = MAX_BYTES, own: re.Pattern[bytes] | None = None) -> bytes:
    """Contents of a file of at most ``most`` bytes, or of any size if it matches ``own``.

    Parameters
    ----------
    path : path-like
        The file.
    most : int
        Largest number of bytes.
    own : pattern, optional
        Pattern of the first bytes of files that may have any size.

    Raises
    ------
    DocumentError
        If the file cannot be read or is larger, before more of it is in memory.
    """
    name = os.fspath(path)
    try:
        with open(path, "rb") as file:
            head = file.read(4096)
            most = sys.maxsize if own and own.match(head) else most
            check_size(os.fstat(file.fileno()).st_size, name, most)
            raw = head + (
                file.read() if most == sys.maxsize else file.read(most + 1 - len(head))
            )  # a pipe has no size beforehand
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        refuse(name, *_UNREADABLE.get(type(error), (f"cannot be read: {error}", "check the path")))
    check_size(len(raw), name, most)
    return raw


def read_text(path: str | os.PathLike[str], most: int = MAX_BYTES, own: re.Pattern[bytes] | None = None) -> str:
    """Contents of a UTF-8 file as text, with or without a byte order mark.

    Parameters
    ----------
    path, most, own
        As for :func:`read_bytes`.

    Raises
    ------
    DocumentError
        If :func:`read_bytes` does, or if the bytes are not UTF-8.
    """
    raw = read_bytes(path, most, own)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, column = raw.count(b"\n", 0, error.start) + 1, error.start - raw.rfind(b"\n", 0, error.start)
        message = f"line {line}: found bytes that are not UTF-8, from column {column} on, expected text"
        refuse(os.fspath(path), message, "save the file as UTF-8")


def is_written_here(path: Path) -> bool:
    """Whether dfopt wrote a file and it is unchanged as far as known; False for an empty file."""
    with open(path, "rb") as file:
        head, size = file.read(4096), os.fstat(file.fileno()).st_size
        if mark := _MARK.match(head):
            file.seek(mark.end())
            return zlib.crc32(file.read()) == int(mark[1], 16)
        file.seek(max(size - 200_000, 0))
        return not size or _FORMS.match(head + file.read()) is not None


def check_writable(path: str | os.PathLike[str], force: bool = True) -> Path:
    """Raise `DocumentError` if a file cannot be written, before any work and without a trace; return its path.

    Without ``force`` it may not be one that dfopt did not write either.
    """
    target = Path(os.path.realpath(path))
    try:
        if target.is_dir():
            raise IsADirectoryError(0, "it is a folder")
        if target.exists():
            with open(target, "ab"):  # a file that is protected stays as it is
                pass
        if not _as_it_is(target):
            part = _sibling(target)
            part.touch(exist_ok=False)
            part.unlink()
        if not (force or _as_it_is(target) or not target.exists() or is_written_here(target)):
            message = "is there, and is not as dfopt wrote it"
            refuse(os.fspath(path), message, "name another file, or write over it with --force")
    except OSError as error:
        _refuse(path, error)
    return Path(path)


@contextmanager
def replaced(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Context manager for atomic writes: a temporary file that replaces ``path`` if the block succeeds.

    It is written through a link, not over it; a device or a pipe as it is. Raises `DocumentError` if it cannot be.
    """
    target = Path(os.path.realpath(check_writable(path)))
    part = target if _as_it_is(target) else _sibling(target)
    try:
        yield part
        if part != target:
            with open(part, "rb") as file:
                os.fsync(file.fileno())
            os.replace(part, target)
            with suppress(OSError):  # the new name is to be on the disk before what is added; not all systems can
                folder = os.open(target.parent, os.O_RDONLY)
                os.fsync(folder)
                os.close(folder)
    except OSError as error:
        _refuse(path, error)
    finally:
        if part != target:
            part.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text as UTF-8 atomically; formats with comments get a first line that names dfopt."""
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        message = f"cannot be written: found {text[max(error.start - 20, 0) : error.end]!a}, half a surrogate pair"
        refuse(os.fspath(path), message, "give texts, and names of files and folders, that are UTF-8")
    if Path(path).suffix.lower() in _COMMENTED:
        data = b"# written by dfopt, crc32 %08x: replaced only while unedited\n%b" % (zlib.crc32(data), data)
    with replaced(path) as part:
        part.write_bytes(data)


def folder_of(path: str | os.PathLike[str]) -> Path:
    """A folder, created if missing; raises `DocumentError` if that fails."""
    target = Path(path)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = "it is a file" if os.path.isfile(target) else error.strerror or str(error)
        refuse(os.fspath(path), f"cannot be a folder: {reason}", "name a new folder")
    return target


def _as_it_is(target: Path) -> bool:
    """Whether it is a device or a pipe."""
    return target.exists() and not target.is_file()


def _sibling(target: Path) -> Path:
    """A name in the same folder, because a rename is one step only within one file system."""
    return target.with_name(f".{target.name[:60]}.{secrets.token_hex(6)}.part")


def _refuse(path: str | os.PathLike[str], error: OSError) -> NoReturn:
    remedy = "name a file in an existing folder that you may write to"
    refuse(os.fspath(path), f"cannot be written: {error.strerror or error}", remedy)
