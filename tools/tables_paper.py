"""Tables and pictures of docs/comparisons.md: the paper's experiments, from what tools/paper_results.py kept."""

from __future__ import annotations

from typing import Any

import numpy as np
from tables_markdown import interval, number, table

from omrl.studies.definitions import experiments
from omrl.studies.judging import across_families

# What stands behind the name of an experiment whose claim is not the paper's.
OURS = " (ours)"
# Pixels of a page's text, for pictures.
WIDTH = 680


def decimals(results: Any) -> dict[str, int]:
    """How many a return has, by data: two, but none where the best row of the experiment is in the hundreds."""
    best: dict[str, float] = {}
    for row in results["rows"]:
        best[row["data"]] = max(row["mean"]["value"], best.get(row["data"], -np.inf))
    return {data: 2 if abs(value) < 100 else 0 for data, value in best.items()}


def place(results: Any, data: str) -> str:
    """An experiment, and what its name does not say of the data."""
    name: str = results["experiment"]
    family = data.split(",")[0]
    return name + data.removeprefix(family) if name.endswith(family) else f"{name}: {data}"


def verdicts(paper: Any) -> str:
    """Every claim in short: the paper's on all families, its others, then our own."""
    across = across_families(paper)
    known = sum(verdict is not None for verdict in across["families"].values())
    rows = [
        ["all comparisons", across["claim"], f"**{across['verdict']}**", f"{known} of {len(across['families'])} run"]
    ]
    for whose in ("paper", "ours"):
        for results in paper:
            seeds = " or ".join(map(str, sorted({row["seeds"] for row in results["rows"]})))
            rows += [
                [results["experiment"] + OURS * (whose == "ours"), claim["claim"], f"**{claim['verdict']}**", seeds]
                for claim in results["claims"]
                if claim["whose"] == whose
            ]
    return table(("experiment", "claim", "verdict", "seeds"), rows, words=("claim", "verdict"))


def paper_missing(paper: Any) -> str:
    """Which experiments have no results yet."""
    missing = [f"`{name}`" for name in experiments() if name not in {results["experiment"] for results in paper}]
    return f"Not run yet: {', '.join(missing)}.\n" if missing else "All of the paper's experiments were run.\n"


def paper_claims(paper: Any) -> str:
    """Every comparison that a claim is judged by; beside an undecided one the difference that would have been found."""
    rows = []
    for results in paper:
        digits = decimals(results)
        for claim in results["claims"]:
            ours = OURS * (claim["whose"] == "ours")
            for one in claim["comparisons"]:
                places = digits[one["data"]] if claim["metric"] == "return" else 3
                pair, found = f"{one['better']} - {one['worse']}", interval(one["difference"], places)
                least = number(one["detectable"], places)
                rows.append([place(results, one["data"]) + ours, pair, claim["metric"], found, one["verdict"], least])
    headings = ("experiment", "A - B", "metric", "difference [95 %]", "A - B > 0", "detectable")
    return table(headings, rows, words=("A - B", "metric", "A - B > 0"))


def paper_returns(paper: Any) -> str:
    """Returns on test tasks of the experiments that have a table of them."""
    rows = []
    for results in paper:
        digits = decimals(results)
        for row in results["rows"] if "returns" in results["tables"] else []:
            mean = interval(row["mean"], digits[row["data"]])
            counts = (f"{row['seeds']}", f"{row['updates']:,}")
            rows.append([place(results, row["data"]), row["row"], *counts, mean, number(row["normalised"], 2)])
    headings = ("experiment", "row", "seeds", "updates", "mean return [95 %]", "normalised")
    return table(headings, rows, words=("row",))


def paper_embedding(paper: Any) -> str:
    """How well training tasks are kept apart, means over seeds, beside the paper's numbers."""
    rows = []
    for results in paper:
        for row in results["rows"] if "embedding" in results["tables"] else []:
            ours = [row["metrics"].get(name) for name in ("rms", "esr", "identification")]
            theirs = [row["published"].get(name) for name in ("rms", "esr")]
            cells = [number(None if values is None else float(np.mean(values)), 3) for values in ours]
            cells += [number(value, 3) for value in theirs]
            rows.append([place(results, row["data"]), row["row"], *cells])
    headings = ("RMS", "ESR", "identification", "RMS in the paper", "ESR in the paper")
    return table(("experiment", "row", *headings), rows, words=("row",))


