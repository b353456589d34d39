"""`omrl tune`: measures the trials of rows, keeps them in a file and prints them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from omrl.commands.tune import Tune
from omrl.errors import OmrlError
from omrl.tuning.rows import chosen_rows
from omrl.tuning.trying import keep, measure


def run(args: Tune) -> None:
    """The command."""
    for name in ("steps", "seeds", "episodes"):
        if getattr(args, name) < 1:
            raise OmrlError(f"--{name} must be at least 1, not {getattr(args, name)}.")
    table = Table("row", "trial", "score", "normalised", "beside the logger")
    for row in chosen_rows(args):
        found = measure(args, row)
        keep(args.out, found)
        for one in found:
            table.add_row(
                row.label, shown(one["trial"]), f"{one['return']:.2f}", _normalised(one), one["verdict"] or ""
            )
        best = max(found, key=lambda one: one["return"])
        table.add_row(row.label, f"best of {len(found)}: {shown(best['trial'])}", "", "", "", style="bold")
    Console(width=140).print(table)


def shown(trial: Mapping[str, float]) -> str:
    """In words."""
    return ", ".join(f"{name} {value:g}" for name, value in trial.items())


def _normalised(one: Mapping[str, Any]) -> str:
    return "" if one["normalised"] is None else f"{one['normalised']:.3f}"
