"""The made-up domains that recipes and verdicts are judged by."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from domain import LOGGERS, TEST_TASKS
from domains import DOMAINS

EVERY = pytest.mark.parametrize("domain", DOMAINS.values(), ids=list(DOMAINS))


class Always:
    """The same action whatever is seen."""

    def __init__(self, action):
        self.action = action

    def act(self, obs):
        return np.tile(self.action, (len(obs), 1))


def means(domain, who, episodes=32):
    return np.array([domain.outcome(task, who(task), episodes).returns.mean() for task in domain.test_tasks])


@EVERY
def test_a_domain_is_as_large_as_one_should_be(domain):
    assert len(domain.tasks) >= 20
    assert len(domain.observations) >= 4
    assert len({task.name for task in domain.tasks}) == len(domain.tasks)
    assert len(domain.train_tasks) == len(domain.tasks) - TEST_TASKS


@EVERY
@pytest.mark.parametrize("kind", LOGGERS)
def test_a_log_is_a_dataset_that_holds_and_is_the_same_again(domain, kind, tmp_path):
    data = domain.dataset(kind, episodes=4)
    data.save(tmp_path / "data").validate()
    again = domain.dataset(kind, episodes=4)
    for name in ("observations", "actions", "rewards"):
        assert (data.rows(3)[name] == again.rows(3)[name]).all()
    assert data.rows(0)["actions"].std() > 0


@EVERY
def test_a_logger_gets_what_its_log_says(domain):
    """The truth comes by another road than the log: other luck, and returns summed by the simulator."""
    for kind in LOGGERS:
        task = domain.tasks[0]
        true = domain.outcome(task, domain.logger(task, kind), 400).returns
        log = domain.log(task, kind, episodes=400)
        logged = np.bincount(log["episode"], weights=log["rewards"])
        apart = np.hypot(true.std() / 20, logged.std() / 20)
        assert true.mean() == pytest.approx(logged.mean(), abs=5 * apart)


@EVERY
def test_the_best_known_rule_beats_every_logger_and_one_action_is_worse(domain):
    best = means(domain, domain.best)
    for kind in LOGGERS:
        assert best.mean() > means(domain, lambda task, kind=kind: domain.logger(task, kind)).mean()
    still = domain.choices[0] if domain.choices else domain.low
    assert means(domain, lambda task: Always(still)).mean() < best.mean()


@EVERY
def test_everybody_has_the_same_luck(domain):
    task = domain.test_tasks[0]
    first, second = (domain.outcome(task, domain.best(task), 8, seed=3) for _ in range(2))
    assert (first.returns == second.returns).all()
    assert (first.returns != domain.outcome(task, domain.best(task), 8, seed=4).returns).any()


class Still:
    """Luck that is always the same."""

    def normal(self, size):
        return np.zeros(size)

    def random(self, size):
        return np.full(size, 0.5)


@EVERY
def test_the_next_state_is_drawn_and_bends(domain):
    """What follows between two states is not what lies between those that follow them."""
    task, rng = domain.tasks[0], np.random.default_rng(0)
    log = domain.log(task, "noisy")
    state, act = log["observations"], log["actions"]
    assert (domain.step(task, state, act, rng).state != domain.step(task, state, act, rng).state).any(0).all()
    first, second = slice(0, 300), slice(300, 600)
    between = domain.step(task, (state[first] + state[second]) / 2, act[first], Still()).state
    ends = [domain.step(task, state[part], act[first], Still()).state for part in (first, second)]
    away = np.abs(between - (ends[0] + ends[1]) / 2).mean(0) / np.abs(ends[0] - ends[1]).mean(0)
    assert away.max() > 0.01


def test_a_culture_that_dies_ends_its_episode():
    domain = DOMAINS["fermenter"]
    task = max(domain.tasks, key=lambda task: domain.log(task, "noisy")["terminations"].sum())
    log = domain.log(task, "noisy")
    ends = np.flatnonzero(log["terminations"])
    assert len(ends)
    assert (np.append(log["episode"], -1)[ends + 1] != log["episode"][ends]).all()
    assert (log["next_observations"][ends, 0] > 40).all()
    hot = domain.outcome(task, Always([0.0, 4.0]), 16)
    assert hot.harmed.mean() > 0.5
    assert hot.returns.max() < domain.outcome(task, domain.best(task), 16).returns.mean()


@EVERY
def test_a_table_has_the_rows_of_the_log(domain, tmp_path):
    domain.write_table(tmp_path / "log.csv", "mixed", episodes=4)
    with (tmp_path / "log.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    logs = [domain.log(task, "mixed", episodes=4) for task in domain.tasks]
    assert len(rows) == sum(len(log["rewards"]) for log in logs)
    assert float(rows[5][domain.observations[1]]) == pytest.approx(logs[0]["observations"][5, 1], rel=1e-4, abs=1e-4)
    assert float(rows[5]["reward"]) == pytest.approx(logs[0]["rewards"][5], rel=1e-4, abs=1e-4)
