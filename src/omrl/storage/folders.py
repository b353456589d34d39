"""The folders that omrl makes. A marker in each says what it is; no other folder is deleted or written into.

    runs/focal/.omrl.json    {"omrl": "run", "schema": 1}

The marker is the first file of a new folder and the last that goes when one is deleted: what a kill leaves half made or
half deleted is still known to be ours. A folder takes the place of another by renames, and what a kill leaves of them
is cleared up when the same folder is written again:

    .NAME.old        the whole folder that is being replaced; it gets its name back if the new one did not come
    .NAME.deleted    on its way out

These, too, are deleted only where they are of the kind that is written, and hold nothing that omrl did not write.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from omrl.errors import OmrlError
from omrl.schema import read, settings
from omrl.storage.files import read_json, sync_folder, write_json
from omrl.words import an

MARKER = ".omrl.json"
SCHEMA = 1
LOCK = ".lock"
# What a lock says of who holds it begins so.
HOLDER = "process "
# So many names of files are told.
SHOWN = 5


@dataclass(frozen=True)
class Kind:
    """What a folder can be."""

    name: str
    """In its marker, and in sentences."""
    key: str
    """The file without which it is not whole."""
    files: tuple[str, ...]
    """Patterns of all that may be in it."""
    adopted: bool = True
    """Whether `omrl adopt` knows it."""


@settings
class Marker:
    """What a marker says."""

    omrl: str
    schema: int


def place(path: str | os.PathLike[str]) -> Path:
    """Where an output really goes: links are followed, for every command alike, but none that leads nowhere."""
    found = Path(path)
    for one in (found, *found.parents):
        if one.is_symlink() and not one.exists():
            raise OmrlError(f"{one} is a link to {one.readlink()}, which does not exist.")
    return found.resolve()


def beside(folder: Path, end: str) -> Path:
    """A hidden name of omrl's own beside a folder; what is there is a folder of ours, and no link to another."""
    found = folder.with_name(f".{folder.name}.{end}")
    if found.is_symlink():
        raise OmrlError(f"{found} is in the way: it is a link, and omrl makes none.")
    return found


def keep_apart(out: Path, *inputs: Path) -> None:
    """Refuse an output that would be written into one of its inputs, or over it."""
    for given in inputs:
        one, other = place(out), place(given)
        if one == other:
            raise OmrlError(f"{out} is what is read; choose another folder to write.")
        if other.is_relative_to(one):
            raise OmrlError(f"{out} holds {given}, which is read; choose another folder to write.")
        if one.is_relative_to(other):
            raise OmrlError(f"{out} lies in {given}, which is read; choose another folder to write.")


# -- whose a folder is -------------------------------------------------------------------------------------------------


def marked_as(folder: Path) -> str | None:
    """The kind that a folder's marker names, if it has one."""
    path = folder / MARKER
    if not path.is_file():
        return None
    marker = read(Marker, read_json(path), path)
    if marker.schema != SCHEMA:
        raise OmrlError(f"{path} has schema {marker.schema}, of a newer omrl perhaps: this one reads {SCHEMA}.")
    return marker.omrl


def mark(folder: Path, kind: Kind) -> None:
    """Say that a folder is ours."""
    write_json(folder / MARKER, {"omrl": kind.name, "schema": SCHEMA})


def vacant(folder: Path) -> bool:
    """Whether there is nothing: no folder, or one that is empty but for what a kill left of its marker."""
    if folder.is_symlink() or folder.exists():
        return folder.is_dir() and {path.name for path in folder.iterdir()} <= {f".{MARKER}.tmp"}
    return True


def claim(folder: Path, kind: Kind, known: bool = False) -> None:
    """Make a folder, or go on with one of ours; `known` where its content says so, as before there were markers."""
    if vacant(folder):
        folder.mkdir(parents=True, exist_ok=True)
        mark(folder, kind)
    elif not known or marked_as(folder) is not None:
        _check_kind(folder, kind)


