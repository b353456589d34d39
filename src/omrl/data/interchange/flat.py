"""Flat tables, one row per transition, as one file with a task column or one file per task. Shared by all formats."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omrl.commands.data import Import
from omrl.data.arrays import Arrays, Place
from omrl.data.dataset import MetaDataset
from omrl.data.interchange import times
from omrl.data.interchange.answers import chosen_actions, complete_header, named_tasks
from omrl.data.interchange.columns import WIDE, Columns, describe, find_columns
from omrl.data.interchange.survey import Column, Survey, is_missing
from omrl.data.interchange.tidying import Plan, Report, tidy, wide
from omrl.data.manifest import Choices, Told
from omrl.data.writer import write_all
from omrl.errors import OmrlError
from omrl.words import quantity

# Characters of a name, a time or a word.
MAX_TEXT = 1_000

# Types of columns: numbers, words, times.
KINDS = "biufUM"


@dataclass(frozen=True)
class Format:
    """How to look into a file: its columns' names, and the values of some of them ([n] or [n, dim])."""

    suffixes: tuple[str, ...]
    names: Callable[[Path], list[str]]
    read: Callable[[Path, Sequence[str]], dict[str, Column]]
    folders: bool = False
    """Whether a task is a folder of such files."""


class Source:
    """The tasks of one file with a task column, or of a folder with one file per task."""

    def __init__(self, args: Import, file_format: Format) -> None:
        folder = args.src.is_dir()
        find = _task_folders if file_format.folders else task_files
        self._files = find(args.src, file_format.suffixes) if folder else {"": args.src}
        self._format = file_format
        self.first = next(iter(self._files.values()))
        self.columns = find_columns(args, file_format.names(self.first), self.first, needs_task=not folder)
        self._whole: dict[str, Column] | None = None
        if not folder:
            self._whole = _read(file_format, self.first, self.columns)
            self._groups = _rows_by_task(self._whole[self.columns.task[0]], args, self.columns.task[0])
        found = list(self._files if folder else self._groups)
        for name in args.skip_tasks:
            if name not in found:
                raise OmrlError(f"{args.src}: there is no task {name!r} to skip")
        self.names = [name for name in found if name not in args.skip_tasks]
        if not self.names:
            raise OmrlError(f"{args.src}: every task is skipped, nothing is left")

    def tables(self) -> Iterator[tuple[dict[str, Column], Place]]:
        """The rows of each task as they lie in its file. It may be called again."""
        for name in self.names:
            if self._whole is None:
                path = self._files[name]
                yield _read(self._format, path, self.columns), Place(str(path), name)
            else:
                rows = self._groups[name]
                of_task = {column: values[rows] for column, values in self._whole.items()}
                yield of_task, Place(str(self.first), name, rows)


def _rows_by_task(values: Column, args: Import, column: str) -> dict[str, NDArray[np.int64]]:
    """Where each task's rows are, tasks in the order of the file."""
    known = np.flatnonzero(~is_missing(values))
    if len(known) < len(values):
        row = int(np.argmax(is_missing(values)))
        if args.missing != "drop":
            raise OmrlError(
                f"{args.src}: column {column!r}, row {row}: the task is missing; "
                "mend the file, or say --missing drop to leave such rows out"
            )
        print(f"{quantity(len(values) - len(known), 'row')} of no task were dropped (the first is row {row})")
    unique, start, inverse = np.unique(_task_names(values[known]), return_index=True, return_inverse=True)
    return {str(unique[i]): known[inverse == i] for i in np.argsort(start)}


def read_tables(args: Import, file_format: Format) -> MetaDataset:
    """Import one file with a task column, or a folder with one file per task."""
    source = Source(args, file_format)
    columns = source.columns
    print(f"{source.first}:\n" + describe(columns))
    survey = Survey(_category_columns(args, columns))
    for table, place in source.tables():
        survey.look(table, columns, place)
    _refuse_missing(args, survey)
    choices = chosen_actions(args, columns.actions, survey)
    plan = _plan(args, columns, survey, choices)

    sample, place = next(source.tables())
    dims = {part: wide(sample, getattr(columns, part), plan, place).shape[1] for part in WIDE[:2]}
    logged = _logged_columns(args, plan, survey)
    done = _done_to_the_log(plan, survey)
    header = complete_header(
        args, source.names, dims["observations"], dims["actions"], columns=logged, done=done, choices=choices
    )
    report = Report()

    def tidied() -> Iterator[tuple[str, Arrays, Told, Place]]:
        for table, place in source.tables():
            arrays, there = tidy(table, plan, place, report)
            yield place.task, arrays, Told(), there

    dataset = write_all(args.dir, header, named_tasks(args, source.names), tidied(), force=args.force)
    for line in report.lines(plan):
        print(line)
    return dataset


