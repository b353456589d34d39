"""Reads runs into plain values: what their folders say, without building a network or drawing anything."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from omrl import stats
from omrl.data import MetaDataset
from omrl.errors import OmrlError
from omrl.evaluation import LOGGED, SCORES, logged_summary, summary
from omrl.families import FAMILIES, Task
from omrl.progress import counted
from omrl.run import METRICS, Run

Array = np.ndarray[Any, Any]
# What every run's config says and a report relies on.
CONFIG = (
    *("algorithm", "hyperparameters", "data", "level", "seeds", "seed", "steps"),
    *("observation_dim", "action_dim", "action_low", "action_high"),
)
# Units of task parameters that have one.
UNITS = {"velocity": "m/s", "goal": "degrees", "wind": "per step"}


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
class RunFacts:
    """What a run's folder says. Notes are sentences on what is missing."""

    index: int
    name: str
    run: Run
    step: int
    """Updates of the newest checkpoint."""
    curves: dict[str, Curve]
    environment: dict[str, Any]
    seconds: dict[str, float]
    """Where the time of training went."""
    dataset: MetaDataset | None = None
    data_note: str = ""
    scores: Scores | None = None
    summary: dict[str, Any] = field(default_factory=dict)
    """What `omrl evaluate` says of the scores."""
    logged: dict[str, Any] = field(default_factory=dict)
    """What it says without a simulator."""
    notes: tuple[str, ...] = ()

    @property
    def config(self) -> dict[str, Any]:
        """The run's config.json."""
        return dict(self.run.config)

    @property
    def family(self) -> str:
        """The family's name, or what stands for it."""
        return str(self.config.get("family") or "own logs")


def gather(folders: Sequence[Path]) -> list[RunFacts]:
    """The facts of every run, in the order given."""
    names = _names(folders)
    opened: dict[tuple[Any, ...], MetaDataset | OmrlError] = {}
    return [_read(index, name, Run.open(folder), opened) for index, (name, folder) in enumerate(names)]


def _names(folders: Sequence[Path]) -> list[tuple[str, Path]]:
    """The shortest ends of the paths that tell the runs apart."""
    paths = [folder.resolve() for folder in folders]
    for path in paths:
        if paths.count(path) > 1:
            raise OmrlError(f"{path} is given twice.")
    depth = 1
    while len({path.parts[-depth:] for path in paths}) < len(paths):
        depth += 1
    return [(str(Path(*path.parts[-depth:])), folder) for path, folder in zip(paths, folders, strict=True)]


def _read(index: int, name: str, run: Run, opened: dict[tuple[Any, ...], MetaDataset | OmrlError]) -> RunFacts:
    missing = [key for key in CONFIG if key not in run.config]
    if missing:
        raise OmrlError(f"{run.folder / 'config.json'} has no {missing[0]!r}: it is not the config of a run.")
    where = tuple(run.config[key] for key in ("data", "observation_dim", "action_dim"))
    if where not in opened:
        try:
            opened[where] = run.dataset()
        except OmrlError as error:
            opened[where] = error
    found = opened[where]
    dataset = found if isinstance(found, MetaDataset) else None
    data_note = "" if isinstance(found, MetaDataset) else f"The data of this run cannot be read: {found}"
    step, notes = _step(run), []
    if step < run.config["steps"]:
        notes.append(f"Training has done {step:,} of {counted(run.config['steps'], 'update')}.")
    curves = read_metrics(run.folder / "metrics.csv")
    if "alive" in curves:
        frozen = np.flatnonzero(curves["alive"].values[:, -1] == 0)
        first = run.config["seed"]
        notes += [f"Seed {first + place} was frozen: its loss was no longer finite." for place in frozen]
    scores = read_scores(run.folder / "scores.csv")
    if scores is not None and _older(run.folder / "scores.csv", run.folder / "checkpoints" / "latest"):
        notes.append("Its scores are older than its newest checkpoint: run omrl evaluate again.")
    if scores is not None and scores.split != "test":
        notes.append("Its scores are those of the tasks it was trained on, not of unseen ones.")
    if scores is not None and scores.split == "test" and dataset and {*scores.tasks} & {*dataset.split["train"]}:
        notes.append("Its test tasks are among those it was trained on.")
    logged = read_logged(run.folder / "logged.csv")
    trained_on = {*dataset.split["test"]} & {*dataset.split["train"]} if dataset else set()
    return RunFacts(
        index=index,
        name=name,
        run=run,
        step=step,
        curves=curves,
        environment=_json(run.folder / "environment.json"),
        seconds=_json(run.folder / "timings.json").get("seconds", {}),
        dataset=dataset,
        data_note=data_note,
        scores=scores,
        summary={} if scores is None else _summary(scores, dataset, step),
        logged=logged_summary(logged, step, new_tasks=not trained_on) if logged else {},
        notes=tuple(notes),
    )


def _step(run: Run) -> int:
    """Updates of the newest checkpoint, from its name: the networks are not needed for it."""
    latest = run.folder / "checkpoints" / "latest"
    digits = latest.read_text().strip().removeprefix("step-").removesuffix(".safetensors") if latest.is_file() else "0"
    if not digits.isdigit():
        raise OmrlError(f"{latest} does not name a checkpoint.")
    return int(digits)


def _older(file: Path, than: Path) -> bool:
    return than.is_file() and file.stat().st_mtime < than.stat().st_mtime


