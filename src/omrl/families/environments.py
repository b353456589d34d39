"""The gymnasium environments: thin shells over the simulators, one environment at a time or N as one.

They draw their random numbers as gymnasium's own environments do, and a single environment equals its place in a batch
bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from omrl.errors import OmrlError
from omrl.families import FAMILIES, Task, TaskFamily
from omrl.families.batched import Painter


def _spaces(family: TaskFamily) -> tuple[Box[Any], Box[Any]]:
    return (
        Box(-np.inf, np.inf, (family.obs_dim,), np.float32),
        Box(-1.0, 1.0, (family.act_dim,), np.float32),
    )


class TaskEnv(gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]):
    """One environment of a family; the task is given as keyword arguments. The time limit is gymnasium's wrapper."""

    family: ClassVar[TaskFamily]

    def __init_subclass__(cls) -> None:
        cls.metadata = {
            "render_modes": ["rgb_array"],
            "render_fps": cls.family.simulator_class.steps_per_second,
        }

    def __init__(self, render_mode: str | None = None, **params: object) -> None:
        if render_mode not in (None, "rgb_array"):
            raise OmrlError(f"{self.family.env_id} has no render mode {render_mode!r}; it has 'rgb_array'.")
        self.render_mode = render_mode
        self.task = self.family.task(**params)
        self.simulator = self.family.simulator([self.task], threads=0)
        self.observation_space, self.action_space = _spaces(self.family)
        self._painter: Painter | None = None
        self._states: list[NDArray[np.float64]] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self.simulator.reset([0], [self.np_random])
        self._states.clear()
        self._remember()
        return self.simulator.observe()[0], {}

    def step(self, action: ArrayLike) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        step = self.simulator.step(np.asarray(action)[None])
        self._remember()
        extras = {name: float(values[0]) for name, values in step.extras.items()}
        return step.obs[0], float(step.rewards[0]), bool(step.terminations[0]), False, extras

    def render(self) -> NDArray[np.uint8] | None:
        if self.render_mode is None:
            return None
        if self._painter is None:
            self._painter = self.simulator.painter(0)
        return self._painter.paint(self._states or [self.simulator.get_state()[0]])

    def close(self) -> None:
        if self._painter is not None:
            self._painter.close()
            self._painter = None
        self.simulator.close()

    def _remember(self) -> None:
        if self.render_mode is not None:
            self._states.append(self.simulator.get_state()[0])


