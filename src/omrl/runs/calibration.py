"""How far a context is from home: a score that says how many honest contexts look worse.

Five things are looked at: how far z is from the nearest training task's, in units of their spread; level and spread of
each column; and how well a small linear model, whose slopes depend on z, predicts rewards and next states. Each is put
in units of what is usual among honest contexts, those of training tasks that the reference was made without, and the
largest counts. `omrl calibrate` makes it: `calibrating.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from omrl.errors import OmrlError
from omrl.learning.regression import Features
from omrl.storage.files import write_tensors

Array = np.ndarray[Any, Any]

CALIBRATION = "calibration.safetensors"
# What is looked at, in words for warnings.
PARTS = ("embedding", "level of a column", "spread of a column", "rewards", "next observations")
# Where honest contexts begin.
BEGINNINGS = ("anywhere", "episode")
# Numbers below this, in units of the training data, are rounding.
FINEST = 1e-3


@dataclass(frozen=True)
class Home:
    """Training tasks as one learner sees them."""

    embeddings: Array
    """[tasks, l]"""
    spread: Array
    """[l]"""
    slopes: Array
    """Of the linear model [(1 + l) (S + A + 1), 1 + S]."""
    errors: Array
    """Its usual errors [1 + S]."""


@dataclass(frozen=True)
class Usual:
    """Level and spread of the columns in contexts of one size: their means and standard deviations [2, columns]."""

    level: Array
    spread: Array


@dataclass(frozen=True)
class Honest:
    """What the five numbers are in honest contexts of one size."""

    centre: Array
    """Their medians [5]."""
    scale: Array
    """From the medians to where one in twenty is larger [5]."""
    worst: Array
    """The largest of the five of each honest context, in these units, in ascending order."""

    def score(self, found: Array) -> tuple[float, str]:
        """The share of honest contexts that look worse, and what is strangest."""
        units = (found - self.centre) / self.scale
        worse = len(self.worst) - np.searchsorted(self.worst, units.max())
        return float((1 + worse) / (1 + len(self.worst))), PARTS[int(units.argmax())]


@dataclass(frozen=True)
class Settled:
    """The larger of an honest context's scores, by what it may begin with, in ascending order."""

    scores: Array

    def score(self, larger: float) -> float:
        """The share of honest contexts whose larger score is smaller."""
        return float((1 + np.searchsorted(self.scores, larger)) / (1 + len(self.scores)))


def fit_home(rows: Sequence[Array], embeddings: Array, obs_dim: int) -> Home:
    """From each task's rows [N, columns] in units of the training data, and z of the tasks."""
    design = np.concatenate([_design(task, z, obs_dim) for task, z in zip(rows, embeddings, strict=True)])
    wanted = np.concatenate([_outcome(task, obs_dim) for task in rows])
    ridge = FINEST * len(design) * np.eye(design.shape[1])
    slopes = np.linalg.solve(design.T @ design + ridge, design.T @ wanted)
    errors = np.maximum(np.sqrt(np.square(design @ slopes - wanted).mean(0)), FINEST)
    return Home(embeddings, np.maximum(embeddings.std(0), FINEST), slopes, errors)


def fit_usual(contexts: Array) -> Usual:
    """From contexts [N, C, columns]."""
    level, spread = _columns(contexts)
    return Usual(*(np.stack([part.mean(0), np.maximum(part.std(0), FINEST)]) for part in (level, spread)))


def look(home: Home, usual: Usual, contexts: Array, z: Array, obs_dim: int) -> Array:
    """The five numbers [N, 5] of contexts [N, C, columns] whose tasks were inferred to be z [N, l]."""
    apart = (z[:, None] - home.embeddings) / home.spread
    found = [np.sqrt(np.square(apart).mean(-1)).min(-1)]
    for part, (mean, std) in zip(_columns(contexts), (usual.level, usual.spread), strict=True):
        found.append(np.abs((part - mean) / std).max(-1))
    design = np.stack([_design(rows, one, obs_dim) for rows, one in zip(contexts, z, strict=True)])
    wrong = np.stack([_outcome(rows, obs_dim) for rows in contexts]) - design @ home.slopes
    surprise = np.log(np.square(wrong / home.errors).mean(1) + FINEST)  # [N, 1 + S]
    return np.stack([np.log(found[0] + FINEST), *found[1:], surprise[:, 0], surprise[:, 1:].max(-1)], axis=-1)


