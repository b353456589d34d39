"""Something done in a forked child: what it said, how long it took and how much memory, however it ended."""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

GB = 1024**3


@dataclass(frozen=True)
class Ended:
    """How a child ended."""

    answer: object = None
    error: str | None = None
    """The exception's class."""
    kinds: tuple[str, ...] = ()
    """That class and those it derives from."""
    sentence: str = ""
    trace: str = ""
    said: str = ""
    """On stdout and stderr."""
    signal: int = 0
    hung: bool = False
    seconds: float = 0.0
    grown: int = 0
    """Bytes of memory beyond what the process had when it was forked."""


def attempt(work: Callable[[], object], seconds: float = 10.0, memory: int | None = GB) -> Ended:
    """Do it in a child of its own group, with limits; its answer has to be JSON."""
    (reader, writer), (heard, said) = os.pipe(), os.pipe()
    started = time.monotonic()
    # On a machine with other work everything takes longer.
    seconds *= max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    child = os.fork()
    if child == 0:
        _child(work, writer, said, memory, seconds)
    os.close(writer)
    os.close(said)
    found, words, hung = _wait(reader, heard, started + seconds)
    # Whatever it started goes with it.
    for end in (os.killpg, os.kill) if hung else (os.killpg,):
        with suppress(ProcessLookupError):
            end(child, signal.SIGKILL)
    _, status, used = os.wait4(child, 0)
    took = time.monotonic() - started
    ended = json.loads(found) if found else {}
    # Of memory that is shared with the parent a child has only what it touched.
    grown = max(used.ru_maxrss * 1024 - ended.pop("began_with", _resident()), 0)
    killed = 0 if found else os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    return Ended(**ended, said=words, signal=killed, hung=hung, seconds=took, grown=grown)


def _child(work: Callable[[], object], writer: int, said: int, memory: int | None, seconds: float) -> None:
    try:
        os.setpgid(0, 0)
        for stream in (1, 2):
            os.dup2(said, stream)
        sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        faulthandler.dump_traceback_later(seconds * 0.9, file=2)  # where it hangs
        if memory is not None:
            room = _virtual() + memory
            resource.setrlimit(resource.RLIMIT_AS, (room, room))
        began_with = _resident()
        text = json.dumps({"answer": work(), "began_with": began_with})
    except BaseException as error:
        kinds = [kind.__name__ for kind in type(error).__mro__]
        found = {"error": kinds[0], "kinds": kinds, "sentence": str(error)[:5000]}
        text = json.dumps({**found, "trace": traceback.format_exc()[-4000:]})
    try:
        sys.stdout.flush()
        os.write(writer, text.encode())
    finally:
        os._exit(0)


def _wait(reader: int, heard: int, until: float) -> tuple[str, str, bool]:
    """What a child answers before it ends, what it says, and whether it does not end."""
    parts: dict[int, list[bytes]] = {reader: [], heard: []}
    open_, hung = {reader, heard}, False
    while reader in open_ and not hung:
        ready, _, _ = select.select([*open_], [], [], max(until - time.monotonic(), 0))
        hung = not ready
        for pipe in ready:
            part = os.read(pipe, 65536)
            parts[pipe].append(part)
            if not part:
                open_.discard(pipe)
    os.set_blocking(heard, False)
    with suppress(BlockingIOError):
        while part := os.read(heard, 65536):
            parts[heard].append(part)
    for pipe in (reader, heard):
        os.close(pipe)
    words = b"".join(parts[heard]).decode(errors="replace")
    return ("" if hung else b"".join(parts[reader]).decode()), words[-20_000:], hung


def _virtual() -> int:
    return _pages()[0] * resource.getpagesize()


def _resident() -> int:
    return _pages()[1] * resource.getpagesize()


def _pages() -> list[int]:
    with open("/proc/self/statm") as file:  # noqa: PTH123
        return [int(word) for word in file.read().split()]
