"""What `omrl select` takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from omrl.commands.evaluate import CONTEXT_ROWS


@dataclass(frozen=True)
class Select:
    """Say from logs alone which runs are better than who made the logs, and rank them."""

    runs: Positional[tuple[Path, ...]]
    """Folders of runs."""
    split: Literal["test", "train"] | None = None
    """Tasks that are judged: `test` where there are such, which no run was trained on."""
    context: int = CONTEXT_ROWS
    """Logged transitions that a task is inferred from."""
    seed: int = 0
    """Of contexts and of what is drawn."""
    data: Path | None = None
    """Where the runs' data lies now, if it moved."""
    trust: tuple[str, ...] = ()
    """Algorithms of the runs, as module:Class, whose code may run."""
    json: bool = False
    """Print JSON for programs instead of a table."""
