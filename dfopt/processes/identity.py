"""Which dfopt this is: processes on other machines must be the same, or their figures would not be comparable."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_DECIDES = ("highspy", "numpy", "scipy")  # a solve's figures may depend on these


@cache
def identity() -> dict[str, str]:
    """Version of dfopt, digest of its source, and versions of the libraries that affect results.

    The digest tells two working copies apart, which share a version.
    """
    import dfopt

    root = Path(dfopt.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    libraries = {name: _version(name) for name in _DECIDES}
    return {"dfopt": dfopt.__version__, "program": digest.hexdigest()[:12], **libraries}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
