"""The run folder: everything about one training run, in files a person can open.

runs/focal/
  config.json                  algorithm, its hyperparameters, data, level, seeds, steps
  environment.json             versions, commit, hardware
  metrics.csv                  step, transitions, seed, name, value
  checkpoints/step-0010000.safetensors    parameters, targets, optimiser and random state of all seeds
  checkpoints/latest           the newest checkpoint's name
  stages/NAME/                 what an algorithm learns before, where it has such stages: result and metrics of each
  events/                      the same metrics for TensorBoard, where tensorboardX is installed
  timings.json                 seconds spent in updates, logging, evaluation and saving, of the last time it ran
  scores.csv                   one row per seed, task and episode
"""

from __future__ import annotations

import csv
import json
import math
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from omrl.data import MetaDataset
from omrl.errors import OmrlError
from omrl.files import replacing, write_json, write_rows, write_tensors

# What runs drew for every algorithm before each said what it reads: they go on with it.
FIRST_BATCHES = {
    "context_sets": 2,
    "consecutive": False,
    "next_actions": True,
    "dense_rewards": True,
    "other_tasks": False,
}
METRICS = ("step", "transitions", "seed", "name", "value")


class Run:
    """One run's folder."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        self.folder, self.config = folder, config
        self._events: Any = None

    @classmethod
    def create(cls, folder: Path, config: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> Run:
        """A new run, or the one that is there if it was made with the same config.

        A run that was begun when a hyperparameter did not exist yet has the value of `defaults`.
        """
        config = json.loads(json.dumps(config))
        if (folder / "config.json").is_file():
            run = cls.open(folder)
            known = json.loads(json.dumps(dict(defaults or {}))) | run.config["hyperparameters"]
            before = {"batch": FIRST_BATCHES, **run.config, "hyperparameters": known}
            # How a CPU computes is no part of what a run is, which may go on elsewhere; nor is a name for its values.
            before |= {name: config[name] for name in ("cpu", "preset") if name in config}
            if before != config:
                differences = _differences(before, config)
                raise OmrlError(f"{folder} holds another run: {differences}; choose another --out, or use --force.")
            return run
        if folder.exists() and any(folder.iterdir()):
            raise OmrlError(f"{folder} exists and is not a run.")
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        write_json(folder / "environment.json", environment())
        write_json(folder / "config.json", config)
        return cls(folder, config)

    @classmethod
    def open(cls, folder: Path) -> Run:
        """An existing run."""
        path = folder / "config.json"
        if not path.is_file():
            raise OmrlError(f"{folder} is not a run: there is no {path}.")
        try:
            return cls(folder, json.loads(path.read_text()))
        except ValueError as error:
            raise OmrlError(f"{path} is not JSON ({error}).") from error

    def dataset(self) -> MetaDataset:
        """The data it was trained on; what has come into its place since is refused."""
        found = MetaDataset.open(self.config["data"])
        for dim in ("observation_dim", "action_dim"):
            if self.config[dim] != getattr(found, dim):
                raise OmrlError(
                    f"{self.config['data']} has {dim} {getattr(found, dim)}, but the run was trained with "
                    f"{self.config[dim]}: it is not the data of this run any more."
                )
        return found

    def save(self, step: int, state: Mapping[str, Tensor]) -> None:
        """Write a checkpoint, point to it, and drop the one before the last."""
        name = f"step-{step:07d}.safetensors"
        arrays = {key: value.detach().cpu().numpy() for key, value in state.items()}
        write_tensors(self.folder / "checkpoints" / name, arrays, {"step": str(step)})
        with replacing(self.folder / "checkpoints" / "latest") as temporary:
            temporary.write_text(name + "\n")
        # By length first: ten million has a digit more than the names are padded to.
        saved = sorted(
            (self.folder / "checkpoints").glob("step-*.safetensors"), key=lambda path: (len(path.name), path)
        )
        for old in saved[:-2]:
            old.unlink()

    def load(self) -> tuple[int, dict[str, Tensor]] | None:
        """Step and state of the newest checkpoint."""
        latest = self.folder / "checkpoints" / "latest"
        if not latest.is_file():
            return None
        path = self.folder / "checkpoints" / latest.read_text().strip()
        try:
            with safe_open(path, framework="pt") as file:
                return int(file.metadata()["step"]), {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        except Exception as error:  # safetensors raises its own kinds
            raise OmrlError(f"{path} is missing or damaged ({error}).") from error

    def note_timings(self, seconds: Mapping[str, float]) -> None:
        """Where the time went."""
        total = sum(seconds.values())
        share = seconds.get("updates", 0.0) / total if total else None
        write_json(self.folder / "timings.json", {"seconds": dict(seconds), "share_in_updates": share})

    def log(self, step: int, transitions: int, values: Mapping[str, Sequence[float]]) -> None:
        """Append metrics: name to one value per seed."""
        first = self.config["seed"]
        path = self.folder / "metrics.csv"
        new = not path.exists()
        with path.open("a", newline="") as file:
            rows = csv.writer(file)
            if new:
                rows.writerow(METRICS)
            for name, per_seed in values.items():
                rows.writerows(
                    (step, transitions, seed, name, f"{value:.6g}") for seed, value in enumerate(per_seed, first)
                )
        if self._events is not None:
            for name, per_seed in values.items():
                for seed, value in enumerate(per_seed, first):
                    if math.isfinite(value):  # of others it writes a line to the log
                        self._events.add_scalar(f"{name}/seed-{seed}", value, step)

    def has_logged(self, name: str, step: int) -> bool:
        """Whether a metric has a value at this step."""
        path = self.folder / "metrics.csv"
        if not path.exists():
            return False
        with path.open(newline="") as file:
            return any(row["name"] == name and row["step"] == str(step) for row in csv.DictReader(file))

    def close(self) -> None:
        """Write out what TensorBoard has not got yet."""
        if self._events is not None:
            self._events.close()
            self._events = None

    def forget_after(self, step: int) -> None:
        """Drop metrics that an interrupted run logged after its last checkpoint: they will be logged again."""
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            self._events = None
        else:
            events = self.folder / "events"
            self._events = SummaryWriter(str(events), purge_step=step + 1 if events.exists() else None)
        path = self.folder / "metrics.csv"
        if not path.exists():
            return
        with path.open(newline="") as file:
            head, *rows = list(csv.reader(file))
        kept = [row for row in rows if len(row) == len(METRICS) and int(row[0]) <= step]
        write_rows(path, [head, *kept])


def _differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """What two configs say differently."""
    words = []
    for key in sorted({*there, *here}):
        left, right = there.get(key, "missing"), here.get(key, "missing")
        if isinstance(left, dict) and isinstance(right, dict):
            words += [_differences(left, right)] if left != right else []
        elif left != right:
            words.append(f"{key} is {left} there and {right} here")
    return ", ".join(words)


def environment() -> dict[str, Any]:
    """What a run was made with."""
    packages = ("omrl", "torch", "numpy", "gymnasium", "mujoco", "safetensors")
    versions: dict[str, str | None] = {}
    for name in packages:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": versions,
        "commit": _commit(),
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def _commit() -> str | None:
    """The commit of a checkout that omrl runs from."""
    try:
        command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=5).stdout.strip() or None
    except (OSError, subprocess.SubprocessError):
        return None
