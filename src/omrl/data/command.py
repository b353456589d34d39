"""`omrl data info | validate | import | export`: does what each is asked for, and prints it."""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console
from rich.markup import escape  # names are a user's own and may look like markup
from rich.table import Table

from omrl.commands.data import Export, Import, Info, Validate
from omrl.data import interchange
from omrl.data.dataset import LevelFacts, MetaDataset
from omrl.data.findings import column_names, findings
from omrl.data.manifest import as_object


def run(args: Info | Validate | Import | Export) -> None:
    """Run any of the four commands."""
    match args:
        case Info():
            info(args)
        case Validate():
            validate(args)
        case Import():
            import_logs(args)
        case Export():
            export(args)


def info(args: Info) -> None:
    """Print what a meta-dataset holds; only its manifest is read."""
    dataset = MetaDataset.open(args.dir)
    if args.json:
        print(json.dumps(summary(dataset)))
    else:
        _print_tables(dataset, args.tasks)


def summary(dataset: MetaDataset) -> dict[str, object]:
    """The manifest as JSON, with totals and what each level is like."""
    manifest = dataset.manifest
    return {
        **as_object(manifest),
        "rows": sum(entry.rows for entry in manifest.tasks),
        "episodes": sum(entry.episodes for entry in manifest.tasks),
        "bytes": sum(entry.bytes for entry in manifest.tasks),
        "levels": {level: _level_summary(dataset.level_facts(level)) for level in dataset.levels},
    }


def _level_summary(facts: LevelFacts) -> dict[str, Any]:
    return {
        "mean_return": float(facts.returns.mean()),
        "rows": facts.rows,
        "rewarded": facts.rewarded,
        "action_std": facts.action_std,
    }


def _print_tables(dataset: MetaDataset, tasks: bool) -> None:
    manifest = dataset.manifest
    facts: dict[str, Any] = summary(dataset)
    split = f"{len(manifest.split.train)} train, {len(manifest.split.test)} test"
    low, high = ([f"{bound:g}" for bound in bounds] for bounds in (manifest.action_low, manifest.action_high))
    bounds = f"in [{low[0]}, {high[0]}]" if len({*zip(low, high, strict=True)}) == 1 else "with bounds per dimension"
    overview = Table(show_header=False, title=escape(str(dataset.path)), title_justify="left")
    overview.add_row("family", escape(manifest.family or "own logs"))
    overview.add_row("varies", manifest.varies)
    overview.add_row("tasks", f"{len(manifest.tasks)} ({split})")
    overview.add_row("rows", f"{facts['rows']:,} in {facts['episodes']:,} episodes")
    overview.add_row("observations", f"{manifest.observation_dim} numbers{_named(dataset, 'observations')}")
    choices = "" if manifest.discrete_actions is None else ", discrete"
    overview.add_row("actions", f"{manifest.action_dim} numbers {bounds}{choices}{_named(dataset, 'actions')}")
    overview.add_row("return", "over the whole episode" if not manifest.horizon else f"over {manifest.horizon} steps")
    overview.add_row("size", f"{facts['bytes'] / 1e6:,.1f} MB")
    # A pipe has no width to fit into: there every row stays on its line.
    console = Console(width=None if sys.stdout.isatty() else 1000)
    console.print(overview)

    known = {level: dataset.level_facts(level) for level in dataset.levels}
    levels = Table(title="quality levels", title_justify="left")
    for heading in ("level", "rows", "mean return", "worst task", "best task", "rewarded rows", "action std"):
        levels.add_column(heading, justify="left" if heading == "level" else "right")
    for level, of_level in known.items():
        returns = of_level.returns
        levels.add_row(
            level,
            f"{of_level.rows:,}",
            *(f"{number:.2f}" for number in (returns.mean(), returns.min(), returns.max())),
            "-" if of_level.rewarded is None else f"{of_level.rewarded:.0%}",
            "-" if of_level.action_std is None else f"{of_level.action_std:.2f}",
        )
    console.print(levels)
    if any(of_level.action_std is not None for of_level in known.values()):
        console.print("action std: standard deviation of the logged actions before tanh, which says how broad they are")

    if tasks:
        table = Table(title="tasks", title_justify="left")
        for heading in ("task", "split", "rows", "episodes", *known, "params"):
            # A narrow terminal breaks the parameters rather than a name or a number.
            right = heading in ("rows", "episodes", *known)
            table.add_column(heading, justify="right" if right else "left", no_wrap=heading != "params")
        for position, entry in enumerate(manifest.tasks):
            parts = [part for part, names in dataset.split.items() if entry.name in names]
            params = json.dumps(entry.params)
            table.add_row(
                escape(entry.name),
                "+".join(parts) or "-",
                f"{entry.rows:,}",
                f"{entry.episodes:,}",
                *(f"{of_level.returns[position]:.2f}" for of_level in known.values()),
                escape(params if len(params) <= 60 else params[:57] + "..."),
            )
        console.print(table)


def _named(dataset: MetaDataset, part: str) -> str:
    """`: pressure (bar), target`, where the data has names for them and they are few."""
    if dataset.manifest.columns is None:
        return ""
    names = [name if unit is None else f"{name} ({unit})" for name, unit in column_names(dataset, part)]
    return escape(": " + ", ".join(names if len(names) <= 6 else [*names[:3], "...", names[-1]]))


def validate(args: Validate) -> None:
    """Check everything there is to check; the first problem is the error."""
    dataset = MetaDataset.open(args.dir)
    dataset.validate()
    rows = sum(entry.rows for entry in dataset.manifest.tasks)
    print(f"OK: {len(dataset.tasks)} tasks, {rows:,} rows")
    _print_findings(dataset)


def import_logs(args: Import) -> None:
    """Write a meta-dataset from logs in another format."""
    dataset = interchange.read(args)
    rows = sum(entry.rows for entry in dataset.manifest.tasks)
    print(f"wrote {args.dir}: {len(dataset.tasks)} tasks, {rows:,} rows")
    _print_findings(dataset)


def _print_findings(dataset: MetaDataset) -> None:
    """What one should know before training."""
    for line in findings(dataset):
        print(f"note: {line}")


def export(args: Export) -> None:
    """Write a meta-dataset in an exchange format."""
    interchange.write(MetaDataset.open(args.dir), args.dst, args.format, force=args.force)
    print(f"wrote {args.dst}")
