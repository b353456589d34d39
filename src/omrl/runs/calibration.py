"""How far a context is from home: a score that says how many honest contexts look worse.

Five things are looked at: how far z is from the nearest training task's, in units of their spread; level and spread of
each column; and how far rewards and next states are from what all training tasks share, and from what any task like
them could do. Each is put in units of what is usual among honest contexts, those of training tasks that the reference
was made without, and the largest counts. `omrl calibrate` makes it: `calibrating.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from omrl.errors import OmrlError
from omrl.learning.regression import Features, fit
from omrl.runs.checkpoints import load_checkpoint, save_checkpoint

Array = np.ndarray[Any, Any]

CALIBRATION = "calibration.safetensors"
AGAIN = "run omrl calibrate again"
# What is looked at before rewards and next observations.
LOOKS = ("embedding", "level of a column", "spread of a column")
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


@dataclass(frozen=True)
class Going:
    """How tasks go on: a reward and a change of observations are f(s, a) + g(s, a) + noise, where tasks share f."""

    frequencies: Array
    phases: Array
    weights: Array
    """Of f [D, 1 + S]."""
    own: Array
    """How small g is: its ridge [1 + S]."""
    noise: Array
    """[1 + S]"""

    def surprise(self, contexts: Array, obs_dim: int) -> Array:
        """Of contexts [N, C, columns]: how far each number is from f, and how unlikely whatever g is [N, 2 (1 + S)]."""
        phi = Features(self.frequencies, self.phases)(contexts[..., : -1 - obs_dim])
        wrong = (_outcome(contexts, obs_dim) - phi @ self.weights) / self.noise
        alike, whatever = phi @ phi.swapaxes(-1, -2), np.empty_like(wrong)
        for own in np.unique(self.own):
            here = self.own == own
            whatever[..., here] = np.linalg.solve(np.eye(alike.shape[-1]) + alike / own, wrong[..., here])
        return np.log(np.concatenate([(wrong * part).mean(1) for part in (wrong, whatever)], -1) + FINEST)


@dataclass(frozen=True)
class Usual:
    """Level and spread of the columns in contexts of one size: their means and standard deviations [2, columns]."""

    level: Array
    spread: Array


@dataclass(frozen=True)
class Honest:
    """What the numbers are in honest contexts of one size."""

    centre: Array
    """Their medians [numbers]."""
    scale: Array
    """From the medians to where one in twenty is larger [numbers]."""
    worst: Array
    """The largest of each honest context, in these units, in ascending order."""

    def score(self, found: Array) -> tuple[float, str]:
        """The share of honest contexts that look worse, and what is strangest."""
        units = (found - self.centre) / self.scale
        worse = len(self.worst) - np.searchsorted(self.worst, units.max())
        return float((1 + worse) / (1 + len(self.worst))), _part(int(units.argmax()), len(units))


@dataclass(frozen=True)
class Settled:
    """The larger of an honest context's scores, by what it may begin with, in ascending order."""

    scores: Array

    def score(self, larger: float) -> float:
        """The share of honest contexts whose larger score is smaller."""
        return float((1 + np.searchsorted(self.scores, larger)) / (1 + len(self.scores)))


def fit_home(embeddings: Array) -> Home:
    """From z of the tasks."""
    return Home(embeddings, np.maximum(embeddings.std(0), FINEST))


def fit_going(rows: Sequence[Array], obs_dim: int) -> Callable[[Sequence[int]], Going]:
    """From each task's rows [N, columns] in units of the training data; f by the rows of some tasks."""
    fitted = fit([task[:, : -1 - obs_dim] for task in rows], [_outcome(task, obs_dim) for task in rows], seed=0)
    own, noise = (np.array([getattr(one, name) for one in fitted.chosen]) for name in ("own", "noise"))
    features = (fitted.features.frequencies, fitted.features.phases)
    return lambda tasks: Going(*features, fitted.shared(tasks), own, np.maximum(noise, FINEST))


def fit_usual(contexts: Array) -> Usual:
    """From contexts [N, C, columns]."""
    level, spread = _columns(contexts)
    return Usual(*(np.stack([part.mean(0), np.maximum(part.std(0), FINEST)]) for part in (level, spread)))


def look(home: Home, usual: Usual, contexts: Array, z: Array, surprise: Array) -> Array:
    """The numbers of contexts [N, C, columns] whose tasks were inferred to be z [N, l]: the last are the surprises."""
    apart = (z[:, None] - home.embeddings) / home.spread
    found = [np.log(np.sqrt(np.square(apart).mean(-1)).min(-1) + FINEST)]
    for part, (mean, std) in zip(_columns(contexts), (usual.level, usual.spread), strict=True):
        found.append(np.abs((part - mean) / std).max(-1))
    return np.concatenate([np.stack(found, axis=-1), surprise], -1)


