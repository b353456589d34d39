"""A battery behind a meter: buy power when it is cheap, use it when it is dear. Owners pay differently for the same."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from domain import Array, Domain, Step, Task, columns

# A battery that was emptier than this is damaged, as a share.
EMPTY = 0.05


class Battery(Domain):
    """Charge, or give back."""

    name = "battery"
    observations = ("charge", "price", "demand", "sun", "heat")
    actions = ("power",)
    low, high = (-5.0,), (5.0,)
    varies = "both"
    ranges: ClassVar = {"size": (8.0, 20.0), "loss": (0.03, 0.15), "wear": (0.0, 0.08), "fee": (0.0, 0.15)}
    # Price at which one does nothing, power per cent below it, wanted charge, power per share that is missing.
    gains, gain_spread = (0.3, 8.0, 0.5, 3.0), (0.06, 8.0, 0.2, 3.0)

    def start(self, task: Task, episodes: int, rng: np.random.Generator) -> Array:
        return rng.uniform([0.3, 0.1, 0.5, 0.0, 20.0], [0.8, 0.5, 3.0, 3.0, 30.0], (episodes, 5))

    def step(self, task: Task, state: Array, act: Array, rng: np.random.Generator) -> Step:
        charge, price, demand, sun, heat = columns(state)
        asked, noise = act[:, 0], rng.normal(size=(5, len(state)))
        # It takes less the fuller it is and gives less the emptier, and heat makes it slow.
        slow = 1.0 / (1.0 + np.exp((heat - 42.0) / 2.0))
        room = np.clip((1.0 - charge) / 0.2, 0.0, 1.0)
        left = np.clip(charge / 0.2, 0.0, 1.0)
        power = np.where(asked > 0, asked * room, asked * left) * slow
        stored = np.where(power > 0, power * (1.0 - task["loss"]), power / (1.0 - task["loss"]))
        bought = demand - sun + power
        after = np.stack(
            [
                np.clip(charge + 0.5 * stored / task["size"] + 0.005 * noise[0], 0.0, 1.0),
                np.clip(0.3 + 0.9 * (price - 0.3) + 0.045 * noise[1], 0.02, 0.8),
                np.clip(1.6 + 0.8 * (demand - 1.6) + 0.4 * noise[2], 0.1, 6.0),
                np.clip(1.2 + 0.9 * (sun - 1.2) + 0.45 * noise[3], 0.0, 5.0),
                np.clip(25.0 + 0.85 * (heat - 25.0) + 0.25 * power**2 + 0.3 * noise[4], 10.0, 60.0),
            ],
            axis=1,
        )
        paid = np.where(bought > 0, bought * (price + task["fee"]), 0.8 * bought * price)
        empty = after[:, 0] < EMPTY
        reward = -paid - task["wear"] * power**2 / 5.0 - 1.0 * empty + 0.02 * noise[0]
        return Step(after, reward, np.zeros(len(state), bool), empty)

    def control(self, gains: Array, state: Array) -> Array:
        fair, trade, wanted, fill = columns(gains)
        return (trade * (fair - state[:, 1]) + fill * (wanted - state[:, 0]))[:, None]
