"""Ants that walk forward and backward: the reward varies, the body does not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from omrl.families.batched import MujocoSimulator, View
from omrl.families.family import Parameter, Split, Task, TaskFamily, numbered_tasks


class AntFwdBack(MujocoSimulator):
    """Walk fast along x, in the task's direction, without jumping or falling."""

    obs_dim = 27
    act_dim = 8
    steps_per_second = 20
    model_file = "ant.xml"
    frame_skip = 5
    view = View(distance=4.0, elevation=-25.0)

    def __init__(self, tasks: Sequence[Task], threads: int | None = None) -> None:
        super().__init__(tasks, threads)
        self._direction = np.array([task.params["direction"] for task in tasks], dtype=np.float64)

    def _observe(self, positions: NDArray[np.float64], velocities: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.concatenate([positions[:, 2:], velocities], axis=1)

    def _reward(self, forward: NDArray[np.float64], effort: NDArray[np.float64]) -> NDArray[np.float64]:
        return self._direction * forward - 0.5 * effort + 1.0

    def _fallen(self, positions: NDArray[np.float64]) -> NDArray[np.bool_]:
        height = positions[:, 2]
        return ~((height > 0.2) & (height < 1.0))


ANT_FWD_BACK = TaskFamily(
    name="ant-fwd-back",
    env_id="omrl/AntFwdBack-v0",
    summary="an ant that walks forward or backward; trained and tested on the same two tasks, as in the paper",
    varies="reward",
    horizon=200,
    parameters={"direction": Parameter(default=1.0, choices=(-1.0, 1.0))},
    tasks=numbered_tasks([{"direction": 1.0}, {"direction": -1.0}]),
    splits={"paper": Split(train=(0, 1), test=(0, 1))},
    simulator_class=AntFwdBack,
)
