"""Publish runs of FOCAL: evaluate them, keep their raw files, draw their curves.

    python tools/focal_results.py runs/half-cheetah-vel-measured runs/half-cheetah-vel-paper ...

Every run's config, environment, metrics, timings and scores go to results/focal/FAMILY-PRESET/, its summary into
results/focal/focal.json, from which `tools/tables.py` makes the table of docs/results.md. The picture there is drawn
from all published runs. A run that is not named keeps its figures.
"""

from __future__ import annotations

import csv
import json
import shutil
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

import omrl
from omrl.families import FAMILIES
from omrl.run import Run

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "focal"
PICTURE = ROOT / "docs" / "img" / "results.png"
COLOURS = {"measured": "#0072B2", "paper": "#D55E00"}


def publish(folder: Path) -> dict[str, Any]:
    """Copy a run's raw files and return its summary."""
    run = Run.open(folder)
    config: dict[str, Any] = dict(run.config)
    family, preset = config["family"], config["preset"]
    summary = omrl.evaluate(folder)
    kept = RESULTS / f"{family}-{preset}"
    kept.mkdir(parents=True, exist_ok=True)
    for name in ("environment.json", "metrics.csv", "timings.json", "scores.csv"):
        shutil.copy(folder / name, kept / name)
    # Where the data lay on the machine that trained says nothing to anybody else.
    (kept / "config.json").write_text(json.dumps(config | {"data": f"data/{family}"}, indent=2) + "\n")
    hardware = json.loads((folder / "environment.json").read_text())
    return {"family": family, "preset": preset, "level": config["level"], "hardware": hardware["gpu"], **summary}


def curve(folder: Path) -> dict[int, list[float]]:
    """Mean return on test tasks by update, one value per seed."""
    found: dict[int, list[float]] = defaultdict(list)
    with (folder / "metrics.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["name"] == "return":
                found[int(row["step"])].append(float(row["value"]))
    return found


def draw(rows: list[dict[str, Any]]) -> None:
    """One panel per family: mean and range over seeds, with the data's own random and expert returns."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 6), layout="constrained")
    for axes, family in zip(figure.subplots(2, 3).flat, FAMILIES, strict=True):
        axes.set_title(family, fontsize=10)
        own = [row for row in rows if row["family"] == family]
        for row in own:
            points = sorted(curve(RESULTS / f"{family}-{row['preset']}").items())
            steps, values = [step for step, _ in points], np.array([v for _, v in points])
            colour = COLOURS[row["preset"]]
            axes.plot(steps, values.mean(1), color=colour, label=f"{row['preset']}, {row['seeds']} seeds")
            axes.fill_between(steps, values.min(1), values.max(1), color=colour, alpha=0.2, linewidth=0)
        for name, style in (("expert", "--"), ("random", ":")):
            if own:
                axes.axhline(own[0][name], color="#666666", linestyle=style, linewidth=1, label=f"{name} data")
        axes.set_xlabel("updates")
        axes.set_ylabel("mean return, test tasks")
        axes.grid(alpha=0.2)
        axes.legend(fontsize=7)
    figure.savefig(PICTURE, dpi=120)


def main() -> None:
    """Publish the named runs beside those that are there."""
    path = RESULTS / "focal.json"
    rows = {(row["family"], row["preset"]): row for row in (json.loads(path.read_text()) if path.exists() else [])}
    for folder in map(Path, sys.argv[1:]):
        row = publish(folder)
        rows[row["family"], row["preset"]] = row
    order = list(FAMILIES)
    kept = sorted(rows.values(), key=lambda row: (order.index(row["family"]), row["preset"]))
    path.write_text(json.dumps(kept, indent=1) + "\n")
    draw(kept)


if __name__ == "__main__":
    main()
