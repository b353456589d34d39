"""A family of this package's own: tanks that lose warmth at different rates, each to be kept at a wanted one."""

from __future__ import annotations

import numpy as np

from omrl.families.batched import Simulator, Step
from omrl.families.family import Parameter, TaskFamily, numbered_tasks, random_split


class Tanks(Simulator):
    """Warmth and wanted warmth, and a heater."""

    obs_dim, act_dim, steps_per_second = 2, 1, 1

    def __init__(self, tasks, threads=None):
        super().__init__(tasks, threads)
        self.loss = np.array([task.params["loss"] for task in tasks])
        self.state = np.tile([0.0, 1.0], (self.num, 1))

    def reset(self, which, rngs):
        for i, rng in zip(which, rngs, strict=True):
            self.state[i] = rng.uniform([0.0, 0.5], [0.5, 1.5])

    def observe(self):
        return self.state.astype(np.float32)

    def _advance(self, actions):
        self.state[:, 0] += 0.2 * (1.0 + actions[:, 0]) - self.loss * self.state[:, 0]
        rewards = -np.abs(self.state[:, 0] - self.state[:, 1])
        return Step(self.observe(), rewards.astype(np.float32), np.zeros(self.num, bool), {})

    def get_state(self):
        return self.state.copy()

    def set_state(self, state):
        self.state = self._checked_state(state, self.state.shape)


TANKS = TaskFamily(
    name="tanks",
    summary="tanks that lose warmth at different rates",
    varies="dynamics",
    horizon=30,
    parameters={"loss": Parameter(default=0.1, positive=True)},
    tasks=numbered_tasks([{"loss": loss} for loss in np.linspace(0.05, 0.3, 8).tolist()]),
    splits={"paper": random_split(tasks=8, test=2, seed=0)},
    simulator_class=Tanks,
)
