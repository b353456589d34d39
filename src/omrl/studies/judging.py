"""What came out of an experiment: its metrics as matrices [seeds, tasks], and the verdicts on its claims.

A comparison of two rows is a difference of means (`evaluation.stats.difference`), and gets the first verdict that fits:

equal            the 90 % interval lies inside the zone in which a difference does not matter (ZONES)
holds            the 95 % interval lies above zero
does not hold    it lies below zero, by Holm's correction over the comparisons of the claim
undecided        none of these; the smallest difference that could have been found is said with it

A claim is worth what its weakest comparison is worth: it holds if all of them hold, so that none of them needs a
correction. One that is refuted refutes it, which is why refutations are corrected: of several rows that are all
equal in truth, one looks better by chance. Where all comparisons hold but for some that are equal, the claim is equal:
its rows are among the best, which is less than to outperform.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from omrl.evaluation import stats
from omrl.families import FAMILIES
from omrl.reporting.gather import RunFacts
from omrl.runs.records import Curve, Interval, Scores, Summary
from omrl.studies.definitions import Claim, Data
from omrl.studies.planning import Cell

Array = np.ndarray[Any, Any]
HOLDS, EQUAL, UNDECIDED, DOES_NOT = "holds", "equal", "undecided", "does not hold"
# Differences that do not matter. Those of returns are shares of the way from the untrained policy to the expert; those
# of q_growth are orders of magnitude, where 0.1 is a quarter more of Q in half of the training.
ZONES = {"return": 0.02, "esr": 0.02, "identification": 0.02, "q_growth": 0.1, "action_error": 0.01}
# Of these, less is better.
COSTS = ("action_error",)
# Test tasks are a sample of their family. The other metrics are of training tasks, which are themselves what is asked
# about, or of no task.
OF_NEW_TASKS = ("return",)
# What the paper says of all families; "almost all" is all but one.
ACROSS = "{}, across almost all domains."
# What stands for |Q| where it is no longer a number: the largest one in single precision.
LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Outcome:
    """One row of an experiment on one data set."""

    cell: Cell
    run: Path
    facts: RunFacts
    summary: Summary
    """What the test in test tasks found."""
    scores: Scores | None
    """Where there is a simulator."""
    metrics: Mapping[str, Array] = field(default_factory=dict)
    """[P, T] where a metric is one of tasks, else [P, 1]."""

    @property
    def key(self) -> tuple[str, str]:
        """Its names in tables."""
        return self.cell.title, self.cell.row.label


@dataclass(frozen=True)
class Scored:
    """What claims are judged by: a row on a data set."""

    data: Data
    title: str
    """The data set, as tables name it."""
    label: str
    metrics: Mapping[str, Array]
    """[P, T] or [P, 1]."""
    way: float | None
    """Return of the expert data less that of the untrained policy, over test tasks; None where it is unknown."""
    run: str | None = None
    """What was trained; rows of the same run are two tests of the same seeds."""


def q_growth(curve: Curve, stopped: Sequence[bool]) -> Array:
    """log10 of |Q| at the end over |Q| half-way, [P, 1], each a mean over a tenth of training.

    Of a run that stopped early, because none of its seeds could go on, there may be one look that is near half-way. A
    seed that met a number which is not finite stands still from then on: it counts as one that grew without bounds.
    """
    size = np.abs(curve.values)
    known = np.isfinite(size)
    size = np.where(known, np.clip(size, 1e-3, LARGEST), LARGEST)
    steps, last = curve.steps, curve.steps[-1]
    end = size[:, steps > 0.9 * last].mean(1)
    around = (steps > 0.45 * last) & (steps <= 0.55 * last)
    nearest = np.abs(steps - 0.5 * last).argmin()
    middle = size[:, around].mean(1) if around.any() else size[:, nearest]
    lost = np.array(stopped) | ~np.isfinite(curve.values[:, -1])
    least = np.where(known.any(1), size.min(1), 1.0)  # of one that never had a number, what rewards are like
    end, middle = (np.where(lost, bound, own) for bound, own in ((LARGEST, end), (least, middle)))
    growth: Array = np.log10(end / middle)[:, None]
    return growth


def way(about: Mapping[str, object]) -> float | None:
    """From the return of the untrained policy to that of the expert data, where a summary or a row knows both."""
    random, expert = about.get("random"), about.get("expert")
    return float(expert - random) if isinstance(random, int | float) and isinstance(expert, int | float) else None


class OfReturns(TypedDict):
    """What a row says of its returns."""

    mean: Interval
    iqm: float
    normalised: float | None


class Comparison(TypedDict):
    """A difference of two rows, and the verdict on it."""

    data: str
    better: str
    worse: str
    difference: Interval
    zone: float | None
    verdict: str
    detectable: float | None


class Judged(TypedDict):
    """A claim with its comparisons."""

    claim: str
    whose: str
    metric: str
    verdict: str
    comparisons: list[Comparison]


class Results(TypedDict):
    """What an experiment's results.json says."""

    experiment: str
    paper: str
    title: str
    scale: str
    note: str
    rows: list[dict[str, Any]]
    claims: list[Judged]
    figures: list[str]
    tables: list[str]


