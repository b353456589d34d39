from __future__ import annotations

from dataclasses import replace
from threading import Event

import numpy as np
import pytest
from behaviour_helpers import SPARSE, WALKER, random_policy, some_tasks

from omrl.behaviour.policies import sample_actions
from omrl.behaviour.rollout import roll_out
from omrl.families import FAMILIES

EPISODES = 2


def rolled(family, count=3, chosen=None, seed=(0, 7), **options):
    tasks = some_tasks(family, count)
    weights, biases = random_policy(family, count)
    rows = list(range(count)) if chosen is None else chosen
    settings = {"episodes": EPISODES, "seeds": [seed] * len(rows)} | options
    policies = [w[rows] for w in weights], [b[rows] for b in biases]
    return [logged.arrays for logged in roll_out(family, [tasks[i] for i in rows], *policies, **settings)]


@pytest.fixture(scope="module")
def walker_rows():
    """Untrained walkers fall over, so their episodes end early."""
    return rolled(WALKER)


def test_nothing_is_rolled_out_for_whoever_no_longer_waits():
    stopped = Event()
    assert len(rolled(SPARSE, stopped=stopped)) == 3
    stopped.set()
    assert rolled(SPARSE, stopped=stopped) == []


def test_every_task_has_the_rows_of_full_episodes(walker_rows):
    for rows in walker_rows:
        assert len(rows["rewards"]) >= EPISODES * WALKER.logged_steps
        # The last episode of an environment ends after its quota, never a whole episode later.
        assert len(rows["rewards"]) < 2 * EPISODES * WALKER.logged_steps


def test_episodes_are_whole_and_contiguous(walker_rows):
    for rows in walker_rows:
        ended = rows["terminations"] | rows["truncations"]
        starts = rows["step"] == 0
        assert starts[0]
        assert ended[-1]
        np.testing.assert_array_equal(starts[1:], ended[:-1])
        np.testing.assert_array_equal(rows["episode"], np.cumsum(starts) - 1)
        inside = ~starts[1:]
        np.testing.assert_array_equal(rows["step"][1:][inside], rows["step"][:-1][inside] + 1)
        np.testing.assert_array_equal(rows["observations"][1:][inside], rows["next_observations"][:-1][inside])
        assert not (rows["terminations"] & rows["truncations"]).any()


def test_terminations_start_the_episode_again(walker_rows):
    ends = sum(int(rows["terminations"].sum()) for rows in walker_rows)
    assert ends > len(walker_rows) * EPISODES
    for rows in walker_rows:
        height = rows["observations"][rows["step"] == 0, 0]
        np.testing.assert_allclose(height, 1.25, atol=0.01)
        assert len(np.unique(height)) == len(height), "every episode has a start of its own"


def test_a_termination_at_the_time_limit_is_no_truncation(walker_rows):
    length = int(np.flatnonzero(walker_rows[0]["terminations"])[0]) + 1
    rows = rolled(replace(WALKER, logged_steps=length))[0]
    assert rows["step"][length - 1] == length - 1
    assert rows["terminations"][length - 1]
    assert not rows["truncations"][length - 1]


def test_episodes_that_never_terminate_are_truncated_at_the_logged_length():
    for rows in rolled(SPARSE):
        assert len(rows["rewards"]) == EPISODES * SPARSE.logged_steps
        assert not rows["terminations"].any()
        np.testing.assert_array_equal(np.flatnonzero(rows["truncations"]), [199, 399])
        assert "rewards_dense" in rows


@pytest.mark.parametrize("name", ["sparse-point-robot", "walker-2d-params"])
def test_rows_of_a_task_do_not_depend_on_the_tasks_beside_it_or_on_threads(name):
    family = FAMILIES[name]
    together = rolled(family)
    for chosen, threads in (([1], 1), ([2, 0], 2)):
        for i, alone in zip(chosen, rolled(family, chosen=chosen, threads=threads), strict=True):
            assert alone.keys() == together[i].keys()
            for array, values in alone.items():
                np.testing.assert_array_equal(values, together[i][array], err_msg=array)


def test_policies_of_one_task_are_rolled_out_side_by_side_as_they_are_alone():
    twice = rolled(WALKER, chosen=[1, 1], seeds=[(0, 7), (0, 8)])
    for seed, rows in zip([(0, 7), (0, 8)], twice, strict=True):
        (alone,) = rolled(WALKER, chosen=[1], seed=seed)
        for array, values in alone.items():
            np.testing.assert_array_equal(values, rows[array], err_msg=array)


def test_the_seed_decides_the_rows():
    one, same, other = rolled(SPARSE), rolled(SPARSE), rolled(SPARSE, seed=(1, 7))
    np.testing.assert_array_equal(one[0]["actions"], same[0]["actions"])
    assert not np.array_equal(one[0]["actions"], other[0]["actions"])
    assert not np.array_equal(one[0]["actions"], one[1]["actions"])


def test_logged_actions_are_the_policys_actions_at_the_logged_observations():
    rows = rolled(SPARSE, count=1)[0]
    weights, biases = random_policy(SPARSE, 1)
    noise = np.random.default_rng([0, 7, 1, 0])
    observations = rows["observations"].reshape(EPISODES, 200, 2)
    for t in range(200):
        draw = noise.standard_normal((EPISODES, 2), dtype=np.float32)
        expected, _ = sample_actions(weights, biases, observations[None, :, t], draw[None])
        np.testing.assert_array_equal(rows["actions"].reshape(EPISODES, 200, 2)[:, t], expected[0])


def test_episodes_can_be_shorter_than_what_is_logged():
    for rows in rolled(SPARSE, length=20):
        assert len(rows["rewards"]) == EPISODES * 20
        np.testing.assert_array_equal(np.flatnonzero(rows["truncations"]), [19, 39])


@pytest.mark.parametrize("wanted", [0.0, 0.07, 0.6])
def test_another_breadth_replaces_the_policys_own(wanted):
    tasks, (weights, biases) = some_tasks(SPARSE, 1), random_policy(SPARSE, 1)
    options = {"episodes": EPISODES, "seeds": [(0, 7)]}
    (narrow,) = roll_out(SPARSE, tasks, weights, biases, **options, action_std=0.0)
    (logged,) = roll_out(SPARSE, tasks, weights, biases, **options, action_std=wanted)
    assert (narrow.action_std, logged.action_std) == (0.0, pytest.approx(wanted))
    # All episodes begin at the same place, where only the noise differs.
    mean, found = (np.arctanh(r.arrays["actions"][r.arrays["step"] == 0]) for r in (narrow, logged))
    noise = np.random.default_rng([0, 7, 1, 0]).standard_normal((EPISODES, 2), dtype=np.float32)
    np.testing.assert_allclose(found, mean + wanted * noise, rtol=1e-4, atol=1e-5)


def test_the_breadth_of_what_was_logged_is_that_of_the_policies():
    tasks, (weights, biases) = some_tasks(SPARSE, 2), random_policy(SPARSE, 2)
    for t, logged in enumerate(roll_out(SPARSE, tasks, weights, biases, episodes=EPISODES, seeds=[(0, 7)] * 2)):
        observations = logged.arrays["observations"][None]
        own = [w[t : t + 1] for w in weights], [b[t : t + 1] for b in biases]
        _, std = sample_actions(*own, observations, np.zeros((1, len(observations[0]), 2), np.float32))
        assert logged.action_std == pytest.approx(float(std.mean()), rel=1e-5)
        assert 0.5 < logged.action_std < 2.0
