"""Statistics against closed forms, worked examples, and ten thousand nulls of every kind."""

from __future__ import annotations

import math

import numpy as np
import pytest

from omrl.evaluation import stats
from omrl.studies.judging import DOES_NOT, HOLDS, together, verdicts

NULLS = 10_000


# -- Student's t -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("p", "freedom", "tabulated"),
    [
        (0.975, 1, 12.7062047362),
        (0.975, 2, 4.3026527297),
        (0.975, 4, 2.7764451052),
        (0.95, 4, 2.1318467863),
        (0.8, 5, 0.9195437802),
        (0.975, 9, 2.2621571628),
        (0.995, 12, 3.0545395894),
        (0.975, 30, 2.0422724563),
        (0.975, 1000, 1.9623390808),
        (0.5, 3, 0.0),
    ],
)
def test_quantiles_of_t_are_the_tabulated_ones(p, freedom, tabulated):
    assert float(stats.t_quantile(p, freedom)) == pytest.approx(tabulated, rel=1e-9, abs=1e-9)


def test_chances_of_t_are_the_closed_forms_of_one_two_and_many_degrees_of_freedom():
    t = np.array([-40.0, -3.0, 0.0, 0.5, 2.0, 10.0])
    assert stats.t_cdf(t, 1) == pytest.approx(0.5 + np.arctan(t) / np.pi, abs=1e-12)
    assert stats.t_cdf(t, 2) == pytest.approx(0.5 + t / (2 * np.sqrt(2 + t**2)), abs=1e-12)
    normal = [0.5 * math.erfc(-value / math.sqrt(2)) for value in t]
    assert stats.t_cdf(t, 1e6) == pytest.approx(normal, abs=1e-6)
    assert stats.t_cdf(np.inf, 7) == pytest.approx(1)


def test_chance_and_quantile_of_any_degrees_of_freedom_are_inverse():
    freedom = np.array([1.0, 1.7, 3.3, 57.0, 59.0, 400.0])
    assert stats.t_cdf(stats.t_quantile(0.9, freedom), freedom) == pytest.approx(0.9, abs=1e-12)


# -- by hand -----------------------------------------------------------------------------------------------------------


def test_fixed_tasks_are_welch_s_t_on_the_means_of_seeds():
    # Means of seeds: 1, 2, 3 and 2, 6. Variances over numbers: 1/3 and 8/2.
    ours, theirs = np.array([[0.0, 2], [1, 3], [2, 4]]), np.array([[1.0, 3], [5, 7]])
    found = stats.difference(ours, theirs, new_tasks=False)
    square = 1 / 3 + 4
    assert (float(found.value), float(found.error)) == pytest.approx((-2, math.sqrt(square)))
    assert float(found.freedom) == pytest.approx(square**2 / ((1 / 3) ** 2 / 2 + 4**2 / 1))
    # The same whatever is said of the tasks, as long as there are fewer than five.
    assert stats.difference(ours, theirs, new_tasks=True) == found


def test_new_tasks_add_their_spread_less_what_cells_explain():
    rng = np.random.default_rng(0)
    ours, theirs = rng.normal(size=(4, 6)) + 3 * rng.normal(size=6), rng.normal(size=(3, 6))
    fixed, new = (stats.difference(ours, theirs, new_tasks=new) for new in (False, True))
    cells, weight = 0.0, 0.0
    for scores in (ours, theirs):
        seeds, tasks = scores.shape
        rest = scores - scores.mean(1)[:, None] - scores.mean(0) + scores.mean()
        part = (rest**2).sum() / ((seeds - 1) * (tasks - 1)) / (seeds * tasks)
        cells, weight = cells + part, weight + part**2 / ((seeds - 1) * (tasks - 1))
    spread = (ours.mean(0) - theirs.mean(0)).var(ddof=1) / 6
    assert spread > cells
    assert float(new.error) ** 2 == pytest.approx(float(fixed.error) ** 2 + spread - cells)
    weight += float(fixed.error) ** 4 / float(fixed.freedom) + spread**2 / 5
    assert float(new.freedom) == pytest.approx(float(new.error) ** 4 / weight)


def test_new_tasks_that_say_nothing_leave_the_interval_of_fixed_ones():
    seeds = np.random.default_rng(0).normal(size=(4, 1))
    ours, theirs = seeds + np.zeros((4, 6)), np.zeros((4, 6)) + seeds[::-1] / 2
    assert stats.difference(ours, theirs, new_tasks=True) == stats.difference(ours, theirs, new_tasks=False)


