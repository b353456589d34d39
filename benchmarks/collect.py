"""Throughput of training behaviour agents: environment steps per second with an update per step for every agent.

    python benchmarks/collect.py --family half-cheetah-vel --tasks 1 10 100 --seconds 10

Times the loop of `omrl collect` after its warm-up, and its two halves alone: the update and the simulation.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
import tyro

from omrl.behaviour import agents
from omrl.behaviour.agents import Trainer
from omrl.behaviour.config import preset
from omrl.families import get_family
from omrl.learning.engine import Mode, Population


@dataclass(frozen=True)
class Bench:
    """What to time."""

    family: str = "half-cheetah-vel"
    tasks: tuple[int, ...] = (1, 10, 100)
    envs_per_task: tuple[int, ...] = (4,)
    seconds: float = 10.0
    device: str = "auto"
    mode: Mode | None = None
    """eager, compiled or graph; the engine's own choice if left out."""
    bfloat16: bool = False
    """With networks in bfloat16."""
    paper_size: bool = False
    """With the paper's own agents: two layers of 1024 and batches of 1024."""
    json: Path | None = None


PAPER_SIZE = {"actor_hidden": (1024, 1024), "critic_hidden": (1024, 1024), "batch_size": 1024}


def per_second(work: Callable[[], None], units: int, seconds: float) -> float:
    """Rate of `work`, which does `units`, over about `seconds`."""
    started, done = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        for _ in range(20):
            work()
        done += 20 * units
        synchronise()
    return done / (time.perf_counter() - started)


def synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def main(args: Bench) -> None:
    device = ("cuda" if torch.cuda.is_available() else "cpu") if args.device == "auto" else args.device
    family = get_family(args.family)
    if args.mode:
        agents.Population = partial(Population, mode=args.mode)  # type: ignore[misc,assignment]
    rows = []
    print("tasks  envs  start-up s  steps/s  updates/s per agent  update alone ms  simulation alone steps/s")
    for tasks in args.tasks:
        for envs in args.envs_per_task:
            config = preset(family).agents
            config = replace(
                config,
                steps=200_000,
                checkpoints=(0, 200_000),
                random_steps=1_000,
                envs_per_task=envs,
                updates_per_step=1.0,
                sac=replace(config.sac, bfloat16=args.bfloat16, **(PAPER_SIZE if args.paper_size else {})),
            )
            chosen = [family.tasks[i] for i in np.linspace(0, len(family.tasks) - 1, tasks).round().astype(int)]
            started = time.perf_counter()
            with tempfile.TemporaryDirectory() as work:
                trainer = Trainer(family, chosen, config, device, Path(work))
                while trainer.step < config.random_steps + 10 * envs:
                    trainer.update()
                synchronise()
                start_up = time.perf_counter() - started
                rate = per_second(trainer.update, tasks * envs, args.seconds)
                update = per_second(lambda t=trainer: t.population.step(t._draw), 1, args.seconds / 4)
                actions = np.random.default_rng(0).uniform(-1, 1, (tasks * envs, family.act_dim))
                simulated = per_second(lambda t=trainer, a=actions: t.simulator.step(a), tasks * envs, args.seconds / 4)
                trainer.simulator.close()
            row = {
                "family": family.name,
                "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
                "mode": args.mode or ("graph" if device == "cuda" else "eager"),
                "bfloat16": args.bfloat16,
                "paper_size": args.paper_size,
                "tasks": tasks,
                "envs_per_task": envs,
                "start_up_s": round(start_up, 1),
                "steps_per_s": round(rate),
                "updates_per_s_per_agent": round(rate / tasks),
                "update_ms": round(1e3 / update, 3),
                "simulation_steps_per_s": round(simulated),
            }
            rows.append(row)
            print(*list(row.values())[5:], sep="  ", flush=True)
            del trainer
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main(tyro.cli(Bench))
