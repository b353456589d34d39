"""A classroom: a fan with four settings keeps air and warmth. Rooms differ, and so does what is minded most."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from domain import Array, Domain, Step, Task, columns

# Above this nobody can think, in parts per million.
STUFFY = 2_000.0
# Air that a setting moves, and power that it takes.
AIR, POWER = np.array([0.0, 0.12, 0.3, 0.7]), np.array([0.0, 0.1, 0.3, 1.0])


class Ventilation(Domain):
    """Turn the knob."""

    name = "ventilation"
    observations = ("co2", "warmth", "people", "outside")
    actions = ("fan",)
    choices = ("off", "low", "high", "boost")
    low, high = (0.0,), (3.0,)
    varies = "both"
    ranges: ClassVar = {"room": (0.7, 1.6), "leak": (0.01, 0.06), "minds_cold": (0.3, 1.5), "minds_air": (0.5, 1.5)}
    # Air at which the fan goes on, how much further for each setting, and how much sooner where it is warm.
    gains, gain_spread = (900.0, 300.0, 30.0, 0.0), (200.0, 120.0, 40.0, 100.0)

    def start(self, task: Task, episodes: int, rng: np.random.Generator) -> Array:
        return rng.uniform([500.0, 18.0, 0.0, -5.0], [1_200.0, 24.0, 30.0, 15.0], (episodes, 4))

    def step(self, task: Task, state: Array, act: Array, rng: np.random.Generator) -> Step:
        co2, warmth, people, outside = columns(state)
        setting, noise, luck = act[:, 0].astype(int), rng.normal(size=(4, len(state))), rng.random((2, len(state)))
        # A fan moves less air where the door stands open to let people in.
        share = (task["leak"] + AIR[setting]) / task["room"] / (1.0 + 0.05 * people)
        lost = np.minimum(share, 0.9)
        crowd = np.where(luck[0] < 0.08, 30.0 * luck[1], people)
        warmed = 0.04 * people / task["room"] + 0.6 * np.tanh(np.maximum(20.5 - warmth, 0.0))
        after = np.stack(
            [
                np.clip(co2 + 9.0 * people / task["room"] - lost * (co2 - 420.0) + 15.0 * noise[0], 400.0, 5_000.0),
                np.clip(warmth + warmed - 0.5 * lost * (warmth - outside) - 0.1 + 0.15 * noise[1], 0.0, 40.0),
                np.clip(crowd + 0.5 * noise[2], 0.0, 30.0),
                np.clip(5.0 + 0.95 * (outside - 5.0) + 0.6 * noise[3], -15.0, 25.0),
            ],
            axis=1,
        )
        stuffy = after[:, 0] > STUFFY
        air = np.maximum(after[:, 0] - 800.0, 0.0) / 600.0
        cold = np.maximum(20.0 - after[:, 1], 0.0) / 3.0
        hot = np.maximum(after[:, 1] - 25.0, 0.0) / 3.0
        reward = -task["minds_air"] * air - task["minds_cold"] * cold - hot - POWER[setting] - stuffy
        return Step(after, reward + 0.03 * noise[1], np.zeros(len(state), bool), stuffy)

    def control(self, gains: Array, state: Array) -> Array:
        on, further, warm, crowd = columns(gains)
        co2, warmth, people, _ = columns(state)
        felt = co2 + warm * (warmth - 21.0) + crowd * (people / 30.0 - 0.5)
        wanted = np.clip((felt - on) / np.maximum(further, 50.0) + 0.5, 0.0, 3.0)
        return -np.abs(wanted[:, None] - np.arange(4.0))
