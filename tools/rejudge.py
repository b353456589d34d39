"""Judge published results again: every interval and verdict from the raw scores beside it.

    python tools/rejudge.py

For when the statistics or the claims of paper.toml have changed, and the runs have not: nothing is trained.
Rows and claims of results/paper/NAME/results.json and their tables are made again from NAME/scores.csv (metrics other
than the return from their values of every seed), intervals in results/focal from the scores.csv of their runs.
`python tools/tables.py` then brings the pages up to date.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import paper_results
from focal_results import RESULTS as FOCAL

from omrl.evaluation import stats
from omrl.runs.records import read_scores
from omrl.storage.files import write_json
from omrl.studies import tabulating as tables
from omrl.studies.definitions import get_experiment
from omrl.studies.judging import Scored, judge, of_returns, way


def returns_of(path: Path) -> dict[tuple[str, str], Any]:
    """The mean return of every seed in every task [seeds, tasks] of an experiment's scores.csv, by data and row."""
    found: dict[tuple[str, str], dict[tuple[str, str], list[float]]] = {}
    with path.open(newline="") as file:
        for score in csv.DictReader(file):
            episodes = found.setdefault((score["data"], score["row"]), {})
            episodes.setdefault((score["seed"], score["task"]), []).append(float(score["return"]))
    matrices = {}
    for key, episodes in found.items():
        seeds, tasks = (list(dict.fromkeys(names)) for names in zip(*episodes, strict=True))
        matrices[key] = np.array([[np.mean(episodes[seed, task]) for task in tasks] for seed in seeds])
    return matrices


def judged_again(results: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What results.json says, from the raw scores; the tables of the experiment are written."""
    experiment = get_experiment(results["experiment"])
    matrices = returns_of(folder / "scores.csv")
    data = {one.title: one for one in experiment.data}
    rows, scored = [], []
    for row in results["rows"]:
        returns = matrices[row["data"], row["row"]]
        of_seeds = row["metrics"] | {"return": [float(value) for value in returns.mean(1)]}
        rows.append(row | of_returns(returns, row) | {"metrics": of_seeds})
        metrics = {name: np.array(values)[:, None] for name, values in of_seeds.items()} | {"return": returns}
        scored.append(Scored(data[row["data"]], row["data"], row["row"], metrics, way(row)))
    claims = judge(experiment.claims, scored)
    made = tables.make_all(experiment, rows, claims)
    for table in made:
        table.write(folder / "tables")
    return results | {"rows": rows, "claims": claims, "tables": [table.name for table in made]}


def summarised_again(summary: dict[str, Any], raw: Path) -> dict[str, Any]:
    """What `omrl evaluate` says of a run's raw scores."""
    scores = read_scores(raw)
    assert scores is not None
    matrix = scores.returns.mean(-1)
    mean = stats.mean(matrix, new_tasks=not summary["tasks_trained_on"]).interval()
    return summary | {"mean": vars(mean), "iqm": stats.iqm(matrix)}


def main() -> None:
    """Everything that has an interval."""
    for results in paper_results.collect():
        folder = paper_results.RESULTS / results["experiment"]
        write_json(folder / "results.json", judged_again(results, folder))
    paper_results.write_collected()
    for name in ("focal", "half"):
        path = FOCAL / f"{name}.json"
        rows = [summarised_again(row, FOCAL / folder_of(row) / "scores.csv") for row in json.loads(path.read_text())]
        path.write_text(json.dumps(rows, indent=1) + "\n")


def folder_of(row: dict[str, Any]) -> str:
    """Where tools/focal_results.py put the raw scores of a row."""
    if "half" in row:
        return f"{row['family']}-{row['updates'] // 1000}k{'-half' if row['half'] else ''}"
    return f"{row['family']}-{row['preset']}"


if __name__ == "__main__":
    main()
