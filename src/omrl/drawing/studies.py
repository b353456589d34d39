"""The figures of an experiment: all its data sets side by side, in the report's style."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from operator import itemgetter
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, NullLocator

from omrl.data import MetaDataset
from omrl.drawing.behaviour import draw_trajectories
from omrl.drawing.style import (
    COLOURS,
    INK,
    Dash,
    amounts,
    colour,
    dash,
    finish,
    new,
    space,
    style,
    task_colours,
)
from omrl.reporting.probe import Embedding
from omrl.studies.definitions import Experiment, Row, get_experiment
from omrl.studies.judging import Array, Outcome

# Up to here values of Q are drawn as they are where others are by orders of magnitude.
LINEAR = 100.0
# From so many rows on, the ranges between their seeds are only hinted at.
CROWDED = 7
# Letters of a row's label in a line of a legend or title; longer ones have several lines.
LABEL = 34
# So many rows of an algorithm are told by their dashes, more by colours.
OF_A_COLOUR = 3


def draw(
    experiment: Experiment, outcomes: Sequence[Outcome], embeddings: Mapping[Path, Embedding], folder: Path, note: str
) -> list[str]:
    """Write every figure as PNG and SVG; their names."""
    drawn: list[str] = []
    with style():
        for kind in experiment.figures:
            figure: Figure | None
            if kind in ("return", "return-log", "q"):
                figure = curves(experiment, outcomes, kind)
            elif kind == "breadth":
                figure = breadth(experiment, outcomes)
            elif kind == "levels":
                figure = levels(outcomes[0].facts.dataset)
            else:
                figure = clouds(experiment, outcomes, embeddings, kind)
            if figure is not None:
                if note:
                    # Above the panels, because below them is the legend; in room of its own.
                    text = fill(note, int(14 * figure.get_figwidth()))
                    figure.set_figheight(figure.get_figheight() + 0.13 * (text.count("\n") + 2))
                    figure.suptitle(text, fontsize=7, color=INK)
                finish(figure, folder, kind, experiment.title)
                drawn.append(kind)
    return drawn


def looks(experiment: Experiment) -> list[tuple[str, Dash]]:
    """Every row's colour and dash: an algorithm has one colour, in all figures, and its rows differ in their dashes.

    Where too many rows are of one algorithm, each has a colour of its own. Rows that the comparisons have too look the
    same in every figure.
    """
    algorithms = list(dict.fromkeys(row.algorithm for row in (*_compared(), *experiment.rows)))
    own = [row.algorithm for row in experiment.rows]
    if max(map(own.count, own)) > OF_A_COLOUR or len(algorithms) > len(COLOURS):
        return [(colour(place), dash(place)) for place in range(len(own))]
    taken: dict[str, dict[str, int]] = {algorithm: {} for algorithm in algorithms}
    for row in _compared():
        taken[row.algorithm][row.label] = len(taken[row.algorithm])
    labels = [row.label for row in experiment.rows]
    for row in experiment.rows:
        dashes = taken[row.algorithm]
        if row.label not in dashes:
            there = [place for label, place in dashes.items() if label in labels]
            dashes[row.label] = next(place for place in count() if place not in there)
    return [(colour(algorithms.index(row.algorithm)), dash(taken[row.algorithm][row.label])) for row in experiment.rows]


def _compared() -> tuple[Row, ...]:
    return get_experiment("comparison-sparse-point-robot").rows


def curves(experiment: Experiment, outcomes: Sequence[Outcome], kind: str) -> Figure:
    """A metric over the transitions sampled: the mean over seeds and the range between them."""
    metric = "q" if kind == "q" else "return"
    titles = list(dict.fromkeys(outcome.cell.title for outcome in outcomes))
    width = 4.6 * len(titles) + 0.4
    # The legend stands below: as many of its entries side by side as fit, in inches.
    labels, own_looks = [fill(row.label, LABEL) for row in experiment.rows], looks(experiment)
    across = max(int(width / (0.5 + 0.058 * max(len(line) for label in labels for line in label.splitlines()))), 1)
    lines = max(len(label.splitlines()) for label in labels)
    figure = new(width, 2.9 + 0.18 * lines * -(-len(labels) // across))
    for axes, title in zip(np.atleast_1d(figure.subplots(1, len(titles))), titles, strict=True):
        for outcome in outcomes:
            if outcome.cell.title != title or metric not in outcome.facts.curves:
                continue
            curve, index = outcome.facts.curves[metric], experiment.rows.index(outcome.cell.row)
            own_colour, own_dash = own_looks[index]
            values = np.where(np.isfinite(curve.values), curve.values, np.nan)
            there = np.isfinite(values).any(0)
            x, values = curve.transitions[there], values[:, there]
            axes.plot(
                x,
                np.nanmean(values, axis=0),
                color=own_colour,
                ls=own_dash,
                label=labels[index],
                marker="o" if len(x) <= 15 else "",
                markersize=3,
            )
            ends = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
            axes.fill_between(x, *ends, color=own_colour, alpha=0.18 if len(labels) < CROWDED else 0.08, lw=0)
        axes.set(title=title, xlabel="transitions sampled by each seed")
        axes.set_ylabel("Q of the policy's actions" if metric == "q" else "mean return on test tasks")
        if kind == "return-log":
            _log_ticks(axes)
        axes.xaxis.set_major_formatter(amounts())
        if metric == "q":
            low, high = axes.get_ylim()
            if max(-low, high) > 10 * LINEAR:
                # Orders of magnitude of either sign: the value penalty makes Q negative, divergence often positive.
                axes.set_yscale("symlog", linthresh=LINEAR)
            axes.yaxis.set_major_formatter(amounts())
    # Below all panels, whose rows are the same: nothing is covered, wherever the curves lie.
    handles = {line.get_label(): line for axes in figure.axes for line in axes.get_lines()}
    if handles:
        figure.legend(handles=list(handles.values()), loc="outside lower center", ncols=across)
    return figure


def breadth(experiment: Experiment, outcomes: Sequence[Outcome]) -> Figure:
    """Returns over the breadth of the logged actions, with their 95 % intervals: who wins at which."""
    figure, own_looks = new(5.2, 3.4), looks(experiment)
    axes = figure.subplots()
    for index, row in enumerate(experiment.rows):
        own = {one.cell.data.action_std: one.summary["mean"] for one in outcomes if one.cell.row == row}
        found = sorted(((width, mean) for width, mean in own.items() if width is not None), key=itemgetter(0))
        widths, value = [width for width, _ in found], np.array([mean["value"] for _, mean in found])
        # One seed has no interval.
        ends = [[mean[end] if mean[end] is not None else mean["value"] for _, mean in found] for end in ("low", "high")]
        around = np.abs(np.array(ends) - value)
        own_colour, own_dash = own_looks[index]
        look: Any = {"color": own_colour, "ls": own_dash}
        axes.errorbar(widths, value, around, **look, marker="o", markersize=4, capsize=2.5, label=row.label)
    ticks = sorted({outcome.cell.data.action_std for outcome in outcomes if outcome.cell.data.action_std})
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set(xlabel="standard deviation of the logged actions before tanh", ylabel="mean return on test tasks")
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def _log_ticks(axes: Axes) -> None:
    """A logarithmic x axis that has several labels however short it is."""
    axes.set_xscale("log")
    axes.xaxis.set_minor_formatter(NullFormatter())  # the usual one writes a formula
    low, high = axes.get_xlim()
    if high < 5 * low:  # one of 1, 2, 5 at most
        axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    elif high < 1000 * low:
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))


def clouds(
    experiment: Experiment, outcomes: Sequence[Outcome], embeddings: Mapping[Path, Embedding], kind: str
) -> Figure | None:
    """The embeddings of 20 tasks in every row, one colour per task: t-SNE, two principal components, or numbers of z.

    In space these are the three that say most: bounded embeddings show which corners and edges they are in.
    """
    shown = [outcome for outcome in outcomes if outcome.run in embeddings]
    if not shown:
        return None
    titles = list(dict.fromkeys(outcome.cell.title for outcome in shown))
    rows, columns = len(titles), len(experiment.rows)
    figure = new(2.7 * columns, 2.6 * rows + 0.2)
    for outcome in shown:
        found = embeddings[outcome.run]
        at = titles.index(outcome.cell.title) * columns + experiment.rows.index(outcome.cell.row) + 1
        colours = list(np.repeat(task_colours(found.values), found.z.shape[1]))
        points: Any = {"c": colours, "s": 4, "lw": 0, "rasterized": True}
        if kind == "embedding-3d":
            axes = space(figure, rows, columns, at)
            axes.set_box_aspect((1, 1, 1), zoom=0.88)
            axes.scatter(*_telling(found.z), depthshade=False, **points)
        else:
            axes = figure.add_subplot(rows, columns, at)
            flat = found.flat if kind == "embedding" else found.axes[:, :2]
            axes.scatter(flat[:, 0], flat[:, 1], **points)
            axes.set(xticks=[], yticks=[])
        # The layout leaves no room above axes in space, which are drawn smaller for it.
        room: Any = {"y": 1.01, "pad": 0} if kind == "embedding-3d" else {}
        axes.set_title(fill(outcome.cell.row.label, LABEL), fontsize=8.5, **room)
        if at % columns == 1 or columns == 1:  # the first of a line; text2D, because axes in space turn their labels
            place: Any = {"transform": axes.transAxes, "rotation": 90, "va": "center", "ha": "right", "fontsize": 8}
            write = axes.text2D if kind == "embedding-3d" else axes.text
            write(-0.03, 0.5, fill(outcome.cell.title, 30), **place)
    return figure


def _telling(z: Array) -> Array:
    """[3, n]: of points [..., l] the three numbers that say most, in their order; zeros where there are fewer.

    The first varies most, each other one most beyond what those before it tell: the numbers of bounded embeddings vary
    nearly alike, and some follow from others.
    """
    points = z.reshape(-1, z.shape[-1])
    chosen: list[int] = []
    left = points - points.mean(0)
    while len(chosen) < min(3, points.shape[1]):
        left[:, chosen] = 0.0
        chosen.append(next(i for i in np.argsort(-left.var(0), kind="stable") if i not in chosen))
        axis = left[:, chosen[-1]] / max(float(np.linalg.norm(left[:, chosen[-1]])), 1e-12)
        left = left - axis[:, None] * (axis @ left)
    return np.pad(points[:, sorted(chosen)].T, ((0, 3 - len(chosen)), (0, 0)))


def levels(dataset: MetaDataset | None) -> Figure | None:
    """Where the data's policies of every quality go in a few tasks; for families that move in a plane."""
    if dataset is None or "point-robot" not in (dataset.family or ""):
        return None
    figure = new(3.6 * (len(dataset.levels) - 1), 3.2)  # all but `mixed`, which is all of them
    draw_trajectories(figure, dataset)
    return figure