def check_replaceable(folder: Path, kind: Kind) -> None:
    """Refuse to replace what is not ours, or holds what is not."""
    if vacant(folder):
        return
    if kind.adopted and folder.is_dir() and marked_as(folder) is None and (folder / kind.key).is_file():
        raise OmrlError(
            f"{folder} has no {MARKER} that says it is omrl's and may be deleted; if it is, "
            f"`omrl adopt {folder}` checks it and adds one."
        )
    _check_kind(folder, kind)
    check_own(folder, kind)


def check_own(folder: Path, kind: Kind) -> None:
    """Refuse to delete what lies in a folder and is not ours."""
    if odd := foreign(folder, kind):
        more = f" and {len(odd) - SHOWN} more" if len(odd) > SHOWN else ""
        raise OmrlError(f"{folder} holds {', '.join(odd[:SHOWN])}{more}, which omrl did not write; it is not replaced.")


def _check_kind(folder: Path, kind: Kind) -> None:
    found = marked_as(folder) if folder.is_dir() else None
    if found != kind.name:
        what = "exists and" if found is None else f"is {an(found)} and"
        raise OmrlError(f"{folder} {what} is not {an(kind.name)}; nothing in it is touched.")


def foreign(folder: Path, kind: Kind) -> list[str]:
    """What lies in a folder and does not belong to its kind, links included."""
    patterns = [tuple(pattern.split("/")) for pattern in (MARKER, LOCK, ".*.lock", *kind.files)]
    odd = []
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent, name)
            parts = path.relative_to(folder).parts
            if path.is_dir() and not path.is_symlink():
                fits = any(len(parts) < len(pattern) and _fits(parts, pattern) for pattern in patterns)
            else:
                finished = (
                    *parts[:-1],
                    parts[-1].removeprefix(".").removesuffix(".tmp"),
                )  # of a kill while it is written
                ends = (parts, finished) if name.endswith(".tmp") else (parts,)
                fits = not path.is_symlink() and any(
                    len(one) == len(pattern) and _fits(one, pattern) for one in ends for pattern in patterns
                )
            if not fits:
                odd.append("/".join(parts))
    return sorted(odd)


