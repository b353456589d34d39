"""Flat tables, one row per transition: which column is what, episodes, successors. Shared by csv, npz, hdf5, parquet.

Decisions, where a table leaves them open:
- Without next observations, a row's successor is the next row of its episode. The last row of an episode has none and
  is dropped, unless it terminates: nothing bootstraps from it, so its own observation stands in.
- An episode that does not end in a termination ends in a truncation, flagged or not: the log goes no further.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omrl.data.arrays import Arrays, Place, episode_starts
from omrl.data.commands import Import
from omrl.data.dataset import MetaDataset
from omrl.data.interchange.answers import complete_header, named_tasks
from omrl.data.manifest import Told
from omrl.data.writer import write_all
from omrl.errors import OmrlError

Column = NDArray[Any]

# The names under which each array is looked for, D4RL's among them. Plain "done" is not: it may mean either flag.
GUESSES = {
    "task": ("task", "task_id", "task_name", "tasks"),
    "episode": ("episode", "episodes", "episode_id", "episode_index", "trajectory", "trajectory_id", "traj", "traj_id"),
    "step": ("step", "steps", "timestep", "t"),
    "observations": ("observations", "observation", "obs", "states", "state"),
    "actions": ("actions", "action", "act"),
    "rewards": ("rewards", "reward", "rew"),
    "next_observations": ("next_observations", "next_observation", "next_obs", "next_states", "next_state"),
    "terminations": ("terminations", "termination", "terminated", "terminals", "terminal"),
    "truncations": ("truncations", "truncation", "truncated", "timeouts", "timeout"),
    "policy_step": ("policy_step",),
    "rewards_dense": ("rewards_dense",),
}
WIDE = ("observations", "actions", "next_observations")  # may be spread over columns obs_0, obs_1, ...


@dataclass(frozen=True)
class Format:
    """How to look into a file: its columns' names, and the values of some of them ([n] or [n, dim])."""

    suffixes: tuple[str, ...]
    names: Callable[[Path], list[str]]
    read: Callable[[Path, Sequence[str]], dict[str, Column]]


@dataclass(frozen=True)
class Columns:
    """The column or columns behind each array; empty where there is none."""

    task: tuple[str, ...] = ()
    episode: tuple[str, ...] = ()
    step: tuple[str, ...] = ()
    observations: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    rewards: tuple[str, ...] = ()
    next_observations: tuple[str, ...] = ()
    terminations: tuple[str, ...] = ()
    truncations: tuple[str, ...] = ()
    policy_step: tuple[str, ...] = ()
    rewards_dense: tuple[str, ...] = ()

    @property
    def needed(self) -> tuple[str, ...]:
        """All columns to read, once each."""
        return tuple(dict.fromkeys(name for part in fields(self) for name in getattr(self, part.name)))


@dataclass
class Report:
    """What was done to the rows, counted over all tasks."""

    dropped: int = 0
    stood_in: int = 0
    tasks: set[str] = field(default_factory=set)


def read_tables(args: Import, file_format: Format) -> MetaDataset:
    """Import one file with a task column, or a folder with one file per task."""
    files = _task_files(args.src, file_format.suffixes) if args.src.is_dir() else {"": args.src}
    first = next(iter(files.values()))
    columns = find_columns(args, file_format.names(first), first, needs_task=not args.src.is_dir())
    print(f"{first}:\n" + describe(columns))

    rows_of: Iterator[tuple[str, dict[str, Column], Path, NDArray[np.int64] | None]]
    if args.src.is_dir():
        names = list(files)
        rows_of = ((name, _read(file_format, path, columns), path, None) for name, path in files.items())
        sample = _read(file_format, first, columns)
    else:
        sample = _read(file_format, first, columns)
        row_tasks = _task_names(sample[columns.task[0]])
        unique, start, inverse = np.unique(row_tasks, return_index=True, return_inverse=True)
        order = np.argsort(start)  # tasks in the order of the file
        names = [str(name) for name in unique[order]]
        groups = {str(unique[i]): np.flatnonzero(inverse == i) for i in order}
        rows_of = (
            (name, {column: values[rows] for column, values in sample.items()}, first, rows)
            for name, rows in groups.items()
        )
    dims = {part: _wide(sample, getattr(columns, part), Place(str(first), "")).shape[1] for part in WIDE[:2]}
    header = complete_header(args, names, dims["observations"], dims["actions"])
    report = Report()

    def tidied() -> Iterator[tuple[str, Arrays, Told, Place]]:
        for name, table, path, rows in rows_of:
            arrays, kept = tidy(table, columns, Place(str(path), name, rows), report)
            yield name, arrays, Told(), Place(str(path), name, kept if rows is None else rows[kept])

    dataset = write_all(args.dir, header, named_tasks(args, names), tidied(), force=args.force)
    if not columns.next_observations:
        print(f"next_observations were derived: {report.dropped} rows without a successor were dropped")
        print(f"{report.stood_in} terminal rows were kept with their own observation as the next one")
    return dataset


