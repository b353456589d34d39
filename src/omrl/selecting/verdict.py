"""From signals to one of three words: better than the logger, worse, or that nobody can tell from this log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from omrl.evaluation import stats
from omrl.learning.regression import Array
from omrl.selecting.signals import Signals

Word = Literal["better", "worse", "cannot tell"]

# A policy is not called better that has left the log altogether in more than this share of its steps, or is far from it
# in more than that one. Both were fixed on three made-up domains and tested on three others: docs/own-logs-results.md.
LEFT, FAR = 0.01, 0.3
# Nothing can be said of how a policy does in worlds that it leaves in more than this share of its steps. Seen to help
# on logs of half-cheetah-fwd-back, and to change next to nothing in the made-up domains.
LOST = 0.25
# Of the intervals.
LEVEL = 0.95


@dataclass(frozen=True)
class Findings:
    """What a run's signals sum up to over its seeds and the judged tasks; returns are in units of the reward."""

    seeds: int
    tasks: int
    logger: float
    """The logger's return."""
    gain: stats.Estimate
    """The policy's return beyond it, by worlds that the log does not rule out."""
    fitted_q: stats.Estimate
    """The same by fitted-Q evaluation."""
    left: float
    """Share of steps at which the policy had left the log altogether."""
    far: float | None
    """Share of steps further from the log than one in twenty of its own rows; None where tasks have one episode."""
    outside: float
    """Share of actions outside the task's logged range."""
    action_error: float
    """RMS difference to the logged actions, in units of their spread."""
    noise: float
    """That of the logger itself: the floor."""
    disagreement: float | None
    """How far seeds are from one another, in the same units; None of one seed."""
    identification: float | None
    """Share of contexts that are told apart from other tasks; None of one task."""


def sum_up(signals: Signals) -> Findings:
    """Over seeds and tasks."""
    _, seeds, tasks = signals.gained.shape
    return Findings(
        seeds=seeds,
        tasks=tasks,
        logger=float(signals.logged.mean()),
        gain=mean_of_draws(signals.gained).interval(LEVEL),
        fitted_q=mean_of_draws(signals.fitted_q).interval(LEVEL),
        left=float(signals.left.mean()),
        far=_known(signals.far),
        outside=float(signals.outside.mean()),
        action_error=float(signals.action_error.mean()),
        noise=signals.noise,
        disagreement=_known(signals.disagreement),
        identification=_known(signals.identification),
    )


def standing(found: Findings) -> tuple[bool, float]:
    """What runs are ordered by, larger is better: the estimate; behind it those that worlds lost, by their actions."""
    return (False, -found.action_error) if found.left > LOST else (True, found.gain.value)


def mean_of_draws(cells: Array) -> stats.Measured:
    """The mean of [draws, seeds, tasks], with the spread of seeds and tasks and that of the draws in its error."""
    scores = cells.mean(0)
    # Of one seed, tasks alone say how far another could be.
    found = stats.mean(scores, new_tasks=True) if len(scores) > 1 else stats.mean(scores.T, new_tasks=False)
    if not np.isfinite(found.error):
        return found
    squares = np.array([found.error**2, cells.mean((1, 2)).var(ddof=1)])
    weight = (squares**2 / (found.freedom, len(cells) - 1)).sum()
    freedom = squares.sum() ** 2 / weight if weight > 0 else found.freedom
    return stats.Measured(found.value, np.sqrt(squares.sum()), freedom)


def _known(values: Array) -> float | None:
    return None if np.isnan(values).any() else float(np.mean(values))


@dataclass(frozen=True)
class Verdict:
    """One word, and why it is not another."""

    word: Word
    reasons: tuple[str, ...]
    """Signals that speak against a clearer word."""


def judge(found: Findings) -> Verdict:
    """The word of the worlds, unless another signal speaks against it: then nobody can tell."""
    gain, fitted_q = found.gain, found.fitted_q
    if gain.low is None or gain.high is None:
        return Verdict("cannot tell", ("one task and one seed have no interval",))
    if gain.low <= 0 <= gain.high:
        return Verdict("cannot tell", (f"the return beyond the logger's, {gain.text()}, may be of either sign",))
    opposite = f"fitted-Q evaluation says the opposite, {fitted_q.text()}"
    if gain.high < 0:
        if fitted_q.low is not None and fitted_q.low > 0:
            return Verdict("cannot tell", (f"it looks worse, but {opposite}",))
        return Verdict("worse", ())
    against = []
    if found.left > LEFT:
        against.append(f"the policy leaves the log altogether in {found.left:.0%} of its steps")
    if found.far is not None and found.far > FAR:
        against.append(f"{found.far:.0%} of its steps are far from the log, where 5% of the log's own are")
    if fitted_q.high is not None and fitted_q.high < 0:
        against.append(opposite)
    if against:
        return Verdict("cannot tell", tuple(f"it looks better, but {one}" for one in against))
    return Verdict("better", ())
