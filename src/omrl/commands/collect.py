"""What `omrl collect` takes, beside the hyperparameters of a family's agents."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional


@dataclass(frozen=True)
class Collect:
    """Train one SAC agent per task and log their checkpoints; what is left out comes from the family's preset.

    How the agents are trained is a flag too, down to every hyperparameter: `omrl collect FAMILY --help` lists them.
    """

    family: Positional[str]
    """Task family, as listed by `omrl families`."""
    out: Path
    """Folder of the new meta-dataset."""
    schedule: str = "default"
    """`default`, or `paper`: the checkpoints and episodes of the paper's table of datasets."""
    episodes: int | None = None
    """Full-length episodes per task and checkpoint; more of them where they end early, for the same number of rows."""
    tasks: int | None = None
    """Only so many tasks, spread evenly over the family's list."""
    split: str | None = None
    """Only the tasks of one of the family's splits; if left out, all tasks, of which the paper's split is scored."""
    device: str = "auto"
    """Where the agents learn: auto, cpu or cuda."""
    pack: int | None = None
    """Agents that are trained as one population, apart from the others; all of them together if left out."""
    at_once: int = 1
    """Packs at the same time, each in its own process. On Ray: on each GPU."""
    on: str = "local"
    """`local`; `ray` is the cluster at RAY_ADDRESS or one on this machine, ray://HOST:PORT or HOST:PORT another."""
    threads: int | None = None
    """Threads of each pack on a CPU, which decide the last bits of results; the cores by `--at-once`, on Ray 1."""
    from_policies: bool = False
    """Rebuild the data from stored policies by simulation alone."""
    policies: Path | None = None
    """Where `--from-policies` finds a folder named after the family; `policies` here, or the few that omrl brings."""
    action_std: float | None = None
    """Log with this standard deviation of the actions before tanh in place of the policies' own: breadth as a knob."""
    level: str | None = None
    """Log the checkpoint of one quality level alone, such as expert."""
    plot: bool = False
    """Also draw learning curves and, for the point robots, trajectories (needs `omrl[plot]`)."""
    force: bool = False
    """Replace what is there."""
    dry_run: bool = False
    """Print what would run, and stop."""
