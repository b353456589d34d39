"""A policy that is asked a million times and adapted ten thousand times: memory, and how long calls take.

    python benchmarks/soak.py --json results/reliability/soak.json

A run of FOCAL with its default sizes, half-cheetah's 20 observations and 6 actions, one thread. Contexts have 100 rows,
observations come one by one. Memory is what the process holds (resident), looked at ten times; the first look is after
a tenth of the calls, when everything that is made once is there.
"""

from __future__ import annotations

import os

# Before numpy is loaded: matrices are small, and a service has other work for its cores.
os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import gc
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import load
import numpy as np
import torch
import tyro

import omrl
from omrl.exporting import omrl_runtime
from omrl.progress import Meter
from omrl.runs.policy import Policy
from omrl.runs.run import environment

LOOKS = 10
PERCENTILES = (50, 90, 99, 99.9, 99.99, 100)


@dataclass(frozen=True)
class Args:
    """What to do."""

    acts: int = 1_000_000
    adapts: int = 10_000
    rows: int = 100
    json: Path | None = None


def resident() -> float:
    """MB that the process holds."""
    gc.collect()
    with Path("/proc/self/statm").open() as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def soak(label: str, calls: int, call: Callable[[int], object]) -> dict[str, Any]:
    """Latencies in microseconds, and memory on the way."""
    # Written once, so that the stopwatch takes all its memory before the first look.
    taken, memory = np.full(calls, np.nan), []
    with Meter(label, calls) as meter:
        for i in range(calls):
            started = time.perf_counter()
            call(i)
            taken[i] = time.perf_counter() - started
            if (i + 1) % max(calls // LOOKS, 1) == 0:
                memory.append(round(resident(), 2))
                meter.update(i + 1, f"{memory[-1]:.1f} MB")
    found = np.percentile(taken * 1e6, PERCENTILES)
    percentiles = {f"{p:g}": round(float(value), 1) for p, value in zip(PERCENTILES, found, strict=True)}
    return {"calls": calls, "microseconds": percentiles, "resident_mb": memory}


def main(args: Args) -> None:
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        data = load.write_logs(folder / "logs", load.Args(tasks=4, rows=10_000), 10_000)
        run = omrl.train("focal", folder / "logs", folder / "run", seeds=1, steps=1, eval_every=0).folder
        model, log = omrl.load(run), data.rows(0)
        obs = np.array(log["observations"])

        def adapt(_: int) -> Policy:
            start = int(rng.integers(len(obs) - args.rows))
            rows = {name: log[name][start : start + args.rows] for name in omrl_runtime.CONTEXT}
            return model.adapt(rows)

        policy = adapt(0)
        results = {
            "adapt": soak("adapting", args.adapts, adapt),
            "act": soak("acting", args.acts, lambda i: policy.act(obs[i % len(obs)])),
        }
    for what, found in results.items():
        times = ", ".join(f"{p} %: {value:,.0f}" for p, value in found["microseconds"].items())
        first, last = found["resident_mb"][0], found["resident_mb"][-1]
        print(f"{what}: {found['calls']:,} calls, {first:.1f} MB then {last:.1f} MB, us by percentile {times}")
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        text = {"command": "python benchmarks/soak.py", "environment": environment(), "rows": args.rows, **results}
        args.json.write_text(json.dumps(text, indent=1) + "\n")


if __name__ == "__main__":
    main(tyro.cli(Args))
