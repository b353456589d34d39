"""ESR and RMS on embeddings whose figures are known; projections against their definitions."""

from __future__ import annotations

import numpy as np
import pytest

from omrl.evaluation.embedding import (
    affinities,
    effective_separation_rate,
    pair_distances,
    principal_components,
    rms_distance,
    tsne,
)


def test_two_tasks_in_opposite_corners_are_separate_and_two_apart_per_dimension() -> None:
    z = np.array([[1.0, 1.0, 1.0], [-1.0, -1.0, -1.0]])
    assert effective_separation_rate(z) == 1
    assert rms_distance(z) == 2


def test_tasks_that_share_a_point_are_not_separate() -> None:
    # Three tasks, two of them in one place: one of three pairs is at distance 0, two at mean square 4 * 1/2 = 2.
    z = np.array([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    assert effective_separation_rate(z) == pytest.approx(2 / 3)
    assert rms_distance(z) == pytest.approx(np.sqrt((0 + 2 + 2) / 3))


def test_random_embeddings_have_the_expected_square_distance() -> None:
    z = np.random.default_rng(0).uniform(-1, 1, size=(400, 30))
    assert rms_distance(z) ** 2 == pytest.approx(2 / 3, abs=0.01)
    assert effective_separation_rate(z) == pytest.approx(0.5, abs=0.03)


def test_half_the_tasks_in_each_of_two_corners_have_a_large_rms_and_a_low_rate() -> None:
    # The degenerate embedding of the paper's lemma: RMS is nearly as large as can be, but half the pairs coincide.
    z = np.repeat([[1.0] * 5, [-1.0] * 5], 40, axis=0)
    assert rms_distance(z) == pytest.approx(np.sqrt(2 * 80 / 79), rel=1e-9)
    assert effective_separation_rate(z) == pytest.approx(40 * 40 / (80 * 79 / 2))


def clusters(spread: float = 0.02) -> tuple[np.ndarray, np.ndarray]:
    """Ten clouds of thirty points in five dimensions, and which cloud a point is of."""
    rng = np.random.default_rng(0)
    points = rng.uniform(-1, 1, size=(10, 1, 5)) + spread * rng.normal(size=(10, 30, 5))
    return points.reshape(-1, 5), np.repeat(np.arange(10), 30)


def test_tsne_keeps_separate_clusters_separate_and_is_the_same_every_time() -> None:
    points, cloud = clusters()
    flat = tsne(points, perplexity=20)
    assert flat.shape == (300, 2)
    gaps = np.square(flat[:, None] - flat).sum(-1)
    np.fill_diagonal(gaps, np.inf)
    assert (cloud[gaps.argmin(1)] == cloud).all()
    inside = np.mean([flat[cloud == i].std(0).mean() for i in range(10)])
    assert inside < 0.2 * flat.std(0).mean()
    np.testing.assert_array_equal(flat, tsne(points, perplexity=20))


def test_affinities_have_the_entropy_of_the_perplexity() -> None:
    points = np.random.default_rng(1).normal(size=(200, 4))
    p = affinities(points, perplexity=15)
    np.testing.assert_allclose(p.sum(1), 1)
    assert not p.diagonal().any()
    entropy = -np.sum(p * np.log(np.where(p > 0, p, 1)), axis=1)
    np.testing.assert_allclose(np.exp(entropy), 15, rtol=1e-4)
    # The Gaussian form: among the points that count, log p falls in proportion to the squared distance.
    which = np.flatnonzero(p[0])
    gaps = np.square(points[which] - points[0]).sum(1)
    assert np.corrcoef(np.log(p[0, which]), gaps)[0, 1] == pytest.approx(-1)


@pytest.mark.parametrize("count", [1, 3, 5])
def test_tsne_takes_few_points_and_equal_ones(count: int) -> None:
    assert np.isfinite(tsne(np.zeros((count, 3)))).all()


def test_principal_components_are_those_of_the_covariance() -> None:
    points = np.random.default_rng(2).normal(size=(500, 6)) * [3.0, 2.0, 1.0, 0.5, 0.1, 0.1]
    found, share = principal_components(points, 3)
    values = np.sort(np.linalg.eigvalsh(np.cov(points.T)))[::-1]
    np.testing.assert_allclose(found.var(0, ddof=1), values[:3])
    np.testing.assert_allclose(share, values[:3] / values.sum())
    padded, none = principal_components(points[:, :1], 3)
    np.testing.assert_allclose(np.abs(padded[:, 0]), np.abs(points[:, 0] - points[:, 0].mean()))
    assert not padded[:, 1:].any() and not none[1:].any()


def test_distances_are_of_pairs_of_one_task_and_of_two() -> None:
    z = np.array([[[0.0, 0.0], [0.2, 0.2]], [[1.0, 1.0], [1.2, 1.2]]])
    same, different = pair_distances(z, np.random.default_rng(0), pairs=200)
    np.testing.assert_allclose(same, 0.2)
    np.testing.assert_allclose(np.unique(different.round(6)), [0.8, 1.0, 1.2])
    assert pair_distances(z[:1], np.random.default_rng(0))[1].size == 0
