"""The arrays of one task: what each must be, their statistics, and their bytes as a safetensors file.

One row per transition. The rows of an episode lie together and in order; an episode is logged by one policy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from omrl.data.manifest import BehaviourPolicy, Checkpoint, Header, Returns, TaskEntry, Told, json_copy
from omrl.errors import OmrlError
from omrl.families.family import Task

Arrays = dict[str, NDArray[Any]]

FLOAT, INT, BOOL = np.dtype("<f4"), np.dtype("<i4"), np.dtype("?")

# In the order of the file. "S" and "A" stand for the observation and action dimensions.
ARRAYS: dict[str, tuple[np.dtype[Any], str]] = {
    "observations": (FLOAT, "S"),
    "actions": (FLOAT, "A"),
    "rewards": (FLOAT, ""),
    "next_observations": (FLOAT, "S"),
    "rewards_dense": (FLOAT, ""),
    "episode": (INT, ""),
    "step": (INT, ""),
    "policy_step": (INT, ""),
    "terminations": (BOOL, ""),
    "truncations": (BOOL, ""),
}
OPTIONAL = ("rewards_dense", "policy_step")

# Logged actions were often clipped in another precision than the bounds.
ACTION_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Place:
    """Where a task's rows came from, to name it in errors."""

    file: str
    task: str
    row_numbers: NDArray[np.int64] | None = None  # of the rows in the file, where they differ from the task's own

    def error(self, array: str, problem: str, row: int | None = None) -> OmrlError:
        """One sentence: file, task, array and, where there is one, row."""
        if row is not None:
            row = row if self.row_numbers is None else int(self.row_numbers[row])
            return OmrlError(f"{self.file}: task {self.task!r}, {array}, row {row}: {problem}")
        return OmrlError(f"{self.file}: task {self.task!r}, {array}: {problem}")


def shape_of(name: str, rows: int, header: Header) -> tuple[int, ...]:
    """The shape that an array of a task with so many rows must have."""
    dims = {"S": (header.observation_dim,), "A": (header.action_dim,), "": ()}
    return (rows, *dims[ARRAYS[name][1]])


def checked(arrays: Mapping[str, ArrayLike], header: Header, place: Place) -> Arrays:
    """The task's arrays in the dtypes of the format, or an error that names the first offence."""
    for name in arrays:
        if name not in ARRAYS:
            raise place.error(name, f"there is no such array; the arrays are {', '.join(ARRAYS)}")
    for name in ARRAYS:
        if name not in arrays and name not in OPTIONAL:
            raise place.error(name, "the array is missing")
    result = {name: converted(arrays[name], ARRAYS[name][0], name, place) for name in ARRAYS if name in arrays}
    rows = result["observations"].shape[0] if result["observations"].ndim else 0
    for name, array in result.items():
        wanted = shape_of(name, rows, header)
        if array.ndim == len(wanted) and array.shape[1:] == wanted[1:] and len(array) != rows:
            raise place.error(name, f"it has {len(array)} rows but observations has {rows}")
        if array.shape != wanted:
            raise place.error(name, f"its shape is {list(array.shape)} but must be {list(wanted)}")
    if rows == 0:
        raise place.error("observations", "the task is empty")
    _check_actions(result["actions"], header, place)
    _check_choices(result["actions"], header, place)
    _check_ranges(result, header, place)
    _check_episodes(result, place)
    return result


def converted(values: ArrayLike, dtype: np.dtype[np.generic], name: str, place: Place) -> NDArray[np.generic]:
    """The values in the dtype of the format, if they are numbers that it can hold."""
    try:
        array = np.asarray(values)
    except ValueError as error:  # rows of different lengths
        raise place.error(name, f"it is not an array ({error})") from error
    if array.dtype.kind not in "biuf":
        raise place.error(name, f"its dtype is {array.dtype} but must be a number or a truth value")
    if array.dtype == dtype:
        result = array
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            result = array.astype(dtype)
    if dtype == FLOAT:
        _refuse(~np.isfinite(result), array, name, place, "is not a finite 32-bit number")
    elif result is not array:
        kind = "a truth value" if dtype == BOOL else "a whole 32-bit number"
        _refuse(result != array, array, name, place, f"is not {kind}")
    return np.asarray(result, order="C")


def _refuse(bad: NDArray[Any], array: NDArray[Any], name: str, place: Place, problem: str) -> None:
    if bad.any():
        position = tuple(int(i) for i in np.argwhere(bad)[0])
        raise place.error(name, f"{array[position]} {problem}", position[0] if position else None)


def _check_actions(actions: NDArray[Any], header: Header, place: Place) -> None:
    low, high = np.asarray(header.action_low), np.asarray(header.action_high)
    outside = (actions < low - ACTION_TOLERANCE) | (actions > high + ACTION_TOLERANCE)
    if outside.any():
        row, dim = (int(i) for i in np.argwhere(outside)[0])
        bounds = f"[{low[dim]:g}, {high[dim]:g}]"
        which = f"in dimension {dim}" if header.columns is None else f"of {header.columns.actions[dim].name}"
        raise place.error(
            "actions", f"{actions[row, dim]:g} {which} is outside the bounds {bounds}; give wider ones", row
        )


