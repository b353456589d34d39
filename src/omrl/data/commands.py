"""`omrl data info | validate | import | export`: what each takes, and what it does.

Importing this module is cheap, so that `--help` is: what does the work is imported by the functions.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

if TYPE_CHECKING:
    from omrl.data.dataset import LevelFacts, MetaDataset


@dataclass(frozen=True)
class Info:
    """Show what a meta-dataset holds: tasks, rows, returns by quality level, sizes."""

    dir: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """The meta-dataset's folder."""
    tasks: bool = False
    """Also show every task."""
    json: bool = False
    """Print JSON for programs instead of tables."""


@dataclass(frozen=True)
class Validate:
    """Read a whole meta-dataset and check its checksums, every rule on every array, and its statistics.

    What is allowed but looks odd is noted: columns that never change, scales, tasks with few rows, and so on.
    """

    dir: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """The meta-dataset's folder."""


@dataclass(frozen=True)
class Import:
    """Turn logs into a meta-dataset.

    csv, npz, hdf5 and parquet are flat tables, one row per transition: one file with a task column, or a folder with
    one file per task. Columns that are not named by a flag are guessed, and the guess is shown. Minari: a folder with
    one dataset per task. npy: a folder per task with one file per array. focal: the trajectories of FOCAL's own code.
    A file or folder that `omrl data export` wrote needs no flags.

    Without next observations, the last row of an episode has no successor and is dropped, unless it terminates: then
    its own observation stands in, which nothing bootstraps from.
    """

    src: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="SRC")]
    """The file or folder to read."""
    dir: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """The meta-dataset to write."""
    format: Annotated[Literal["csv", "npz", "npy", "hdf5", "parquet", "minari", "focal"], tyro.conf.arg(name="from")]
    """The format of SRC."""
    task: str | None = None
    """Column that says which task a row belongs to."""
    episode: str | None = None
    """Column that numbers the episodes; without one, an episode ends where a flag is set."""
    step: str | None = None
    """Column that counts the steps of an episode; it serves only to check that rows are in order."""
    time: str | None = None
    """Column of times (datetimes, ISO text or epoch numbers): rows are sorted by it, and gaps end episodes."""
    gap: float | None = None
    """Seconds without a row that end an episode; without it, 5 times the median time between rows."""
    episode_length: int | None = None
    """Rows of every episode, where rows lie as they were logged and nothing else marks episodes."""
    in_order: bool = False
    """Rows lie as they were logged, although no column says so."""
    observations: tuple[str, ...] = ()
    """Column or columns of the observation."""
    actions: tuple[str, ...] = ()
    """Column or columns of the action."""
    rewards: str | None = None
    """Column of the reward."""
    next_observations: tuple[str, ...] = ()
    """Column or columns of the next observation; without them it is the next row's observation."""
    terminations: str | None = None
    """Column that is true where the task itself ended the episode (terminals in D4RL); "none": they never end so."""
    truncations: str | None = None
    """Column that is true where the log or a time limit ended the episode (timeouts in D4RL)."""
    missing: Literal["error", "drop", "forward"] = "error"
    """What to do with missing values: stop; drop the row and end the episode there; or carry the last value on."""
    categories: tuple[str, ...] = ()
    """Observation columns of words, which become one number for each word."""
    units: tuple[str, ...] = ()
    """Units of columns to keep with the data, as NAME=UNIT."""
    skip_tasks: tuple[str, ...] = ()
    """Tasks to leave out."""
    policy_step: str | None = None
    """Column with the training step of the policy that logged the row; it makes the quality levels."""
    rewards_dense: str | None = None
    """Column of a denser reward beside the one that is scored."""
    action_low: tuple[float, ...] = ()
    """Smallest possible action: one number, or one for each dimension."""
    action_high: tuple[float, ...] = ()
    """Largest possible action: one number, or one for each dimension."""
    action_kind: Literal["continuous", "discrete"] | None = None
    """Whether actions are amounts, between which others make sense, or choices; asked for where it is not clear."""
    varies: Literal["reward", "dynamics", "both"] | None = None
    """What differs between the tasks."""
    horizon: int | None = None
    """How many first steps of an episode make its return; without it, all."""
    test_tasks: tuple[str, ...] | None = None
    """The tasks to hold out for testing."""
    test_fraction: float | None = None
    """Share of the tasks to hold out, drawn at random."""
    seed: int = 0
    """Seed of that draw."""
    family: str | None = None
    """The family of omrl's that the logs are of; its dimensions are checked, and it knows bounds and what varies."""
    task_params: Path | None = None
    """JSON file with what is known of each task: {"task": {"parameter": value}}."""
    max_gb: float | None = None
    """Most that a file may unpack to, in GB; without it 100 times its size, or a quarter of a GB if that is more."""
    force: bool = False
    """Replace an existing meta-dataset."""

    @property
    def described(self) -> tuple[str, ...]:
        """The flags given that describe the data."""
        about_files = ("src", "dir", "format", "max_gb", "force")
        fields = [field for field in dataclasses.fields(self) if field.name not in about_files]
        given = [field.name for field in fields if getattr(self, field.name) != field.default]
        return tuple("--" + name.replace("_", "-") for name in given)


