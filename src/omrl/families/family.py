"""What a task family is: a distribution of MDPs with shared spaces, its tasks, its splits, its environments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from omrl.errors import OmrlError, needs_extra

if TYPE_CHECKING:
    import gymnasium

    Env: TypeAlias = gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]

    from omrl.families.batched import Simulator

Rewards: TypeAlias = NDArray[np.floating[Any]]
JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"


@dataclass(frozen=True)
class Task:
    """One member of a family: its name, and the keyword arguments its gymnasium id takes. A value: do not mutate."""

    name: str
    params: Mapping[str, JSON]

    def __post_init__(self) -> None:
        # A copy of its own, so that no caller's list can change a task after it was made.
        object.__setattr__(self, "params", deepcopy(dict(self.params)))

    def __hash__(self) -> int:
        return hash((self.name, _hashable(self.params)))

    def to_json(self) -> dict[str, JSON]:
        """The task as a JSON object."""
        return {"name": self.name, "params": deepcopy(dict(self.params))}

    @classmethod
    def from_json(cls, record: object) -> Task:
        """The task that `to_json` wrote."""
        if not isinstance(record, Mapping) or set(record) != {"name", "params"}:
            raise OmrlError(f"A task is an object with 'name' and 'params', not {record!r}.")
        if not isinstance(record["name"], str) or not record["name"]:
            raise OmrlError(f"A task's name is a non-empty string, not {record['name']!r}.")
        if not isinstance(record["params"], Mapping):
            raise OmrlError(f"The params of task {record['name']!r} are an object, not {record['params']!r}.")
        return cls(record["name"], record["params"])


def _hashable(value: JSON) -> Any:
    if isinstance(value, Mapping):
        return tuple(sorted((key, _hashable(item)) for key, item in value.items()))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(_hashable(item) for item in value)
    return value


@dataclass(frozen=True)
class Split:
    """Which of a family's tasks are trained on and which are held out, by index."""

    train: tuple[int, ...]
    test: tuple[int, ...]


@dataclass(frozen=True)
class Parameter:
    """One keyword argument of a family's environments. The default is the family's plainest member."""

    default: JSON
    positive: bool = False
    choices: tuple[float, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """() for a number, (2,) for a pair, ..."""
        return np.shape(self.default)  # type: ignore[arg-type]  # a number or nested lists of numbers

    def checked(self, value: object, label: str) -> JSON:
        """The value as plain floats, or one sentence on what is wrong with it."""
        try:
            array = np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError):
            raise OmrlError(f"{label} must be numbers of shape {self.shape}, not {value!r}.") from None
        if array.shape != self.shape:
            raise OmrlError(f"{label} must have shape {self.shape}, not {array.shape}.")
        if not np.isfinite(array).all():
            raise OmrlError(f"{label} must be finite, not {value!r}.")
        if self.positive and not (array > 0).all():
            raise OmrlError(f"{label} must be positive, its smallest value is {array.min()}.")
        if self.choices and not np.isin(array, self.choices).all():
            raise OmrlError(f"{label} must be one of {', '.join(map(str, self.choices))}, not {value!r}.")
        numbers: JSON = array.tolist()
        return numbers


@dataclass(frozen=True, eq=False)
class TaskFamily:
    """A distribution of MDPs that share observation and action spaces."""

    name: str
    summary: str
    varies: Literal["reward", "dynamics"]
    horizon: int
    """Length of an evaluation episode."""
    parameters: Mapping[str, Parameter]
    tasks: tuple[Task, ...]
    splits: Mapping[str, Split]
    """'paper' is the split that is scored."""
    simulator_class: type[Simulator]
    env_id: str = ""
    """The gymnasium id, or nothing where it has none; it takes a task's params as keyword arguments."""
    best: Callable[[Task], float | None] | None = None
    """The best possible return of a task over the horizon, where it is known."""
    logged_steps: int = 200
    """Length of a logged episode."""
    units: Mapping[str, Callable[[Rewards], Rewards]] = field(default_factory=dict)
    """Rewards in other units that returns may be reported in, by the name of such a return."""

    @property
    def obs_dim(self) -> int:
        """Numbers in an observation."""
        return self.simulator_class.obs_dim

    @property
    def act_dim(self) -> int:
        """Numbers in an action, each in [-1, 1]."""
        return self.simulator_class.act_dim

    def task(self, name: str = "custom", /, **params: object) -> Task:
        """A task of this family, listed or not; params left out take the family's defaults."""
        unknown = [key for key in params if key not in self.parameters]
        if unknown:
            known = ", ".join(self.parameters)
            raise OmrlError(f"A task of {self.name} has no parameter {unknown[0]!r}; it takes {known}.")
        return Task(
            name,
            {
                key: parameter.checked(params.get(key, parameter.default), f"{key} of {self.name}")
                for key, parameter in self.parameters.items()
            },
        )

    def simulator(self, tasks: Sequence[Task], threads: int | None = None) -> Simulator:
        """Steps one environment per entry of `tasks` at once; `threads` is None for all usable cores."""
        if not tasks:
            raise OmrlError(f"A simulator of {self.name} needs at least one task.")
        return self.simulator_class([self.task(task.name, **task.params) for task in tasks], threads)

    def make(self, task: Task, render_mode: str | None = None) -> Env:
        """The gymnasium environment of one task, with the horizon as its time limit."""
        params: Mapping[str, Any] = task.params
        env: Env = self.register().make(self.env_id, render_mode=render_mode, **params)
        return env

    def register(self) -> ModuleType:
        """Make its id known to gymnasium's registry, which it returns; calling it again changes nothing."""
        with needs_extra("sim", "A gymnasium environment"):
            from gymnasium.envs import registration
        if not self.env_id:
            raise OmrlError(f"{self.name} has no gymnasium environment, only a simulator.")
        if self.env_id not in registration.registry:
            class_name = self.env_id.removeprefix("omrl/").removesuffix("-v0")
            registration.register(
                id=self.env_id,
                entry_point=f"omrl.families.environments:{class_name}Env",
                vector_entry_point=f"omrl.families.environments:{class_name}VectorEnv",
                max_episode_steps=self.horizon,
            )
        return registration

    def best_return(self, task: Task) -> float | None:
        """The best possible return of the task over the horizon; None where nobody knows it."""
        return None if self.best is None else self.best(task)


def numbered_tasks(params: Sequence[Mapping[str, JSON]]) -> tuple[Task, ...]:
    """Tasks named by their place in the family's list."""
    return tuple(Task(f"task-{index:03d}", values) for index, values in enumerate(params))


def random_split(tasks: int, test: int, seed: int) -> Split:
    """Every task on one side, `test` of them held out; for families whose authors drew the split without a seed."""
    order = np.random.default_rng(seed).permutation(tasks).tolist()
    return Split(train=tuple(sorted(order[test:])), test=tuple(sorted(order[:test])))


def authors_generator(seed: int) -> np.random.Generator:
    """A Generator on the random stream of `numpy.random.seed(seed)`, to draw the tasks the paper's authors drew."""
    bits = np.random.MT19937()
    stream: Any = np.random.RandomState(seed).get_state(legacy=False)
    bits.state = stream
    return np.random.Generator(bits)
