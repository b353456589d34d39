"""Which runs an experiment needs, and about what they cost. Needs no torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from omrl.algorithms import about, read_preset
from omrl.commands.train import OF_THE_RUN, Train
from omrl.data import MetaDataset
from omrl.errors import OmrlError
from omrl.families import get_family
from omrl.studies.definitions import Data, Experiment, Row, Scale

Changes = tuple[tuple[str, Any], ...]
# Tasks of data that nobody has opened yet.
GUESSED_TASKS = 20
# Milliseconds of an update where an algorithm does not say.
UNKNOWN_COST = {"first": 2.0, "further": 1.0}
# Tasks and rows of each at which costs at full scale were measured: the paper's.
MEASURED_AT = {"meta_batch": 16, "batch_size": 256}
# What every further step of a discriminator adds to an update: as measured, about half of it.
FURTHER_STEP = 0.45


@dataclass(frozen=True)
class Source:
    """A meta-dataset: how to make it, and where it belongs; or the path of one that somebody made."""

    family: str | None
    split: str = "paper"
    tasks: int | None = None
    episodes: int | None = None
    action_std: float | None = None
    path: str | None = None

    @property
    def folder(self) -> str:
        """Relative to the folder of all data. A part of a family's tasks does not take the place of all of them."""
        name = f"{self.family}{'' if self.split == 'paper' else f'-{self.split}'}"
        name += "" if self.action_std is None else f"-std-{self.action_std:g}"
        return name if self.tasks is None else f"small/{name}"


@dataclass(frozen=True)
class Job:
    """A run to train. Rows of several experiments may ask for equal ones, which are then one."""

    source: Source
    algorithm: str
    preset: str | None
    changes: Changes
    level: str | None
    seeds: int
    steps: int | None
    log_every: int
    eval_every: int | None

    @classmethod
    def of(cls, values: Mapping[str, object]) -> Job:
        """From JSON."""
        said: dict[str, Any] = dict(values)
        source, changes = Source(**said["source"]), _frozen(dict(said["changes"]))
        return cls(**{**said, "source": source, "changes": changes})


@dataclass(frozen=True)
class Cell:
    """One row of an experiment on one of its data sets."""

    data: Data
    row: Row
    job: Job

    @property
    def title(self) -> str:
        """The data set, and what stands for it."""
        other = self.job.source.family != self.data.family
        return self.data.title + (f" ({self.job.source.family} for it)" if other else "")


def plan(experiment: Experiment, scale: Scale, seeds: int | None = None) -> list[Cell]:
    """Every row on every data set."""
    return [
        Cell(data, row, _job(data, row, scale, seeds or _seeds(experiment, scale)))
        for data in experiment.data
        for row in experiment.rows
    ]


def _seeds(experiment: Experiment, scale: Scale) -> int:
    """An experiment's own number counts where the scale is the full one."""
    return scale.seeds if scale.families else experiment.seeds or scale.seeds


def jobs(cells: Iterable[Cell]) -> list[Job]:
    """Each run once."""
    return list(dict.fromkeys(cell.job for cell in cells))


def _job(data: Data, row: Row, scale: Scale, seeds: int) -> Job:
    steps = scale.steps or row.steps
    shape = {"seeds": seeds, "steps": steps, "log_every": scale.log_every, "eval_every": scale.eval_every}
    if not scale.families or data.family is None:
        source, level = Source(data.family, data.split, action_std=data.action_std, path=data.path), row.level
        return Job(source, row.algorithm, row.preset, _frozen(row.changes), level, **shape)  # type: ignore[arg-type]
    # Another family stands for this one: its own preset gives what belongs to it, such as the scale of its rewards, and
    # the preset of the family that it stands for everything that the experiment is about.
    stand_in = scale.families[get_family(data.family).varies]
    preset: dict[str, Any] = read_preset(row.algorithm, row.preset, data.family)
    own = {name: value for name, value in preset.items() if name not in OF_THE_RUN}
    changes = {**own, **row.changes, **about(row.algorithm, "small")}
    source = Source(stand_in, tasks=scale.tasks, episodes=scale.episodes, action_std=data.action_std)
    level = row.level or preset.get("level")
    return Job(source, row.algorithm, "paper", _frozen(changes), level, **shape)  # type: ignore[arg-type]


def _frozen(changes: Mapping[str, Any]) -> Changes:
    """Hashable, in a fixed order."""
    return tuple((key, tuple(v) if isinstance(v, list) else v) for key, v in sorted(changes.items()))


def _preset(job: Job) -> Mapping[str, Any]:
    """What the job's preset says; of data that cannot be opened yet, nothing."""
    family = job.source.family
    if job.source.path is not None:
        try:
            family = MetaDataset.open(job.source.path).family
        except OmrlError:
            return {}
    return read_preset(job.algorithm, job.preset, family)


def updates(job: Job) -> int:
    """Updates of each seed in meta-training."""
    if job.steps is not None:
        return job.steps
    found: int = _preset(job).get("steps", Train.steps)
    return found


def training_tasks(source: Source) -> int:
    """How many there are; of one's own data, a guess."""
    return len(get_family(source.family).splits[source.split].train) if source.family else GUESSED_TASKS


def _update(cost: Mapping[str, float], values: Mapping[str, Any], seeds: int, scale: str) -> float:
    """Milliseconds of one: what a further seed costs is work, which grows with rows; the rest of the first's is not."""
    share = 1.0
    if scale == "full":
        share = math.prod(values.get(name, usual) / usual for name, usual in MEASURED_AT.items())
    work = cost["further"] * seeds * share
    steps = values.get("regulariser_steps", 1) if values.get("regularisation") != "none" else 1
    found: float = (cost["first"] - cost["further"] + work) * (1.0 + FURTHER_STEP * (steps - 1))
    return found


def minutes(all_jobs: Iterable[Job], scale: str, around: float) -> float:
    """About how long runs take, one after the other: on one H200 at full scale, on two cores at small scale."""
    total = 0.0
    for job in all_jobs:
        cost: Any = about(job.algorithm, "cost").get(scale, UNKNOWN_COST)
        values = {**_preset(job), **dict(job.changes)}
        milliseconds = updates(job) * _update(cost, values, job.seeds, scale)
        if "stage" in cost:
            tasks = job.source.tasks or training_tasks(job.source)
            milliseconds += values["teacher_steps"] * job.seeds * tasks * cost["stage"]
        total += milliseconds / 60_000 + around
    return total
