"""The command line: thin, and quick to answer. What a command needs is imported when it runs."""

from __future__ import annotations

import errno
import json
import os
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated

import tyro
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, OmitSubcommandPrefixes, Positional, subcommand

from omrl import training
from omrl.behaviour import collect
from omrl.behaviour.collect import Collect
from omrl.data.commands import DataCommand
from omrl.errors import OmrlError
from omrl.evaluation import Evaluate
from omrl.exporting import Export
from omrl.learning.bench import Bench
from omrl.quickstart import Quickstart
from omrl.reporting import Report
from omrl.runs.calibrating import Calibrate
from omrl.storage.adopting import Adopt
from omrl.studies import Paper, Study
from omrl.training import Train
from omrl.tuning import Tune

FLAGS = (OmitArgPrefixes, OmitSubcommandPrefixes, FlagCreatePairsOff)
# What a user can mend about a path: a full disk, no permission, a file where a folder should be, too long a name.
MENDABLE = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EACCES,
    errno.EROFS,
    errno.EEXIST,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ENAMETOOLONG,
)


@dataclass(frozen=True)
class Families:
    """List the task families."""

    json: bool = False
    """Print JSON for programs instead of a table."""


@dataclass(frozen=True)
class Render:
    """Draw a picture of each family."""

    out: Positional[Path]
    """Folder for the pictures."""


@dataclass(frozen=True)
class Data:
    """Look at, check, import and export meta-datasets."""

    command: DataCommand


Command = (
    Annotated[Families, subcommand("families")]
    | Annotated[Render, subcommand("render")]
    | Annotated[Data, subcommand("data")]
    | Annotated[Collect, subcommand("collect")]
    | Annotated[Train, subcommand("train")]
    | Annotated[Evaluate, subcommand("evaluate")]
    | Annotated[Report, subcommand("report")]
    | Annotated[Calibrate, subcommand("calibrate")]
    | Annotated[Export, subcommand("export")]
    | Annotated[Paper, subcommand("paper")]
    | Annotated[Study, subcommand("study")]
    | Annotated[Tune, subcommand("tune")]
    | Annotated[Adopt, subcommand("adopt")]
    | Annotated[Bench, subcommand("bench")]
    | Annotated[Quickstart, subcommand("quickstart")]
)


def run(command: Command) -> None:
    """Run a parsed command."""
    match command:
        case Families():
            list_families(command.json)
        case Render():
            from omrl.drawing.families import draw
            from omrl.families import FAMILIES

            for family in FAMILIES.values():
                print(draw(family, command.out))
        case Data():
            from omrl.data import commands

            commands.run(command.command)
        case Collect():
            # `main` takes the family's own flags where its name comes first.
            raise OmrlError(f"Name the family first: omrl collect {command.family} --out ...")
        case Train():
            # `main` takes the algorithm's own flags where its name comes first.
            raise OmrlError(f"Name the algorithm first: omrl train {command.algorithm} --data ... --out ...")
        case Evaluate():
            from omrl.evaluation import run as evaluate

            evaluate(command)
        case Report():
            from omrl.reporting import run as report

            report(command)
        case Calibrate():
            from omrl.runs.calibrating import run as calibrate

            calibrate(command)
        case Export():
            from omrl.exporting import run as export

            export(command)
        case Paper() | Study():
            from omrl.studies import run as study

            study(command)
        case Tune():
            from omrl.tuning import run as tune

            tune(command)
        case Adopt():
            from omrl.storage.adopting import run as adopt

            adopt(command)
        case Bench():
            from omrl.learning.bench import run as bench

            bench(command)
        case Quickstart():
            from omrl.quickstart import run as quickstart

            quickstart(command)


def list_families(as_json: bool) -> None:
    """Print the table of families, or the same as JSON."""
    from omrl.families import FAMILIES

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
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    from rich.console import Console
    from rich.table import Column, Table

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


def main() -> None:
    """Parse, run, and turn what a user can mend into one sentence and exit code 2."""
    arguments = sys.argv[1:]
    if "OMP_WAIT_POLICY" not in os.environ:
        # Before torch is loaded: its threads spin while they wait for one another, and where other programs keep the
        # cores busy, small networks then learn a hundred times slower. So short a wait costs an idle machine nothing.
        os.environ.setdefault("GOMP_SPINCOUNT", "3000")
    if arguments == ["--version"]:
        print(f"omrl {metadata.version('omrl')}")
        return
    sys.path.append("")  # `module:Class` is looked for in the working directory too
    try:
        if len(arguments) > 1 and arguments[0] == "train" and not arguments[1].startswith("-"):
            # Which flags there are depends on the algorithm.
            trained = training.run(*training.parse(arguments[1:], prog="omrl train", config=(OmitArgPrefixes,)))
            if trained is not None:
                own = f" --trust {trained.config.algorithm}" if ":" in trained.config.algorithm else ""
                print(f"{trained.folder} is trained; `omrl evaluate {trained.folder}{own}` tests it.")
        elif len(arguments) > 1 and arguments[0] == "collect" and not arguments[1].startswith("-"):
            # So do the defaults of a family's agents.
            from omrl.data.commands import Info, info

            options = (OmitArgPrefixes, FlagCreatePairsOff)
            made = collect.run(*collect.parse(arguments[1:], prog="omrl collect", config=options))
            if made is not None and made.path is not None:
                info(Info(made.path))
        else:
            run(
                tyro.cli(
                    Command,
                    prog="omrl",
                    description="Offline meta-reinforcement learning: many tasks' logs in, one policy that adapts out.",
                    config=FLAGS,
                )
            )
        sys.stdout.flush()
    except OmrlError as error:
        sys.exit(_fail(str(error)))
    except BrokenPipeError:
        # Nobody reads on; what is still buffered must not fail at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        if error.errno not in MENDABLE:
            raise
        sys.exit(_fail(f"{error.filename or 'A file'} could not be written: {error.strerror}."))
    except KeyboardInterrupt:
        print("\ninterrupted; the same command goes on from the last save, where there is one", file=sys.stderr)
        sys.exit(130)


def _fail(sentence: str) -> int:
    print(f"error: {sentence}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
