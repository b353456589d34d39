"""Small families, configurations, policies and commands for the tests of collection."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np

from omrl import cli
from omrl.behaviour.config import AgentsConfig, SACConfig
from omrl.families import FAMILIES, TaskFamily

SPARSE = FAMILIES["sparse-point-robot"]
WIND = FAMILIES["point-robot-wind"]
WALKER = FAMILIES["walker-2d-params"]
# A collection that takes seconds, for collect() and for the command.
OPTIONS = {"tasks": 3, "steps": 400, "episodes": 2, "envs_per_task": 8, "episode_steps": 40, "updates_per_step": 0.25}
OPTIONS["device"] = "cpu"
SMALL = tuple(word for name, value in OPTIONS.items() for word in (f"--{name.replace('_', '-')}", str(value)))


def some_tasks(family: TaskFamily, count: int):
    return [family.tasks[i] for i in np.linspace(0, len(family.tasks) - 1, count).astype(int)]


def small_config(sac: dict | None = None, **changes) -> AgentsConfig:
    """A few rounds of tiny agents: 4 environments, 10 rounds of random actions, then 2 updates a round."""
    values = {
        "steps": 160,
        "checkpoints": (0, 80, 160),
        "envs_per_task": 4,
        "episode_steps": 9,
        "random_steps": 40,
        "updates_per_step": 0.5,
    }
    nets = {"actor_hidden": (8, 8), "critic_hidden": (8,), "batch_size": 8, "learning_rate": 1e-2}
    return AgentsConfig(**values | changes, sac=SACConfig(**nets | (sac or {})))


def random_policy(family: TaskFamily, tasks: int, hidden: int = 8, seed: int = 0):
    """Weights and biases [T, in, out] of untrained policies with a standard deviation near 1."""
    rng = np.random.default_rng(seed)
    sizes = [family.obs_dim, hidden, 2 * family.act_dim]
    shapes = list(pairwise(sizes))
    weights = [rng.normal(0, 0.3, (tasks, *shape)).astype(np.float32) for shape in shapes]
    biases = [np.zeros((tasks, 1, shape[1]), np.float32) for shape in shapes]
    biases[-1][..., family.act_dim :] = 0.4581
    return weights, biases


def contents(folder: Path) -> dict[str, bytes]:
    """Every file under a folder, by relative path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def command(monkeypatch, capsys, *words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of an omrl command, in this process."""
    monkeypatch.setattr(sys, "argv", ["omrl", *words])
    capsys.readouterr()
    try:
        cli.main()
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    streams = capsys.readouterr()
    return code, streams.out, streams.err


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def stop_in(monkeypatch, name: str) -> None:
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"omrl.behaviour.collect.{name}", stopped)
