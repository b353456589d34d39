"""Half-cheetahs that run at a wanted velocity, or forward and backward: the reward varies, the body does not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from omrl.families.batched import MujocoSimulator
from omrl.families.family import Parameter, Split, Task, TaskFamily, authors_generator, numbered_tasks


class HalfCheetah(MujocoSimulator):
    """The body: what it shows. It never terminates."""

    obs_dim = 20
    act_dim = 6
    steps_per_second = 20
    model_file = "half_cheetah.xml"
    frame_skip = 5

    def _observe(self, positions: NDArray[np.float64], velocities: NDArray[np.float64]) -> NDArray[np.float64]:
        x, z = positions[:, 0], positions[:, 1]
        torso = np.stack([x, np.zeros_like(x), z + 0.7], axis=1)  # the model hangs its torso 0.7 above the ground
        return np.concatenate([positions[:, 1:], velocities, torso], axis=1)


class HalfCheetahVel(HalfCheetah):
    """Run at the task's velocity."""

    def __init__(self, tasks: Sequence[Task], threads: int | None = None) -> None:
        super().__init__(tasks, threads)
        self._velocity = np.array([task.params["velocity"] for task in tasks], dtype=np.float64)

    def _reward(self, forward: NDArray[np.float64], effort: NDArray[np.float64]) -> NDArray[np.float64]:
        return -np.abs(forward - self._velocity) - 0.05 * effort


class HalfCheetahFwdBack(HalfCheetah):
    """Run fast, in the task's direction."""

    def __init__(self, tasks: Sequence[Task], threads: int | None = None) -> None:
        super().__init__(tasks, threads)
        self._direction = np.array([task.params["direction"] for task in tasks], dtype=np.float64)

    def _reward(self, forward: NDArray[np.float64], effort: NDArray[np.float64]) -> NDArray[np.float64]:
        return self._direction * forward - 0.05 * effort


HALF_CHEETAH_VEL = TaskFamily(
    name="half-cheetah-vel",
    env_id="omrl/HalfCheetahVel-v0",
    summary="a half-cheetah that runs at a wanted velocity in [0, 3]",
    varies="reward",
    horizon=200,
    logged_steps=1000,
    parameters={"velocity": Parameter(default=1.5)},
    tasks=numbered_tasks([{"velocity": v} for v in authors_generator(1337).uniform(0.0, 3.0, size=100).tolist()]),
    splits={"paper": Split(train=tuple(range(80)), test=tuple(range(80, 100)))},
    simulator_class=HalfCheetahVel,
)

HALF_CHEETAH_FWD_BACK = TaskFamily(
    name="half-cheetah-fwd-back",
    env_id="omrl/HalfCheetahFwdBack-v0",
    summary="a half-cheetah that runs backward or forward; trained and tested on the same two tasks, as in the paper",
    varies="reward",
    horizon=200,
    logged_steps=1000,
    parameters={"direction": Parameter(default=1.0, choices=(-1.0, 1.0))},
    tasks=numbered_tasks([{"direction": -1.0}, {"direction": 1.0}]),
    splits={"paper": Split(train=(0, 1), test=(0, 1))},
    simulator_class=HalfCheetahFwdBack,
)
