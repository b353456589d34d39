"""What a run logs and what its tests write, read into arrays: metrics.csv, scores.csv, logged.csv."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from omrl.errors import OmrlError
from omrl.storage.files import number, read_rows, read_text, whole

Array = np.ndarray[Any, Any]

METRICS = ("step", "transitions", "seed", "name", "value")
SCORES = ("seed", "task", "split", "episode", "return")
LOGGED = ("seed", "task", "split", "metric", "value")


class Spread(TypedDict):
    """A mean and how sure it is; one seed does not tell."""

    value: float
    low: float | None
    high: float | None


@with_config(ConfigDict(extra="forbid"))
class Interval(Spread):
    """These three and nothing else."""


TaskReturn = TypedDict("TaskReturn", {"task": str, "return": float})


class Summary(TypedDict, total=False):
    """What a test found: scores.json, logged.json. A protocol that counts more adds an interval of each by its name."""

    protocol: str
    split: str
    context: int
    context_level: str
    context_from: str
    file: str
    tasks_trained_on: int
    stopped: list[int]
    updates: int
    seeds: int
    tasks: int
    mean: Interval
    iqm: float
    per_seed: list[float]
    worst_task: TaskReturn
    best_task: TaskReturn
    random: float
    expert: float
    normalised: float
    chance: float
    identification: Interval
    action_error: Interval
    constant_error: Interval
    noise_floor: Interval
    q_logged: Interval
    q_policy: Interval
    esr: list[float]
    rms: list[float]
    sha256: str


class Selected(TypedDict):
    """What logs alone told of a run, as far as others read it: selected.json."""

    word: Literal["better", "worse", "cannot tell"]
    reasons: list[str]
    gain: Spread
    logger: float
    tasks: int
    context: int
    updates: int


class Environment(TypedDict, total=False):
    """What a run was made with: environment.json."""

    python: str
    platform: str
    versions: dict[str, str | None]
    commit: str | None
    cores: int | None
    gpu: str | None


class Timings(TypedDict, total=False):
    """Where the time of training went: timings.json."""

    seconds: dict[str, float]
    share_in_updates: float | None


@dataclass(frozen=True)
class Curve:
    """One metric of a run: values [seeds, steps], NaN where a seed did not log it."""

    steps: Array
    transitions: Array
    """Transitions that a seed had been trained on at each step."""
    values: Array


@dataclass(frozen=True)
class Scores:
    """The content of scores.csv: returns [seeds, tasks, episodes]."""

    split: str
    tasks: tuple[str, ...]
    returns: Array
    units: dict[str, Array] = field(default_factory=dict)
    """The same in other units, by the names of their columns."""


@dataclass(frozen=True)
class LoggedScores:
    """The content of logged.csv: metrics [seeds, tasks] by name."""

    tasks: tuple[str, ...]
    metrics: dict[str, Array]


def read_metrics(path: Path) -> dict[str, Curve]:
    """Every metric of a run by name; nothing where there is no file yet."""
    logged: dict[str, dict[tuple[int, int], float]] = {}
    transitions = {}
    for row in read_rows(path, METRICS, appended=True):
        step = whole(row["step"], path)
        transitions[step] = whole(row["transitions"], path)
        logged.setdefault(row["name"], {})[whole(row["seed"], path), step] = number(row["value"], path)
    curves = {}
    for name, cells in logged.items():
        seeds, steps = (sorted({key[i] for key in cells}) for i in (0, 1))
        values = [[cells.get((seed, step), np.nan) for step in steps] for seed in seeds]
        curves[name] = Curve(np.array(steps), np.array([transitions[step] for step in steps]), np.array(values))
    return curves


def whole_metrics(path: Path) -> list[list[str]]:
    """The rows of metrics.csv that are whole, whatever happened to the others and to the header."""
    rows = csv.reader(io.StringIO(read_text(path, appended=True), newline=""))
    return [row for row in rows if len(row) == len(METRICS) and _is_metric(row, path)]


def _is_metric(row: Sequence[str], path: Path) -> bool:
    try:
        for cell in row[:3]:
            whole(cell, path)
        number(row[4], path)
    except OmrlError:
        return False
    return True


def read_scores(path: Path) -> Scores | None:
    """The returns in scores.csv, if there is one."""
    columns: dict[str, dict[tuple[int, str, int], float]] = {}
    splits = set()
    for row in read_rows(path, SCORES):
        place = whole(row["seed"], path), row["task"], whole(row["episode"], path)
        for name in ("return", *(column for column in row if column not in SCORES)):
            columns.setdefault(name, {})[place] = number(row[name], path)
        splits.add(row["split"])
    if not columns:
        return None
    cells = columns["return"]
    seeds = list(dict.fromkeys(seed for seed, _, _ in cells))
    tasks = list(dict.fromkeys(task for _, task, _ in cells))
    episodes = list(dict.fromkeys(episode for _, _, episode in cells))
    if len(cells) != len(seeds) * len(tasks) * len(episodes) or len(splits) != 1:
        raise OmrlError(f"{path} does not have one row for every seed, task and episode of one split.")
    found = {
        name: np.array([[[values[seed, task, episode] for episode in episodes] for task in tasks] for seed in seeds])
        for name, values in columns.items()
    }
    return Scores(splits.pop(), tuple(tasks), found.pop("return"), found)


def read_logged(path: Path) -> LoggedScores | None:
    """The metrics in logged.csv, if there is one."""
    cells: dict[str, dict[tuple[str, str], float]] = {}
    for row in read_rows(path, LOGGED):
        cells.setdefault(row["metric"], {})[row["seed"], row["task"]] = number(row["value"], path)
    if not cells:
        return None
    for metric in ("action_error", "constant_error"):
        if metric not in cells:
            raise OmrlError(f"{path} has no {metric}: it is not what omrl evaluate writes.")
    seeds, tasks = (list(dict.fromkeys(key[i] for key in cells["action_error"])) for i in (0, 1))
    every = {(seed, task) for seed in seeds for task in tasks}
    for metric, values in cells.items():
        if values.keys() != every:
            raise OmrlError(f"{path} does not have one row for every seed and task of {metric!r}.")
    found = {
        name: np.array([[values[seed, task] for task in tasks] for seed in seeds]) for name, values in cells.items()
    }
    return LoggedScores(tuple(tasks), found)
