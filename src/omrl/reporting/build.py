"""Puts a report together: what runs say and do, as figures, tables and the page."""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from omrl import __version__
from omrl.data import MetaDataset
from omrl.data.command import summary
from omrl.data.findings import column_facts, findings
from omrl.drawing import runs as figures
from omrl.drawing.style import Drawn, finish, style
from omrl.families import get_family
from omrl.families.batched import usable_cores
from omrl.progress import Meter
from omrl.reporting import tables
from omrl.reporting.gather import RunFacts
from omrl.reporting.page import Content, page
from omrl.reporting.probe import Embedding, Probe, probe
from omrl.words import quantity

# More columns than this make a picture that nobody reads.
MOST_COLUMNS = 24
BESIDE = (
    "Episodes of held-out tasks: what was logged, and what the policy, adapted by other episodes of the task, would "
    "have done at the same observations. Below, how far each is from the nearest logged row of the training tasks, in "
    "standard deviations of the log: where the policy's line lies far above the other, it does what nobody tried."
)


class Names:
    """Names of files, made of words that come from files: plain letters alone, and never the same one twice."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def __call__(self, *words: str) -> str:
        wanted = "-".join(re.sub(r"[^a-z0-9]+", "-", word.lower()).strip("-")[:40] or "x" for word in words)
        found, number = wanted, 1
        while found in self._given:
            number += 1
            found = f"{wanted}-{number}"
        self._given.add(found)
        return found


def build(
    runs: Sequence[RunFacts], folder: Path, command: str, trust: Collection[str] = (), color: str | None = None
) -> list[Probe]:
    """Write index.html, figures/ and tables/ into an empty folder; return what was seen in every run."""
    started = time.monotonic()
    for name in ("figures", "tables"):
        (folder / name).mkdir()
    drawings = folder / "figures"
    names = Names()
    with Meter("report", 2 * len(runs) + 1) as meter, style():
        meter.update(meter.done, "embedding and rolling out")
        probes = []
        # Most of it is t-SNE, which leaves all cores but one idle.
        with ThreadPoolExecutor(min(len(runs), usable_cores())) as pool:
            for seen in pool.map(lambda facts: probe(facts, trust, color), runs):
                probes.append(seen)
                meter.update(meter.done + 1)
        content = Content(
            runs=runs,
            probes=probes,
            made="",
            command=command,
            summary=tables.summary(runs, probes),
            separation=tables.separation(runs, probes),
            config=tables.config(runs),
            versions=tables.versions(runs),
            timings=tables.timings(runs),
            logged=tables.logged(runs),
            differences=tables.differences(runs),
        )
        meter.update(meter.done, "drawing")
        _compare(content, drawings, names)
        for facts, seen in zip(runs, probes, strict=True):
            _look(content, facts, seen, drawings, names)
            meter.update(meter.done + 1)
        whole = [content.summary, content.separation, content.config, content.versions, content.timings]
        every = [
            *whole,
            content.logged,
            content.differences,
            *(table for _, _, table in content.tasks),
            *(table for _, table in content.logged_tasks),
            *(table for *_, table in content.data),
        ]
        tables.write_all((table for table in every if table.rows), folder / "tables")
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
        content.made = f"Made on {now} with omrl {__version__} in {time.monotonic() - started:.0f} s."
        (folder / "index.html").write_text(page(content), encoding="utf-8")
        meter.update(meter.total)
    return probes


def _compare(content: Content, folder: Path, name: Names) -> None:
    """What shows several runs at once: those of one family, or of one dataset where single tasks are shown."""
    for family, runs in _grouped(content.runs, lambda facts: facts.family):
        drawn = [
            finish(figures.learning_curve(runs, metric), folder, name("curve", family, metric), _curve_caption(metric))
            for metric in figures.metrics_of(runs)
        ]
        if drawn:
            content.curves.append((family, drawn))
        tested = [facts for facts in runs if facts.summary]
        if tested:
            caption = f"{family}: mean return, its 95 % interval and the IQM of every run."
            content.intervals.append(
                finish(figures.intervals(tested), folder, name("intervals", family), caption, wide=True)
            )
    for path, runs in _grouped(content.runs, lambda facts: str(facts.config.data)):
        dataset = runs[0].dataset
        if dataset is None:
            continue
        tested = [facts for facts in runs if _tested_on(facts, dataset)]
        if tested:
            caption = (
                "Return of each task; a mark is the mean over seeds and episodes, its line goes from the lowest to the "
                "highest seed. The steps are what the data's own policies reach in that task, and what is possible."
            )
            file = name("tasks", Path(path).name)
            drawing = finish(figures.task_returns(tested, dataset), folder, file, caption, wide=True)
            content.tasks.append((path, drawing, tables.tasks(tested, dataset, file)))
        judged = [facts for facts in runs if facts.logged_scores]
        if judged:
            content.logged_tasks.append((path, tables.logged_tasks(judged, dataset, name("logged", Path(path).name))))
        caption = "How the mean returns of the tasks are spread at every quality level."
        file = name("data", Path(path).name)
        drawing = finish(figures.data_levels(dataset), folder, file, caption)
        content.data.append((path, _about(dataset), drawing, tables.data_levels(dataset, file)))
        if dataset.family is None:
            content.own_logs[path] = _own_logs(dataset, folder, name)


def _own_logs(dataset: MetaDataset, folder: Path, name: Names) -> tuple[list[str], list[Drawn]]:
    """What `omrl data validate` notes of somebody's logs, and what one would rather look at."""
    file = Path(str(dataset.path)).name
    facts = column_facts(dataset)
    drawn = [finish(figures.task_rows(dataset), folder, name("rows", file), "Rows of every task.", wide=True)]
    most = facts if len(facts) <= MOST_COLUMNS else [*facts[: MOST_COLUMNS - 1], facts[-1]]
    rest = f"; {len(facts) - len(most)} more are not shown" if len(most) < len(facts) else ""
    caption = f"How often each value was logged: observations blue, actions orange, the reward green{rest}."
    drawn.append(finish(figures.column_histograms(dataset, most), folder, name("columns", file), caption, wide=True))
    return findings(dataset), drawn


