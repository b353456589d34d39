"""The report's tables: each goes to the page, to a CSV file and to a Markdown file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from omrl.data import MetaDataset
from omrl.evaluation import stats
from omrl.reporting.gather import RunFacts, best_return, short
from omrl.reporting.probe import Probe
from omrl.runs.records import Array, LoggedScores
from omrl.storage.files import harmless, write_rows, write_text

NONE = "–"
# Metrics of logged.csv and what they are called: those of a log, and those of a run.
OF_THE_LOG = {"noise_floor": "noise floor", "constant_error": "error of the mean action"}
OF_THE_RUN = {"action_error": "action error", "identification": "told apart"}


@dataclass(frozen=True)
class Table:
    """Rows of text under headings. A row or a column may belong to a run, and is hidden with it."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    row_runs: tuple[int | None, ...] = ()
    column_runs: Mapping[int, int] = field(default_factory=dict)
    words: tuple[int, ...] = (0,)
    """Columns of words, which are set to the left; the others are numbers."""
    marked: tuple[int, ...] = ()
    """Rows that are set off."""
    note: str = ""
    """What the numbers rest on, in one line under the table."""

    def write(self, folder: Path) -> None:
        """Both files."""
        write_rows(
            folder / f"{self.name}.csv", [[harmless(cell) for cell in row] for row in (self.columns, *self.rows)]
        )
        write_text(folder / f"{self.name}.md", self.markdown())

    def markdown(self) -> str:
        """The table for other pages."""
        lines = [self.columns, ["---" if i in self.words else "---:" for i in range(len(self.columns))], *self.rows]
        text = "".join(f"| {' | '.join(map(_markdown, line))} |\n" for line in lines)
        return f"{text}\n{_markdown(self.note)}\n" if self.note else text

    def html(self) -> str:
        """The table for the page."""

        def cell(tag: str, column: int, text: str) -> str:
            kind = "" if column in self.words else ' class="number"'
            run = f' data-run="{self.column_runs[column]}"' if column in self.column_runs else ""
            # An interval, or the task that a number is of, stands small under its number; so does `[95 %]` in the head.
            split = re.fullmatch(r"(.*?) ([\[(].*)", text) if kind else None
            inside = f"{escape(split[1])}<small>{escape(split[2])}</small>" if split else escape(text)
            return f"<{tag}{kind}{run}>{inside}</{tag}>"

        head = "".join(cell("th", i, name) for i, name in enumerate(self.columns))
        body = []
        for at, row in enumerate(self.rows):
            run = self.row_runs[at] if self.row_runs else None
            attributes = "" if run is None else f' data-run="{run}"'
            attributes += ' class="marked"' if at in self.marked else ""
            body.append(f"<tr{attributes}>{''.join(cell('td', i, text) for i, text in enumerate(row))}</tr>")
        note = f"<p>{escape(self.note)}</p>" if self.note else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>{note}"


def _markdown(text: str) -> str:
    """Text that stays in its cell and is no markup."""
    plain = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")  # without `<`, a `>` is only a sign
    return plain.replace("\\", "\\\\").replace("|", "\\|")


def _number(value: Any, digits: int = 2) -> str:
    return NONE if value is None else f"{value:z.{digits}f}"


def summary(runs: Sequence[RunFacts], probes: Sequence[Probe]) -> Table:
    """One line per run."""
    rows = []
    for facts, seen in zip(runs, probes, strict=True):
        found, config = facts.summary, facts.config
        results = [NONE] * 5
        if found:
            worst, best = (f"{found[key]['return']:z.2f} ({found[key]['task']})" for key in ("worst_task", "best_task"))
            if found["worst_task"]["return"] == found["best_task"]["return"]:  # then no task is either
                worst = best = NONE
            mean = str(stats.Estimate(**found["mean"]))
            results = [mean, _number(found["iqm"]), _number(found.get("normalised"), 3), worst, best]
        else:
            results[0] = "no simulator" if facts.logged or facts.judged else "not evaluated yet"
        table = (seen.embedding.esr, seen.embedding.rms) if seen.embedding else ([], [])
        separation = [_number(float(np.mean(values)), 3) if values else NONE for values in table]
        about = (facts.name, config.algorithm, facts.family, config.level)
        rows.append((*map(str, about), str(config.seeds), f"{facts.step:,}", *results, *separation))
    names = ("run", "algorithm", "family", "level", "seeds", "updates")
    results_of = ("mean return [95 %]", "IQM", "normalised", "worst task", "best task", "ESR", "RMS")
    # What no run has is left out, but for the return, of which it is said.
    columns = (*names, *results_of)
    kept = [i for i in range(len(columns)) if i <= len(names) or any(row[i] != NONE for row in rows)]
    return Table(
        "summary",
        tuple(columns[i] for i in kept),
        tuple(tuple(row[i] for i in kept) for row in rows),
        tuple(facts.index for facts in runs),
        words=(0, 1, 2, 3),
    )