def _json(path: Path) -> dict[str, Any]:
    """A JSON object; an empty one where there is no file."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text())
    except ValueError as error:
        raise OmrlError(f"{path} is not JSON ({error}).") from error
    if not isinstance(value, dict):
        raise OmrlError(f"{path} is not a JSON object.")
    return value


def read_metrics(path: Path) -> dict[str, Curve]:
    """Every metric of a run by name; nothing where there is no file yet."""
    logged: dict[str, dict[tuple[int, int], float]] = {}
    transitions = {}
    for row in _rows(path, METRICS):
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


def read_logged(path: Path) -> dict[str, Array]:
    """The metrics [seeds, tasks] in logged.csv, if there is one."""
    cells: dict[str, dict[tuple[str, str], float]] = {}
    for row in _rows(path, LOGGED):
        try:
            cells.setdefault(row["metric"], {})[row["seed"], row["task"]] = float(row["value"])
        except ValueError as error:
            raise OmrlError(f"{path} has a row that is not numbers ({error}).") from error
    found = {}
    for metric, values in cells.items():
        seeds, tasks = (list(dict.fromkeys(key[i] for key in values)) for i in (0, 1))
        if len(values) != len(seeds) * len(tasks):
            raise OmrlError(f"{path} does not have one row for every seed and task of {metric!r}.")
        found[metric] = np.array([[values[seed, task] for task in tasks] for seed in seeds])
    if found and "action_error" not in found:
        raise OmrlError(f"{path} has no action_error: it is not what omrl evaluate writes.")
    return found


def _rows(path: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    """Rows of a CSV file with these columns; a row that an interrupted run left half written is not one."""
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        rows = csv.DictReader(file)
        if not set(columns) <= set(rows.fieldnames or ()):
            raise OmrlError(f"{path} must have the columns {', '.join(columns)}.")
        return [row for row in rows if None not in row.values() and None not in row]


def _summary(scores: Scores, dataset: MetaDataset | None, step: int) -> dict[str, Any]:
    """What `omrl evaluate` says of the same scores; without the data, what can be said without it."""
    matrix = scores.returns.mean(-1)
    if dataset is not None and set(scores.tasks) <= {task.name for task in dataset.tasks}:
        return summary(matrix, dataset.select(scores.tasks), step)
    per_task = matrix.mean(0)
    return {
        "mean": vars(stats.mean(matrix, new_tasks=scores.split == "test").interval()),
        "iqm": stats.iqm(matrix),
        "per_seed": matrix.mean(1).tolist(),
        "worst_task": {"task": scores.tasks[int(per_task.argmin())], "return": float(per_task.min())},
        "best_task": {"task": scores.tasks[int(per_task.argmax())], "return": float(per_task.max())},
    }


def task_values(tasks: Sequence[Task]) -> tuple[str, Array]:
    """One number per task that orders and colours it, and what it is: the parameter, or the part of it that says most.

    A goal counts by its angle, another pair by its first number, a longer list by its mean; tasks without a numeric
    parameter count by their place.
    """
    for name in tasks[0].params if tasks else ():
        try:
            values = np.array([task.params[name] for task in tasks], dtype=np.float64).reshape(len(tasks), -1)
        except (KeyError, TypeError, ValueError):
            continue
        if not np.isfinite(values).all() or not values.size:
            continue
        unit = f" ({UNITS[name]})" if name in UNITS else ""
        if values.shape[1] == 1:
            return f"{name}{unit}", values[:, 0]
        if name == "goal" and values.shape[1] == 2:
            return f"angle of the goal{unit}", _angles(values)
        if values.shape[1] == 2:
            return f"{name} along x{unit}", values[:, 0]
        return f"mean {name}{unit}", values.mean(1)
    return "place in the list of tasks", np.arange(len(tasks), dtype=np.float64)


def _angles(goals: Array) -> Array:
    """Degrees of goals [T, 2], cut where the widest gap between them is: neighbours have neighbouring numbers."""
    # Rounded, because a goal at 0 or 180 may lie below the axis by the last digit.
    angles = np.degrees(np.arctan2(goals[:, 1], goals[:, 0])).round(6) % 360
    ordered = np.sort(angles)
    first = ordered[np.diff(ordered, prepend=ordered[-1] - 360).argmax()]
    found: Array = (angles - first) % 360 + (first - 360 if first > 180 else first)
    return found


def level_returns(dataset: MetaDataset) -> dict[str, Array]:
    """Every task's mean return at every level that all tasks have; `mixed` is all rows."""
    return {level: dataset.level_facts(level).returns for level in dataset.levels}


def best_return(family: str, task: Task) -> float | None:
    """The best possible return of a task, where it is known."""
    try:
        return FAMILIES[family].best_return(task) if family in FAMILIES else None
    except (KeyError, TypeError, ValueError, IndexError):  # a manifest may name a family and hold other parameters
        return None


def short(params: Any, limit: int = 90) -> str:
    """Parameters as a person reads them: few digits, not too long."""

    def rounded(value: Any) -> Any:
        if isinstance(value, float):
            return float(f"{value:.3g}")
        if isinstance(value, list | tuple):
            return [rounded(item) for item in value]
        if isinstance(value, dict):
            return {key: rounded(item) for key, item in value.items()}
        return value

    text = ", ".join(f"{key} {json.dumps(rounded(value))}" for key, value in dict(params).items())
    return text if len(text) <= limit else text[: limit - 1] + "…"
