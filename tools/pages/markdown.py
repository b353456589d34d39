"""What all tables are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from omrl.evaluation.stats import Estimate


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], words: Sequence[str] = ()) -> str:
    """A Markdown table: the first column and those of words to the left, numbers to the right."""
    rule = ["---" if place == 0 or name in words else "---:" for place, name in enumerate(headings)]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in (headings, rule, *rows))


def number(value: float | None, digits: int) -> str:
    """A number that is not written as -0.00, or a dash."""
    return "-" if value is None else f"{round(value, digits) + 0.0:.{digits}f}"


def interval(found: Any, digits: int) -> str:
    """An estimate with its 95 % interval."""
    return Estimate(**found).text(digits)
