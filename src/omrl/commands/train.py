"""What `omrl train` takes, beside the hyperparameters of an algorithm."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

# Rows of each task that are used at most: those of the paper's largest logs.
MAX_ROWS = 1_000_000
# What a preset says of a run and not of its algorithm.
OF_THE_RUN = ("level", "max_rows", "steps")


@dataclass(frozen=True)
class Train:
    """Meta-train an algorithm on the training tasks of a meta-dataset; several seeds learn at once.

    The algorithm's hyperparameters are flags too: `omrl train focal --help` lists them.
    """

    algorithm: Positional[str]
    """`focal`, `batch-pearl`, `contextual-bcq`, `mbml`, `contextual-bc`, or `module:Class` of your own."""
    data: Path
    """The meta-dataset."""
    out: Path
    """Folder of the run."""
    preset: str | None = None
    """Named hyperparameters for the data's family; `paper` if left out. One's own logs start from the defaults."""
    config: Path | None = None
    """A run's config.json to start from instead of a preset."""
    seeds: int = 3
    """How many learners."""
    seed: int = 0
    """The first one's seed; the others follow."""
    steps: int = 100_000
    """Updates of each learner."""
    level: str | None = None
    """Quality level of the training data; the preset's, or mixed."""
    max_rows: int = MAX_ROWS
    """Rows of each task that are used at most."""
    log_every: int = 200
    """Updates between two rows of metrics."""
    save_every: int = 5_000
    """Updates between two checkpoints; there is one every five minutes at least."""
    eval_every: int = 5_000
    """Updates between two looks at the return on unseen tasks, where there is a simulator; 0 for none."""
    threads: int | None = None
    """Threads on a CPU; as many as the work is worth if left out."""
    stream: bool = False
    """Read rows from disk while training, as is done anyway where they do not fit into memory."""
    device: str = "auto"
    """auto, cpu or cuda."""
    wandb: str | None = None
    """Project of Weights & Biases to tell the metrics (needs `omrl[wandb]`); WANDB_MODE=offline keeps them here."""
    force: bool = False
    """Replace a run that is there."""
    dry_run: bool = False
    """Print what would run, and stop."""
