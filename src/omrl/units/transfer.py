"""How files get from a driver to a worker and back, where the two share no file system.

A path of the driver's has a place on the worker: a folder that is only read lies there once for all units, under the
digest of its content; what is written lies in a folder of its own. Every file is named with its sha256, and checked
when it arrives. Messages of a unit are numbered: after one that got lost no other counts, so that what has arrived is
always what the worker had at some moment.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from omrl.errors import OmrlError
from omrl.storage.files import replacing
from omrl.storage.folders import LOCK

# Files that name others: they are read before those, and sent after them.
POINTERS = ("latest", "state.safetensors", "manifest.json", "policies.json", "results.json")
# Files in which paths of the driver's are written.
WITH_PATHS = (".json", ".html", ".log", ".csv", ".md")


def sha256(data: bytes) -> str:
    """In hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def _file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def files(root: Path) -> list[str]:
    """Names of all files in a folder, relative to it; of a file itself the empty name. What is half written is not one.

    A link to a file is that file: it may lie elsewhere on this machine, and does not on others.
    """
    if root.is_file():
        return [""]
    found = []
    for parent, _, names in os.walk(root):
        found += [
            Path(parent, name).relative_to(root).as_posix()
            for name in names
            if name != LOCK and not name.endswith((".lock", ".tmp")) and Path(parent, name).is_file()
        ]
    return sorted(found)


def tree(root: Path) -> dict[str, str]:
    """Every file of a folder with its sha256."""
    return {name: _file_sha256(root / name) for name in files(root)}


def digest(content: Mapping[str, str]) -> str:
    """Of a folder's whole content."""
    return sha256(repr(sorted(content.items())).encode())[:24]


@dataclass(frozen=True)
class Places:
    """Where the driver's paths lie here."""

    pairs: Sequence[tuple[str, str]]
    """The driver's, and ours."""

    def here(self, value: object) -> object:
        """JSON with the driver's paths as ours; those of longer names first, which may lie in others."""
        if isinstance(value, str):
            for there, here in sorted(self.pairs, key=lambda pair: -len(pair[0])):
                if value == there or value.startswith(f"{there}/"):
                    return here + value[len(there) :]
            return value
        if isinstance(value, Mapping):
            return {key: self.here(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.here(one) for one in value]
        return value

    def there(self, data: bytes, name: str) -> bytes:
        """What a file says, with our paths as the driver's."""
        if name.endswith(WITH_PATHS):
            for there, here in self.pairs:
                data = data.replace(here.encode(), there.encode())
        return data

    def brought(self, data: bytes, name: str) -> bytes:
        """What a file of the driver's says, with its paths as ours."""
        if name.endswith(WITH_PATHS):
            for there, here in sorted(self.pairs, key=lambda pair: -len(pair[0])):
                data = data.replace(there.encode(), here.encode())
        return data


def put(path: Path, data: bytes, wanted: str) -> None:
    """Write a file that has arrived, if it is what was sent."""
    if sha256(data) != wanted:
        raise OmrlError(f"{path} did not arrive as it was sent: its sha256 is another.")
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_bytes(data)


@dataclass(frozen=True)
class Message:
    """A file of a unit, on its way to the driver; one without data is gone."""

    path: str
    """As the driver calls it."""
    sha256: str
    data: bytes | None


class Changes:
    """What has changed in the files that a unit writes, since it was looked at last."""

    def __init__(self, roots: Sequence[Path], places: Places) -> None:
        self._roots, self._places = roots, places
        self._seen: dict[Path, tuple[int, int]] = {}
        for root in roots:  # what is there came from the driver
            self._seen |= stamps(root)

    def look(self, last: bool, send: Callable[[Message], None]) -> None:
        """Send them, so that after each message what has arrived is whole."""
        for root in self._roots:
            if not root.parent.is_dir():  # somebody removed it all: this is nothing that the unit did
                raise OmrlError(f"{root.parent} is gone, in which a unit worked.")
            present = list(_paths(root))
            pointers = {path: _read(path) for path in present if path.name in POINTERS}
            for path in present:
                # TensorBoard's files grow all the time, and say nothing new.
                if path not in pointers and (last or "events" not in path.parts):
                    self._send(path, send)
            for path, data in pointers.items():
                if data is not None and _read(path) == data:  # else what it names now may not have been sent
                    self._send(path, send, data)
            for path in [path for path in self._seen if path.is_relative_to(root) and path not in present]:
                del self._seen[path]
                send(Message(self._driver(path), "", None))

    def _send(self, path: Path, send: Callable[[Message], None], data: bytes | None = None) -> None:
        stamp = _stamp(path)
        if stamp == self._seen.get(path):
            return
        data = _read(path) if data is None else data
        if data is not None:
            data = self._places.there(data, path.name)
            send(Message(self._driver(path), sha256(data), data))
            self._seen[path] = stamp

    def _driver(self, path: Path) -> str:
        return self._places.there(str(path).encode(), ".json").decode()


def stamps(root: Path) -> dict[Path, tuple[int, int]]:
    """Time and size of every file: while they stay, so does what the files say."""
    return {path: _stamp(path) for path in _paths(root)}


def _paths(root: Path) -> Iterator[Path]:
    return (root / name if name else root for name in files(root))


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except FileNotFoundError:
        return (-1, -1)
    return (found.st_mtime_ns, found.st_size)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def receive(message: Message, writes: Iterable[str]) -> None:
    """Put a file where it belongs, which has to be where its unit may write."""
    path = Path(message.path)
    if ".." in path.parts or not any(path.is_relative_to(root) for root in writes):
        raise OmrlError(f"{path} was sent by a unit that has no business there.")
    if message.data is None:
        path.unlink(missing_ok=True)
    else:
        put(path, message.data, message.sha256)
