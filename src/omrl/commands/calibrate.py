"""What `omrl calibrate` takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional


@dataclass(frozen=True)
class Calibrate:
    """Learn what contexts of a run's tasks look like, so that strange ones are noticed."""

    run: Positional[Path]
    """The run's folder; its data must be there."""
    data: Path | None = None
    """Where the run's data lies now, if it moved."""
    trust: tuple[str, ...] = ()
    """Algorithms of the run, as module:Class, whose code may run."""
