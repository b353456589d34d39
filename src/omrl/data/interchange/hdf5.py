"""HDF5: any flat file in; out one flat file that carries the manifest, so that it comes back without loss or flags."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from omrl.data.arrays import ARRAYS, Arrays, Place, shape_of
from omrl.data.commands import Import
from omrl.data.dataset import MetaDataset
from omrl.data.interchange import optional, refuse_flags
from omrl.data.interchange.survey import Column
from omrl.data.interchange.tables import Format, read_tables
from omrl.data.manifest import SCHEMA, Manifest, Told
from omrl.data.writer import write_all
from omrl.errors import OmrlError
from omrl.families.family import Task
from omrl.files import replacing

MANIFEST_ATTRIBUTE = "omrl_manifest"


def read_dataset(args: Import) -> MetaDataset:
    """Import hdf5 files, or the one file that `write_dataset` made."""
    if args.src.is_file():
        with _opened(args.src) as file:
            text = file.attrs.get(MANIFEST_ATTRIBUTE)
            if text is not None:
                refuse_flags(args)
                return _read_described(args, file, Manifest.from_json(text, f"{args.src}: its manifest"))
    return read_tables(args, Format((".hdf5", ".h5"), _names, _read))


def write_dataset(dataset: MetaDataset, dst: Path, force: bool) -> None:
    """All tasks' rows one after the other, the number of the task beside them, the manifest as an attribute."""
    h5py = optional("h5py", "hdf5")
    if dst.exists() and not (force and dst.is_file()):
        raise OmrlError(f"{dst} exists already; use --force to replace the file")
    manifest = dataset.manifest
    counts = [entry.rows for entry in manifest.tasks]
    try:
        dst.parent.mkdir(parents=True, exist_ok=True)
        with replacing(dst) as temporary, h5py.File(temporary, "w") as file:
            file.attrs[MANIFEST_ATTRIBUTE] = replace(manifest, schema=SCHEMA).to_json()
            file["task"] = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
            for name in dataset.rows(0):
                file.create_dataset(name, shape_of(name, sum(counts), manifest), ARRAYS[name][0])
            start = 0
            for task, count in enumerate(counts):
                for name, values in dataset.rows(task).items():
                    file[name][start : start + count] = values
                start += count
    except OSError as error:
        raise OmrlError(f"{dst} could not be written: {error}") from error


def _read_described(args: Import, file: Any, manifest: Manifest) -> MetaDataset:
    total = sum(entry.rows for entry in manifest.tasks)
    arrays = [name for name in ARRAYS if name in file]
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


def _read(path: Path, names: Sequence[str]) -> dict[str, Column]:
    with _opened(path) as file:
        return {name: _column(file[name]) for name in names}


def _column(dataset: Any) -> Column:
    if dataset.dtype.kind in "SO":
        return np.asarray(dataset.asstr()[:], str)
    values: Column = dataset[:]
    return values


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    h5py = optional("h5py", "hdf5")
    try:
        with h5py.File(path, "r") as file:
            yield file
    except (OSError, RuntimeError, KeyError, TypeError, ValueError) as error:
        raise OmrlError(f"{path} cannot be read as hdf5: {error}") from error
