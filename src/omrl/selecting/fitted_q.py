"""Fitted-Q evaluation of policies that know their task by z, over a finite horizon and in closed form.

Q_h(s, z, a), the return of acting by `a` and then by the policy for h - 1 more steps, is a ridge regression on
features of (s, z, a), towards r + Q_{h-1}(s', z, pi(s', z)). Every step back is one product with the same matrix, and
cannot diverge: a value lies between the worst and the best h rewards of the log.
"""

from __future__ import annotations

import numpy as np

from omrl.learning.regression import Array, Features

LENGTH, RIDGE = 3.0, 1e-2


class FittedQ:
    """Rows [N] of all tasks with the z of their task, and resampled episodes: weights [N, B]."""

    def __init__(self, obs: Array, z: Array, act: Array, rew: Array, weights: Array, seed: int) -> None:
        inputs = np.concatenate([obs, z, act], -1)
        self._features = Features.draw(inputs.shape[-1], LENGTH, np.random.default_rng([seed, 5]))
        self._z, self._rew, self._weights = z, rew, weights
        self._phi = self._features(inputs)
        ridge = RIDGE * np.eye(self._phi.shape[1])
        self._inverse = [np.linalg.inv((self._phi * w[:, None]).T @ self._phi + ridge) for w in weights.T]

    def evaluate(self, next_obs: Array, next_act: Array, term: Array, horizon: int) -> Array:
        """Weights [D, B] of Q_horizon, of whoever acts by `next_act` at the next observations."""
        after = self._features(np.concatenate([next_obs, self._z, next_act], -1))
        low, high = self._rew.min(), self._rew.max()
        going, found = (~term)[:, None].astype(float), np.zeros((self._phi.shape[1], self._weights.shape[1]))
        for h in range(horizon):
            value = np.clip(after @ found, h * low, h * high)
            sums = self._phi.T @ (self._weights * (self._rew[:, None] + going * value))
            found = np.stack([inverse @ column for inverse, column in zip(self._inverse, sums.T, strict=True)], -1)
        return found

    def value(self, q: Array, obs: Array, z: Array, act: Array) -> Array:
        """Q [N, B] of actions."""
        return np.asarray(self._features(np.concatenate([obs, z, act], -1)) @ q)