def _plan(args: Import, columns: Columns, survey: Survey, choices: Sequence[Choices] | None) -> Plan:
    """What is to be done, said aloud; an error where it must be said by somebody else."""
    gap = args.gap
    if gap is not None and not columns.time:
        raise OmrlError("--gap is about times; name their column with --time")
    if gap is not None and not gap > 0:
        raise OmrlError(f"--gap is {gap:g} but must be more than 0 seconds")
    if columns.time:
        apart = survey.time_between_rows()
        if gap is None and not columns.episode and len(apart):
            gap = times.default_gap(apart)
            rule = f"{times.GAP_STEPS:g} times the median; --gap SECONDS sets it"
        else:
            rule = "--gap"
        if len(apart):
            print(f"time between rows: {times.histogram(apart, gap or 0.0)}, median {times.duration(np.median(apart))}")
        if gap is not None:
            print(f"an episode ends where more than {times.duration(gap)} pass ({rule})")
    words = {name: tuple(sorted(survey.words.get(observed, ()))) for name, observed in survey.categories.items()}
    labels = {name: c.labels for name, c in zip(columns.actions, choices or (), strict=False) if c.labels}
    return Plan(columns, args.missing, gap, args.episode_length, words, labels)


def _refuse_missing(args: Import, survey: Survey) -> None:
    """Until somebody says what to do about missing values, they are an error that names all of them."""
    if survey.missing and args.missing == "error":
        places = ", ".join(f"{name} {gone.count:,} (first in {gone.first})" for name, gone in survey.missing.items())
        total = sum(gone.count for gone in survey.missing.values())
        raise OmrlError(
            f"{args.src}: {quantity(total, 'value')} {'is' if total == 1 else 'are'} missing: {places}; say "
            "--missing drop to end an episode before each, or --missing forward to carry the last value on"
        )


def _done_to_the_log(plan: Plan, survey: Survey) -> dict[str, Any]:
    """What the dataset remembers of it."""
    done: dict[str, Any] = {}
    if plan.gap is not None:
        done["gap_seconds"] = plan.gap
    if survey.missing:
        done["missing"] = plan.missing
        done["missing_values"] = {name: vars(gone) for name, gone in survey.missing.items()}
    fine = {name: found for name, found in survey.ranges.items() if found.too_fine}
    if fine:
        done["too_fine"] = {name: [float(found.low.min()), float(found.high.max())] for name, found in fine.items()}
    return done


def _category_columns(args: Import, columns: Columns) -> dict[str, str]:
    """The columns of words by --categories, and those of next observations that share their words."""
    for name in args.categories:
        if name not in columns.observations:
            raise OmrlError(f"--categories names {name!r}, which is no column of the observation")
    after = dict(zip(columns.observations, columns.next_observations, strict=False))
    pairs = [(name, name) for name in args.categories]
    return dict(pairs + [(after[name], name) for name in args.categories if name in after])


