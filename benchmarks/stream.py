"""What training from files costs: FOCAL's updates per second on a CPU with all rows in memory and streamed from disk.

    python benchmarks/stream.py [--json FILE]

80 tasks x 10,000 rows of half-cheetah's shapes, one learner. The two ways take turns on the same learner, so that
whatever else the machine does meets both; medians over the turns are shown. The files are in the system's cache.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import load
import numpy as np
import torch
import tyro
from rich.console import Console
from rich.table import Table

from omrl.algorithms.focal import FOCAL
from omrl.data import MetaDataset
from omrl.learning.engine import Population
from omrl.learning.sampling import Normalisation, OnDisk, make_sampler
from omrl.runs.model import populate

SIZES: dict[str, dict[str, Any]] = {
    "paper": {},
    "small": {"hidden": (64, 64), "encoder_hidden": (64, 64), "batch_size": 64, "context_size": 64},
}
# Updates in a turn: two seconds or so.
TURN = {"paper": 5, "small": 100}


@dataclass(frozen=True)
class Args:
    """Time training from memory and from disk."""

    tasks: int = 80
    """Number of tasks."""
    rows: int = 10_000
    """Rows per task."""
    turns: int = 15
    """How often each of the two ways has its turn."""
    json: Path | None = None
    """Also write the figures to this file."""


def stepper(data: Any, kind: FOCAL, population: Population) -> Callable[[int], None]:
    """A function that makes the update of a given number from this data."""
    config = kind.config
    sizes = {"meta_batch": config.meta_batch, "batch_size": config.batch_size, "context_size": config.context_size}
    sampler = make_sampler(
        data, Normalisation.of(data), spec=kind.batch_spec, learners=1, draws=len(kind.child_steps) + 1, **sizes
    )

    def draw(generator: torch.Generator) -> Any:
        batch = sampler.draw(generator)
        return batch, kind.noise(batch, generator)

    def step(number: int) -> None:
        sampler.prepare(number)
        population.step(draw)

    sampler.prepare(0)
    return step


def measure(path: Path, size: str, args: Args) -> dict[str, Any]:
    config = FOCAL.Config(**SIZES[size])
    kind, population = populate(FOCAL, load.OBS, load.ACT, config, [0], "cpu")
    view, before = MetaDataset.open(path), _held()
    steps = {"disk": stepper(OnDisk(view, args.rows), kind, population)}
    held = {"disk": _held() - before}
    steps["memory"] = stepper(view.to("cpu", args.rows), kind, population)
    held["memory"] = _held() - before - held["disk"]
    updates, rates = TURN[size], {"memory": list[float](), "disk": list[float]()}
    for step in steps.values():
        step(0)
    for turn in range(args.turns):
        for way, step in steps.items():
            started = time.perf_counter()
            for number in range(turn * updates, (turn + 1) * updates):
                step(number)
            rates[way].append(updates / (time.perf_counter() - started))
    return {
        "size": size,
        "updates_per_turn": updates,
        "updates_per_s": {way: float(np.median(values)) for way, values in rates.items()},
        "disk_over_memory": float(np.median(np.array(rates["disk"]) / np.array(rates["memory"]))),
        "turns": rates,
        "held_bytes": held,
    }


def _held() -> int:
    """Bytes of this process that are not pages of files; the system takes those back when it needs room."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["RssAnon"].split()[0]) * 1024


def main(args: Args) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "logs"
        load.write_logs(path, load.Args(tasks=args.tasks, rows=args.rows), 200)
        # A process for each, since memory that one has given back would hide what the next one takes.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as processes:
            results = [processes.submit(measure, path, size, args).result() for size in SIZES]
    figures = {"cores": os.cpu_count(), "tasks": args.tasks, "rows": args.rows, "results": results}

    table = Table(title=f"{args.tasks} tasks x {args.rows:,} rows, FOCAL, one learner, {os.cpu_count()} cores")
    for heading in ("", "memory, updates/s", "disk, updates/s", "disk / memory", "memory, MB", "disk, MB"):
        table.add_column(heading, justify="right" if heading else "left")
    for result in results:
        rate, held = result["updates_per_s"], result["held_bytes"]
        table.add_row(
            result["size"],
            *(f"{rate[way]:.2f}" for way in ("memory", "disk")),
            f"{result['disk_over_memory']:.1%}",
            *(f"{held[way] / 1e6:.0f}" for way in ("memory", "disk")),
        )
    Console().print(table)
    if args.json is not None:
        args.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main(tyro.cli(Args))
