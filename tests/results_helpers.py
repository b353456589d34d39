"""What is published in results/, for the tests that derive numbers and sentences from it."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np
from publish import published

from omrl.studies.definitions import experiments
from omrl.studies.judging import Scored, way

RESULTS = Path(__file__).parents[1] / "results"
PAPER = RESULTS / "paper"
PUBLISHED = published(PAPER)


def results_of(experiment):
    """Those of a published experiment."""
    (results,) = (one for one in PUBLISHED if one["experiment"] == experiment)
    return results


def matrix_of(scores):
    """The mean return of every seed in every task, [seeds, tasks]."""
    episodes = {}
    for score in scores:
        episodes.setdefault((int(score["seed"]), score["task"]), []).append(float(score["return"]))
    seeds, tasks = (list(dict.fromkeys(names)) for names in zip(*episodes, strict=True))
    return np.array([[np.mean(episodes[seed, task]) for task in tasks] for seed in seeds])


def raw_scores(file):
    with gzip.open(file, "rt", newline="") if file.suffix == ".gz" else file.open(newline="") as opened:
        return list(csv.DictReader(opened))


def returns_of(results):
    """Matrices of returns, by data and row."""
    found = {}
    for score in raw_scores(PAPER / results["experiment"] / "scores.csv.gz"):
        found.setdefault((score["data"], score["row"]), []).append(score)
    return {key: matrix_of(scores) for key, scores in found.items()}


def scored(results):
    """The rows of an experiment, as claims are judged by them."""
    matrices, data = returns_of(results), {one.title: one for one in experiments()[results["experiment"]].data}
    found = []
    for row in results["rows"]:
        metrics = {name: np.array(values)[:, None] for name, values in row["metrics"].items()}
        metrics["return"] = matrices[row["data"], row["row"]]
        found.append(Scored(data[row["data"]], row["data"], row["row"], metrics, way(row), row["run"]))
    return found


def assert_says(page, *phrases):
    """However its lines are broken."""
    text = " ".join(page.split())
    for phrase in phrases:
        assert phrase in text
