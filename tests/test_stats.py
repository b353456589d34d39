"""Statistics against closed forms and worked examples."""

from __future__ import annotations

import numpy as np
import pytest

from omrl import stats


def test_iqm_is_the_mean_of_the_middle_half() -> None:
    assert stats.iqm(np.arange(8)) == pytest.approx(3.5)
    assert stats.iqm(np.array([0, 0, 1, 2, 3, 4, 100, 1000])) == pytest.approx(2.5)


def test_iqm_counts_scores_on_the_edge_by_their_part_inside() -> None:
    # Six scores: the middle half is worth three of them, that is half of the 2nd, the 3rd, the 4th, half of the 5th.
    assert stats.iqm(np.array([0, 1, 2, 3, 4, 100])) == pytest.approx((0.5 * 1 + 2 + 3 + 0.5 * 4) / 3)


def test_interval_of_a_mean_is_the_normal_one_for_many_scores() -> None:
    scores = np.random.default_rng(0).normal(size=(1, 2000))
    found = stats.bootstrap(scores, stats.mean, np.random.default_rng(1))
    half = 1.96 * scores.std() / np.sqrt(2000)
    assert found.low == pytest.approx(scores.mean() - half, abs=0.15 * half)
    assert found.high == pytest.approx(scores.mean() + half, abs=0.15 * half)


def test_resampling_tasks_widens_the_interval_when_tasks_differ() -> None:
    scores = np.tile(np.arange(10.0), (5, 1))
    seeds_only = stats.bootstrap(scores, stats.mean, np.random.default_rng(0), resample_tasks=False)
    both = stats.bootstrap(scores, stats.mean, np.random.default_rng(0))
    assert seeds_only.low == seeds_only.high == 4.5
    assert both.low < 3.5 and both.high > 5.5


def test_the_same_generator_gives_the_same_interval() -> None:
    scores = np.random.default_rng(0).normal(size=(3, 5))
    first, second = (stats.bootstrap(scores, stats.iqm, np.random.default_rng(7)) for _ in range(2))
    assert first == second


def test_probability_of_improvement_by_hand() -> None:
    # Task 1: 2 beats 1, 2 ties 2. Task 2: 0 loses twice.
    assert stats.probability_of_improvement(np.array([[2, 0]]), np.array([[1, 1], [2, 3]])) == pytest.approx(
        ((1 + 0.5) / 2 + 0) / 2
    )


def test_normalised_scores_are_0_for_random_and_1_for_the_expert() -> None:
    assert stats.normalised(-300, -300, -20) == 0
    assert stats.normalised(-20, -300, -20) == 1


def test_paired_difference_by_hand() -> None:
    # Differences of two runs and two tasks: [[1, 3], [1, 3]]; runs agree, so only tasks spread: 1, 2 or 3.
    ours, theirs = np.array([[5.0, 7.0], [6.0, 8.0]]), np.array([[4.0, 4.0], [5.0, 5.0]])
    found = stats.paired_difference(ours, theirs, np.random.default_rng(0))
    assert (found.value, found.low, found.high) == pytest.approx((2.0, 1.0, 3.0))


def test_paired_difference_of_what_differs_by_a_constant_has_no_width() -> None:
    scores = np.random.default_rng(0).normal(size=(3, 5))
    found = stats.paired_difference(scores + 2, scores, np.random.default_rng(1))
    assert found.value == pytest.approx(2) and found.low == pytest.approx(2) and found.high == pytest.approx(2)


def test_paired_difference_counts_a_bad_run_as_bad_in_all_tasks() -> None:
    ours = np.array([[-1.0] * 50, [1.0] * 50, [1.0] * 50])
    found = stats.paired_difference(ours, np.zeros((3, 50)), np.random.default_rng(0))
    assert found.low == pytest.approx(-1.0) and found.high == pytest.approx(1.0)


def test_interval_of_a_paired_difference_is_the_normal_one_for_many_runs() -> None:
    scores = np.random.default_rng(0).normal(size=(2000, 1))
    found = stats.paired_difference(scores, np.zeros_like(scores), np.random.default_rng(1))
    half = 1.96 * scores.std() / np.sqrt(2000)
    assert found.low == pytest.approx(scores.mean() - half, abs=0.15 * half)


def test_paired_difference_needs_pairs() -> None:
    with pytest.raises(ValueError, match="no pairs"):
        stats.paired_difference(np.zeros((2, 3)), np.zeros((3, 3)), np.random.default_rng(0))


def test_an_estimate_has_no_minus_before_a_zero():
    assert str(stats.Estimate(-1e-4, -2e-3, 1.0)) == "0.00 [0.00, 1.00]"
    assert str(stats.Estimate(-0.01, -1.0, 0.0)) == "-0.01 [-1.00, 0.00]"
