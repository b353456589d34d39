"""Pictures of the pages that no experiment draws by itself.

    make quickstart
    python tools/pictures.py quickstart/report

joins docs/img/adapted.png, the one of README.md, from figures of a report: on the left the adapted policies' ways to
the goals, on the right the embeddings by t-SNE. What all comparisons say in one picture is drawn by tools/publish.py.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from PIL import Image

from omrl.drawing.style import COLOURS, INK, STYLE

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
