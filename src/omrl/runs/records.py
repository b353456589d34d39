"""What a run logs and what its tests write, read into arrays: metrics.csv, scores.csv, logged.csv."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from omrl.errors import OmrlError

Array = np.ndarray[Any, Any]

METRICS = ("step", "transitions", "seed", "name", "value")
SCORES = ("seed", "task", "split", "episode", "return")
LOGGED = ("seed", "task", "split", "metric", "value")


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


@dataclass(frozen=True)
class LoggedScores:
    """The content of logged.csv: metrics [seeds, tasks] by name."""

    tasks: tuple[str, ...]
    metrics: dict[str, Array]


def read_metrics(path: Path) -> dict[str, Curve]:
    """Every metric of a run by name; nothing where there is no file yet."""
    logged: dict[str, dict[tuple[int, int], float]] = {}
    transitions = {}
    for row in _rows(path, METRICS, appended=True):
        try:
            transitions[int(row["step"])] = int(row["transitions"])
            logged.setdefault(row["name"], {})[int(row["seed"]), int(row["step"])] = float(row["value"])
        except ValueError as error:
            raise OmrlError(f"{path} has a row that is not numbers ({error}).") from error
    curves = {}
    for name, cells in logged.items():
        seeds, steps = (sorted({key[i] for key in cells}) for i in (0, 1))
        values = [[cells.get((seed, step), np.nan) for step in steps] for seed in seeds]
        curves[name] = Curve(np.array(steps), np.array([transitions[step] for step in steps]), np.array(values))
    return curves


def whole_metrics(path: Path) -> list[list[str]]:
    """The rows of metrics.csv that are whole, whatever happened to the others and to the header."""
    rows = csv.reader(io.StringIO(_text(path, appended=True), newline=""))
    return [row for row in rows if len(row) == len(METRICS) and _is_metric(row)]


def _is_metric(row: Sequence[str]) -> bool:
    try:
        int(row[0]), int(row[1]), int(row[2]), float(row[4])
    except ValueError:
        return False
    return True


def read_scores(path: Path) -> Scores | None:
    """The returns in scores.csv, if there is one."""
    cells: dict[tuple[int, str, int], float] = {}
    splits = set()
    for row in _rows(path, SCORES):
        try:
            cells[int(row["seed"]), row["task"], int(row["episode"])] = float(row["return"])
        except ValueError as error:
            raise OmrlError(f"{path} has a row that is not numbers ({error}).") from error
        splits.add(row["split"])
    if not cells:
        return None
    seeds = list(dict.fromkeys(seed for seed, _, _ in cells))
    tasks = list(dict.fromkeys(task for _, task, _ in cells))
    episodes = list(dict.fromkeys(episode for _, _, episode in cells))
    if len(cells) != len(seeds) * len(tasks) * len(episodes) or len(splits) != 1:
        raise OmrlError(f"{path} does not have one row for every seed, task and episode of one split.")
    returns = [[[cells[seed, task, episode] for episode in episodes] for task in tasks] for seed in seeds]
    return Scores(splits.pop(), tuple(tasks), np.array(returns))


def read_logged(path: Path) -> LoggedScores | None:
    """The metrics in logged.csv, if there is one."""
    cells: dict[str, dict[tuple[str, str], float]] = {}
    for row in _rows(path, LOGGED):
        try:
            cells.setdefault(row["metric"], {})[row["seed"], row["task"]] = float(row["value"])
        except ValueError as error:
            raise OmrlError(f"{path} has a row that is not numbers ({error}).") from error
    if not cells:
        return None
    if "action_error" not in cells:
        raise OmrlError(f"{path} has no action_error: it is not what omrl evaluate writes.")
    seeds, tasks = (list(dict.fromkeys(key[i] for key in cells["action_error"])) for i in (0, 1))
    every = {(seed, task) for seed in seeds for task in tasks}
    for metric, values in cells.items():
        if values.keys() != every:
            raise OmrlError(f"{path} does not have one row for every seed and task of {metric!r}.")
    found = {
        name: np.array([[values[seed, task] for task in tasks] for seed in seeds]) for name, values in cells.items()
    }
    return LoggedScores(tuple(tasks), found)


def _rows(path: Path, columns: Sequence[str], appended: bool = False) -> list[dict[str, str]]:
    """Rows of a CSV file with these columns; a row that an interrupted run left half written is not one."""
    text = _text(path, appended) if path.is_file() else ""
    if not text:
        return []
    rows = csv.DictReader(io.StringIO(text, newline=""))
    try:
        if not set(columns) <= set(rows.fieldnames or ()):
            raise OmrlError(f"{path} must have the columns {', '.join(columns)}.")
        return [row for row in rows if None not in row.values() and None not in row]
    except csv.Error as error:
        raise OmrlError(f"{path} is not a table ({error}).") from error


def _text(path: Path, appended: bool) -> str:
    """What a file says; of one that is appended to, up to the last whole line."""
    try:
        text = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OmrlError(f"{path} cannot be read ({error}).") from error
    return text[: text.rfind("\n") + 1] if appended else text
