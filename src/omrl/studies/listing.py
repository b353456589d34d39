"""`omrl study list` and `omrl paper list`: the experiments of a study, and about what they cost. Needs no torch."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table

from omrl.commands.study import PaperList, StudyList
from omrl.studies.definitions import read_study
from omrl.studies.planning import jobs, minutes, plan, updates

# Columns of a terminal that has room for the whole list.
WIDE = 150
COLUMNS = ("name", "in the paper", "data", "rows", "runs", "updates", "full scale, one H200", "small scale, 2 cores")


def run(args: PaperList | StudyList) -> None:
    """The command."""
    print_list(*((args.file, args.trust) if isinstance(args, StudyList) else ()))


def overview(file: Path | None = None, trust: Sequence[str] = ()) -> list[tuple[str, ...]]:
    """A line for every experiment; runs are those of each by itself, some of which others have too."""
    study = read_study(file)
    study.check_trusted(trust)
    lines: list[tuple[str, ...]] = []
    for experiment in study.experiments.values():
        full, small = (jobs(plan(experiment, study.scales[scale])) for scale in ("full", "small"))
        counts = sorted({updates(job) for job in full})
        lines.append(
            (
                experiment.name,
                experiment.paper or "ours",
                "; ".join(data.title for data in experiment.data),
                "; ".join(row.label for row in experiment.rows),
                str(len(full)),
                " to ".join(f"{count:,}" for count in dict.fromkeys((counts[0], counts[-1]))),
                f"{minutes(full, 'full', study.around['full']):.0f} min",
                f"{minutes(small, 'small', study.around['small']):.1f} min",
            )
        )
    return lines


def print_list(file: Path | None = None, trust: Sequence[str] = ()) -> None:
    """The table of experiments."""
    # A pipe has no width to fit: there, every experiment stays on its line.
    console = Console(width=None if sys.stdout.isatty() else 500)
    # The name is what `omrl paper run` takes, and is never cut; a narrow terminal has no room for the longest columns.
    shown = [i for i, name in enumerate(COLUMNS) if console.width >= WIDE or name not in ("data", "rows", "updates")]
    table = Table(*(Column(COLUMNS[i], no_wrap=i == 0) for i in shown))
    for line in overview(file, trust):
        table.add_row(*(line[i] for i in shown))
    console.print(table)
    print("Experiments share runs, and what is there is not run again.")
