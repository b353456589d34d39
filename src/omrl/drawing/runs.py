"""What the report draws: one function per figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from matplotlib.ticker import MaxNLocator, NullFormatter

from omrl.algorithms import about, known_algorithms
from omrl.data import MetaDataset
from omrl.data.findings import ColumnFacts, column_names
from omrl.drawing.behaviour import COLOURS as LEVEL_COLOURS
from omrl.drawing.style import (
    COLOURS,
    INK,
    MARKERS,
    amounts,
    colour,
    colour_bar,
    dash,
    legend,
    mark,
    new,
    shortened,
    space,
    task_colours,
)
from omrl.evaluation.embedding import RANDOM_DISTANCE
from omrl.families.point_robot import GOAL_RADIUS
from omrl.reporting.gather import RunFacts, best_return, level_returns, task_values
from omrl.reporting.probe import Embedding, Episode, Rollouts

# Numbers of an action that are shown of an episode: more are a picture that nobody reads.
MOST_ACTIONS = 3

# Metrics of omrl's algorithms in the order in which they are shown: title, unit. Those of others follow by name, with
# what the table `metrics` beside them says.
METRICS = {
    "return": ("Return on test tasks", "mean sum of rewards"),
    "dml_loss": ("Distance-metric loss", "loss of the encoder"),
    "triplet_loss": ("Triplet loss", "loss of the encoder"),
    "kl": ("KL of the posterior to the prior", "nats of a task's z"),
    "relabelled": ("Relabelled rows that are kept", "share of other tasks' rows"),
    "critic_loss": ("Critic loss", "squared error of Q"),
    "actor_loss": ("Actor loss", "loss of the actor"),
    "candidate_loss": ("Loss of the candidate actions", "squared error to the teachers"),
    "perturbation_loss": ("Loss of the perturbations", "squared error to the teachers"),
    "vae_loss": ("Autoencoder loss", "loss of the autoencoder"),
    "q": ("Mean Q", "scaled return"),
    "divergence": ("Divergence from the data", "mean D"),
    "alpha": ("Strength of the regularisation", "alpha"),
    "entropy": ("Entropy of the policy", "nats"),
    "saturated": ("Actions at their bounds, policy", "share"),
    "saturated_logged": ("Actions at their bounds, logged", "share"),
    "error": ("Error of the ensemble", "root mean squared error"),
    "spread": ("Spread of the ensemble", "standard deviation of its members"),
}


def metric_names(metric: str, runs: Sequence[RunFacts] = ()) -> tuple[str, str]:
    """Title and unit of any metric."""
    if metric in METRICS:
        return METRICS[metric]
    for name in {facts.run.config.algorithm for facts in runs} & set(known_algorithms()):
        if metric in (told := about(name, "metrics")):
            named: Any = told[metric]
            title, unit = named
            return title, unit
    return metric.replace("_", " "), "value"


def learning_curve(runs: Sequence[RunFacts], metric: str) -> Figure:
    """One metric of several runs: the mean over seeds and the range between them."""
    title, unit = metric_names(metric, runs)
    figure = new(4.3, 2.7)
    axes = figure.subplots()
    shown = [facts for facts in runs if metric in facts.curves]
    for facts in shown:
        steps, values = facts.curves[metric].steps, facts.curves[metric].values
        there = np.isfinite(values).any(0)
        steps, values = steps[there], np.where(np.isfinite(values), values, np.nan)[:, there]
        if not len(steps):
            continue
        line = axes.plot(
            steps,
            np.nanmean(values, axis=0),
            color=colour(facts.index),
            ls=dash(facts.index),
            label=shortened(facts.name),
            marker="o" if len(steps) <= 15 else "",
            markersize=3,
        )
        band = axes.fill_between(
            steps, np.nanmin(values, axis=0), np.nanmax(values, axis=0), color=colour(facts.index), alpha=0.18, lw=0
        )
        mark(facts.index, [*line, band])
    every = np.concatenate([np.ravel(facts.curves[metric].values) for facts in shown])
    finite = every[np.isfinite(every)]
    if finite.size and finite.min() > 0 and finite.max() > 1000 * finite.min():
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(amounts())  # the usual one writes a formula
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set(title=title, xlabel="updates", ylabel=unit)
    axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True))
    axes.xaxis.set_major_formatter(amounts())
    if axes.get_legend_handles_labels()[0]:
        legend(axes, [facts.index for facts in shown if np.isfinite(facts.curves[metric].values).any()])
    return figure


def metrics_of(runs: Sequence[RunFacts]) -> list[str]:
    """The metrics that runs logged, known ones first."""
    logged = {name for facts in runs for name in facts.curves} - {"alive"}
    return [name for name in METRICS if name in logged] + sorted(logged - set(METRICS))


def intervals(runs: Sequence[RunFacts]) -> Figure:
    """Mean return of every run with its interval, beside what the data's own policies reach."""
    figure = new(7.4, 0.75 + 0.34 * len(runs))
    axes = figure.subplots()
    for place, facts in enumerate(runs):
        mean, iqm = facts.summary["mean"], facts.summary["iqm"]
        # One seed has no interval.
        ends = [end for end in (mean["low"], mean["high"]) if end is not None]
        bar = axes.plot(ends, [place] * len(ends), color=colour(facts.index), lw=5, alpha=0.35)
        dot = axes.plot(mean["value"], place, "o", color=colour(facts.index), ms=6)
        tick = axes.plot(iqm, place, "|", color=colour(facts.index), ms=13, mew=2)
        mark(facts.index, [*bar, *dot, *tick])
    references = {(facts.summary["random"], facts.summary["expert"]) for facts in runs if "random" in facts.summary}
    if len(references) == 1:  # runs on one dataset, tested on the same tasks
        for value, name, line in zip(references.pop(), ("untrained policy", "expert data"), (":", "--"), strict=True):
            axes.axvline(value, color=INK, ls=line, lw=1, label=name)
    grey: Any = {"color": INK, "ls": "none"}
    axes.plot([], [], marker="o", label="mean, 95 % interval", **grey)
    axes.plot([], [], marker="|", ms=10, mew=2, label="IQM", **grey)
    axes.set_yticks(range(len(runs)), [shortened(facts.name) for facts in runs])
    for facts, text in zip(runs, axes.get_yticklabels(), strict=True):
        mark(facts.index, [text])
    axes.set(xlabel="return, sum of rewards of an episode", ylim=(len(runs) - 0.5, -0.5))
    axes.grid(axis="y", visible=False)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, borderaxespad=0.2)
    return figure


