"""Where metrics go besides metrics.csv, for those who watch a run: TensorBoard, Weights & Biases. Both are extras."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Protocol

from omrl.errors import needs_extra


class Mirror(Protocol):
    """Somebody who is told what is logged."""

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Finite values at an update, by name and seed."""

    def close(self) -> None:
        """There is no more."""


class EventWriter(Protocol):
    """What is used of tensorboardX's SummaryWriter."""

    def add_scalar(self, name: str, value: float, step: int) -> object:
        """A value at an update."""

    def close(self) -> None:
        """There is no more."""


class TensorBoard:
    """Event files in a folder; what an earlier attempt logged after `step` is hidden."""

    def __init__(self, writer: Callable[..., EventWriter], folder: Path, step: int) -> None:
        self._writer = writer(str(folder), purge_step=step + 1 if folder.exists() else None)

    def add(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


def tensorboard(folder: Path, step: int) -> list[Mirror]:
    """Where tensorboardX is installed."""
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        return []
    try:
        return [TensorBoard(SummaryWriter, folder, step)]
    except OSError as error:  # its queue needs more of the system than a run does, which goes on without
        print(f"warning: nothing is logged for TensorBoard ({error}).", file=sys.stderr)
        return []


class WeightsAndBiases:
    """A run of a project there; one that goes on is the same run there too. WANDB_MODE=offline keeps it here."""

    def __init__(self, project: str, folder: Path, config: Mapping[str, object]) -> None:
        wandb = need_wandb()
        about = json.dumps([str(folder.absolute()), config], sort_keys=True)
        self._run = wandb.init(
            project=project,
            name=folder.name,
            id=hashlib.sha256(about.encode()).hexdigest()[:16],
            resume="allow",
            config=dict(config),
            settings=wandb.Settings(console="off", silent=True),
        )
        # A look at the return may come after later updates: each value says which update it is of.
        self._run.define_metric("*", step_metric="update")

    def add(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log({**values, "update": step})

    def close(self) -> None:
        self._run.finish()


def need_wandb() -> ModuleType:
    """The package, or the sentence on how to get it."""
    with needs_extra("wandb", "--wandb"):
        import wandb
    found: ModuleType = wandb
    return found
