"""Raw figures of the behaviour data, from the datasets' manifests.

    python benchmarks/behaviour_data.py data/sparse-point-robot data/ant-fwd-back ...
    python benchmarks/behaviour_data.py --full-size full/sparse-point-robot data/sparse-point-robot

The first writes results/behaviour/behaviour.json: what every level is like, and every task's mean return at it. The
second writes results/behaviour/full-size.json: agents of the paper's size beside ours, at checkpoints and in tasks
that both have. `tools/tables.py` makes the tables of docs/data.md from them. Families that are not named keep their
figures.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from omrl import MetaDataset
from omrl.data.manifest import MANIFEST, Checkpoint, Manifest
from omrl.families import FAMILIES, get_family

RESULTS = Path(__file__).resolve().parents[1] / "results" / "behaviour"


def figures(dataset: MetaDataset) -> dict[str, Any]:
    """One family's levels, and its returns task by task."""
    family = get_family(dataset.family or "")
    levels = {}
    for level in dataset.levels:
        facts = dataset.level_facts(level)
        levels[level] = {
            "checkpoint": dataset.manifest.source["rollout"]["levels"].get(level),
            "rows": facts.rows,
            "mean": round(float(facts.returns.mean()), 4),
            "worst": round(float(facts.returns.min()), 4),
            "best": round(float(facts.returns.max()), 4),
            "rewarded": None if facts.rewarded is None else round(facts.rewarded, 4),
            "action_std": None if facts.action_std is None else round(facts.action_std, 4),
        }
    tasks = []
    for task, entry in zip(dataset.tasks, dataset.manifest.tasks, strict=True):
        returns = {level: round(found.mean_return, 4) for level, found in entry.levels.items()}
        references = {"untrained": entry.reference.random, "best_possible": family.best_return(task)}
        tasks.append({"task": task.name, **returns, **references})
    return {"seeds": 1, "horizon": family.horizon, "levels": levels, "tasks": tasks}


def full_size(full: Manifest, ours: Manifest) -> dict[str, Any]:
    """The same checkpoints of the same tasks, side by side; means over tasks."""

    def of(manifest: Manifest, step: int) -> dict[str, float]:
        found: list[Checkpoint] = [
            checkpoint
            for entry in manifest.tasks
            for checkpoint in entry.checkpoints
            if entry.name in shared and checkpoint.policy_step == step
        ]
        return {
            "return": round(float(np.mean([c.mean_return for c in found])), 4),
            "action_std": round(float(np.mean([c.action_std or 0.0 for c in found])), 4),
        }

    shared = {entry.name for entry in full.tasks} & {entry.name for entry in ours.tasks}
    steps = [c.policy_step for c in full.tasks[0].checkpoints]
    known = {c.policy_step for c in ours.tasks[0].checkpoints}
    rows = {step: {"full": of(full, step), "ours": of(ours, step)} for step in steps if step in known}
    return {"tasks": len(shared), "checkpoints": rows}


def write(name: str, results: dict[str, Any]) -> None:
    """In the order of the families, a line for each level, task or checkpoint."""
    ordered = {family: results[family] for family in FAMILIES if family in results}
    (RESULTS / name).write_text(json.dumps(ordered, indent=1) + "\n")


def read(name: str) -> dict[str, Any]:
    """What is there."""
    found: dict[str, Any] = json.loads((RESULTS / name).read_text()) if (RESULTS / name).exists() else {}
    return found


def main() -> None:
    """Add the named datasets to the results."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    if sys.argv[1:2] == ["--full-size"]:
        # The manifests alone: rows of agents of another size need not travel.
        paths = [Path(folder) / MANIFEST for folder in sys.argv[2:4]]
        full, ours = (Manifest.from_json(path.read_bytes(), str(path)) for path in paths)
        write("full-size.json", read("full-size.json") | {str(ours.family): full_size(full, ours)})
        return
    opened = [MetaDataset.open(folder) for folder in sys.argv[1:]]
    write("behaviour.json", read("behaviour.json") | {str(dataset.family): figures(dataset) for dataset in opened})


if __name__ == "__main__":
    main()
