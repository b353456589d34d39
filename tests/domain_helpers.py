"""A made-up domain whose tasks differ in what an action does and in what is wanted."""

from __future__ import annotations

import numpy as np

from omrl.data import MetaDataset

SCALE = np.array([40.0, 0.5, 8.0, 1.0])
LEVEL = np.array([300.0, 0.0, -20.0, 5.0])
MIX = np.array([[0.8, 0.1, 0.0, 0.0], [0.0, 0.6, 0.2, 0.0], [0.1, 0.0, 0.7, 0.0], [0.0, 0.0, 0.0, 0.9]])
PUSH = np.array([0.5, 0.3, 0.0, 0.2])


def a_task(rng, far=False):
    """What an action does, and where the first number should be."""
    return (3.0, 4.0) if far else (rng.uniform(0.5, 1.5), rng.uniform(-1.0, 1.0))


def log(task, rng, rows):
    """Consecutive rows of a task in the units of a log."""
    gain, wanted = task
    state = rng.normal(size=4)
    found = {name: [] for name in ("observations", "actions", "rewards", "next_observations")}
    for _ in range(rows):
        act = np.clip(rng.normal(0.3 * (wanted - state[0]), 0.7), -1, 1)
        after = MIX @ state + gain * PUSH * act + 0.3 * rng.normal(size=4)
        reward = -abs(state[0] - wanted) + 0.05 * rng.normal()
        values = (LEVEL + SCALE * state, [5.0 + 5.0 * act], reward, LEVEL + SCALE * after)
        for name, value in zip(found, values, strict=True):
            found[name].append(value)
        state = after
    return {name: np.array(values, dtype=np.float32) for name, values in found.items()}


def save(folder, tasks, rows, rng):
    """A dataset of training tasks."""
    logs = {}
    for i in range(tasks):
        logs[f"task-{i:03d}"] = {
            **log(a_task(rng), rng, rows),
            "terminations": np.zeros(rows, dtype=bool),
            "truncations": np.arange(rows) == rows - 1,
            "episode": np.zeros(rows, dtype=int),
            "step": np.arange(rows),
        }
    split = {"train": list(logs), "test": []}
    MetaDataset.from_arrays(logs, action_low=[0], action_high=[10], varies="both", split=split).save(folder)
