"""What goes wrong in training is said in plain words: each sign is provoked here, and an honest run has none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import omrl
from omrl.commands.train import Train
from omrl.data import MetaDataset
from omrl.learning import signs
from omrl.learning.duration import expected_seconds
from omrl.learning.signs import largest_value
from omrl.learning.starting import starting_point
from omrl.learning.training import run_config
from omrl.schema import changed
from training_helpers import SMALL, pumps

OPTIONS = {**SMALL, "seeds": 1, "steps": 400, "log_every": 20, "save_every": 400, "device": "cpu"}


def save(folder, reward, tasks=4, rows=200, spread=5.0, usual=50):
    """Rooms whose heater stands around 50, or where else; `reward` says what of, given task and action in [0, 100]."""
    rng, logs = np.random.default_rng(0), {}
    for i in range(tasks):
        obs = rng.normal(size=(rows, 3))
        act = np.clip(usual + spread * obs[:, :1] + spread * rng.normal(size=(rows, 1)), 0, 100)
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


def test_an_encoder_that_gives_all_tasks_the_same_embedding_is_told_of():
    usual = {"encoder": "deterministic", "power": "inverse-square", "beta": 10.0, "epsilon": 0.1}
    # Ten times one over 0.1, and two over 0.1; nothing is known where distances may be as large a gain.
    assert signs.loss_in_one_place(usual) == pytest.approx(100.0)
    assert signs.loss_in_one_place({**usual, "power": "inverse", "beta": 1.0}) == pytest.approx(20.0, rel=1e-3)
    assert signs.loss_in_one_place({**usual, "power": "linear"}) is None
    assert signs.loss_in_one_place({**usual, "encoder": "probabilistic"}) is None
    assert signs.loss_in_one_place({"gamma": 0.9}) is None
    values = {"alive": [1.0, 1.0], "dml_loss": [99.9, 12.0]}
    (found,) = signs.during(range(2), values, None, 100.0)
    assert found.startswith("seed 0's encoder gives all tasks the same embedding.")
    assert not signs.during(range(2), values, None)


def test_an_encoder_that_collapses_while_it_learns_is_told_of_once(rooms, tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(signs, "TIME_TO_TELL", 40)
    # Steps as large as the range of z take every code to its bounds.
    found = said(capfd, rooms, tmp_path / "run", dml_lr=30.0, steps=80)
    assert found.count("gives all tasks the same embedding") == 1
    monkeypatch.setattr(signs, "TIME_TO_TELL", 1_000)
    assert "same embedding" not in said(capfd, rooms, tmp_path / "early", dml_lr=30.0, steps=80)


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


# Nothing holds the policy back.
UNHELD = {"regularisation": "none", "warm_up": 0}


def expected(algorithm, data, **changes):
    """Seconds of a run of the preset for one's own logs with other settings."""
    start, usual = starting_point(Train(algorithm, data, Path("run"), device="cpu"))
    given = {name: changes.pop(name) for name in ("seeds", "steps") if name in changes}
    config = run_config(replace(start, **given), changed(usual, changes, algorithm), MetaDataset.open(data))
    return expected_seconds(replace(config, cpu={"threads": 2, "mode": "eager"}), tasks=24, varies="dynamics")


def test_the_expected_time_grows_with_networks_rows_seeds_and_updates(tmp_path):
    pumps(tmp_path / "pumps", tasks=25, rows=400)
    usual = expected("focal", tmp_path / "pumps", seeds=1, steps=1_000)
    assert usual == pytest.approx(15, rel=0.01)  # 15 ms is what the file beside the algorithm says of these sizes
    assert expected("focal", tmp_path / "pumps", seeds=3, steps=1_000) == pytest.approx(25, rel=0.01)
    assert expected("focal", tmp_path / "pumps", seeds=1, steps=9_000) == pytest.approx(9 * usual)
    wide = {"hidden": (1024,) * 3, "encoder_hidden": (1024,) * 3}
    assert expected("focal", tmp_path / "pumps", seeds=1, steps=1_000, **wide) > 100 * usual
    twice = {"batch_size": 64, "context_size": 64}
    assert expected("focal", tmp_path / "pumps", seeds=1, steps=1_000, **twice) == pytest.approx(20, rel=0.01)