def tasks(runs: Sequence[RunFacts], dataset: MetaDataset, name: str) -> Table:
    """Every tested task: what the data's own policies reach there, what is possible, and every run's mean."""
    names = list(dict.fromkeys(task for facts in runs if facts.scores for task in facts.scores.tasks))
    scores = {
        facts.index: dict(zip(facts.scores.tasks, facts.scores.returns.mean((0, 2)), strict=True))
        for facts in runs
        if facts.scores
    }
    entries = {entry.name: entry for entry in dataset.manifest.tasks}
    rows = []
    for task in dataset.select(names).tasks:
        reference = entries[task.name].reference
        known = (reference.random, reference.expert, best_return(dataset.family or "", task))
        own = (scores[facts.index].get(task.name) for facts in runs if facts.index in scores)
        rows.append((task.name, short(task.params), *map(_number, known), *map(_number, own)))
    tested = [facts for facts in runs if facts.scores]
    known_returns = ("untrained policy", "expert data", "best possible")
    columns = ("task", "parameters", *known_returns, *(facts.name for facts in tested))
    return Table(
        name,
        columns,
        tuple(rows),
        column_runs={5 + i: facts.index for i, facts in enumerate(tested)},
        words=(0, 1),
    )


def separation(runs: Sequence[RunFacts], probes: Sequence[Probe]) -> Table:
    """ESR and RMS of every seed."""
    rows, owners = [], []
    for facts, seen in zip(runs, probes, strict=True):
        if seen.embedding:
            for seed, (esr, rms) in enumerate(zip(seen.embedding.esr, seen.embedding.rms, strict=True)):
                rows.append((facts.name, str(facts.config.seed + seed), f"{esr:.3f}", f"{rms:.3f}"))
                owners.append(facts.index)
    return Table("separation", ("run", "seed", "ESR", "RMS"), tuple(rows), tuple(owners))


def logged(runs: Sequence[RunFacts]) -> Table:
    """What logs alone can tell of runs that no simulator can test."""
    known = [facts for facts in runs if facts.logged]
    names = [name for name, value in known[0].logged.items() if isinstance(value, dict)] if known else []
    rows = []
    for facts in known:
        logged: dict[str, Any] = {**facts.logged}
        values = (logged.get(name) for name in names)
        chance = f"{facts.logged['chance']:.3f}"
        rows.append((facts.name, chance, *(str(stats.Estimate(**v)) if v else NONE for v in values)))
    columns = ("run", "chance", *(name.replace("_", " ") for name in names))
    return Table("logged", columns, tuple(rows), tuple(facts.index for facts in known))


def logged_tasks(runs: Sequence[RunFacts], dataset: MetaDataset, name: str) -> Table:
    """Every held-out task of somebody's log: its size, how unsteady its actions are, and how every run does on it."""
    judged = [(facts, facts.logged_scores) for facts in runs if facts.logged_scores]
    names = list(dict.fromkeys(task for _, scores in judged for task in scores.tasks))
    entries = {entry.name: entry for entry in dataset.manifest.tasks}
    known = any(entries[task].params for task in names if task in entries)
    returns = dict(zip((t.name for t in dataset.tasks), dataset.level_facts("mixed").returns, strict=True))

    def mean(scores: LoggedScores, metric: str, task: str) -> float | None:
        if metric not in scores.metrics or task not in scores.tasks:
            return None
        return float(scores.metrics[metric][:, scores.tasks.index(task)].mean())

    rows = []
    for task in (task for task in names if task in entries):
        about = (f"{entries[task].rows:,}", f"{entries[task].episodes:,}", _number(float(returns[task])))
        # What belongs to the log is the same for every run.
        log = (next((v for _, s in judged if (v := mean(s, m, task)) is not None), None) for m in OF_THE_LOG)
        own = (_number(mean(scores, metric, task), 3) for _, scores in judged for metric in OF_THE_RUN)
        params = [short(entries[task].params)] if known else []
        rows.append((task, *params, *about, *(_number(v, 3) for v in log), *own))
    heads = ("task", *(["parameters"] if known else []), "rows", "episodes", "mean logged return", *OF_THE_LOG.values())
    columns = (*heads, *(f"{facts.name}: {title}" for facts, _ in judged for title in OF_THE_RUN.values()))
    owners = [facts.index for facts, _ in judged for _ in OF_THE_RUN]
    return Table(
        name,
        columns,
        tuple(rows),
        column_runs={len(heads) + i: index for i, index in enumerate(owners)},
        words=(0, 1) if known else (0,),
    )


