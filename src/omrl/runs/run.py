"""The run folder: everything about one training run, in files a person can open.

runs/focal/
  .omrl.json                   says that it is a run: see folders.py
  config.json                  algorithm, its hyperparameters, data, level, seeds, steps
  environment.json             versions, commit, hardware
  metrics.csv                  step, transitions, seed, name, value
  checkpoints/step-0010000.safetensors    parameters, targets, optimiser and random state of all seeds
  checkpoints/latest           the newest checkpoint's name, and how many rows of metrics there were
  stages/NAME/                 what an algorithm learns before, where it has such stages: result and metrics of each
  events/                      the same metrics for TensorBoard, where tensorboardX is installed
  timings.json                 seconds spent in stages, updates, logging, evaluation and saving, of the last time it ran
  scores.csv, scores.json      one row per seed, task and episode; what they sum up to
  selected.csv, selected.json  what logs alone tell of it, where omrl select was run
  calibration.safetensors      what honest contexts look like, where omrl calibrate was run
"""

from __future__ import annotations

import csv
import hashlib
import math
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from omrl.data import MetaDataset
from omrl.errors import OmrlError
from omrl.runs.calibration import CALIBRATION
from omrl.runs.checkpoints import CHECKSUM, load_checkpoint, save_checkpoint
from omrl.runs.config import CONFIG, RunConfig
from omrl.runs.mirrors import Mirror, WeightsAndBiases, tensorboard
from omrl.runs.records import (
    METRICS,
    Curve,
    Environment,
    LoggedScores,
    Scores,
    Selected,
    Summary,
    Timings,
    read_logged,
    read_metrics,
    read_scores,
    whole_metrics,
)
from omrl.schema import conform
from omrl.storage import folders
from omrl.storage.files import harmless, read_json, replacing, versions, write_json, write_rows
from omrl.words import quantity, shortened

# The two lines of `latest`.
CHECKPOINT = re.compile(r"step-\d{7,}\.safetensors")
LOGGED = re.compile(r"^(\d{1,18}) rows of metrics$", re.MULTILINE)
# Protocols of others, too, write files of their names.
PROTOCOLS = ("scores", "logged", *metadata.entry_points(group="omrl.protocols").names)
RUN = folders.Kind(
    "run",
    CONFIG,
    (
        *(CONFIG, "environment.json", "metrics.csv", "timings.json", "events/events.out.tfevents.*"),
        *("checkpoints/latest", "checkpoints/step-*.safetensors", CALIBRATION),
        *(f"stages/*/{name}" for name in ("result.safetensors", "checkpoint.safetensors", "metrics.csv")),
        "stages/*/events/events.out.tfevents.*",
        *("selected.csv", "selected.json"),
        # Of tests: the name of a protocol, and what was not the default.
        *(f"{name}{end}" for name in PROTOCOLS for end in (".csv", ".json", "-*.csv", "-*.json")),
    ),
)


