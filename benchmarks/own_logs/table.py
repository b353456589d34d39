"""What the default recipe for one's own logs is truly worth: every made-up domain, every kind of logger, five seeds.

    python benchmarks/own_logs/table.py --out runs/own-logs

FOCAL and contextual cloning are trained as `omrl train ALGORITHM --data LOG` trains them, with nothing else said but
the number of seeds, and judged in the simulators that made the logs, beside the logger itself and the best rule that is
known. Everybody has the same luck. A cell that was judged before is kept, so that several may be made side by side
(--domains) and put together by a last call. docs/own-logs-results.md shows what came out.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro
from domain import LOGGERS, Acts, Domain, Logger, Task
from domains import DOMAINS, FIXED_ON

import omrl
from omrl.data import MetaDataset
from omrl.storage.files import replacing

# Of the rows of a cell.
COLUMNS = ("who", "seed", "task", "return", "harmed")
LEARNERS = ("focal", "contextual-bc")
# Logged rows of a test task that a policy is adapted to.
CONTEXT = 200


@dataclass(frozen=True)
class Args:
    """What to judge."""

    out: Path
    """Where data, runs and judged cells go."""
    results: Path = Path("results/own-logs/own-logs.json")
    """Where the raw outcomes of all cells that are judged go."""
    domains: tuple[str, ...] = tuple(DOMAINS)
    """Which to train and judge now."""
    loggers: tuple[Logger, ...] = LOGGERS
    seeds: int = 5
    episodes: int = 64
    """Of each task, for everybody."""
    threads: int | None = None
    """Of a training; as many as it is worth if left out."""


def main(args: Args) -> None:
    wanted = [(DOMAINS[name], kind) for name in args.domains for kind in args.loggers]
    for domain, kind in wanted:
        if not _file(args, domain, kind).is_file():
            _judge(args, domain, kind)
    every = [_file(args, domain, kind) for domain in DOMAINS.values() for kind in LOGGERS]
    _publish(args, [json.loads(path.read_text()) for path in every if path.is_file()])


def _file(args: Args, domain: Domain, kind: Logger) -> Path:
    return args.out / "cells" / f"{domain.name}-{kind}.json"


def _judge(args: Args, domain: Domain, kind: Logger) -> None:
    """Train in one cell, and write down what everybody gets there."""
    name = f"{domain.name}-{kind}"
    data = args.out / "data" / name
    if not data.is_dir():
        domain.dataset(kind).save(data)
    rows: list[tuple[object, ...]] = []
    seconds, settings = {}, {}
    for learner in LEARNERS:
        folder, began = args.out / learner / name, time.perf_counter()
        omrl.train(learner, data, folder, seeds=args.seeds, threads=args.threads)
        seconds[learner] = round(time.perf_counter() - began, 1)
        model = omrl.load(folder)
        config = model.run.config
        settings[learner] = {"preset": config.preset, "steps": config.steps, **config.hyperparameters}
        log = MetaDataset.open(data)
        for seed in range(args.seeds):
            for i, task in enumerate(domain.test_tasks):
                context = log.sample(task.name, CONTEXT, np.random.default_rng([seed, i]))
                rows.append((learner, seed, *_outcome(args, domain, task, model.adapt(context, seed))))
    for task in domain.test_tasks:
        rows.append(("logger", 0, *_outcome(args, domain, task, domain.logger(task, kind, seed=1))))
        rows.append(("best", 0, *_outcome(args, domain, task, domain.best(task))))
    cell = {"domain": domain.name, "logger": kind, "seconds": seconds, "settings": settings, "rows": rows}
    path = _file(args, domain, kind)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(cell))
    print(f"{name}: judged after {sum(seconds.values()):.0f} s of training", flush=True)


def _outcome(args: Args, domain: Domain, task: Task, policy: Acts) -> tuple[str, float, float]:
    found = domain.outcome(task, policy, args.episodes)
    return task.name, round(float(found.returns.mean()), 4), round(float(found.harmed.mean()), 4)


def _publish(args: Args, cells: list[dict[str, object]]) -> None:
    about = {
        "command": "python benchmarks/own_logs/table.py --out runs/own-logs",
        "omrl": omrl.__version__,
        "wanted": len(DOMAINS) * len(LOGGERS),
        "fixed_on": list(FIXED_ON),
        "seeds": args.seeds,
        "episodes": args.episodes,
        "context": CONTEXT,
        "columns": COLUMNS,
    }
    lines = ",\n".join(json.dumps(cell) for cell in cells)
    args.results.parent.mkdir(parents=True, exist_ok=True)
    with replacing(args.results) as temporary:
        temporary.write_text(json.dumps(about)[:-1] + f', "cells": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main(tyro.cli(Args))
