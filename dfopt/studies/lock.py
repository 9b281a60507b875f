"""One writer at a time for a file: a lock of the operating system, or a file beside it where there is none.

``flock`` ends with its process, however that dies. On a network file system it is what the mount makes of it: Linux
turns it into a lock of the NFS server, but for mounts with ``nolock``, which lock for one machine only. Where a file
system has no such lock (an error that is not "somebody has it"), and on Windows, a file ``NAME.lock`` is made with
O_EXCL; it names its host and process, and outlives a process that is killed. Then the next sweep on the same host
sees that the process is gone, and takes over; on another host nobody can tell, and the message says what to remove.
"""

from __future__ import annotations

import errno
import json
import os
import socket
from pathlib import Path

__all__ = ["Held", "lock", "release"]

# What flock says when somebody else has the lock. All else is a file system without it.
_TAKEN = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)


class Held(Exception):
    """Somebody else has the lock; the text says who, as far as that is known."""


def lock(descriptor: int, path: Path) -> Path | None:
    """Lock an open file, or raise `Held`. Returns the lock file that stands for it, if one had to be made."""
    try:
        import fcntl
    except ImportError:  # Windows
        return _by_file(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _TAKEN:
            raise Held("another sweep writes to it") from None
        return _by_file(path)
    return None


def release(made: Path | None) -> None:
    """Remove a lock file; the lock of the operating system ends when the file is closed."""
    if made is not None:
        made.unlink(missing_ok=True)


def _by_file(path: Path) -> Path:
    beside = path.with_name(path.name + ".lock")
    mine = {"host": socket.gethostname(), "pid": os.getpid()}
    for _ in range(2):
        try:
            made = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            _check_abandoned(beside, mine["host"])
            continue
        except OSError as error:
            raise Held(f"it cannot be locked: {beside}: {error.strerror or error}") from None
        with os.fdopen(made, "w", encoding="utf-8") as file:
            json.dump(mine, file)
        return beside
    raise Held(f"another sweep has just locked it with {beside}")


def _check_abandoned(beside: Path, host: object) -> None:
    """Move away the lock file of a process of this host that is gone; raise `Held` for any other."""
    try:
        text = beside.read_text(encoding="utf-8")
        holder = json.loads(text)
        theirs, pid = str(holder["host"]), int(holder["pid"])
    except FileNotFoundError:  # its holder has just ended
        return
    except (ValueError, KeyError, TypeError, OSError):
        raise Held(f"{beside} locks it, and does not say for whom; remove it if no sweep runs") from None
    if theirs == host and not _runs(pid):
        # A rename, because of two that find it abandoned only one may remove it, and never the lock made after it.
        gone = beside.with_name(f"{beside.name}.{os.getpid()}")
        try:
            os.rename(beside, gone)
            if gone.read_text(encoding="utf-8") != text:  # made since it was read
                os.link(gone, beside)
        except OSError:
            pass
        finally:
            gone.unlink(missing_ok=True)
        return
    raise Held(f"process {pid} on {theirs} writes to it; if that is gone, remove {beside}")


def _runs(pid: int) -> bool:
    if os.name != "posix":  # no way to ask that is harmless
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
