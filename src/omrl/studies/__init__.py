"""Studies: named experiments that compare algorithms on data, from a file. The paper is one of them.

    omrl study run mine.toml            anyone's
    omrl paper run dml-vs-bellman       the paper's figures and tables, whose file comes with omrl

A study says of each experiment its data, its rows, its figures and tables, and its claims with the comparisons by which
they are judged. Importing this is cheap; what needs torch is imported when an experiment runs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro import MISSING
from tyro.conf import Positional, subcommand


@dataclass(frozen=True)
class PaperList:
    """List the experiments: what they show in the paper, their rows, and about what they cost."""


@dataclass(frozen=True)
class StudyList:
    """List the experiments of a study: their rows, and about what they cost."""

    file: Positional[Path]
    """The study."""
    trust: tuple[str, ...] = ()
    """Algorithms that the study names as module:Class and whose code may run: it says what they cost."""


@dataclass(frozen=True)
class Running:
    """How experiments are run."""

    scale: Literal["full", "small"] = "full"
    """`small` shows on two cores within minutes that everything runs; its numbers say nothing."""
    seeds: int | None = None
    """How many learners; 3, at small scale 2."""
    device: str = "auto"
    """auto, cpu or cuda."""
    at_once: int = 1
    """Runs that are trained and tested at the same time, each in its own process: a large GPU has room for some."""
    data: Path = Path("data")
    """Where meta-datasets are, in folders named after their families; missing ones are made there."""
    policies: Path = Path("policies")
    """Where published policies are; data of a family that has none is made by training its agents."""
    out: Path = Path("paper")
    """Folder for the runs, which experiments share, and for a folder of results of each experiment."""


@dataclass(frozen=True)
class PaperRun(Running):
    """Run an experiment: data, training and tests as far as they are missing, then figures, tables and the verdict."""

    name: Positional[str] = "all"
    """Which one, as listed by `omrl paper list`; `all` for every one."""

    @property
    def file(self) -> None:
        """The paper's study."""
        return None

    @property
    def trust(self) -> tuple[str, ...]:
        """It names nothing but omrl's own."""
        return ()


@dataclass(frozen=True)
class StudyRun(Running):
    """Run a study: data, training and tests as far as they are missing, then figures, tables and verdicts."""

    file: Positional[Path] = MISSING
    """The study."""
    name: Positional[str] = "all"
    """Which of its experiments; `all` for every one."""
    out: Path = Path("study")
    """Folder for the runs, which experiments share, and for a folder of results of each experiment."""
    trust: tuple[str, ...] = ()
    """Algorithms that the study names as module:Class and whose code may run."""


StudyCommand = Annotated[StudyList, subcommand("list")] | Annotated[StudyRun, subcommand("run")]


@dataclass(frozen=True)
class Study:
    """Compare algorithms on data, by a file that says what, and judge what it claims."""

    command: StudyCommand


PaperCommand = Annotated[PaperList, subcommand("list")] | Annotated[PaperRun, subcommand("run")]


@dataclass(frozen=True)
class Paper:
    """The paper's figures and tables as experiments."""

    command: PaperCommand


def run(args: Paper | Study) -> None:
    """The commands."""
    if isinstance(args.command, PaperList | StudyList):
        print_list(*((args.command.file, args.command.trust) if isinstance(args.command, StudyList) else ()))
        return
    from omrl.studies.execute import execute

    for results in execute(args.command):
        print_results(results, args.command.out / results["experiment"])


# What stands for every experiment.
ALL = "all"
# Columns of a terminal that has room for the whole list.
WIDE = 150
COLUMNS = ("name", "in the paper", "data", "rows", "runs", "updates", "full scale, one H200", "small scale, 2 cores")


def overview(file: Path | None = None, trust: Sequence[str] = ()) -> list[tuple[str, ...]]:
    """A line for every experiment; runs are those of each by itself, some of which others have too."""
    from omrl.studies.definitions import read_study
    from omrl.studies.planning import jobs, minutes, plan, updates

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
    from rich.console import Console
    from rich.table import Column, Table

    # A pipe has no width to fit: there, every experiment stays on its line.
    console = Console(width=None if sys.stdout.isatty() else 500)
    # The name is what `omrl paper run` takes, and is never cut; a narrow terminal has no room for the longest columns.
    shown = [i for i, name in enumerate(COLUMNS) if console.width >= WIDE or name not in ("data", "rows", "updates")]
    table = Table(*(Column(COLUMNS[i], no_wrap=i == 0) for i in shown))
    for line in overview(file, trust):
        table.add_row(*(line[i] for i in shown))
    console.print(table)
    print("Runs have three seeds each; experiments share runs, and what is there is not run again.")


def print_results(results: dict[str, Any], folder: Path) -> None:
    """Returns, verdicts, and where to look."""
    from rich.console import Console
    from rich.table import Table

    from omrl.evaluation.stats import Estimate
    from omrl.studies.tabulating import found

    console = Console()
    table = Table("data", "row", "mean return [95 %]", title=results["title"])
    for row in results["rows"]:
        what = "" if "return" in row["metrics"] else "action error "
        table.add_row(row["data"], row["row"], what + str(Estimate(**row["mean"])))
    console.print(table)
    for row in results["rows"]:
        if row["stopped"]:
            seeds = ", ".join(map(str, row["stopped"]))
            where = f"{row['row']} on {row['data']}"
            print(f"warning: {where}: seed {seeds} met a number that is not finite and stopped.")
    for claim in results["claims"]:
        scale = "" if results["scale"] == "full" else f" at {results['scale']} scale"
        whose = "" if claim["whose"] == "paper" else " (our own claim)"
        print(f"\n{claim['verdict'].upper()}{scale}: {claim['claim']}{whose}")
        for one in claim["comparisons"]:
            pair = f"{one['better']} - {one['worse']}"
            beyond = one["detectable"]
            least = "" if beyond is None else f" ({beyond:.3g} or more would have been found in four of five cases)"
            print(f"  {one['data']}, {claim['metric']}, {pair}: {found(one)}, {one['verdict']}{least}")
    if results["note"]:
        print(f"\nnote: {results['note']}")
    print(f"\n{folder / 'results.json'}, figures and tables beside it; the page: {folder / 'report' / 'index.html'}")
