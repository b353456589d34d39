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
from omrl.storage.files import write_tensors

Array = np.ndarray[Any, Any]

CALIBRATION = "calibration.safetensors"
# What is looked at, in words for warnings.
PARTS = ("embedding", "level of a column", "spread of a column", "rewards", "next observations")
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


class Calibration:
    """A run's references and honest contexts, by learner and size of a context."""

    def __init__(
        self,
        step: int,
        units: Array,
        homes: Mapping[int, Home],
        usual: Mapping[tuple[int, int], Usual],
        honest: Mapping[tuple[int, int], Honest],
    ) -> None:
        self.step, self.units = step, units
        self.homes, self.usual, self.honest = homes, usual, honest
        self.sizes = sorted({size for _, size in honest})

    def in_units(self, rows: Mapping[str, Array]) -> Array:
        """Rows [..., columns] in units of the training data, actions too: what is outside their bounds counts."""
        parts = (rows["observations"], rows["actions"], rows["rewards"][..., None], rows["next_observations"])
        whole = np.concatenate([np.asarray(part, np.float64) for part in parts], -1)
        return np.asarray((whole - self.units[0]) / self.units[1])

    def size(self, rows: int) -> int:
        """How many rows are judged where there are so many."""
        return max(size for size in self.sizes if size <= rows)

    def score(self, seed: int, rows: Mapping[str, Array], z: Array) -> tuple[float, str]:
        """Share of honest contexts that look worse than these rows, whose task is z [l], and what is strangest."""
        contexts = self.in_units(rows)[None]
        obs_dim, key = rows["observations"].shape[-1], (seed, contexts.shape[1])
        return self.honest[key].score(look(self.homes[seed], self.usual[key], contexts, z[None], obs_dim)[0])

    def save(self, folder: Path) -> None:
        """Into a run's folder."""
        arrays = {"units": self.units}
        for seed, home in self.homes.items():
            arrays |= {f"{seed}.home.{name}": value for name, value in asdict(home).items()}
        for kind, parts in (("usual", self.usual), ("honest", self.honest)):
            for (seed, size), part in parts.items():
                arrays |= {f"{seed}.{kind}.{size}.{name}": value for name, value in asdict(part).items()}
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
            units = parts.pop(())["units"]
            homes = {int(key[0]): Home(**values) for key, values in parts.items() if key[1] == "home"}
            usual = {(int(k[0]), int(k[2])): Usual(**values) for k, values in parts.items() if k[1] == "usual"}
            honest = {(int(k[0]), int(k[2])): Honest(**values) for k, values in parts.items() if k[1] == "honest"}
        except Exception as error:  # safetensors raises its own kinds
            raise OmrlError(f"{path} is damaged ({error}): run omrl calibrate again.") from error
        return cls(step, units, homes, usual, honest)
