"""What `omrl report` takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional


@dataclass(frozen=True)
class Report:
    """Make a page on one run, or on several side by side."""

    runs: Positional[tuple[Path, ...]]
    """The runs' folders."""
    out: Path
    """Folder of the report; an earlier report there is replaced."""
    color: str | None = None
    """Colour embeddings by this column of the log, or this parameter of the tasks."""
    trust: tuple[str, ...] = ()
    """Algorithms of the runs, as module:Class, whose code may run."""
