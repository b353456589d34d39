"""Pictures of the pages that no experiment draws by itself.

    make quickstart
    python tools/pictures.py quickstart/report

joins docs/img/adapted.png, the one of README.md, from figures of a report: on the left the adapted policies' ways to
the goals, on the right the embeddings by t-SNE. What all comparisons say in one picture, and the curves of each
experiment, are drawn from raw files by tools/publish.py.
"""

from __future__ import annotations

import csv
import gzip
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from PIL import Image

from omrl.drawing import studies
from omrl.drawing.style import COLOURS, INK, STYLE
from omrl.reporting.gather import Curve
from omrl.studies.definitions import Row

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "img"
HEIGHT, MARGIN = 620, 24
# Comparisons beside one another.
COLUMNS = 3


def overview(compared: Sequence[Mapping[str, Any]], target: Path) -> None:
    """What every row of the comparisons reaches on their families' data, in units of that data."""
    labels = list(dict.fromkeys(row["row"] for results in compared for row in results["rows"]))
    labels.sort(key=lambda label: not label.startswith("FOCAL"))
    with rc_context(STYLE):
        lines = -(-len(compared) // COLUMNS)
        size = (2.2 + 2.1 * min(len(compared), COLUMNS), (0.9 + 0.24 * len(labels)) * lines)
        figure = Figure(size, layout="constrained", facecolor="white")
        panels = figure.subplots(lines, min(len(compared), COLUMNS), sharey=True, squeeze=False).flatten()
        for axes, results in zip(panels, compared, strict=False):
            for row in results["rows"]:
                if None in (row["expert"], row["random"], row["mean"]["low"]):
                    continue  # no simulator, or one seed
                way, place = row["expert"] - row["random"], labels.index(row["row"])
                value, low, high = ((row["mean"][key] - row["random"]) / way for key in ("value", "low", "high"))
                colour = COLOURS[0] if row["row"].startswith("FOCAL") else COLOURS[1]
                axes.plot([low, high], [place, place], color=colour, linewidth=1.4)
                axes.plot([value], [place], "o", color=colour, markersize=4.5)
            axes.axvline(1.0, color=INK, linewidth=0.8, linestyle=":")
            first = results["rows"][0]
            axes.set_title(first["family"], fontsize=8.5)
            axes.set_xlabel(f"normalised return, {first['level']} data")
        for axes in panels[len(compared) :]:
            axes.set_visible(False)
        panels[0].set_yticks(range(len(labels)), labels)
        panels[0].invert_yaxis()
        figure.savefig(target, dpi=120)


def drawn_again(results: Mapping[str, Any], kind: str, target: Path) -> None:
    """A figure of returns or of Q as an experiment draws it, from what is published of it in its `folder`."""
    found: dict[tuple[str, str], dict[str, dict[int, dict[float, float]]]] = {}
    with gzip.open(results["folder"] / "curves.csv.gz", "rt", newline="") as opened:
        for line in csv.DictReader(opened):
            seeds = found.setdefault((line["data"], line["row"]), {}).setdefault(line["metric"], {})
            seeds.setdefault(int(line["seed"]), {})[float(line["transitions"])] = float(line["value"])
    rows = {row["row"]: Row(row["row"], row["algorithm"]) for row in results["rows"]}
    outcomes: list[Any] = []
    for row in results["rows"]:
        of_row = {metric: _curve(seeds) for metric, seeds in found.get((row["data"], row["row"]), {}).items()}
        # How broad the logged actions are is in the title of data that was logged so.
        _, broad, std = row["data"].partition(", action std ")
        data = SimpleNamespace(action_std=float(std) if broad else None)
        cell = SimpleNamespace(title=row["data"], row=rows[row["row"]], data=data)
        outcomes.append(SimpleNamespace(cell=cell, facts=SimpleNamespace(curves=of_row), summary={"mean": row["mean"]}))
    experiment: Any = SimpleNamespace(rows=tuple(rows.values()))
    with rc_context(STYLE):
        breadth = kind == "breadth"
        figure = studies.breadth(experiment, outcomes) if breadth else studies.curves(experiment, outcomes, kind)
        figure.savefig(target, dpi=160, facecolor="white")


def _curve(seeds: Mapping[int, Mapping[float, float]]) -> Curve:
    """Values [seeds, looks]; a seed that stopped has none from there on."""
    at = np.array(sorted({place for own in seeds.values() for place in own}))
    return Curve(at, at, np.array([[own.get(place, np.nan) for place in at] for own in seeds.values()]))


def adapted(report: Path, target: Path) -> None:
    """Two figures of a report, side by side."""
    parts = [_scaled(report, kind) for kind in ("policy", "tsne")]
    size = (sum(part.width for part in parts) + 3 * MARGIN, HEIGHT + 2 * MARGIN)
    picture = Image.new("RGB", size, "white")
    picture.paste(parts[0], (MARGIN, MARGIN))
    picture.paste(parts[1], (parts[0].width + 2 * MARGIN, MARGIN))
    picture.quantize(128).save(target, optimize=True)


def _scaled(report: Path, kind: str) -> Image.Image:
    """The report's first figure of a kind, at the picture's height."""
    figure = Image.open(sorted((report / "figures").glob(f"{kind}-*.png"))[0]).convert("RGB")
    return figure.resize((round(figure.width * HEIGHT / figure.height), HEIGHT), Image.Resampling.LANCZOS)


def main() -> None:
    """Draw it."""
    if len(sys.argv) != 2:
        sys.exit("Name a report: python tools/pictures.py quickstart/report")
    adapted(Path(sys.argv[1]), PICTURES / "adapted.png")


if __name__ == "__main__":
    main()
