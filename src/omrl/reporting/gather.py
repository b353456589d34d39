"""Reads runs into plain values: what their folders say, without building a network or drawing anything."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from omrl.data import MetaDataset
from omrl.data.findings import column_names
from omrl.errors import OmrlError, did_you_mean
from omrl.evaluation import stats
from omrl.evaluation.summaries import context_words, logged_summary, summary
from omrl.families import Task, get_family
from omrl.runs.config import RunConfig
from omrl.runs.records import Curve, LoggedScores, Scores, Summary
from omrl.runs.run import Run
from omrl.storage import folders
from omrl.words import quantity

Array = np.ndarray[Any, Any]
# Units of task parameters that have one.
UNITS = {"velocity": "m/s", "goal": "degrees", "wind": "per step"}


@dataclass(frozen=True)
class Judged:
    """What `omrl select` said of a run, by logs alone."""

    word: str
    reasons: tuple[str, ...]
    gain: stats.Estimate
    """Return beyond that of who made the log."""
    logger: float
    """The return of who made the log."""
    tasks: int
    context_from: str


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
    summary: Summary = field(default_factory=Summary)
    """What `omrl evaluate` says of the scores."""
    logged: Summary = field(default_factory=Summary)
    """What it says without a simulator."""
    judged: Judged | None = None
    logged_scores: LoggedScores | None = None
    """The same of every task."""
    context_from: str = ""
    """Whose rows tasks were known by, where it was tested."""
    new_tasks: bool = True
    """Whether none of the tasks it was tested on was trained on."""
    notes: tuple[str, ...] = ()

    @property
    def config(self) -> RunConfig:
        """The run's config.json."""
        return self.run.config

    @property
    def family(self) -> str:
        """The family's name, or what stands for it."""
        return str(self.config.family or "own logs")


def gather(runs: Sequence[Path]) -> list[RunFacts]:
    """The facts of every run, in the order given."""
    names = _names(runs)
    opened: dict[tuple[Any, ...], MetaDataset | OmrlError] = {}
    return [_read(index, name, Run.open(folder), opened) for index, (name, folder) in enumerate(names)]


def _names(runs: Sequence[Path]) -> list[tuple[str, Path]]:
    """The shortest ends of the paths that tell the runs apart."""
    paths = [folders.place(folder) for folder in runs]
    for path in paths:
        if paths.count(path) > 1:
            raise OmrlError(f"{path} is given twice.")
    depth = 1
    while len({path.parts[-depth:] for path in paths}) < len(paths):
        depth += 1
    return [(str(Path(*path.parts[-depth:])), folder) for path, folder in zip(paths, runs, strict=True)]


def _read(index: int, name: str, run: Run, opened: dict[tuple[Any, ...], MetaDataset | OmrlError]) -> RunFacts:
    config = run.config
    where = (config.data, config.observation_dim, config.action_dim)
    if where not in opened:
        try:
            opened[where] = run.dataset()
        except OmrlError as error:
            opened[where] = error
    found = opened[where]
    dataset = found if isinstance(found, MetaDataset) else None
    data_note = "" if isinstance(found, MetaDataset) else f"The data of this run cannot be read: {found}"
    step, notes = run.step, []
    if step < config.steps:
        notes.append(f"Training has done {step:,} of {quantity(config.steps, 'update')}.")
    curves = run.curves
    if "alive" in curves:
        frozen = np.flatnonzero(curves["alive"].values[:, -1] == 0)
        first = config.seed
        notes += [f"Seed {first + place} was frozen: its loss was no longer finite." for place in frozen]
    scores = run.scores
    if scores is not None and _older(run.folder / "scores.csv", run.folder / "checkpoints" / "latest"):
        notes.append("Its scores are older than its newest checkpoint: run omrl evaluate again.")
    notes += [
        f"Its {name}.csv is not as omrl evaluate wrote it: somebody has changed it since."
        for name in ("scores", "logged", "selected")
        if run.scores_changed(name)
    ]
    if scores is not None and scores.split != "test":
        notes.append("Its scores are those of the tasks it was trained on, not of unseen ones.")
    if scores is not None and scores.split == "test" and dataset and {*scores.tasks} & {*dataset.split["train"]}:
        notes.append("Its test tasks are among those it was trained on.")
    judged = _judged(run)
    if judged is not None and run.summary("selected").get("updates") != step:
        notes.append("It was judged at another number of updates: run omrl select again.")
    logged = run.logged
    tested = run.summary("scores" if scores is not None else "logged")
    trained_on = {*dataset.split["test"]} & {*dataset.split["train"]} if dataset else set()
    if scores is not None:
        trained_on = {*scores.tasks} & {*dataset.split["train"]} if dataset else set()
    return RunFacts(
        index=index,
        name=name,
        run=run,
        step=step,
        curves=curves,
        environment=run.environment,
        seconds=run.seconds,
        dataset=dataset,
        data_note=data_note,
        scores=scores,
        summary={} if scores is None else _summary(scores, dataset, step),
        logged=logged_summary(logged.metrics, step, new_tasks=not trained_on) if logged else {},
        judged=judged,
        logged_scores=logged,
        context_from=_context(tested, config),
        new_tasks=not trained_on and (scores is None or scores.split == "test"),
        notes=tuple(notes),
    )


