"""What `omrl evaluate` takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

# Logged transitions that a task is inferred from: one episode of the MuJoCo families, ten of the point robots.
CONTEXT_ROWS = 200


@dataclass(frozen=True)
class Evaluate:
    """Test a run on unseen tasks, from logged context alone."""

    run: Positional[Path]
    """The run's folder."""
    protocol: str | None = None
    """`given-context` rolls the policy out, `logged` needs no simulator; the first where there is one."""
    context: int = CONTEXT_ROWS
    """Logged transitions that a task is inferred from."""
    context_level: str | None = None
    """Quality level of the context; that of training if left out."""
    episodes: int = 10
    """Episodes of each seed and task, with `given-context`."""
    split: str = "test"
    """`test` for unseen tasks, `train` for those trained on."""
    seed: int = 0
    """Seed of contexts and start states."""
    data: Path | None = None
    """Where the run's data lies now, if it moved."""
    device: str = "auto"
    """auto, cpu or cuda."""
    trust: tuple[str, ...] = ()
    """Algorithms of the run, as module:Class, whose code may run."""
    json: bool = False
    """Print JSON for programs instead of a table."""
