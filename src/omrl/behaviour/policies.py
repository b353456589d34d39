"""Behaviour policies as files: the dataset in small.

    policies/half-cheetah-vel/   in omrl's repository; its package brings the expert level of sparse-point-robot
      policies.json              family, tasks, checkpoint steps, how they were trained, size and sha256 of every file
      step-0000000.safetensors   actor weights in half precision, stacked over tasks (one row where all tasks share it)
      step-0050000.safetensors   ...

A policy acts with exactly the stored half-precision weights, so a dataset rebuilt from the files is the dataset.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from omrl.errors import OmrlError
from omrl.families import Task, TaskFamily, get_family
from omrl.learning.nets import LOG_STD_MAX, LOG_STD_MIN
from omrl.storage.files import read_json, write_json, write_tensors

SCHEMA = 1
INDEX = "policies.json"
# The few that travel in the package, for `omrl quickstart`: pyproject.toml puts them there.
PACKAGED = Path(__file__).parent / "published"
Array = np.ndarray[Any, Any]


def checkpoint_file(step: int) -> str:
    """Name of the file that holds all tasks' actors after `step` environment steps each."""
    return f"step-{step:07d}.safetensors"


def sample_actions(
    weights: Sequence[Array], biases: Sequence[Array], obs: Array, noise: Array, action_std: float | None = None
) -> tuple[Array, Array]:
    """Actions of many tasks' policies, and their standard deviation before tanh, the policies' own or the one given.

    obs [T, E, S], weights [T, in, out], noise [T, E, A].

    numpy on purpose: it multiplies task by task, so a task's actions have the same bits whichever other tasks are
    rolled out beside it.
    """
    x = obs
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        x = np.maximum(np.matmul(x, weight) + bias, 0.0)
    mean, raw = np.split(np.matmul(x, weights[-1]) + biases[-1], 2, axis=-1)
    log_std = LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (np.tanh(raw) + 1.0)
    std: Array = np.exp(log_std) if action_std is None else np.full_like(mean, action_std)
    return np.tanh(mean + std * noise), std


