"""A field: water it so that the upper soil is as moist as its crop likes. Crops and the price of water differ."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from domain import Array, Domain, Step, Task, columns

# What no crop survives for long, in percent.
WILTING = 12.0


class Irrigation(Domain):
    """Open the valve."""

    name = "irrigation"
    observations = ("upper", "lower", "evaporation", "rain_chance")
    actions = ("water",)
    low, high = (0.0,), (20.0,)
    varies = "reward"
    ranges: ClassVar = {"likes": (20.0, 36.0), "price": (0.0, 0.08), "hates_wet": (0.5, 2.5)}
    # Wanted moisture, water per percent that is missing, less water where rain is likely, more where it is hot.
    gains, gain_spread = (24.0, 0.8, -3.0, 0.6), (6.0, 0.6, 4.0, 0.6)

    def start(self, task: Task, episodes: int, rng: np.random.Generator) -> Array:
        return rng.uniform([10.0, 15.0, 1.0, 0.0], [35.0, 40.0, 6.0, 1.0], (episodes, 4))

    def step(self, task: Task, state: Array, act: Array, rng: np.random.Generator) -> Step:
        upper, lower, evaporation, chance = columns(state)
        water, noise, luck = act[:, 0], rng.normal(size=(4, len(state))), rng.random((2, len(state)))
        rain = np.where(luck[0] < 0.4 * chance, 12.0 * luck[1], 0.0)
        # Dry soil lets less go, wet soil lets more through.
        lost = 1.1 * evaporation * np.tanh(upper / 20.0)
        through = 0.35 * np.maximum(upper - 25.0, 0.0) + 0.02 * upper
        rise = 0.03 * np.maximum(lower - upper, 0.0)
        after = np.stack(
            [
                np.clip(upper + 0.8 * (water + rain) - lost - through + rise + 0.4 * noise[0], 1.0, 60.0),
                np.clip(0.96 * lower + 0.6 * through - rise + 0.3 * noise[1], 1.0, 60.0),
                np.clip(3.5 + 0.85 * (evaporation - 3.5) + 0.7 * noise[2], 0.5, 8.0),
                np.clip(0.3 + 0.8 * (chance - 0.3) + 0.12 * noise[3], 0.0, 1.0),
            ],
            axis=1,
        )
        off = after[:, 0] - task["likes"]
        unhappy = np.where(off > 0, task["hates_wet"], 1.0) * np.minimum(np.abs(off), 25.0) / 10.0
        wilted = after[:, 0] < WILTING
        reward = -unhappy - task["price"] * water - 1.0 * wilted + 0.05 * noise[0]
        return Step(after, reward, np.zeros(len(state), bool), wilted)

    def control(self, gains: Array, state: Array) -> Array:
        wanted, more, rain, heat = columns(gains)
        upper, _, evaporation, chance = columns(state)
        return (3.0 + more * (wanted - upper) + rain * chance + heat * (evaporation - 3.5))[:, None]
