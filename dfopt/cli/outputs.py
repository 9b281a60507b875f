"""Files that commands write: never over one of their inputs, nor, without --force, over what dfopt did not write."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from dfopt.cli.help import RUNNING
from dfopt.errors import DocumentError, PlanError


def check_output(option: str, path: Path | None, suffixes: tuple[str, ...], parts: bool = False) -> None:
    """Reject an output file that cannot or must not be written, before any work.

    It must not be one of the other files that the command names, nor, without its ``--force``, one that dfopt did not
    write. ``parts``: nor may those beside it, whose names have more before the suffix.
    """
    if path is None:
        return
    if path.suffix.lower() not in suffixes:
        listed = ", ".join(suffixes[:-1]) + f" or {suffixes[-1]}"
        raise PlanError(f"{option}: found {str(path)!r}, expected a name that ends in {listed}")
    check_file(option, path)
    check_folder(option, path.parent, (file.name for file in path.parent.glob(f"{path.stem}.*{path.suffix}") if parts))


def check_folder(option: str, folder: Path | None, names: Iterable[str]) -> None:
    """Check the files that will be written to a folder, as `check_file` does."""
    for file in [] if folder is None else map(folder.joinpath, names):
        if os.path.lexists(file):
            check_file(option, file)


def check_file(option: str, path: Path) -> None:
    """Reject an output file that cannot be written, or that another option names as well."""
    from dfopt.documents.files import check_writable

    given = RUNNING.get().params
    try:
        check_writable(path, force=given["force"])
    except DocumentError as error:
        raise PlanError(f"{option}: {str(path)!r} {error.issues[0].text}") from None
    for name, value in given.items():
        if "--" + name.strip("_").replace("_", "-") != option:
            for other in value if isinstance(value, list | tuple) else (value,):
                if isinstance(other, str | Path) and _is_same(path, Path(other)):
                    raise PlanError(f"{option}: {str(path)!r} is a file that is read or written too; name another one")


def _is_same(path: Path, other: Path) -> bool:
    try:
        same = os.path.realpath(path) == os.path.realpath(other)
        return same or (path.exists() and other.exists() and path.samefile(other))
    except (OSError, ValueError):  # a name that no file can have
        return False
