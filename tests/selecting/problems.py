"""Problems whose returns have a closed form."""

from __future__ import annotations

import numpy as np

from omrl.selecting.logs import Actions, Log

A = np.array([[0.9, 0.2], [0.0, 0.8]])
NOISE, COST, HORIZON = 0.1, 0.1, 20
START = 1.0


def push(task):
    """What an action does: tasks differ in it."""
    return np.array([0.1, 0.5 + 0.1 * task])


def linear_log(tasks, episodes, gain, spread, seed=0):
    """Rows of s' = A s + B a + noise with reward -|s|^2 - COST a^2, by a = gain s + noise."""
    rng = np.random.default_rng(seed)
    found = {name: [] for name in ("obs", "act", "rew", "next_obs", "term", "episode")}
    for task in range(tasks):
        rows = {name: [] for name in found}
        for episode in range(episodes):
            state = START * rng.normal(size=2)
            for _ in range(HORIZON):
                act = np.array([gain @ state + spread * rng.normal()])
                after = A @ state + push(task) * act + NOISE * rng.normal(size=2)
                reward = -(state @ state) - COST * act[0] ** 2
                for name, value in zip(found, (state, act, reward, after, False, episode), strict=True):
                    rows[name].append(value)
                state = after
        for name, values in rows.items():
            found[name].append(np.array(values))
    plain = Actions(np.zeros(1), np.ones(1), None)
    return Log(tuple(f"task-{t}" for t in range(tasks)), **found, mean=np.zeros(2), spread=np.ones(2), actions=plain)


def linear_return(task, gain, spread=0.0):
    """The expected return of a = gain s + noise."""
    closed = A + np.outer(push(task), gain)
    disturbed = NOISE**2 * np.eye(2) + spread**2 * np.outer(push(task), push(task))
    square, total = START**2 * np.eye(2), 0.0
    for _ in range(HORIZON):
        total -= np.trace(square) + COST * (gain @ square @ gain + spread**2)
        square = closed @ square @ closed.T + disturbed
    return total


def linear_policies(gains):
    """Actions [P, T, N, 1] of linear policies."""
    return lambda obs: np.stack([own @ gain for own, gain in zip(obs, gains, strict=True)])[..., None]
