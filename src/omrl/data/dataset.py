"""`MetaDataset`: logged transitions of many tasks, memory-mapped, with views by task and by quality level.

Opening reads the manifest and the files' headers. The first touch of a task's rows verifies its file's checksum.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from omrl.data.arrays import (
    ARRAYS,
    FLOAT,
    Arrays,
    Place,
    checked,
    converted,
    episode_returns,
    episode_starts,
    make_entry,
    statistics,
    to_unit,
)
from omrl.data.manifest import LEVELS, MANIFEST, Checkpoint, Manifest, Told, as_plain, header_settings, make_header
from omrl.data.taskfile import TaskFile, to_bytes
from omrl.errors import OmrlError
from omrl.families.family import JSON, Task

if TYPE_CHECKING:
    import torch

Rows = slice | NDArray[np.int64]


@dataclass(frozen=True)
class Tensors:
    """A meta-dataset on a device; the rows of task i are the first `length[i]`, what follows is zero."""

    obs: torch.Tensor  # [task, transition, S]
    act: torch.Tensor  # [task, transition, A], in [-1, 1]
    rew: torch.Tensor  # [task, transition]
    next_obs: torch.Tensor  # [task, transition, S]
    term: torch.Tensor  # [task, transition] bool
    episode: torch.Tensor  # [task, transition] int32
    step: torch.Tensor  # [task, transition] int32
    length: torch.Tensor  # [task] int64
    rew_dense: torch.Tensor | None = None  # [task, transition]


@dataclass(frozen=True)
class LevelFacts:
    """What the manifest says of one quality level."""

    returns: NDArray[np.float64]
    """The mean return of every task."""
    rows: int
    episodes: int
    rewarded: float | None
    """Share of rows whose reward is not zero."""
    action_std: float | None
    """Mean standard deviation of the logged actions before tanh: how broad the data is."""


# The array behind each field of Tensors.
_FIELDS = {
    "obs": "observations",
    "act": "actions",
    "rew": "rewards",
    "next_obs": "next_observations",
    "term": "terminations",
    "episode": "episode",
    "step": "step",
    "rew_dense": "rewards_dense",
}


class MetaDataset:
    """Logged transitions of many tasks. `select` and `level` give views that share the files."""

    def __init__(self, manifest: Manifest, files: Mapping[str, TaskFile], path: Path | None = None) -> None:
        """Use `MetaDataset.open` or `MetaDataset.from_arrays`."""
        self.manifest = manifest
        self.path = path
        self._files = files
        self._entries = {entry.name: entry for entry in manifest.tasks}
        self._names = tuple(self._entries)
        self._level = "mixed"
        self._selected: dict[str, Rows] = {}
        first = manifest.tasks[0].name
        for name, file in files.items():
            if file.names != files[first].names:
                odd = set(file.names) ^ set(files[first].names)
                raise file.place.error(min(odd), f"only one of the tasks {first!r} and {name!r} has this array")

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> MetaDataset:
        """Read the manifest, check the files' sizes and headers; the rows stay on the disk."""
        folder = Path(path)
        where = folder / MANIFEST
        try:
            text = where.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise OmrlError(f"{folder} is not a meta-dataset: there is no {where}") from None
        except OSError as error:
            raise OmrlError(f"{where} cannot be read: {error}") from error
        manifest = Manifest.from_json(text, str(where))
        files = {}
        for entry in manifest.tasks:
            file = folder / entry.file
            if not os.path.isfile(file):  # noqa: PTH113 - where pathlib fails on odd names
                raise OmrlError(f"{file}: the file of task {entry.name!r} is missing")
            if file.resolve().parent != folder.resolve():
                raise OmrlError(f"{where}: the file {entry.file!r} of task {entry.name!r} leaves the folder")
            files[entry.name] = TaskFile(entry, manifest, file)
        return cls(manifest, files, folder)

    @classmethod
    def from_arrays(
        cls,
        tasks: Mapping[str, Mapping[str, ArrayLike]],
        *,
        action_low: ArrayLike,
        action_high: ArrayLike,
        varies: str,
        split: Mapping[str, Sequence[str]] | None = None,
        params: Mapping[str, Mapping[str, JSON]] | None = None,
        family: str | None = None,
        horizon: int | None = None,
        source: Mapping[str, object] | None = None,
        columns: Mapping[str, object] | None = None,
        discrete_actions: Sequence[Mapping[str, object]] | None = None,
    ) -> MetaDataset:
        """A meta-dataset in memory, checked like one that is written; without a split every task is a training task."""
        names = list(tasks)
        dims = {"observations": 1, "actions": 1}
        for array in dims if tasks else ():
            first = Place("arrays", names[0])
            if array not in tasks[names[0]]:
                raise first.error(array, "the array is missing")
            shape = converted(tasks[names[0]][array], FLOAT, array, first).shape
            if len(shape) != 2:
                raise first.error(array, f"its shape is {list(shape)} but must be [rows, dims]")
            dims[array] = shape[1]
        header = make_header(
            "arrays",
            names,
            family=family,
            observation_dim=dims["observations"],
            action_dim=dims["actions"],
            action_low=action_low,
            action_high=action_high,
            varies=varies,
            horizon=horizon,
            split=split if split is not None else {"train": names, "test": []},
            source=source,
            columns=columns,
            discrete_actions=discrete_actions,
        )
        entries, files = [], {}
        for position, name in enumerate(names):
            arrays = checked(tasks[name], header, Place("arrays", name))
            data = to_bytes(arrays)
            task = Task(name, (params or {}).get(name, {}))
            entries.append(make_entry(task, position, arrays, data, horizon, Told()))
            files[name] = TaskFile(entries[-1], header, data)
        return cls(Manifest(**vars(header), tasks=tuple(entries)), files)

    def save(self, path: str | os.PathLike[str], force: bool = False) -> MetaDataset:
        """Write this dataset, or the rows that this view shows, into a new folder and open it."""
        from omrl.data.writer import write_all

        split = {part: list(names) for part, names in self.split.items()}
        about: dict[str, Any] = {**header_settings(self.manifest), "split": split}
        header = make_header(str(path), self._names, **about)
        rows = ((name, self.rows(name), self._entries[name].told, self._files[name].place) for name in self._names)
        return write_all(path, header, self.tasks, rows, force=force)

    @property
    def family(self) -> str | None:
        """The task family that the data comes from, if it is one of omrl's."""
        return self.manifest.family

    @property
    def observation_dim(self) -> int:
        """Length of an observation."""
        return self.manifest.observation_dim

    @property
    def action_dim(self) -> int:
        """Length of an action."""
        return self.manifest.action_dim

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks of this view."""
        return tuple(Task(name, self._entries[name].params) for name in self._names)

    @property
    def split(self) -> dict[str, tuple[str, ...]]:
        """Names of the training and the test tasks, as far as this view has them."""
        shown, split = set(self._names), self.manifest.split
        return {
            "train": tuple(name for name in split.train if name in shown),
            "test": tuple(name for name in split.test if name in shown),
        }

    @property
    def levels(self) -> tuple[str, ...]:
        """The quality levels that every task of this view has."""
        shown = [self._entries[name].levels for name in self._names]
        return tuple(level for level in LEVELS if level == "mixed" or all(level in levels for levels in shown))

    def level_facts(self, level: str) -> LevelFacts:
        """What is known of a level without reading a row."""
        self.level(level)  # or the sentence that there is none
        entries = [self._entries[name] for name in self._names]
        own = [list(e.checkpoints) if level == "mixed" else [e.levels[level]] for e in entries]
        parts = entries if level == "mixed" else [checkpoints[0] for checkpoints in own]
        logged = [checkpoint for checkpoints in own for checkpoint in checkpoints]

        def over_rows(name: str) -> float | None:
            values = [getattr(checkpoint, name) for checkpoint in logged]
            known = bool(values) and None not in values
            return float(np.average(values, weights=[c.rows for c in logged])) if known else None

        return LevelFacts(
            returns=np.array([p.mean_return if isinstance(p, Checkpoint) else p.returns.mean for p in parts]),
            rows=sum(part.rows for part in parts),
            episodes=sum(part.episodes for part in parts),
            rewarded=over_rows("rewarded"),
            action_std=over_rows("action_std"),
        )

    @property
    def is_view(self) -> bool:
        """Whether this shows only some of the tasks or rows, or the tasks in another order."""
        return self._level != "mixed" or self._names != tuple(self._entries)

    def level(self, level: str) -> MetaDataset:
        """A view of the rows of one quality level: random, medium, expert or mixed (all rows)."""
        if level not in self.levels:
            here = f"{self.path}: " if self.path else ""
            raise OmrlError(f"{here}there is no level {level!r}, this dataset has {', '.join(self.levels)}")
        return self._view(self._names, level)

    def select(self, tasks: Sequence[str]) -> MetaDataset:
        """A view of some tasks, in the order given."""
        if not tasks:
            raise OmrlError("no tasks were selected")
        return self._view(tuple(self._name(task) for task in tasks), self._level)

    def rows(self, task: str | int, episode: int | None = None) -> Arrays:
        """The rows of a task, or of one of its episodes; they share memory with the file where they lie together."""
        name = self._name(task)
        arrays = self._files[name].arrays()
        shown = self._shown(name)
        if not (isinstance(shown, slice) and shown == slice(0, self._entries[name].rows)):
            arrays = {array: values[shown] for array, values in arrays.items()}
        if episode is None:
            return dict(arrays)
        found = np.flatnonzero(arrays["episode"] == episode)
        if not len(found):
            raise self._files[name].place.error("episode", f"there is no episode {episode}")
        return {array: values[found[0] : found[-1] + 1] for array, values in arrays.items()}

    def sample(self, task: str | int, n: int, rng: np.random.Generator) -> Arrays:
        """`n` rows drawn uniformly with replacement; only they are brought into memory."""
        name = self._name(task)
        shown = self._shown(name)
        if isinstance(shown, slice):
            drawn = rng.integers(shown.start, shown.stop, n)
        else:
            drawn = shown[rng.integers(0, len(shown), n)]
        return {array: values[drawn] for array, values in self._files[name].arrays().items()}

    def count(self, task: str | int, max_rows: int | None = None) -> int:
        """How many rows this view shows of a task, or `max_rows` if it shows more."""
        entry = self._entries[self._name(task)]
        shown = entry.rows if self._level == "mixed" else entry.levels[self._level].rows
        return shown if max_rows is None else min(shown, max_rows)

    def row_numbers(self, task: str | int, max_rows: int | None = None, seed: int = 0) -> NDArray[np.int64]:
        """Where the rows that this view shows of a task are in its file.

        With `max_rows`, no more than that: whole episodes drawn at random, the last of them cut short.
        """
        name = self._name(task)
        shown = self._shown(name)
        rows = np.arange(shown.start, shown.stop) if isinstance(shown, slice) else shown
        if max_rows is not None and max_rows < len(rows):
            # Seeded by the task, so that a task's rows do not depend on which others are selected.
            rng = np.random.default_rng([seed, list(self._entries).index(name)])
            rows = rows[_whole_episodes(self._files[name].arrays()["episode"][rows], max_rows, rng)]
        return rows

    def returns(self, task: str | int) -> NDArray[np.float64]:
        """The return of every episode of a task, over the manifest's horizon."""
        return episode_returns(self.rows(task), self.manifest.horizon)

    def to(self, device: str | torch.device = "cpu", max_rows: int | None = None, seed: int = 0) -> Tensors:
        """All rows as padded tensors.

        With `max_rows`, each task gives that many of its rows at most: whole episodes drawn at random, the last of
        them cut short, in the order of the log.
        """
        import torch

        if max_rows is not None and max_rows < 1:
            raise OmrlError(f"max_rows is {max_rows} but must be at least 1")
        lengths = np.array([self.count(name, max_rows) for name in self._names], np.int64)
        arrays = self._files[self._names[0]].names
        fields = {field: array for field, array in _FIELDS.items() if array in arrays}
        dims = {"S": (self.observation_dim,), "A": (self.action_dim,), "": ()}
        # numpy's allocator asks for huge pages, torch's does not: filling fresh memory is half of the work here.
        padded = {
            field: np.empty((len(lengths), int(lengths.max()), *dims[ARRAYS[array][1]]), ARRAYS[array][0])
            for field, array in fields.items()
        }

        def fill(i: int) -> None:
            name, length = self._names[i], int(lengths[i])
            if length < self.count(name):
                every, kept = self._files[name].arrays(), self.row_numbers(name, length, seed)
                rows = {array: every[array][kept] for array in fields.values()}
            else:
                rows = self.rows(name)
            for field, array in fields.items():
                padded[field][i, :length] = rows[array]
                padded[field][i, length:] = 0
            to_unit(padded["act"][i, :length], self.manifest.action_low, self.manifest.action_high)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for _ in pool.map(fill, range(len(lengths))):
                pass
        try:
            tensors = {field: torch.from_numpy(array).to(device) for field, array in padded.items()}
            return Tensors(length=torch.from_numpy(lengths).to(device), **tensors)
        except (RuntimeError, AssertionError) as error:
            reason = str(error).strip().split("\n")[0]
            raise OmrlError(f"the data cannot be put on device {str(device)!r}: {reason}") from error

    def validate(self) -> None:
        """Read everything: checksums, every rule on every array, and the manifest's statistics."""
        for name in self._names:
            file, entry = self._files[name], self._entries[name]
            rows = checked(file.arrays(), self.manifest, file.place)
            found = statistics(rows, self.manifest.horizon, entry.told.policies)
            if not _agree(as_plain(found), as_plain((entry.returns, entry.episodes, entry.checkpoints))):
                raise OmrlError(f"{file.place.file}: the statistics of task {name!r} are not those of the manifest")

    def _view(self, names: tuple[str, ...], level: str) -> MetaDataset:
        view = MetaDataset(self.manifest, self._files, self.path)
        view._names, view._level = names, level
        return view

    def _name(self, task: str | int) -> str:
        if isinstance(task, str):
            if task not in self._names:
                raise OmrlError(f"there is no task {task!r} among {_some(self._names)}")
            return task
        if not -len(self._names) <= task < len(self._names):
            raise OmrlError(f"there is no task number {task}, there are {len(self._names)} tasks")
        return self._names[task]

    def _shown(self, name: str) -> Rows:
        """The rows that this view shows of a task: a slice where they lie together."""
        entry = self._entries[name]
        if self._level == "mixed":
            return slice(0, entry.rows)
        if name not in self._selected:
            policy_step = self._files[name].arrays()["policy_step"]
            rows = np.flatnonzero(policy_step == entry.levels[self._level].policy_step)
            together = rows[-1] - rows[0] + 1 == len(rows)
            self._selected[name] = slice(int(rows[0]), int(rows[-1]) + 1) if together else rows
        return self._selected[name]


def _whole_episodes(episode: NDArray[Any], n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """`n` rows: all rows of the episodes that come first in a random order."""
    starts = episode_starts(episode)
    rank = np.repeat(rng.permutation(len(starts)), np.diff(starts, append=len(episode)))
    return np.sort(np.argsort(rank, kind="stable")[:n])


def _agree(found: Any, stated: Any) -> bool:
    """Equal up to the rounding in which two machines' sums may differ; what was not stated agrees with anything."""
    if stated is None:
        return True
    if isinstance(found, float):
        return bool(np.isclose(found, stated, rtol=1e-6, atol=1e-6))
    if isinstance(found, dict):
        return all(_agree(value, stated[key]) for key, value in found.items())
    if isinstance(found, list):
        return len(found) == len(stated) and all(map(_agree, found, stated))
    return bool(found == stated)


def _some(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown}, ... ({len(names)} tasks)"
