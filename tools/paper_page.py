"""Write the lists of docs/paper.md from src/omrl/studies/paper.toml.

    python tools/paper_page.py

A list stands between `<!-- experiments: NAME -->` and `<!-- /experiments -->`.
"""

from __future__ import annotations

import re
from pathlib import Path

from tables_markdown import table

from omrl.studies.definitions import experiments
from omrl.studies.listing import COLUMNS, overview

CLAIMS = ("experiment", "whose", "claim", "compared")
PAGE = Path(__file__).resolve().parents[1] / "docs" / "paper.md"


def lists() -> dict[str, str]:
    """Both lists by name."""
    claims = [
        (experiment.name, claim.whose, claim.text, claim.comparison)
        for experiment in experiments().values()
        for claim in experiment.claims
    ]
    return {
        "list": table(COLUMNS, overview(), COLUMNS),
        "claims": table(CLAIMS, claims, CLAIMS),
    }


def main() -> None:
    """Bring the page up to date."""
    text = PAGE.read_text()
    for name, content in lists().items():
        start, end = f"<!-- experiments: {name} -->\n", "<!-- /experiments -->"
        text = re.sub(f"({re.escape(start)}).*?({re.escape(end)})", rf"\g<1>{content}\g<2>", text, flags=re.DOTALL)
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
