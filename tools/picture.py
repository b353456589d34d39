"""The picture at the top of README.md, from the figures of two reports.

    omrl report runs/sparse-point-robot-measured --out report-left
    omrl report runs/half-cheetah-vel-measured --out report-right
    python tools/picture.py report-left report-right

On the left the adapted policies' ways to the goals, on the right the embeddings by t-SNE.
"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image

TARGET = Path(__file__).resolve().parents[1] / "docs" / "img" / "adapted.png"
HEIGHT, MARGIN = 620, 24


def scaled(report: str, kind: str) -> Image.Image:
    """The report's first figure of a kind, at the picture's height."""
    figure = Image.open(sorted((Path(report) / "figures").glob(f"{kind}-*.png"))[0]).convert("RGB")
    return figure.resize((round(figure.width * HEIGHT / figure.height), HEIGHT), Image.Resampling.LANCZOS)


def main() -> None:
    """Join the two figures."""
    left, right = scaled(sys.argv[1], "policy"), scaled(sys.argv[2], "tsne")
    size = (left.width + right.width + 3 * MARGIN, HEIGHT + 2 * MARGIN)
    picture = Image.new("RGB", size, "white")
    picture.paste(left, (MARGIN, MARGIN))
    picture.paste(right, (left.width + 2 * MARGIN, MARGIN))
    picture.quantize(128).save(TARGET, optimize=True)
    print(TARGET)


if __name__ == "__main__":
    main()
