"""Tables and pictures of docs/paper.md, comparisons.md and ablations.md: the experiments, and what came out of them.

What tools/publish.py kept of an experiment has tables already: those are included, not made again.
"""

from __future__ import annotations

import re
from typing import Any

from aa_rate import rate
from pages.markdown import interval, number, table
from publish import COMPARISONS, on_pages

from omrl.families import FAMILIES
from omrl.reporting.tables import NONE
from omrl.studies.definitions import experiments
from omrl.studies.judging import across_families
from omrl.studies.listing import COLUMNS, overview
from omrl.tuning.trying import best_of

# What stands behind the name of an experiment whose claim is not the paper's.
OURS = " (ours)"
# Between cells of a Markdown table.
CELLS = re.compile(r"(?<!\\)\|")
# Pixels of a page's text, for pictures.
WIDTH = 680
# What a kind of figure shows, and its pixels for each row or data set that has a panel there.
FIGURES = {
    "return": ("return on test tasks while training", 340),
    "return-log": ("return on test tasks while training", 340),
    "embedding": ("embeddings by t-SNE", 170),
    "embedding-pca": ("two principal components of the embeddings", 170),
    "embedding-3d": ("three numbers of the embeddings", 170),
    "levels": ("where the policies go that logged each level", WIDTH),
    "q": ("Q of the policy's actions while training", 340),
    "breadth": ("return on test tasks by how broad the logged actions are", 440),
}
# What kinds of tables are called.
TABLES = {
    "returns": "Returns",
    "by-data": "Returns by data",
    "embedding": "Embeddings of the training tasks",
    "shift": "Returns by the quality of data",
    "q": "Q",
    "claims": "Every comparison",
}


def listed() -> str:
    """What the experiments of paper.toml are."""
    return table(COLUMNS, overview(), COLUMNS)


def claims() -> str:
    """Every claim of paper.toml, and the comparison that it is judged by."""
    headings = ("experiment", "whose", "claim", "compared")
    rows = [
        (experiment.name, claim.whose, claim.text, claim.comparison)
        for experiment in experiments().values()
        for claim in experiment.claims
    ]
    return table(headings, rows, headings)


def verdicts(paper: Any) -> str:
    """Every claim in short: the paper's on all families, its others, then our own."""
    rows = []
    for across in across_families(paper):
        known = [verdict for verdict in across["families"].values() if verdict is not None]
        rows.append(
            ["all comparisons", across["claim"], f"**{across['verdict']}**", f"{len(known)} of {len(FAMILIES)} run"]
        )
    for whose in ("paper", "ours"):
        for results in paper:
            seeds = " or ".join(map(str, sorted({row["seeds"] for row in results["rows"]})))
            rows += [
                [results["experiment"] + OURS * (whose == "ours"), claim["claim"], f"**{claim['verdict']}**", seeds]
                for claim in results["claims"]
                if claim["whose"] == whose
            ]
    return table(("experiment", "claim", "verdict", "seeds"), rows, words=("claim", "verdict"))


def missing(paper: Any) -> str:
    """Which experiments have no results yet."""
    there = {results["experiment"] for results in paper}
    left = [f"`{name}`" for name in experiments() if name not in there]
    return f"Not run yet: {', '.join(left)}.\n" if left else "All of the paper's experiments were run.\n"


def included(kind: str, paper: Any) -> str:
    """The tables of a kind of all comparisons, one below the other."""
    return "\n".join(_included(one, kind, one["experiment"]) for one in compared(paper))


def compared(paper: Any) -> list[Any]:
    """The comparisons of all methods on a family; every other experiment is an ablation."""
    return [one for one in paper if one["experiment"].startswith(COMPARISONS)]


def ablations() -> list[str]:
    """Names of all experiments but the comparisons."""
    return [name for name in experiments() if not name.startswith(COMPARISONS)]


def ablation(name: str, paper: Any) -> str:
    """All pictures and tables of an experiment."""
    for one in paper:
        if one["experiment"] == name:
            shown = "".join(picture(one, figure) for figure in on_pages(one))
            return "\n".join([shown, *(_included(one, kind, TABLES[kind]) for kind in one["tables"])])
    return "Not run yet.\n"


