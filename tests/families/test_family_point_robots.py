from __future__ import annotations

import math

import numpy as np
import pytest
from family_helpers import random_actions, some_tasks, started

from omrl.families import FAMILIES

SPARSE = FAMILIES["sparse-point-robot"]
WIND = FAMILIES["point-robot-wind"]


def targets(family):
    return np.array([task.params.get("goal", [1.0, 0.0]) for task in family.tasks])


def winds(family):
    return np.array([task.params.get("wind", [0.0, 0.0]) for task in family.tasks])


def returns_of(family, act):
    """Returns of all the family's tasks over the horizon, by stepping the simulator with act(state, step)."""
    simulator = started(family, list(family.tasks))
    total = np.zeros(len(family.tasks))
    for step in range(family.horizon):
        total += simulator.step(act(simulator.get_state(), step)).rewards
    return total


def test_sparse_rewards_in_radii_are_one_at_the_goal_and_nothing_at_the_edge():
    tasks = SPARSE.tasks[:40]
    simulator = SPARSE.simulator(tasks)
    rng = np.random.default_rng(0)
    simulator.set_state(simulator.goal + rng.uniform(-0.3, 0.3, size=(40, 2)))
    step = simulator.step(np.zeros((40, 2)))
    distance = -step.extras["rewards_dense"].astype(np.float64)
    expected = np.where(distance < 0.2, 1 - distance / 0.2, 0.0)
    assert 0 < (expected > 0).sum() < 40
    np.testing.assert_allclose(SPARSE.units["return_in_radii"](step.rewards), expected, atol=1e-6)


@pytest.mark.parametrize("family", [SPARSE, WIND], ids=lambda f: f.name)
def test_walking_straight_to_the_goal_gets_the_best_return(family):
    goal, wind = targets(family), winds(family)
    reached = returns_of(family, lambda state, step: np.clip((goal - state - wind) / 0.1, -1, 1))
    np.testing.assert_allclose(reached, [family.best_return(task) for task in family.tasks], atol=1e-4)


@pytest.mark.parametrize("family", [SPARSE, WIND], ids=lambda f: f.name)
def test_no_policy_gets_more(family):
    best = np.array([family.best_return(task) for task in family.tasks])
    goal, wind = targets(family), winds(family)
    rng = np.random.default_rng(0)
    for noise in (0.05, 0.3, 1.0):
        for gain in (0.5, 1.0, 2.0):
            tried = returns_of(
                family,
                lambda s, t, n=noise, g=gain: g * (goal - s - wind) / 0.1 + n * rng.standard_normal(s.shape),
            )
            assert (tried <= best + 1e-4).all()


def test_average_best_returns():
    assert np.mean([SPARSE.best_return(task) for task in SPARSE.tasks]) == pytest.approx(13.36, abs=0.005)
    assert np.mean([WIND.best_return(task) for task in WIND.tasks]) == pytest.approx(-5.11, abs=0.005)


def test_best_returns_that_nobody_knows():
    assert WIND.best_return(WIND.task(wind=[0.11, 0.0])) is None
    assert all(FAMILIES[name].best_return(FAMILIES[name].tasks[0]) is None for name in list(FAMILIES)[2:])


def test_best_return_of_off_list_tasks():
    assert SPARSE.best_return(SPARSE.task(goal=[0.0, 0.0])) == pytest.approx(20.0)
    assert SPARSE.best_return(SPARSE.task(goal=[5.0, 0.0])) == 0.0
    # Still air: 0.9, 0.8, ... 0.1 away after each of nine steps, then there.
    assert WIND.best_return(WIND.task(wind=[0.0, 0.0])) == pytest.approx(-4.5)


@pytest.mark.parametrize("family", [SPARSE, WIND], ids=lambda f: f.name)
def test_rewards_and_observations_follow_the_definition(family):
    tasks = some_tasks(family, 9)
    simulator = started(family, tasks)
    actions = random_actions(family, 60, 9) * 1.7  # some beyond the bounds
    assert (simulator.observe() == 0).all()
    for index, task in enumerate(tasks):
        simulator.set_state(np.zeros((9, 2)))
        x = y = 0.0
        goal_x, goal_y = task.params.get("goal", [1.0, 0.0])
        wind_x, wind_y = task.params.get("wind", [0.0, 0.0])
        for step in range(60):
            got = simulator.step(actions[step])
            clipped = [min(1.0, max(-1.0, float(a))) for a in actions[step, index]]
            x, y = x + 0.1 * clipped[0] + wind_x, y + 0.1 * clipped[1] + wind_y
            distance = math.sqrt((x - goal_x) ** 2 + (y - goal_y) ** 2)
            np.testing.assert_allclose(got.obs[index], [x, y], atol=1e-6)
            if family is SPARSE:
                assert got.rewards[index] == pytest.approx(1 - distance if distance < 0.2 else 0.0, abs=1e-6)
                assert got.extras["rewards_dense"][index] == pytest.approx(-distance, abs=1e-6)
            else:
                assert got.rewards[index] == pytest.approx(-distance, abs=1e-6)
                assert got.extras == {}
            assert not got.terminations.any()


def test_the_sparse_reward_is_paid():
    task = SPARSE.task(goal=[0.25, 0.0])
    simulator = SPARSE.simulator([task])
    paid = [float(simulator.step([[1.0, 0.0]]).rewards[0]) for _ in range(6)]
    assert paid == pytest.approx([0.85, 0.95, 0.95, 0.85, 0.0, 0.0])
