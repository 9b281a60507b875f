"""Files that are written whole or not at all, and told to be impossible before the work."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from dfopt.errors import refuse


def check_writable(path: str | os.PathLike[str]) -> Path:
    """Raise `DocumentError` if a file cannot be written, and leave no trace: told before the work, and not after it."""
    target = Path(os.path.realpath(path))
    try:
        if target.is_dir():
            raise IsADirectoryError(0, "it is a folder")
        if target.exists():
            with open(target, "ab"):  # a file that is protected stays as it is
                pass
        if not _as_it_is(target):
            part = _beside(target)
            part.touch(exist_ok=False)
            part.unlink()
    except OSError as error:
        _refuse(path, error)
    return Path(path)


@contextmanager
def replaced(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A new file beside ``path`` that takes its place when the block ends well, and is gone when it does not.

    It is written through a link, not over it; a device or a pipe as it is. Raises `DocumentError` if it cannot be.
    """
    target = Path(os.path.realpath(check_writable(path)))
    part = target if _as_it_is(target) else _beside(target)
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
    """Write a text as UTF-8, whole or not at all."""
    with replaced(path) as part, open(part, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)


def _as_it_is(target: Path) -> bool:
    """Whether it is a device or a pipe."""
    return target.exists() and not target.is_file()


def _beside(target: Path) -> Path:
    """A name in the same folder, because a rename is one step only within one file system."""
    return target.with_name(f".{target.name[:60]}.{secrets.token_hex(6)}.part")


def _refuse(path: str | os.PathLike[str], error: OSError) -> NoReturn:
    remedy = "name a file in an existing folder that you may write to"
    refuse(os.fspath(path), f"cannot be written: {error.strerror or error}", remedy)
