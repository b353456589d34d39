"""Make a run's calibration: what contexts of training tasks look like to references that were made without them.

omrl calibrate runs/focal
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from omrl.commands.calibrate import Calibrate
from omrl.data import MetaDataset
from omrl.data.arrays import episode_starts, to_unit
from omrl.errors import OmrlError
from omrl.learning.regression import fit
from omrl.runs.calibration import (
    BEGINNINGS,
    CALIBRATION,
    FINEST,
    LOOKS,
    Calibration,
    Clone,
    Home,
    Honest,
    Key,
    Settled,
    States,
    Usual,
    fit_going,
    fit_home,
    fit_usual,
    judge,
    look,
    nearest,
)
from omrl.runs.model import Model, load
from omrl.runs.policy import CONTEXT
from omrl.storage import folders

Array = np.ndarray[Any, Any]

# Contexts have this many rows, as far as tasks have them; of more rows the newest are judged.
SIZES = tuple(2**power for power in range(9))
# Honest contexts of each size, rows of a task, rows that how tasks go on is fitted to, and parts that tasks are held
# out in.
CONTEXTS, TASK_ROWS, MODEL_ROWS, FOLDS = 1000, 1024, 10_000, 10
# Observations that others are compared with.
STATES = 2_000
# With fewer it cannot be told what is usual.
FEWEST_TASKS, FEWEST_BEGINNINGS = 4, 100


def calibrate(run: str | Path, data: str | Path | None = None, trust: str | Collection[str] = ()) -> Path:
    """Write a run's calibration from its training tasks, which `data` has if they moved, and return its path."""
    model = load(run, trust).ready()
    with folders.only_writer(Path(run), ".calibration.lock"):
        calibration_of(model, model.run.dataset(None if data is None else Path(data))).save(Path(run))
    return Path(run) / CALIBRATION


