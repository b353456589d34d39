"""Walkers whose bodies differ in mass, inertia, damping and friction: the dynamics vary, the reward does not."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omrl.families.batched import MujocoSimulator
from omrl.families.family import JSON, Parameter, Split, Task, TaskFamily, numbered_tasks

BODIES, GEOMS, JOINTS = 8, 8, 9  # the world and the floor count
MODEL_FIELDS = {"mass": "body_mass", "inertia": "body_inertia", "damping": "dof_damping", "friction": "geom_friction"}


class Walker2DParams(MujocoSimulator):
    """Walk fast along x without falling, in a body whose parameters are the task's multiples of the plain walker's."""

    obs_dim = 17
    act_dim = 6
    steps_per_second = 62
    model_file = "walker2d.xml"
    frame_skip = 4

    def _build_models(self, tasks: Sequence[Task]) -> list[Any]:
        unscaled = self._physics.load_model(self.model_file)
        unscaled.opt.timestep = 0.004
        # Environments of one body share its model: a batch of many seeds must not hold a model for each.
        bodies = {repr(task.params): task for task in tasks}
        models = {body: self._with_body(unscaled, task) for body, task in bodies.items()}
        return [models[repr(task.params)] for task in tasks]

    def _with_body(self, unscaled: Any, task: Task) -> Any:
        """The unscaled model with the task's multipliers."""
        model = copy.copy(unscaled)
        for parameter, field in MODEL_FIELDS.items():
            getattr(model, field)[:] *= np.asarray(task.params[parameter])
        self._physics.recompute_constants(model)
        return model

    def _start_noise(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """Drawn as gymnasium's Walker2d draws it, so that equal seeds give equal starts."""
        positions = rng.uniform(-5e-3, 5e-3, size=self._split)
        return np.concatenate([positions, rng.uniform(-5e-3, 5e-3, size=self._start.size - self._split)])

    def _observe(self, positions: NDArray[np.float64], velocities: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.concatenate([positions[:, 1:], np.clip(velocities, -10.0, 10.0)], axis=1)

    def _reward(self, forward: NDArray[np.float64], effort: NDArray[np.float64]) -> NDArray[np.float64]:
        return forward + 1.0 - 1e-3 * effort

    def _fallen(self, positions: NDArray[np.float64]) -> NDArray[np.bool_]:
        height, pitch = positions[:, 1], positions[:, 2]
        return ~((height > 0.8) & (height < 2.0) & (np.abs(pitch) < 1.0))


def _draw_tasks(count: int, seed: int) -> tuple[Task, ...]:
    rng = np.random.default_rng(seed)

    def multipliers(base: float, *shape: int) -> JSON:
        values: JSON = (base ** rng.uniform(-3.0, 3.0, size=shape)).tolist()
        return values

    return numbered_tasks(
        [
            {
                "mass": multipliers(1.5, BODIES),
                "inertia": multipliers(1.5, BODIES, 3),
                "damping": multipliers(1.3, JOINTS),
                "friction": multipliers(1.5, GEOMS, 3),
            }
            for _ in range(count)
        ]
    )


WALKER_2D_PARAMS = TaskFamily(
    name="walker-2d-params",
    env_id="omrl/Walker2DParams-v0",
    summary="a walker whose masses, inertias, damping and friction differ",
    varies="dynamics",
    horizon=200,
    parameters={
        "mass": Parameter(default=[1.0] * BODIES, positive=True),
        "inertia": Parameter(default=[[1.0] * 3] * BODIES, positive=True),
        "damping": Parameter(default=[1.0] * JOINTS, positive=True),
        "friction": Parameter(default=[[1.0] * 3] * GEOMS, positive=True),
    },
    tasks=_draw_tasks(50, seed=2021),
    splits={
        "paper": Split(train=tuple(range(20)), test=tuple(range(40, 45))),
        "large": Split(train=tuple(range(40)), test=tuple(range(40, 50))),
        # To choose by, so that no test task of the paper's split chooses anything.
        "spare": Split(train=tuple(range(20)), test=(*range(20, 40), *range(45, 50))),
    },
    simulator_class=Walker2DParams,
)
