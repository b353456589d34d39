"""Roll behaviour policies out into rows of a meta-dataset: simulation alone, the same bytes for the same seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from omrl.behaviour.policies import Array, sample_actions
from omrl.families import Task, TaskFamily


class Rollout(NamedTuple):
    """What one checkpoint of a task's policy logged."""

    arrays: dict[str, Array]
    action_std: float
    """Standard deviation of the actions before tanh, mean over rows and dimensions."""


def roll_out(
    family: TaskFamily,
    tasks: Sequence[Task],
    weights: Sequence[Array],
    biases: Sequence[Array],
    *,
    episodes: int,
    seed: Sequence[int],
    length: int | None = None,
    action_std: float | None = None,
    threads: int | None = None,
) -> list[Rollout]:
    """Stochastic episodes of every task's policy, `length` steps long (the family's logged length if None).

    `episodes` environments of each task run side by side. One that terminates early starts another episode until it
    has the rows of a full one, so each task gets at least `episodes * length` rows and every episode is whole.
    `action_std` replaces the policies' own standard deviation before tanh.
    A task's random numbers are seeded by `seed` and its name's position alone, whichever tasks run beside it.
    """
    full = length or family.logged_steps
    count = len(tasks) * episodes
    simulator = family.simulator([task for task in tasks for _ in range(episodes)], threads)
    noise = [np.random.default_rng([*seed, 1, index]) for index in _positions(family, tasks)]
    resets = [
        np.random.default_rng([*seed, 2, index, e]) for index in _positions(family, tasks) for e in range(episodes)
    ]
    simulator.reset(np.arange(count), resets)
    episode = np.zeros(count, dtype=np.int32)
    step = np.zeros(count, dtype=np.int32)
    rows = np.zeros(count, dtype=np.int64)
    active = np.ones(count, dtype=bool)
    log: list[dict[str, Array]] = []
    while active.any():
        obs = simulator.observe()
        draws = np.stack([g.standard_normal((episodes, family.act_dim), dtype=np.float32) for g in noise])
        sampled, std = sample_actions(weights, biases, obs.reshape(len(tasks), episodes, -1), draws, action_std)
        actions = sampled.reshape(count, -1)
        result = simulator.step(actions)
        truncated = ~result.terminations & (step + 1 >= full)
        log.append(
            {
                "active": active.copy(),
                "action_std": std.reshape(count, -1).mean(axis=1),
                "observations": obs,
                "actions": actions,
                "rewards": result.rewards,
                "next_observations": result.obs,
                "terminations": result.terminations,
                "truncations": truncated,
                "episode": episode.copy(),
                "step": step.copy(),
                **result.extras,
            }
        )
        rows += active
        step += 1
        ended = np.flatnonzero(result.terminations | truncated)
        if ended.size:
            simulator.reset(ended, [resets[i] for i in ended])
            step[ended] = 0
            episode[ended] += 1
            active[ended] &= rows[ended] < full
    simulator.close()
    # [time, environment, ...] -> rows of each task in the order environment, time, so that episodes are contiguous
    names = [name for name in log[0] if name not in ("active", "action_std")]
    kept = np.stack([entry["active"] for entry in log], axis=1)
    breadth = np.stack([entry["action_std"] for entry in log], axis=1)
    columns = {name: np.stack([entry[name] for entry in log], axis=1) for name in names}
    rollouts = []
    for t in range(len(tasks)):
        block = slice(t * episodes, (t + 1) * episodes)
        mask = kept[block]
        task_rows = {name: column[block][mask] for name, column in columns.items()}
        # Episodes were counted per environment; number them through the task.
        starts = task_rows["step"] == 0
        task_rows["episode"] = np.cumsum(starts, dtype=np.int32) - np.int32(1)
        rollouts.append(Rollout(task_rows, float(breadth[block][mask].mean(dtype=np.float64))))
    return rollouts


def _positions(family: TaskFamily, tasks: Sequence[Task]) -> list[int]:
    names = [task.name for task in family.tasks]
    return [names.index(task.name) for task in tasks]
