"""Small datasets and runs that several test files train on."""

from __future__ import annotations

import csv

import numpy as np

import omrl
from omrl.data import MetaDataset
from omrl.runs.config import RunConfig

NETWORKS = {"hidden": (8, 8), "encoder_hidden": (8, 8), "latent_dim": 2}
SMALL = {**NETWORKS, "batch_size": 8, "context_size": 4, "meta_batch": 3}
OPTIONS = {"seeds": 2, "steps": 12, "level": "mixed", "log_every": 4, "save_every": 5, "eval_every": 0}


def train(data, out, algorithm="focal", **changes):
    """A run of a few updates of tiny networks."""
    return omrl.train(algorithm, data, out, **{**SMALL, **OPTIONS, "device": "cpu", **changes})


def metrics(run):
    """The rows of a run's metrics."""
    with (run / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def rollout(family, task, rng, episodes=4, steps=30):
    """Random walks of a task, logged as the format asks."""
    simulator = family.simulator([task] * episodes)
    simulator.reset(range(episodes), [rng] * episodes)
    log = []
    for _ in range(steps):
        obs, act = simulator.observe(), rng.uniform(-1, 1, (episodes, 2)).astype(np.float32)
        step = simulator.step(act)
        row = {"observations": obs, "actions": act, "rewards": step.rewards, "next_observations": step.obs}
        log.append({**row, **step.extras})
    stacked = {name: np.stack([row[name] for row in log], axis=1) for name in log[0]}  # [episode, step, ...]
    return {
        **{name: values.reshape(episodes * steps, *values.shape[2:]) for name, values in stacked.items()},
        "terminations": np.zeros(episodes * steps, dtype=bool),
        "truncations": np.arange(episodes * steps) % steps == steps - 1,
        "episode": np.repeat(np.arange(episodes), steps),
        "step": np.tile(np.arange(steps), episodes),
    }


def walks(family, folder):
    """A dataset of five tasks, two of them for testing."""
    rng = np.random.default_rng(0)
    tasks = family.tasks[:: len(family.tasks) // 5][:5]
    names = [task.name for task in tasks]
    dataset = MetaDataset.from_arrays(
        {task.name: rollout(family, task, rng) for task in tasks},
        action_low=[-1, -1],
        action_high=[1, 1],
        varies=family.varies,
        split={"train": names[:3], "test": names[3:]},
        params={task.name: dict(task.params) for task in tasks},
        family=family.name,
        horizon=family.horizon,
    )
    dataset.save(folder)
    return folder


def pumps(folder, tasks=3, rows=40):
    """Logs of one's own: no family, actions in [0, 100] that depend on the observation and on the task."""
    rng = np.random.default_rng(0)
    logs = {}
    for i in range(tasks):
        obs = rng.normal(size=(rows, 3))
        logs[f"pump-{i}"] = {
            "observations": obs,
            "actions": 50 + 40 * np.tanh(obs[:, :1] * (1 if i % 2 else -1)),
            "rewards": (1.0 if i % 2 else -1.0) + 0.1 * rng.normal(size=rows),
            "next_observations": rng.normal(size=(rows, 3)),
            "terminations": np.zeros(rows, dtype=bool),
            "truncations": np.arange(rows) % 20 == 19,
            "episode": np.arange(rows) // 20,
            "step": np.arange(rows) % 20,
        }
    names = list(logs)
    split = {"train": names[:-1], "test": names[-1:]}
    dataset = MetaDataset.from_arrays(logs, action_low=[0], action_high=[100], varies="dynamics", split=split)
    dataset.save(folder)
    return logs


def some_config(**changes):
    """A run's config that says something everywhere."""
    values = {
        "algorithm": "focal",
        "preset": None,
        "hyperparameters": {},
        "data": "data/pumps",
        "family": None,
        "observation_dim": 2,
        "action_dim": 1,
        "action_low": (-1.0,),
        "action_high": (1.0,),
        "level": "mixed",
        "max_rows": 100,
        "seeds": 1,
        "seed": 0,
        "steps": 10,
    }
    return RunConfig(**{**values, **changes})
