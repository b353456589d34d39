"""A crane: a trolley carries a load on a rope to its place without letting it swing. Loads, ropes and winds differ."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from domain import Array, Domain, Step, Task, columns

# A load that swings further than this hits something, in radians.
TOO_FAR = 0.3
SECONDS = 0.2


class Crane(Domain):
    """Push the trolley."""

    name = "crane"
    observations = ("distance", "speed", "swing", "swing_rate")
    actions = ("drive",)
    low, high = (-1.0,), (1.0,)
    varies = "dynamics"
    ranges: ClassVar = {"rope": (1.0, 4.0), "load": (0.2, 1.5), "drag": (0.1, 0.6), "motor": (1.5, 3.5)}
    # Drive per metre, per metre a second, per radian and per radian a second.
    gains, gain_spread = (-0.35, -0.5, 0.0, 0.0), (0.3, 0.4, 0.6, 0.4)

    def start(self, task: Task, episodes: int, rng: np.random.Generator) -> Array:
        return rng.uniform([-3.0, -0.5, -0.1, -0.1], [3.0, 0.5, 0.1, 0.1], (episodes, 4))

    def step(self, task: Task, state: Array, act: Array, rng: np.random.Generator) -> Step:
        distance, speed, swing, rate = columns(state)
        drive, noise = act[:, 0], rng.normal(size=(4, len(state)))
        pull = 4.0 * task["load"] * np.sin(swing) * np.cos(swing)
        # The brakes hold it still while the motor is weak, and so does friction.
        moved = np.sign(drive) * np.maximum(np.abs(drive) - 0.08, 0.0)
        push = task["motor"] * moved - task["drag"] * speed * np.abs(speed) - 0.6 * np.tanh(6.0 * speed) + pull
        thrust = push / (1.0 + task["load"] * np.sin(swing) ** 2)
        turn = -(9.8 * np.sin(swing) + thrust * np.cos(swing)) / task["rope"] - 0.3 * rate
        # The swing is stepped with its new rate: the other way round a rope would gain energy from nothing.
        rates = np.clip(rate + SECONDS * turn + 0.04 * noise[3], -4.0, 4.0)
        speeds = np.clip(speed + SECONDS * thrust + 0.03 * noise[1], -5.0, 5.0)
        after = np.stack(
            [
                np.clip(distance + SECONDS * speeds + 0.01 * noise[0], -8.0, 8.0),
                speeds,
                np.clip(swing + SECONDS * rates, -1.5, 1.5),
                rates,
            ],
            axis=1,
        )
        too_far = np.abs(after[:, 2]) > TOO_FAR
        reward = -np.abs(after[:, 0]) / 3.0 - np.abs(after[:, 2]) - 0.1 * drive**2 - 2.0 * too_far + 0.02 * noise[2]
        return Step(after, reward, np.zeros(len(state), bool), too_far)

    def control(self, gains: Array, state: Array) -> Array:
        return (gains * state).sum(1, keepdims=True)