def judge(found: Array) -> Honest:
    """From the numbers [N, numbers] of honest contexts."""
    centre = np.median(found, axis=0)
    scale = np.maximum(np.quantile(found, 0.95, axis=0) - centre, FINEST)
    return Honest(centre, scale, np.sort(((found - centre) / scale).max(-1)))


def _columns(contexts: Array) -> tuple[Array, Array]:
    """Level and spread of each column [N, columns]; the spread as a logarithm, since scales are ratios."""
    return contexts.mean(1), np.log(contexts.std(1) + FINEST)


def _outcome(rows: Array, obs_dim: int) -> Array:
    """What is to be expected of rows [..., columns]: the reward, and how observations change."""
    reward, after = rows[..., -1 - obs_dim : -obs_dim], rows[..., -obs_dim:]
    return np.concatenate([reward, after - rows[..., :obs_dim]], -1)


def _part(number: int, numbers: int) -> str:
    """What one of the numbers is about, in words for warnings."""
    if number < len(LOOKS):
        return LOOKS[number]
    return "next observations" if (number - len(LOOKS)) % ((numbers - len(LOOKS)) // 2) else "rewards"


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
        going: Going,
        usual: Mapping[Key, Usual],
        honest: Mapping[Key, Honest],
        settled: Mapping[tuple[int, int], Settled],
        states: States,
        clones: Mapping[int, Clone],
    ) -> None:
        self.step, self.units = step, units
        self.homes, self.going, self.usual, self.honest = homes, going, usual, honest
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
        surprise, found = self.going.surprise(contexts, obs_dim), []
        for beginning in BEGINNINGS:
            key = (seed, size, beginning)
            if key in self.honest:
                numbers = look(self.homes[seed], self.usual[key], contexts, z[None], surprise)[0]
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
        arrays = {"units": self.units}
        for place, shared in (("states", self.states), ("going", self.going)):
            arrays |= {f"{place}.{name}": value for name, value in asdict(shared).items()}
        parts: list[tuple[str, Home | Clone | Usual | Honest | Settled]] = [
            *((f"{seed}.home", home) for seed, home in self.homes.items()),
            *((f"{seed}.clone", clone) for seed, clone in self.clones.items()),
            *((f"{seed}.settled.{size}", settled) for (seed, size), settled in self.settled.items()),
            *((f"{seed}.usual.{size}.{beginning}", usual) for (seed, size, beginning), usual in self.usual.items()),
            *((f"{seed}.honest.{size}.{beginning}", honest) for (seed, size, beginning), honest in self.honest.items()),
        ]
        for place, part in parts:
            arrays |= {f"{place}.{name}": value for name, value in asdict(part).items()}
        tensors = {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in arrays.items()}
        save_checkpoint(folder / CALIBRATION, tensors, {"step": self.step})

    @classmethod
    def open(cls, folder: Path) -> Calibration | None:
        """That of a run's folder, if it has one."""
        path = folder / CALIBRATION
        if not path.is_file():
            return None
        tensors, notes = load_checkpoint(path, f"; {AGAIN}")
        try:
            parts: dict[tuple[str, ...], dict[str, Array]] = {}
            for name, value in tensors.items():
                *place, last = name.split(".")
                parts.setdefault(tuple(place), {})[last] = value.numpy()
            units, states = parts.pop(())["units"], States(**parts.pop(("states",)))
            going = Going(**parts.pop(("going",)))
            by_kind: dict[str, dict[tuple[str, ...], dict[str, Array]]] = {}
            for key, values in parts.items():
                by_kind.setdefault(key[1], {})[key] = values
            homes = {int(key[0]): Home(**values) for key, values in by_kind["home"].items()}
            clones = {int(key[0]): Clone(**values) for key, values in by_kind["clone"].items()}
            usual = {(int(k[0]), int(k[2]), k[3]): Usual(**values) for k, values in by_kind["usual"].items()}
            settled = {(int(k[0]), int(k[2])): Settled(**values) for k, values in by_kind["settled"].items()}
            honest = {(int(k[0]), int(k[2]), k[3]): Honest(**values) for k, values in by_kind["honest"].items()}
        except Exception as error:  # there are many ways to lack something
            raise _damaged(path, error) from error
        return cls(notes["step"], units, homes, going, usual, honest, settled, states, clones)


def _damaged(path: Path, error: Exception) -> OmrlError:
    what = " ".join(str(error).split())[:200]
    return OmrlError(f"{path} is damaged or of an earlier omrl ({what}): {AGAIN}.")
