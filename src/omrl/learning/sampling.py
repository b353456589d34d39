"""Meta-batches: for every learner some tasks, for every task rows and contexts, as an algorithm's BatchSpec asks.

`MetaSampler` draws from data that lies on the device, `StreamedSampler` from files that need not fit into memory.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from omrl.algorithms.algorithm import BatchSpec
from omrl.data import MetaDataset, Tensors
from omrl.data.arrays import Arrays, episode_starts, to_unit

# Data may take this share of the free memory: the loaded rows, the packed ones and a column on its way between them
# exist at the same time.
SHARE = 1 / 3
# Batches that are read ahead, each by a thread of its own: one would do while the files are in the system's cache, more
# let a disk answer several requests at a time.
AHEAD = 8
CHUNK_ROWS = 65_536
# What a batch has of the rows of other tasks.
OF_OTHERS = ("obs", "act", "rew", "next_obs", "term")


@dataclass(frozen=True)
class Normalisation:
    """Mean and standard deviation of the training data's observations."""

    mean: Tensor
    std: Tensor

    @classmethod
    def of(cls, data: Tensors | OnDisk) -> Normalisation:
        """Over all rows of all tasks; an entry that never changes is only centred."""
        if isinstance(data, OnDisk):
            mean, std = (torch.from_numpy(values).to(data.device) for values in data.moments())
        else:
            rows = data.obs[_filled(data)].double()
            mean, std = rows.mean(0), rows.std(0)
        return cls(mean.float(), torch.where(std > 1e-6, std, 1.0).float())

    def __call__(self, obs: Tensor) -> Tensor:
        return (obs - self.mean) / self.std


class How(TypedDict):
    """The sizes of a meta-batch, and what is in it."""

    spec: BatchSpec
    learners: int
    meta_batch: int
    batch_size: int
    context_size: int


class Sampler:
    """What samplers share: the sizes of a meta-batch, and what stands where in a packed row.

    Tasks are drawn without replacement, rows with replacement, contexts independently of the rows. Where there are
    fewer tasks than the meta-batch asks for, every task gives more rows, so that their number stays the same.
    """

    def __init__(
        self,
        tasks: int,
        obs_dim: int,
        act_dim: int,
        *,
        spec: BatchSpec,
        learners: int,
        meta_batch: int,
        batch_size: int,
        context_size: int,
    ) -> None:
        self.learners, self.meta_batch = learners, min(meta_batch, tasks)
        self.batch_size = batch_size * meta_batch // self.meta_batch
        self.spec, self.context_size = spec, context_size
        self._widths = {"obs": obs_dim, "act": act_dim, "rew": 1, "next_obs": obs_dim}
        self._context_width = sum(self._widths.values())  # a context is (s, a, r, s')
        self._widths |= {"term": 1}
        self._widths |= {"rew_dense": 1} if spec.dense_rewards else {}
        self._widths |= {"next_act": act_dim, "has_next": 1} if spec.next_actions else {}

    @property
    def transitions_per_update(self) -> int:
        """Rows drawn for one learner's update, the paper's x axis."""
        return self.meta_batch * self.batch_size

    def prepare(self, step: int) -> None:
        """Called before the update of this number: make ready what `draw` returns then."""

    def close(self) -> None:
        """Called after the last update."""

    @property
    def _packed_shape(self) -> tuple[int, int, int, int]:
        """[P, M, B + sets C, width] of the packed rows of one meta-batch, and B more for those of other tasks."""
        count = self.batch_size * (2 if self.spec.other_tasks else 1) + self.spec.context_sets * self.context_size
        return self.learners, self.meta_batch, count, sum(self._widths.values())

    @property
    def _picks(self) -> int:
        """Random places of a task that its rows and contexts are taken from: a stretch of an episode needs one."""
        return self.batch_size + self.spec.context_sets * (1 if self.spec.consecutive else self.context_size)

    def _columns(self, packed: Tensor) -> dict[str, Tensor]:
        """Views of packed rows [..., width] by name: rew, term, rew_dense and has_next without the last axis."""
        parts = zip(self._widths, torch.split(packed, list(self._widths.values()), dim=-1), strict=True)
        scalars = ("rew", "term", "rew_dense", "has_next")
        return {name: part[..., 0] if name in scalars else part for name, part in parts}

    def _meta_batch(self, packed: Tensor) -> dict[str, Tensor]:
        """Of packed rows: rows [P, M, B, dim] by name, context [P, M, sets, C, (s, a, r, s')]."""
        sets = (self.learners, self.meta_batch, self.spec.context_sets, self.context_size, self._context_width)
        sizes = [self.batch_size, sets[2] * sets[3]]
        rows, context, others = torch.split(packed, [*sizes, packed.shape[2] - sum(sizes)], dim=2)
        found = {**self._columns(rows), "context": context[..., : self._context_width].reshape(sets)}
        if self.spec.other_tasks:
            found |= {f"other.{name}": value for name, value in self._columns(others).items() if name in OF_OTHERS}
        return found


