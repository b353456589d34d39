"""`omrl evaluate`: tests a run and prints what came out."""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console
from rich.table import Table

from omrl.commands.evaluate import Evaluate
from omrl.evaluation import stats
from omrl.evaluation.testing import evaluate
from omrl.runs.records import Summary
from omrl.runs.run import Run
from omrl.words import quantity


def run(args: Evaluate) -> None:
    """The command."""
    options = {key: value for key, value in vars(args).items() if key != "run"}
    found = evaluate(args.run, **options)
    if args.json:
        print(json.dumps(found, indent=2))
        return
    known = found["tasks_trained_on"] if args.split == "test" else 0
    title = f"{args.run}, {args.split} tasks{f' ({known} of them trained on)' if known else ''}, {found['protocol']}"
    table = Table("", "", title=title, show_header=False)
    config = Run.open(args.run).config
    chosen = config.choices is not None
    for row in _logged_lines(found, chosen) if found["protocol"] == "logged" else _return_lines(found):
        table.add_row(*row)
    table.add_row("each task known by", found["context_from"])
    if found["updates"] < config.steps:
        table.add_row("not finished", f"{found['updates']:,} of {config.steps:,} updates")
    if found["stopped"]:
        table.add_row("stopped early", f"seed {', '.join(map(str, found['stopped']))}: a number was not finite")
    for name in ("esr", "rms"):
        if found[name]:
            table.add_row(f"embedding {name.upper()}", ", ".join(f"{value:.3f}" for value in found[name]))
    table.add_row("raw values", str(args.run / found["file"]))
    # A pipe has no width to fit: there, a path stays whole.
    Console(width=None if sys.stdout.isatty() else 200).print(table)
    if found["protocol"] == "logged":
        print("Returns cannot be had from logs alone: they need a simulator of the tasks, or the tasks themselves.")


def _return_lines(found: Summary) -> list[tuple[str, str]]:
    worst, best = found["worst_task"], found["best_task"]
    lines = [("mean return", f"{stats.Estimate(**found['mean'])}, {over(found)}")]
    lines.append(("IQM", f"{found['iqm']:z.2f}"))
    if "normalised" in found:
        beside = f"(random {found['random']:z.2f}, expert {found['expert']:z.2f})"
        lines.append(("normalised", f"{found['normalised']:z.3f} {beside}"))
    return [
        *lines,
        ("each seed", ", ".join(f"{value:z.2f}" for value in found["per_seed"])),
        ("worst task", f"{worst['return']:z.2f} ({worst['task']})"),
        ("best task", f"{best['return']:z.2f} ({best['task']})"),
    ]


def _logged_lines(found: Summary, chosen: bool) -> list[tuple[str, str]]:
    labels = {
        "identification": f"tasks told apart (chance {found['chance']:.3f})",
        "action_error": "action error, share of other choices" if chosen else "action error, RMS in [-1, 1]",
        "noise_floor": "of which the log's own noise, at most",
        "constant_error": "that of the most frequent choice" if chosen else "that of the mean action",
        "q_logged": "Q of logged actions",
        "q_policy": "Q of the policy's actions",
    }
    lines = []
    values: dict[str, Any] = {**found}
    for name, label in labels.items():
        if name in values:
            lines.append((label, stats.Estimate(**values[name]).text(3)))
    lines[0] = (lines[0][0], f"{lines[0][1]}, {over(found)}")
    return lines


def over(found: Summary) -> str:
    """What an interval of a summary is over."""
    seeds, tasks = quantity(found["seeds"], "seed"), quantity(found["tasks"], "task")
    if found["seeds"] == 1:
        return f"{tasks}; one seed does not tell how far another would be"
    sampled = not found["tasks_trained_on"] and found["tasks"] >= stats.FEWEST_TASKS
    return f"95 % over {seeds} and {tasks}" if sampled else f"95 % over {seeds}, in {tasks}"
