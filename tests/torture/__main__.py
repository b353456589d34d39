"""The command: see the package's own words."""

from __future__ import annotations

import os

# Before numpy is loaded: children are forked from here, and threads are not.
os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import json
import random
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import tyro

from omrl.runs.run import environment
from torture.campaign import Verdict, Worker, input_cases, make_world, read_state, run_all, step_cases, took

# Damaged files of a kind, of which some are noticed.
ENOUGH = 100
HERE = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Args:
    """Try to break omrl."""

    inputs: int = 10_000
    """Damaged files, at least 300 of each kind."""
    seed: int | None = None
    """A new one if left out."""
    only: str = ""
    """Only cases whose name has this in it, such as kill/train or input/csv."""
    every: int = 1
    """One of so many moments of each step; 1 for all of them."""
    least: int = 300
    """Damaged files of each kind at least."""
    repeat: str | None = None
    """Do one case again, and show what it says."""
    jobs: int = 2
    """Processes."""
    out: Path | None = None
    """A JSON file for the figures."""


def main(args: Args) -> int:
    torch.set_num_threads(1)
    seed = random.SystemRandom().randrange(1_000_000) if args.seed is None else args.seed
    # In memory where there is such a place: a campaign writes a million small files.
    shared = Path("/dev/shm")
    root = (shared if os.access(shared, os.W_OK) else Path(tempfile.gettempdir())) / f"torture-{os.getuid()}-{seed}"
    made = make_world(root)
    if args.repeat is not None:
        found = Worker(made, root / "again", seed).do(args.repeat)
        print(f"{found.case}: {found.wrong or 'well'} ({found.came}, {found.seconds} s)\n{found.trace}")
        return bool(found.wrong)
    counting = Worker(made, root / "counting", seed)
    counting.folder.mkdir(parents=True, exist_ok=True)
    cases = input_cases(args.inputs, args.only, args.least) + step_cases(counting, args.only, args.every)
    state = HERE / ".cache" / "torture" / f"seed-{seed}.jsonl"
    print(f"seed {seed}: {len(cases):,} cases, noted in {state}", file=sys.stderr)
    run_all(cases, made, root, seed, state, args.jobs)
    verdicts = [verdict for verdict in read_state(state) if verdict.case in set(cases)]
    results = figures(verdicts, seed, args.jobs, took(state, "worked"), took(state, "computed"))
    show(results, verdicts, seed)
    if left := len(cases) - len(verdicts):
        print(f"{left:,} were not tried: a process of the campaign has died; the same seed goes on.")
        return 1
    for name in (unread := never_refused(results)):
        print(f"{name}: no damage was noticed; is it read at all?")
    if args.out is not None:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(results, indent=1) + "\n")
    return bool(results["wrong"] or unread)


def never_refused(results: dict[str, Any]) -> list[str]:
    """Kinds of files of which no damage was ever noticed: nobody reads them, perhaps."""
    return [
        name
        for name, counts in results["kinds"].items()
        if name.startswith("input/") and counts["tried"] >= ENOUGH and not counts["errors"]
    ]


def figures(verdicts: list[Verdict], seed: int, jobs: int, seconds: float, computed: float) -> dict[str, Any]:
    """What is published."""
    tried = Counter(verdict.case.rpartition("/")[0] for verdict in verdicts)
    wrong = Counter(verdict.case.rpartition("/")[0] for verdict in verdicts if verdict.wrong)
    refused = Counter(verdict.case.rpartition("/")[0] for verdict in verdicts if verdict.came != "answer")
    by_kind = {name: {"tried": n, "errors": refused[name], "wrong": wrong[name]} for name, n in sorted(tried.items())}
    return {
        "made": datetime.now(UTC).strftime("%Y-%m-%d"),
        "command": f"make torture SEED={seed}",
        "seed": seed,
        "jobs": jobs,
        "seconds": round(seconds),
        "computed": round(computed),
        "environment": environment(),
        "tried": len(verdicts),
        "inputs": sum(verdict.case.startswith("input/") for verdict in verdicts),
        "wrong": sum(wrong.values()),
        "kinds": by_kind,
    }


def show(results: dict[str, Any], verdicts: list[Verdict], seed: int) -> None:
    for name, counts in results["kinds"].items():
        print(f"{name:50} {counts['tried']:6,} tried {counts['errors']:6,} errors {counts['wrong']:4} wrong")
    for verdict in verdicts:
        if verdict.wrong:
            print(f"\n{verdict.case}: {verdict.wrong}")
            print(f"  PYTHONPATH=tests python -m torture --seed {seed} --repeat '{verdict.case}'")
    print(f"\n{results['tried']:,} tried, {results['wrong']:,} wrong, in {results['seconds']:,} s")


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Args)))
