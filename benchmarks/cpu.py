"""Small networks on a CPU: updates per second, on an idle machine and beside programs that keep its cores busy.

    python benchmarks/cpu.py --json results/speed/cpu.json
    GOMP_SPINCOUNT=3000 python benchmarks/cpu.py --sizes --json results/speed/cpu-threads.json

FOCAL with the networks and batches of preset `quick` (64 x 64, 16 tasks x 64 rows, two seeds). Every setting has a
process of its own, because threads read how to wait when torch is loaded; settings take turns, and medians are shown.
The first one is what torch does by itself, the last what `omrl train` does. With --sizes: from how large a layer on a
second thread pays, one compiled learner with fewer and more rows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from omrl.algorithms import get_algorithm, read_preset
from omrl.commands.train import OF_THE_RUN
from omrl.families import get_family
from omrl.learning import bench
from omrl.runs.model import populate

FAMILY, SEEDS = "sparse-point-robot", 2
WAIT = {"GOMP_SPINCOUNT": "3000"}
# Rows of a task, for the question of threads.
BATCHES = (8, 16, 32, 64)
# Label, how threads wait, eager or compiled, threads.
SETTINGS = [
    ("eager, threads spin", {}, "eager", 2),
    ("eager", {}, "eager", 1),
    ("compiled, threads spin", {}, "compiled", 2),
    ("compiled", {}, "compiled", 1),
    ("compiled, threads wait briefly", WAIT, "compiled", 2),
]


@dataclass(frozen=True)
class Args:
    """What to measure."""

    json: Path | None = None
    turns: int = 3
    seconds: float = 4.0
    sizes: bool = False
    """How many threads pay, by the size of a layer."""
    one: int | None = None
    """Measure this setting alone and print it: what the processes are started with."""


def learner(mode: str, seeds: int, **sizes: int) -> Callable[[], Any]:
    """What makes one update of so many learners of preset `quick`."""
    family = get_family(FAMILY)
    bench.OBS, bench.ACT = family.obs_dim, family.act_dim
    kind = get_algorithm("focal")
    values = {k: v for k, v in read_preset("focal", "quick", FAMILY).items() if k not in OF_THE_RUN}
    config = kind.Config(**(values | sizes))
    algorithm, population = populate(kind, family.obs_dim, family.act_dim, config, range(seeds), "cpu", mode)
    sampler = bench._sampler(config, algorithm.batch_spec, seeds, "cpu")

    def draw(generator):
        batch = sampler.draw(generator)
        return batch, algorithm.noise(batch, generator)

    return lambda: population.step(draw)


def rate(step: Callable[[], Any], seconds: float) -> float:
    """Updates per second."""
    started, done = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        step()
        done += 1
    return done / (time.perf_counter() - started)


def measure(mode: str, threads: int, seconds: float) -> dict[str, float]:
    """Updates per second, idle and beside two busy loops, and how long the first update takes."""
    import torch

    torch.set_num_threads(threads)
    step = learner(mode, SEEDS)
    started = time.perf_counter()
    step()
    first = time.perf_counter() - started
    rate(step, 0.2)
    idle = rate(step, seconds)
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        time.sleep(0.5)
        busy = rate(step, seconds)
    finally:
        for loop in loops:
            loop.kill()
    return {"first_update_s": first, "idle": idle, "busy": busy}


def sizes(args: Args) -> list[dict[str, float]]:
    """Updates per second with one and with two threads, taking turns; medians."""
    import torch

    rows = []
    for batch in BATCHES:
        step, found = learner("compiled", 1, batch_size=batch, context_size=batch), {1: [], 2: []}
        for threads in (1, 2) * args.turns:
            torch.set_num_threads(threads)
            rate(step, 0.2)
            found[threads].append(rate(step, args.seconds / 2))
        numbers = 16 * batch * 64
        rows.append({"numbers": numbers, **{f"threads_{n}": float(np.median(rates)) for n, rates in found.items()}})
        print(rows[-1], flush=True)
    return rows


def main(args: Args) -> None:
    if args.sizes:
        rows = sizes(args)
        if args.json:
            args.json.write_text(json.dumps(rows, indent=1) + "\n")
        return
    if args.one is not None:
        _, _, mode, threads = SETTINGS[args.one]
        print(json.dumps(measure(mode, threads, args.seconds)))
        return
    found: dict[str, list[dict[str, float]]] = {}
    clean = {key: value for key, value in os.environ.items() if key not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    for _ in range(args.turns):
        for number, (label, waiting, _, _) in enumerate(SETTINGS):
            words = [sys.executable, __file__, "--one", str(number), "--seconds", str(args.seconds)]
            done = subprocess.run(words, env=clean | waiting, capture_output=True, text=True, check=True)
            found.setdefault(label, []).append(json.loads(done.stdout.splitlines()[-1]))
            print(label, {key: round(value, 1) for key, value in found[label][-1].items()}, flush=True)
    rows = []
    for label, _, mode, threads in SETTINGS:
        medians = {key: float(np.median([turn[key] for turn in found[label]])) for key in found[label][0]}
        ratio = float(np.median([turn["busy"] / turn["idle"] for turn in found[label]]))
        rows.append({"setting": label, "mode": mode, "threads": threads, **medians, "busy_over_idle": ratio})
    if args.json:
        args.json.write_text(json.dumps({"turns": args.turns, "cores": os.cpu_count(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main(tyro.cli(Args))