def _included(one: Any, kind: str, name: str) -> str:
    """A table that an experiment has made of itself.

    What is the same in all of its rows is said once, above it: pages are narrow.
    """
    said, narrow = _narrowed((one["folder"] / "tables" / f"{kind}.md").read_text())
    return f"**{name}**{f' ({said})' if said else ''}\n\n{narrow}"


def _narrowed(markdown: str) -> tuple[str, str]:
    """What all rows of a table have in common, and the table without it, with the line that stands below."""
    cells, _, note = markdown.partition("\n\n")
    lines = [[cell.strip() for cell in CELLS.split(line)[1:-1]] for line in cells.splitlines()]
    head, _, *rows = lines
    same = [place for place in range(len(head)) if len(rows) > 1 and len({row[place] for row in rows}) == 1]
    said = "; ".join(f"{head[place]}: {rows[0][place]}" for place in same if rows[0][place] != NONE)
    left = [[cell for place, cell in enumerate(line) if place not in same] for line in lines]
    return said, "".join(f"| {' | '.join(line)} |\n" for line in left) + (f"\n{note}" if note else "")


def picture(results: Any, figure: str) -> str:
    """A picture of an experiment, as tools/publish.py put it beside the pages."""
    about, width = FIGURES[figure]
    panels = {row["row" if figure.startswith("embedding") else "data"] for row in results["rows"]}
    wide = min(WIDTH, width * (1 if figure == "breadth" else len(panels)))
    title = results["title"].replace('"', "'")
    return f'<img src="img/paper/{results["experiment"]}-{figure}.png" width="{wide}" alt="{title}: {about}">\n'


def curves(paper: Any) -> str:
    """Returns of the comparisons while training."""
    return "".join(picture(one, figure) for one in compared(paper) for figure in on_pages(one))


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
    for one in sorted(figures, key=lambda one: list(FAMILIES).index(one["family"])):
        groups.setdefault((one["family"], one["row"]), []).append(one)
    top = {family: max(one["return"] for one in figures if one["family"] == family) for family, _ in groups}
    rows = []
    for (family, label), trials in groups.items():
        values = [tried(one["trial"]) for one in trials]
        ranges = [f"{name} {min(v[name] for v in values):g} to {max(v[name] for v in values):g}" for name in values[0]]
        best = best_of(trials)
        choice = ", ".join(f"{name} {value:g}" for name, value in tried(best["trial"]).items())
        learners = sorted({one["seeds"] for one in trials})
        alike = len(trials) > 1 and len({one["return"] for one in trials}) == 1
        rows.append(
            [
                family,
                label,
                f"{len(trials)} x {learners[0]}" + (f" to {learners[-1]}" if len(learners) > 1 else ""),
                f"{best['updates']:,}",
                ", ".join(ranges),
                choice + (" (all alike)" if alike else ""),
                number(best["return"], 2 if abs(top[family]) < 100 else 0),
                number(best["normalised"], 2),
            ]
        )
    headings = ("family", "row", "trials x seeds", "updates", "tried", "best", "its return", "normalised")
    return table(headings, rows, words=("row", "tried", "best"))


def step_sizes(figures: Any) -> str:
    """The returns of trials of step sizes alone, one line for a row."""
    returns = {(one["row"], tried(one["trial"])["step size"]): one["return"] for one in figures}
    rates = sorted({rate for _, rate in returns})
    rows = [
        [label, *(number(returns.get((label, rate)), 2) for rate in rates)]
        for label in dict.fromkeys(label for label, _ in returns)
    ]
    return table(("row", *(f"step size {rate:g}" for rate in rates)), rows)


def told_apart(runs: Any) -> str:
    """How often seeds of one configuration are told apart (tools/aa_rate.py)."""
    rows = [
        [
            f"{run['family']}, {run['algorithm']}, preset `{run['preset']}`",
            f"{run['level']}",
            f"{run['seeds']}",
            f"{run['updates']:,}",
            interval(run["mean"], 2),
            f"{rate(run['folder']):.1%}",
        ]
        for run in runs
    ]
    return table(("run", "level", "seeds", "updates", "return [95 %]", "5 against 5 told apart"), rows)
