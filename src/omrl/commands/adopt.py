"""What `omrl adopt` takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional


@dataclass(frozen=True)
class Adopt:
    """Check a dataset, run, report or results of an older omrl and mark it as omrl's: --force may replace it then."""

    folder: Positional[Path]
    """The folder."""