def _task_files(folder: Path, suffixes: tuple[str, ...]) -> dict[str, Path]:
    found = sorted(path for path in folder.iterdir() if path.suffix.lower() in suffixes)
    if not found:
        raise OmrlError(f"{folder} holds no {' or '.join(suffixes)} file")
    files: dict[str, Path] = {}
    for path in found:
        if path.stem in files:
            raise OmrlError(f"{folder}: task {path.stem!r} is there twice, as {files[path.stem].name} and {path.name}")
        files[path.stem] = path
    return files


def find_columns(args: Import, available: Sequence[str], path: Path, needs_task: bool) -> Columns:
    """Columns by flag, else by guess; an error that names the flag where one is missing."""
    found: dict[str, tuple[str, ...]] = {}
    for part in GUESSES:
        flag = getattr(args, part)
        given = flag if isinstance(flag, tuple) else (flag,) if flag is not None else ()
        if part == "terminations" and given == ("none",):
            given = ()
        elif not given:
            given = _guess(part, available)
        for name in given:
            if name not in available:
                raise OmrlError(f"{path} has no column {name!r}; its columns are {', '.join(available)}")
        found[part] = given
    if not needs_task:
        found["task"] = ()
    elif not found["task"]:
        raise OmrlError(f"{path} has no task column; name it with --task, or give a folder with one file per task")
    for part in ("observations", "actions", "rewards"):
        if not found[part]:
            raise OmrlError(f"{path} has no column for the {part}; name it with --{part}")
    if not found["terminations"] and args.terminations != "none":
        raise OmrlError(
            f"{path} has no termination flags; name their column with --terminations COLUMN, "
            "or say --terminations none if episodes never end by themselves"
        )
    return Columns(**found)


def _guess(part: str, available: Sequence[str]) -> tuple[str, ...]:
    by_lower = {name.lower(): name for name in reversed(available)}
    for guess in GUESSES[part]:
        if guess in by_lower:
            return (by_lower[guess],)
    if part in WIDE:
        for guess in GUESSES[part]:
            numbered = {}
            for name in available:
                if match := re.fullmatch(rf"{guess}[_.\[]?(\d+)\]?", name.lower()):
                    numbered[int(match[1])] = name
            if numbered:
                return tuple(numbered[i] for i in sorted(numbered))
    return ()


def describe(columns: Columns) -> str:
    """The mapping, a line for each array."""
    absent = {
        "episode": "an episode ends where a flag is set",
        "next_observations": "the next row's observation",
        "terminations": "none: episodes never end by themselves",
        "truncations": "where an episode ends without termination",
    }
    lines = []
    for part in fields(columns):
        names: tuple[str, ...] = getattr(columns, part.name)
        if len(names) > 3:
            lines.append(f"  {part.name:17} <- {names[0]} ... {names[-1]} ({len(names)} columns)")
        elif names:
            lines.append(f"  {part.name:17} <- {', '.join(names)}")
        elif part.name in absent:
            lines.append(f"  {part.name:17} <- ({absent[part.name]})")
    return "\n".join(lines)


def _read(file_format: Format, path: Path, columns: Columns) -> dict[str, Column]:
    available = file_format.names(path)
    for name in columns.needed:
        if name not in available:
            raise OmrlError(f"{path} has no column {name!r}, which the first file has")
    table = file_format.read(path, columns.needed)
    rows = len(table[columns.needed[0]])
    for name, values in table.items():
        if values.ndim not in (1, 2):
            raise OmrlError(
                f"{path}: column {name!r} has shape {list(values.shape)} but must be [rows] or [rows, dims]"
            )
        if len(values) != rows:
            raise OmrlError(f"{path}: column {name!r} has {len(values)} rows but {columns.needed[0]!r} has {rows}")
    return table


