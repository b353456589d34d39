"""Logged rows of all tasks in units of their own spread: what everything in this room reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from omrl.data import MetaDataset
from omrl.data.arrays import to_unit
from omrl.learning.regression import Array

# Rows of all tasks together, and of a task that is judged.
ALL_ROWS, JUDGED_ROWS = 40_000, 2_000
# A spread below this is that of a constant.
CONSTANT = 1e-6


@dataclass(frozen=True)
class Actions:
    """How actions of [-1, 1] are written: by their spread, or where they are choices as a one among zeros."""

    mean: Array
    spread: Array
    choices: tuple[Array, ...] | None
    """The values of each number of a discrete action, in [-1, 1]."""

    def encode(self, unit: Array) -> Array:
        """[..., A] in [-1, 1] to [..., A']."""
        if self.choices is None:
            return np.asarray((unit - self.mean) / self.spread)
        chosen = [np.abs(unit[..., i, None] - values).argmin(-1) for i, values in enumerate(self.choices)]
        parts = [np.eye(len(values))[one] for one, values in zip(chosen, self.choices, strict=True)]
        return np.concatenate(parts, -1)


@dataclass(frozen=True)
class Log:
    """Rows of tasks, a list entry for each: observations and actions in units of their spread, rewards as logged."""

    names: tuple[str, ...]
    obs: list[Array]
    act: list[Array]
    rew: list[Array]
    next_obs: list[Array]
    term: list[Array]
    episode: list[Array]
    mean: Array
    """Of observations [S]."""
    spread: Array
    actions: Actions

    @classmethod
    def read(cls, view: MetaDataset, judged: Sequence[str]) -> Log:
        """Some episodes of every task; more of those that are judged."""
        names = tuple(task.name for task in view.tasks)
        manifest = view.manifest
        low, high = (np.array(bound, np.float32) for bound in (manifest.action_low, manifest.action_high))
        each = max(ALL_ROWS // len(names), 1)
        rows = []
        for name in names:
            every = view.rows(name)
            most = max(each, JUDGED_ROWS) if name in judged else each
            kept = _whole_episodes(every["episode"], most)
            rows.append({key: np.array(values[kept]) for key, values in every.items()})
        for task in rows:
            unit = task["actions"].astype(np.float32)
            to_unit(unit, low, high)
            task["actions"] = unit.astype(np.float64)
        seen = np.concatenate([task["observations"] for task in rows]).astype(np.float64)
        done = np.concatenate([task["actions"] for task in rows])
        spread, act_spread = (np.where(x.std(0) > CONSTANT, x.std(0), 1.0) for x in (seen, done))
        choices = None
        if manifest.discrete_actions is not None:
            values = [np.array(one.values, np.float64) for one in manifest.discrete_actions]
            choices = tuple(2 * (v - lo) / (hi - lo) - 1 for v, lo, hi in zip(values, low, high, strict=True))
        mean, actions = seen.mean(0), Actions(done.mean(0), act_spread, choices)
        return cls(
            names=names,
            obs=[(task["observations"] - mean) / spread for task in rows],
            act=[actions.encode(task["actions"]) for task in rows],
            rew=[task["rewards"].astype(np.float64) for task in rows],
            next_obs=[(task["next_observations"] - mean) / spread for task in rows],
            term=[task["terminations"] for task in rows],
            episode=[task["episode"] for task in rows],
            mean=mean,
            spread=spread,
            actions=actions,
        )


def _whole_episodes(episode: Array, most: int) -> Array:
    """Row numbers of whole episodes spread over a log, at most so many but for the first one."""
    starts = np.flatnonzero(np.diff(episode, prepend=episode[0] - 1))
    lengths = np.diff(starts, append=len(episode))
    order = np.random.default_rng(0).permutation(len(starts))
    kept = np.sort(order[np.cumsum(lengths[order]) <= most])
    if not len(kept):
        kept = order[:1]
    return np.concatenate([np.arange(starts[e], starts[e] + lengths[e]) for e in kept])