def _grouped(runs: Sequence[RunFacts], key: Callable[[RunFacts], str]) -> list[tuple[str, list[RunFacts]]]:
    groups: dict[str, list[RunFacts]] = {}
    for facts in runs:
        groups.setdefault(key(facts), []).append(facts)
    return list(groups.items())


def _tested_on(facts: RunFacts, dataset: MetaDataset) -> bool:
    return facts.scores is not None and set(facts.scores.tasks) <= {task.name for task in dataset.tasks}


def _curve_caption(metric: str) -> str:
    title, unit = figures.metric_names(metric)
    return f"{title} ({unit}) during training."


def _about(dataset: MetaDataset) -> str:
    """What `omrl data info` says of a dataset, in a sentence."""
    split = dataset.split
    facts: dict[str, Any] = summary(dataset)
    return (
        f"{dataset.family or 'Own logs'}, {dataset.manifest.varies} varies: "
        f"{quantity(len(dataset.tasks), 'task')} ({len(split['train'])} train, {len(split['test'])} test), "
        f"{quantity(facts['rows'], 'row')} in {quantity(facts['episodes'], 'episode')}, {facts['bytes'] / 1e6:,.1f} MB."
    )


def _look(content: Content, facts: RunFacts, seen: Probe, folder: Path, name: Names) -> None:
    """What is drawn of one run alone."""
    if seen.embedding is not None:
        content.embeddings[facts.index] = _embedding(facts, seen.embedding, folder, name)
    file = name("policy", facts.name)
    if seen.episodes:
        assert facts.dataset is not None
        drawing = finish(figures.beside_the_log(seen.episodes, facts.dataset), folder, file, BESIDE, wide=True)
        content.policies[facts.index] = drawing
    found = seen.rollouts
    if found is None:
        return
    if found.film:
        seconds = 1 / get_family(found.family).simulator_class.steps_per_second
        tasks = quantity(len(found.film), "test task")
        caption = f"The adapted policy in {tasks}, by {found.label}, from left to right in time."
        drawing = finish(figures.film_strip(found, seconds), folder, file, caption, wide=True)
        content.policies[facts.index] = drawing
    elif "point-robot" in found.family:
        caption = (
            f"Ways of the adapted policy in {quantity(len(found.tasks), 'test task')}; the mean return of these "
            f"episodes is {np.mean(found.returns):z.2f}."
        )
        content.policies[facts.index] = finish(figures.trajectories(found), folder, file, caption)


def _embedding(facts: RunFacts, found: Embedding, folder: Path, name: Names) -> list[Drawn]:
    width = found.z.shape[-1]
    if found.shares is None:
        edge = np.ptp(found.axes, axis=0).max()
        space = f"The embedding z itself, {quantity(width, 'number')}; an edge of the cube is {edge:.3g} long."
    else:
        space = (
            f"The first three principal components of the {width} numbers of z; they explain {found.shares.sum():.0%} "
            "of its variance."
        )
    of_these = f"{quantity(len(found.tasks), 'task')}, {sum(found.unseen)} of them unseen"
    drawn: list[tuple[str, Any, str]] = [
        ("embedding", figures.embedding_space, space),
        ("tsne", figures.embedding_flat, f"t-SNE of the same z ({of_these})."),
        ("distances", figures.distances, _separation(found)),
    ]
    return [finish(draw(found), folder, name(kind, facts.name), caption) for kind, draw, caption in drawn]


def _separation(found: Embedding) -> str:
    numbers = ""
    if found.esr:
        numbers = f" Training tasks: ESR {np.mean(found.esr):.2f}, RMS {np.mean(found.rms):.2f}."
    return f"Distances between contexts of the same and of different tasks.{numbers}"