class Run:
    """One run's folder."""

    def __init__(self, folder: Path, config: RunConfig) -> None:
        self.folder, self.config = folder, config
        self._mirrors: list[Mirror] = []
        self._metrics_there = 0
        """Rows of metrics."""

    @classmethod
    def create(cls, folder: Path, config: RunConfig, defaults: Mapping[str, object]) -> Run:
        """A new run, or the one that is there if it was made with the same config.

        A run that was begun when a hyperparameter did not exist yet has the value of `defaults`.
        """
        if (folder / CONFIG).is_file():
            run = cls.open(folder)
            if differences := run.config.differences(config, defaults):
                raise OmrlError(f"{folder} holds another run: {differences}; choose another --out, or use --force.")
            # Copies of a run that had not saved itself yet may lack it: not all of them carry empty folders.
            (folder / "checkpoints").mkdir(exist_ok=True)
            return run
        folders.claim(folder, RUN)
        (folder / "checkpoints").mkdir(exist_ok=True)
        write_json(folder / "environment.json", environment())
        write_json(folder / CONFIG, asdict(config))
        return cls.open(folder)

    @classmethod
    def open(cls, folder: Path) -> Run:
        """An existing run."""
        path = folder / CONFIG
        if not path.is_file():
            raise OmrlError(f"{folder} is not a run: there is no {path}.")
        return cls(folder, RunConfig.open(path))

    def dataset(self, moved_to: Path | None = None) -> MetaDataset:
        """The data it was trained on, if need be from where it lies now; what has come into its place is refused."""
        config = self.config
        place = moved_to or Path(config.data)
        if moved_to is None and not os.path.exists(place):  # noqa: PTH110 - where pathlib fails on odd names
            raise OmrlError(f"{place}, the data of {self.folder}, is not there; --data says where it lies now.")
        try:
            found = MetaDataset.open(place)
        except OmrlError as error:
            raise OmrlError(f"The data that {self.folder / CONFIG} names: {error}") from None
        for dim in ("observation_dim", "action_dim"):
            if getattr(config, dim) != getattr(found, dim):
                raise OmrlError(
                    f"{place} has {dim} {getattr(found, dim)}, but {self.folder} was trained with "
                    f"{getattr(config, dim)}: it is not the data of this run any more."
                )
        if config.level not in found.levels:
            raise OmrlError(
                f"{self.folder / CONFIG} names the level {shortened(config.level)}, which {place} does not have; "
                f"it has {', '.join(found.levels)}."
            )
        return found

    def move_data(self, data: Path) -> None:
        """Say that its data lies elsewhere now."""
        if self.config.data != str(data.absolute()):
            self.config = replace(self.config, data=str(data.absolute()))
            write_json(self.folder / CONFIG, asdict(self.config))

    # -- what its files say ----------------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """Updates of the newest checkpoint, from its name: the networks are not needed for it."""
        return 0 if self._latest() is None else int(self.newest.stem.removeprefix("step-"))

    @property
    def newest(self) -> Path:
        """The newest checkpoint's file."""
        latest = self._latest()
        if latest is None:
            raise OmrlError(f"{self.folder} has no checkpoint yet: train it first.")
        return latest

    @property
    def curves(self) -> dict[str, Curve]:
        """Every metric that was logged."""
        return read_metrics(self.folder / "metrics.csv")

    @property
    def scores(self) -> Scores | None:
        """Returns on the test tasks, if it was tested."""
        return read_scores(self.folder / "scores.csv")

    @property
    def logged(self) -> LoggedScores | None:
        """What its tests without a simulator found, if there were any."""
        return read_logged(self.folder / "logged.csv")

    @property
    def environment(self) -> dict[str, object]:
        """What it was made with."""
        return self._json("environment.json", Environment)

    @property
    def seconds(self) -> dict[str, float]:
        """Where the time of training went."""
        found: dict[str, float] = self._json("timings.json", Timings).get("seconds", {})
        return found

    def summary(self, name: str = "scores") -> dict[str, object]:
        """What a test found, by the name of its rows' file; nothing where there was none."""
        return self._json(f"{name}.json", Selected if name == "selected" else Summary)

    def _json(self, name: str, kind: type) -> dict[str, Any]:
        path = self.folder / name
        return conform(kind, read_json(path), path) if path.is_file() else {}

    def _latest(self) -> Path | None:
        """The newest checkpoint."""
        latest = self.folder / "checkpoints" / "latest"
        if not latest.is_file():
            return None
        name = latest.read_text(encoding="utf-8", errors="replace").partition("\n")[0].strip()
        if not CHECKPOINT.fullmatch(name):
            raise OmrlError(f"{latest} does not name a checkpoint.")
        return self.folder / "checkpoints" / name

    # -- training ---------------------------------------------------------------------------------------------------

    def save(self, step: int, state: Mapping[str, Tensor]) -> None:
        """Write a checkpoint, point to it, and drop the one before the last."""
        name = f"step-{step:07d}.safetensors"
        # The metrics first: a run that goes on from here does not log them again.
        logged = self._settle_metrics()
        save_checkpoint(self.folder / "checkpoints" / name, state, {"step": step})
        with replacing(self.folder / "checkpoints" / "latest") as temporary:
            temporary.write_text(f"{name}\n{logged} rows of metrics\n")
        self.drop_old_checkpoints()

    def drop_old_checkpoints(self) -> None:
        """All but the last two."""
        # By length first: ten million has a digit more than the names are padded to.
        saved = sorted(
            (self.folder / "checkpoints").glob("step-*.safetensors"), key=lambda path: (len(path.name), path)
        )
        for old in saved[:-2]:
            old.unlink()

    def load(self) -> tuple[int, dict[str, Tensor]] | None:
        """Step and state of the newest checkpoint."""
        path = self._latest()
        if path is None:
            return None
        state, notes = load_checkpoint(path)
        return notes["step"], state

    def note_scores(
        self, name: str, header: Sequence[str], rows: Sequence[Sequence[object]], found: Mapping[str, object]
    ) -> None:
        """What a test found: its rows, and what they sum up to."""
        path = self.folder / f"{name}.csv"
        # Tasks are called as their owner likes.
        write_rows(path, [header, *([harmless(cell) for cell in row] for row in rows)])
        write_json(self.folder / f"{name}.json", {**found, CHECKSUM: _sha256(path)})

    def scores_changed(self, name: str = "scores") -> bool:
        """Whether the rows of a test are not those that it wrote; an older omrl did not say."""
        path, wanted = self.folder / f"{name}.csv", self.summary(name).get(CHECKSUM)
        return wanted is not None and path.is_file() and wanted != _sha256(path)

    def note_timings(self, seconds: Mapping[str, float]) -> None:
        """Where the time went."""
        total = sum(seconds.values())
        share = seconds.get("updates", 0.0) / total if total else None
        write_json(self.folder / "timings.json", {"seconds": dict(seconds), "share_in_updates": share})

    def log(self, step: int, transitions: int, values: Mapping[str, Sequence[float]]) -> None:
        """Append metrics: name to one value per seed."""
        first = self.config.seed
        path = self.folder / "metrics.csv"
        if not path.exists():
            write_rows(path, [METRICS])
        with path.open("a", newline="") as file:
            rows = csv.writer(file)
            for name, per_seed in values.items():
                rows.writerows(
                    (step, transitions, seed, harmless(name), f"{value:.6g}")
                    for seed, value in enumerate(per_seed, first)
                )
                self._metrics_there += len(per_seed)
        finite = {
            f"{name}/seed-{seed}": value
            for name, per_seed in values.items()
            for seed, value in enumerate(per_seed, first)
            if math.isfinite(value)
        }
        for mirror in self._mirrors:
            mirror.add(step, finite)

    def watch(self, project: str) -> None:
        """Tell a project of Weights & Biases, too, what is logged from here on."""
        self._mirrors.append(WeightsAndBiases(project, self.folder, asdict(self.config)))

    def close(self) -> None:
        """Write out what TensorBoard and others have not got yet."""
        while self._mirrors:
            self._mirrors.pop().close()

    def forget_after(self, step: int) -> None:
        """Drop metrics that an interrupted run logged after its last checkpoint: they will be logged again.

        What else a kill left goes too, but not what a test of the run may be writing.
        """
        own = [self.folder / f".{name}.tmp" for name in (CONFIG, "environment.json", "metrics.csv", "timings.json")]
        for left in (*own, *(self.folder / "checkpoints").glob(".*.tmp")):
            left.unlink(missing_ok=True)
        self.drop_old_checkpoints()
        self._mirrors = tensorboard(self.folder / "events", step)
        path = self.folder / "metrics.csv"
        if path.exists():
            rows = [row for row in whole_metrics(path) if int(row[0]) <= step]
            write_rows(path, [METRICS, *rows])
            self._metrics_there = len(rows)
        if lost := max(self._saved_metrics() - self._metrics_there, 0):
            print(
                f"warning: {path} has lost {quantity(lost, 'row')} of the updates up to {step:,}; training goes on "
                "from its checkpoint, and does not make them again.",
                file=sys.stderr,
            )

    def _saved_metrics(self) -> int:
        """Rows of metrics that there were at the newest checkpoint, where it says so."""
        latest = self.folder / "checkpoints" / "latest"
        said = LOGGED.search(latest.read_text(encoding="utf-8", errors="replace")) if latest.is_file() else None
        return int(said[1]) if said else 0

    def _settle_metrics(self) -> int:
        """Have the metrics on the disk; how many rows there are."""
        path = self.folder / "metrics.csv"
        if path.exists():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        return self._metrics_there


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def environment() -> dict[str, object]:
    """What a run was made with."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": versions("omrl", "torch", "numpy", "gymnasium", "mujoco", "safetensors"),
        "commit": _commit(),
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def _commit() -> str | None:
    """The commit of a checkout that omrl runs from; where there is none, or no git, what OMRL_COMMIT says."""
    place = Path(__file__)
    git = partial(subprocess.run, cwd=place.parent, capture_output=True, text=True, check=True, timeout=5)
    found = ""
    with suppress(OSError, subprocess.SubprocessError):
        git(["git", "ls-files", "--error-unmatch", place.name])  # or it is somebody's project that omrl is installed in
        found = git(["git", "describe", "--always", "--dirty"]).stdout.strip()
    return found or os.environ.get("OMRL_COMMIT", "")[:80] or None