def differences(runs: Sequence[RunFacts]) -> Table:
    """Every pair of runs that was tested on the same tasks of the same data by contexts of the same kind."""
    rows = []
    for one, other in combinations(runs, 2):
        if (one.config.data, one.context_from) != (other.config.data, other.context_from):
            continue
        for metric, ours, theirs in _paired(one, other):
            tasks = ours.shape[1]
            found = stats.difference(ours, theirs, new_tasks=one.new_tasks and other.new_tasks).interval()
            told = "cannot tell"
            if found.low is not None and found.high is not None and (found.low > 0 or found.high < 0):
                told = "higher" if found.low > 0 else "lower"
            digits = 2 if metric == "return" else 3
            rows.append((f"{one.name} minus {other.name}", metric, found.text(digits), told, str(tasks)))
    columns = ("runs", "of", "mean difference [95 %]", "the first is", "tasks")
    return Table("differences", columns, tuple(rows), words=(0, 1, 3))


def _paired(one: RunFacts, other: RunFacts) -> Iterator[tuple[str, Array, Array]]:
    """What both were measured by, each [seeds, tasks]."""
    if one.scores and other.scores:
        if (one.scores.split, one.scores.tasks) == (other.scores.split, other.scores.tasks):
            yield "return", one.scores.returns.mean(-1), other.scores.returns.mean(-1)
    elif one.logged_scores and other.logged_scores and one.logged_scores.tasks == other.logged_scores.tasks:
        for metric, title in OF_THE_RUN.items():
            ours, theirs = (scores.metrics.get(metric) for scores in (one.logged_scores, other.logged_scores))
            if ours is not None and theirs is not None:
                yield title, ours, theirs


def data_levels(dataset: MetaDataset, name: str) -> Table:
    """Every quality level: its size, how good its policies are, and how broad."""
    rows = []
    for level in dataset.levels:
        facts = dataset.level_facts(level)
        returns = facts.returns
        numbers = (float(returns.mean()), float(returns.std()), float(returns.min()), float(returns.max()))
        rewarded = NONE if facts.rewarded is None else f"{facts.rewarded:.0%}"
        breadth = NONE if facts.action_std is None else f"{facts.action_std:.2f}"
        counts = (str(len(returns)), f"{facts.rows:,}", f"{facts.episodes:,}")
        rows.append((level, *counts, *map(_number, numbers), rewarded, breadth))
    columns = ("level", "tasks", "rows", "episodes", "mean", "spread", "worst", "best", "rewarded rows", "action std")
    return Table(name, columns, tuple(rows))


def config(runs: Sequence[RunFacts]) -> Table:
    """Every setting of every run; those that differ come first and are set off."""
    # The report names the tasks of the data elsewhere; a hundred names in a cell would hide the rest.
    settings = [asdict(facts.config) for facts in runs]
    return _compared("config", "setting", runs, [_flat({**one, "tasks": {}}) for one in settings])


def versions(runs: Sequence[RunFacts]) -> Table:
    """What every run was made with."""
    return _compared("versions", "made with", runs, [_flat(facts.environment) for facts in runs])


def timings(runs: Sequence[RunFacts]) -> Table:
    """How much was trained, and in which time when it last ran."""
    rows = []
    for facts in runs:
        last = next((curve.transitions[-1] for curve in facts.curves.values()), None)
        seconds = {str(part): float(time) for part, time in facts.seconds.items()}
        took = f"{sum(seconds.values()) / 60:.1f}" if seconds else NONE
        parts = ", ".join(f"{part} {time:.1f}" for part, time in seconds.items()) or NONE
        hardware = facts.environment.get("gpu") or f"{facts.environment.get('cores', '?')} CPU cores"
        rows.append((facts.name, str(hardware), f"{facts.step:,}", NONE if last is None else f"{last:,}", took, parts))
    columns = ("run", "machine", "updates", "transitions of each seed", "minutes", "seconds by part")
    return Table("timings", columns, tuple(rows), tuple(facts.index for facts in runs), words=(0, 1, 5))


def _compared(name: str, heading: str, runs: Sequence[RunFacts], values: Sequence[Mapping[str, Any]]) -> Table:
    keys = list(dict.fromkeys(key for one in values for key in one))
    lines = {key: tuple(_shown(one[key]) if key in one else NONE for one in values) for key in keys}
    differing = [key for key in keys if len(set(lines[key])) > 1]
    order = [*differing, *(key for key in keys if key not in differing)]
    return Table(
        name,
        (heading, *(facts.name for facts in runs)),
        tuple((key, *lines[key]) for key in order),
        column_runs={1 + i: facts.index for i, facts in enumerate(runs)},
        words=tuple(range(len(runs) + 1)),
        marked=tuple(range(len(differing))),
    )


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Nested settings on one level: they have names of their own."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat |= {str(inner): item for inner, item in value.items()}
        else:
            flat[str(key)] = value
    return flat


def _shown(value: Any) -> str:
    if value is None:
        return NONE
    return value if isinstance(value, str) else json.dumps(value)


def write_all(tables: Iterable[Table], folder: Path) -> None:
    """All files of all tables."""
    for table in tables:
        table.write(folder)