def test_the_expected_time_counts_what_is_learnt_before(tmp_path):
    pumps(tmp_path / "pumps", tasks=25, rows=400)
    few, many = (
        expected("mbml", tmp_path / "pumps", seeds=1, steps=1_000, teacher_steps=steps) for steps in (2_000, 2_000_000)
    )
    # 1 ms for each of 24 tasks, of batches twice as large as those that were measured.
    assert many - few == pytest.approx(1_998_000 * 24 * 2 / 1_000, rel=0.01)
    assert few > 1_000 * 0.02 + 2_000 * 24 * 2 / 1_000


FREE = {**UNHELD, "actor_lr": 0.03, "critic_lr": 0.01, "reward_scale": 100.0}


def test_a_policy_that_is_stuck_at_its_bounds_and_leaves_the_data(tmp_path, capfd):
    """More heat always pays, and nothing holds the policy back."""
    found = said(capfd, save(tmp_path / "data", lambda i, act: i + 0.1 * act), tmp_path / "run", **FREE, steps=300)
    assert "seed 0's policy takes extreme actions far more often than the log does" in found
    assert "seed 0's actions are further from the logged ones than one and the same action would be" in found
    assert "Nothing holds it back: give --regularisation policy" in found


def test_a_policy_that_is_far_from_the_log_while_it_learns(tmp_path, capfd):
    """A log without noise, and a strength of nothing."""
    data = save(tmp_path / "data", lambda i, act: i + 0.1 * act, spread=0.05)
    held = {"alpha": 0.0, "alpha_rate": 0.0, "warm_up": 0, "actor_lr": 0.01, "reward_scale": 50.0}
    assert "seed 0's policy leaves the data: it is more than 20 nats" in said(capfd, data, tmp_path / "run", **held)


def test_who_improves_on_an_unsteady_hand_does_not_leave_the_data(monkeypatch):
    """The rule is nearly the same everywhere, so that most of what the log's actions differ by is noise."""
    config = SimpleNamespace(hyperparameters={"alpha": 1.0}, all_seeds=lambda: [0])
    model = SimpleNamespace(hyperparameters=SimpleNamespace(context_size=8), run=SimpleNamespace(config=config))
    view = SimpleNamespace(tasks=[SimpleNamespace(name="a")], count=lambda _: 9, select=lambda _: None)

    def signs_of(noise):
        told = {"action_error": [[0.5]], "constant_error": [[0.45]], "noise_floor": [[noise]]}
        monkeypatch.setattr(signs, "logged", lambda *_: told)
        return signs.after(model, view)

    assert signs_of(0.4) == []
    (found,) = signs_of(0.1)
    assert "than the log's own noise explains: its policy leaves the data. Raise --alpha" in found


def test_what_to_change_is_something_that_the_algorithm_has(tmp_path, capfd):
    """A clone that is given no time has no strength to be raised."""
    data = save(tmp_path / "data", told, usual=80)
    omrl.train("contextual-bc", data, tmp_path / "run", seeds=1, steps=1, device="cpu")
    found = capfd.readouterr().err
    assert "its policy leaves the data. More updates (--steps) may help" in found and "--alpha" not in found


def test_a_q_that_believes_in_more_than_the_log_has(tmp_path, capfd):
    """What nobody tried is thought to be better and better."""
    data = save(tmp_path / "data", lambda i, act: 0.1 * (act - 50))
    free = {**UNHELD, "actor_lr": 0.03, "critic_lr": 0.03, "tau": 1.0, "gamma": 0.9}
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