def test_a_mean_is_a_difference_from_nothing():
    scores = np.random.default_rng(0).normal(size=(4, 6))
    for new in (False, True):
        alone, from_zero = stats.mean(scores, new_tasks=new), stats.difference(scores, 0 * scores, new_tasks=new)
        assert alone == from_zero
    # Of one column: the t interval of the textbook.
    found = stats.mean(np.array([[1.0], [2], [6]]), new_tasks=False).interval()
    half = 4.3026527297 * math.sqrt(7 / 3)
    assert (found.value, found.low, found.high) == pytest.approx((3, 3 - half, 3 + half))


def test_tasks_common_to_both_cancel_out_of_a_difference():
    rng = np.random.default_rng(0)
    tasks = 1e6 * rng.normal(size=8)
    ours, theirs = rng.normal(size=(5, 8)), rng.normal(size=(5, 8))
    plain, moved = (stats.difference(ours + t, theirs + t, new_tasks=True) for t in (0, tasks))
    assert float(moved.error) == pytest.approx(float(plain.error), rel=1e-6)


def test_a_chance_below_a_level_is_an_interval_that_misses_zero():
    rng = np.random.default_rng(0)
    for _ in range(50):
        found = stats.difference(rng.normal(0.8, 1, size=(4, 6)), rng.normal(size=(6, 6)), new_tasks=True)
        interval = found.interval(0.95)
        assert (interval.low > 0 or interval.high < 0) == (float(found.p) < 0.05)
        assert (float(found.p_below()) > 0.5) == (found.value > 0)


def test_the_detectable_difference_is_found_in_four_of_five_repetitions():
    rng = np.random.default_rng(0)
    first = stats.mean(rng.normal(size=(200, 1)), new_tasks=False)
    assert first.detectable == pytest.approx((1.972 + 0.8434) * float(first.error), rel=1e-3)
    again = stats.mean(rng.normal(first.detectable, 1, size=(5_000, 200, 1)), new_tasks=False)
    assert (again.p < 0.05).mean() == pytest.approx(0.8, abs=0.04)


# -- where there is little or nothing to measure -----------------------------------------------------------------------


def test_one_seed_has_no_interval():
    found = stats.mean(np.array([[1.0, 3.0]]), new_tasks=True)
    assert found.interval() == stats.Estimate(2.0, None, None) and found.detectable is None
    assert str(found.interval()) == "2.00 [no interval]"
    against = stats.difference(np.ones((1, 9)), np.zeros((5, 9)), new_tasks=True)
    assert against.interval(0.9).low is None and float(against.p) == 1


def test_scores_that_all_agree_have_an_interval_without_width():
    equal = stats.difference(np.full((3, 6), 2.0), np.full((4, 6), 2.0), new_tasks=True)
    assert equal.interval() == stats.Estimate(0.0, 0.0, 0.0) and float(equal.p) == 1 and equal.detectable == 0
    apart = stats.difference(np.full((3, 2), 2.0), np.zeros((3, 2)), new_tasks=False)
    assert apart.interval() == stats.Estimate(2.0, 2.0, 2.0) and float(apart.p) == pytest.approx(0)


def test_one_task_is_a_fixed_one():
    scores = np.array([[1.0], [2.0], [4.0]])
    assert stats.mean(scores, new_tasks=True) == stats.mean(scores, new_tasks=False)


def test_scores_of_other_numbers_of_tasks_are_refused():
    with pytest.raises(ValueError, match="not of the same ones"):
        stats.difference(np.zeros((2, 3)), np.zeros((2, 4)), new_tasks=True)


def test_an_estimate_has_no_minus_before_a_zero():
    assert str(stats.Estimate(-1e-4, -2e-3, 1.0)) == "0.00 [0.00, 1.00]"
    assert str(stats.Estimate(-0.01, -1.0, 0.0)) == "-0.01 [-1.00, 0.00]"


# -- the level ---------------------------------------------------------------------------------------------------------

# Standard deviations of seeds, of algorithm x task, and of single cells.
EFFECTS = {"seed": (1.0, 0.0, 0.3), "task": (0.0, 1.0, 0.3), "both": (1.0, 1.0, 0.3), "neither": (0.0, 0.0, 1.0)}


