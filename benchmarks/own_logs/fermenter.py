"""A fermenter: cells grow on sugar, make heat while they do, and die when it gets too hot. Strains differ."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from domain import Array, Domain, Step, Task, columns

# Above this no cell lives, in degrees Celsius.
DEADLY = 40.0


class Fermenter(Domain):
    """Cool and feed, so that much grows and nothing boils."""

    name = "fermenter"
    observations = ("temperature", "cells", "sugar", "acid")
    actions = ("cooling", "feed")
    low, high = (0.0, 0.0), (100.0, 4.0)
    varies = "dynamics"
    ranges: ClassVar = {"rate": (0.25, 0.55), "heat": (2.0, 4.0), "cooler": (0.012, 0.03), "likes": (31.0, 36.0)}
    # Wanted temperature, cooling per degree above it, wanted sugar, feed per gram that is missing.
    gains, gain_spread = (32.0, 8.0, 3.0, 0.6), (3.0, 6.0, 1.5, 0.4)

    def start(self, task: Task, episodes: int, rng: np.random.Generator) -> Array:
        return rng.uniform([24.0, 1.0, 2.0, 0.0], [33.0, 3.0, 6.0, 1.0], (episodes, 4))

    def step(self, task: Task, state: Array, act: Array, rng: np.random.Generator) -> Step:
        temperature, cells, sugar, acid = columns(state)
        cooling, feed = columns(act)
        noise = rng.normal(size=(4, len(state)))
        warmth = np.exp(-(((temperature - task["likes"]) / 6.0) ** 2))
        growth = 0.5 * task["rate"] * cells * warmth * sugar / (sugar + 1.5) / (1.0 + 0.3 * acid)
        # Cells that have more than they need turn sugar into acid.
        waste = 0.05 * cells * np.maximum(sugar - 5.0, 0.0) / 5.0
        after = np.stack(
            [
                temperature
                + 1.5 * task["heat"] * growth
                - task["cooler"] * cooling * (temperature - 12.0) / 10.0
                + 0.03 * (22.0 - temperature)
                + 0.25 * noise[0],
                np.clip(cells + growth - 0.06 * cells + 0.03 * noise[1], 0.1, 40.0),
                np.clip(sugar + 0.5 * feed - 1.2 * growth - waste + 0.1 * noise[2], 0.0, 30.0),
                np.clip(0.9 * acid + waste + 0.03 * noise[3], 0.0, 10.0),
            ],
            axis=1,
        )
        after[:, 0] = np.clip(after[:, 0], 5.0, 60.0)
        dead = after[:, 0] > DEADLY
        reward = 2.0 * growth - 0.1 * feed - 0.004 * cooling - 30.0 * dead + 0.05 * noise[1]
        return Step(after, reward, dead, dead)

    def control(self, gains: Array, state: Array) -> Array:
        wanted, cool, sugar, feed = columns(gains)
        return np.stack([20.0 + cool * (state[:, 0] - wanted), 1.0 + feed * (sugar - state[:, 2])], axis=1)