@dataclass(frozen=True)
class Export:
    """Write a meta-dataset in an exchange format, without loss.

    hdf5: one flat file. minari: one dataset per task, named omrl/NAME/TASK-v0, where DST is the folder that
    MINARI_DATASETS_PATH should point to.
    """

    dir: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """The meta-dataset's folder."""
    dst: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DST")]
    """The file (hdf5) or Minari folder (minari) to write."""
    format: Annotated[Literal["minari", "hdf5"], tyro.conf.arg(name="to")]
    """The format of DST."""
    force: bool = False
    """Replace an earlier export."""


DataCommand = (
    Annotated[Info, tyro.conf.subcommand("info")]
    | Annotated[Validate, tyro.conf.subcommand("validate")]
    | Annotated[Import, tyro.conf.subcommand("import")]
    | Annotated[Export, tyro.conf.subcommand("export")]
)


def run(args: DataCommand) -> None:
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
    from omrl.data.dataset import MetaDataset

    dataset = MetaDataset.open(args.dir)
    if args.json:
        print(json.dumps(summary(dataset)))
    else:
        _print_tables(dataset, args.tasks)


def summary(dataset: MetaDataset) -> dict[str, Any]:
    """The manifest as JSON, with totals and what each level is like."""
    from omrl.data.manifest import as_plain

    manifest = dataset.manifest
    return {
        **as_plain(manifest),
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
    from rich.console import Console
    from rich.markup import escape  # names are a user's own and may look like markup
    from rich.table import Table

    manifest, facts = dataset.manifest, summary(dataset)
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
    from rich.markup import escape

    from omrl.data.findings import column_names

    if dataset.manifest.columns is None:
        return ""
    names = [name if unit is None else f"{name} ({unit})" for name, unit in column_names(dataset, part)]
    return escape(": " + ", ".join(names if len(names) <= 6 else [*names[:3], "...", names[-1]]))


def validate(args: Validate) -> None:
    """Check everything there is to check; the first problem is the error."""
    from omrl.data.dataset import MetaDataset

    dataset = MetaDataset.open(args.dir)
    dataset.validate()
    rows = sum(entry.rows for entry in dataset.manifest.tasks)
    print(f"OK: {len(dataset.tasks)} tasks, {rows:,} rows")
    _print_findings(dataset)


def import_logs(args: Import) -> None:
    """Write a meta-dataset from logs in another format."""
    from omrl.data import interchange

    dataset = interchange.read(args)
    rows = sum(entry.rows for entry in dataset.manifest.tasks)
    print(f"wrote {args.dir}: {len(dataset.tasks)} tasks, {rows:,} rows")
    _print_findings(dataset)


def _print_findings(dataset: MetaDataset) -> None:
    """What one should know before training."""
    from omrl.data.findings import findings

    for line in findings(dataset):
        print(f"note: {line}")


def export(args: Export) -> None:
    """Write a meta-dataset in an exchange format."""
    from omrl.data import interchange
    from omrl.data.dataset import MetaDataset

    interchange.write(MetaDataset.open(args.dir), args.dst, args.format, force=args.force)
    print(f"wrote {args.dst}")
