"""What `omrl data info | validate | import | export` take."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro


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


@dataclass(frozen=True)
class Data:
    """Look at, check, import and export meta-datasets."""

    command: DataCommand