def calibration_of(model: Model, data: MetaDataset) -> Calibration:
    """The calibration of all learners."""
    logs = data.level(model.run.config.level).select(data.split["train"])
    names = [task.name for task in logs.tasks]
    if len(names) < FEWEST_TASKS:
        raise OmrlError(f"{len(names)} training tasks are too few to tell what is strange; {FEWEST_TASKS} are needed.")
    rows = [{name: np.array(logs.rows(task)[name][:TASK_ROWS]) for name in CONTEXT} for task in names]
    begins = [episode_starts(logs.rows(task)["episode"][:TASK_ROWS]) for task in names]
    shapes = [np.concatenate([task[name].reshape(len(task["rewards"]), -1) for name in CONTEXT], -1) for task in rows]
    whole = np.concatenate(shapes).astype(np.float64)
    spread = whole.std(0)
    units = np.stack([whole.mean(0), np.where(spread > 1e-6, spread, 1.0)])
    tasks = [(task - units[0]) / units[1] for task in shapes]
    each = -(-MODEL_ROWS // len(tasks))
    rng = np.random.default_rng(0)
    kept = [rng.permutation(len(task))[:each] for task in tasks]
    some = [task[own] for task, own in zip(tasks, kept, strict=True)]
    folds = rng.permutation(len(tasks)) % min(FOLDS, len(tasks))
    lengths = [len(task) for task in tasks]
    blocks = {(size, "anywhere"): _blocks(rng, lengths, size) for size in SIZES}
    if not any(blocks.values()):
        raise OmrlError(
            f"The training tasks have too few rows to tell what is strange; {FEWEST_TASKS} need two or more."
        )
    blocks |= {(size, "episode"): _beginnings(rng, lengths, begins, size) for size in SIZES if blocks[size, "anywhere"]}
    going = fit_going(some, model.obs_dim)
    without = [going(np.flatnonzero(folds != k).tolist()) for k in range(folds.max() + 1)]
    surprises = {}
    for (size, beginning), own in blocks.items():
        for k, reference in enumerate(without):
            held = [place for place in own if folds[place[0]] == k]
            cut = [tasks[t][start : start + size] for t, start in held]
            surprises[size, beginning, k] = reference.surprise(np.stack(cut), model.obs_dim) if cut else None
    homes: dict[int, Home] = {}
    usual: dict[Key, Usual] = {}
    honest: dict[Key, Honest] = {}
    settled: dict[tuple[int, int], Settled] = {}
    clones: dict[int, Clone] = {}
    chosen = data.manifest.discrete_actions is not None
    for seed in range(model.run.config.seeds):
        z = np.stack([model.infer(task, seed) for task in rows])
        homes[seed] = fit_home(z)
        clones[seed] = _clone(model, [r["actions"][k] for r, k in zip(rows, kept, strict=True)], some, z, chosen)
        elsewhere = [fit_home(z[folds != k]) for k in range(folds.max() + 1)]
        for size in sorted({size for size, _ in blocks}):
            drawn = {beginning: blocks[size, beginning] for beginning in BEGINNINGS if blocks.get((size, beginning))}
            contexts = {
                beginning: np.stack([tasks[t][start : start + size] for t, start in own])
                for beginning, own in drawn.items()
            }
            # What honest contexts from anywhere look like beside those that begin with an episode, too.
            seen = {}
            for beginning, own in drawn.items():
                logged = {name: np.stack([rows[t][name][start : start + size] for t, start in own]) for name in CONTEXT}
                inferred, of = model.infer(logged, seed), folds[[t for t, _ in own]]
                for beside in contexts if beginning == "anywhere" else (beginning,):
                    others = folds[[t for t, _ in drawn[beside]]]
                    found = np.zeros((len(own), len(LOOKS) + 2 * (1 + model.obs_dim)))
                    for k, home in enumerate(elsewhere):
                        held, surprise = of == k, surprises[size, beginning, k]
                        if surprise is not None:
                            there = fit_usual(contexts[beside][others != k])
                            found[held] = look(home, there, contexts[beginning][held], inferred[held], surprise)
                    seen[beginning, beside] = found
            for beginning, own_contexts in contexts.items():
                usual[seed, size, beginning] = fit_usual(own_contexts)
                honest[seed, size, beginning] = judge(seen[beginning, beginning])
            best = (
                [
                    max(honest[seed, size, beside].score(seen["anywhere", beside][i])[0] for beside in contexts)
                    for i in range(len(drawn["anywhere"]))
                ]
                if drawn
                else []
            )
            if best:
                settled[seed, size] = Settled(np.sort(best))
    states = _states([task[:, : model.obs_dim] for task in some], folds)
    return Calibration(model.step, units, homes, going(range(len(tasks))), usual, honest, settled, states, clones)


def _blocks(rng: np.random.Generator, lengths: Sequence[int], size: int) -> list[tuple[int, int]]:
    """Tasks and first rows of contexts of consecutive rows, as many of each task that is long enough.

    A task has more than one context of its own if it is twice as long.
    """
    long = [t for t, length in enumerate(lengths) if length >= 2 * size]
    if len(long) < FEWEST_TASKS:
        return []
    return [(t, int(rng.integers(lengths[t] - size + 1))) for t in long for _ in range(-(-CONTEXTS // len(long)))]


def _beginnings(
    rng: np.random.Generator, lengths: Sequence[int], begins: Sequence[Array], size: int
) -> list[tuple[int, int]]:
    """The same of contexts that begin with an episode; none where there are too few episodes to tell."""
    fit = [own[own + size <= length] for own, length in zip(begins, lengths, strict=True)]
    there = [t for t, own in enumerate(fit) if len(own)]
    if len(there) < FEWEST_TASKS or sum(map(len, fit)) < FEWEST_BEGINNINGS:
        return []
    return [(t, int(rng.choice(fit[t]))) for t in there for _ in range(-(-CONTEXTS // len(there)))]


def _states(obs: Sequence[Array], folds: Array) -> States:
    """From observations of each task; those of a fold are compared with those of the others."""
    each = -(-STATES // len(obs))
    some = [own[:each] for own in obs]
    of = np.repeat(folds, [len(own) for own in some])
    every = np.concatenate(some)
    usual = [nearest(every[of == k], every[of != k]) for k in range(folds.max() + 1)]
    return States(every, np.sort(np.concatenate(usual)))


def _clone(model: Model, actions: Sequence[Array], rows: Sequence[Array], z: Array, chosen: bool) -> Clone:
    """The logger from some rows of each task."""
    unit = np.concatenate(actions).astype(np.float32)
    to_unit(unit, model.action_low, model.action_high)
    choices, targets = np.zeros((0, unit.shape[1])), unit.astype(np.float64)
    if chosen:
        choices, which = np.unique(targets, axis=0, return_inverse=True)
        targets = np.eye(len(choices))[which.ravel()]
    z_units = np.stack([z.mean(0), np.maximum(z.std(0), FINEST)])
    known = np.repeat((z - z_units[0]) / z_units[1], [len(task) for task in rows], axis=0)
    x = np.concatenate([np.concatenate(rows)[:, : model.obs_dim], known], -1)
    fitted = fit([x], [targets], seed=0)
    return Clone(fitted.features.frequencies, fitted.features.phases, fitted.mean(0), z_units, choices)


def run(args: Calibrate) -> None:
    """The command."""
    print(calibrate(args.run, args.data, args.trust))