@dataclass(frozen=True)
class PolicyFiles:
    """A folder of behaviour policies: one family, some of its tasks, some checkpoints."""

    folder: Path
    family: TaskFamily
    tasks: tuple[Task, ...]
    steps: tuple[int, ...]
    source: Mapping[str, Any]
    files: Mapping[str, Any]
    """Name, size and sha256 of every checkpoint's file."""

    @classmethod
    def write(
        cls,
        folder: Path,
        family: TaskFamily,
        tasks: Sequence[Task],
        checkpoints: Mapping[int, Mapping[str, Array]],
        source: Mapping[str, object],
    ) -> PolicyFiles:
        """Write stacked actor weights of every checkpoint, then the index."""
        folder.mkdir(parents=True, exist_ok=True)
        files = {}
        for step, weights in checkpoints.items():
            path = folder / checkpoint_file(step)
            write_tensors(path, weights)
            files[str(step)] = {"file": path.name, **fingerprint(path)}
        index = {
            "schema": SCHEMA,
            "family": family.name,
            "tasks": [task.to_json() for task in tasks],
            "checkpoints": files,
            "source": dict(source),
        }
        write_json(folder / INDEX, index)
        return cls.open(folder)

    @classmethod
    def open(cls, folder: Path, level: str | None = None) -> PolicyFiles:
        """Read the index and check every file against its recorded size and sha256.

        With a `level` only its checkpoint and the untrained one are opened, and others need not be there.
        """
        path = folder / INDEX
        if not path.is_file():
            raise OmrlError(
                f"{folder} holds no behaviour policies ({INDEX} is missing); the published ones are in the folder "
                "policies of omrl's repository, and --policies says where that is."
            )
        try:
            index: dict[str, Any] = read_json(path)
            if index["schema"] != SCHEMA:
                raise OmrlError(f"{path} has schema {index['schema']!r}; this version of omrl reads schema {SCHEMA}.")
            try:
                tasks = tuple(Task.from_json(entry) for entry in index["tasks"])
                family = get_family(index["family"])
            except OmrlError as error:
                raise ValueError(error) from None
            source = dict(index["source"])
            named = source.get("levels", {}).get(level)
            files = {s: f for s, f in index["checkpoints"].items() if named is None or int(s) in (0, named)}
            for step, entry in files.items():
                file = folder / checkpoint_file(int(step))
                if not file.is_file():
                    raise OmrlError(f"{path} names {file.name}, which is missing{_why_missing(folder)}.")
                if fingerprint(file) != {key: entry[key] for key in ("bytes", "sha256")}:
                    raise OmrlError(f"{file} does not match the size and sha256 that {INDEX} records: it was altered.")
            steps = tuple(sorted(int(step) for step in files))
            if not steps or not tasks:
                raise ValueError("it names no checkpoint or no task")
            for task in tasks:
                if task not in family.tasks:
                    raise ValueError(f"{task.name!r} is not a task of {family.name}")
            return cls(folder, family, tasks, steps, source, files)
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise OmrlError(f"{path} is not a valid index of behaviour policies ({error}).") from error

    def weights(self, step: int) -> tuple[list[Array], list[Array]]:
        """Weights and biases of all tasks at one checkpoint, in single precision: lists over layers of [T, in, out]."""
        path = self.folder / checkpoint_file(step)
        try:
            stored = load_file(path)
            layers = range(len(stored) // 2)
            weights, biases = (
                [stored[f"{kind}.{i}"].astype(np.float32) for i in layers] for kind in ("weight", "bias")
            )
            self._check_layers(weights, biases)
        except Exception as error:  # safetensors raises its own kinds
            raise OmrlError(f"{path} does not hold policies of {self.family.name} ({error}).") from error
        every = len(self.tasks)
        return (
            [np.broadcast_to(array, (every, *array.shape[1:])) for array in weights],
            [np.broadcast_to(array, (every, *array.shape[1:])) for array in biases],
        )

    def _check_layers(self, weights: Sequence[Array], biases: Sequence[Array]) -> None:
        """Whether layers [T or 1, in, out] lead from observations to means and standard deviations of actions."""
        width = self.family.obs_dim
        for weight, bias in zip(weights, biases, strict=True):
            _, in_, out = weight.shape
            if len(weight) not in (1, len(self.tasks)) or len(bias) not in (1, len(self.tasks)):
                raise ValueError(f"{len(weight)} policies, {len(self.tasks)} tasks")
            if in_ != width or bias.shape[1:] != (1, out):
                raise ValueError(f"a layer of {list(weight.shape)} and {list(bias.shape)} after one of width {width}")
            if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
                raise ValueError("a weight is not finite")
            width = out
        if width != 2 * self.family.act_dim:
            raise ValueError(f"{width} numbers for {self.family.act_dim} actions")


def find_published(family: str, folder: Path | None) -> Path:
    """Where a family's policies are: in the folder given, else in `policies` here, else in omrl's package."""
    places = [folder] if folder is not None else [Path("policies"), PACKAGED]
    return next((place for place in places if (place / family / INDEX).is_file()), places[0]) / family


def _why_missing(folder: Path) -> str:
    packaged = folder.is_relative_to(PACKAGED)
    return ": omrl's package brings the expert level alone (--level expert), its repository all" if packaged else ""


def fingerprint(path: Path) -> dict[str, object]:
    """Size and sha256 of a file, as both indexes record them."""
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def to_half(weights: Mapping[str, Array], shared: bool) -> dict[str, Array]:
    """Stacked actor weights as they are stored: half precision, and a single row where every task has the same."""
    return {name: w[:1].astype(np.float16) if shared else w.astype(np.float16) for name, w in weights.items()}
