"""What `omrl tune` takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional


@dataclass(frozen=True)
class Tune:
    """Try hyperparameters on held-out training tasks, every row with as many trials."""

    file: Positional[Path]
    """A TOML file of rows and what to try; `comparisons` is the one of the paper's comparisons."""
    data: Path
    """The meta-dataset."""
    out: Path
    """A JSON file for the trials; those of other data and rows in it stay."""
    rows: tuple[str, ...] = ()
    """Which rows, by their labels; all if left out."""
    steps: int = 5_000
    """Updates of each learner."""
    seeds: int = 1
    """Learners of each trial."""
    episodes: int = 2
    """Episodes in each held-out task."""
    bfloat16: bool = False
    """With networks in bfloat16."""
    trust: tuple[str, ...] = ()
    """Algorithms that the file names as module:Class and whose code may run."""
    device: str = "auto"
    """auto, cpu or cuda."""
    rungs: int = 0
    """Successive halving: so often, each time after twice as many updates, the worse half of the trials is dropped."""
    at_once: int = 1
    """Rows at the same time, each in its own process. On Ray: on each GPU."""
    on: str = "local"
    """`local`; `ray` is the cluster at RAY_ADDRESS or one on this machine, ray://HOST:PORT or HOST:PORT another."""
    threads: int | None = None
    """Threads of each row on a CPU, which decide the last bits of results; the cores by `--at-once`, on Ray 1."""