def task_returns(runs: Sequence[RunFacts], dataset: MetaDataset) -> Figure:
    """Return of every tested task, each run as a mark, over what the data's own policies reach there."""
    names = list(dict.fromkeys(name for facts in runs if facts.scores for name in facts.scores.tasks))
    tasks = dataset.select(names).tasks
    label, values = task_values(tasks)
    order = [int(t) for t in np.argsort(values, kind="stable")]
    place = {names[t]: at for at, t in enumerate(order)}
    width = min(max(2.6 + 0.42 * len(order), 5.4), 10.8)
    # The legend stands above: as many of its entries side by side as fit.
    columns = max(int(width / 1.7), 1)
    figure = new(width, 3.5 + 0.2 * -(-(len(runs) + 3) // columns))
    axes = figure.subplots()
    entries = {entry.name: entry for entry in dataset.manifest.tasks}
    spots = np.arange(len(order))
    keys: list[int | None] = []
    references: list[tuple[str, Callable[[int], float | None], dict[str, Any]]] = [
        ("best possible", lambda t: best_return(dataset.family or "", tasks[t]), {"lw": 1.0, "ls": "-"}),
        ("expert data", lambda t: entries[names[t]].reference.expert, {"lw": 1.2, "ls": "--"}),
        ("untrained policy", lambda t: entries[names[t]].reference.random, {"lw": 1.2, "ls": ":"}),
    ]
    for name, of, line in references:
        heights = [of(t) for t in order]
        if None not in heights:
            # From the left edge of the first task to the right edge of the last: one task alone has a line too.
            level = np.array([*heights, heights[-1]], dtype=float)
            axes.step(np.arange(len(order) + 1) - 0.5, level, where="post", color=INK, label=name, **line)
            keys.append(None)
    for number, facts in enumerate(runs):
        if facts.scores is None:
            continue
        per_seed = facts.scores.returns.mean(-1)  # [P, T]
        at = np.array([place[name] for name in facts.scores.tasks]) + 0.5 * (number + 1) / (len(runs) + 1) - 0.25
        own = colour(facts.index)
        bars = axes.vlines(at, per_seed.min(0), per_seed.max(0), color=own, alpha=0.5, lw=1.6)
        marks = axes.plot(
            at, per_seed.mean(0), MARKERS[facts.index % len(MARKERS)], color=own, ms=4.5, label=shortened(facts.name)
        )
        mark(facts.index, [bars, *marks])
        keys.append(facts.index)
    digits = "{:z.0f}" if np.ptp(values) > 20 else "{:z.2f}"
    axes.set_xticks(spots, [digits.format(values[t]) for t in order], rotation=90 if len(order) > 12 else 0)
    horizon = f"over {dataset.manifest.horizon} steps" if dataset.manifest.horizon else "of an episode"
    axes.set(xlabel=f"task, by {label}", ylabel=f"return {horizon}, sum of rewards", xlim=(-0.7, len(order) - 0.3))
    axes.grid(axis="x", visible=False)
    legend(axes, keys, loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, borderaxespad=0.2)
    return figure


def embedding_flat(found: Embedding) -> Figure:
    """The t-SNE of one run's embeddings."""
    figure = new(4.6, 3.6)
    axes = figure.subplots()
    colours = task_colours(found.dot_values)
    axes.scatter(found.flat[:, 0], found.flat[:, 1], s=5, c=colours, lw=0, rasterized=True)
    axes.set(title="t-SNE of z", xlabel="t-SNE 1 (no unit)", ylabel="t-SNE 2 (no unit)", xticks=[], yticks=[])
    colour_bar(figure, axes, found.label, found.values)
    return figure


def embedding_space(found: Embedding) -> Figure:
    """z, or its first three principal components, as a still picture."""
    figure = new(4.6, 3.6)
    axes = space(figure)
    colours = task_colours(found.dot_values)
    axes.scatter(*found.axes.T, s=4, c=colours, lw=0, depthshade=False, rasterized=True)
    names = axis_names(found)
    axes.set(xlabel=names[0], ylabel=names[1], zlabel=names[2])
    axes.xaxis.labelpad, axes.yaxis.labelpad, axes.zaxis.labelpad = 0, 5, 3
    axes.set_box_aspect((1, 1, 1), zoom=0.85)  # the layout does not know of these labels and would cut them
    colour_bar(figure, axes, found.label, found.values, pad=0.12)
    return figure


def axis_names(found: Embedding) -> list[str]:
    """What the axes of the view of z are."""
    if found.shares is None:
        return [f"z{i + 1}" if i < found.z.shape[-1] else "" for i in range(3)]
    return [f"PC {i + 1} ({share:.0%})" for i, share in enumerate(found.shares)]


def distances(found: Embedding) -> Figure:
    """How far apart embeddings of one task are, and of two."""
    figure = new(4.6, 2.9)
    axes = figure.subplots()
    top = max(float(values.max()) for values in (found.same, found.different) if values.size)
    bins = np.linspace(0, top or 1.0, 60).tolist()
    for values, name, own in ((found.same, "same task", COLOURS[4]), (found.different, "different tasks", COLOURS[0])):
        if values.size:
            weights = np.full(values.size, 100 / values.size)
            axes.hist(values, bins, weights=weights, color=own, alpha=0.35, histtype="stepfilled")
            axes.hist(values, bins, weights=weights, color=own, histtype="step", lw=1.4, label=name)
    axes.axvline(np.sqrt(RANDOM_DISTANCE), color=INK, ls="--", lw=1, label="random points, on average")
    axes.set(
        title="Distances between embeddings", xlabel="RMS difference per dimension of z", ylabel="share of pairs (%)"
    )
    # Below the axes: inside, the dashed line would run through it.
    figure.legend(loc="outside lower center", ncols=3)
    return figure


def trajectories(found: Rollouts) -> Figure:
    """The adapted policy's way in every test task of a point robot, with the goals."""
    figure = new(5.4, 3.9)
    axes = figure.subplots()
    sparse = "goal" in found.tasks[0].params
    for task, own, way in zip(found.tasks, task_colours(found.values), found.states, strict=True):
        axes.plot(way[:, 0], way[:, 1], "-o", color=own, lw=1.2, ms=2)
        if sparse:
            goal: Any = task.params["goal"]
            axes.add_patch(Circle(goal, GOAL_RADIUS, fill=False, color=own, lw=0.8, alpha=0.8))
    axes.plot([], [], "-o", color=INK, lw=1.2, ms=2, label="adapted policy")
    if sparse:
        axes.plot([], [], "o", mfc="none", color=INK, ms=9, label="goal, paid inside")
    else:
        axes.plot(1.0, 0.0, "*", color=COLOURS[1], ms=13, ls="none", label="goal")
    axes.plot(0, 0, "+", color=INK, ms=8, mew=1.5, ls="none", label="start")
    axes.set(xlabel="x", ylabel="y")
    axes.set_aspect("equal", adjustable="datalim")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0.2, columnspacing=1.2)
    colour_bar(figure, axes, found.label, found.values)
    return figure


def beside_the_log(episodes: Sequence[Episode], dataset: MetaDataset) -> Figure:
    """Held-out episodes from left to right: logged and own actions, and how far both are from the log."""
    named = column_names(dataset, "actions")[:MOST_ACTIONS]
    lines = len(named) + 1
    figure = new(10.8, 0.5 + 1.55 * lines)
    grid = np.reshape(figure.subplots(lines, len(episodes), squeeze=False, sharey="row"), (lines, len(episodes)))
    for column, (axes_of, found) in enumerate(zip(grid.T, episodes, strict=True)):
        steps = np.arange(len(found.steps))
        for dim, axes in enumerate(axes_of[:-1]):
            axes.plot(steps, found.logged[:, dim], color=COLOURS[0], lw=1.1, label="logged")
            axes.plot(steps, found.own[:, dim], color=COLOURS[1], lw=1.1, label="policy")
            name, unit = named[dim]
            if column == 0:
                axes.set_ylabel(shortened(name if unit is None else f"{name} ({unit})", 20))
            axes.tick_params(labelbottom=False)
        axes_of[0].set_title(shortened(found.task, 34))
        axes_of[-1].plot(steps, found.far_logged, color=COLOURS[0], lw=1.1)
        axes_of[-1].plot(steps, found.far, color=COLOURS[1], lw=1.1)
        axes_of[-1].set(xlabel="row of the episode")
        for axes in axes_of:
            axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True))
    grid[-1, 0].set(ylabel="distance to the log", ylim=(0, None))
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside upper right", ncols=2)
    return figure


