"""Point robots in the plane: one looks for a goal it cannot see, the other walks to a known goal in a hidden wind."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from omrl.families.batched import Painter, Simulator, Step
from omrl.families.family import Parameter, Rewards, Task, TaskFamily, authors_generator, numbered_tasks, random_split
from omrl.families.painters import GoalPainter, WindPainter

STRIDE = 0.1  # an action of 1 moves the robot this far
GOAL_RADIUS = 0.2  # the sparse reward is paid strictly inside
HORIZON = 20


class PointRobot(Simulator):
    """A position in the plane, which starts at the origin without noise and never terminates."""

    obs_dim = 2
    act_dim = 2
    steps_per_second = 10
    drift: NDArray[np.float64]
    """What a step adds by itself, [N, 2]."""
    goal: NDArray[np.float64]
    """[N, 2]"""

    def __init__(self, tasks: Sequence[Task], threads: int | None = None) -> None:
        super().__init__(tasks, threads)
        self._position = np.zeros((self.num, 2))

    def reset(self, which: Sequence[int] | NDArray[np.integer], rngs: Sequence[np.random.Generator]) -> None:
        for index, _ in zip(which, rngs, strict=True):
            self._position[index] = 0.0

    def observe(self) -> NDArray[np.float32]:
        return self._position.astype(np.float32)

    def _move(self, actions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Move every robot; its new distance to the goal, [N]."""
        self._position = self._position + STRIDE * actions + self.drift
        gap = self._position - self.goal
        return np.hypot(gap[:, 0], gap[:, 1])

    def get_state(self) -> NDArray[np.float64]:
        return self._position.copy()

    def set_state(self, state: ArrayLike) -> None:
        self._position = self._checked_state(state, self._position.shape)


class SparsePointRobot(PointRobot):
    """Find the goal: nothing is paid outside its radius."""

    def __init__(self, tasks: Sequence[Task], threads: int | None = None) -> None:
        super().__init__(tasks, threads)
        self.drift = np.zeros((self.num, 2))
        self.goal = np.array([task.params["goal"] for task in tasks], dtype=np.float64)

    def _advance(self, actions: NDArray[np.float64]) -> Step:
        distance = self._move(actions)
        return Step(
            obs=self.observe(),
            rewards=np.where(distance < GOAL_RADIUS, 1.0 - distance, 0.0).astype(np.float32),
            terminations=np.zeros(self.num, dtype=np.bool_),
            extras={"rewards_dense": (-distance).astype(np.float32)},
        )

    def painter(self, index: int) -> Painter:
        return GoalPainter(self.goal[index], GOAL_RADIUS)


class PointRobotWind(PointRobot):
    """Walk to (1, 0) while the task's wind blows."""

    def __init__(self, tasks: Sequence[Task], threads: int | None = None) -> None:
        super().__init__(tasks, threads)
        self.goal = np.tile([1.0, 0.0], (self.num, 1))
        self.drift = np.array([task.params["wind"] for task in tasks], dtype=np.float64)

    def _advance(self, actions: NDArray[np.float64]) -> Step:
        distance = self._move(actions)
        return Step(
            obs=self.observe(),
            rewards=(-distance).astype(np.float32),
            terminations=np.zeros(self.num, dtype=np.bool_),
            extras={},
        )

    def painter(self, index: int) -> Painter:
        return WindPainter(self.goal[index], self.drift[index])


def best_sparse_return(task: Task) -> float:
    """After t steps the robot can be anywhere in the square of half-width 0.1 t, and go on to all that follows.

    So the way that is nearest to the goal at every t at once exists, and nothing pays more. A distance of exactly the
    radius is not inside; the margin keeps rounding from deciding it.
    """
    goal = np.asarray(task.params["goal"], dtype=np.float64)
    reach = STRIDE * np.arange(1, HORIZON + 1)[:, None]  # [t, 1]
    gap = goal - np.clip(goal, -reach, reach)
    distance = np.hypot(gap[:, 0], gap[:, 1])
    return float(np.where(distance < GOAL_RADIUS - 1e-9, 1.0 - distance, 0.0).sum())


def in_radii(rewards: Rewards) -> Rewards:
    """Sparse rewards as 1 - d / 0.2 instead of 1 - d, for a distance d inside the radius: nothing at its edge."""
    return np.where(rewards > 0.0, 1.0 - (1.0 - rewards) / GOAL_RADIUS, 0.0)


def best_wind_return(task: Task) -> float | None:
    """As for the sparse goal, with squares that drift: after t steps |x - t w_x| <= 0.1 t, and so for y.

    A wind above 0.1 cannot be held against: the nearest points are then no longer on one way, and None is returned.
    """
    wind = np.asarray(task.params["wind"], dtype=np.float64)
    if np.abs(wind).max() > STRIDE:
        return None
    reach = (STRIDE + wind[0]) * np.arange(1, HORIZON + 1)
    return -float(np.maximum(0.0, 1.0 - reach).sum())


def _half_circle(goals: int) -> tuple[Task, ...]:
    angles = np.arange(goals) * np.pi / (goals - 1)
    return numbered_tasks([{"goal": goal} for goal in np.stack([np.cos(angles), np.sin(angles)], axis=1).tolist()])


def _winds(count: int) -> tuple[Task, ...]:
    along_x, along_y = authors_generator(1337).uniform(-0.05, 0.05, size=(2, count))
    return numbered_tasks([{"wind": wind} for wind in np.stack([along_x, along_y], axis=1).tolist()])


SPARSE_POINT_ROBOT = TaskFamily(
    name="sparse-point-robot",
    env_id="omrl/SparsePointRobot-v0",
    summary="a point that looks for a goal on the unit half circle, paid within 0.2 of it",
    varies="reward",
    horizon=HORIZON,
    parameters={"goal": Parameter(default=[0.0, 1.0])},
    tasks=_half_circle(100),
    splits={"paper": random_split(tasks=100, test=20, seed=2021)},
    simulator_class=SparsePointRobot,
    best=best_sparse_return,
    units={"return_in_radii": in_radii},
)

POINT_ROBOT_WIND = TaskFamily(
    name="point-robot-wind",
    env_id="omrl/PointRobotWind-v0",
    summary="a point that walks to (1, 0) in a hidden wind",
    varies="dynamics",
    horizon=HORIZON,
    parameters={"wind": Parameter(default=[0.0, 0.0])},
    tasks=_winds(50),
    splits={"paper": random_split(tasks=50, test=10, seed=2021)},
    simulator_class=PointRobotWind,
    best=best_wind_return,
)
