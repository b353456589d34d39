"""Roll behaviour policies out into rows of a meta-dataset: simulation alone, the same bytes for the same seed."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event
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
    seeds: Sequence[Sequence[int]],
    length: int | None = None,
    action_std: float | None = None,
    threads: int | None = None,
    stopped: Event | None = None,
) -> list[Rollout]:
    """Stochastic episodes of policies, one for each of `tasks`, in which a task may stand several times.

    `episodes` environments of each policy run side by side, `length` steps long (the family's logged length if None).
    One that terminates early starts another episode until it has the rows of a full one, so each policy gets at least
    `episodes * length` rows and every episode is whole. `action_std` replaces the policies' own standard deviation
    before tanh. A policy's random numbers are seeded by its entry of `seeds` and its task's position in the family
    alone, whichever others run beside it. Nothing is returned once `stopped` is set, by whoever no longer waits for it.
    """
    full = length or family.logged_steps
    count, shape = len(tasks) * episodes, (len(tasks), episodes, -1)
    of_env = [task for task in tasks for _ in range(episodes)]
    streams = list(zip(seeds, _positions(family, tasks), strict=True))
    noise = [np.random.default_rng([*seed, 1, index]) for seed, index in streams]
    resets = [np.random.default_rng([*seed, 2, index, e]) for seed, index in streams for e in range(episodes)]
    simulator, live = family.simulator(of_env, threads), np.arange(count)
    simulator.reset(live, resets)
    step = np.zeros(count, dtype=np.int32)
    rows = np.zeros(count, dtype=np.int64)
    active = np.ones(count, dtype=bool)
    obs = np.zeros((count, family.obs_dim), dtype=np.float32)
    log: list[dict[str, Array]] = []
    while active.any():
        if stopped is not None and stopped.is_set():
            simulator.close()
            return []
        if active[live].mean() <= 0.5:
            # A few that fell early need more episodes: the others need not be simulated meanwhile.
            state = simulator.get_state()[active[live]]
            simulator.close()
            live = live[active[live]]
            simulator = family.simulator([of_env[env] for env in live], threads)
            simulator.set_state(state)
        obs[live] = simulator.observe()
        draws = np.stack([g.standard_normal((episodes, family.act_dim), dtype=np.float32) for g in noise])
        sampled, std = sample_actions(weights, biases, obs.reshape(shape), draws, action_std)
        actions, breadth = sampled.reshape(count, -1)[live], std.reshape(count, -1)[live]
        result = simulator.step(actions)
        truncated = ~result.terminations & (step[live] + 1 >= full)
        logged = active[live]
        entry = {
            "env": live,
            "action_std": breadth.mean(axis=1),
            "observations": obs[live],
            "actions": actions,
            "rewards": result.rewards,
            "next_observations": result.obs,
            "terminations": result.terminations,
            "truncations": truncated,
            "step": step[live],
            **result.extras,
        }
        log.append({name: values[logged] for name, values in entry.items()})
        rows[live] += logged
        step[live] += 1
        ended = np.flatnonzero(result.terminations | truncated)
        if ended.size:
            simulator.reset(ended, [resets[env] for env in live[ended]])
            step[live[ended]] = 0
            active[live[ended]] &= rows[live[ended]] < full
    simulator.close()
    # Rows in the order environment, time, so that episodes are contiguous.
    columns = {name: np.concatenate([entry[name] for entry in log]) for name in log[0]}
    order = np.argsort(columns["env"], kind="stable")
    task_of_row = columns.pop("env")[order] // episodes
    rollouts = []
    for t in range(len(tasks)):
        own = order[slice(*np.searchsorted(task_of_row, [t, t + 1]))]
        task_rows = {name: column[own] for name, column in columns.items()}
        breadth = task_rows.pop("action_std")
        task_rows["episode"] = np.cumsum(task_rows["step"] == 0, dtype=np.int32) - np.int32(1)
        rollouts.append(Rollout(task_rows, float(breadth.mean(dtype=np.float64))))
    return rollouts


def _positions(family: TaskFamily, tasks: Sequence[Task]) -> list[int]:
    names = [task.name for task in family.tasks]
    return [names.index(task.name) for task in tasks]