def _logged_columns(args: Import, plan: Plan, survey: Survey) -> dict[str, Any]:
    """Names, units and ranges, as the manifest keeps them."""
    units: dict[str, str] = {}
    known = (*plan.columns.observations, *plan.columns.actions, *plan.columns.rewards)
    for pair in args.units:
        name, sign, unit = pair.partition("=")
        if not sign or not unit:
            raise OmrlError(f"--units {pair!r} does not say NAME=UNIT, such as pressure=bar")
        if name not in known:
            raise OmrlError(f"--units names {name!r}, which is no column of observations, actions or rewards")
        units[name] = unit

    def of(name: str, after: str | None = None) -> list[dict[str, Any]]:
        about = {"unit": units.get(name), "category": None}
        if name in plan.words:
            return [{"name": name, **about, "category": word, "low": 0.0, "high": 1.0} for word in plan.words[name]]
        if name in plan.labels:
            return [{"name": name, **about, "low": 0.0, "high": float(len(plan.labels[name]) - 1)}]
        if name not in survey.ranges:  # words where numbers belong: the rows will say so
            return [{"name": name, **about, "low": 0.0, "high": 0.0}]
        found = survey.ranges[name]
        low, high = found.low, found.high
        if after in survey.ranges and survey.ranges[after].low.shape == low.shape:
            low, high = np.fmin(low, survey.ranges[after].low), np.fmax(high, survey.ranges[after].high)
        # As 32-bit numbers, which is what rows become; a column of which nothing is there has no range.
        ends = np.nan_to_num(np.stack([low, high], axis=1)).astype(np.float32).tolist()
        names = [name] if len(ends) == 1 else [f"{name}[{i}]" for i in range(len(ends))]
        return [{"name": n, **about, "low": a, "high": b} for n, (a, b) in zip(names, ends, strict=True)]

    columns = plan.columns
    after = dict(zip(columns.observations, columns.next_observations, strict=False))
    return {
        "observations": [one for name in columns.observations for one in of(name, after.get(name))],
        "actions": [one for name in columns.actions for one in of(name)],
        "rewards": of(columns.rewards[0])[0],
    }


def task_files(folder: Path, suffixes: tuple[str, ...]) -> dict[str, Path]:
    """The files of a folder by the names of their tasks."""
    found = sorted(path for path in folder.iterdir() if path.suffix.lower() in suffixes)
    if not found:
        raise OmrlError(f"{folder} holds no {' or '.join(suffixes)} file")
    files: dict[str, Path] = {}
    for path in found:
        if path.stem in files:
            raise OmrlError(f"{folder}: task {path.stem!r} is there twice, as {files[path.stem].name} and {path.name}")
        files[path.stem] = path
    return files


def _task_folders(folder: Path, suffixes: tuple[str, ...]) -> dict[str, Path]:
    """The folders that hold such files, by their names; goal_idx2 stands before goal_idx10."""

    def natural(path: Path) -> list[tuple[int, str]]:
        return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", path.name)]

    found = [path for path in folder.iterdir() if path.is_dir() and any(p.suffix in suffixes for p in path.iterdir())]
    if not found:
        raise OmrlError(
            f"{folder} holds no folder with {' or '.join(suffixes)} files; give the folder above the tasks'"
        )
    return {path.name: path for path in sorted(found, key=natural)}


def _read(file_format: Format, path: Path, columns: Columns) -> dict[str, Column]:
    available = file_format.names(path)
    for name in columns.needed:
        if name not in available:
            raise OmrlError(f"{path} has no column {name!r}, which the first file has")
    table = file_format.read(path, columns.needed)
    for name, values in table.items():
        if values.dtype.kind not in KINDS:
            raise OmrlError(f"{path}: {name!r} has values of type {values.dtype}, and not numbers, words or times")
    rows = len(table[columns.needed[0]])
    for name, values in table.items():
        if values.ndim not in (1, 2):
            raise OmrlError(
                f"{path}: column {name!r} has shape {list(values.shape)} but must be [rows] or [rows, dims]"
            )
        if len(values) != rows:
            raise OmrlError(f"{path}: column {name!r} has {len(values)} rows but {columns.needed[0]!r} has {rows}")
    for name in columns.time:
        table[name] = times.to_seconds(table[name], name, path)
    return table


def texts(values: Sequence[str], name: str, path: Path) -> Column:
    """A column of words. One long cell would make all of them as long."""
    longest = max(range(len(values)), key=lambda row: len(values[row]), default=0)
    if values and len(values[longest]) > MAX_TEXT:
        raise OmrlError(f"{path}: column {name!r} holds a text of {len(values[longest]):,} characters; it is no word")
    return np.array(values, str)


def _task_names(values: Column) -> NDArray[Any]:
    if values.dtype.kind == "f" and (values == np.floor(values)).all():
        values = values.astype(np.int64)
    return values.ravel().astype(str)
