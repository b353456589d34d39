"""A folder per task with one .npy file per array, as the code of UNICORN and CORRO writes them.

Arrays are [rows, dims], or [steps, episodes, dims] where all episodes are of one length.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from omrl.commands.data import Import
from omrl.data.dataset import MetaDataset
from omrl.data.interchange.flat import Format, read_tables
from omrl.data.interchange.limits import Limit
from omrl.data.interchange.npz import read_header
from omrl.data.interchange.survey import Column
from omrl.errors import OmrlError


def read_dataset(args: Import) -> MetaDataset:
    """Import a folder of such folders."""
    if not args.src.is_dir():
        raise OmrlError(f"{args.src} is a file; give the folder with one folder of .npy files per task")
    return read_tables(args, Format((".npy",), _names, partial(_read, Limit(args.max_gb)), folders=True))


def _shapes(folder: Path) -> dict[str, tuple[tuple[int, ...], int]]:
    """Shape and bytes of every array of a task."""
    shapes = {}
    for path in sorted(folder.glob("*.npy")):
        try:
            with path.open("rb") as file:
                shape, size = read_header(file, path.stat().st_size, str(path))
        except (OSError, ValueError) as error:
            raise OmrlError(f"{path} cannot be read as npy: {error}") from error
        if shape:
            shapes[path.stem] = shape, size
    return shapes


def _names(folder: Path) -> list[str]:
    shapes = _shapes(folder)
    apart = any(len(shape) == 3 for shape, _ in shapes.values())
    return [*shapes, *(["episode"] if apart and "episode" not in shapes else [])]


def _read(limit: Limit, folder: Path, names: Sequence[str]) -> dict[str, Column]:
    shapes = _shapes(folder)
    apart = {shape[:2] for shape, _ in shapes.values() if len(shape) == 3}
    if len(apart) > 1:
        raise OmrlError(f"{folder}: its arrays do not have the same steps and episodes: {sorted(apart)}")
    table: dict[str, Column] = {}
    for name in names:
        if name not in shapes:
            steps, episodes = next(iter(apart))
            table[name] = np.repeat(np.arange(episodes), steps)
            continue
        path = folder / f"{name}.npy"
        limit.check(path, shapes[name][1])
        try:
            values = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise OmrlError(f"{path} cannot be read as npy: {error}") from error
        if values.shape[:2] in apart:
            values = values.swapaxes(0, 1).reshape(values.shape[0] * values.shape[1], -1)
        table[name] = values
    return table