class MetaSampler(Sampler):
    """The training tasks' data on the device, packed so that one gather fetches a row, and how to draw from it."""

    def __init__(self, data: Tensors, normalise: Normalisation, **how: Unpack[How]) -> None:
        """`how` are spec, learners, meta_batch, batch_size and context_size."""
        tasks, self._longest, obs_dim = data.obs.shape
        super().__init__(tasks, obs_dim, data.act.shape[-1], **how)
        self._length = data.length.float()
        self._rows = torch.empty(tasks * self._longest, self._packed_shape[-1], device=data.obs.device)
        # Column by column, so that no more than one of them exists twice.
        column = self._columns(self._rows.view(tasks, self._longest, -1))
        column["obs"].copy_(normalise(data.obs))
        column["act"].copy_(data.act)
        column["rew"].copy_(data.rew)
        column["next_obs"].copy_(normalise(data.next_obs))
        column["term"].copy_(data.term)
        if self.spec.dense_rewards:
            column["rew_dense"].copy_(data.rew if data.rew_dense is None else data.rew_dense)
        if self.spec.next_actions:
            next_act, has_next = next_actions(data)
            column["next_act"].copy_(next_act)
            column["has_next"].copy_(has_next)
        if self.spec.consecutive:
            self._episode = torch.stack(episodes_of(data), dim=-1)  # [task, row, (first row, rows)]

    def draw(self, generator: torch.Generator) -> dict[str, Tensor]:
        """A meta-batch, as the spec says."""
        device, (learners, picked, _, _) = self._rows.device, self._packed_shape
        uniform = partial(torch.rand, generator=generator, device=device)
        scores = uniform((learners, len(self._length)))
        tasks = scores.topk(self.meta_batch, dim=1).indices[..., None]  # [P, M, 1]
        places = (uniform((learners, picked, self._picks)) * self._length[tasks]).long()
        if self.spec.consecutive:
            rows, starts = torch.split(places, [self.batch_size, self.spec.context_sets], dim=2)
            first, count = self._episode[tasks, starts].unbind(-1)
            places = torch.cat([rows, stretch(starts, first, count, self.context_size).flatten(2)], dim=2)
        flat = tasks * self._longest + places
        if self.spec.other_tasks:
            away = 1 + (uniform((learners, picked, 1)) * (len(self._length) - 1)).long()
            other = (tasks + away) % len(self._length)
            others = (uniform((learners, picked, self.batch_size)) * self._length[other]).long()
            flat = torch.cat([flat, other * self._longest + others], dim=2)
        return {**self._meta_batch(self._rows[flat]), "task": tasks[..., 0]}