def _fits(parts: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    return all(fnmatchcase(part, wanted) for part, wanted in zip(parts, pattern, strict=False))


# -- replacing and deleting --------------------------------------------------------------------------------------------


def discard(folder: Path, kind: Kind, held: bool = False) -> None:
    """Delete a folder of ours and nothing else, unless another process writes it; `held` by whom has its lock."""
    check_replaceable(folder, kind)
    if folder.exists():
        with nullcontext() if held else only_writer(folder):
            _delete(folder, folder, kind)


def clear(folder: Path, kind: Kind) -> None:
    """Leave nothing of a folder of ours but that it is, and is being written."""
    check_replaceable(folder, kind)
    for path in folder.iterdir():
        if path.name not in (MARKER, LOCK):
            _remove(path)


def put(new: Path, target: Path, kind: Kind) -> None:
    """Give a finished folder its name, in the place of an earlier one of its kind. All paths are real ones."""
    check_replaceable(target, kind)
    old = beside(target, "old")
    if vacant(target):
        if target.exists():
            _empty(target)
    else:
        target.rename(old)
    new.rename(target)
    sync_folder(target.parent)
    if old.exists():
        _delete(old, target, kind)


def clear_up(target: Path, kind: Kind) -> None:
    """End what a kill interrupted while `target` was being replaced or deleted."""
    if (target / LOCK).exists():
        with only_writer(target):
            """It goes when it is given back; where another process has it, that is the error."""
    deleted, old = (beside(target, end) for end in ("deleted", "old"))
    for left in (deleted, old):
        _check_left(left, kind)
    if deleted.exists():
        _empty(deleted)
    if old.exists() and vacant(target):
        if target.exists():
            _empty(target)
        old.rename(target)
    elif old.exists():
        _delete(old, target, kind)


def _check_left(folder: Path, kind: Kind) -> None:
    """Refuse what has a name that a kill leaves, and is something else."""
    try:
        check_replaceable(folder, kind)
    except OmrlError as error:
        raise OmrlError(f"{folder} is in the way: {error}") from None


@contextmanager
def replacing(target: Path, kind: Kind) -> Iterator[Path]:
    """Yield a new folder beside `target`; when the block ends well, it takes the place of an earlier one."""
    target = place(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    # Beside the folder: what is locked inside of it would be renamed under whoever comes second.
    with only_writer_of(target):
        clear_up(target, kind)
        check_replaceable(target, kind)
        new = beside(target, "tmp")
        claim(new, kind)
        clear(new, kind)  # of what a kill left
        try:
            yield new
            put(new, target, kind)
        except BaseException:
            if new.exists():
                _delete(new, target, kind)
            raise


def _delete(folder: Path, target: Path, kind: Kind) -> None:
    """Under a name that says so first: what is half deleted must not be taken for whole."""
    deleted = beside(target, "deleted")
    _check_left(deleted, kind)
    if deleted.exists():
        _empty(deleted)
    folder.rename(deleted)
    _empty(deleted)


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.name != MARKER:
            _remove(path)
    (folder / MARKER).unlink(missing_ok=True)
    folder.rmdir()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


# -- one writer at a time ----------------------------------------------------------------------------------------------


class BeingWritten(OmrlError):
    """Another process holds a lock: it may help to wait."""


@contextmanager
def only_writer(folder: Path, lock: str = LOCK, what: Path | None = None) -> Iterator[None]:
    """Hold a lock in a folder, on itself or on `what` is in it; while another process does, say which.

    The system frees it when its holder dies.
    """
    # By the open folder: it may have another name when the lock is given back.
    opened = os.open(folder, os.O_RDONLY)
    try:
        held = _lock(lock, opened, folder, what or folder)
        try:
            os.ftruncate(held, 0)
            os.pwrite(held, f"{HOLDER}{os.getpid()} on {socket.gethostname()}".encode(), 0)
            yield
        finally:
            with suppress(FileNotFoundError):
                os.unlink(lock, dir_fd=opened)
            os.close(held)
    finally:
        os.close(opened)


@contextmanager
def only_writer_of(path: Path) -> Iterator[None]:
    """The same for a single file, which need not be there yet, but its folder."""
    with only_writer(path.parent, f".{path.name}.lock", path):
        yield


def _lock(lock: str, opened: int, folder: Path, what: Path) -> int:
    path = folder / lock
    while True:
        try:
            held = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666, dir_fd=opened)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise _no_lock(path) from None
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            who = os.read(held, 200).decode(errors="replace") or "another process"
            os.close(held)
            raise BeingWritten(f"{what} is being written by {who}; wait until it has ended.") from None
        except OSError:  # some file systems of clusters have no locks, and are no reason not to work there
            return _checked_lock(held, path)
        # The one who held it may have removed the file after it was opened here.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(held), os.stat(lock, dir_fd=opened, follow_symlinks=False)):
                return _checked_lock(held, path)
        os.close(held)


def _checked_lock(held: int, path: Path) -> int:
    """A lock that may be written into: nobody's file by another name, and nothing but what a holder says."""
    about = os.fstat(held)
    plain = stat.S_ISREG(about.st_mode) and about.st_nlink == 1
    # Of a holder that was killed while it wrote, a part is there.
    if plain and HOLDER.startswith(os.pread(held, len(HOLDER), 0).decode(errors="replace")):
        return held
    os.close(held)
    raise _no_lock(path)


def _no_lock(path: Path) -> OmrlError:
    return OmrlError(f"{path} is in the way: omrl locks by this name, and did not make it.")
