"""The paper's figures and tables as named experiments: `omrl paper list` and `omrl paper run NAME`.

experiments.toml says what each one is: its data, its rows, its figures and tables, and the claim of the paper with the
comparison by which it is judged. Importing this is cheap; what needs torch is imported when an experiment runs.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, subcommand


@dataclass(frozen=True)
class PaperList:
    """List the experiments: what they show in the paper, their rows, and about what they cost."""


@dataclass(frozen=True)
class PaperRun:
    """Run an experiment: data, training and tests as far as they are missing, then figures, tables and the verdict."""

    name: Positional[str]
    """Which one, as listed by `omrl paper list`; `all` for every one."""
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


PaperCommand = Annotated[PaperList, subcommand("list")] | Annotated[PaperRun, subcommand("run")]


@dataclass(frozen=True)
class Paper:
    """The paper's figures and tables as experiments."""

    command: PaperCommand


def run(args: Paper) -> None:
    """The commands."""
    if isinstance(args.command, PaperList):
        print_list()
        return
    from omrl.experiments.execute import execute

    for results in execute(args.command):
        print_results(results, args.command.out / results["experiment"])


# What stands for every experiment.
ALL = "all"
# Columns of a terminal that has room for the whole list.
WIDE = 150
COLUMNS = ("name", "in the paper", "data", "rows", "runs", "updates", "full scale, one H200", "small scale, 2 cores")


def overview() -> list[tuple[str, ...]]:
    """A line for every experiment; runs are those of each by itself, some of which others have too."""
    from omrl.experiments.definitions import experiments, get_scale
    from omrl.experiments.planning import jobs, minutes, plan, updates

    lines: list[tuple[str, ...]] = []
    for experiment in experiments().values():
        full, small = (jobs(plan(experiment, get_scale(scale))) for scale in ("full", "small"))
        counts = sorted({updates(job) for job in full})
        lines.append(
            (
                experiment.name,
                experiment.paper,
                "; ".join(data.title for data in experiment.data),
                "; ".join(row.label for row in experiment.rows),
                str(len(full)),
                " to ".join(f"{count:,}" for count in dict.fromkeys((counts[0], counts[-1]))),
                f"{minutes(full, 'full'):.0f} min",
                f"{minutes(small, 'small'):.1f} min",
            )
        )
    return lines


def print_list() -> None:
    """The table of experiments."""
    from rich.console import Console
    from rich.table import Column, Table

    # A pipe has no width to fit: there, every experiment stays on its line.
    console = Console(width=None if sys.stdout.isatty() else 320)
    # The name is what `omrl paper run` takes, and is never cut; a narrow terminal has no room for the longest columns.
    shown = [i for i, name in enumerate(COLUMNS) if console.width >= WIDE or name not in ("data", "rows", "updates")]
    table = Table(*(Column(COLUMNS[i], no_wrap=i == 0) for i in shown))
    for line in overview():
        table.add_row(*(line[i] for i in shown))
    console.print(table)
    print("Runs have three seeds each; experiments share runs, and what is there is not run again.")


def print_results(results: dict[str, Any], folder: Path) -> None:
    """Returns, verdicts, and where to look."""
    from rich.console import Console
    from rich.table import Table

    from omrl.experiments.tables import found
    from omrl.stats import Estimate

    console = Console()
    table = Table("data", "row", "mean return [95 %]", title=results["title"])
    for row in results["rows"]:
        table.add_row(row["data"], row["row"], str(Estimate(**row["mean"])))
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