def paper_shift(paper: Any) -> str:
    """Returns by the quality of training and test data, and what is lost where they differ."""
    rows = []
    for results in paper:
        if "shift" not in results["tables"]:
            continue
        digits = decimals(results)
        # A claim compares a row with the one of the same training data that is tested on its own quality.
        drops = {one["worse"]: one for claim in results["claims"] for one in claim["comparisons"]}
        published = {row["row"]: row["published"]["return"] for row in results["rows"]}
        for row in results["rows"]:
            label, places, drop, paper_drop = row["row"], digits[row["data"]], "-", "-"
            if label in drops:
                drop = interval(drops[label]["difference"], places)
                paper_drop = number(published[drops[label]["better"]] - published[label], 2)
            ours = (interval(row["mean"], places), drop)
            rows.append([row["level"], row["context_level"], *ours, number(published[label], 2), paper_drop])
    headings = ("mean return [95 %]", "drop [95 %]", "return in the paper", "drop in the paper")
    return table(("training", "testing", *headings), rows, words=("testing",))


def picture(results: Any, figure: str, width: int, about: str) -> str:
    """A picture of an experiment, as tools/paper_results.py put it beside the pages."""
    title = results["title"].replace('"', "'")
    return f'<img src="img/paper/{results["experiment"]}-{figure}.png" width="{width}" alt="{title}: {about}">\n'


def paper_curves(paper: Any) -> str:
    """Returns while training; those of an experiment all of whose runs were shown before are left out."""
    pictures, shown = [], set()
    for results in paper:
        runs = {row["run"] for row in results["rows"]}
        if "return" in results["figures"] and not runs <= shown:
            width = min(WIDTH, 340 * len({row["data"] for row in results["rows"]}))
            pictures.append(picture(results, "return", width, "return on test tasks while training"))
            shown |= runs
    return "".join(pictures)


def paper_embeddings(paper: Any) -> str:
    """Embeddings of tasks."""
    kinds = {
        "embedding": "embeddings by t-SNE",
        "embedding-pca": "two principal components of the embeddings",
        "embedding-3d": "three principal components of the embeddings",
    }
    return "".join(
        picture(results, kind, min(WIDTH, 170 * len({row["row"] for row in results["rows"]})), kinds[kind])
        for results in paper
        for kind in results["figures"]
        if kind in kinds
    )


def tried(trial: Any) -> dict[str, float]:
    """The hyperparameters of a trial; step sizes of several networks, which are tried together, are one."""
    rates = {value for name, value in trial.items() if name.endswith("lr")}
    found = {name.replace("_", " "): value for name, value in trial.items() if not name.endswith("lr")}
    if rates:
        (found["step size"],) = rates
    return found


def tuning(figures: Any) -> str:
    """The best of the trials of every row (omrl tune)."""
    groups: dict[tuple[str, str], list[Any]] = {}
    for one in figures:
        groups.setdefault((one["family"], one["row"]), []).append(one)
    top = {family: max(one["return"] for one in figures if one["family"] == family) for family, _ in groups}
    rows = []
    for (family, label), trials in groups.items():
        values = [tried(one["trial"]) for one in trials]
        ranges = [f"{name} {min(v[name] for v in values):g} to {max(v[name] for v in values):g}" for name in values[0]]
        best = max(trials, key=lambda one: one["return"])
        choice = ", ".join(f"{name} {value:g}" for name, value in tried(best["trial"]).items())
        alike = len(trials) > 1 and len({one["return"] for one in trials}) == 1
        rows.append(
            [
                family,
                label,
                f"{len(trials)} x {best['seeds']}",
                ", ".join(ranges),
                choice + (" (all alike)" if alike else ""),
                number(best["return"], 2 if abs(top[family]) < 100 else 0),
                number(best["normalised"], 2),
            ]
        )
    words = ("row", "tried", "best")
    return table(("family", "row", "trials x seeds", "tried", "best", "its return", "normalised"), rows, words)
