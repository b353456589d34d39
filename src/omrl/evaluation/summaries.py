"""What scores sum up to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from omrl.data import MetaDataset
from omrl.evaluation import stats
from omrl.evaluation.protocol import Array
from omrl.runs.records import Summary
from omrl.words import quantity


def summary(scores: Array, dataset: MetaDataset, step: int) -> Summary:
    """Statistics of a score matrix [seeds, tasks], with the data's own random and expert returns beside it.

    Tasks that were not trained on are a sample of their family; others are themselves what is asked about.
    """
    entries = {entry.name: entry.reference for entry in dataset.manifest.tasks}
    references = [entries[task.name] for task in dataset.tasks]
    per_task = scores.mean(0)
    found: dict[str, Any] = {
        "updates": step,
        "seeds": scores.shape[0],
        "tasks": scores.shape[1],
        "mean": vars(stats.mean(scores, new_tasks=not dataset.split["train"]).interval()),
        "iqm": stats.iqm(scores),
        "per_seed": scores.mean(1).tolist(),
        "worst_task": {"task": dataset.tasks[int(per_task.argmin())].name, "return": float(per_task.min())},
        "best_task": {"task": dataset.tasks[int(per_task.argmax())].name, "return": float(per_task.max())},
    }
    random = [reference.random for reference in references]
    expert = [reference.expert for reference in references]
    if None not in random and None not in expert:
        means = float(np.mean(random)), float(np.mean(expert))  # type: ignore[arg-type]
        found |= {"random": means[0], "expert": means[1]}
        if means[0] != means[1]:
            found["normalised"] = stats.normalised(found["mean"]["value"], *means)
    return as_summary(found)


def context_words(rows: int, level: str, family: str | None) -> str:
    """Whose rows a task was known by: a score says little without it."""
    if family is None:
        return f"{quantity(rows, 'row')} of the task's own log"
    if level == "mixed":
        return f"{quantity(rows, 'row')} logged by the task's own agents, of all levels"
    return f"{quantity(rows, 'row')} logged by the task's own {'expert' if level == 'expert' else f'{level} agent'}"


def logged_summary(metrics: dict[str, Array], step: int, *, new_tasks: bool) -> Summary:
    """The mean of every metric [seeds, tasks], and how often tasks would be told apart by chance."""
    seeds, tasks = metrics["action_error"].shape
    found: dict[str, Any] = {"updates": step, "seeds": seeds, "tasks": tasks, "chance": 1 / tasks}
    intervals = {name: stats.mean(values, new_tasks=new_tasks).interval() for name, values in metrics.items()}
    return as_summary(found | {name: vars(interval) for name, interval in intervals.items()})


def as_summary(found: Mapping[str, object]) -> Summary:
    """What was put together thing by thing."""
    anything: Any = found
    summed_up: Summary = anything
    return summed_up
