"""What the default recipe for one's own logs is truly worth: every made-up domain, every kind of logger, five seeds.

    python benchmarks/own_logs/table.py --json results/own-logs/own-logs.json

FOCAL and contextual cloning are trained as `omrl train ALGORITHM --data LOG` trains them, with nothing else said but
the number of seeds, and judged in the simulators that made the logs, beside the logger itself and the best rule that is
known. Everybody has the same luck. docs/own-logs-results.md shows what came out.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from cells import measure_cells
from domain import LOGGERS, Acts, Domain, Logger, Task
from domains import DOMAINS, FIXED_ON

import omrl
from omrl.data import MetaDataset

# Of the rows of a cell.
COLUMNS = ("who", "seed", "task", "return", "harmed")
LEARNERS = ("focal", "contextual-bc")
# Episodes of each task, for everybody; logged rows of a test task that a policy is adapted to.
SEEDS, EPISODES, CONTEXT = 5, 64, 200


def measure(domain: Domain, kind: Logger) -> list[dict[str, Any]]:
    """Train in one cell, and write down what everybody gets there."""
    rows: list[tuple[object, ...]] = []
    seconds, settings = {}, {}
    with tempfile.TemporaryDirectory() as name:
        data = Path(name) / "data"
        domain.dataset(kind).save(data)
        log = MetaDataset.open(data)
        for learner in LEARNERS:
            began = time.perf_counter()
            omrl.train(learner, data, Path(name) / learner, seeds=SEEDS, device="cpu", threads=1)
            seconds[learner] = round(time.perf_counter() - began, 1)
            model = omrl.load(Path(name) / learner)
            config = model.run.config
            settings[learner] = {"preset": config.preset, "steps": config.steps, **config.hyperparameters}
            for seed in range(SEEDS):
                for i, task in enumerate(domain.test_tasks):
                    context = log.sample(task.name, CONTEXT, np.random.default_rng([seed, i]))
                    rows.append((learner, seed, *_outcome(domain, task, model.adapt(context, seed))))
    for task in domain.test_tasks:
        rows.append(("logger", 0, *_outcome(domain, task, domain.logger(task, kind, seed=1))))
        rows.append(("best", 0, *_outcome(domain, task, domain.best(task))))
    return [{"domain": domain.name, "logger": kind, "seconds": seconds, "settings": settings, "rows": rows}]


def _outcome(domain: Domain, task: Task, policy: Acts) -> tuple[str, float, float]:
    found = domain.outcome(task, policy, EPISODES)
    return task.name, round(float(found.returns.mean()), 4), round(float(found.harmed.mean()), 4)


if __name__ == "__main__":
    measure_cells(
        __doc__ or "",
        measure,
        {
            "command": "python benchmarks/own_logs/table.py --json results/own-logs/own-logs.json",
            "omrl": omrl.__version__,
            "wanted": len(DOMAINS) * len(LOGGERS),
            "fixed_on": list(FIXED_ON),
            "seeds": SEEDS,
            "episodes": EPISODES,
            "context": CONTEXT,
            "columns": COLUMNS,
        },
    )
