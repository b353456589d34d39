"""From a messy file to a policy, by the commands that people type, and what the policies are then truly worth.

    python benchmarks/own_logs/trial.py --json results/own-logs/trial.json

The logs of 32 sleepers (anaesthesia.py), made by a noisy and by a nearly noiseless logger, become a Parquet file as
people have them: rows in no order, names for sleepers, times of a day, gaps, holes, a code for an unplugged sensor,
whole millilitres, one sleeper of whom next to nothing is known. Every command and what it said is written down. Three
policies are trained: by the default recipe, by cloning, and by what somebody may try who wants more, without
regularisation. At the end the simulator tells what nobody knew on the way.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
from domain import Domain, Logger
from domains import DOMAINS

import omrl
from omrl.data import MetaDataset
from omrl.storage.files import replacing

DOMAIN = "anaesthesia"
LOGGERS: tuple[Logger, ...] = ("noisy", "noiseless")
SEEDS, EPISODES, CONTEXT = 3, 64, 200
FIRST_DAY = datetime.datetime(2025, 3, 3, 7, 0)
# Shares of rows without a pressure, and with the code of a sensor that is unplugged.
HOLES, UNPLUGGED = 0.01, 0.001
CODE = -999.0
# Of the sleeper of whom next to nothing is known.
FEW = 14
RUNS = {
    "default": ["focal"],
    "cloned": ["contextual-bc"],
    "loose": ["focal", "--regularisation", "none", "--warm-up", "0", "--steps", "3000"],
}


def messy(domain: Domain, kind: Logger, path: Path) -> None:
    """Every task's log after everything has happened to it that happens to logs."""
    rng = np.random.default_rng([3, *kind.encode()])
    rows: list[dict[str, object]] = []
    for task in domain.tasks:
        log = domain.log(task, kind)
        for place in range(FEW if task is domain.train_tasks[-1] else len(log["rewards"])):
            episode, step = int(log["episode"][place]), int(log["step"][place])
            time = FIRST_DAY + datetime.timedelta(days=episode, minutes=5 * step)
            seen = dict(zip(domain.observations, map(float, log["observations"][place]), strict=True))
            drug, support = log["actions"][place]
            rows.append(
                {"sleeper": task.name, "at": time, **seen, "drug": round(drug), "support": float(support)}
                | {"reward": float(log["rewards"][place])}
            )
    for row in rows:
        chance = rng.random()
        if chance < HOLES:
            row["pressure"] = None
        elif chance < HOLES + UNPLUGGED:
            row["pressure"] = CODE
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([rows[i] for i in rng.permutation(len(rows))]), path)


def mend(path: Path) -> None:
    """What somebody does who has read the notes: the sensor's code is a hole."""
    rows = pyarrow.parquet.read_table(path).to_pylist()
    for row in rows:
        row["pressure"] = None if row["pressure"] == CODE else row["pressure"]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)


def said(told: list[dict[str, Any]], folder: Path, *words: str) -> str:
    """Run a command of omrl in a folder, and note what it was and what it told."""
    own = {**os.environ, "COLUMNS": "160"}
    done = subprocess.run(
        [sys.executable, "-m", "omrl", *words], cwd=folder, env=own, capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 2):
        raise SystemExit(done.stderr)
    lines = [
        line for line in (done.stdout + done.stderr).splitlines() if line.startswith(("error:", "warning:", "note:"))
    ]
    told.append({"command": " ".join(["omrl", *words]), "exit": done.returncode, "said": lines})
    print(f"{told[-1]['command']}\n  " + "\n  ".join([f"exit {done.returncode}", *lines]), flush=True)
    return done.stdout


def walk(domain: Domain, kind: Logger, folder: Path) -> dict[str, Any]:
    """The whole way with one logger."""
    told: list[dict[str, Any]] = []
    messy(domain, kind, folder / "sleepers.parquet")
    tested = [task.name for task in domain.test_tasks]
    imported = ["data", "import", "--from", "parquet", "sleepers.parquet", "data", "--task", "sleeper"]
    imported += ["--observations", *domain.observations, "--actions", *domain.actions, "--terminations", "none"]
    imported += ["--action-low", *map(str, domain.low), "--action-high", *map(str, domain.high)]
    imported += ["--varies", domain.varies, "--test-tasks", *tested]
    mended = ["--time", "at", "--missing", "drop", "--action-kind", "continuous"]
    for flags in ((), mended[:2], mended[:4], mended):
        said(told, folder, *imported, *flags)
    mend(folder / "sleepers.parquet")
    said(told, folder, *imported, *mended, "--skip-tasks", domain.train_tasks[-1].name, "--force")
    said(told, folder, "data", "validate", "data")
    for name, words in RUNS.items():
        said(told, folder, "train", *words, "--data", "data", "--out", name, "--seeds", str(SEEDS), "--device", "cpu")
    said(told, folder, "calibrate", "default")
    said(told, folder, "select", *RUNS)
    return {"logger": kind, "told": told, "runs": {name: judged(domain, kind, folder, name) for name in RUNS}}


def judged(domain: Domain, kind: Logger, folder: Path, name: str) -> dict[str, Any]:
    """What `omrl select` called a run, and what it truly gets beside the logger and the best rule that is known."""
    log, model = MetaDataset.open(folder / "data"), omrl.load(folder / name)
    rows: list[tuple[object, ...]] = []
    for i, task in enumerate(domain.test_tasks):
        own = (log.sample(task.name, CONTEXT, np.random.default_rng([seed, i])) for seed in range(SEEDS))
        acting = [("run", seed, model.adapt(context, seed, on_strange="ignore")) for seed, context in enumerate(own)]
        others = [("logger", 0, domain.logger(task, kind, seed=1)), ("best", 0, domain.best(task))]
        for who, seed, policy in [*acting, *others]:
            found = domain.outcome(task, policy, EPISODES)
            numbers = (round(float(part.mean()), 4) for part in (found.returns, found.harmed))
            rows.append((who, seed, task.name, *numbers))
    return {"selected": json.loads((folder / name / "selected.json").read_text()), "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    found: dict[str, Any] = {
        "command": "python benchmarks/own_logs/trial.py --json results/own-logs/trial.json",
        "omrl": omrl.__version__,
        "domain": DOMAIN,
        "columns": ("who", "seed", "task", "return", "harmed"),
        "walks": [],
    }
    for kind in LOGGERS:
        with tempfile.TemporaryDirectory() as name:
            found["walks"].append(walk(DOMAINS[DOMAIN], kind, Path(name)))
    args.json.parent.mkdir(parents=True, exist_ok=True)
    with replacing(args.json) as temporary:
        temporary.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
