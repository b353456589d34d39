"""How the report's figures look, and how they get into files and into the page.

A figure is drawn once: as SVG and PNG files on white, and as SVG inside the page in the page's own ink. What belongs to
one run is a group of its own, so that the page can hide it. Text is drawn as text, and what comes from files never as a
formula.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, Formatter, FuncFormatter, MaxNLocator
from mpl_toolkits.mplot3d import Axes3D

from omrl.storage.files import replacing, write_text

Array = np.ndarray[Any, Any]
# Okabe and Ito's colours, those that are seen on white and on black; further runs differ by the line.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
Dash = str | tuple[int, tuple[float, ...]]
"""A line's style, as matplotlib takes it."""
DASHES: tuple[Dash, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))
MARKERS = "osD^vP"
# Axes and text; on the page it becomes the colour of the text around the figure.
INK = "#1b1d22"
STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 8.5,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": INK,
    "grid.alpha": 0.12,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "svg.fonttype": "none",
    "svg.hashsalt": "omrl",
    "text.parse_math": False,
}


@dataclass(frozen=True)
class Drawn:
    """A figure of the page: its files' name, what it shows in words, and its SVG."""

    name: str
    caption: str
    svg: str
    width: float
    """Inches; the page shows it no larger than it was drawn for."""
    wide: bool = False
    run: int | None = None


@contextmanager
def style() -> Iterator[None]:
    """Draw in the report's style."""
    with rc_context(STYLE):
        yield


def finish(figure: Figure, folder: Path, name: str, caption: str, wide: bool = False, run: int | None = None) -> Drawn:
    """Write both files, and make the SVG that goes into the page."""
    text = StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    # Runs are marked by the id of their group, which stands once per artist; in the file as on the page it is a class.
    svg = re.sub(r'<g id="run-(\d+)">', r'<g class="run-\1">', text.getvalue())
    write_text(folder / f"{name}.svg", svg)
    figure.set_layout_engine("none")  # everything has its place now
    with replacing(folder / f"{name}.png") as temporary:
        figure.savefig(temporary, dpi=160, facecolor="white", format="png")
    return Drawn(name, caption, inline(svg, name), float(figure.get_figwidth()), wide, run)


def inline(svg: str, name: str) -> str:
    """An SVG for the page: no prologue, ids that no other figure has, runs marked for the page, text in its colour."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' id="([^"]+)"', rf' id="{name}-\1"', svg)
    svg = re.sub(r'="#([^"]+)"', rf'="#{name}-\1"', svg)
    svg = svg.replace("url(#", f"url(#{name}-")
    svg = re.sub(r'<g class="run-(\d+)">', r'<g data-run="\1">', svg)
    svg = re.sub(r'<svg([^>]*?) width="[^"]*"', r"<svg\1", svg, count=1)
    svg = re.sub(r'<svg([^>]*?) height="[^"]*"', r"<svg\1", svg, count=1)
    return svg.replace(INK, "currentColor")


def colour(run: int) -> str:
    """A run's colour, the same everywhere."""
    return COLOURS[run % len(COLOURS)]


def dash(run: int) -> Dash:
    """A run's line, so that runs differ without colour too."""
    return DASHES[run % len(DASHES)]


def mark(run: int, artists: Sequence[Artist]) -> None:
    """Make artists a run's own."""
    for artist in artists:
        artist.set_gid(f"run-{run}")


def legend(axes: Axes, runs: Sequence[int | None], **options: object) -> None:
    """A legend whose entries disappear with their runs."""
    drawn = axes.legend(**options)
    for run, text, handle in zip(runs, drawn.get_texts(), drawn.legend_handles, strict=True):
        if run is not None and handle is not None:
            mark(run, [text, handle])


def new(width: float, height: float) -> Figure:
    """An empty figure, in inches."""
    return Figure(figsize=(width, height), layout="constrained")


def space(figure: Figure, *place: int) -> Axes3D:
    """Axes in space, with a light grid, few ticks and small labels, which lie close together there."""
    with rc_context({"grid.color": "#d0d0d0"}):  # grids in space ignore the style's transparency
        axes: Axes3D = figure.add_subplot(*place, projection="3d")
    axes.set_box_aspect((1, 1, 1))
    axes.tick_params(labelsize=6, pad=0)
    axes.tick_params("z", pad=2)
    for axis in (axes.xaxis, axes.yaxis, axes.zaxis):
        axis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    return axes


def amounts() -> Formatter:
    """Ticks such as 200k and 3M; below 1 they are plain numbers, because 100m does not look like a tenth."""
    large = EngFormatter(sep="")
    return FuncFormatter(lambda value, _: f"{value:g}" if abs(value) < 1 else large(value))


def shortened(name: str, limit: int = 28) -> str:
    """A name that fits into a legend."""
    return name if len(name) <= limit else name[: limit - 1] + "…"


def task_colours(values: Array) -> list[str]:
    """Colours along the task parameter, from the part of viridis that is seen on white and on black."""
    spread = float(np.ptp(values)) or 1.0
    ramp = colormaps["viridis"]  # a new one each time it is asked for
    return [to_hex(ramp(0.22 + 0.7 * float(v - values.min()) / spread)) for v in values]


def colour_bar(figure: Figure, axes: Axes | Axes3D, label: str, values: Array, *, pad: float | None = None) -> None:
    """The scale of `task_colours`."""
    ramp = ListedColormap(task_colours(np.linspace(0, 1, 64)))
    low, high = float(values.min()), float(values.max())
    scale = ScalarMappable(Normalize(low, high if high > low else low + 1), ramp)
    place: Any = {} if pad is None else {"pad": pad}
    bar = figure.colorbar(scale, ax=axes, shrink=0.8, **place)
    bar.set_label(label)
    bar.outline.set_visible(False)
