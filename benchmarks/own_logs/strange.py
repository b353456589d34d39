"""How often contexts are called strange: honest ones of unseen tasks, and those in which something is wrong.

    python benchmarks/own_logs/strange.py --json results/own-logs/strange.json

In every made-up domain a small run of FOCAL is trained and calibrated. Contexts of test tasks are consecutive rows from
anywhere in a new log, or begin with an episode. Then one thing is changed in them: a column of the observations is in
another unit, two columns are swapped, or the task is far outside of those trained on.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from cells import measure_cells
from domain import Domain, Logger

import omrl
from omrl.runs.model import STRANGE, Model

SIZES = (16, 64)
SEEDS, TRIES, STEPS = 2, 25, 300
NETWORKS = {"hidden": (32, 32), "encoder_hidden": (64, 64), "latent_dim": 4}
BATCHES = {"meta_batch": 8, "batch_size": 32, "context_size": 32}
# What happens to units: from kilograms to grams and back, from minutes to seconds and back, from Celsius to Fahrenheit.
UNITS: tuple[tuple[float, float], ...] = ((1000.0, 0.0), (0.001, 0.0), (60.0, 0.0), (1 / 60, 0.0), (1.8, 32.0))

Rows = dict[str, np.ndarray[Any, Any]]
Change = Callable[[Rows, np.random.Generator], Rows]


def _observations(rows: Rows, change: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]) -> Rows:
    return {name: change(values) if "observations" in name else values for name, values in rows.items()}


def other_unit(rows: Rows, rng: np.random.Generator) -> Rows:
    """One column of the observations, as if it were measured in another unit."""
    column, (factor, offset) = rng.integers(rows["observations"].shape[1]), UNITS[rng.integers(len(UNITS))]

    def change(obs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        changed = obs.copy()
        changed[:, column] = changed[:, column] * factor + offset
        return changed

    return _observations(rows, change)


def swapped(rows: Rows, rng: np.random.Generator) -> Rows:
    """Two columns of the observations in each other's place."""
    order = np.arange(rows["observations"].shape[1])
    one, other = rng.choice(order, 2, replace=False)
    order[[one, other]] = other, one
    return _observations(rows, lambda obs: obs[:, order])


def far_away(domain: Domain) -> Domain:
    """The domain with other tasks: all their numbers lie one to two ranges above those that it has."""
    ranges = {name: (2 * high - low, 3 * high - 2 * low) for name, (low, high) in domain.ranges.items()}
    found: Domain = type("Far", (type(domain),), {"ranges": ranges})()
    return found


def cut(rows: Rows, size: int, rng: np.random.Generator, beginning: bool) -> Rows:
    """So many consecutive rows of a log."""
    count = len(rows["rewards"])
    starts = np.flatnonzero(rows["step"] == 0) if beginning else np.arange(count)
    start = int(rng.choice(starts[starts + size <= count]))
    return {name: np.asarray(values[start : start + size]) for name, values in rows.items()}


def share(model: Model, contexts: list[Rows]) -> float:
    """That is called strange."""
    scores = [model.adapt(rows, i % SEEDS, on_strange="ignore").context_score for i, rows in enumerate(contexts)]
    return float(np.mean(np.array(scores, float) < STRANGE))


def measure(domain: Domain, logger: Logger) -> list[dict[str, Any]]:
    """Shares of contexts that are called strange, by what they are."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        domain.dataset(logger).save(folder / "data")
        omrl.train(
            *("focal", folder / "data", folder / "run"),
            **{"seeds": SEEDS, "steps": STEPS, "eval_every": 0, "device": "cpu", "warm_up": 0, **NETWORKS, **BATCHES},
        )
        omrl.calibrate(folder / "run")
        model = omrl.load(folder / "run")
        model.calibrated()  # read while it is there
    rng = np.random.default_rng(0)
    # Rows that neither training nor calibration has seen.
    logs = [domain.log(task, logger, seed=1) for task in domain.test_tasks]
    elsewhere = far_away(domain)
    far_logs = [elsewhere.log(task, logger, seed=1) for task in elsewhere.test_tasks]
    found: dict[str, Any] = {"domain": domain.name, "logger": logger, "seeds": SEEDS, "tasks": len(logs)}
    for size in SIZES:
        honest = [cut(log, size, rng, beginning=False) for log in logs for _ in range(TRIES)]
        begun = [cut(log, size, rng, beginning=True) for log in logs for _ in range(TRIES)]
        far = [cut(log, size, rng, beginning=False) for log in far_logs for _ in range(TRIES)]
        found[str(size)] = {
            "tries": len(honest),
            "honest": share(model, honest),
            "begun": share(model, begun),
            "units": share(model, [other_unit(rows, rng) for rows in honest]),
            "swapped": share(model, [swapped(rows, rng) for rows in honest]),
            "far": share(model, far),
        }
    print(json.dumps(found), flush=True)
    return [found]


if __name__ == "__main__":
    measure_cells(__doc__ or "", measure)