def _task_names(values: Column) -> NDArray[Any]:
    if values.dtype.kind == "f" and (values == np.floor(values)).all():
        values = values.astype(np.int64)
    return values.ravel().astype(str)


def tidy(table: dict[str, Column], columns: Columns, place: Place, report: Report) -> tuple[Arrays, NDArray[np.int64]]:
    """One task's arrays from its rows of a table, and which of these rows they are."""
    arrays = {part: _wide(table, getattr(columns, part), place) for part in WIDE if getattr(columns, part)}
    n = len(arrays["observations"])
    if n == 0:
        raise place.error("observations", "the task is empty")
    for part in ("rewards", "policy_step", "rewards_dense"):
        if names := getattr(columns, part):
            arrays[part] = _wide(table, names, place)[:, 0]
    term, trunc = (_flags(table, getattr(columns, part), part, n, place) for part in ("terminations", "truncations"))
    if columns.episode:
        episode = _episode_numbers(table[columns.episode[0]].ravel(), place)
    else:
        ends = term | trunc
        episode = np.cumsum(np.append(False, ends[:-1]), dtype=np.int64)
    starts = episode_starts(episode)
    lengths = np.diff(starts, append=n)
    last = np.zeros(n, bool)
    last[starts + lengths - 1] = True
    if columns.step:
        step = _wide(table, columns.step, place)[:, 0]
        wrong = np.append(False, (np.diff(step) != 1) & ~last[:-1])
        if wrong.any():
            raise place.error("step", "the rows of the episode are not in order", int(np.argmax(wrong)))
    kept = np.arange(n)
    if not columns.next_observations:
        obs = arrays["observations"]
        arrays["next_observations"] = np.where(last[:, None], obs, np.roll(obs, -1, axis=0))
        successor = ~last | term
        report.dropped += int(n - successor.sum())
        report.stood_in += int((last & term).sum())
        # The row before a dropped one becomes the last of its episode.
        last = np.append(~successor[1:] & ~last[:-1], False) | (last & successor)
        kept = np.flatnonzero(successor)
        if not len(kept):
            raise place.error("next_observations", "no row has a successor, the task is empty")
    arrays |= {
        "terminations": term,
        "truncations": trunc | (last & ~term),
        "episode": episode,
        "step": np.arange(n) - np.repeat(starts, lengths),
    }
    return {name: values[kept] for name, values in arrays.items()}, kept


def _wide(table: dict[str, Column], names: Sequence[str], place: Place) -> Column:
    """Columns side by side as [rows, dims]."""
    parts = []
    for name in names:
        values = table[name]
        if values.dtype.kind not in "biuf":
            raise place.error(
                name, f"the column holds {values.dtype} values such as {str(values.flat[0])!r}, not numbers"
            )
        parts.append(values if values.ndim == 2 else values[:, None])
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def _flags(table: dict[str, Column], names: Sequence[str], part: str, n: int, place: Place) -> NDArray[np.bool_]:
    if not names:
        return np.zeros(n, bool)
    values = table[names[0]].ravel()
    if values.dtype.kind not in "biuf":
        words = {"true": 1.0, "1": 1.0, "false": 0.0, "0": 0.0}
        values = np.array([words.get(str(value).strip().lower(), np.nan) for value in values])
    wrong = (values != 0) & (values != 1)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise place.error(part, f"{str(table[names[0]].ravel()[row])!r} is not a truth value", row)
    return values.astype(bool)


def _episode_numbers(values: Column, place: Place) -> NDArray[np.int64]:
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise place.error("episode", "it is not a finite number", int(np.argmin(np.isfinite(values))))
    limits = np.iinfo(np.int32)
    if values.dtype.kind in "biuf":
        fits = (values >= limits.min) & (values <= limits.max) & (values == np.floor(values))
        if fits.all():
            return values.astype(np.int64)
    # Names or large numbers: count them in the order of the log.
    _, start, inverse = np.unique(values, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(start))[inverse]
