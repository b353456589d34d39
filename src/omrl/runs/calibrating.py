"""Make a run's calibration: what contexts of training tasks look like to references that were made without them.

omrl calibrate runs/focal
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from omrl.commands.calibrate import Calibrate
from omrl.errors import OmrlError
from omrl.runs.calibration import CALIBRATION, PARTS, Calibration, Home, Honest, Usual, fit_home, fit_usual, judge, look
from omrl.runs.model import Model, load
from omrl.runs.policy import CONTEXT
from omrl.storage import folders

Array = np.ndarray[Any, Any]

# Contexts have this many rows, as far as tasks have them; of more rows the newest are judged.
SIZES = tuple(2**power for power in range(9))
# Honest contexts of each size, rows of a task, rows that the linear model is made from, and parts that tasks are held
# out in.
CONTEXTS, TASK_ROWS, MODEL_ROWS, FOLDS = 1000, 1024, 10_000, 10
FEWEST_TASKS = 4


def calibrate(run: str | Path) -> Path:
    """Write a run's calibration from its training tasks, and return its path."""
    model = load(run).ready()
    with folders.only_writer(Path(run), ".calibration.lock"):
        calibration_of(model).save(Path(run))
    return Path(run) / CALIBRATION


def calibration_of(model: Model) -> Calibration:
    """The calibration of all learners."""
    data = model.run.dataset()
    logs = data.level(model.run.config.level).select(data.split["train"])
    names = [task.name for task in logs.tasks]
    if len(names) < FEWEST_TASKS:
        raise OmrlError(f"{len(names)} training tasks are too few to tell what is strange; {FEWEST_TASKS} are needed.")
    rows = [{name: np.array(logs.rows(task)[name][:TASK_ROWS]) for name in CONTEXT} for task in names]
    shapes = [np.concatenate([task[name].reshape(len(task["rewards"]), -1) for name in CONTEXT], -1) for task in rows]
    whole = np.concatenate(shapes).astype(np.float64)
    spread = whole.std(0)
    units = np.stack([whole.mean(0), np.where(spread > 1e-6, spread, 1.0)])
    tasks = [(task - units[0]) / units[1] for task in shapes]
    each = -(-MODEL_ROWS // len(tasks))
    rng = np.random.default_rng(0)
    some = [task[rng.permutation(len(task))[:each]] for task in tasks]
    folds = rng.permutation(len(tasks)) % min(FOLDS, len(tasks))
    blocks = {size: _blocks(rng, [len(task) for task in tasks], size) for size in SIZES}
    if not any(blocks.values()):
        raise OmrlError(
            f"The training tasks have too few rows to tell what is strange; {FEWEST_TASKS} need two or more."
        )
    homes: dict[int, Home] = {}
    usual: dict[tuple[int, int], Usual] = {}
    honest: dict[tuple[int, int], Honest] = {}
    for seed in range(model.run.config.seeds):
        z = np.stack([model.infer(task, seed) for task in rows])
        homes[seed] = fit_home(some, z, model.obs_dim)
        without = []
        for k in range(folds.max() + 1):
            others = np.flatnonzero(folds != k)
            without.append(fit_home([some[t] for t in others], z[others], model.obs_dim))
        for size, drawn in blocks.items():
            if not drawn:
                continue
            of = np.array([t for t, _ in drawn])
            contexts = np.stack([tasks[t][start : start + size] for t, start in drawn])
            logged = {name: np.stack([rows[t][name][start : start + size] for t, start in drawn]) for name in CONTEXT}
            inferred = model.infer(logged, seed)
            found = np.zeros((len(drawn), len(PARTS)))
            for k, home in enumerate(without):
                held = folds[of] == k
                if held.any():
                    found[held] = look(home, fit_usual(contexts[~held]), contexts[held], inferred[held], model.obs_dim)
            usual[seed, size], honest[seed, size] = fit_usual(contexts), judge(found)
    return Calibration(model.step, units, homes, usual, honest)


def _blocks(rng: np.random.Generator, lengths: list[int], size: int) -> list[tuple[int, int]]:
    """Tasks and first rows of contexts of consecutive rows, as many of each task that is long enough.

    A task has more than one context of its own if it is twice as long.
    """
    long = [t for t, length in enumerate(lengths) if length >= 2 * size]
    if len(long) < FEWEST_TASKS:
        return []
    return [(t, int(rng.integers(lengths[t] - size + 1))) for t in long for _ in range(-(-CONTEXTS // len(long)))]


def run(args: Calibrate) -> None:
    """The command."""
    print(calibrate(args.run))
