"""Statistics one can believe: means and differences of means with t intervals that hold their level.

The currency is a score matrix [seeds, tasks]: one row per trained seed, one column per task. Seeds are always a sample
of training runs; those of two algorithms are no pairs, and their spreads may differ. Tasks are one of two things:

fixed    The tasks themselves are what is asked about, such as forward and backward, or the tasks trained on. Then a
         seed's mean over tasks is one observation: Welch's t on the means of seeds.
new      Test tasks are a sample of their family, and both algorithms meet the same ones. Then tasks are a random effect
         beside seeds. Fewer than FEWEST_TASKS say too little about a family: they are taken as fixed.

With new tasks the squared standard error has two parts:

- seeds: the variance of the means of seeds over their number, summed over the algorithms, as for fixed tasks;
- tasks: the variance over tasks of a task's mean (difference), over their number, less the part of it that the noise
  of single cells explains, since the means of seeds have that noise already; never less than nothing.

So it is never smaller than for fixed tasks, nor counts the noise of cells twice. The degrees of freedom are
Satterthwaite's, and no fewer than those of the part that has the fewest. Of several compositions that
were simulated this one stays closest to its level where cells alone vary; where seeds or tasks matter they are alike.
tests/test_stats.py holds the rates, at most 6.5 % of true nulls at 5 %. Very unequal spreads or numbers of seeds, with
three of them, can be somewhat above.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
FEWEST_TASKS = 5
# Gauss and Legendre's points between 0 and 1.
_POINTS, _WEIGHTS = ((1 + np.polynomial.legendre.leggauss(64)[0]) / 2, np.polynomial.legendre.leggauss(64)[1] / 2)
_log_gamma = np.vectorize(math.lgamma, otypes=[np.float64])


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval; both ends are None where nothing is known about the spread, as with one seed."""

    value: float
    low: float | None
    high: float | None

    def __str__(self) -> str:
        return self.text()

    def text(self, digits: int = 2) -> str:
        """With so many digits after the point."""
        shown = f"{self.value:z.{digits}f}"  # z: no minus before a zero
        if self.low is None or self.high is None:
            return f"{shown} [no interval]"
        return f"{shown} [{self.low:z.{digits}f}, {self.high:z.{digits}f}]"


@dataclass(frozen=True)
class Measured:
    """A mean, its standard error and the degrees of freedom of that; arrays for a stack of matrices.

    The error is infinite with one seed, whose spread is unknown. It is 0 where all seeds (and tasks) agree to the last
    digit: then the interval has no width.
    """

    value: Array
    error: Array
    freedom: Array

    def interval(self, level: float = 0.95) -> Estimate:
        """The two-sided interval; not of a stack."""
        value = float(self.value)
        if not np.isfinite(self.error):
            return Estimate(value, None, None)
        half = float(t_quantile((1 + level) / 2, self.freedom) * self.error)
        return Estimate(value, value - half, value + half)

    def p_below(self, truth: float = 0.0) -> Array:
        """How likely a value as low as this would be if that were the truth: small where the truth is below it."""
        distance = self.value - truth
        with np.errstate(divide="ignore", invalid="ignore"):
            return t_cdf(np.where(distance == 0, 0.0, distance / self.error), self.freedom)

    @property
    def p(self) -> Array:
        """The two-sided chance of a value as far from zero as this."""
        below = self.p_below()
        found: Array = 2 * np.minimum(below, 1 - below)
        return found

    @property
    def detectable(self) -> float | None:
        """The smallest true difference whose 95 % interval would miss zero in four of five repetitions."""
        if not np.isfinite(self.error):
            return None
        return float((t_quantile(0.975, self.freedom) + t_quantile(0.8, self.freedom)) * self.error)


def mean(scores: Array, *, new_tasks: bool) -> Measured:
    """The mean of [..., seeds, tasks]."""
    scores = _matrix(scores)
    return _measured(scores.mean(-2), [scores], new_tasks)


def difference(ours: Array, theirs: Array, *, new_tasks: bool) -> Measured:
    """The mean of ours minus that of theirs, [..., seeds, tasks] each: the same tasks, not as many seeds perhaps."""
    ours, theirs = _matrix(ours), _matrix(theirs)
    if ours.shape[-1] != theirs.shape[-1]:
        raise ValueError(f"scores of {ours.shape[-1]} and {theirs.shape[-1]} tasks are not of the same ones")
    return _measured(ours.mean(-2) - theirs.mean(-2), [ours, theirs], new_tasks)


def _matrix(scores: Array) -> Array:
    return np.atleast_2d(np.asarray(scores, dtype=np.float64))


