"""Judges runs from logs, writes what was found into their folders, and ranks them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from omrl.commands.evaluate import CONTEXT_ROWS
from omrl.errors import OmrlError
from omrl.progress import Meter
from omrl.runs.model import Model
from omrl.runs.records import LOGGED
from omrl.runs.run import Run
from omrl.selecting.signals import Ground, Signals, look
from omrl.selecting.verdict import Findings, Verdict, judge, standing, sum_up
from omrl.storage import folders

# Of the files in a run's folder.
SELECTED = "selected"


@dataclass(frozen=True)
class Choice:
    """A run, what was found of it, and what follows."""

    run: Path
    verdict: Verdict
    findings: Findings
    split: str
    """Tasks that it was judged on."""
    context: int
    """Logged rows that it knew each of them by."""


def select(
    runs: str | Path | Sequence[str | Path],
    *,
    split: Literal["test", "train"] | None = None,
    context: int = CONTEXT_ROWS,
    seed: int = 0,
    data: str | Path | None = None,
    trust: str | Collection[str] = (),
) -> list[Choice]:
    """Judge runs from logs alone, the best first; takes what `omrl select` takes, and writes into the runs' folders."""
    paths = [Path(run) for run in ([runs] if isinstance(runs, str | Path) else runs)]
    if not paths:
        raise OmrlError("Name at least one run to select from.")
    for name, value, least in (("context", context, 1), ("seed", seed, 0)):
        if value < least:
            raise OmrlError(f"--{name} must be at least {least}, not {value}.")
    grounds: dict[tuple[str, str, str], Ground] = {}
    found = []
    with Meter("judging runs", len(paths), unit="runs") as meter:
        for done, path in enumerate(paths):
            run = Run.open(path)
            with folders.only_writer(run.folder, f".{SELECTED}.lock"):
                found.append(_judge(run, split, context, seed, data, trust, grounds))
            meter.update(done + 1, found[-1].verdict.word)
    return sorted(found, key=lambda one: standing(one.findings), reverse=True)


def _judge(
    run: Run,
    split: Literal["test", "train"] | None,
    context: int,
    seed: int,
    data: str | Path | None,
    trust: str | Collection[str],
    grounds: dict[tuple[str, str, str], Ground],
) -> Choice:
    dataset = run.dataset(None if data is None else Path(data))
    part = split or ("test" if dataset.split["test"] else "train")
    names = dataset.split[part]
    if not names:
        other = "train" if part == "test" else "test"
        raise OmrlError(f"{dataset.path} has no {part} tasks; --split {other} judges on the others.")
    model = Model(run, trust=(trust,) if isinstance(trust, str) else trust).ready()
    # Runs on the same data share what is fitted to it.
    key = (str(dataset.path), run.config.level, part)
    if key not in grounds:
        grounds[key] = Ground(dataset.level(run.config.level), names)
    signals = look(model, grounds[key], context, seed)
    findings = sum_up(signals)
    choice = Choice(run.folder, judge(findings), findings, part, context)
    about = {**asdict(findings), **asdict(choice.verdict), "split": part, "context": context, "updates": model.step}
    run.note_scores(SELECTED, LOGGED, _rows(signals, run, names, part), about)
    return choice


def _rows(signals: Signals, run: Run, names: Sequence[str], split: str) -> list[tuple[object, ...]]:
    """One row per seed, task and number."""
    cells = {
        "gain": signals.gained.mean(0),
        "fitted_q": signals.fitted_q.mean(0),
        **{name: getattr(signals, name) for name in ("left", "far", "outside", "action_error", "identification")},
    }
    seeds = run.config.all_seeds()
    return [
        (seeds[p], names[t], split, name, f"{value:.6g}")
        for name, values in cells.items()
        for (p, t), value in np.ndenumerate(values)
    ]
