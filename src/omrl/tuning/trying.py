"""Runs the trials of a row: trains their learners together and judges them on training tasks that were held out."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from omrl.algorithms import get_algorithm
from omrl.commands.evaluate import CONTEXT_ROWS
from omrl.commands.train import Train
from omrl.commands.tune import Tune
from omrl.data import MetaDataset
from omrl.errors import OmrlError
from omrl.evaluation.given_context import given_context
from omrl.evaluation.summaries import summary
from omrl.learning import training
from omrl.learning.devices import choose_device
from omrl.learning.stages import learn_stages
from omrl.learning.starting import starting_point
from omrl.runs.run import Run
from omrl.schema import changed
from omrl.selecting.signals import Ground, look
from omrl.selecting.verdict import Word, judge, sum_up
from omrl.storage.files import read_json_list, replacing
from omrl.tuning.rows import Row
from omrl.tuning.trials import populate_trials, together


@dataclass
class Shared:
    """What the trials of a row have in common, once it is there."""

    frozen: dict[str, Tensor] = field(default_factory=dict)
    """What a first stage ends with."""
    ground: Ground | None = None
    """What is fitted to the log, by which learners are judged without a simulator."""


def measure(args: Tune, row: Row) -> list[dict[str, Any]]:
    """All trials of a row, and those beyond the edge if the best one lies there."""
    shared = Shared()
    found = try_out(args, row, row.trials, args.seeds, shared)
    best = max(found, key=lambda one: one["return"])
    further = row.beyond(best["trial"])
    if further:
        # As many learners as before: the program is compiled already.
        found += try_out(args, row, further, max(1, len(row.trials) * args.seeds // len(further)), shared)
    return found


def keep(path: Path, found: Sequence[Mapping[str, Any]]) -> None:
    """Put the trials of a row into a file, in the place of earlier ones; those of other data and rows stay."""

    def place(one: Mapping[str, Any]) -> tuple[str, str]:
        return one["family"], one["row"]

    before = read_json_list(path) if path.is_file() else []
    if any("family" not in one or "row" not in one for one in before):
        raise OmrlError(f"{path} is not a file of trials: each says of which family and row it is.")
    kept = [one for one in before if place(one) != place(found[0])] + list(found)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text("[\n" + ",\n".join(json.dumps(one) for one in kept) + "\n]\n")


def try_out(
    args: Tune, row: Row, trials: Sequence[Mapping[str, float]], seeds: int, shared: Shared
) -> list[dict[str, Any]]:
    """Some trials of a row, with so many learners each."""
    dataset, device = MetaDataset.open(args.data), choose_device(args.device)
    start, usual = starting_point(Train(row.algorithm, args.data, Path(), preset=row.preset))
    usual = changed(usual, {**row.changes, "half": args.half}, row.algorithm)
    configs = [changed(usual, trial, row.algorithm) for trial in trials for _ in range(seeds)]
    names = dataset.split["train"]
    held = names[3::4] or names
    level = dataset.level(start.level or "mixed")
    view = level.select([name for name in names if name not in held] or names)
    judged, kind = level.select(held), get_algorithm(row.algorithm)
    scores: list[Any] = [None] * len(configs)
    alive = [False] * len(configs)
    verdicts: list[Word | None] = [None] * len(trials)
    if dataset.family is None and shared.ground is None:
        shared.ground = Ground(level.select(names), held)
    rows = view.to(device, max_rows=start.max_rows)
    # Trials that differ in more than decimal numbers, such as the width of a network, are populations of their own.
    for places in together(configs):
        own = [configs[place] for place in places]
        train = replace(start, seeds=len(own), steps=args.steps)
        with tempfile.TemporaryDirectory() as folder:
            run = Run.create(Path(folder), training.run_config(train, own[0], dataset), {})
            learner = training.Training(run, rows, device)
            if stages := learner.algorithm.stages(dataset.manifest.varies):
                if not shared.frozen:
                    one = Run(run.folder, replace(run.config, seeds=1))
                    shared.frozen |= learn_stages(stages, one, rows, learner.normalise, device, 1_000)
                learner.frozen = {
                    name: value.expand(len(own), *value.shape[1:]) for name, value in shared.frozen.items()
                }
            shape = (dataset.observation_dim, dataset.action_dim)
            learner.algorithm, learner.population = populate_trials(
                kind, *shape, own, list(run.config.all_seeds()), device
            )
            learner.learn(1_000, args.steps)
            for place, lives in zip(places, learner.population.alive.tolist(), strict=True):
                alive[place] = lives
            if shared.ground is None:
                found = given_context(learner, judged, CONTEXT_ROWS, args.episodes, seed=0).mean(-1)
                for place, own_scores in zip(places, found, strict=True):
                    scores[place] = own_scores
                continue
            for number in {place // seeds for place in places}:
                those = [i for i, place in enumerate(places) if place // seeds == number]
                signals = look(learner, shared.ground, CONTEXT_ROWS, learners=those)
                verdicts[number] = judge(sum_up(signals)).word
                for i, own_scores in zip(those, signals.gained.mean(0), strict=True):
                    scores[places[i]] = own_scores
    results = []
    for i, trial in enumerate(trials):
        part = slice(i * seeds, (i + 1) * seeds)
        about = summary(np.stack(scores[part]), judged, args.steps)
        results.append(
            {
                "family": dataset.family or args.data.name,
                "row": row.label,
                "algorithm": row.algorithm,
                "trial": dict(trial),
                "level": start.level,
                "updates": args.steps,
                "seeds": seeds,
                "held_out": len(held),
                "return": about["mean"]["value"],
                "normalised": about.get("normalised"),
                "verdict": verdicts[i],
                "alive": all(alive[part]),
            }
        )
    return results