class StreamedSampler(Sampler):
    """Meta-batches of rows that stay in their files; threads read the next ones while the learners learn.

    A batch depends on seed and step alone, so that an interrupted run goes on with the batches it would have had.
    `draws` says how often one update calls `draw`.
    """

    def __init__(
        self, data: OnDisk, normalise: Normalisation, *, seed: int = 0, draws: int = 1, **how: Unpack[How]
    ) -> None:
        """`how` are spec, learners, meta_batch, batch_size and context_size."""
        super().__init__(len(data.tasks), data.obs_dim, data.act_dim, **how)
        self._data, self._seed = data, seed
        self._mean, self._std = normalise.mean.cpu().numpy(), normalise.std.cpu().numpy()
        self._lengths = np.array([task.length for task in data.tasks])
        # A captured graph reads from the same place in every update.
        self._packed = torch.zeros(draws, *self._packed_shape, device=data.device)
        self._tasks = torch.zeros(self._packed.shape[:3], dtype=torch.int64, device=data.device)
        self._turn = 0
        self._coming: dict[int, Future[tuple[Tensor, Tensor]]] = {}
        self._readers = ThreadPoolExecutor(AHEAD, "omrl-reader")
        data.expect_random_access()

    def prepare(self, step: int) -> None:
        """Bring the batches of this update to the device and begin to read those of the next; raise readers' errors."""
        wanted = range(step, step + AHEAD + 1)
        self._coming = {
            s: self._coming[s] if s in self._coming else self._readers.submit(self._read, s) for s in wanted
        }
        packed, tasks = self._coming.pop(step).result()
        self._packed.copy_(packed, non_blocking=True)
        self._tasks.copy_(tasks)
        self._turn = 0

    def draw(self, generator: torch.Generator) -> dict[str, Tensor]:
        """The next meta-batch of the update that was prepared, in the form of `MetaSampler.draw`."""
        turn, self._turn = self._turn, (self._turn + 1) % len(self._packed)
        return {**self._meta_batch(self._packed[turn]), "task": self._tasks[turn]}

    def close(self) -> None:
        """End the threads."""
        self._readers.shutdown(cancel_futures=True)

    def _read(self, step: int) -> tuple[Tensor, Tensor]:
        """The packed batches of an update, and their tasks. By numpy: torch would start threads for each reader."""
        rng = np.random.default_rng([self._seed, step])
        packed = torch.empty(self._packed.shape, pin_memory=self._packed.is_cuda)
        batches = packed.shape[:2]  # [draw, P]
        count = len(self._lengths)
        tasks = rng.random((*batches, count)).argsort(axis=-1)[..., : self.meta_batch, None]
        places = (rng.random((*packed.shape[:3], self._picks)) * self._lengths[tasks]).astype(np.int64)
        if self.spec.consecutive:
            starts = places[..., self.batch_size :]
            episodes = np.empty((2, *starts.shape), dtype=np.int64)
            for place in np.ndindex(starts.shape[:3]):
                episodes[(slice(None), *place)] = self._data.tasks[tasks[place][0]].episode_at(starts[place])
            start, first, rows = (torch.from_numpy(values) for values in (starts, *episodes))
            contexts = stretch(start, first, rows, self.context_size).flatten(3).numpy()
            places = np.concatenate([places[..., : self.batch_size], contexts], axis=-1)
        sources = [(tasks, places)]
        if self.spec.other_tasks:
            other = (tasks + 1 + (rng.random(tasks.shape) * (count - 1)).astype(np.int64)) % count
            others = (rng.random((*packed.shape[:3], self.batch_size)) * self._lengths[other]).astype(np.int64)
            sources.append((other, others))
        column = {name: view.numpy() for name, view in self._columns(packed).items()}
        begin = 0
        for of, positions in sources:
            part = slice(begin, begin + positions.shape[-1])
            begin = part.stop
            for place in np.ndindex(packed.shape[:3]):
                self._data.tasks[of[place][0]].read(
                    positions[place], {name: values[place][part] for name, values in column.items()}, self.batch_size
                )
        for name in ("obs", "next_obs"):
            column[name] -= self._mean
            column[name] /= self._std
        to_unit(column["act"], self._data.low, self._data.high)
        if self.spec.next_actions:
            scored = (..., slice(self.batch_size), slice(None))
            to_unit(column["next_act"][scored], self._data.low, self._data.high)
            column["next_act"][scored] *= column["has_next"][scored[:-1]][..., None]
        return packed, torch.from_numpy(tasks[..., 0])


