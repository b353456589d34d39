"""The trajectories that FOCAL's code writes: goal_idx*/trj_eval*_step*.npy, each an array of objects, a row per step.

A row is (observation, action, reward, next observation). Pickle is never loaded: see `objects`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omrl.commands.data import Import
from omrl.data.dataset import MetaDataset
from omrl.data.interchange.flat import Format, read_tables
from omrl.data.interchange.limits import Limit
from omrl.data.interchange.npz import shape_and_type
from omrl.data.interchange.objects import ObjectArray, read_objects
from omrl.data.interchange.survey import Column
from omrl.errors import OmrlError

_FILE = re.compile(r"trj_eval(sample)?(\d+)_step(\d+)\.npy")
_PARTS = ("observations", "actions", "rewards", "next_observations")


def read_dataset(args: Import) -> MetaDataset:
    """Import a folder with a folder for each task. Its episodes are only cut: the files have no terminal flags."""
    if not args.src.is_dir():
        raise OmrlError(f"{args.src} is a file; give the folder that holds goal_idx0, goal_idx1, ...")
    if args.terminations not in (None, "none"):
        raise OmrlError("files of FOCAL have no termination flags; leave out --terminations")
    form = Format((".npy",), _names, partial(_read, Limit(args.max_gb)), folders=True)
    return read_tables(replace(args, terminations="none"), form)


def _files(folder: Path) -> list[tuple[int, int, Path]]:
    """Policy step, place and path of every trajectory, in the order of training; sampled ones after the others."""
    found = []
    for path in folder.iterdir():
        if match := _FILE.fullmatch(path.name):
            found.append((int(match[3]), bool(match[1]), int(match[2]), path))
    if not found:
        raise OmrlError(f"{folder} holds no file such as trj_evalsample0_step1000.npy")
    return [(step, place, path) for place, (step, _, _, path) in enumerate(sorted(found))]


def _names(folder: Path) -> list[str]:
    _files(folder)
    return [*_PARTS, "episode", "policy_step"]


def _read(limit: Limit, folder: Path, names: Sequence[str]) -> dict[str, Column]:
    parts: dict[str, list[NDArray[Any]]] = {name: [] for name in names}
    for step, place, path in _files(folder):
        rows = dict(zip(_PARTS, _trajectory(path, limit), strict=True))
        n = len(rows["rewards"])
        rows |= {"episode": np.full(n, place), "policy_step": np.full(n, step)}
        for name in names:
            if parts[name] and parts[name][0].shape[1:] != rows[name].shape[1:]:
                raise OmrlError(f"{path}: its {name} have another length than those of the trajectories before it")
            parts[name].append(rows[name])
    return {name: np.concatenate(found) for name, found in parts.items()}


def _trajectory(path: Path, limit: Limit) -> list[NDArray[Any]]:
    """The four columns of one file."""
    try:
        with path.open("rb") as file:
            _, dtype = shape_and_type(file)
            if not dtype.hasobject:
                raise OmrlError(f"{path} is not a trajectory of FOCAL's; for arrays of numbers, say --from npy")
            found = read_objects(path, file.read())
    except (OSError, ValueError) as error:
        raise OmrlError(f"{path} cannot be read as npy: {error}") from error
    if not isinstance(found, ObjectArray) or len(found.shape) != 2 or found.shape[1] != 4 or not found.shape[0]:
        raise OmrlError(f"{path} is not a trajectory of FOCAL's: its rows are not of four parts")
    columns = []
    for part, name in enumerate(_PARTS):
        cells = [_cell(cell, path, name, row) for row, cell in enumerate(found.items[part::4])]
        sizes = {len(cell) for cell in cells}
        if len(sizes) > 1 or (name == "rewards" and sizes != {1}):
            raise OmrlError(f"{path}: the {name} of its rows are not of one length")
        # Any number of rows may be one array of the file.
        limit.check(path, 4 * len(cells) * 8 * max(sizes))
        columns.append(np.array(cells, np.float64))
    columns[2] = columns[2][:, 0]
    return columns


def _cell(cell: Any, path: Path, name: str, row: int) -> NDArray[np.float64]:
    if isinstance(cell, ObjectArray) and cell.values is not None and cell.values.ndim <= 1:
        return np.atleast_1d(cell.values).astype(np.float64)
    try:
        if type(cell) in (int, float, bool):
            return np.array([float(cell)])
    except OverflowError:
        pass
    raise OmrlError(f"{path}, row {row}: its {name} are not numbers")