def _measured(of_tasks: Array, groups: Sequence[Array], new_tasks: bool) -> Measured:
    """The mean over tasks of what groups of seeds [..., seeds, tasks] make of each of them."""
    value, tasks = of_tasks.mean(-1), of_tasks.shape[-1]
    fewest = min(group.shape[-2] for group in groups) - 1
    if fewest == 0:
        return Measured(value, np.full(value.shape, np.inf), np.ones(value.shape))
    square, weight = _added([_of_seeds(group) for group in groups])
    if new_tasks and tasks >= FEWEST_TASKS:
        fewest = min(fewest, tasks - 1)
        spread = of_tasks.var(-1, ddof=1) / tasks
        cells, weight_of_cells = _added([_of_cells(group) for group in groups])
        more = spread > cells
        square = square + np.where(more, spread - cells, 0.0)
        weight = weight + np.where(more, spread**2 / (tasks - 1) + weight_of_cells, 0.0)
    with np.errstate(invalid="ignore"):
        freedom = np.where(weight > 0, square**2 / weight, fewest)
    return Measured(value, np.sqrt(square), np.maximum(freedom, fewest))


def _added(parts: Sequence[tuple[Array, int]]) -> tuple[Array, Array]:
    """The sum of variances, and that of their squares over their degrees of freedom, by which Satterthwaite weighs."""
    return np.sum([part for part, _ in parts], axis=0), np.sum([part**2 / freedom for part, freedom in parts], axis=0)


def _of_seeds(group: Array) -> tuple[Array, int]:
    """The variance of a group's mean, tasks being fixed, and its degrees of freedom."""
    seeds = group.shape[-2]
    return group.mean(-1).var(-1, ddof=1) / seeds, seeds - 1


def _of_cells(group: Array) -> tuple[Array, int]:
    """The part of it that comes from what neither a seed nor a task explains."""
    seeds, tasks = group.shape[-2:]
    of_seed = group - group.mean(-1, keepdims=True)
    freedom = (seeds - 1) * (tasks - 1)
    squares = ((of_seed - of_seed.mean(-2, keepdims=True)) ** 2).sum((-2, -1))
    return squares / freedom / (seeds * tasks), freedom


# -- Student's t -------------------------------------------------------------------------------------------------------


def t_cdf(t: Array | float, freedom: Array | float) -> Array:
    """The chance that Student's t, of one or more degrees of freedom, is at most t.

    With t = sqrt(freedom) tan(angle) its density is a power of the angle's cosine, which a sum over Gauss and
    Legendre's points gets to 12 digits.
    """
    t, freedom = np.broadcast_arrays(np.asarray(t, dtype=np.float64), np.asarray(freedom, dtype=np.float64))
    # Beyond twelve standard deviations nothing is left, and the points would miss the middle.
    angle = np.minimum(np.arctan(np.abs(t) / np.sqrt(freedom)), 12 / np.sqrt(freedom))
    area = (np.cos(angle[..., None] * _POINTS) ** (freedom[..., None] - 1)) @ _WEIGHTS * angle
    height = np.exp(_log_gamma((freedom + 1) / 2) - _log_gamma(freedom / 2)) / math.sqrt(math.pi)
    found: Array = 0.5 + np.sign(t) * height * area
    return found


def t_quantile(p: float, freedom: Array | float) -> Array:
    """The t that Student's t is at most with chance p of at least a half."""
    freedom = np.asarray(freedom, dtype=np.float64)
    low, high = np.zeros(freedom.shape), np.full(freedom.shape, np.pi / 2)
    for _ in range(60):  # halving the angle's range leaves no digit open
        middle = (low + high) / 2
        below = t_cdf(np.sqrt(freedom) * np.tan(middle), freedom) < p
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    found: Array = np.sqrt(freedom) * np.tan(low)
    return found


# -- without an interval -----------------------------------------------------------------------------------------------


def iqm(scores: Array) -> float:
    """Mean of the middle half of all scores, counting the two scores on its edges by the part that lies inside.

    A 25 % trimmed mean, exact for any number of scores.
    """
    flat = np.sort(np.asarray(scores, dtype=np.float64).ravel())
    left = np.arange(flat.size) / flat.size
    right = left + 1 / flat.size
    weight = np.clip(np.minimum(right, 0.75) - np.maximum(left, 0.25), 0.0, None)
    return float((flat * weight).sum() / weight.sum())


def normalised(score: float, random: float, expert: float) -> float:
    """0 is the untrained policy, 1 the expert that made the data."""
    return (score - random) / (expert - random)
