"""Pictures of README.md and of docs/results.md.

    python tools/pictures.py curves

draws docs/img/results.png: how the published runs of FOCAL learned.

    omrl report runs/sparse-point-robot-measured --out report-left
    omrl report runs/half-cheetah-vel-measured --out report-right
    python tools/pictures.py adapted report-left report-right

joins docs/img/adapted.png from figures of two reports: on the left the adapted policies' ways to the goals, on the
right the embeddings by t-SNE.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter
from PIL import Image
from publish import RESULTS, published

from omrl.families import FAMILIES
from omrl.runs.records import read_metrics

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "img"
HEIGHT, MARGIN = 620, 24
COLOURS = {"measured": "#0072B2", "paper": "#D55E00", "dual": "#009E73"}


def curves(rows: list[dict[str, Any]], target: Path) -> None:
    """One panel per family: mean and range over seeds, with the data's own random and expert returns."""
    figure = Figure(figsize=(11, 6.4), layout="constrained")
    labels: dict[str, Any] = {}
    for axes, family in zip(figure.subplots(2, 3).flat, FAMILIES, strict=True):
        axes.set_title(family, fontsize=10)
        own = [row for row in rows if row["family"] == family]
        for row in own:
            curve = read_metrics(row["folder"] / "metrics.csv")["return"]
            colour, label = COLOURS[row["preset"]], f"preset {row['preset']}, {row['seeds']} seeds"
            (labels[label],) = axes.plot(curve.steps, curve.values.mean(0), color=colour, marker="o", markersize=3)
            low, high = curve.values.min(0), curve.values.max(0)
            axes.fill_between(curve.steps, low, high, color=colour, alpha=0.2, linewidth=0)
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
    figure.savefig(target, dpi=120)


def adapted(left: Path, right: Path, target: Path) -> None:
    """The figures of two reports, side by side."""
    parts = _scaled(left, "policy"), _scaled(right, "tsne")
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
    """Draw what is named."""
    match sys.argv[1:]:
        case ["curves"]:
            curves(published(RESULTS / "focal"), PICTURES / "results.png")
        case ["adapted", left, right]:
            adapted(Path(left), Path(right), PICTURES / "adapted.png")
        case _:
            sys.exit("Say which: python tools/pictures.py curves, or adapted LEFT RIGHT")


if __name__ == "__main__":
    main()
