"""What `omrl families` and `omrl render` take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional


@dataclass(frozen=True)
class Families:
    """List the task families."""

    json: bool = False
    """Print JSON for programs instead of a table."""


@dataclass(frozen=True)
class Render:
    """Draw a picture of each family."""

    out: Positional[Path]
    """Folder for the pictures."""