def null(rng, seeds, tasks, effects, spread=1.0, failing=False):
    """Scores [nulls, seeds, tasks] of an algorithm; what tasks have in common with the other one's cancels out."""
    of_seed, of_task, of_cell = effects
    scores = of_seed * rng.normal(size=(NULLS, seeds, 1)) + of_task * rng.normal(size=(NULLS, 1, tasks))
    scores = spread * (scores + of_cell * rng.normal(size=(NULLS, seeds, tasks)))
    return scores - 20.0 * (rng.random((NULLS, seeds, 1)) < 0.2) if failing else scores


@pytest.mark.parametrize("failing", [False, True], ids=["", "failing"])
@pytest.mark.parametrize("spread", [1, 4])
@pytest.mark.parametrize("effects", EFFECTS)
@pytest.mark.parametrize(("seeds", "tasks"), [(3, 2), (5, 5), (10, 20)])
def test_true_nulls_are_rejected_no_more_often_than_they_may_be(seeds, tasks, effects, spread, failing):
    rng = np.random.default_rng(0)
    of_seed, of_task, of_cell = EFFECTS[effects]
    if tasks < stats.FEWEST_TASKS:
        of_task = 0.0  # in tasks that are themselves what is asked about it is a true difference
    sizes = (seeds, tasks, (of_seed, of_task, of_cell))
    ours, theirs = (null(rng, *sizes, how_wide, failing) for how_wide in (1, spread))
    rate = (stats.difference(ours, theirs, new_tasks=True).p < 0.05).mean()
    # A seed that fails widens the interval more than it moves the mean: such tests are careful.
    dominated = effects != "neither" and not failing and tasks >= stats.FEWEST_TASKS
    assert (0.035 if dominated else 0.0) <= rate <= 0.065


@pytest.mark.parametrize(("ours", "theirs"), [(5, 10), (10, 5)])
def test_the_level_holds_for_unequal_numbers_of_seeds(ours, theirs):
    for effects in EFFECTS.values():
        rng = np.random.default_rng(0)
        scores = null(rng, ours, 5, effects), null(rng, theirs, 5, effects, spread=4)
        assert (stats.difference(*scores, new_tasks=True).p < 0.05).mean() <= 0.065


@pytest.mark.parametrize("effects", EFFECTS)
def test_an_interval_of_a_mean_covers_it(effects):
    for seeds, tasks in ((5, 5), (10, 20)):
        scores = null(np.random.default_rng(0), seeds, tasks, EFFECTS[effects])
        assert (stats.mean(scores, new_tasks=True).p < 0.05).mean() <= 0.065


@pytest.mark.parametrize("effects", EFFECTS)
@pytest.mark.parametrize(("seeds", "tasks"), [(3, 2), (5, 5), (10, 20)])
def test_a_claim_on_equal_rows_gets_a_wrong_verdict_in_one_of_thirty_at_most(seeds, tasks, effects):
    """One row against four others, none of which differs from it in truth; no zone, so that none is `equal`."""
    rng = np.random.default_rng(0)
    of_seed, of_task, of_cell = EFFECTS[effects]
    sizes = (seeds, tasks, (of_seed, of_task if tasks >= stats.FEWEST_TASKS else 0.0, of_cell))
    ours = null(rng, *sizes)
    found = [stats.difference(ours, null(rng, *sizes), new_tasks=True) for _ in range(4)]
    lowest, highest = (end([each.p_below() for each in found], axis=0) for end in (np.min, np.max))
    wrong = 0
    for i in np.flatnonzero((lowest < 0.025) | (highest > 0.975)):  # elsewhere nothing is below or above zero
        one = [stats.Measured(each.value[i], each.error[i], each.freedom[i]) for each in found]
        wrong += together(verdicts(one, None)) in (HOLDS, DOES_NOT)
    assert wrong / NULLS <= 1 / 30


# -- without an interval -----------------------------------------------------------------------------------------------


def test_iqm_is_the_mean_of_the_middle_half() -> None:
    assert stats.iqm(np.arange(8)) == pytest.approx(3.5)
    assert stats.iqm(np.array([0, 0, 1, 2, 3, 4, 100, 1000])) == pytest.approx(2.5)


def test_iqm_counts_scores_on_the_edge_by_their_part_inside() -> None:
    # Six scores: the middle half is worth three of them, that is half of the 2nd, the 3rd, the 4th, half of the 5th.
    assert stats.iqm(np.array([0, 1, 2, 3, 4, 100])) == pytest.approx((0.5 * 1 + 2 + 3 + 0.5 * 4) / 3)


def test_normalised_scores_are_0_for_random_and_1_for_the_expert() -> None:
    assert stats.normalised(-300, -300, -20) == 0
    assert stats.normalised(-20, -300, -20) == 1
