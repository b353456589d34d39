"""A made-up domain: tasks, people who log them, and the truth about any policy, which no log tells.

    domain = DOMAINS["crane"]
    domain.dataset("noisy").save("logs/crane-noisy")
    task = domain.test_tasks[0]
    domain.outcome(task, policy).returns  # of anything with act(obs [N, S]); one return per episode
    domain.outcome(task, domain.logger(task, "noisy")).returns

A domain says how a task goes on (`start`, `step`) and how people control it (`control`), a rule with a few gains. The
logger's rule is the same in every task. The best known one has the gains that a search in the simulator found for the
task: nobody who learns from the log knows them.
"""

from __future__ import annotations

import csv
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from omrl.data import MetaDataset

Array = NDArray[np.float64]
Logger = Literal["noisy", "noiseless", "mixed"]
LOGGERS: tuple[Logger, ...] = get_args(Logger)
TASKS, TEST_TASKS = 32, 8
# Of a task's log.
EPISODES = 20
# Noise of a logger's actions as a share of their range, or of choices the share that are drawn blindly.
NOISE = {"noisy": 0.2, "noiseless": 0.01}
BLIND = {"noisy": 0.3, "noiseless": 0.02}
# The mixed logger's people: how near their gains are to the best known ones of the task, and how steady their hand is.
PEOPLE = ((-0.5, "noisy"), (0.0, "noiseless"), (0.5, "noisy"), (0.7, "noiseless"))
# The search for gains: rounds, candidates of a round, those that the next round starts from, episodes of each.
ROUNDS, CANDIDATES, KEPT, TRIED = 8, 48, 8, 8


class Acts(Protocol):
    """A policy in one task, in the units of the log."""

    def act(self, obs: Array) -> Array:
        """Actions [N, A] at observations [N, S]; where actions are choices, the choices themselves."""


@dataclass(frozen=True, eq=False)
class Task:
    """One member of a domain, which has only one of it."""

    name: str
    params: dict[str, float]

    def __getitem__(self, name: str) -> float:
        return self.params[name]


@dataclass(frozen=True)
class Step:
    """What comes of actions, one row for each of N episodes."""

    state: Array
    """[N, S]"""
    reward: Array
    """[N]"""
    terminated: NDArray[np.bool_]
    """[N] Whether the episode ends here."""
    harmed: NDArray[np.bool_]
    """[N] Whether something happened that should never happen."""


@dataclass(frozen=True)
class Outcome:
    """What a policy truly gets in a task, by episode."""

    returns: Array
    harmed: NDArray[np.bool_]


@dataclass(frozen=True)
class Episodes:
    """What happened, [N, H, ...]; rows after the end of an episode do not count."""

    obs: Array
    act: Array
    reward: Array
    next_obs: Array
    terminated: NDArray[np.bool_]
    harmed: NDArray[np.bool_]
    counts: NDArray[np.bool_]


