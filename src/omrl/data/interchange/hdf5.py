"""HDF5: any flat file in; out one flat file that carries the manifest, so that it comes back without loss or flags."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from omrl.commands.data import Import
from omrl.data.arrays import ARRAYS, Arrays, Place, shape_of
from omrl.data.dataset import MetaDataset
from omrl.data.interchange import folder_of, refuse_flags, size_of
from omrl.data.interchange.apart import say, try_hdf5, write_apart
from omrl.data.interchange.flat import Format, read_tables, task_files, texts
from omrl.data.interchange.limits import Limit
from omrl.data.interchange.survey import Column
from omrl.data.manifest import SCHEMA, Manifest, Told
from omrl.data.writer import write_all
from omrl.errors import OmrlError, needs_extra
from omrl.families.family import Task
from omrl.storage import folders
from omrl.storage.files import replacing

with needs_extra("hdf5", "This format"):
    import h5py

MANIFEST_ATTRIBUTE = "omrl_manifest"
# D4RL's names of our arrays, where they differ.
D4RL_NAMES = {"terminations": "terminals", "truncations": "timeouts"}


def read_dataset(args: Import) -> MetaDataset:
    """Import hdf5 files, or the one file that `write_dataset` made."""
    limit = Limit(args.max_gb)
    form = Format((".hdf5", ".h5"), _names, partial(_read, limit))
    try_hdf5(list(task_files(args.src, form.suffixes).values()) if args.src.is_dir() else [args.src], limit)
    if args.src.is_file():
        with _opened(args.src) as file:
            text = file.attrs.get(MANIFEST_ATTRIBUTE)
            if text is not None:
                refuse_flags(args)
                return _read_described(args, limit, file, Manifest.from_json(text, f"{args.src}: its manifest"))
    return read_tables(args, form)


def write_dataset(dataset: MetaDataset, dst: Path, force: bool) -> None:
    """All tasks' rows one after the other, the number of the task beside them, the manifest as an attribute."""
    try:
        dst.parent.mkdir(parents=True, exist_ok=True)
        with folders.only_writer_of(dst):
            _check_replaceable(dst, force)
            with replacing(dst) as temporary:
                write_apart(f"{__name__}:write_file", folder_of(dataset), temporary, dst, size_of(dataset))
    except OSError as error:
        raise OmrlError(f"{dst} could not be written: {error}") from error


def _check_replaceable(path: Path, force: bool) -> None:
    """Refuse to replace what is no export of ours: a file has no marker, but the manifest is in it."""
    if not path.exists():
        return
    if not (force and path.is_file()):
        raise OmrlError(f"{path} exists already; use --force to replace the file")
    try:
        try_hdf5([path], Limit(None))
        with _opened(path) as file:
            ours = MANIFEST_ATTRIBUTE in file.attrs
    except OmrlError:
        ours = False
    if not ours:
        raise OmrlError(f"{path} is no HDF5 file that omrl wrote; it is not replaced.")


def write_file(folder: Path, path: Path) -> None:
    """Write the dataset in `folder` into a new file. After an error nothing is closed: HDF5 would crash then."""
    dataset = MetaDataset.open(folder)
    manifest = dataset.manifest
    counts = [entry.rows for entry in manifest.tasks]
    file = h5py.File(path, "w")
    try:
        file.attrs[MANIFEST_ATTRIBUTE] = replace(manifest, schema=SCHEMA).to_json()
        file["task"] = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        for name in dataset.rows(0):
            file.create_dataset(name, shape_of(name, sum(counts), manifest), ARRAYS[name][0])
        for ours, name in D4RL_NAMES.items():
            file[name] = file[ours]  # another name for the same array, so that readers of D4RL's files find it
        start = 0
        for task, count in enumerate(counts):
            for name, values in dataset.rows(task).items():
                file[name][start : start + count] = values
            start += count
        file.flush()
    except (OSError, RuntimeError) as error:
        say(error)
        os._exit(1)
    file.close()


def _read_described(args: Import, limit: Limit, file: Any, manifest: Manifest) -> MetaDataset:
    total = sum(entry.rows for entry in manifest.tasks)
    arrays = [name for name in ARRAYS if name in file]
    limit.check(args.src, sum(claimed(_dataset(file, name, args.src)) for name in arrays))
    for name in arrays:
        if len(file[name]) != total:
            raise OmrlError(f"{args.src}: {name} has {len(file[name])} rows but the manifest says {total}")

    def rows() -> Iterator[tuple[str, Arrays, Told, Place]]:
        start = 0
        for entry in manifest.tasks:
            numbers = np.arange(start, start + entry.rows)
            values = {name: file[name][start : start + entry.rows] for name in arrays}
            yield entry.name, values, entry.told, Place(str(args.src), entry.name, numbers)
            start += entry.rows

    tasks = [Task(entry.name, entry.params) for entry in manifest.tasks]
    checksums = {entry.name: entry.sha256 for entry in manifest.tasks}
    return write_all(args.dir, manifest, tasks, rows(), force=args.force, expected=checksums)


def _names(path: Path) -> list[str]:
    """All arrays of the file, those in groups as GROUP/NAME."""
    names: list[str] = []
    with _opened(path) as file:
        file.visititems(lambda name, item: names.append(name) if getattr(item, "shape", ()) else None)
    return names


def _read(limit: Limit, path: Path, names: Sequence[str]) -> dict[str, Column]:
    with _opened(path) as file:
        datasets = {name: _dataset(file, name, path) for name in names}
        limit.check(path, sum(claimed(dataset) for dataset in datasets.values()))
        return {name: _column(dataset, name, path, limit) for name, dataset in datasets.items()}


def _dataset(file: Any, name: str, path: Path) -> Any:
    dataset = file[name]
    if getattr(dataset, "is_virtual", False) or getattr(dataset, "external", None):
        raise OmrlError(f"{path}: array {name!r} lies in another file; copy it into this one")
    return dataset


def claimed(dataset: h5py.Dataset) -> int:
    """Bytes that an array takes in memory, or one chunk of it if that is more."""
    item = max(int(dataset.dtype.itemsize), 1)
    return item * max(int(dataset.size), math.prod(dataset.chunks or (1,)))


def _column(dataset: Any, name: str, path: Path, limit: Limit) -> Column:
    if dataset.dtype.kind not in "SO":
        values: Column = dataset[:]
        return values
    # Any number of rows may share one long text of the file: so many are read that even then they have room.
    block = max(1, min(10_000, limit.bytes_of(path) // max(path.stat().st_size, 1)))
    words = dataset.asstr()
    parts = [texts(words[i : i + block].tolist(), name, path) for i in range(0, len(dataset), block)]
    return np.concatenate(parts) if parts else np.zeros(0, str)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with h5py.File(path, "r") as file:
            yield file
    except (OSError, RuntimeError, KeyError, TypeError, ValueError) as error:
        raise OmrlError(f"{path} cannot be read as hdf5: {error}") from error
