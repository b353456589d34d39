"""What half precision costs: returns of the trained actors in single precision and as they are stored.

    python benchmarks/half_precision.py sparse-point-robot

Trains the family's agents (minutes), rolls the last checkpoint out with both sets of weights and the same random
numbers, and adds the result to results/behaviour/half-precision.json.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from omrl.behaviour.agents import Trainer
from omrl.behaviour.config import preset
from omrl.behaviour.rollout import roll_out
from omrl.families import TaskFamily, get_family
from omrl.learning.devices import choose_device
from omrl.progress import Meter

RESULTS = Path(__file__).resolve().parents[1] / "results" / "behaviour" / "half-precision.json"
EPISODES, CHUNK = 20, 25


def returns(family: TaskFamily, actor: dict[str, Any]) -> Any:
    """Mean return of every task."""
    layers = len(actor) // 2
    found = []
    for start in range(0, len(family.tasks), CHUNK):
        part = slice(start, start + CHUNK)
        kinds = ("weight", "bias")
        weights, biases = ([actor[f"{k}.{i}"][part].astype(np.float32) for i in range(layers)] for k in kinds)
        tasks = family.tasks[part]
        for rows in roll_out(family, tasks, weights, biases, episodes=EPISODES, seeds=[(7, 1)] * len(tasks)):
            found.append(rows["rewards"][rows["step"] < family.horizon].sum() / (rows["step"] == 0).sum())
    return np.array(found)


def main(name: str) -> None:
    """Train, compare, record."""
    family = get_family(name)
    config = preset(family).agents
    with tempfile.TemporaryDirectory() as work:
        trainer = Trainer(family, family.tasks, config, choose_device("auto"), Path(work))
        with Meter(f"training {len(family.tasks)} agents", config.steps) as meter:
            while trainer.step < config.steps:
                trainer.update()
                meter.update(trainer.step)
        stored = trainer.actor()
        single = trainer.weights()
    half, full = returns(family, stored), returns(family, single)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results[name] = {
        "tasks": len(half),
        "half": round(float(half.mean()), 4),
        "single": round(float(full.mean()), 4),
        "difference": round(float((half - full).mean()), 4),
        "standard_error": round(float((half - full).std() / np.sqrt(len(half))), 4),
    }
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    print(name, results[name])


if __name__ == "__main__":
    main(sys.argv[1])
