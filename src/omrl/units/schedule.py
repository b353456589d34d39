"""Which unit comes next, and what becomes of those that are lost, fail, or do not fit.

The order is that of list scheduling: of all units whose predecessors are done, the one with the longest chain of work
behind it goes first, unless ranks say otherwise. Where some need a GPU, those that need none go before them: they are
short, and what they finish is there if the rest is interrupted. A unit that is lost is prepared again, which finds what
it had reached. One that fails takes those with it that need it, and no other.
"""

from __future__ import annotations

import heapq
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from omrl.errors import OmrlError
from omrl.storage.folders import BeingWritten
from omrl.units.unit import Outcome, Unit, Work

# A unit whose process or machine is lost so often is taken to be the reason.
MOST_LOSSES = 10
# Seconds until a folder that another process writes is tried again.
BUSY_SECONDS = 2.0
MOST_BUSY = 30


@dataclass(frozen=True)
class Event:
    """What an executor has to tell of a unit."""

    what: Literal["begun", "said", "lost", "ended"]
    unit: str
    node: str = ""
    text: str = ""
    outcome: Outcome | None = None


class Executor(Protocol):
    """Where units are done."""

    def has_room(self, gpu: bool) -> bool:
        """Whether another unit should be given to it, of those that need a GPU or of those that need none."""

    def start(self, unit: Unit, work: Work) -> None:
        """Take a unit."""

    def wait(self) -> list[Event]:
        """What happened since; some time may pass before anything does."""

    def nodes(self) -> Mapping[str, str]:
        """Names of the machines there are, and what is said of each."""

    def close(self) -> None:
        """End what still runs, so that all of it can be gone on with."""


class Watcher(Protocol):
    """Who is told how it goes."""

    def told(self, event: Event) -> None:
        """Something happened."""

    def looked(self, nodes: Mapping[str, str]) -> None:
        """Time has passed."""

    def grown(self, units: Iterable[Unit]) -> None:
        """There are more units than were planned."""


Prepare = Callable[[Unit], Work | str | None]
"""What a unit whose predecessors are done has to do; nothing if it is done already, a unit's name if that does it."""
Split = Callable[[Unit], Sequence[Unit]]
"""Units that do what one does that does not fit into a GPU, the last of them under its name; none if there are none."""


def chains(units: Sequence[Unit]) -> dict[str, float]:
    """Seconds from the start of each unit to the end of the longest chain of those that wait for it."""
    followers: dict[str, list[str]] = {unit.name: [] for unit in units}
    seconds = {unit.name: unit.seconds for unit in units}
    waits = {unit.name: len(unit.after) for unit in units}
    for unit in units:
        for name in unit.after:
            followers[name].append(unit.name)
    first = [name for name, count in waits.items() if count == 0]
    for name in first:  # grows while it is read: every unit once all before it are there
        for follower in followers[name]:
            waits[follower] -= 1
            if waits[follower] == 0:
                first.append(follower)
    if len(first) < len(units):
        raise ValueError("Units wait for one another.")
    found: dict[str, float] = {}
    for name in reversed(first):
        found[name] = seconds[name] + max((found[one] for one in followers[name]), default=0.0)
    return found


class Schedule:
    """Units on their way: waiting, ready, running, ended."""

    def __init__(self, units: Sequence[Unit]) -> None:
        self.units: dict[str, Unit] = {}
        self.ended: dict[str, Outcome] = {}
        self._followers: dict[str, list[str]] = {}
        self._open: dict[str, int] = {}
        self._ready: dict[bool, list[tuple[int, float, int, str]]] = {False: [], True: []}
        """By whether they need a GPU: those that need none never wait for one."""
        self._order: dict[str, tuple[int, float, int]] = {}
        self.add(units)

    def add(self, units: Sequence[Unit]) -> None:
        """More units; one that is there takes the place of the earlier one of its name."""
        places = {name: place for name, (*_, place) in self._order.items()}
        self.units |= {unit.name: unit for unit in units}
        length = chains(list(self.units.values()))
        for unit in units:
            place = places.get(unit.name, len(self._order))
            self._order[unit.name] = (unit.rank, -length[unit.name], place)
            missing = [name for name in unit.after if name not in self.ended]
            for name in missing:
                self._followers.setdefault(name, []).append(unit.name)
            self._open[unit.name] = len(missing)
            if not missing:
                self.again(unit.name)

    def again(self, name: str) -> None:
        """It is ready, once more perhaps."""
        heapq.heappush(self._ready[self.units[name].gpu > 0], (*self._order[name], name))

    def wait(self, name: str, other: str) -> None:
        """One that was ready turned out to need another."""
        self._followers.setdefault(other, []).append(name)
        self._open[name] += 1

    def next(self, has_room: Callable[[bool], bool] = lambda gpu: True) -> Unit | None:
        """The ready unit that comes first, of those that there is room for."""
        for gpu, ready in self._ready.items():
            if ready and has_room(gpu):
                return self.units[heapq.heappop(ready)[-1]]
        return None

    def end(self, name: str, outcome: Outcome) -> list[str]:
        """Who could go on goes on; those that cannot any more are returned, and have ended too."""
        self.ended[name] = outcome
        fallen = []
        for follower in self._followers.get(name, ()):
            if follower in self.ended:
                continue
            if outcome.status == "done":
                self._open[follower] -= 1
                if self._open[follower] == 0:
                    self.again(follower)
            else:
                fallen += [follower, *self.end(follower, self.fallen_with(name))]
        return fallen

    def fallen_with(self, name: str) -> Outcome:
        """How a unit ends that needs one that failed."""
        return Outcome("failed", error=f"{self.units[name].label} failed, which it needs")

    @property
    def over(self) -> bool:
        """Whether all have ended."""
        return len(self.ended) == len(self.units)


