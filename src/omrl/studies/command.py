"""`omrl study run` and `omrl paper run`: runs experiments and prints what came out."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from omrl.commands.study import PaperRun, StudyRun
from omrl.evaluation.stats import Estimate
from omrl.studies.execute import execute
from omrl.studies.judging import Results
from omrl.studies.tabulating import found, short
from omrl.units.place import stored


def run(args: PaperRun | StudyRun) -> None:
    """The command."""
    for results in execute(args):
        print_results(results, stored(args.out, args.storage) / results["experiment"])


def print_results(results: Results, folder: Path) -> None:
    """Returns, verdicts, and where to look."""
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
            least = "" if beyond is None else f" ({short(beyond)} or more would have been found in four of five cases)"
            print(f"  {one['data']}, {claim['metric']}, {pair}: {found(one)}, {one['verdict']}{least}")
    if results["note"]:
        print(f"\nnote: {results['note']}")
    print(f"\n{folder / 'results.json'}, figures and tables beside it; the page: {folder / 'report' / 'index.html'}")