def film_strip(found: Rollouts, seconds_per_step: float) -> Figure:
    """The adapted policy in a few tasks, from left to right in time."""
    rows, columns = len(found.film), len(found.film[0][1])
    figure = new(10.8, 0.1 + rows * 1.58)
    grid = np.reshape(figure.subplots(rows, columns, squeeze=False), (rows, columns))
    for row, (t, pictures) in enumerate(found.film):
        for column, (step, picture) in enumerate(pictures):
            axes = grid[row, column]
            axes.imshow(picture)
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
            # A body's first coordinate is how far it has come along x; adding zero makes a zero of minus zero.
            came = round(float(found.states[t, step, 0]), 1) + 0.0
            axes.set_xlabel(f"{step * seconds_per_step:.1f} s, x = {came:.1f} m", fontsize=7.5, labelpad=2)
        what = f"{found.label.split(' (')[0]} {found.values[t]:.2f}"
        name = f"{shortened(found.tasks[t].name, 16)}\n{shortened(what, 20)}\nreturn {found.returns[t]:.0f}"
        grid[row, 0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)
    return figure


def task_rows(dataset: MetaDataset) -> Figure:
    """How many rows every task has, training and test tasks apart."""
    entries = dataset.manifest.tasks
    split = dataset.split
    # The held-out tasks first, each part from the most rows to the fewest: the short ones stand at the right.
    figure = new(min(max(2.2 + 0.16 * len(entries), 4.3), 7.4), 2.9)
    axes = figure.subplots()
    parts = (("test", COLOURS[1]), ("train", COLOURS[0]), ("in neither", COLOURS[3]))
    known = {*split["train"], *split["test"]}
    place, names = 0, []
    for part, own in parts:
        members = split.get(part, tuple(entry.name for entry in entries if entry.name not in known))
        if part == "train":  # a task may be in both
            members = tuple(name for name in members if name not in split["test"])
        rows = sorted(((e.rows, e.name) for e in entries if e.name in members), reverse=True)
        if rows:
            spots = np.arange(place, place + len(rows))
            axes.bar(spots, [count for count, _ in rows], color=own, alpha=0.75, label=part)
            names += [name for _, name in rows]
            place += len(rows)
    if len(names) <= 30:
        axes.set_xticks(range(len(names)), [shortened(name, 14) for name in names], rotation=90)
    else:
        axes.set_xticks([])
    axes.yaxis.set_major_formatter(amounts())
    axes.set(xlabel="task", ylabel="rows", title="Rows of every task", xlim=(-0.7, len(names) - 0.3))
    axes.grid(axis="x", visible=False)
    figure.legend(loc="outside lower center", ncols=3)
    return figure


