"""What can happen to a process at a file operation: a kill before it or inside a write, a full disk, no right.

Operations are those that change something: files opened for writing, renames, removals, new folders, syncs.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path

CHANGES = ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.symlink", "os.link")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
# What is opened by its folder has a relative name.
LOCKS = (".lock",)

Happens = Callable[[int, str, str, int], None]
"""Number of the operation, which it is, on what, and the flags of an open."""


def watch(inside: Path, happens: Happens) -> list[str]:
    """From now on call `happens` before every operation on files of a folder; all that came are in the list."""
    done: list[str] = []

    def before(what: str, path: object, flags: int = 0) -> None:
        if str(path).startswith(str(inside)) or str(path).endswith(LOCKS):
            done.append(f"{what} {path}")
            happens(len(done), what, str(path), flags)

    def hook(event: str, args: tuple[object, ...]) -> None:
        if event in CHANGES:
            before(event, args[0])
        elif event == "open" and isinstance(args[2], int) and args[2] & WRITES:
            before(event, args[0], args[2])

    fsync = os.fsync

    def synced(descriptor: int) -> None:
        before("os.fsync", Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    os.fsync = synced
    sys.addaudithook(hook)
    return done


def nothing(number: int, what: str, path: str, flags: int) -> None:
    """To count them."""


def kill(at: int) -> Happens:
    """Die before an operation."""

    def happens(number: int, what: str, path: str, flags: int) -> None:
        if number == at:
            os.kill(os.getpid(), signal.SIGKILL)

    return happens


def kill_when(what: str, end: str) -> Happens:
    """Die before an operation on a file of that name."""

    def happens(_: int, found: str, path: str, flags: int) -> None:
        if found == what and path.endswith(end):
            os.kill(os.getpid(), signal.SIGKILL)

    return happens


def tear(at: int, after: int) -> Happens:
    """Die inside a write: of the file that is opened then so many bytes arrive."""

    def happens(number: int, what: str, path: str, flags: int) -> None:
        if number == at and what == "open":
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            _stop_at(path, flags, after)

    return happens


def _stop_at(path: str, flags: int, after: int) -> None:
    there = 0 if flags & os.O_TRUNC or not Path(path).exists() else Path(path).stat().st_size
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (there + after, hard))


def full(at: int) -> Happens:
    """From an operation on there is no room for anything new."""

    def happens(number: int, what: str, path: str, flags: int) -> None:
        if number >= at and (what == "os.mkdir" or (what == "open" and flags & os.O_CREAT)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        if number >= at and what == "os.fsync":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return happens


def too_large(at: int) -> Happens:
    """From an operation on no file may grow: as `ulimit -f` has it, and what a write meets on a full disk."""

    def happens(number: int, what: str, path: str, flags: int) -> None:
        if number == at and what == "open":
            _stop_at(path, flags, 5)

    return happens


def forbidden(at: int) -> Happens:
    """One operation is not allowed, as it is where a folder belongs to somebody else."""

    def happens(number: int, what: str, path: str, flags: int) -> None:
        if number == at:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    return happens