class AcrossFamilies(TypedDict):
    """The sentence on all families, and what was found in each."""

    claim: str
    verdict: str
    families: dict[str, str | None]


def of_returns(scores: Array, about: Mapping[str, object]) -> OfReturns:
    """What a row says of its returns [seeds, tasks] on test tasks: it follows from them and the data's own returns."""
    mean = stats.mean(scores, new_tasks=True).interval()
    random, expert = about.get("random"), about.get("expert")
    normalised = None
    if isinstance(random, int | float) and isinstance(expert, int | float) and random != expert:
        normalised = stats.normalised(mean.value, random, expert)
    interval: Any = vars(mean)
    return {"mean": interval, "iqm": stats.iqm(scores), "normalised": normalised}


# -- verdicts ----------------------------------------------------------------------------------------------------------


def verdicts(differences: Sequence[stats.Measured], zones: Sequence[float | None] | None = None) -> list[str]:
    """On the comparisons of one claim; a zone of None, where nothing is known to be small, has no `equal`."""
    refuted = holm([float(one.p_below()) for one in differences], 0.025)
    found = []
    for one, zone, below in zip(differences, zones or [None] * len(differences), refuted, strict=True):
        # A two-sided interval lies above or below a number where the one-sided test of half its level says so.
        if zone is not None and one.p_below(zone) < 0.05 and one.p_below(-zone) > 0.95:
            found.append(EQUAL)
        elif one.p_below() > 0.975:
            found.append(HOLDS)
        else:
            found.append(DOES_NOT if below else UNDECIDED)
    return found


def holm(chances: Sequence[float], level: float) -> list[bool]:
    """Which of several tests reject, so that one of those that should not does in at most a share `level` of cases."""
    rejected = [False] * len(chances)
    for left, place in zip(range(len(chances), 0, -1), np.argsort(chances, kind="stable"), strict=True):
        if chances[place] >= level / left:
            break
        rejected[place] = True
    return rejected


def together(found: Iterable[str]) -> str:
    """On a claim of several comparisons: the weakest of them."""
    return min(found, key=(DOES_NOT, UNDECIDED, EQUAL, HOLDS).index)


def almost_all(found: Sequence[str]) -> str:
    """On a claim about almost all of several families: one of them may be an exception, whatever it is.

    So it holds if it does in all but one at least, and does not hold if it is known not to in two: refuted, or equal.
    """
    if len(found) - found.count(HOLDS) <= 1:
        return HOLDS
    return DOES_NOT if found.count(DOES_NOT) + found.count(EQUAL) >= 2 else UNDECIDED


