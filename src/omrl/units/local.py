"""Doing units here: one after the other in this process, or several at once in processes of their own."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from multiprocessing import connection, get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from omrl.units.schedule import Event
from omrl.units.unit import Outcome, Unit, Work, perform
from omrl.words import quantity

HERE = "this machine"
# How often a person sees what is said, at least.
LOOK_SECONDS = 1.0


class Inline:
    """One after the other, in this process; what they say is said here."""

    def __init__(self) -> None:
        self._next: tuple[Unit, Work] | None = None
        self._begun = False

    def has_room(self, gpu: bool) -> bool:
        """One at a time."""
        return self._next is None

    def start(self, unit: Unit, work: Work) -> None:
        """Take a unit."""
        self._next, self._begun = (unit, work), False

    def wait(self) -> list[Event]:
        """Say what comes, then do it."""
        if self._next is None:  # what is left waits for another process
            time.sleep(LOOK_SECONDS)
            return []
        unit, work = self._next
        if not self._begun:
            self._begun = True
            return [Event("begun", unit.name, HERE)]
        outcome = perform(replace(work, log=None), unit.threads)
        self._next = None
        return [Event("ended", unit.name, HERE, outcome=outcome)]

    def nodes(self) -> Mapping[str, str]:
        """This one."""
        return {HERE: ""}

    def close(self) -> None:
        """Nothing runs beside."""


class Processes:
    """Several at once. A process stays for the next unit, unless it has used a GPU, whose memory it would keep.

    Units that need a GPU leave the cores idle for most of the time: those that need none go on beside them.
    """

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        # A process that has used CUDA cannot be forked.
        self._context = get_context("spawn")
        self._idle: list[tuple[BaseProcess, Connection]] = []
        self._running: dict[str, tuple[BaseProcess, Connection, Work, bool]] = {}
        self._begun: list[Event] = []
        self._said: dict[str, str] = {}

    def has_room(self, gpu: bool) -> bool:
        """So many that need a GPU, and beside them so many that need none."""
        return sum(last == gpu for *_, last in self._running.values()) < self._at_once

    def start(self, unit: Unit, work: Work) -> None:
        """Give it to a process."""
        process, pipe = self._idle.pop() if self._idle else self._process()
        last = unit.gpu > 0
        text = json.dumps({"work": asdict(work), "threads": unit.threads, "last": last})
        try:
            pipe.send_bytes(text.encode())
        except OSError:  # it has ended while it was idle
            process, pipe = self._process()
            pipe.send_bytes(text.encode())
        self._running[unit.name] = (process, pipe, work, last)
        self._begun.append(Event("begun", unit.name, HERE))

    def _process(self) -> tuple[BaseProcess, Connection]:
        here, there = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(there,), daemon=False)
        process.start()
        there.close()
        return process, here

    def wait(self) -> list[Event]:
        """Until one has ended, or a second has passed."""
        if self._begun:
            events, self._begun = self._begun, []
            return events
        names = {pipe: name for name, (_, pipe, _, _) in self._running.items()}
        events = [self._ended(names[pipe]) for pipe in connection.wait(list(names), LOOK_SECONDS)]  # type: ignore[index]
        for name, (_, _, work, _) in self._running.items():
            if work.log and (line := last_line(Path(work.log))) and line != self._said.get(name):
                self._said[name] = line
                events.append(Event("said", name, HERE, line))
        return events

    def _ended(self, name: str) -> Event:
        process, pipe, work, last = self._running.pop(name)
        try:
            outcome = Outcome(**json.loads(pipe.recv_bytes()))
        except (EOFError, OSError):
            process.join()
            outcome = Outcome("lost", error=f"its process ended with {process.exitcode}", trace=tail(work.log))
        else:
            if last:
                process.join()  # the next one may need the memory
                pipe.close()
            else:
                self._idle.append((process, pipe))
        return Event("ended", name, HERE, outcome=outcome)

    def nodes(self) -> Mapping[str, str]:
        """This one."""
        return {HERE: f"{quantity(len(self._running), 'unit')} at work"}

    def close(self) -> None:
        """End the processes; what they were at goes on from its last save."""
        served = [*self._idle, *((process, pipe) for process, pipe, _, _ in self._running.values())]
        for process, pipe in served:
            pipe.close()
            process.terminate()
        for process, _ in served:
            process.join()
        self._idle, self._running = [], {}


def last_line(log: Path) -> str:
    """What was said last."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line for line in reversed(lines) if line.strip()), "")


def tail(log: str | None, lines: int = 20) -> str:
    """The end of what a unit said."""
    try:
        return "\n".join(Path(log).read_text(errors="replace").splitlines()[-lines:]) if log else ""
    except OSError:
        return ""


def _serve(pipe: Connection) -> None:
    """What a process does: units, until its parent has no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is the parent who ends it
    threading.Thread(target=_end_with_parent, daemon=True).start()
    while True:
        try:
            given = json.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            return
        outcome = perform(Work.of(given["work"]), given["threads"])
        pipe.send_bytes(outcome.text().encode())
        if given["last"]:
            return


def _end_with_parent() -> None:
    """A study that is killed leaves nobody behind who still writes its runs."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