@dataclass(frozen=True)
class TaskRows:
    """The rows of one task in its file. Episodes lie together there, so that two numbers each say where they are."""

    arrays: Arrays
    starts: NDArray[np.int64]  # the position of each episode's first row among the task's rows, then their number
    offsets: NDArray[np.int64]  # of each episode: where a row is in the file, less its position

    @property
    def length(self) -> int:
        """How many rows there are."""
        return int(self.starts[-1])

    def locate(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Rows in the file, and whether the episode goes on after them."""
        episode = self.starts.searchsorted(positions, side="right") - 1
        return positions + self.offsets.take(episode), positions + 1 < self.starts.take(episode + 1)

    def episode_at(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Of the episodes that rows are in, the first row and the number of rows."""
        episode = self.starts.searchsorted(positions, side="right") - 1
        return self.starts.take(episode), np.diff(self.starts).take(episode)

    def read(self, positions: NDArray[np.int64], column: dict[str, NDArray[np.float32]], scored: int) -> None:
        """Fill columns as logged; those that contexts do not have, for the first `scored` rows alone."""
        arrays = self.arrays
        rows, follows = self.locate(positions)
        # `take` is several times as fast as an index in brackets.
        column["obs"][:] = arrays["observations"].take(rows, axis=0)
        column["act"][:] = arrays["actions"].take(rows, axis=0)
        column["rew"][:] = arrays["rewards"].take(rows)
        column["next_obs"][:] = arrays["next_observations"].take(rows, axis=0)
        rows, follows = rows[:scored], follows[:scored]
        column["term"][:scored] = arrays["terminations"].take(rows)
        if "rew_dense" in column:
            column["rew_dense"][:scored] = arrays.get("rewards_dense", arrays["rewards"]).take(rows)
        if "next_act" in column:
            column["next_act"][:scored] = arrays["actions"].take(rows + follows, axis=0)
            column["has_next"][:scored] = follows


class OnDisk:
    """The rows that `MetaDataset.to` would load, left in their files; opening it verifies the files' checksums."""

    def __init__(self, view: MetaDataset, max_rows: int | None = None, device: str | torch.device = "cpu") -> None:
        """`device` is where batches go."""
        self.device = torch.device(device)
        self.obs_dim, self.act_dim = view.observation_dim, view.action_dim
        self.low, self.high = view.manifest.action_low, view.manifest.action_high
        self.tasks = [_task_rows(view, task.name, max_rows) for task in view.tasks]

    def moments(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and standard deviation of the observations in one pass, by merging those of chunks (Chan et al.)."""
        count, mean, squares = 0, np.zeros(self.obs_dim), np.zeros(self.obs_dim)
        for chunk in self._observations():
            total = count + len(chunk)
            chunk_mean = chunk.mean(0)
            delta = chunk_mean - mean
            squares += np.square(chunk - chunk_mean).sum(0) + delta**2 * (count * len(chunk) / total)
            mean += delta * (len(chunk) / total)
            count = total
        return mean, np.sqrt(squares / max(count - 1, 1))

    def expect_random_access(self) -> None:
        """From now on a read should fetch what is asked for, not the neighbourhood too."""
        for task in self.tasks:
            owner: Any = task.arrays["observations"]
            while isinstance(owner, np.ndarray):
                owner = owner.base
            if isinstance(owner, mmap.mmap) and hasattr(mmap, "MADV_RANDOM"):
                owner.madvise(mmap.MADV_RANDOM)

    def _observations(self) -> Iterator[NDArray[np.float64]]:
        for task in self.tasks:
            for first in range(0, task.length, CHUNK_ROWS):
                rows, _ = task.locate(np.arange(first, min(first + CHUNK_ROWS, task.length)))
                yield task.arrays["observations"].take(rows, axis=0).astype(np.float64)


def _task_rows(view: MetaDataset, name: str, max_rows: int | None) -> TaskRows:
    arrays, rows = view.level("mixed").rows(name), view.row_numbers(name, max_rows)
    starts = episode_starts(arrays["episode"][rows])
    return TaskRows(arrays, np.append(starts, len(rows)), rows[starts] - starts)


def make_sampler(
    data: Tensors | OnDisk, normalise: Normalisation, *, seed: int = 0, draws: int = 1, **how: Unpack[How]
) -> MetaSampler | StreamedSampler:
    """The sampler for data in memory, or for data on disk, where `seed` decides the batches of each update's draws."""
    if isinstance(data, OnDisk):
        return StreamedSampler(data, normalise, seed=seed, draws=draws, **how)
    return MetaSampler(data, normalise, **how)


def fits(view: MetaDataset, max_rows: int | None, device: str | torch.device) -> bool:
    """Whether a device, and the host on the way there, has room for a view's rows as tensors."""
    device = torch.device(device)
    longest = max(view.count(task.name, max_rows) for task in view.tasks)
    numbers = 2 * view.observation_dim + 2 * view.action_dim + 4  # of a packed row
    free = [_free_host_memory()]
    if device.type == "cuda":
        free.append(torch.cuda.mem_get_info(device)[0])
    return len(view.tasks) * longest * numbers * 4 <= SHARE * min(free)


def _free_host_memory() -> float:
    """Bytes that this process may still take, as far as the system says."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(float(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):  # not Linux
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    try:  # a container's limit
        return min(free, float(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):
        return free


def _filled(data: Tensors) -> Tensor:
    """[task, transition] true where there is a row."""
    return torch.arange(data.obs.shape[1], device=data.length.device) < data.length[:, None]


def stretch(start: Tensor, first: Tensor, rows: Tensor, size: int) -> Tensor:
    """Places [..., size] of rows that follow one another, from `start` on or from as late as the episode allows.

    The episode begins at row `first` and has so many `rows`; where these are fewer than `size`, it begins again.
    """
    into = torch.minimum(start - first, (rows - size).clamp(min=0))
    steps = torch.arange(size, device=start.device)
    return first[..., None] + (into[..., None] + steps) % rows[..., None]


def episodes_of(data: Tensors) -> tuple[Tensor, Tensor]:
    """Of every row's episode the first row and the number of rows, both [task, row]."""
    tasks, longest = data.episode.shape
    place = torch.arange(longest, device=data.episode.device).expand(tasks, -1)
    begins = torch.ones_like(data.episode, dtype=torch.bool)
    begins[:, 1:] = data.episode[:, 1:] != data.episode[:, :-1]
    begins |= place >= data.length[:, None]  # what only fills up is no part of the last episode
    first = torch.where(begins, place, 0).cummax(dim=1).values
    after = torch.where(begins, place, longest).roll(-1, dims=1)
    after[:, -1] = longest
    end = after.flip(1).cummin(dim=1).values.flip(1)
    return first, end - first


def next_actions(data: Tensors) -> tuple[Tensor, Tensor]:
    """The action logged after each row in the same episode, and 1.0 where there is one."""
    follows = torch.zeros_like(data.episode, dtype=torch.bool)
    same = (data.episode[:, 1:] == data.episode[:, :-1]) & (data.step[:, 1:] == data.step[:, :-1] + 1)
    follows[:, :-1] = same & _filled(data)[:, 1:]
    return torch.roll(data.act, -1, dims=1) * follows[..., None], follows.float()
