"""The tables of an experiment, from its rows and claims in results.json; each goes to a CSV and a Markdown file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from omrl.commands.evaluate import CONTEXT_ROWS
from omrl.evaluation.stats import Estimate
from omrl.evaluation.summaries import context_words
from omrl.reporting.tables import NONE, Table
from omrl.studies.definitions import Experiment
from omrl.studies.judging import Comparison

Rows = Sequence[Mapping[str, Any]]


def make_all(experiment: Experiment, rows: Rows, judged: Rows) -> list[Table]:
    """Those that an experiment names, and that of its claims."""
    made = {"returns": returns, "by-data": by_data, "embedding": embedding, "q": q}
    named = [shift(rows, judged) if kind == "shift" else made[kind](rows) for kind in experiment.tables]
    return [*named, claims(judged)]


def returns(rows: Rows) -> Table:
    """Final returns on the test tasks."""
    lines = []
    for row in rows:
        normalised = NONE if row["normalised"] is None else f"{row['normalised']:z.3f}"
        counts = (str(row["seeds"]), f"{row['updates']:,}")
        what = "" if "return" in row["metrics"] else "action error "
        iqm = NONE if row["iqm"] is None else f"{row['iqm']:z.2f}"
        other = (_mean(row["metrics"].get(unit), 2) for unit in _units(rows))
        numbers = (*counts, what + str(Estimate(**row["mean"])), iqm, normalised, *other)
        lines.append((row["data"], row["row"], row["preset"] or NONE, row["level"], *numbers))
    names = ("data", "row", "preset", "level", "seeds", "updates", "mean return [95 %]", "IQM", "normalised")
    return Table(
        "returns", (*names, *map(_words, _units(rows))), tuple(lines), words=(0, 1, 2, 3), note=_known_by(rows)
    )


def by_data(rows: Rows) -> Table:
    """Mean returns, a line for each row and a column for each of the data; the family of all stands below."""
    data = list(dict.fromkeys(row["data"] for row in rows))
    families = list(dict.fromkeys(row["family"] for row in rows))
    family = families[0] if len(families) == 1 and len(data) > 1 else ""
    columns = tuple(title.removeprefix(f"{family}, ") for title in data)
    means = {(row["row"], row["data"]): str(Estimate(**row["mean"])) for row in rows}
    lines = [(label, *(means[label, title] for title in data)) for label in dict.fromkeys(row["row"] for row in rows)]
    of = f" of {family}" if family else ""
    return Table("by-data", ("row", *columns), tuple(lines), note=f"Mean returns [95 %]{of}. {_known_by(rows)}")


def _units(rows: Rows) -> list[str]:
    """In which units there are returns besides a family's own."""
    return sorted({name for row in rows for name in row["metrics"] if name.startswith("return_in_")})


def _words(name: str) -> str:
    return name.replace("_", " ")


def _known_by(rows: Rows) -> str:
    """Whose rows the tasks were known by, which is the same in most studies."""
    said = [context_words(CONTEXT_ROWS, row["context_level"], row["family"]) for row in rows]
    if len({*said}) == 1:
        return f"Each task is known by {said[0]}."
    of_data = dict.fromkeys((row["data"], words) for row, words in zip(rows, said, strict=True))
    by_data = len(of_data) == len({row["data"] for row in rows})
    whose: dict[str, list[str]] = {}
    for row, words in zip(rows, said, strict=True):
        whose.setdefault(words, []).append(row["data"] if by_data else f"{row['row']} of {row['data']}")
    each = [f"{words} ({', '.join(dict.fromkeys(names))})" for words, names in whose.items()]
    return f"Each task is known by {'; by '.join(each)}."


def embedding(rows: Rows) -> Table:
    """How well the training tasks are kept apart: means over seeds, and the paper's numbers where it gives any."""
    lines = []
    for row in rows:
        measured = [_mean(row["metrics"].get(name)) for name in ("rms", "esr", "identification")]
        published = [f"{value:.3f}" if value else NONE for value in map(row["published"].get, ("rms", "esr"))]
        lines.append((row["data"], row["row"], *measured, *published))
    names = ("data", "row", "RMS", "ESR", "identification", "RMS in the paper", "ESR in the paper")
    return Table("embedding", names, tuple(lines), words=(0, 1))


def shift(rows: Rows, judged: Rows) -> Table:
    """Returns by the quality of training and test data, and what is lost where they differ."""
    # A claim compares a row with the one of the same training data that is tested on its own quality.
    drops = {one["worse"]: one for claim in judged for one in claim["comparisons"]}
    published = {row["row"]: row["published"]["return"] for row in rows}
    lines = []
    for row in rows:
        label, drop, paper_drop = row["row"], NONE, NONE
        if label in drops:
            drop = str(Estimate(**drops[label]["difference"]))
            paper_drop = f"{published[drops[label]['better']] - published[label]:.2f}"
        other = [_mean(row["metrics"].get(unit), 2) for unit in _units(rows)]
        ours = (str(Estimate(**row["mean"])), *other, drop)
        lines.append((row["level"], row["context_level"], *ours, f"{published[label]:.2f}", paper_drop))
    returns_of = ("mean return [95 %]", *map(_words, _units(rows)))
    names = ("training", "testing", *returns_of, "drop [95 %]", "return in the paper", "drop in the paper")
    return Table("shift", names, tuple(lines), words=(0, 1))


def q(rows: Rows) -> Table:
    """How large Q became, and how much it grew in the second half of training; means over seeds.

    Where no seed's Q was a number at the end, there is none to show.
    """
    lines = []
    for row in rows:
        growth = _mean(row["metrics"]["q_growth"], 2)
        sizes = [NONE if (size := row["q"][key]) is None else short(size) for key in ("end", "largest")]
        lines.append((row["data"], row["row"], *sizes, growth))
    names = ("data", "row", "Q at the end", "largest |Q|", "growth, orders of magnitude")
    return Table("q", names, tuple(lines), words=(0, 1))


def claims(judged: Rows) -> Table:
    """Every comparison with its interval and verdict."""
    lines = []
    for claim in judged:
        for one in claim["comparisons"]:
            comparison = (one["data"], claim["metric"], f"{one['better']} - {one['worse']}", found(one), one["verdict"])
            detectable = NONE if one["detectable"] is None else short(one["detectable"])
            lines.append((claim["claim"], claim["whose"], *comparison, detectable, claim["verdict"]))
    names = ("claim", "whose", "data", "metric", "A - B", "difference [95 %]", "verdict", "detectable")
    return Table("claims", (*names, "claim as a whole"), tuple(lines), words=(0, 1, 2, 3, 4, 6, 8))


def found(comparison: Comparison) -> str:
    """A difference with its interval; metrics between 0 and 1 need more digits than returns."""
    difference = comparison["difference"]
    low, high = difference["low"], difference["high"]
    around = "no interval" if low is None or high is None else f"{short(low)}, {short(high)}"
    return f"{short(difference['value'])} [{around}]"


def short(value: float) -> str:
    """Three digits; thousands as one writes them, without an exponent."""
    return f"{value:.0f}" if 999.5 <= abs(value) < 1e6 else f"{value:z.3g}"


def _mean(values: Sequence[float] | None, digits: int = 3) -> str:
    return NONE if values is None else f"{np.mean(values):z.{digits}f}"
