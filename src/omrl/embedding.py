"""How well task embeddings keep tasks apart: the two figures of the paper's Table 1."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# Expected mean square difference per dimension of two points drawn uniformly from (-1, 1)^l: (2/3 is sqrt(2l/3)^2 / l).
RANDOM_DISTANCE = 2 / 3


def _distances(z: Array) -> Array:
    """Mean square difference per dimension of every pair of different tasks; z [tasks, l] holds their mean codes."""
    first, second = np.triu_indices(len(z), k=1)
    distances: Array = np.square(z[first] - z[second]).mean(-1)
    return distances


def effective_separation_rate(z: Array) -> float:
    """Share of pairs of tasks that are further apart than random points would be on average."""
    return float((_distances(z) > RANDOM_DISTANCE).mean())


def rms_distance(z: Array) -> float:
    """Root mean square distance per dimension between different tasks; at most 2, about 1.42 for a balanced cube."""
    return float(np.sqrt(_distances(z).mean()))
