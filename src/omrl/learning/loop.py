"""The loop of all that learns: meta-training, the stages before it, and the agents whose behaviour is logged.

What is interrupted goes on from its last save, and on CPU it ends with the same bytes as what never was.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Protocol

from omrl.learning.engine import Population
from omrl.progress import Meter

# Optimiser states of hundreds of learners take gigabytes: between two saves that somebody asked for there is one by
# the clock, and not by the update.
SAVE_SECONDS = 300.0


class Learning(Protocol):
    """What learns; going on from a save gives what going on without one would have given."""

    population: Population

    @property
    def step(self) -> int:
        """How far it is."""

    def reached(self) -> None:
        """Do what is due at this very step; the first and the last are among them."""

    def update(self) -> None:
        """Go one step further."""

    def log(self) -> str:
        """Write down how it goes; what a person who waits should see of it."""

    def save(self) -> None:
        """Keep what going on needs, or at the end what all was for."""


def learn(
    learning: Learning,
    until: int,
    *,
    folder: Path,
    label: str,
    log_every: int,
    save_every: int | None = None,
    save_seconds: float = SAVE_SECONDS,
    unit: str = "update",
    at_once: int = 1,
) -> None:
    """Steps until there are so many; `at_once` counts those who make each, for the rate that is shown."""
    if 0 < learning.step < until:
        print(f"{folder} goes on at {unit} {learning.step:,}.", file=sys.stderr)
    saved, seen = time.monotonic(), ""
    with Meter(label, until * at_once, learning.step * at_once, f"{unit}s") as meter:
        learning.reached()
        while learning.step < until:
            learning.update()
            logs = learning.step % log_every == 0 or learning.step == until
            if logs:
                seen = learning.log()
            # A step can take half a second on a CPU; a GPU has caught up only where its values were read.
            if logs or learning.population.device.type == "cpu":
                meter.update(learning.step * at_once, seen)
            asked = save_every is not None and learning.step % save_every == 0
            if asked or learning.step == until or time.monotonic() - saved >= save_seconds:
                learning.save()
                saved = time.monotonic()
            learning.reached()
