"""N environments of one family stepped at once.

A simulator is pure physics. It knows no episode limits and resets nothing by itself: when an environment terminates or
its episode is long enough, the caller resets it. What an environment does depends on its task, its state and its
actions alone, never on the number of threads or on the other environments of the batch.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from omrl.errors import OmrlError
from omrl.families.family import Task


class Step(NamedTuple):
    """What one control step of N environments gives."""

    obs: NDArray[np.float32]
    """[N, obs_dim]"""
    rewards: NDArray[np.float32]
    """[N]"""
    terminations: NDArray[np.bool_]
    """[N]"""
    extras: dict[str, NDArray[np.float32]]
    """Further rewards by column name, each [N]."""


class Painter(Protocol):
    """Draws one environment of a simulator."""

    def paint(self, states: Sequence[NDArray[np.float64]]) -> NDArray[np.uint8]:
        """A picture [height, width, 3] of the last state; the earlier ones are the way there."""

    def close(self) -> None:
        """Give back what drawing needed."""


class View(NamedTuple):
    """Where the camera that follows a body stands."""

    distance: float
    elevation: float


class Simulator(ABC):
    """N environments of one family. They start unperturbed; `reset` draws a start state."""

    obs_dim: ClassVar[int]
    act_dim: ClassVar[int]
    steps_per_second: ClassVar[int]
    """Control steps in one second of the simulated world, for videos."""

    def __init__(self, tasks: Sequence[Task], threads: int | None) -> None:
        """`threads`: None for all usable cores, 0 for the calling thread alone."""
        if threads is not None and threads < 0:
            raise OmrlError(f"threads must be 0 or more, not {threads}.")
        self.num = len(tasks)
        self._threads = min(usable_cores() if threads is None else threads, self.num)

    def step(self, actions: ArrayLike) -> Step:
        """One control step of every environment; actions [N, act_dim] are clipped to [-1, 1]."""
        actions = np.asarray(actions, dtype=np.float64)
        if actions.shape != (self.num, self.act_dim):
            raise OmrlError(f"Actions must have shape {(self.num, self.act_dim)}, not {actions.shape}.")
        if np.isnan(actions).any():
            raise OmrlError(
                f"The action of environment {np.isnan(actions).any(axis=1).argmax()} is not a number (NaN)."
            )
        return self._advance(np.clip(actions, -1.0, 1.0))

    @abstractmethod
    def reset(self, which: Sequence[int] | NDArray[np.integer], rngs: Sequence[np.random.Generator]) -> None:
        """Put the environments in `which` at a start state, each drawn from its own generator."""

    @abstractmethod
    def observe(self) -> NDArray[np.float32]:
        """What every environment shows now, [N, obs_dim]."""

    @abstractmethod
    def _advance(self, actions: NDArray[np.float64]) -> Step: ...

    @abstractmethod
    def get_state(self) -> NDArray[np.float64]:
        """Everything that will matter later, [N, state_dim]; `set_state` with it continues exactly."""

    @abstractmethod
    def set_state(self, state: ArrayLike) -> None:
        """Continue from what `get_state` gave."""

    def painter(self, index: int) -> Painter:
        """Draws environment `index` from its states (rows of `get_state`)."""
        raise OmrlError(f"{type(self).__name__} cannot be drawn.")

    def close(self) -> None:  # noqa: B027  (only some simulators hold anything)
        """Give back threads."""

    def _checked_state(self, state: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.float64]:
        array = np.array(state, dtype=np.float64)
        if array.shape != shape:
            raise OmrlError(f"A state of this simulator has shape {shape}, not {array.shape}.")
        if not np.isfinite(array).all():
            raise OmrlError("A state of a simulator must be finite.")
        return array


class MujocoSimulator(Simulator):
    """N bodies in MuJoCo, all stepped by one `mujoco.rollout` call per control step.

    Every control step starts the constraint solver from zero (`qacc_warmstart` = 0), since a rollout returns no warm
    start to go on from. Where the physics breaks down (MuJoCo reports a state that is not finite, or huge), the
    environment keeps the state it had before that step and reports a termination.
    """

    model_file: ClassVar[str]
    """One of the models that gymnasium ships."""
    frame_skip: ClassVar[int]
    """Physics steps per control step, all with the same action."""
    view: ClassVar[View] = View(distance=3.2, elevation=-10.0)

    def __init__(self, tasks: Sequence[Task], threads: int | None = None) -> None:
        from omrl.families import physics  # needs an extra, and half a second: not before a body is simulated

        super().__init__(tasks, threads)
        self._physics = physics
        self._models = self._build_models(tasks)
        model = self._models[0]
        self._engine = physics.Engine(self._models, self._threads, self.frame_skip)
        self._dt: float = model.opt.timestep * self.frame_skip
        self._start = np.concatenate([model.qpos0, np.zeros(model.nv)])
        self._split = int(model.nq)
        self._state = np.tile(self._start, (self.num, 1))  # [N, nq + nv]

    def reset(self, which: Sequence[int] | NDArray[np.integer], rngs: Sequence[np.random.Generator]) -> None:
        for index, rng in zip(which, rngs, strict=True):
            self._state[index] = self._start + self._start_noise(rng)

    def observe(self) -> NDArray[np.float32]:
        return self._observe(*self._positions_velocities()).astype(np.float32)

    def _advance(self, actions: NDArray[np.float64]) -> Step:
        last = self._state
        self._state, unstable = self._engine.advance(last, actions)
        positions, velocities = self._positions_velocities()
        forward = (positions[:, 0] - last[:, 0]) / self._dt
        return Step(
            obs=self._observe(positions, velocities).astype(np.float32),
            rewards=self._reward(forward, np.square(actions).sum(axis=1)).astype(np.float32),
            terminations=unstable | self._fallen(positions),
            extras={},
        )

    def get_state(self) -> NDArray[np.float64]:
        return self._state.copy()

    def set_state(self, state: ArrayLike) -> None:
        self._state = self._checked_state(state, self._state.shape)

    def painter(self, index: int) -> Painter:
        painter: Painter = self._physics.MujocoPainter(self._models[index], self.view)
        return painter

    def close(self) -> None:
        self._engine.close()

    def _positions_velocities(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return self._state[:, : self._split], self._state[:, self._split :]

    def _build_models(self, tasks: Sequence[Task]) -> list[Any]:
        """One MjModel per environment; one and the same where tasks differ in the reward alone."""
        return [self._physics.load_model(self.model_file)] * len(tasks)

    def _start_noise(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """Drawn as gymnasium's HalfCheetah and Ant draw it, so that equal seeds give equal starts."""
        positions = rng.uniform(-0.1, 0.1, size=self._split)
        return np.concatenate([positions, 0.1 * rng.standard_normal(self._start.size - self._split)])

    def _fallen(self, positions: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which bodies are outside the heights and angles that count as alive, [N]."""
        return np.zeros(self.num, dtype=np.bool_)

    @abstractmethod
    def _observe(self, positions: NDArray[np.float64], velocities: NDArray[np.float64]) -> NDArray[np.float64]:
        """[N, obs_dim] from qpos [N, nq] and qvel [N, nv]."""

    @abstractmethod
    def _reward(self, forward: NDArray[np.float64], effort: NDArray[np.float64]) -> NDArray[np.float64]:
        """[N] from the mean velocity along x over the step and the squared norm of the action."""


def usable_cores() -> int:
    """The cores this process may run on, which can be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
