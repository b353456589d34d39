"""How strong the behaviour regularisation should be, judged on training tasks alone.

    python benchmarks/sweep.py --data data/half-cheetah-vel --json results/focal/sweep.json
        [--alphas ...] [--penalties ...] [flags of `omrl train focal`]

Every strength is one learner of a population; fixed and adapted strengths, the two penalties and the levels of the data
are populations of their own. The return is that of the policy adapted to training tasks from their own logs; beside it
stand the divergence D that was reached and alpha D / |Q|, the weight of the regularisation beside the value.
With `--held-out 4` the last four training tasks are not learnt from, and the return is theirs: how well it transfers.
"""

from __future__ import annotations

import csv
import json
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from omrl.commands.evaluate import CONTEXT_ROWS
from omrl.data import MetaDataset
from omrl.evaluation.given_context import given_context
from omrl.evaluation.summaries import summary
from omrl.learning import starting, training
from omrl.runs.run import Run

# Held-out tasks are few: they have more episodes each.
TASKS, EPISODES, HELD_OUT_EPISODES = 20, 2, 10


@dataclass(frozen=True)
class Args:
    """Sweep FOCAL's regularisation on training tasks."""

    data: Path
    """The meta-dataset."""
    json: Path
    """Where the figures go, beside those of other sweeps."""
    alphas: tuple[float, ...] = (30.0, 300.0, 3_000.0, 30_000.0)
    """Strengths; where an adapted strength starts."""
    penalties: tuple[str, ...] = ("gradient", "output")
    """What keeps the discriminator smooth."""
    adapted: tuple[float, ...] = (0.0, 1.0)
    """Steps of the strength: 0 keeps it fixed."""
    levels: tuple[str, ...] = ("expert", "mixed")
    """Levels of the training data."""
    steps: int = 10_000
    """Updates of each learner."""
    held_out: int = 0
    """Training tasks that are kept from learning, to measure the return on."""


def last_values(run: Run, count: int = 5) -> dict[str, np.ndarray]:
    """Every metric's mean over its last rows, per learner."""
    series: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    with (run.folder / "metrics.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            series[row["name"]][int(row["seed"])].append(float(row["value"]))
    return {name: np.array([np.mean(v[-count:]) for v in seeds.values()]) for name, seeds in series.items()}


def measure(args: Args, flags: list[str], level: str, penalty: str, rate: float) -> Iterator[dict[str, Any]]:
    """One population: all strengths at one setting."""
    import torch

    from omrl.learning.devices import choose_device

    dataset = MetaDataset.open(args.data)
    names, rows = dataset.split["train"], dataset.level(level)
    learnt = names[: len(names) - args.held_out]
    view, judged = rows.select(learnt), rows.select(names[len(learnt) :] or names)
    with tempfile.TemporaryDirectory() as folder:
        words = ["--data", str(args.data), "--out", folder, "--level", level, "--steps", str(args.steps)]
        named = [
            "--penalty",
            penalty,
            "--alpha-rate",
            str(rate),
            "--alpha-max",
            "1e6",
            "--seeds",
            str(len(args.alphas)),
        ]
        train, hyperparameters = starting.parse(["focal", *words, *named, *flags])
        if hyperparameters.regularisation == "none":
            hyperparameters = replace(hyperparameters, regularisation="policy")
        device = choose_device(train.device)
        config = training.run_config(train, hyperparameters, dataset)
        run = Run.create(Path(folder), config, {})
        learner = training.Training(run, view.to(device, max_rows=train.max_rows), device)
        with torch.no_grad():
            learner.population.params["alpha"].copy_(torch.tensor(args.alphas))
        learner.learn(train.log_every, train.steps)
        values = last_values(run)
        chosen = judged.select([task.name for task in judged.tasks[:: max(1, len(judged.tasks) // TASKS)]])
        returns = given_context(learner, chosen, CONTEXT_ROWS, HELD_OUT_EPISODES if args.held_out else EPISODES, seed=0)
    defaults = asdict(starting.starting_point(train)[1])
    changes = {name: value for name, value in asdict(hyperparameters).items() if value != defaults[name]}
    for i, start in enumerate(args.alphas):
        found = summary(returns[i : i + 1].mean(-1), chosen, train.steps)
        alpha, divergence, q = (float(values[name][i]) for name in ("alpha", "divergence", "q"))
        yield {
            "family": dataset.family,
            "divergence": hyperparameters.divergence,
            "regularisation": hyperparameters.regularisation,
            "updates": train.steps,
            "seeds": 1,
            "level": level,
            "penalty": None if hyperparameters.divergence == "gaussian-kl" else penalty,
            "alpha_rate": rate,
            "alpha_start": start,
            "alpha": alpha,
            "D": divergence,
            "q": q,
            "alpha_D_over_q": alpha * divergence / abs(q),
            "entropy": float(values["entropy"][i]),
            "dml_loss": float(values["dml_loss"][i]),
            "return": found["mean"]["value"],
            "normalised": found.get("normalised"),
            "alive": bool(values["alive"][i] == 1.0),
            **({"held_out": args.held_out, "seed": train.seed + i, "changes": changes} if args.held_out else {}),
        }


def place(row: dict[str, Any]) -> tuple[str, ...]:
    """Which learner of all sweeps a row is of."""
    names = ("family", "divergence", "level", "penalty", "alpha_rate", "alpha_start", "updates")
    names += ("held_out", "seed", "changes")
    return tuple(str(row.get(name)) for name in names)


def main() -> None:
    args, flags = tyro.cli(Args, return_unknown_args=True)
    # What was measured before stays, but for learners that are measured again.
    kept = {place(row): row for row in (json.loads(args.json.read_text()) if args.json.is_file() else [])}
    rows: list[dict[str, Any]] = []
    for level, penalty, rate in product(args.levels, args.penalties, args.adapted):
        rows += measure(args, flags, level, penalty, rate)
        kept |= {place(row): row for row in rows}
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text("[\n" + ",\n".join(json.dumps(row) for row in kept.values()) + "\n]\n")
    headings = (
        "level",
        "penalty",
        "alpha_rate",
        "alpha_start",
        "alpha",
        "D",
        "alpha_D_over_q",
        "q",
        "return",
        "normalised",
    )
    table = Table(*headings)
    for row in rows:
        table.add_row(*(f"{row[h]:.3g}" if isinstance(row[h], float) else str(row[h]) for h in headings))
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
