"""Raw figures of the behaviour data: mean return of every task at every level, from the datasets' manifests.

    python tools/behaviour_results.py data/sparse-point-robot data/ant-fwd-back ...

Writes results/behaviour/behaviour.json, from which `tools/tables.py` makes the table of docs/data.md. Families that are
not named keep their figures.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from omrl import MetaDataset
from omrl.families import FAMILIES, get_family

RESULTS = Path(__file__).resolve().parents[1] / "results" / "behaviour" / "behaviour.json"


def figures(dataset: MetaDataset) -> dict[str, object]:
    """One family's returns, task by task."""
    family = get_family(dataset.family or "")
    tasks = []
    for task, entry in zip(dataset.tasks, dataset.manifest.tasks, strict=True):
        levels = {level: round(found.mean_return, 4) for level, found in entry.levels.items()}
        tasks.append({"task": task.name, **levels, "best_possible": family.best_return(task)})
    return {"seeds": 1, "horizon": family.horizon, "steps": dataset.manifest.source["agents"]["steps"], "tasks": tasks}


def main() -> None:
    """Add the named datasets to the results."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for folder in sys.argv[1:]:
        dataset = MetaDataset.open(folder)
        results[dataset.family] = figures(dataset)
    lines = []
    for name in (family for family in FAMILIES if family in results):
        result = results[name]
        head = json.dumps({key: value for key, value in result.items() if key != "tasks"})[:-1]
        tasks = ",\n    ".join(json.dumps(task) for task in result["tasks"])
        lines.append(f'  "{name}": {head}, "tasks": [\n    {tasks}\n  ]}}')
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