class Domain(ABC):
    """Tasks with a simulator that learners do not see."""

    name: str
    observations: tuple[str, ...]
    actions: tuple[str, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    varies: Literal["reward", "dynamics", "both"]
    horizon = 50
    choices: tuple[str, ...] | None = None
    """Where an action is one of a few things to do: what they are called."""
    ranges: ClassVar[dict[str, tuple[float, float]]]
    """What differs between tasks, drawn uniformly."""
    gains: tuple[float, ...]
    """The logger's."""
    gain_spread: tuple[float, ...]
    """How far others may lie from them."""

    @abstractmethod
    def start(self, task: Task, episodes: int, rng: np.random.Generator) -> Array:
        """First states [N, S], which are what is observed."""

    @abstractmethod
    def step(self, task: Task, state: Array, act: Array, rng: np.random.Generator) -> Step:
        """One step of each episode; actions [N, A] in the log's units, or numbers of choices."""

    @abstractmethod
    def control(self, gains: Array, state: Array) -> Array:
        """The rule of people: actions [N, A] with gains [N, G], or how much each choice appeals [N, choices]."""

    # -- tasks ---------------------------------------------------------------------------------------------------------

    @property
    def tasks(self) -> tuple[Task, ...]:
        """All of them, always the same."""
        return _tasks(self)

    @property
    def train_tasks(self) -> tuple[Task, ...]:
        """Those that a policy may be learnt from."""
        return self.tasks[:-TEST_TASKS]

    @property
    def test_tasks(self) -> tuple[Task, ...]:
        """Those that it is judged on."""
        return self.tasks[-TEST_TASKS:]

    def task(self, name: str) -> Task:
        """The task of that name."""
        return next(task for task in self.tasks if task.name == name)

    # -- people --------------------------------------------------------------------------------------------------------

    def logger(self, task: Task, kind: Logger, seed: int = 0) -> Acts:
        """Who made a task's log, acting in as many episodes as there are rows."""
        return _Person(self, task, kind, np.random.default_rng([seed, 2, self.tasks.index(task)]))

    def best(self, task: Task) -> Acts:
        """The best rule of this form that is known for the task."""
        return _Rule(self, best_gains(self, task))

    # -- what truly happens --------------------------------------------------------------------------------------------

    def roll_out(self, task: Task, act: Callable[[Array], Array], episodes: int, seed: int) -> Episodes:
        """Episodes side by side; the same seed has the same luck, whoever acts."""
        rng = np.random.default_rng([seed, 1, self.tasks.index(task)])
        state = self.start(task, episodes, rng)
        going, rows = np.ones(episodes, bool), []
        for _ in range(self.horizon):
            chosen = act(state)
            step = self.step(task, state, chosen, rng)
            rows.append((state, chosen, step.reward, step.state, step.terminated, step.harmed, going))
            state, going = step.state, going & ~step.terminated
        return Episodes(*(np.stack(column, axis=1) for column in zip(*rows, strict=True)))

    def outcome(self, task: Task, policy: Acts, episodes: int = 32, seed: int = 0) -> Outcome:
        """Returns and harm of a policy in a task."""
        seen = self.roll_out(task, lambda state: self._numbers(policy.act(state)), episodes, seed)
        return Outcome((seen.reward * seen.counts).sum(1), (seen.harmed & seen.counts).any(1))

    def _numbers(self, act: Array) -> Array:
        """Actions as the simulator takes them."""
        rows = np.asarray(act).reshape(len(act), -1)
        if self.choices is None:
            return np.clip(np.asarray(rows, np.float64), self.low, self.high)
        found = rows == np.array(self.choices)[:, None, None]  # [choices, N, 1]
        if not found.any(0).all():
            raise ValueError(f"{rows[~found.any(0)][0]!r} is none of {self.choices}.")
        return found.argmax(0).astype(np.float64)

    # -- logs ----------------------------------------------------------------------------------------------------------

    def log(self, task: Task, kind: Logger, episodes: int = EPISODES, seed: int = 0) -> dict[str, NDArray[np.generic]]:
        """A task's rows, as a meta-dataset has them."""
        person = self.logger(task, kind, seed)
        # Other luck than that of the judgement, whatever seed that has.
        seen = self.roll_out(task, lambda state: self._numbers(person.act(state)), episodes, seed + 1_000_003)
        kept = seen.counts
        steps = np.broadcast_to(np.arange(self.horizon), kept.shape)
        last = steps == kept.sum(1, keepdims=True) - 1
        found: dict[str, NDArray[np.generic]] = {
            "observations": seen.obs[kept],
            "actions": seen.act[kept],
            "rewards": seen.reward[kept],
            "next_observations": seen.next_obs[kept],
            "terminations": seen.terminated[kept],
            "truncations": (last & ~seen.terminated)[kept],
            "episode": np.broadcast_to(np.arange(episodes)[:, None], kept.shape)[kept],
            "step": steps[kept],
        }
        return found

    def dataset(self, kind: Logger, episodes: int = EPISODES, seed: int = 0) -> MetaDataset:
        """The logs of all tasks as a meta-dataset of no family."""
        values = None if self.choices is None else [float(i) for i in range(len(self.choices))]
        return MetaDataset.from_arrays(
            {task.name: self.log(task, kind, episodes, seed) for task in self.tasks},
            action_low=self.low,
            action_high=self.high,
            varies=self.varies,
            split={"train": [t.name for t in self.train_tasks], "test": [t.name for t in self.test_tasks]},
            params={task.name: task.params for task in self.tasks},
            horizon=self.horizon,
            discrete_actions=None if values is None else [{"values": values, "labels": list(self.choices or ())}],
        )

    def write_table(self, path: Path, kind: Logger, episodes: int = EPISODES, seed: int = 0) -> None:
        """The same as a CSV file such as people have: where an episode ends to is not in it."""
        header = ["task", "episode", "step", *self.observations, *self.actions, "reward", "terminated"]
        with path.open("w", newline="") as file:
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow(header)
            for task in self.tasks:
                log = self.log(task, kind, episodes, seed)
                names = ("episode", "step", "observations", "actions", "rewards", "terminations")
                for episode, step, obs, act, reward, end in zip(*(log[name] for name in names), strict=True):
                    done = [self.choices[int(act[0])]] if self.choices else [f"{a:.6g}" for a in act]
                    rows.writerow(
                        [task.name, episode, step, *(f"{o:.6g}" for o in obs), *done, f"{reward:.6g}", int(end)]
                    )


class _Rule:
    """A domain's rule with gains of one's own."""

    def __init__(self, domain: Domain, gains: Array) -> None:
        self._domain, self._gains = domain, gains

    def act(self, obs: Array) -> Array:
        gains = np.broadcast_to(self._gains, (len(obs), self._gains.shape[-1]))
        return _decided(self._domain, self._domain.control(gains, np.asarray(obs, np.float64)))


class _Person:
    """A logger: rows of one call are episodes, each controlled by one person."""

    def __init__(self, domain: Domain, task: Task, kind: Logger, rng: np.random.Generator) -> None:
        people = PEOPLE if kind == "mixed" else ((0.0, kind),)
        own = np.array(domain.gains)
        best = best_gains(domain, task) if kind == "mixed" else own
        self._domain, self._rng = domain, rng
        self._gains = np.stack([own + share * (best - own) for share, _ in people])
        hands = BLIND if domain.choices else NOISE
        self._noise = np.array([hands[steady] for _, steady in people])

    def act(self, obs: Array) -> Array:
        domain, rng, rows = self._domain, self._rng, len(obs)
        who = np.arange(rows) % len(self._gains)
        wanted = domain.control(self._gains[who], np.asarray(obs, np.float64))
        if domain.choices is None:
            low, high = np.array(domain.low), np.array(domain.high)
            noise = self._noise[who, None] * (high - low) * rng.normal(size=wanted.shape)
            return np.clip(np.clip(wanted, low, high) + noise, low, high)
        blind = rng.random(rows) < self._noise[who]
        return np.where(blind[:, None], rng.choice(domain.choices, (rows, 1)), _decided(domain, wanted))


def _decided(domain: Domain, wanted: Array) -> Array:
    """What a rule does of what it wants."""
    if domain.choices is None:
        return np.clip(wanted, domain.low, domain.high)
    return np.array(domain.choices)[wanted.argmax(1)][:, None]


@cache
def _tasks(domain: Domain) -> tuple[Task, ...]:
    rng = np.random.default_rng([7, *domain.name.encode()])
    drawn = {name: rng.uniform(low, high, TASKS) for name, (low, high) in domain.ranges.items()}
    return tuple(
        Task(f"{domain.name}-{i:02d}", {name: float(values[i]) for name, values in drawn.items()}) for i in range(TASKS)
    )


@cache
def best_gains(domain: Domain, task: Task) -> Array:
    """Gains by the cross-entropy method, all candidates of a round side by side in the simulator."""
    rng = np.random.default_rng([11, domain.tasks.index(task)])
    own, spread = np.array(domain.gains), np.array(domain.gain_spread)
    centre, width = own, spread
    for number in range(ROUNDS):
        gains = centre + width * rng.normal(size=(CANDIDATES, len(own)))
        gains[0] = centre
        rule = _Rule(domain, np.repeat(gains, TRIED, axis=0))
        seen = domain.outcome(task, rule, CANDIDATES * TRIED, seed=900 + number)
        order = np.argsort(-seen.returns.reshape(CANDIDATES, TRIED).mean(1))[:KEPT]
        centre, width = gains[order].mean(0), gains[order].std(0) + 0.02 * spread
    return centre


def columns(state: Array) -> Sequence[Array]:
    """The numbers of a state, one by one."""
    return [state[:, i] for i in range(state.shape[1])]