def column_histograms(dataset: MetaDataset, facts: Sequence[ColumnFacts], rows_per_task: int = 2_000) -> Figure:
    """What values each column takes: observations, actions, and the reward."""
    columns = 4
    lines = -(-len(facts) // columns)
    figure = new(10.8, 0.3 + 1.55 * lines)
    grid = np.reshape(figure.subplots(lines, columns, squeeze=False), -1)
    parts = {"observations": COLOURS[0], "actions": COLOURS[1], "rewards": COLOURS[2]}
    sampled: dict[str, list[np.ndarray[Any, Any]]] = {part: [] for part in parts}
    for task in dataset.tasks:
        numbers = dataset.row_numbers(task.name, rows_per_task)
        rows = dataset.rows(task.name)
        for part, taken in sampled.items():
            taken.append(rows[part][numbers].reshape(len(numbers), -1))
    values = {part: np.concatenate(taken) for part, taken in sampled.items()}
    at = dict.fromkeys(parts, 0)
    for axes, fact in zip(grid, facts, strict=False):
        shown = values[fact.part][:, at[fact.part]]
        at[fact.part] += 1
        if fact.values is not None and len(fact.values) <= 12:
            counts = [np.count_nonzero(shown == np.float32(value)) for value in fact.values]
            axes.bar(range(len(counts)), counts, color=parts[fact.part], alpha=0.75)
            axes.set_xlim(min(-0.7, len(counts) / 2 - 2.5), max(len(counts) - 0.3, len(counts) / 2 + 1.5))
            axes.set_xticks(range(len(counts)), [f"{value:.3g}" for value in fact.values])
        else:
            axes.hist(shown, 40, color=parts[fact.part], alpha=0.75)
            axes.locator_params(axis="x", nbins=4)
        axes.set_yticks([])
        axes.set_title(shortened(fact.name if fact.unit is None else f"{fact.name} ({fact.unit})", 30), fontsize=8.5)
        axes.tick_params(labelsize=7)
    for axes in grid[len(facts) :]:
        axes.set_visible(False)
    return figure


def data_levels(dataset: MetaDataset) -> Figure:
    """How the tasks' mean returns spread at every quality level."""
    figure = new(5.4, 2.9)
    axes = figure.subplots()
    returns = level_returns(dataset)
    every = np.concatenate(list(returns.values()))
    low, high = float(every.min()), float(every.max())
    bins = np.linspace(low, high if high > low else low + 1, 40).tolist()
    for level, values in returns.items():
        own = {**LEVEL_COLOURS, "mixed": COLOURS[2]}[level]
        axes.hist(values, bins, color=own, alpha=0.35, histtype="stepfilled")
        axes.hist(values, bins, color=own, histtype="step", lw=1.4, label=level)
    horizon = f"over {dataset.manifest.horizon} steps" if dataset.manifest.horizon else "of an episode"
    axes.set(xlabel=f"mean return of a task {horizon}", ylabel="tasks", title="Returns by quality level")
    axes.yaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True))
    axes.legend()
    return figure
