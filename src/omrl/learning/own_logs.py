"""The preset `own-logs`: what it sets by looking at the data and the machine.

What is the same for all logs stands in the TOML file beside an algorithm. Here is what follows from the log at hand:
the same log on the same kind of device gives the same numbers, which the run keeps. docs/own-logs-results.md has what
the recipe was worth in six made-up domains.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from omrl.data import MetaDataset
from omrl.data.arrays import episode_starts

# The spread of the rewards that a critic learns from; an entropy coefficient of 1 is balanced for about this.
REWARD_SPREAD = 5.0
# A discount should see as far as an episode goes, within these numbers of steps.
SHORTEST, LONGEST = 10, 100
# Updates: each row is met this often, within bounds that keep two cores busy for minutes.
VISITS, FEWEST, MOST = 48, 5_000, 20_000
# Share of the updates in which the policy only imitates, while critics learn what the logged behaviour is worth.
IMITATING = 0.4
TASKS, ROWS, CONTEXT = 8, 32, 32


def fitted(fields: Collection[str], data: MetaDataset, device: str) -> dict[str, object]:
    """Values for those of an algorithm's hyperparameters, and for the run, that depend on the log.

    `fields` are the names that the algorithm knows; `data` are the training tasks.
    """
    count, squares, total, episodes = 0, 0.0, 0.0, 0
    for task in data.tasks:
        rows = data.rows(task.name)
        rewards = rows["rewards"].astype(np.float64)
        count, episodes = count + len(rewards), episodes + len(episode_starts(rows["episode"]))
        total, squares = total + rewards.sum(), squares + np.square(rewards).sum()
    spread = np.sqrt(max(squares / count - (total / count) ** 2, 0.0))
    length = np.clip(count / episodes, SHORTEST, LONGEST)
    width = 256 if device == "cuda" else 64 if count < 500_000 else 128
    tasks = min(TASKS, len(data.tasks))
    steps = int(np.clip(VISITS * count / (tasks * ROWS), FEWEST, MOST)) // 1_000 * 1_000
    values: dict[str, Any] = {
        # Three digits: a run should not be another one for the last bit of a sum.
        "reward_scale": float(f"{REWARD_SPREAD / spread:.3g}") if spread > 0 else 1.0,
        "gamma": float(f"{1 - 1 / length:.3g}"),
        "meta_batch": tasks,
        "batch_size": ROWS,
        "context_size": CONTEXT,
        "latent_dim": 5 if len(data.tasks) < 50 else 10,
        "warm_up": int(IMITATING * steps),
    }
    widths = {name: (width, width) for name in fields if name.endswith("hidden")}
    return {**{name: value for name, value in values.items() if name in fields}, **widths, "steps": steps}
