"""From nothing to a page: the whole flow on the smallest family, on two cores, in minutes.

    omrl quickstart

It is the real pipeline with small networks: data from behaviour policies, FOCAL meta-trained on 80 goals, tested on the
20 it has not seen, adapted to one of them from a handful of transitions, and a report of it all.
"""

from __future__ import annotations

import time
from importlib import util
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import omrl
from omrl.behaviour.policies import find_published
from omrl.commands.quickstart import Quickstart
from omrl.data import MetaDataset
from omrl.errors import OmrlError
from omrl.evaluation import stats
from omrl.evaluation.command import over
from omrl.families import get_family
from omrl.runs.model import Model
from omrl.runs.records import Summary
from omrl.words import quantity

FAMILY = "sparse-point-robot"
HANDFUL = 10
# What the stages took on two idle cores the first time, for the first line of each.
SECONDS = {"data": 5, "behaviour": 140, "train": 50, "test": 2, "report": 10}


def run(args: Quickstart) -> None:
    """All stages; what an interrupted run has finished is not done again."""
    published = not args.train_behaviour
    if published and not find_published(FAMILY, args.policies).is_dir():
        raise OmrlError(
            f"There are no published policies of {FAMILY} in {args.policies or 'policies'}: run this in a clone of the "
            "repository, name the folder with --policies, or train them with --train-behaviour."
        )
    draws = util.find_spec("matplotlib") is not None
    data, folder, page = args.out / "data", args.out / "run", args.out / "report"
    started = time.monotonic()
    _stage(1, "data of 100 tasks", "data" if published else "behaviour")
    source: dict[str, Any] = {"policies": args.policies, "from_policies": True, "level": "expert"} if published else {}
    dataset = omrl.collect(FAMILY, data, seed=args.seed, **source)
    assert dataset is not None
    _stage(2, f"FOCAL, {quantity(args.seeds, 'seed')}, on the logs of 80 tasks", "train")
    omrl.train("focal", data, folder, preset="quick", seeds=args.seeds, seed=args.seed, eval_every=500, device="cpu")
    _stage(3, "the 20 unseen tasks", "test")
    found = omrl.evaluate(folder)
    name, total = try_out(omrl.load(folder), dataset)
    if draws:
        _stage(4, "report", "report")
        omrl.report(folder, page)
    print_summary(found, name, total, time.monotonic() - started)
    if draws:
        print(f"\nThe page: {(page / 'index.html').absolute()}")
    else:
        print(f"\nA page about it needs matplotlib: pip install 'omrl[plot]', then omrl report {folder} --out {page}")


def _stage(number: int, what: str, key: str) -> None:
    print(f"\n{number}/4  {what} (about {SECONDS[key]} s on two cores)", flush=True)


def try_out(trained: Model, dataset: MetaDataset) -> tuple[str, float]:
    """Adapt to the first unseen task from a handful of its transitions, and roll the policy out."""
    name = dataset.split["test"][0]
    policy = trained.adapt(dataset.level("expert").sample(name, HANDFUL, np.random.default_rng(0)))
    family = get_family(FAMILY)
    simulator = family.simulator([task for task in dataset.tasks if task.name == name])
    total = 0.0
    for _ in range(family.horizon):
        total += float(simulator.step(policy.act(simulator.observe())).rewards[0])
    return name, total


def print_summary(found: Summary, name: str, total: float, seconds: float) -> None:
    """What came out, and where to look."""
    table = Table("", "", title="FOCAL on goals it has not seen", show_header=False)
    mean = stats.Estimate(**found["mean"])
    table.add_row("mean return", f"{mean}, {over(found)}")
    table.add_row("each goal known by", found["context_from"])
    table.add_row("normalised", f"{found['normalised']:.3f} (0 is random, 1 the experts that made the data)")
    table.add_row("each seed", ", ".join(f"{value:.2f}" for value in found["per_seed"]))
    table.add_row(f"{name}, from {HANDFUL} transitions", f"{total:.2f}")
    table.add_row("time", f"{seconds:.0f} s")
    Console().print(table)
