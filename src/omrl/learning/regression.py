"""Regression that knows what it does not know: what all tasks share, and what each task has of its own.

A number y of a row x in task t is f(x) + g_t(x) + noise, with f and every g_t drawn from Gaussian processes that are
written out in features: a constant, the numbers of x, and waves of random frequencies. So all of it is linear, and its
posterior, its evidence and draws from it have closed forms. Draws agree where the log has rows, and differ where it has
none: that is what makes them useful.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

WAVES = 200
# How far apart numbers of x have to be for f to differ, in units of their spread.
LENGTHS = (1.5, 3.0, 6.0)
# Variance of the noise over that of f, and how much smaller than f what is a task's own may be.
NOISES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
OWN = (1.0, 1e1, 1e2, 1e4)


@dataclass(frozen=True)
class Features:
    """A constant, the numbers of x, and waves."""

    frequencies: Array
    """[d, WAVES]"""
    phases: Array
    """[WAVES]"""

    @classmethod
    def draw(cls, inputs: int, length: float, rng: np.random.Generator) -> Features:
        """Those whose covariance is exp(-|x - x'|^2 / (2 length^2))."""
        return cls(rng.normal(size=(inputs, WAVES)) / length, rng.uniform(0, 2 * np.pi, WAVES))

    def __call__(self, x: Array) -> Array:
        """[..., 1 + d + WAVES] of x [..., d]."""
        waves = np.sqrt(2 / WAVES) * np.cos(x @ self.frequencies + self.phases)
        return np.concatenate([np.ones((*x.shape[:-1], 1)), x, waves], axis=-1)


@dataclass(frozen=True)
class Sums:
    """All that regression needs of the tasks' rows."""

    values: Array
    """Eigenvalues of each task's Gram matrix [tasks, D]."""
    vectors: Array
    """[tasks, D, D]"""
    cross: Array
    """Features times targets [tasks, D, outputs]."""
    squares: Array
    """Of targets [tasks, outputs]."""
    rows: int

    @classmethod
    def of(cls, features: Features, inputs: Sequence[Array], targets: Sequence[Array]) -> Sums:
        """From each task's x [N, d] and y [N, outputs]."""
        grams, cross = [], []
        for x, y in zip(inputs, targets, strict=True):
            phi = features(x)
            grams.append(phi.T @ phi)
            cross.append(phi.T @ y)
        values, vectors = np.linalg.eigh(np.stack(grams))
        squares = np.stack([np.square(y).sum(0) for y in targets])
        return cls(np.maximum(values, 0.0), vectors, np.stack(cross), squares, sum(map(len, inputs)))

    def without_own(self, own: float) -> tuple[Array, Array, Array]:
        """Gram matrix, cross products and squares that are left for f where each g_t has the ridge `own`."""
        gram = np.einsum(
            "tij,tj,tkj->ik", self.vectors, self.values * own / (self.values + own), self.vectors, optimize=True
        )
        turned = np.einsum("tji,tjo->tio", self.vectors, self.cross)
        shrunk = turned / (self.values + own)[..., None]
        cross = own * np.einsum("tij,tjo->io", self.vectors, shrunk, optimize=True)
        return gram, cross, (self.squares - (turned * shrunk).sum(1)).sum(0)


@dataclass(frozen=True)
class Chosen:
    """Ridges of one output, and what the evidence says of its noise."""

    shared: float
    own: float
    noise: float
    """Standard deviation."""
    evidence: float


def choose(sums: Sums) -> list[Chosen]:
    """The ridges with the largest evidence, for each output."""
    best: list[Chosen | None] = [None] * sums.squares.shape[1]
    for own in sorted({noise * share for noise in NOISES for share in OWN}):
        gram, cross, squares = sums.without_own(own)
        values, vectors = np.linalg.eigh(gram)
        values, turned = np.maximum(values, 0.0), np.square(vectors.T @ cross)
        own_part = np.log1p(sums.values / own).sum()
        for shared in NOISES:
            if not any(np.isclose(own, shared * share) for share in OWN):
                continue
            left = np.maximum(squares - (turned / (values + shared)[:, None]).sum(0), 1e-12)
            determinant = own_part + np.log1p(values / shared).sum()
            evidence = -0.5 * (sums.rows * np.log(left / sums.rows) + determinant)
            for o, value in enumerate(evidence):
                found = best[o]
                if found is None or value > found.evidence:
                    best[o] = Chosen(shared, own, float(np.sqrt(left[o] / sums.rows)), float(value))
    return [one for one in best if one is not None]


def draw_weights(
    sums: Sums, chosen: Sequence[Chosen], tasks: Sequence[int], draws: int, rng: np.random.Generator | None
) -> Array:
    """Weights [draws, tasks, D, outputs] of f + g_t from the posterior; without random numbers, its mean."""
    width = sums.vectors.shape[-1]
    found = np.zeros((draws, len(tasks), width, len(chosen)))
    for o, one in enumerate(chosen):

        def noise(precision: Array, scale: float = one.noise) -> Array | float:
            return 0.0 if rng is None else scale * rng.normal(size=(draws, width)) / np.sqrt(precision)

        gram, cross, _ = sums.without_own(one.own)
        values, vectors = np.linalg.eigh(gram)
        precision = np.maximum(values, 0.0) + one.shared
        shared = np.atleast_2d((vectors.T @ cross[:, o]) / precision + noise(precision)) @ vectors.T  # [draws, D]
        for i, t in enumerate(tasks):
            turn, values = sums.vectors[t], sums.values[t]
            left = turn.T @ sums.cross[t, :, o] - values * (shared @ turn)
            precision = values + one.own
            found[:, i, :, o] = shared + (left / precision + noise(precision)) @ turn.T
    return found


@dataclass(frozen=True)
class Fitted:
    """Features and ridges that fit best."""

    features: Features
    sums: Sums
    chosen: list[Chosen]

    @property
    def evidence(self) -> float:
        """Of all outputs."""
        return sum(one.evidence for one in self.chosen)

    def draw(self, tasks: Sequence[int], draws: int, rng: np.random.Generator) -> Array:
        """Weights [draws, tasks, D, outputs]."""
        return draw_weights(self.sums, self.chosen, tasks, draws, rng)

    def shared(self, tasks: Sequence[int]) -> Array:
        """Weights [D, outputs] of f that are expected, by the rows of these tasks alone."""
        own = list(tasks)
        parts = ("values", "vectors", "cross", "squares")
        some = replace(self.sums, **{name: getattr(self.sums, name)[own] for name in parts})
        found = []
        for o, one in enumerate(self.chosen):
            gram, cross, _ = some.without_own(one.own)
            found.append(np.linalg.solve(gram + one.shared * np.eye(len(gram)), cross[:, o]))
        return np.stack(found, -1)

    def mean(self, task: int) -> Array:
        """Weights [D, outputs] that are expected."""
        return np.asarray(draw_weights(self.sums, self.chosen, [task], 1, None)[0, 0])


def fit(inputs: Sequence[Array], targets: Sequence[Array], seed: int) -> Fitted:
    """The length and the ridges with the largest evidence, from each task's x [N, d] and y [N, outputs]."""
    found = []
    for length in LENGTHS:
        features = Features.draw(inputs[0].shape[1], length, np.random.default_rng([seed, 0]))
        sums = Sums.of(features, inputs, targets)
        found.append(Fitted(features, sums, choose(sums)))
    return max(found, key=lambda one: one.evidence)
