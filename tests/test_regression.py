"""Regression with shared and own parts, beside the Gaussian process written out row by row."""

from __future__ import annotations

import numpy as np
import pytest

from omrl.learning.regression import Chosen, Features, Fitted, Sums, choose, draw_weights, fit

SHARED, OWN = 0.1, 1.0


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    features = Features.draw(2, 2.0, rng)
    inputs = [rng.normal(size=(n, 2)) for n in (9, 7, 8)]
    targets = [np.stack([np.sin(x[:, 0]) + 0.3 * t * x[:, 1], x.sum(1)], -1) for t, x in enumerate(inputs)]
    return features, inputs, targets


def covariance(features, inputs, other, shared, own):
    """Of rows of tasks with rows of others, in units of the noise's variance."""
    found = features(np.concatenate(inputs)) @ features(np.concatenate(other)).T / shared
    tasks, others = (np.repeat(np.arange(len(rows)), [len(x) for x in rows]) for rows in (inputs, other))
    return found * (1 + (tasks[:, None] == others) * shared / own)


def test_the_evidence_is_that_of_the_gaussian_process(problem):
    features, inputs, targets = problem
    found = choose(Sums.of(features, inputs, targets))
    y = np.concatenate(targets)
    for o, one in enumerate(found):
        whole = np.eye(len(y)) + covariance(features, inputs, inputs, one.shared, one.own)
        variance = y[:, o] @ np.linalg.solve(whole, y[:, o]) / len(y)
        assert one.noise == pytest.approx(np.sqrt(variance), rel=1e-6)
        wanted = -0.5 * (len(y) * np.log(variance) + np.linalg.slogdet(whole)[1])
        assert one.evidence == pytest.approx(wanted, rel=1e-6)


def test_draws_have_the_mean_and_spread_of_the_posterior(problem):
    features, inputs, targets = problem
    chosen = [Chosen(SHARED, OWN, 0.2, 0.0)] * 2
    drawn = draw_weights(Sums.of(features, inputs, targets), chosen, [1], 20_000, np.random.default_rng(1))
    places = np.array([[0.3, -0.2], [4.0, 3.0]])
    found = np.einsum("nd,kdo->kno", features(places), drawn[:, 0])
    new = [np.zeros((0, 2)), places, np.zeros((0, 2))]
    whole = np.eye(24) + covariance(features, inputs, inputs, SHARED, OWN)
    across = covariance(features, new, inputs, SHARED, OWN)
    wanted = across @ np.linalg.solve(whole, np.concatenate(targets))
    spread = covariance(features, new, new, SHARED, OWN) - across @ np.linalg.solve(whole, across.T)
    wide = 0.2 * np.sqrt(np.diag(spread))
    np.testing.assert_allclose(found.mean(0), wanted, atol=0.02 * wide.max())
    np.testing.assert_allclose(found.std(0), np.stack([wide, wide], -1), rtol=0.02)
    (expected,) = draw_weights(Sums.of(features, inputs, targets), chosen, [1], 1, None)[:, 0]
    np.testing.assert_allclose(features(places) @ expected, wanted, rtol=1e-6)


def test_what_some_tasks_share_is_what_they_tell_of_a_task_without_rows(problem):
    features, inputs, targets = problem
    chosen = [Chosen(SHARED, OWN, 0.2, 0.0)] * 2
    found = Fitted(features, Sums.of(features, inputs, targets), chosen).shared([0, 2])
    places, none = np.array([[0.3, -0.2], [4.0, 3.0]]), np.zeros((0, 2))
    some = [inputs[0], none, inputs[2]]
    whole = np.eye(17) + covariance(features, some, some, SHARED, OWN)
    across = covariance(features, [none, places, none], some, SHARED, OWN)
    wanted = across @ np.linalg.solve(whole, np.concatenate([targets[0], targets[2]]))
    np.testing.assert_allclose(features(places) @ found, wanted, rtol=1e-6)


def test_draws_differ_where_there_are_no_rows():
    rng = np.random.default_rng(2)
    inputs = [rng.normal(size=(200, 1)) for _ in range(3)]
    fitted = fit(inputs, [np.sin(x) + 0.1 * rng.normal(size=x.shape) for x in inputs], seed=0)
    near, far = (
        (fitted.features(np.array([[place]])) @ fitted.draw([0], 200, rng)[:, 0]).std() for place in (0.0, 8.0)
    )
    assert fitted.chosen[0].noise == pytest.approx(0.1, rel=0.1)
    assert near < 0.05
    assert far > 5 * near