class TaskVectorEnv(VectorEnv[NDArray[np.float32], NDArray[np.float32], NDArray[Any]]):
    """N environments of a family in one simulator; every task parameter is one value for all, or one per environment.

    An environment whose episode ended, by termination or by the time limit, starts anew in the next step: that step
    ignores its action, pays 0 and returns its first observation.
    """

    family: ClassVar[TaskFamily]
    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.NEXT_STEP, "render_modes": []}  # type: ignore[misc]

    def __init__(
        self, num_envs: int = 1, max_episode_steps: int | None = None, threads: int | None = None, **params: object
    ) -> None:
        self.closed = True  # until there is a simulator: gymnasium 1.1 closes what it deletes, even half made
        self.num_envs = num_envs
        self.tasks = _tasks_of_batch(self.family, num_envs, params)
        self.simulator = self.family.simulator(self.tasks, threads)
        self.closed = False
        self.single_observation_space, self.single_action_space = _spaces(self.family)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._limit = self.family.horizon if max_episode_steps is None else max_episode_steps
        self._rngs: list[np.random.Generator | None] = [None] * num_envs
        self._elapsed = np.zeros(num_envs, dtype=np.int64)
        self._ended = np.zeros(num_envs, dtype=np.bool_)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start all episodes; an int seeds environment i with seed + i, a list gives each its own."""
        seeds = [seed + i for i in range(self.num_envs)] if isinstance(seed, int) else seed or [None] * self.num_envs
        if len(seeds) != self.num_envs:
            raise OmrlError(f"{self.num_envs} environments need as many seeds, not {len(seeds)}.")
        self._rngs = [
            seeding.np_random(own)[0] if own is not None or rng is None else rng
            for own, rng in zip(seeds, self._rngs, strict=True)
        ]
        self._ended[:] = True
        self._restart_ended()
        return self.simulator.observe(), {}

    def step(
        self, actions: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        if self._rngs[0] is None:
            raise OmrlError("Call reset before the first step.")
        obs, rewards, terminations, extras = self.simulator.step(actions)
        self._elapsed += 1
        restarted = self._restart_ended()
        if restarted.any():
            obs[restarted] = self.simulator.observe()[restarted]
            rewards[restarted] = 0.0
            terminations[restarted] = False
        truncations = self._elapsed >= self._limit
        self._ended = terminations | truncations
        infos: dict[str, Any] = {}
        for name, values in extras.items():
            infos[name] = np.where(restarted, 0.0, values)
            infos[f"_{name}"] = ~restarted
        return obs, rewards.astype(np.float64), terminations, truncations, infos

    def close_extras(self, **kwargs: Any) -> None:
        self.simulator.close()

    def _restart_ended(self) -> NDArray[np.bool_]:
        ended = self._ended.copy()
        which = np.flatnonzero(ended)
        self.simulator.reset(which, [rng for index in which if (rng := self._rngs[index]) is not None])
        self._elapsed[ended] = 0
        self._ended[:] = False
        return ended


def _tasks_of_batch(family: TaskFamily, num_envs: int, params: dict[str, Any]) -> list[Task]:
    """One task per environment, from values for all and values per environment."""

    def per_environment(name: str, value: Any) -> list[Any]:
        parameter = family.parameters.get(name)
        batched = parameter is not None and np.ndim(value) == len(parameter.shape) + 1
        if batched and len(value) != num_envs:
            raise OmrlError(f"{name} has values for {len(value)} environments, but there are {num_envs}.")
        return list(value) if batched else [value] * num_envs

    columns = {name: per_environment(name, value) for name, value in params.items()}
    return [family.task(**{name: values[i] for name, values in columns.items()}) for i in range(num_envs)]


class SparsePointRobotEnv(TaskEnv):
    """`goal=[x, y]`; info carries the dense reward."""

    family = FAMILIES["sparse-point-robot"]


class SparsePointRobotVectorEnv(TaskVectorEnv):
    """`goal=[x, y]`, or one per environment."""

    family = FAMILIES["sparse-point-robot"]


class PointRobotWindEnv(TaskEnv):
    """`wind=[x, y]`."""

    family = FAMILIES["point-robot-wind"]


class PointRobotWindVectorEnv(TaskVectorEnv):
    """`wind=[x, y]`, or one per environment."""

    family = FAMILIES["point-robot-wind"]


class HalfCheetahVelEnv(TaskEnv):
    """`velocity=v`."""

    family = FAMILIES["half-cheetah-vel"]


class HalfCheetahVelVectorEnv(TaskVectorEnv):
    """`velocity=v`, or one per environment."""

    family = FAMILIES["half-cheetah-vel"]


class HalfCheetahFwdBackEnv(TaskEnv):
    """`direction=1` or `-1`."""

    family = FAMILIES["half-cheetah-fwd-back"]


class HalfCheetahFwdBackVectorEnv(TaskVectorEnv):
    """`direction=1` or `-1`, or one per environment."""

    family = FAMILIES["half-cheetah-fwd-back"]


class AntFwdBackEnv(TaskEnv):
    """`direction=1` or `-1`."""

    family = FAMILIES["ant-fwd-back"]


class AntFwdBackVectorEnv(TaskVectorEnv):
    """`direction=1` or `-1`, or one per environment."""

    family = FAMILIES["ant-fwd-back"]


class Walker2DParamsEnv(TaskEnv):
    """`mass`, `inertia`, `damping`, `friction`: multipliers of the plain walker's."""

    family = FAMILIES["walker-2d-params"]


class Walker2DParamsVectorEnv(TaskVectorEnv):
    """`mass`, `inertia`, `damping`, `friction`: multipliers, one set or one per environment."""

    family = FAMILIES["walker-2d-params"]
