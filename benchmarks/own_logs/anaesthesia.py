"""A sleeper: keep somebody asleep and the blood pressure up. People take a drug up, and lose it, at their own pace."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from domain import Array, Domain, Step, Task, columns

# Below this pressure organs suffer, in mmHg; above this depth nobody should be awake.
TOO_LOW, AWAKE = 52.0, 72.0


class Anaesthesia(Domain):
    """Set two pumps: the drug, and what holds the pressure."""

    name = "anaesthesia"
    observations = ("depth", "pressure", "in_blood", "stimulus", "pressor")
    actions = ("drug", "support")
    low, high = (0.0, 0.0), (10.0, 5.0)
    varies = "dynamics"
    ranges: ClassVar = {"uptake": (0.15, 0.4), "clears": (0.08, 0.25), "tender": (0.6, 1.6), "heart": (0.6, 1.4)}
    # Wanted depth, drug per point above it, wanted pressure, support per mmHg below it.
    gains, gain_spread = (50.0, 0.12, 75.0, 0.06), (6.0, 0.08, 8.0, 0.06)

    def start(self, task: Task, episodes: int, rng: np.random.Generator) -> Array:
        return rng.uniform([45.0, 65.0, 1.5, 0.0, 0.0], [75.0, 95.0, 4.0, 1.0, 0.5], (episodes, 5))

    def step(self, task: Task, state: Array, act: Array, rng: np.random.Generator) -> Step:
        depth, pressure, blood, stimulus, pressor = columns(state)
        drug, support = columns(act)
        noise, luck = rng.normal(size=(4, len(state))), rng.random((2, len(state)))
        bloods = np.clip(blood + 0.5 * task["uptake"] * drug - task["clears"] * blood, 0.0, 25.0)
        pressors = np.clip(0.7 * pressor + 0.3 * support + 0.02 * noise[3], 0.0, 5.0)
        stimuli = np.clip(np.where(luck[0] < 0.1, luck[1], 0.85 * stimulus), 0.0, 1.0)
        # What a drug does saturates: twice as much is not twice as deep.
        share = bloods**4 / (bloods**4 + (4.0 / task["tender"]) ** 4)
        wanted = 95.0 - 75.0 * share + 15.0 * stimuli * (1.0 - share)
        rests = 95.0 - 45.0 * task["heart"] * share + 9.0 * pressors / (1.0 + 0.15 * pressors) + 8.0 * stimuli
        after = np.stack(
            [
                np.clip(depth + 0.6 * (wanted - depth) + 1.5 * noise[0], 0.0, 100.0),
                np.clip(pressure + 0.5 * (rests - pressure) + 1.5 * noise[1], 20.0, 160.0),
                bloods + 0.02 * np.abs(noise[2]),
                stimuli,
                pressors,
            ],
            axis=1,
        )
        low, awake = after[:, 1] < TOO_LOW, after[:, 0] > AWAKE
        off = np.abs(after[:, 0] - 50.0) / 10.0
        high = np.maximum(after[:, 1] - 100.0, 0.0) / 20.0
        reward = -off - high - 0.03 * drug - 0.05 * support - 2.0 * low - 0.5 * awake + 0.05 * noise[3]
        return Step(after, reward, np.zeros(len(state), bool), low)

    def control(self, gains: Array, state: Array) -> Array:
        depth, drug, pressure, support = columns(gains)
        return np.stack([3.0 + drug * (state[:, 0] - depth), 1.0 + support * (pressure - state[:, 1])], axis=1)
