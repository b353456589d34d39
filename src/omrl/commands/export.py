"""What `omrl export` takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

Form = Literal["numpy", "onnx"]


@dataclass(frozen=True)
class Export:
    """Write a run's policy for programs without torch."""

    run: Positional[Path]
    """The run's folder."""
    to: Form
    """`numpy`: one Python file and its weights. `onnx`: two graphs, encoder and actor."""
    out: Path
    """Folder of the exported policy; an earlier one there is replaced."""
    seed: int = 0
    """Which of the run's learners; 0 is the first."""
    trust: tuple[str, ...] = ()
    """Algorithms of the run, as module:Class, whose code may run."""