def _check_choices(actions: NDArray[Any], header: Header, place: Place) -> None:
    for dim, choices in enumerate(header.discrete_actions or ()):
        other = ~np.isin(actions[:, dim], np.array(choices.values, FLOAT))
        if other.any():
            row = int(np.argmax(other))
            raise place.error("actions", f"{actions[row, dim]:g} is none of the {len(choices.values)} choices", row)


def _check_ranges(arrays: Arrays, header: Header, place: Place) -> None:
    """Rows lie within what the manifest says of their columns."""
    if header.columns is None:
        return
    known = {"observations": header.columns.observations, "next_observations": header.columns.observations}
    known |= {"actions": header.columns.actions, "rewards": (header.columns.rewards,)}
    for name, columns in known.items():
        rows = arrays[name].reshape(-1, len(columns))
        low, high = (np.array([getattr(column, end) for column in columns], FLOAT) for end in ("low", "high"))
        outside = (rows < low) | (rows > high)
        if outside.any():
            row, dim = (int(i) for i in np.argwhere(outside)[0])
            told = f"{columns[dim].name} from {low[dim]:g} to {high[dim]:g}"
            raise place.error(name, f"{rows[row, dim]:g} is outside what the manifest says, {told}", row)


def _check_episodes(arrays: Arrays, place: Place) -> None:
    episode, step = arrays["episode"], arrays["step"]
    starts = episode_starts(episode)
    ids, first = np.unique(episode[starts], return_index=True)
    if len(ids) < len(starts):
        again = int(np.setdiff1d(np.arange(len(starts)), first)[0])
        row = int(starts[again])
        raise place.error("episode", f"the rows of episode {episode[row]} do not lie together; sort them", row)
    lengths = np.diff(starts, append=len(episode))
    wrong = step != np.arange(len(step)) - np.repeat(starts, lengths)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise place.error("step", f"step {step[row]} does not follow on, steps count 0, 1, 2, ... in an episode", row)
    inside = np.ones(len(episode), bool)
    inside[starts + lengths - 1] = False
    for name in ("terminations", "truncations"):
        wrong = arrays[name] & inside
        if wrong.any():
            row = int(np.argmax(wrong))
            raise place.error(name, f"the flag is set but episode {episode[row]} goes on", row)
    if "policy_step" in arrays:
        policy_step = arrays["policy_step"]
        wrong = policy_step != np.repeat(policy_step[starts], lengths)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise place.error("policy_step", f"it changes inside episode {episode[row]}", row)
        _refuse(policy_step < 0, policy_step, "policy_step", place, "is negative")


def episode_starts(episode: NDArray[np.generic]) -> NDArray[np.int64]:
    """The first row of every episode."""
    return np.flatnonzero(np.append(True, episode[1:] != episode[:-1]))


def to_unit(act: NDArray[np.floating], low: ArrayLike, high: ArrayLike) -> None:
    """Map float32 actions from their bounds to [-1, 1], in place."""
    lowest, highest = np.asarray(low, np.float32), np.asarray(high, np.float32)
    if (lowest != -1).any() or (highest != 1).any():
        act -= lowest
        act *= 2 / (highest - lowest)
        act -= 1
    np.clip(act, -1, 1, out=act)


def episode_returns(arrays: Mapping[str, NDArray[np.generic]], horizon: int | None) -> NDArray[np.float64]:
    """The return of every episode in the order of the rows, over its first `horizon` steps."""
    rewards = arrays["rewards"].astype(np.float64)
    if horizon is not None:
        rewards[arrays["step"].astype(np.int64) >= horizon] = 0.0
    return np.add.reduceat(rewards, episode_starts(arrays["episode"]))


def statistics(
    arrays: Arrays, horizon: int | None, policies: Mapping[int, BehaviourPolicy]
) -> tuple[Returns, int, tuple[Checkpoint, ...]]:
    """Return statistics, number of episodes, and the same per checkpoint beside what is known of its policy."""
    returns = episode_returns(arrays, horizon)
    summary = Returns(float(returns.mean()), float(returns.min()), float(returns.max()), float(returns.std()))
    checkpoints = []
    if "policy_step" in arrays:
        of_episode = arrays["policy_step"][episode_starts(arrays["episode"])]
        for policy_step in np.unique(of_episode):
            logged = returns[of_episode == policy_step]
            rewards = arrays["rewards"][arrays["policy_step"] == policy_step]
            policy = policies.get(int(policy_step), BehaviourPolicy())
            checkpoints.append(
                Checkpoint(
                    policy_step=int(policy_step),
                    rows=len(rewards),
                    episodes=len(logged),
                    mean_return=float(logged.mean()),
                    rewarded=float(np.count_nonzero(rewards) / len(rewards)),
                    level=policy.level,
                    action_std=policy.action_std,
                )
            )
    return summary, len(returns), tuple(checkpoints)


def task_file(position: int) -> str:
    """The name of a task's file, made from its position and never from what a user calls the task."""
    return f"task-{position:03d}.safetensors"


def make_entry(task: Task, position: int, arrays: Arrays, data: bytes, horizon: int | None, told: Told) -> TaskEntry:
    """The manifest's description of one task."""
    returns, episodes, checkpoints = statistics(arrays, horizon, told.policies)
    return TaskEntry(
        name=task.name,
        params=json_copy(dict(task.params), f"the parameters of task {task.name!r}"),
        file=task_file(position),
        rows=len(arrays["rewards"]),
        episodes=episodes,
        bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        returns=returns,
        checkpoints=checkpoints,
        reference=told.reference,
    )
