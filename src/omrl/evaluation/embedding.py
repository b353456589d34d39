"""How well task embeddings keep tasks apart: the two figures of the paper's Table 1, and pictures of them."""

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


def pair_distances(z: Array, rng: np.random.Generator, pairs: int = 50_000) -> tuple[Array, Array]:
    """Root mean square distances per dimension between draws z [tasks, draws, l]: of one task, and of two tasks.

    Both are samples of `pairs` pairs; draws of one task are never paired with themselves.
    """
    tasks, draws, _ = z.shape

    def sample(other_task: bool) -> Array:
        if (tasks if other_task else draws) < 2:
            return np.empty(0)
        first, at = rng.integers(tasks, size=pairs), rng.integers(draws, size=pairs)
        if other_task:
            second, there = (first + rng.integers(1, tasks, size=pairs)) % tasks, rng.integers(draws, size=pairs)
        else:
            second, there = first, (at + rng.integers(1, draws, size=pairs)) % draws
        distances: Array = np.sqrt(np.square(z[first, at] - z[second, there]).mean(-1))
        return distances

    return sample(False), sample(True)


def principal_components(points: Array, count: int) -> tuple[Array, Array]:
    """Coordinates [n, count] along the directions of largest variance, and the share of the variance each explains.

    Directions that points of fewer dimensions do not have are zero. A direction's sign is chosen so that its largest
    loading is positive: the same points give the same picture everywhere.
    """
    points = np.asarray(points, dtype=np.float64)
    centred = points - points.mean(0)
    _, scale, directions = np.linalg.svd(centred, full_matrices=False)
    largest = directions[np.arange(len(directions)), np.abs(directions).argmax(1)]
    directions = directions * np.where(largest < 0, -1.0, 1.0)[:, None]
    variance = np.square(scale)
    kept = min(count, len(directions))
    coordinates, share = np.zeros((len(points), count)), np.zeros(count)
    coordinates[:, :kept] = centred @ directions[:kept].T
    share[:kept] = variance[:kept] / max(variance.sum(), np.finfo(np.float64).tiny)
    return coordinates, share


def affinities(points: Array, perplexity: float) -> Array:
    """t-SNE's conditional probabilities [n, n]: row i is a Gaussian around point i whose entropy is log(perplexity).

    As usual it is cut off beyond the nearest 3 x perplexity points.
    """
    points = np.asarray(points, dtype=np.float64)
    count = len(points)
    square = np.square(points).sum(1)
    distances = np.maximum(square[:, None] + square - 2.0 * points @ points.T, 0.0)
    np.fill_diagonal(distances, np.inf)
    near = min(count - 1, int(3 * perplexity))
    which = np.argpartition(distances, near - 1, axis=1)[:, :near]
    gaps = np.take_along_axis(distances, which, axis=1)
    gaps -= gaps.min(1, keepdims=True)  # leaves the probabilities as they are, and at least one of them far from zero
    low, high = np.full((count, 1), -60.0), np.full((count, 1), 60.0)  # log precision
    wanted = np.log(min(perplexity, near))
    for _ in range(50):
        middle = (low + high) / 2
        weight = np.exp(-np.minimum(gaps * np.exp(middle), 700.0))
        p = weight / weight.sum(1, keepdims=True)
        spread = -(p * np.log(np.maximum(p, 1e-300))).sum(1, keepdims=True) > wanted
        low, high = np.where(spread, middle, low), np.where(spread, high, middle)
    found = np.zeros((count, count))
    np.put_along_axis(found, which, p, axis=1)
    return found


def tsne(points: Array, perplexity: float = 30.0, iterations: int = 400) -> Array:
    """t-SNE (van der Maaten and Hinton, 2008) of up to a few thousand points: [n, l] to [n, 2].

    Exact gradients, started from the two principal components, so that the same points give the same picture. Far
    more neighbours than points cannot be asked for: the perplexity is lowered to a third of the points.
    """
    count = len(points)
    if count < 4:
        return principal_components(points, 2)[0]
    p = affinities(points, min(perplexity, (count - 1) / 3))
    p = ((p + p.T) / (2 * count)).astype(np.float32)
    start = principal_components(points, 2)[0]
    y = (start / max(start[:, 0].std(), 1e-12) * 1e-4).astype(np.float32)
    exaggeration, exaggerated = 12.0, iterations // 4
    rate = max(count / exaggeration / 4, 50.0)
    step, gain = np.zeros_like(y), np.ones_like(y)
    near, product = np.empty((count, count), np.float32), np.empty((count, count), np.float32)
    left, right, sums = (np.ones((count, size), np.float32) for size in (4, 4, 3))
    for iteration in range(iterations):
        pull, momentum = (exaggeration, 0.5) if iteration < exaggerated else (1.0, 0.8)
        # One matrix product gives 1 + |y_i - y_j|^2; its inverse is the Student t kernel.
        square = np.square(y).sum(1)
        left[:, :2], left[:, 2] = -2.0 * y, square + 1.0
        right[:, :2], right[:, 3] = y, square
        np.matmul(left, right.T, out=near)
        np.reciprocal(np.maximum(near, 1.0, out=near), out=near)
        np.fill_diagonal(near, 0.0)
        total = float(near.sum(dtype=np.float64))
        sums[:, :2] = y
        attract = pull * (np.multiply(p, near, out=product) @ sums)
        repel = np.multiply(near, near, out=product) @ sums / total
        both = attract - repel  # columns: sum w_ij y_j, then sum w_ij
        gradient = 4.0 * (both[:, 2:] * y - both[:, :2])
        gain = np.maximum(np.where(gradient * step < 0, gain + 0.2, gain * 0.8), 0.01)
        step = momentum * step - rate * gain * gradient
        y = y + step
        y -= y.mean(0)
    found: Array = y.astype(np.float64)
    return found
