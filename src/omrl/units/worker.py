"""What happens on a machine of the cluster: a unit is done in a scratch folder, and its files go to the driver."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hashlib
import json
import os
import platform
import shutil
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import ray
from ray.actor import ActorHandle

from omrl.units.local import last_line
from omrl.units.transfer import Changes, Message, Places, digest, put, tree
from omrl.units.unit import Outcome, Work, perform

# Seconds between two looks at what a unit has written.
LOOK_SECONDS = 1.0
# A mailbox holds so many bytes; who has more to send waits.
MAILBOX_BYTES = 256 * 2**20
# A driver that asks a mailbox is answered after so long, mail or not.
MAIL_SECONDS = 5.0


@cache
def versions() -> dict[str, str]:
    """What has to be the same everywhere: of omrl every file, so that two checkouts do not pass for one version."""
    own = hashlib.sha256()
    root = Path(str(resources.files("omrl")))
    for path in sorted(root.rglob("*")):
        if path.suffix in (".py", ".toml"):
            own.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return {
        "Python": platform.python_version(),
        "omrl": f"{metadata.version('omrl')} ({own.hexdigest()[:8]})",
        "torch": metadata.version("torch"),
    }


def difference(wanted: Mapping[str, str], node: str) -> str:
    """What is not as it should be here, in a sentence; nothing if all is."""
    found = versions()
    odd = [f"{name} {found[name]} and not {wanted[name]}" for name in wanted if found[name] != wanted[name]]
    return f"Node {node} has {', '.join(odd)}: all nodes have to be as the driver is." if odd else ""


class Mailbox:
    """Where workers put what the driver takes: the driver may be no part of the cluster, and cannot be called."""

    def __init__(self) -> None:
        self._mail: deque[tuple[Any, ...]] = deque()
        self._bytes = 0
        self._there = asyncio.Event()

    async def put(self, *mail: object) -> None:
        """Attempt, number, node and content of a message; it is there when this returns."""
        while self._bytes > MAILBOX_BYTES:
            await asyncio.sleep(0.05)
        self._mail.append(mail)
        self._bytes += _size(mail)
        self._there.set()

    async def take(self) -> list[tuple[object, ...]]:
        """All that came since; waits for some."""
        if not self._mail:
            self._there.clear()
            try:
                await asyncio.wait_for(self._there.wait(), MAIL_SECONDS)
            except TimeoutError:
                return []
        found, self._bytes = list(self._mail), 0
        self._mail.clear()
        return found


def _size(mail: tuple[Any, ...]) -> int:
    content = mail[-1]
    return len(content.data or b"") if isinstance(content, Message) else 0


def _awaited(reference: Any) -> Any:
    """What a reference stands for. Another thread waits for it: Ray gives the core of a task whose own thread waits to
    the next one, and starts a process for that, which takes seconds to load torch.
    """
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(ray.get, reference).result()


class Sender(threading.Thread):
    """Sends what a unit writes and says, while it works."""

    def __init__(self, task: Mapping[str, object], node: str, mailbox: ActorHandle, log: str | None) -> None:
        super().__init__(daemon=True)
        self._attempt, self._node, self._mailbox, self._log = task["attempt"], node, mailbox, log
        self._said = ""
        self._over, self._lock = threading.Event(), threading.Lock()
        self.places = Places([])
        self.changes: Changes | None = None
        self.sent = 0

    def send(self, content: Message) -> None:
        """A file, which has arrived in the mailbox when this returns."""
        _awaited(self._mailbox.put.remote(self._attempt, self.sent, self._node, content))
        self.sent += 1

    def tell(self, text: str) -> None:
        """What a person sees; nothing depends on it, so that it has no number and nobody waits for it."""
        self._mailbox.put.remote(self._attempt, None, self._node, text)

    def run(self) -> None:
        """Look again and again."""
        while not self._over.wait(LOOK_SECONDS):
            self.look(last=False)

    def look(self, last: bool) -> None:
        """Send what is new."""
        with self._lock:
            if last:
                self._over.set()
            elif self._over.is_set():
                return
            if self._log and not last and (line := last_line(Path(self._log))) and line != self._said:
                self._said = line
                self.tell(self.places.there(line.encode(), ".log").decode())
            if self.changes is not None:
                self.changes.look(last, self.send)


def _work_here(work: Work, places: Places) -> Work:
    values: Any = places.here(asdict(work))
    return Work.of(values)


def scratch_of(node: str, driver: str) -> Path:
    """The folder of a driver on a node: several of both may be on one machine."""
    return Path(tempfile.gettempdir(), f"omrl-{os.getuid()}", f"{node[:16]}-{driver}")


@contextmanager
def _at_work(scratch: Path) -> Iterator[None]:
    """As long as the block lasts nobody takes a scratch folder for a left one."""
    while True:
        scratch.mkdir(parents=True, exist_ok=True)
        with _opened(scratch) as folder:
            fcntl.flock(folder, fcntl.LOCK_SH)
            # Another driver may have removed it before it was held.
            if scratch.is_dir() and os.path.samestat(os.fstat(folder), scratch.stat()):
                yield
                return


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    found = os.open(folder, os.O_RDONLY)
    try:
        yield found
    finally:
        os.close(found)


def do(text: str, contents: Sequence[object], mailbox: ActorHandle) -> str:
    """Do a unit that a driver sent; `contents` are references to files, which are fetched where they are not here."""
    task = json.loads(text)
    node: str = ray.get_runtime_context().get_node_id()
    if odd := difference(task["versions"], task["names"].get(node, node[:8])):
        return Outcome("refused", error=odd, node=node).text()
    work = Work.of(task["work"])
    if task["direct"] or not (work.reads or work.writes):
        sender = Sender(task, node, mailbox, work.log)
        if work.reads or work.writes:
            sender.tell("begun")
            sender.start()
        outcome = perform(work, task["threads"])
        sender.look(last=True)
    else:
        scratch = scratch_of(node, task["driver"])
        with _at_work(scratch):
            # A name that no other attempt has: what a lost one still writes is nobody's.
            own = scratch / "units" / f"{task['attempt']}"
            try:
                outcome, sender = _in_scratch(task, work, contents, mailbox, node, own)
            finally:
                shutil.rmtree(own, ignore_errors=True)
        if outcome.status == "failed" and os.strerror(errno.ENOSPC) in outcome.error:
            outcome = replace(outcome, status="odd")  # this machine's disk is full, others' may not be
    return replace(outcome, node=node, sent=sender.sent).text()


def _in_scratch(
    task: Mapping[str, Any], work: Work, contents: Sequence[Any], mailbox: Any, node: str, own: Path
) -> tuple[Outcome, Sender]:
    written = [(path, str(own / _parent(path) / Path(path).name)) for path in work.writes]
    sender = Sender(task, node, mailbox, dict(written).get(work.log or ""))
    sender.tell("begun")
    pairs = list(written)
    for read in task["reads"]:
        found = _shared(read, contents, own.parents[1] / "shared", pairs)
        if found is None:
            error = f"{read['path']} could not be made again on node {node[:8]} as the driver has it"
            return Outcome("differs", result=read["path"], error=error), sender
        pairs.append((read["path"], str(found)))
    places = Places(pairs)
    for path, here in written:
        for name, (wanted, place) in task["writes"].get(path, {}).items():
            target = Path(here, name) if name else Path(here)
            put(target, data := _awaited(contents[place]), wanted)
            target.write_bytes(places.brought(data, target.name))
        Path(here).parent.mkdir(parents=True, exist_ok=True)
    sender.places, changes = places, Changes([Path(here) for _, here in written], places)
    sender.changes = changes if work.streams else None
    sender.start()
    outcome = perform(_work_here(work, places), task["threads"])
    sender.changes = changes
    sender.look(last=True)
    error, trace = (places.there(said.encode(), ".log").decode() for said in (outcome.error, outcome.trace))
    return replace(outcome, error=error, trace=trace), sender


def _parent(path: str) -> str:
    """Neighbours stay neighbours."""
    return hashlib.sha256(str(Path(path).parent).encode()).hexdigest()[:12]


def _shared(
    read: Mapping[str, Any], contents: Sequence[Any], root: Path, read_earlier: Sequence[tuple[str, str]] = ()
) -> Path | None:
    """A folder that is read, which every unit on this node finds here; None if it cannot be made again as it is.

    It may name folders that were `read_earlier`.
    """
    wanted = {name: one[0] for name, one in read["files"].items()}
    place, name = root / digest(wanted), Path(read["path"]).name
    root.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(place.with_suffix(".lock")):
        if not place.exists():
            with tempfile.TemporaryDirectory(dir=root) as temporary:
                new = Path(temporary, "made", name)
                if read["remake"] is not None:
                    if not _remake(read, contents, new, root) or tree(new) != wanted:
                        return None
                else:
                    for file, (digits, number) in read["files"].items():
                        put(target := new / file, data := _awaited(contents[number]), digits)
                        target.write_bytes(Places(read_earlier).brought(data, target.name))
                new.parent.rename(place)
    return place / name


def _remake(read: Mapping[str, Any], contents: Sequence[Any], new: Path, root: Path) -> bool:
    work = Work.of(read["remake"]["work"])
    pairs = [(read["path"], str(new))]
    for needed in read["remake"]["reads"]:
        found = _shared(needed, contents, root)
        assert found is not None  # what something is made from is moved
        pairs.append((needed["path"], str(found)))
    new.parent.mkdir(parents=True)
    places = Places(pairs)
    log = str(new.parent.with_suffix(".log"))
    return perform(replace(_work_here(work, places), log=log)).status == "done"


@contextmanager
def _one_at_a_time(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # waits; the system frees it when its holder dies
        yield


def clear(node: str, driver: str) -> None:
    """Leave nothing of a driver's on a node, nor what drivers left that were killed: in those folders nobody works."""
    own = scratch_of(node, driver)
    shutil.rmtree(own, ignore_errors=True)
    for left in own.parent.iterdir() if own.parent.is_dir() else ():
        with suppress(OSError), _opened(left) as folder:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
