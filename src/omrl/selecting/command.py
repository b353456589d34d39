"""`omrl select`: judges runs and prints them, the best first."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from omrl.commands.select import Select
from omrl.selecting.choosing import SELECTED, Choice, select
from omrl.selecting.verdict import LEVEL, LOST
from omrl.words import quantity


def run(args: Select) -> None:
    """The command."""
    found = select(args.runs, split=args.split, context=args.context, seed=args.seed, data=args.data, trust=args.trust)
    if args.json:
        print(json.dumps([{**asdict(one), "run": str(one.run)} for one in found], indent=2))
        return
    about = found[0].findings
    tasks, rows = quantity(about.tasks, f"{found[0].split} task"), quantity(found[0].context, "row")
    title = f"{tasks}, each known by {rows} of its own log; the logger's return is {about.logger:z.2f}"
    gain = f"return beyond the logger's [{LEVEL:.0%}]"
    table = Table("run", "verdict", gain, "by fitted Q", "far", "action error", title=title)
    for one in found:
        table.add_row(*_cells(one))
    # A pipe has no width to fit: there, a path stays whole.
    Console(width=None if sys.stdout.isatty() else 200).print(table)
    for one in found:
        for reason in one.verdict.reasons:
            print(f"{one.run}: {reason}")
        if one.findings.left > LOST:
            lost = f"it leaves the log altogether in {one.findings.left:.0%} of its steps"
            print(f"{one.run}: {lost}; so it stands behind those that do not, by its action error")
    print(f"All that was found is in {SELECTED}.json and {SELECTED}.csv of each run.")
    print(
        "Not in the table, but there: outside (share of actions outside the logged range), disagreement (how far seeds "
        "are from one another) and identification (how often a context is nearest to its own task)."
    )


def _cells(one: Choice) -> tuple[str, ...]:
    about = one.findings
    far = "" if about.far is None else f"{about.far:.0%}"
    error = f"{about.action_error:.2f} (logger's noise {about.noise:.2f})"
    return str(one.run), one.verdict.word, about.gain.text(), about.fitted_q.text(), far, error
