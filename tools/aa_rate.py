"""How often two groups of seeds of one and the same configuration are told apart, which is always wrong.

    python tools/aa_rate.py runs/half-cheetah-vel-twenty-seeds

The run is one that `omrl evaluate` has tested, or that is published. Its seeds, 20 say, are split at random into
5 against 5, a thousand times, and every split is judged as a comparison of an experiment is.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from omrl.runs.records import read_scores
from omrl.studies.judging import ZONES, rate_of_differences, way

SEEDS = 5


def rate(folder: Path) -> float:
    """The share of a tested run's splits that are told apart."""
    scores, path = read_scores(folder / "scores.csv"), folder / "scores.json"
    if scores is None or not path.is_file() or scores.returns.shape[0] < 2 * SEEDS:
        sys.exit(f"{folder} needs a scores.csv of {2 * SEEDS} seeds or more and its summary: omrl evaluate {folder}")
    summary = json.loads(path.read_text())
    whole = way(summary)
    return rate_of_differences(
        scores.returns.mean(-1),
        np.random.default_rng(0),
        new_tasks=not summary["tasks_trained_on"],
        zone=None if whole is None else ZONES["return"] * abs(whole),
        seeds=SEEDS,
    )


def main() -> None:
    """Print the rate of every run that is named."""
    for folder in map(Path, sys.argv[1:]):
        print(f"{folder}: {rate(folder):.1%} of splits are told apart")


if __name__ == "__main__":
    main()