def judge(found: Array) -> Honest:
    """From the five numbers [N, 5] of honest contexts."""
    centre = np.median(found, axis=0)
    scale = np.maximum(np.quantile(found, 0.95, axis=0) - centre, FINEST)
    return Honest(centre, scale, np.sort(((found - centre) / scale).max(-1)))


def _columns(contexts: Array) -> tuple[Array, Array]:
    """Level and spread of each column [N, columns]; the spread as a logarithm, since scales are ratios."""
    return contexts.mean(1), np.log(contexts.std(1) + FINEST)


def _design(rows: Array, z: Array, obs_dim: int) -> Array:
    """What the linear model sees of rows [N, columns]: observations, actions and a one, each times one and z."""
    known = np.concatenate([rows[:, : -1 - obs_dim], np.ones((len(rows), 1))], -1)
    return np.asarray(known[:, :, None] * np.append(1.0, z)).reshape(len(rows), -1)


def _outcome(rows: Array, obs_dim: int) -> Array:
    """What it predicts: the reward, and how observations change."""
    reward, after = rows[:, -1 - obs_dim : -obs_dim], rows[:, -obs_dim:]
    return np.concatenate([reward, after - rows[:, :obs_dim]], -1)


@dataclass(frozen=True)
class States:
    """Observations of the log, in units of the training data."""

    rows: Array
    """[N, S]"""
    usual: Array
    """How far those of a task are from the nearest of other tasks, in ascending order."""

    def score(self, obs: Array) -> Array:
        """The share of logged observations that are further from the others than each of these [N, S] is."""
        worse = len(self.usual) - np.searchsorted(self.usual, nearest(obs, self.rows))
        return np.asarray((1 + worse) / (1 + len(self.usual)))


def nearest(obs: Array, rows: Array) -> Array:
    """Distances [N] of observations [N, S] to the nearest row."""
    squares = np.square(obs).sum(-1)[:, None] + np.square(rows).sum(-1) - 2 * obs @ rows.T
    return np.asarray(np.sqrt(np.maximum(squares.min(-1), 0.0)))


@dataclass(frozen=True)
class Clone:
    """The logger as one learner's z tells it: a regression of its actions in closed form."""

    frequencies: Array
    phases: Array
    weights: Array
    """[D, A], or [D, K] of K choices."""
    z_units: Array
    """Mean and spread of z [2, l]."""
    choices: Array
    """What was chosen in the log, in [-1, 1] [K, A]; empty where actions are amounts."""

    def act(self, obs: Array, z: Array) -> Array:
        """Actions [N, A] in [-1, 1] at observations [N, S] in units of the training data."""
        known = (z - self.z_units[0]) / self.z_units[1]
        x = np.concatenate([obs, np.broadcast_to(known, (len(obs), known.shape[-1]))], -1)
        found = Features(self.frequencies, self.phases)(x) @ self.weights
        return np.asarray(self.choices[found.argmax(-1)] if len(self.choices) else np.clip(found, -1.0, 1.0))


Key = tuple[int, int, str]
"""A learner, the size of a context, and where it begins."""