def run_all(
    units: Sequence[Unit], prepare: Prepare, executor: Executor, watcher: Watcher, split: Split | None = None
) -> dict[str, Outcome]:
    """Do all units; how each ended."""
    schedule = Schedule(units)
    losses: dict[str, int] = {}
    busy: dict[str, int] = {}
    later: list[tuple[float, str]] = []

    def ended(name: str, outcome: Outcome, node: str = "") -> None:
        fallen = schedule.end(name, outcome)
        watcher.told(Event("ended", name, node, outcome=outcome))
        for one in fallen:
            watcher.told(Event("ended", one, outcome=schedule.ended[one]))

    def waits(name: str, outcome: Outcome, node: str = "") -> None:
        if _counted(busy, name) <= MOST_BUSY:
            heapq.heappush(later, (time.monotonic() + BUSY_SECONDS, name))
        else:
            ended(name, outcome, node)

    def start(unit: Unit) -> None:
        try:
            work = prepare(unit)
        except BeingWritten as error:
            waits(unit.name, Outcome("busy", error=str(error)))
            return
        except OmrlError as error:
            ended(unit.name, Outcome("failed", error=str(error)))
            return
        if work is None:
            ended(unit.name, Outcome("done"))
        elif isinstance(work, Work):
            executor.start(unit, work)
        elif (same := schedule.ended.get(work)) is None:
            schedule.wait(unit.name, work)
        else:
            ended(unit.name, Outcome("done") if same.status == "done" else schedule.fallen_with(work))

    while not schedule.over:
        while later and later[0][0] <= time.monotonic():
            schedule.again(heapq.heappop(later)[1])
        while (unit := schedule.next(executor.has_room)) is not None:
            start(unit)
        watcher.looked(executor.nodes())
        for event in executor.wait() if len(schedule.ended) < len(schedule.units) else ():
            outcome, unit = event.outcome, schedule.units[event.unit]
            if outcome is None:
                watcher.told(event)
            elif outcome.status == "refused":
                raise OmrlError(outcome.error)
            elif outcome.status == "differs":
                schedule.again(unit.name)
            elif outcome.status == "busy":
                waits(unit.name, outcome, event.node)
            elif outcome.status == "lost":
                watcher.told(Event("lost", unit.name, event.node, "was lost, and goes on from its last save"))
                if _counted(losses, unit.name) < MOST_LOSSES:
                    schedule.again(unit.name)
                else:
                    error = f"its process or machine was lost {MOST_LOSSES} times ({outcome.error})"
                    ended(unit.name, Outcome("failed", error=error, trace=outcome.trace), event.node)
            elif outcome.status == "memory" and (parts := split(unit) if split else ()):
                schedule.add(parts)
                watcher.grown(parts)
            else:
                ended(unit.name, outcome, event.node)
    return schedule.ended


def _counted(times: dict[str, int], name: str) -> int:
    times[name] = times.get(name, 0) + 1
    return times[name]


def raise_failures(units: Sequence[Unit], ended: Mapping[str, Outcome], smaller: str = "") -> None:
    """Name those that failed by themselves, and not because of another, with their traces; nothing if none did.

    `smaller` is what a person can do about one that a GPU has no room for.
    """
    failed = {unit.name for unit in units if ended[unit.name].status != "done"}
    own = [(unit, ended[unit.name]) for unit in units if unit.name in failed and not failed & {*unit.after}]
    for unit, outcome in own:
        if outcome.trace:
            print(f"\n{unit.label}:\n{outcome.trace}", file=sys.stderr)
    if own:
        told = "; ".join(f"{unit.label} ({outcome.error.rstrip('.')})" for unit, outcome in own)
        hint = f" {smaller}" if smaller and any(outcome.status == "memory" for _, outcome in own) else ""
        raise OmrlError(f"{len(own)} of {len(units)} units failed: {told}.{hint}")
