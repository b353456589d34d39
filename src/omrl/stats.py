"""Statistics one can believe: interquartile mean, stratified bootstrap intervals, probability of improvement.

The currency is a score matrix [runs, tasks]: one row per seed, one column per task. Unseen tasks are a sample of the
family as seeds are a sample of training runs, so an interval resamples both. Every draw comes from a generator that is
passed in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
RESAMPLES = 2_000


@dataclass(frozen=True)
class Estimate:
    """A statistic with its 95 % bootstrap interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:z.2f} [{self.low:z.2f}, {self.high:z.2f}]"  # z: no minus before a zero


def iqm(scores: Array) -> float:
    """Mean of the middle half of all scores, counting the two scores on its edges by the part that lies inside.

    A 25 % trimmed mean, exact for any number of scores.
    """
    flat = np.sort(np.asarray(scores, dtype=np.float64).ravel())
    left = np.arange(flat.size) / flat.size
    right = left + 1 / flat.size
    weight = np.clip(np.minimum(right, 0.75) - np.maximum(left, 0.25), 0.0, None)
    return float((flat * weight).sum() / weight.sum())


def bootstrap(
    scores: Array, statistic: Callable[[Array], float], rng: np.random.Generator, *, resample_tasks: bool = True
) -> Estimate:
    """Percentile interval of a statistic of a [runs, tasks] matrix: runs are resampled within each task, then tasks."""
    scores = np.atleast_2d(np.asarray(scores, dtype=np.float64))
    runs, tasks = scores.shape
    draws = np.empty(RESAMPLES)
    for i in range(RESAMPLES):
        columns = rng.integers(tasks, size=tasks) if resample_tasks else np.arange(tasks)
        draws[i] = statistic(scores[rng.integers(runs, size=(runs, tasks)), columns])
    low, high = np.quantile(draws, [0.025, 0.975])
    return Estimate(statistic(scores), float(low), float(high))


def mean(scores: Array) -> float:
    """The plain mean."""
    return float(np.mean(scores))


def paired_difference(ours: Array, theirs: Array, rng: np.random.Generator) -> Estimate:
    """Mean of ours minus theirs, both [runs, tasks] with equal seeds and tasks in equal places.

    Runs are resampled as wholes here, and tasks: a run that came out badly did so in all tasks, and which of two
    algorithms is better should not look surer than that allows.
    """
    ours, theirs = (np.atleast_2d(np.asarray(scores, dtype=np.float64)) for scores in (ours, theirs))
    if ours.shape != theirs.shape:
        raise ValueError(f"scores of shapes {ours.shape} and {theirs.shape} are no pairs")
    differences = ours - theirs
    runs, tasks = differences.shape
    # A resample's mean counts every run and task as often as it was drawn.
    rows = rng.multinomial(runs, np.full(runs, 1 / runs), size=RESAMPLES) / runs
    columns = rng.multinomial(tasks, np.full(tasks, 1 / tasks), size=RESAMPLES) / tasks
    draws = np.einsum("ir,rt,it->i", rows, differences, columns)
    low, high = np.quantile(draws, [0.025, 0.975])
    return Estimate(float(differences.mean()), float(low), float(high))


def probability_of_improvement(ours: Array, theirs: Array) -> float:
    """Chance that a run of ours beats one of theirs on the same task, averaged over tasks; ties count half."""
    ours, theirs = np.atleast_2d(ours), np.atleast_2d(theirs)
    wins = (ours[:, None, :] > theirs[None, :, :]) + 0.5 * (ours[:, None, :] == theirs[None, :, :])
    return float(wins.mean())


def normalised(score: float, random: float, expert: float) -> float:
    """0 is the untrained policy, 1 the expert that made the data."""
    return (score - random) / (expert - random)
