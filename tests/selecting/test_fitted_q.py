"""Fitted-Q evaluation beside dynamic programming in a table, and beside a closed form."""

from __future__ import annotations

import numpy as np

from omrl.selecting.fitted_q import FittedQ

STATES, CHOICES, TASKS, HORIZON = 3, 2, 2, 12


def test_values_are_those_of_dynamic_programming():
    rng = np.random.default_rng(0)
    step = rng.dirichlet(np.ones(STATES), size=(TASKS, STATES, CHOICES))
    reward = rng.normal(size=(TASKS, STATES, CHOICES))
    policy = rng.integers(CHOICES, size=(TASKS, STATES))
    rows = 20_000
    task, state, choice = (rng.integers(n, size=rows) for n in (TASKS, STATES, CHOICES))
    after = (step[task, state, choice].cumsum(-1) < rng.random((rows, 1))).sum(-1)
    term = (state == 2) & (choice == 1)
    s, a, z = np.eye(STATES), np.eye(CHOICES), np.array([[-1.0], [1.0]])
    q = FittedQ(s[state], z[task], a[choice], reward[task, state, choice], np.ones((rows, 1)), seed=0)
    found = q.evaluate(s[after], a[policy[task, after]], term, HORIZON)
    # What the rows say of the steps: regression cannot know better.
    counts = np.zeros((TASKS, STATES, CHOICES, STATES))
    np.add.at(counts, (task, state, choice, after), 1)
    step = counts / counts.sum(-1, keepdims=True)
    exact = np.zeros((TASKS, STATES, CHOICES))
    for _ in range(HORIZON):
        value = np.take_along_axis(exact, policy[..., None], -1)[..., 0]
        going = np.ones((TASKS, STATES, CHOICES))
        going[:, 2, 1] = 0.0
        exact = reward + going * np.einsum("tsan,tn->tsa", step, value)
    for t in range(TASKS):
        for c in range(CHOICES):
            acts = np.repeat(a[[c]], STATES, axis=0)
            values = q.value(found, s, np.repeat(z[[t]], STATES, axis=0), acts)[:, 0]
            np.testing.assert_allclose(values, exact[t, :, c], atol=0.02)


def test_values_stay_within_what_rewards_allow():
    rng = np.random.default_rng(1)
    rows = 50
    obs, act, rew = rng.normal(size=(rows, 2)), rng.normal(size=(rows, 1)), rng.uniform(-1, 0, rows)
    q = FittedQ(obs, np.zeros((rows, 1)), act, rew, np.ones((rows, 1)), seed=0)
    # Actions that nobody ever tried: regression alone would grow without end.
    found = q.evaluate(obs + 1.0, act + 9.0, np.zeros(rows, bool), 200)
    assert np.abs(q.value(found, obs, np.zeros((rows, 1)), act)).max() < 250
