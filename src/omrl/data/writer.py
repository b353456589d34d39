"""`MetaDatasetWriter`: a meta-dataset task by task, resumable, and visible under its name only when it is whole."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from omrl.data.arrays import Arrays, Place, checked, make_entry, task_file
from omrl.data.dataset import MetaDataset
from omrl.data.manifest import (
    MANIFEST,
    Header,
    Manifest,
    TaskEntry,
    Told,
    as_object,
    as_plain,
    from_plain,
    header_settings,
    json_copy,
    make_header,
    parse_object,
)
from omrl.data.taskfile import TaskFile, to_bytes
from omrl.errors import OmrlError
from omrl.families.family import Task
from omrl.storage import folders
from omrl.storage.files import replacing, sync_folder

# Holds the header and a record per finished task while the dataset is being built.
BUILD = ".build"
DATASET = folders.Kind(
    "meta-dataset",
    MANIFEST,
    (
        *(MANIFEST, "task-*.safetensors", f"{BUILD}/header.json", f"{BUILD}/task-*.json", "figures/*.png"),
        *("policies/policies.json", "policies/step-*.safetensors", "policies/learning-curve.csv"),
    ),
)


class MetaDatasetWriter:
    """Builds `.NAME.partial` beside its target and renames it once.

    Started again with the same arguments after an interruption it goes on with the tasks that are not `done`. A dataset
    that is there already and would be written again as it is, is left alone.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        tasks: Sequence[Task],
        observation_dim: int,
        action_dim: int,
        action_low: ArrayLike,
        action_high: ArrayLike,
        varies: str,
        split: Mapping[str, Sequence[str]],
        family: str | None = None,
        horizon: int | None = None,
        source: Mapping[str, object] | None = None,
        columns: Mapping[str, object] | None = None,
        discrete_actions: Sequence[Mapping[str, object]] | None = None,
        force: bool = False,
    ) -> None:
        """Check the header and find what an interrupted writer left; nothing is written yet."""
        self.path = folders.place(path)
        self._partial = folders.beside(self.path, "partial")
        self._header = make_header(
            str(path),
            [task.name for task in tasks],
            family=family,
            observation_dim=observation_dim,
            action_dim=action_dim,
            action_low=action_low,
            action_high=action_high,
            varies=varies,
            horizon=horizon,
            split=split,
            source=source,
            columns=columns,
            discrete_actions=discrete_actions,
        )
        self._tasks = {task.name: (position, task) for position, task in enumerate(tasks)}
        described = [{"name": t.name, "params": json_copy(dict(t.params), f"task {t.name!r}: params")} for t in tasks]
        self._plan: dict[str, object] = {**as_object(self._header), "tasks": described}
        self._force = force
        folders.clear_up(self.path, DATASET)
        self._check_target()
        self._entries: dict[str, TaskEntry] = {}
        if self._partial.exists():
            folders.check_own(self._partial, DATASET)
            # No header: it was interrupted before its first task, and there is nothing to keep.
            if self._left_plan() in (None, self._plan):
                self._entries = {name: entry for name in self._tasks if (entry := self._left_entry(name))}
            elif force:
                folders.discard(self._partial, DATASET)
            else:
                raise OmrlError(
                    f"{self._partial} is an unfinished dataset made with other arguments; "
                    "finish it with those, or use --force to replace it"
                )

    def done(self, name: str) -> bool:
        """Whether this task's file is written and whole."""
        self._known(name)
        return name in self._entries

    def write(
        self,
        name: str,
        arrays: Mapping[str, ArrayLike],
        told: Told | None = None,
        place: Place | None = None,
    ) -> TaskEntry:
        """Check one task's arrays and write its file. `place` says where they came from, for error messages."""
        position, task = self._known(name)
        place = place or Place(str(self.path), name)
        rows = checked(arrays, self._header, place)
        self._check_same_arrays(rows, place)
        data = to_bytes(rows)
        entry = make_entry(task, position, rows, data, self._header.horizon, told or Told())
        with self._writing(f"task {name!r}"):
            self._begin()
            _write_file(self._partial / entry.file, data)
            _write_file(self._record(name), json.dumps(as_plain(entry)).encode())
        self._entries[name] = entry
        return entry

    def finish(self) -> MetaDataset:
        """Write the manifest, give the folder its final name, and open it."""
        missing = [name for name in self._tasks if name not in self._entries]
        if missing:
            raise OmrlError(f"{self.path}: task {missing[0]!r} is missing ({len(missing)} of {len(self._tasks)} are)")
        manifest = Manifest(**vars(self._header), tasks=tuple(self._entries[name] for name in self._tasks))
        with self._writing(MANIFEST):
            _write_file(self._partial / MANIFEST, manifest.to_json().encode())
            MetaDataset.open(self._partial)
            there = self._check_target()
            if there is None:
                if (self._partial / BUILD).exists():
                    shutil.rmtree(self._partial / BUILD)
                folders.put(self._partial, self.path, DATASET)
            elif there == manifest:
                self.abandon()
            else:
                raise self._exists()
        return MetaDataset.open(self.path)

    def abandon(self) -> None:
        """Remove what was written so far."""
        folders.discard(self._partial, DATASET, held=True)
        self._entries.clear()

    @contextmanager
    def afresh(self) -> Iterator[None]:
        """Begin without what an earlier writer left, while no other process writes the same."""
        with self._writing("its folder"):
            folders.claim(self._partial, DATASET)
        with folders.only_writer(self._partial):
            folders.clear(self._partial, DATASET)
            self._entries.clear()
            yield

    def _begin(self) -> None:
        """Make the folder and its header, if that is not done yet."""
        header = self._partial / BUILD / "header.json"
        if not header.exists():
            folders.claim(self._partial, DATASET)
            header.parent.mkdir(exist_ok=True)
            _write_file(header, json.dumps(self._plan).encode())
        elif folders.marked_as(self._partial) is None:
            folders.mark(self._partial, DATASET)  # it was begun before there were markers, as its header says

    def _check_target(self) -> Manifest | None:
        """Refuse what stands in the way; what is there, if it may be what this one is going to write."""
        if folders.vacant(self.path):
            return None
        if self._force:
            folders.check_replaceable(self.path, DATASET)
            return None
        there = MetaDataset.open(self.path).manifest
        if header_settings(there) != header_settings(self._header) or [t.name for t in there.tasks] != [*self._tasks]:
            raise self._exists()
        return there

    def _exists(self) -> OmrlError:
        return OmrlError(f"{self.path} exists already; use --force to replace it")

    def _check_same_arrays(self, rows: Arrays, place: Place) -> None:
        """The optional arrays are there for every task or for none."""
        for other, entry in self._entries.items():
            odd = set(rows).symmetric_difference(TaskFile(entry, self._header, self._partial / entry.file).names)
            if odd:
                raise place.error(min(odd), f"only one of the tasks {other!r} and {place.task!r} has this array")
            break

    def _known(self, name: str) -> tuple[int, Task]:
        if name not in self._tasks:
            raise OmrlError(f"{self.path}: there is no task {name!r} in this dataset")
        return self._tasks[name]

    def _record(self, name: str) -> Path:
        return self._partial / BUILD / f"{task_file(self._tasks[name][0])}.json"

    def _left_plan(self) -> dict[str, Any] | None:
        """What an interrupted writer was going to write."""
        try:
            if (manifest := self._left_manifest()) is not None:
                described = [{"name": entry.name, "params": entry.params} for entry in manifest.tasks]
                return {**as_object(manifest), "tasks": described}
            return parse_object((self._partial / BUILD / "header.json").read_bytes(), "header.json")
        except (OSError, OmrlError):
            return None

    def _left_manifest(self) -> Manifest | None:
        """That of a writer which was interrupted when all was written: its records may be gone."""
        path = self._partial / MANIFEST
        return Manifest.from_json(path.read_bytes(), str(path)) if path.is_file() else None

    def _left_entry(self, name: str) -> TaskEntry | None:
        """What an interrupted writer recorded of a task, if its file is still what the record says."""
        record = self._record(name)
        try:
            manifest = self._left_manifest()
            if manifest is not None:
                entry = manifest.tasks[self._tasks[name][0]]
            else:
                entry = from_plain(TaskEntry, parse_object(record.read_bytes(), str(record)), str(record))
            data = (self._partial / entry.file).read_bytes()
        except (OSError, OmrlError):
            return None
        return entry if hashlib.sha256(data).hexdigest() == entry.sha256 else None

    @contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OmrlError(f"{self.path}: {what} could not be written: {error}") from error


def write_all(
    path: str | os.PathLike[str],
    header: Header,
    tasks: Sequence[Task],
    rows: Iterable[tuple[str, Arrays, Told, Place]],
    *,
    force: bool = False,
    expected: Mapping[str, str] | None = None,
) -> MetaDataset:
    """Write a whole dataset in one go; if anything fails, nothing stays.

    `expected` are the tasks' checksums where the source knows them: what is written must match.
    """
    about: dict[str, Any] = header_settings(header)
    writer = MetaDatasetWriter(path, tasks=tasks, force=force, **about)
    with writer.afresh():  # a leftover may hold other rows under the same header
        try:
            for name, arrays, told, place in rows:
                entry = writer.write(name, arrays, told, place)
                if expected is not None and entry.sha256 != expected[name]:
                    raise OmrlError(f"{place.file}: the rows of task {name!r} do not match their checksum")
            return writer.finish()
        except BaseException:
            writer.abandon()
            raise


def _write_file(path: Path, data: bytes) -> None:
    """Whole or not at all, also when the power fails."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)
    sync_folder(path.parent)