def _judged(run: Run) -> Judged | None:
    """The verdict in a run's folder, if it was judged."""
    found: dict[str, Any] = run.summary("selected")
    if not found:
        return None
    context_from = _context({"context_level": run.config.level, **found}, run.config)
    gain = stats.Estimate(**{key: found["gain"][key] for key in ("value", "low", "high")})
    return Judged(found["word"], tuple(found["reasons"]), gain, found["logger"], found["tasks"], context_from)


def _context(tested: dict[str, Any], config: RunConfig) -> str:
    rows, level = tested.get("context"), tested.get("context_level")
    if not isinstance(rows, int) or not isinstance(level, str):
        return ""
    return context_words(rows, level, config.family)


def _older(file: Path, than: Path) -> bool:
    return than.is_file() and file.stat().st_mtime < than.stat().st_mtime


def _summary(scores: Scores, dataset: MetaDataset | None, step: int) -> Summary:
    """What `omrl evaluate` says of the same scores; without the data, what can be said without it."""
    matrix = scores.returns.mean(-1)
    if dataset is not None and set(scores.tasks) <= {task.name for task in dataset.tasks}:
        return summary(matrix, dataset.select(scores.tasks), step)
    per_task = matrix.mean(0)
    mean: Any = vars(stats.mean(matrix, new_tasks=scores.split == "test").interval())
    return {
        "mean": mean,
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


def colourings(dataset: MetaDataset) -> dict[str, tuple[str, int]]:
    """What embeddings can be coloured by: parameters of tasks and columns of rows, each with its array and place."""
    found = {}
    for name in dataset.tasks[0].params if dataset.tasks else ():
        if all(isinstance(task.params.get(name), int | float) for task in dataset.tasks):
            found[name] = ("params", 0)
    for part in ("observations", "actions", "rewards"):
        for place, (name, _) in enumerate(column_names(dataset, part)):
            found.setdefault(name, (part, place))
    return found


def check_colour(name: str, runs: Sequence[RunFacts]) -> None:
    """Refuse a column that no run's data has."""
    known = dict.fromkeys(column for facts in runs if facts.dataset for column in colourings(facts.dataset))
    if name not in known:
        hint = did_you_mean(name, known)
        raise OmrlError(f"--color: no data of these runs has {name!r}{hint}; there are {', '.join(known) or 'none'}.")


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
        return get_family(family).best_return(task)
    except (OmrlError, KeyError, TypeError, ValueError, IndexError):  # a manifest may name a family that is not there
        return None


def short(params: Mapping[str, object], limit: int = 90) -> str:
    """Parameters as a person reads them: few digits, not too long."""

    def rounded(value: Any) -> Any:
        if isinstance(value, float):
            return float(f"{value:.3g}")
        if isinstance(value, list | tuple):
            return [rounded(item) for item in value]
        if isinstance(value, dict):
            return {key: rounded(item) for key, item in value.items()}
        return value

    text = ", ".join(f"{key} {json.dumps(rounded(value))}" for key, value in params.items())
    return text if len(text) <= limit else text[: limit - 1] + "…"
