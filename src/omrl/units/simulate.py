"""How long a plan would take on more machines than one has: the schedule itself, with a clock that nobody waits for.

The order is that of `schedule.py`. No schedule can be shorter than all work over all devices, nor than the longest
chain of units that wait for one another: the larger of the two is the bound, and its share of the time the efficiency.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from omrl.units.schedule import Schedule, chains
from omrl.units.unit import Outcome, Unit


@dataclass(frozen=True)
class Simulated:
    """What a schedule comes to."""

    seconds: float
    work_bound: float
    """All work over all devices: seconds on GPUs over GPUs, or seconds on cores over cores, whichever is more."""
    chain_bound: float
    """The longest chain."""

    @property
    def efficiency(self) -> float:
        """The share of the time that no schedule could have spared."""
        return max(self.work_bound, self.chain_bound) / self.seconds


def simulate(units: Sequence[Unit], gpus: float, cores: float) -> Simulated:
    """Do units on paper, each with its share of a GPU, its threads and its seconds."""
    schedule = Schedule(units)
    free_gpus, free_cores, now = gpus, cores, 0.0
    running: list[tuple[float, str]] = []
    waiting: list[Unit] = []
    while not schedule.over:
        while (unit := schedule.next()) is not None:
            waiting.append(unit)
        left = []
        for unit in waiting:
            threads = unit.threads or 1
            if unit.gpu <= free_gpus + 1e-9 and threads <= free_cores:
                free_gpus, free_cores = free_gpus - unit.gpu, free_cores - threads
                heapq.heappush(running, (now + unit.seconds, unit.name))
            else:
                left.append(unit)
        waiting = left
        if not running:
            raise ValueError(f"{waiting[0].label} needs more than there is.")
        now, name = heapq.heappop(running)
        ended = schedule.units[name]
        free_gpus, free_cores = free_gpus + ended.gpu, free_cores + (ended.threads or 1)
        schedule.end(name, Outcome("done"))
    on_gpus = sum(unit.seconds * unit.gpu for unit in units) / gpus if gpus else 0.0
    on_cores = sum(unit.seconds * (unit.threads or 1) for unit in units) / cores
    return Simulated(now, max(on_gpus, on_cores), max(chains(units).values(), default=0.0))
