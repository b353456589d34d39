"""`omrl tune`: measures the trials of rows, keeps them in a file and prints them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import cast

from rich.console import Console
from rich.table import Table

from omrl.commands.evaluate import CONTEXT_ROWS
from omrl.commands.tune import Tune
from omrl.errors import OmrlError
from omrl.evaluation.summaries import context_words
from omrl.families import FAMILIES
from omrl.storage import folders
from omrl.tuning.rows import chosen_rows
from omrl.tuning.trying import Tried, best_of, keep, kept_row, kept_trials, settings
from omrl.units.board import Board
from omrl.units.local import Inline
from omrl.units.place import executor, given
from omrl.units.schedule import Event, raise_failures, run_all
from omrl.units.unit import Read, Unit, Work


def run(args: Tune) -> None:
    """The command."""
    for name, least in (("steps", 1), ("seeds", 1), ("episodes", 1), ("rungs", 0)):
        if getattr(args, name) < least:
            raise OmrlError(f"--{name} must be at least {least}, not {getattr(args, name)}.")
    if args.steps < 2**args.rungs:
        raise OmrlError(f"--rungs {args.rungs} halves {args.steps} updates more often than they can be.")
    kept_trials(args.out)  # that they cannot be kept there is found before the hours
    rows = {f"tune {row.label}": row for row in chosen_rows(args)}
    digests = {name: settings(args, row) for name, row in rows.items()}
    found: dict[str, list[Tried]] = {}
    args = replace(args, out=folders.place(args.out))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with folders.only_writer_of(args.out), executor(args.on, args.at_once) as doing:
        for name, row in rows.items():
            if kept := kept_row(args.out, row, digests[name]):
                found[name] = kept
        means = given(doing, args.on, args.at_once, args.threads, args.device)
        units = [Unit(name, "tune", row.label, (), means.threads, means.gpu) for name, row in rows.items()]
        paths = {name: str(getattr(args, name).absolute()) for name in ("data", "out")}
        told = {**asdict(args), **paths, "file": str(args.file), "device": means.device}

        def prepare(unit: Unit) -> Work | None:
            if unit.name in found:
                if isinstance(doing, Inline):
                    print(f"{unit.label} is in {args.out}, tried with these settings", flush=True)
                return None
            return Work("tune", {"args": told, "row": asdict(rows[unit.name])}, (Read(paths["data"]),))

        class Keeping(Board):
            """Every row is kept as soon as it is measured."""

            def told(self, event: Event) -> None:
                super().told(event)
                if event.outcome is not None and event.outcome.status == "done" and event.unit not in found:
                    tried = cast(list[Tried], event.outcome.result)
                    found[event.unit] = [{**one, "settings": digests[event.unit]} for one in tried]
                    keep(args.out, found[event.unit])

        with Keeping(f"tune {args.file}", units, alone=isinstance(doing, Inline)).shown() as board:
            ended = run_all(units, prepare, doing, board)
    table = Table("row", "trial", "updates", "score", "normalised", "beside the logger")
    for name, row in rows.items():
        for one in found.get(name, ()):
            cells = (shown(one["trial"]), f"{one['updates']:,}", f"{one['return']:.2f}", _normalised(one))
            table.add_row(row.label, *cells, one["verdict"] or "")
        if name in found:
            best = best_of(found[name])
            table.add_row(
                row.label, f"best of {len(found[name])}: {shown(best['trial'])}", "", "", "", "", style="bold"
            )
    Console(width=140).print(table)
    tried = [one for row in found.values() for one in row]
    for whose in sorted({_known_by(one) for one in tried}):
        print(f"Scores are of training tasks that were held out, each known by {whose}.")
    raise_failures(units, ended, "A row of fewer values, or fewer --seeds, takes less.")


def shown(trial: Mapping[str, float]) -> str:
    """In words."""
    return ", ".join(f"{name} {value:g}" for name, value in trial.items())


def _normalised(one: Tried) -> str:
    return "" if one["normalised"] is None else f"{one['normalised']:.3f}"


def _known_by(one: Tried) -> str:
    family = one["family"] if one["family"] in FAMILIES else None
    return context_words(CONTEXT_ROWS, one["level"] or "mixed", family)
