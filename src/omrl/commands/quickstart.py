"""What `omrl quickstart` takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Quickstart:
    """Make data, meta-train FOCAL, test it on unseen tasks, adapt to one, and write a report: minutes on two cores."""

    out: Path = Path("quickstart")
    """Folder for everything: data, run and report."""
    seeds: int = 2
    """How many learners."""
    seed: int = 0
    """The first one's seed."""
    train_behaviour: bool = False
    """Train the agents that make the data afresh instead of taking the published policies."""
    policies: Path | None = None
    """Where the published policies are, in a folder named after the family; those that omrl brings if left out."""
