"""What came out of an experiment: its metrics as matrices [seeds, tasks], and the verdict on the paper's claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from omrl import stats
from omrl.experiments.definitions import Claim, Experiment
from omrl.experiments.planning import Cell
from omrl.reporting.gather import Curve, RunFacts

Array = np.ndarray[Any, Any]
HOLDS, DOES_NOT, UNDECIDED = "holds", "does not hold", "undecided"
# What stands for |Q| where it is no longer a number: the largest one in single precision.
LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Outcome:
    """One row of an experiment on one data set."""

    cell: Cell
    run: Path
    facts: RunFacts
    summary: dict[str, Any]
    """What the test in test tasks found."""
    tasks: tuple[str, ...]
    returns: Array  # [P, T, episodes]
    metrics: Mapping[str, Array] = field(default_factory=dict)
    """[P, T] where a metric is one of tasks, else [P, 1]."""

    @property
    def key(self) -> tuple[str, str]:
        """What a claim finds it by."""
        return self.cell.title, self.cell.row.label


def q_growth(curve: Curve) -> Array:
    """log10 of |Q| at the end over |Q| half-way, [P, 1], each a mean over a tenth of training."""
    size = np.abs(curve.values)
    size = np.where(np.isfinite(size), np.clip(size, 1e-3, LARGEST), LARGEST)
    steps, last = curve.steps, curve.steps[-1]
    end = size[:, steps > 0.9 * last].mean(1)
    middle = size[:, (steps > 0.45 * last) & (steps <= 0.55 * last)].mean(1)
    growth: Array = np.log10(end / middle)[:, None]
    return growth


def verdict(difference: stats.Estimate) -> str:
    """On one comparison."""
    if difference.low > 0:
        return HOLDS
    return DOES_NOT if difference.high < 0 else UNDECIDED


def together(verdicts: Sequence[str]) -> str:
    """On a claim of several comparisons: all of them must hold, and one that does not refutes it."""
    if DOES_NOT in verdicts:
        return DOES_NOT
    return HOLDS if all(one == HOLDS for one in verdicts) else UNDECIDED


def judge(experiment: Experiment, outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Every claim with its comparisons, as JSON."""
    by_key = {outcome.key: outcome for outcome in outcomes}
    return [_judged(claim, by_key) for claim in experiment.claims]


def _judged(claim: Claim, by_key: Mapping[tuple[str, str], Outcome]) -> dict[str, Any]:
    comparisons = []
    for title in dict.fromkeys(title for title, _ in by_key):
        for better in claim.better:
            for worse in claim.worse:
                ours, theirs = (by_key[title, label].metrics[claim.metric] for label in (better, worse))
                difference = stats.paired_difference(ours, theirs, np.random.default_rng(0))
                comparisons.append(
                    {
                        "data": title,
                        "better": better,
                        "worse": worse,
                        "difference": vars(difference),
                        "verdict": verdict(difference),
                    }
                )
    whole = together([str(one["verdict"]) for one in comparisons])
    return {"claim": claim.text, "metric": claim.metric, "verdict": whole, "comparisons": comparisons}
