"""`omrl families`: what families there are."""

from __future__ import annotations

import json
import sys

from rich.console import Console
from rich.table import Column, Table

from omrl.commands.families import Families
from omrl.families import FAMILIES


def run(args: Families) -> None:
    """Print the table of families, or the same as JSON."""
    rows = [
        {
            "family": family.name,
            "id": family.env_id,
            "tasks": len(family.tasks),
            "splits": {name: {"train": len(s.train), "test": len(s.test)} for name, s in family.splits.items()},
            "observations": family.obs_dim,
            "actions": family.act_dim,
            "horizon": family.horizon,
            "varies": family.varies,
            "summary": family.summary,
        }
        for family in FAMILIES.values()
    ]
    if args.json:
        print(json.dumps(rows, indent=2))
        return
    # What is typed elsewhere is never cut.
    table = Table(
        Column("family", no_wrap=True),
        Column("gymnasium id", overflow="fold"),
        "tasks",
        "train/test",
        "obs",
        "act",
        "horizon",
        "varies",
    )
    for row in rows:
        splits = ", ".join(f"{s['train']}/{s['test']}" for s in row["splits"].values())  # type: ignore[attr-defined]
        numbers = (row["tasks"], splits, row["observations"], row["actions"], row["horizon"])
        table.add_row(row["family"], row["id"], *map(str, numbers), row["varies"])  # type: ignore[arg-type]
    # A pipe has no width to fit: there, every row stays on its line.
    Console(width=None if sys.stdout.isatty() else 200).print(table)
