"""Small datasets and runs to report on, some of them with names that would do harm on a careless page."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np

from omrl.data import MetaDataset
from omrl.data.manifest import Reference, Told
from omrl.data.writer import MetaDatasetWriter
from omrl.families import FAMILIES, Task
from omrl.learning.starting import train

HOSTILE = ("<script>alert(1)</script>", '"onload="alert(1)', "</script><img src=x onerror=alert(1)>", "$\\frac{|")
SMALL = {"hidden": (8, 8), "encoder_hidden": (8, 8), "batch_size": 8, "context_size": 4, "meta_batch": 3}


def rollout(family, task, rng, policy_step, episodes=2, steps=25):
    """Random walks of a task, logged as the format asks."""
    simulator = family.simulator([task] * episodes)
    simulator.reset(range(episodes), [rng] * episodes)
    log = []
    for _ in range(steps):
        obs, act = simulator.observe(), rng.uniform(-1, 1, (episodes, family.act_dim)).astype(np.float32)
        step = simulator.step(act)
        row = {"observations": obs, "actions": act, "rewards": step.rewards, "next_observations": step.obs}
        log.append({**row, **step.extras})
    simulator.close()
    stacked = {name: np.stack([row[name] for row in log], axis=1) for name in log[0]}  # [episode, step, ...]
    count = episodes * steps
    return {
        **{name: values.reshape(count, *values.shape[2:]) for name, values in stacked.items()},
        "terminations": np.zeros(count, dtype=bool),
        "truncations": np.arange(count) % steps == steps - 1,
        "episode": np.repeat(np.arange(episodes), steps),
        "step": np.tile(np.arange(steps), episodes),
        "policy_step": np.full(count, policy_step),
    }


def walks(family_name: str, folder: Path, hostile: bool = False) -> Path:
    """Five tasks of a family, two of them for testing, at levels random and expert; references 0 and 10."""
    family, rng = FAMILIES[family_name], np.random.default_rng(0)
    few = len(family.tasks) < 5
    tasks = list(family.tasks) if few else list(family.tasks[:: len(family.tasks) // 5][:5])
    if hostile:
        tasks = [Task(f"{HOSTILE[0]} {i}", task.params) for i, task in enumerate(tasks)]
    names = [task.name for task in tasks]
    writer = MetaDatasetWriter(
        folder,
        tasks=tasks,
        observation_dim=family.obs_dim,
        action_dim=family.act_dim,
        action_low=[-1] * family.act_dim,
        action_high=[1] * family.act_dim,
        varies=family.varies,
        split={"train": names, "test": names} if few else {"train": names[:3], "test": names[3:]},
        family=family.name,
        horizon=family.horizon,
    )
    for task in tasks:
        parts = [rollout(family, task, rng, policy_step) for policy_step in (0, 100)]
        parts[1]["episode"] = parts[1]["episode"] + 2
        arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        writer.write(task.name, arrays, Told(Reference(random=0.0, expert=10.0)))
    writer.finish()
    return folder


def pumps(folder: Path) -> Path:
    """Somebody's own logs, with parameters that are text."""
    rng, rows = np.random.default_rng(0), 40
    logs = {
        f"pump {i} {HOSTILE[2]}": {
            "observations": rng.normal(size=(rows, 3)),
            "actions": rng.uniform(10, 90, size=(rows, 1)),
            "rewards": rng.normal(size=rows),
            "next_observations": rng.normal(size=(rows, 3)),
            "terminations": np.zeros(rows, dtype=bool),
            "truncations": np.arange(rows) % 10 == 9,
            "episode": np.arange(rows) // 10,
            "step": np.arange(rows) % 10,
        }
        for i in range(3)
    }
    names = list(logs)
    MetaDataset.from_arrays(
        logs,
        action_low=[0],
        action_high=[100],
        varies="dynamics",
        split={"train": names[:2], "test": names[2:]},
        params={name: {"site": HOSTILE[1]} for name in names},
    ).save(folder)
    return folder


def small_run(data: Path, out: Path, **changes) -> Path:
    """A run of two seeds that has learned nothing yet."""
    options = {"seeds": 2, "steps": 12, "level": "mixed", "log_every": 4, "save_every": 6, "latent_dim": 4}
    train("focal", data, out, **SMALL | options | changes)
    return out


def poison(run: Path) -> None:
    """Hostile values in everything of a run that a person may edit and that still loads."""
    hostile = {"config.json": {"preset": HOSTILE[2] + HOSTILE[1]}, "environment.json": {HOSTILE[0]: HOSTILE[1]}}
    for name, values in hostile.items():
        content = json.loads((run / name).read_text())
        (run / name).write_text(json.dumps({**content, **values}))
    with (run / "metrics.csv").open("a", newline="") as file:
        csv.writer(file).writerows([12, 99, seed, HOSTILE[0] + HOSTILE[3], 0.5] for seed in range(2))
