"""The picture of README.md.

    make quickstart
    python tools/pictures.py quickstart/report

joins docs/img/adapted.png from figures of a report: on the left the adapted policies' ways to the goals, on the right
the embeddings by t-SNE.
"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "img"
HEIGHT, MARGIN = 620, 24


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
