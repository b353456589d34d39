"""What goes wrong in training is said in plain words: each sign is provoked here, and an honest run has none."""

from __future__ import annotations

import numpy as np
import pytest

import omrl
from omrl.data import MetaDataset
from omrl.learning.signs import largest_value
from training_helpers import SMALL

OPTIONS = {**SMALL, "seeds": 1, "steps": 400, "log_every": 20, "save_every": 400, "device": "cpu"}


def save(folder, reward, tasks=4, rows=200, spread=5.0):
    """Rooms whose heater stands around 50; `reward` says what of, given task and action in [0, 100]."""
    rng, logs = np.random.default_rng(0), {}
    for i in range(tasks):
        obs = rng.normal(size=(rows, 3))
        act = np.clip(50 + spread * obs[:, :1] + spread * rng.normal(size=(rows, 1)), 0, 100)
        logs[f"room-{i}"] = {
            "observations": obs,
            "actions": act,
            "rewards": reward(i, act[:, 0]) + 0.1 * rng.normal(size=rows),
            "next_observations": rng.normal(size=(rows, 3)),
            "terminations": np.zeros(rows, dtype=bool),
            "truncations": np.arange(rows) % 20 == 19,
            "episode": np.arange(rows) // 20,
            "step": np.arange(rows) % 20,
        }
    MetaDataset.from_arrays(logs, action_low=[0], action_high=[100], varies="reward").save(folder)
    return folder


def told(task, act):
    return 2.0 * task + 0.01 * act


@pytest.fixture(scope="module")
def rooms(tmp_path_factory):
    return save(tmp_path_factory.mktemp("rooms") / "data", told)


def said(capfd, data, out, **changes):
    omrl.train("focal", data, out, **{**OPTIONS, **changes})
    return capfd.readouterr().err


def test_an_honest_run_says_what_it_does_and_warns_of_nothing(rooms, tmp_path, capfd):
    found = said(capfd, rooms, tmp_path / "run", seeds=2, warm_up=200)
    assert "focal learns from 800 rows of 4 tasks: 400 updates of 2 seeds, less than a minute on two" in found
    assert "warning" not in found


def test_the_time_is_that_of_the_algorithm_s_costs(rooms, tmp_path, capfd):
    omrl.train("focal", rooms, tmp_path / "run", **{**OPTIONS, "steps": 1, "warm_up": 0})
    assert "less than a minute" in capfd.readouterr().err
    omrl.train("focal", rooms, tmp_path / "dry", seeds=5, device="cpu", dry_run=True)
    assert not (tmp_path / "dry").exists()


def test_rows_that_are_left_out_are_counted(rooms, tmp_path, capfd):
    found = said(capfd, rooms, tmp_path / "run", max_rows=50, steps=2, warm_up=0)
    assert "warning: 600 of 800 rows are left out, as --max-rows is 50 for each task" in found
    assert "rows are left out" not in said(capfd, rooms, tmp_path / "all", max_rows=200, steps=2, warm_up=0)


def test_a_policy_that_will_only_imitate_is_named(rooms, tmp_path, capfd):
    assert "will only imitate, as --warm-up is 2,000 and there are 2 updates" in said(
        capfd, rooms, tmp_path / "run", steps=2
    )


FREE = {"regularisation": "none", "warm_up": 0, "actor_lr": 0.03, "critic_lr": 0.01, "reward_scale": 100.0}


def test_a_policy_that_is_stuck_at_its_bounds_and_leaves_the_data(tmp_path, capfd):
    """More heat always pays, and nothing holds the policy back."""
    found = said(capfd, save(tmp_path / "data", lambda i, act: i + 0.1 * act), tmp_path / "run", **FREE, steps=300)
    assert "seed 0's policy takes extreme actions far more often than the log does" in found
    assert "seed 0's actions are further from the logged ones than one and the same action would be" in found


def test_a_policy_that_is_far_from_the_log_while_it_learns(tmp_path, capfd):
    """A log without noise, and a strength of nothing."""
    data = save(tmp_path / "data", lambda i, act: i + 0.1 * act, spread=0.05)
    held = {"alpha": 0.0, "alpha_rate": 0.0, "warm_up": 0, "actor_lr": 0.01, "reward_scale": 50.0}
    assert "seed 0's policy leaves the data: it is more than 20 nats" in said(capfd, data, tmp_path / "run", **held)


def test_a_q_that_believes_in_more_than_the_log_has(tmp_path, capfd):
    """What nobody tried is thought to be better and better."""
    data = save(tmp_path / "data", lambda i, act: 0.1 * (act - 50))
    free = {"regularisation": "none", "warm_up": 0, "actor_lr": 0.03, "critic_lr": 0.03, "tau": 1.0, "gamma": 0.9}
    assert "seed 0's Q is larger than any rewards of the log could add up to" in said(
        capfd, data, tmp_path / "run", **free, steps=300
    )


def test_an_encoder_that_tells_no_tasks_apart(tmp_path, capfd):
    """All rooms are the same room."""
    found = said(capfd, save(tmp_path / "data", lambda i, act: 0.01 * act), tmp_path / "run", warm_up=0)
    assert "seed 0 tells tasks apart in" in found and "guessing would in 25%" in found


def test_the_largest_value_is_the_largest_reward_for_ever():
    assert largest_value({"reward_scale": 2.0, "gamma": 0.9}, 3.0) == pytest.approx(sum(6 * 0.9**i for i in range(500)))
    assert largest_value({"gamma": 1.0}, 3.0) is None