class Calibration:
    """A run's references and honest contexts, and what is known of single observations."""

    def __init__(
        self,
        step: int,
        units: Array,
        homes: Mapping[int, Home],
        usual: Mapping[Key, Usual],
        honest: Mapping[Key, Honest],
        settled: Mapping[tuple[int, int], Settled],
        states: States,
        clones: Mapping[int, Clone],
    ) -> None:
        self.step, self.units = step, units
        self.homes, self.usual, self.honest = homes, usual, honest
        self.settled, self.states, self.clones = settled, states, clones
        self.sizes = sorted({size for _, size, _ in honest})

    def in_units(self, rows: Mapping[str, Array]) -> Array:
        """Rows [..., columns] in units of the training data, actions too: what is outside their bounds counts."""
        parts = (rows["observations"], rows["actions"], rows["rewards"][..., None], rows["next_observations"])
        whole = np.concatenate([np.asarray(part, np.float64) for part in parts], -1)
        return np.asarray((whole - self.units[0]) / self.units[1])

    def obs_in_units(self, obs: Array) -> Array:
        """Observations [..., S] in units of the training data."""
        mean, spread = self.units[:, : obs.shape[-1]]
        return np.asarray((obs.astype(np.float64) - mean) / spread)

    def size(self, rows: int) -> int:
        """How many rows are judged where there are so many."""
        return max(size for size in self.sizes if size <= rows)

    def score(self, seed: int, rows: Mapping[str, Array], z: Array) -> tuple[float, str]:
        """Share of honest contexts that look worse than these rows, whose task is z [l], and what is strangest."""
        contexts = self.in_units(rows)[None]
        obs_dim, size = rows["observations"].shape[-1], contexts.shape[1]
        found = []
        for beginning in BEGINNINGS:
            key = (seed, size, beginning)
            if key in self.honest:
                numbers = look(self.homes[seed], self.usual[key], contexts, z[None], obs_dim)[0]
                found.append(self.honest[key].score(numbers))
        score, part = max(found)
        return self.settled[seed, size].score(score), part

    def check(self, folder: Path, learners: int, row: Mapping[str, Array], z: Array) -> None:
        """Whether all parts are there and fit the run, of which this is a row: found now, not when somebody waits."""
        try:
            place, shape = self.obs_in_units(row["observations"]), row["actions"].shape
            self.states.score(place)
            for seed in range(learners):
                for size in (1, *self.sizes):
                    self.score(seed, {name: np.repeat(one, self.size(size), 0) for name, one in row.items()}, z)
                if self.clones[seed].act(place, z).shape != shape:
                    raise ValueError(f"its actions are not {shape[-1]}")
        except Exception as error:  # there are many ways not to fit
            raise _damaged(folder / CALIBRATION, error) from error

    def save(self, folder: Path) -> None:
        """Into a run's folder."""
        arrays = {"units": self.units, **{f"states.{name}": value for name, value in asdict(self.states).items()}}
        parts: list[tuple[str, Home | Clone | Usual | Honest | Settled]] = [
            *((f"{seed}.home", home) for seed, home in self.homes.items()),
            *((f"{seed}.clone", clone) for seed, clone in self.clones.items()),
            *((f"{seed}.settled.{size}", settled) for (seed, size), settled in self.settled.items()),
            *((f"{seed}.usual.{size}.{beginning}", usual) for (seed, size, beginning), usual in self.usual.items()),
            *((f"{seed}.honest.{size}.{beginning}", honest) for (seed, size, beginning), honest in self.honest.items()),
        ]
        for place, part in parts:
            arrays |= {f"{place}.{name}": value for name, value in asdict(part).items()}
        write_tensors(folder / CALIBRATION, arrays, {"step": str(self.step)})

    @classmethod
    def open(cls, folder: Path) -> Calibration | None:
        """That of a run's folder, if it has one."""
        path = folder / CALIBRATION
        if not path.is_file():
            return None
        try:
            with safe_open(path, framework="numpy") as file:
                step = int(file.metadata()["step"])
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            parts: dict[tuple[str, ...], dict[str, Array]] = {}
            for name, value in arrays.items():
                *key, last = name.split(".")
                parts.setdefault(tuple(key), {})[last] = value
            units, states = parts.pop(())["units"], States(**parts.pop(("states",)))
            by_kind: dict[str, dict[tuple[str, ...], dict[str, Array]]] = {}
            for key, values in parts.items():
                by_kind.setdefault(key[1], {})[key] = values
            homes = {int(key[0]): Home(**values) for key, values in by_kind["home"].items()}
            clones = {int(key[0]): Clone(**values) for key, values in by_kind["clone"].items()}
            usual = {(int(k[0]), int(k[2]), k[3]): Usual(**values) for k, values in by_kind["usual"].items()}
            settled = {(int(k[0]), int(k[2])): Settled(**values) for k, values in by_kind["settled"].items()}
            honest = {(int(k[0]), int(k[2]), k[3]): Honest(**values) for k, values in by_kind["honest"].items()}
        except Exception as error:  # safetensors raises its own kinds
            raise _damaged(path, error) from error
        return cls(step, units, homes, usual, honest, settled, states, clones)


def _damaged(path: Path, error: Exception) -> OmrlError:
    what = " ".join(str(error).split())[:200]
    return OmrlError(f"{path} is damaged or of an earlier omrl ({what}): run omrl calibrate again.")
