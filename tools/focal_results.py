"""Publish runs of FOCAL: keep their raw files and summaries, draw their curves.

    python tools/focal_results.py runs/half-cheetah-vel-measured runs/ant-fwd-back-measured ...
    python tools/focal_results.py --bfloat16 runs/half-cheetah-vel-10k runs/half-cheetah-vel-10k-half

A run's summary is what `omrl evaluate RUN --json > RUN/summary.json` printed where it was trained: neither its
checkpoint nor its data is needed here.

Every run's config, environment, metrics, timings and scores go to results/focal/FAMILY-PRESET/, its summary into
results/focal/focal.json, from which `tools/tables.py` makes the table of docs/results.md. The picture there is drawn
from all published runs. A run that is not named keeps its figures.

With --bfloat16 two runs are put side by side that differ in `--bfloat16` alone: config and scores of each go to
results/focal/FAMILY-UPDATES/ and FAMILY-UPDATES-half/, their summaries into results/focal/half.json for docs/speed.md.
"""

from __future__ import annotations

import csv
import json
import shutil
import sys
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from omrl.families import FAMILIES
from omrl.runs.run import Run

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "focal"
PICTURE = ROOT / "docs" / "img" / "results.png"
COLOURS = {"measured": "#0072B2", "paper": "#D55E00", "dual": "#009E73"}


def read_summary(folder: Path) -> dict[str, Any]:
    """What `omrl evaluate --json` printed about a run."""
    path = folder / "summary.json"
    try:
        return dict(json.loads(path.read_text()))
    # A redirected command that failed leaves an empty file.
    except (OSError, ValueError):
        sys.exit(f"{path} is missing or not JSON; write it with: omrl evaluate {folder} --json > {path}")


def keep(folder: Path, name: str, *files: str) -> None:
    """Copy a run's config and these of its files to results/focal/NAME."""
    kept = RESULTS / name
    kept.mkdir(parents=True, exist_ok=True)
    for file in files:
        shutil.copy(folder / file, kept / file)
    # Where the data lay on the machine that trained says nothing to anybody else.
    config = asdict(Run.open(folder).config)
    (kept / "config.json").write_text(json.dumps(config | {"data": f"data/{config['family']}"}, indent=2) + "\n")


def publish(folder: Path) -> dict[str, Any]:
    """Copy a run's raw files and return its summary."""
    config: dict[str, Any] = asdict(Run.open(folder).config)
    summary = read_summary(folder)
    family, preset = config["family"], config["preset"]
    keep(folder, f"{family}-{preset}", "environment.json", "metrics.csv", "timings.json", "scores.csv")
    hardware = json.loads((folder / "environment.json").read_text())
    return {"family": family, "preset": preset, "level": config["level"], "hardware": hardware["gpu"], **summary}


def publish_half(single: Path, half: Path) -> list[dict[str, Any]]:
    """Copy the scores of a run without and one with `--bfloat16`, and return their summaries."""
    configs = [asdict(Run.open(folder).config) for folder in (single, half)]
    for config in configs:
        del config["data"]  # a folder's name, which may be another on another machine
    precisions = [config["hyperparameters"].pop("bfloat16") for config in configs]
    if precisions != [False, True] or configs[0] != configs[1]:
        sys.exit(f"{single} and {half} have to be the same run, the first without --bfloat16 and the second with it.")
    rows = []
    for folder, config, precision in zip((single, half), configs, precisions, strict=True):
        shared = {name: config[name] for name in ("family", "preset", "level")}
        hardware = json.loads((folder / "environment.json").read_text())["gpu"]
        rows.append({**shared, "half": precision, "hardware": hardware, **read_summary(folder)})
    for folder, row in zip((single, half), rows, strict=True):
        keep(folder, f"{row['family']}-{row['updates'] // 1000}k{'-half' if row['half'] else ''}", "scores.csv")
    return rows


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
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    figure = Figure(figsize=(11, 6.4), layout="constrained")
    labels: dict[str, Any] = {}
    for axes, family in zip(figure.subplots(2, 3).flat, FAMILIES, strict=True):
        axes.set_title(family, fontsize=10)
        own = [row for row in rows if row["family"] == family]
        for row in own:
            points = sorted(curve(RESULTS / f"{family}-{row['preset']}").items())
            steps, values = [step for step, _ in points], np.array([v for _, v in points])
            colour, label = COLOURS[row["preset"]], f"preset {row['preset']}, {row['seeds']} seeds"
            (labels[label],) = axes.plot(steps, values.mean(1), color=colour, marker="o", markersize=3)
            axes.fill_between(steps, values.min(1), values.max(1), color=colour, alpha=0.2, linewidth=0)
        for name, style in (("expert", "--"), ("random", ":")):
            if own:
                labels[f"{name} data"] = axes.axhline(own[0][name], color="#666666", linestyle=style, linewidth=1)
        axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.set_xlim(left=0)
        axes.set_xlabel("updates")
        axes.set_ylabel("mean return, test tasks")
        axes.grid(alpha=0.2)
    # One legend for all panels, below them, where it covers no curve.
    figure.legend(list(labels.values()), list(labels), loc="outside lower center", ncols=len(labels), fontsize=9)
    figure.savefig(PICTURE, dpi=120)


def main() -> None:
    """Publish the named runs beside those that are there."""
    if sys.argv[1:2] == ["--bfloat16"]:
        if len(sys.argv) != 4:
            sys.exit("--bfloat16 takes two runs: one without it, one with it.")
        rows = publish_half(Path(sys.argv[2]), Path(sys.argv[3]))
        (RESULTS / "half.json").write_text(json.dumps(rows, indent=1) + "\n")
        return
    path = RESULTS / "focal.json"
    found = {(row["family"], row["preset"]): row for row in (json.loads(path.read_text()) if path.exists() else [])}
    for folder in map(Path, sys.argv[1:]):
        row = publish(folder)
        found[row["family"], row["preset"]] = row
    for row in found.values():
        raw = RESULTS / f"{row['family']}-{row['preset']}" / "timings.json"
        row["seconds"] = json.loads(raw.read_text())["seconds"]
    order = list(FAMILIES)
    kept = sorted(found.values(), key=lambda row: (order.index(row["family"]), row["preset"]))
    path.write_text(json.dumps(kept, indent=1) + "\n")
    draw(kept)


if __name__ == "__main__":
    main()
