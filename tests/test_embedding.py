"""ESR and RMS on embeddings whose figures are known."""

from __future__ import annotations

import numpy as np
import pytest

from omrl.embedding import effective_separation_rate, rms_distance


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
