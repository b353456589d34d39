"""Simulators, tasks and actions for the tests of the families."""

from __future__ import annotations

import numpy as np

from omrl.families import Task, TaskFamily
from omrl.families.batched import Simulator

BODIES = ["half-cheetah-vel", "half-cheetah-fwd-back", "ant-fwd-back", "walker-2d-params"]


def some_tasks(family: TaskFamily, count: int) -> list[Task]:
    """Tasks from all over the list, repeated where the family has fewer."""
    spread = np.linspace(0, len(family.tasks) - 1, min(count, len(family.tasks))).astype(int)
    return [family.tasks[spread[i % len(spread)]] for i in range(count)]


def started(family: TaskFamily, tasks: list[Task], threads: int | None = None, first_seed: int = 0) -> Simulator:
    simulator = family.simulator(tasks, threads)
    simulator.reset(range(len(tasks)), [np.random.default_rng(first_seed + i) for i in range(len(tasks))])
    return simulator


def random_actions(family: TaskFamily, steps: int, num: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (steps, num, family.act_dim)).astype(np.float32)
