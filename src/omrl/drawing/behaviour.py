"""Pictures of behaviour data: learning curves over tasks, returns by level and, for the point robots, trajectories."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from matplotlib.ticker import EngFormatter

from omrl.data import MetaDataset
from omrl.families import get_family
from omrl.storage.files import number, read_rows, replacing, whole

# Okabe and Ito's colours, which stay apart under colour blindness.
COLOURS = {"random": "#999999", "medium": "#E69F00", "expert": "#0072B2", "late": "#CC79A7"}
TRAJECTORY_TASKS, TRAJECTORY_EPISODES = 5, 6


def plot(dataset: MetaDataset, folder: Path, curve: Path) -> list[Path]:
    """Draw what there is into `folder` and return the paths; `curve` is the agents' learning curve, if it was kept."""
    assert dataset.family is not None
    levels = [level for level in COLOURS if level in dataset.levels]
    panels = [_levels] if not curve.is_file() else [_learning_curves, _levels]
    figures = {"returns": Figure(figsize=(5.2 * len(panels), 4), layout="constrained")}
    for draw, axes in zip(panels, np.atleast_1d(figures["returns"].subplots(1, len(panels))), strict=True):
        draw(axes, dataset, levels, curve)
    if "point-robot" in dataset.family:
        figures["trajectories"] = Figure(figsize=(4 * len(levels), 3.6), layout="constrained")
        draw_trajectories(figures["trajectories"], dataset)
    folder.mkdir(exist_ok=True)
    paths = []
    for name, figure in figures.items():
        figure.suptitle(dataset.family)
        paths.append(folder / f"{name}.png")
        with replacing(paths[-1]) as temporary:
            figure.savefig(temporary, dpi=140, format="png")
    return paths


def _learning_curves(axes: Axes, dataset: MetaDataset, levels: list[str], curve: Path) -> None:
    """Every task's agent as a thin line, their mean as a thick one."""
    by_task: dict[str, list[tuple[int, float]]] = defaultdict(list)
    by_step: dict[int, list[float]] = defaultdict(list)
    for row in read_rows(curve, ("task", "step", "return")):
        step, value = whole(row["step"], curve), number(row["return"], curve)
        by_task[row["task"]].append((step, value))
        by_step[step].append(value)
    for points in by_task.values():
        axes.plot(*zip(*points, strict=True), color="#56B4E9", alpha=max(0.15, 1 / len(by_task)), linewidth=0.8)
    steps = sorted(by_step)
    axes.plot(steps, [np.mean(by_step[step]) for step in steps], color="black", linewidth=2, label="mean over tasks")
    for level in levels:
        height = float(np.mean(_task_returns(dataset, level)))
        axes.axhline(height, color=COLOURS[level], linestyle="--", label=f"{level} data")
    axes.set(xlabel="environment steps of each agent", ylabel=_return_label(dataset))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_title(f"{len(by_task)} agents learning", fontsize=10)
    _legend_below(axes)


def _legend_below(axes: Axes) -> None:
    """Where it covers nothing."""
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=4)


def _levels(axes: Axes, dataset: MetaDataset, levels: list[str], _: Path) -> None:
    """Mean return of each task at each level, tasks in the order of their expert."""
    scores = {level: _task_returns(dataset, level) for level in levels}
    order = np.argsort(scores[levels[-1]])
    for level in levels:
        axes.plot(np.arange(len(order)), np.array(scores[level])[order], ".", color=COLOURS[level], label=level)
    family = get_family(dataset.family or "")
    best = [family.best_return(task) for task in dataset.tasks]
    if None not in best:
        ordered = np.array(best, dtype=float)[order]
        axes.plot(np.arange(len(order)), ordered, "_", color="black", markersize=4, label="best possible")
    axes.set(xlabel="task, ordered by its expert", ylabel=_return_label(dataset))
    axes.set_title("mean return by level", fontsize=10)
    _legend_below(axes)


def draw_trajectories(figure: Figure, dataset: MetaDataset) -> None:
    """Where the policies of every level go, side by side; for families that move in a plane."""
    levels = [level for level in COLOURS if level in dataset.levels]
    panels = np.atleast_1d(figure.subplots(1, len(levels), sharex=True, sharey=True))
    for level, axes in zip(levels, panels, strict=True):
        _trajectories(axes, dataset.level(level), level)


def _trajectories(axes: Axes, view: MetaDataset, level: str) -> None:
    """Where a few tasks' policies go in the first steps that make the return."""
    chosen = np.linspace(0, len(view.tasks) - 1, min(TRAJECTORY_TASKS, len(view.tasks))).round().astype(int)
    for colour, index in zip(colormaps["viridis"](np.linspace(0, 0.9, len(chosen))), chosen, strict=True):
        task, rows = view.tasks[index], view.rows(int(index))
        for episode in np.unique(rows["episode"])[:TRAJECTORY_EPISODES]:
            path = rows["observations"][(rows["episode"] == episode) & (rows["step"] <= (view.manifest.horizon or 20))]
            axes.plot(path[:, 0], path[:, 1], color=colour, linewidth=0.8, alpha=0.8)
        goal: Any = task.params.get("goal")
        if goal is not None:  # the circle inside which the sparse reward is paid
            axes.add_patch(Circle(goal, 0.2, fill=False, color="#D55E00", linewidth=1.2))
        else:
            axes.plot(1.0, 0.0, "*", color="#D55E00", markersize=10)
    axes.set(title=level, xlabel="x", aspect="equal")
    axes.set_ylabel("y" if level == "random" else "")


def _task_returns(dataset: MetaDataset, level: str) -> list[float]:
    return [entry.levels[level].mean_return for entry in dataset.manifest.tasks]


def _return_label(dataset: MetaDataset) -> str:
    return f"return over {dataset.manifest.horizon} steps"