# -- claims ------------------------------------------------------------------------------------------------------------


def judge(claims: Sequence[Claim], rows: Sequence[Scored]) -> list[Judged]:
    """Every claim with its comparisons, as JSON."""
    return [_judged(claim, rows) for claim in claims]


def _judged(claim: Claim, rows: Sequence[Scored]) -> Judged:
    meant = [
        row for row in rows if claim.split in (None, row.data.split) and (not claim.on or row.data.title in claim.on)
    ]
    by_key = {(row.title, row.label): row for row in meant}
    titles = dict.fromkeys(title for title, _ in by_key)
    pairs = [
        (by_key[title, better], by_key[title, worse])
        for title in titles
        for better in claim.better
        for worse in claim.worse
    ]
    differences = [_difference(ours, theirs, claim.metric) for ours, theirs in pairs]
    zones = [_zone(claim.metric, ours) for ours, _ in pairs]
    comparisons: Any = [
        {
            "data": ours.title,
            "better": ours.label,
            "worse": theirs.label,
            "difference": vars(difference.interval()),
            "zone": zone,
            "verdict": verdict,
            "detectable": difference.detectable if verdict == UNDECIDED else None,
        }
        for (ours, theirs), difference, zone, verdict in zip(
            pairs, differences, zones, verdicts(differences, zones), strict=True
        )
    ]
    whole = together(str(one["verdict"]) for one in comparisons)
    return {
        "claim": claim.text,
        "whose": claim.whose,
        "metric": claim.metric,
        "verdict": whole,
        "comparisons": comparisons,
    }


def _difference(better: Scored, worse: Scored, metric: str) -> stats.Measured:
    sign = -1.0 if metric in COSTS else 1.0
    ours, theirs = (sign * row.metrics[metric] for row in (better, worse))
    new_tasks = metric in OF_NEW_TASKS
    if better.run is not None and better.run == worse.run:
        # The same seeds, tested twice: these are pairs.
        return stats.mean(ours - theirs, new_tasks=new_tasks)
    return stats.difference(ours, theirs, new_tasks=new_tasks)


def _zone(metric: str, row: Scored) -> float | None:
    if metric != "return":
        return ZONES[metric]
    return None if row.way is None else ZONES[metric] * abs(row.way)


def across_families(published: Iterable[Results]) -> list[AcrossFamilies]:
    """The paper's sentences on all families, from the results of their comparisons; what was not run is undecided."""
    own = {results["experiment"]: results["claims"] for results in published}
    found: dict[str, dict[str, str | None]] = {}
    for family in FAMILIES:
        for claim in own.get(f"comparison-{family}", ()):
            if claim["whose"] == "paper":
                found.setdefault(claim["claim"], dict.fromkeys(FAMILIES))[family] = claim["verdict"]
    return [
        {
            "claim": ACROSS.format(text.rstrip(".")),
            "verdict": almost_all([one or UNDECIDED for one in families.values()]),
            "families": families,
        }
        for text, families in found.items()
    ]


# -- how sure verdicts are ---------------------------------------------------------------------------------------------


def rate_of_differences(
    scores: Array, rng: np.random.Generator, *, new_tasks: bool, zone: float | None, seeds: int = 5, splits: int = 1_000
) -> float:
    """How often seeds of one and the same configuration, [seeds, tasks], are told apart.

    The share of random splits into two groups of so many seeds whose comparison is neither equal nor undecided.
    """
    if len(scores) < 2 * seeds:
        raise ValueError(f"{len(scores)} seeds cannot be split into two groups of {seeds}")
    told_apart = 0
    for _ in range(splits):
        order = rng.permutation(len(scores))
        groups = scores[order[:seeds]], scores[order[seeds : 2 * seeds]]
        (verdict,) = verdicts([stats.difference(*groups, new_tasks=new_tasks)], [zone])
        told_apart += verdict in (HOLDS, DOES_NOT)
    return told_apart / splits
