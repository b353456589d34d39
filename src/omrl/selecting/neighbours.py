"""How far states and actions are from the log, told by how far the log's own are from one another."""

from __future__ import annotations

import numpy as np
import torch

from omrl.learning.regression import Array

# The distance to the log is that to the nearest so many rows, on average. One in twenty of the log's own is far.
NEAREST, USUAL = 3, 0.95
# Rows of a task that distances are taken to.
ROWS = 1_000


class Neighbours:
    """One task's rows x [N, d] and their episodes."""

    def __init__(self, x: Array, episode: Array) -> None:
        some = np.random.default_rng(0).permutation(len(x))[:ROWS]
        self._x = torch.from_numpy(x[some])
        # Rows beside one another are alike: only those of other episodes tell what is usual.
        apart = torch.cdist(self._x, self._x)
        apart[torch.from_numpy(episode[some][:, None] == episode[some])] = torch.inf
        own = _nearest(apart)
        own = own[np.isfinite(own)]
        self._usual = float(np.quantile(own, USUAL)) if len(own) else np.nan

    def far(self, x: Array) -> float:
        """Share of x [N, d] that is further from the log than one in twenty of its own rows; NaN of one episode."""
        if np.isnan(self._usual):
            return float("nan")
        return float((_nearest(torch.cdist(torch.from_numpy(x), self._x)) > self._usual).mean())


def _nearest(distances: torch.Tensor) -> Array:
    return distances.topk(min(NEAREST, distances.shape[1]), largest=False).values.mean(1).numpy()
