"""Episodes lived again, in a problem whose returns have a closed form."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from problems import COST, HORIZON, A, linear_log, linear_policies, linear_return, push

from omrl.selecting.worlds import Worlds, cut

LOGGER = np.array([-0.1, -0.3])
# Some are better than the logger, some are worse.
GAINS = [np.array(gain) for gain in ([-0.1, -0.3], [-0.2, -0.7], [0.0, 0.0], [-0.05, -0.1], [-0.3, -0.9])]


def gains_found(log, gains):
    """Return beyond the logger's [K, T, P]."""
    tasks = range(len(log.names))
    worlds, pieces = Worlds(log), cut(log, tasks, np.random.default_rng(0))
    lived = worlds.relive(pieces, tasks, linear_policies(gains), len(gains))
    return lived.gained.mean(-1), lived


def test_who_acts_as_the_log_did_gets_what_was_logged():
    found, lived = gains_found(linear_log(3, 10, LOGGER, spread=0.0), [LOGGER])
    np.testing.assert_allclose(found, 0.0, atol=1e-9)
    assert lived.going.all()
    assert not lived.clipped.any()


def test_every_episode_goes_as_it_would_have_gone_with_the_same_luck():
    log = linear_log(4, 20, LOGGER, spread=0.3)
    _, lived = gains_found(log, GAINS)
    pieces = cut(log, range(4), np.random.default_rng(0))
    for t in range(4):
        luck = pieces.next_obs[t] - pieces.obs[t] @ A.T - pieces.act[t] * push(t)
        for p, gain in enumerate(GAINS):
            state, exact = pieces.obs[t, :, 0], 0.0
            for h in range(HORIZON):
                act = state @ gain
                exact = exact - np.square(state).sum(-1) - COST * act**2
                state = state @ A.T + act[:, None] * push(t) + luck[:, h]
            wanted = exact - lived.logged[t]
            near = 0.1 * np.abs(lived.logged[t]).mean()
            np.testing.assert_allclose(lived.gained[:, t, p].mean(0), wanted, rtol=0.1, atol=near)


def test_an_episode_is_lived_again_for_as_long_as_a_return_is_over():
    log = linear_log(2, 10, LOGGER, spread=0.3)
    whole, begun = (cut(log, range(2), np.random.default_rng(0), horizon) for horizon in (None, 4))
    assert whole.rew.shape == (2, 10, HORIZON) and begun.rew.shape == (2, 10, 4)
    np.testing.assert_array_equal(begun.obs, whole.obs[:, :, :4])
    lived = Worlds(log).relive(begun, range(2), linear_policies([LOGGER]), 1)
    np.testing.assert_allclose(lived.logged, whole.rew[:, :, :4].sum(-1))


def test_returns_are_those_of_the_closed_form():
    found, _ = gains_found(linear_log(8, 20, LOGGER, spread=0.3), GAINS)
    logger = np.mean([linear_return(t, LOGGER, 0.3) for t in range(8)])
    for p, gain in enumerate(GAINS):
        wanted = np.mean([linear_return(t, gain) for t in range(8)]) - logger
        assert found[..., p].mean() == pytest.approx(wanted, abs=0.1 * abs(logger))


def test_worlds_disagree_where_the_logger_never_tried():
    steady, shaky = (gains_found(linear_log(4, 20, LOGGER, spread), [GAINS[1]])[0] for spread in (0.0, 0.3))
    assert steady.mean((1, 2)).std() > 3 * shaky.mean((1, 2)).std()


def test_who_leaves_the_log_gets_its_worst_rewards():
    log = linear_log(3, 10, LOGGER, spread=0.3)
    found, lived = gains_found(log, [np.array([30.0, 30.0])])
    assert lived.clipped.mean() > 0.5
    assert found.mean() < 0.5 * HORIZON * min(rew.min() for rew in log.rew)


def test_an_observation_that_never_changes_is_never_left():
    log = linear_log(4, 20, LOGGER, spread=0.3)

    def wider(rows):
        return [np.concatenate([one, np.zeros((len(one), 1))], -1) for one in rows]

    constant = replace(
        log,
        obs=wider(log.obs),
        next_obs=wider(log.next_obs),
        mean=np.append(log.mean, 0.0),
        spread=np.append(log.spread, 1.0),
    )
    plain, _ = gains_found(log, GAINS)
    found, lived = gains_found(constant, [np.append(gain, 0.0) for gain in GAINS])
    assert not lived.clipped[:, :, :2].any()
    np.testing.assert_allclose(found.mean(0), plain.mean(0), rtol=0.2, atol=0.1 * np.abs(lived.logged).mean())


def test_an_end_that_a_policy_avoids_costs_it_nothing():
    # An action above one half ends the episode and costs ten; else a step gives one.
    rng = np.random.default_rng(0)
    log = linear_log(3, 1, LOGGER, 0.0)
    for t in range(3):
        rows = {name: [] for name in ("obs", "act", "rew", "next_obs", "term", "episode")}
        for episode in range(40):
            for _ in range(10):
                obs, act = rng.normal(size=2), rng.uniform(0, 1, size=1) ** 3
                ends = bool(act[0] > 0.5)
                after = np.array([3.0 * ends + 0.1 * rng.normal(), rng.normal()])
                for name, value in zip(rows, (obs, act, 1.0 - 10 * ends, after, ends, episode), strict=True):
                    rows[name].append(value)
                if ends:
                    break
        for name, values in rows.items():
            getattr(log, name)[t] = np.array(values)
    tasks = range(3)
    worlds, pieces = Worlds(log), cut(log, tasks, np.random.default_rng(0))
    careful = worlds.relive(pieces, tasks, lambda obs: np.full((*obs.shape[:-1], 1), 0.1), 1)
    careless = worlds.relive(pieces, tasks, lambda obs: np.full((*obs.shape[:-1], 1), 0.9), 1)
    ended = pieces.ended.any(-1)
    assert worlds.ending.extra == pytest.approx(-10, abs=0.5)
    counted = pieces.counts.sum(-1)
    by_care, by_chance = ((lived.gained + lived.logged[:, None]).mean(0)[:, 0].mean() for lived in (careful, careless))
    assert ended.any()
    assert by_care == pytest.approx(counted.mean(), rel=0.05)
    assert by_chance == pytest.approx(1.0 - 10.0, rel=0.1)
