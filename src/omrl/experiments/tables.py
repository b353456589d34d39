"""The tables of an experiment; each goes to a CSV and a Markdown file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from omrl import stats
from omrl.experiments.definitions import Experiment
from omrl.experiments.judging import Outcome, q_growth
from omrl.reporting.tables import NONE, Table


def make(kind: str, experiment: Experiment, outcomes: Sequence[Outcome]) -> Table:
    """One of the tables that an experiment names."""
    return {"returns": returns, "embedding": embedding, "shift": shift, "q": q}[kind](experiment, outcomes)


def returns(experiment: Experiment, outcomes: Sequence[Outcome]) -> Table:
    """Final returns on the test tasks."""
    rows = []
    for outcome in outcomes:
        found, about = outcome.summary, outcome.facts.config
        mean, iqm = stats.Estimate(**found["mean"]), found["iqm"]["value"]
        normalised = f"{found['normalised']:z.3f}" if "normalised" in found else NONE
        numbers = (str(found["seeds"]), f"{found['updates']:,}", str(mean), f"{iqm:z.2f}", normalised)
        rows.append((*outcome.key, str(about["preset"]), str(about["level"]), *numbers))
    names = ("data", "row", "preset", "level", "seeds", "updates", "mean return [95 %]", "IQM", "normalised")
    return Table("returns", names, tuple(rows), words=(0, 1, 2, 3))


def embedding(experiment: Experiment, outcomes: Sequence[Outcome]) -> Table:
    """How well the training tasks are kept apart: means over seeds, and the paper's numbers where it gives any."""
    rows = []
    for outcome in outcomes:
        measured = [_mean(outcome, name) for name in ("rms", "esr", "identification")]
        published = [f"{value:.3f}" if value else NONE for value in map(outcome.cell.row.published.get, ("rms", "esr"))]
        rows.append((*outcome.key, *measured, *published))
    names = ("data", "row", "RMS", "ESR", "identification", "RMS in the paper", "ESR in the paper")
    return Table("embedding", names, tuple(rows), words=(0, 1))


def shift(experiment: Experiment, outcomes: Sequence[Outcome]) -> Table:
    """Returns by the quality of training and test data, and what is lost where they differ."""
    same = {outcome.cell.row.level: outcome for outcome in outcomes if _same(outcome)}
    rows = []
    for outcome in outcomes:
        row, home, drop, paper_drop = outcome.cell.row, same[outcome.cell.row.level], NONE, NONE
        if outcome is not home:
            scores = (home.metrics["return"], outcome.metrics["return"])
            drop = str(stats.paired_difference(*scores, np.random.default_rng(0)))
            paper_drop = f"{home.cell.row.published['return'] - row.published['return']:.2f}"
        mean = str(stats.Estimate(**outcome.summary["mean"]))
        paper = f"{row.published['return']:.2f}"
        rows.append((str(row.level), str(row.context_level), mean, drop, paper, paper_drop))
    names = ("training", "testing", "mean return [95 %]", "drop [95 %]", "return in the paper", "drop in the paper")
    return Table("shift", names, tuple(rows), words=(0, 1))


def q(experiment: Experiment, outcomes: Sequence[Outcome]) -> Table:
    """How large Q became, and how much it grew in the second half of training; means over seeds."""
    rows = []
    for outcome in outcomes:
        curve = outcome.facts.curves["q"]
        finite = np.where(np.isfinite(curve.values), curve.values, np.nan)
        numbers = (np.nanmean(finite[:, -1]), np.nanmax(np.abs(finite)))
        rows.append((*outcome.key, *(f"{value:.3g}" for value in numbers), f"{q_growth(curve).mean():.2f}"))
    names = ("data", "row", "Q at the end", "largest |Q|", "growth, orders of magnitude")
    return Table("q", names, tuple(rows), words=(0, 1))


def claims(judged: Sequence[dict[str, Any]]) -> Table:
    """Every comparison with its interval and verdict."""
    rows = []
    for claim in judged:
        for one in claim["comparisons"]:
            # Metrics between 0 and 1 need more digits than returns.
            low, value, high = (f"{one['difference'][key]:z.3g}" for key in ("low", "value", "high"))
            pair = f"{one['better']} - {one['worse']}"
            comparison = (one["data"], claim["metric"], pair, f"{value} [{low}, {high}]", one["verdict"])
            rows.append((claim["claim"], *comparison, claim["verdict"]))
    names = ("claim", "data", "metric", "A - B", "difference [95 %]", "A - B > 0", "claim as a whole")
    return Table("claims", names, tuple(rows), words=(0, 1, 2, 3, 5, 6))


def _same(outcome: Outcome) -> bool:
    return outcome.cell.row.level == outcome.cell.row.context_level


def _mean(outcome: Outcome, metric: str) -> str:
    values = outcome.metrics.get(metric)
    return NONE if values is None else f"{values.mean():z.3f}"
