"""Numpy archives. Arrays that need pickle are refused: unpickling runs code."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from omrl.data.commands import Import
from omrl.data.dataset import MetaDataset
from omrl.data.interchange.survey import Column
from omrl.data.interchange.tables import Format, read_tables
from omrl.errors import OmrlError

_DAMAGE = (OSError, ValueError, EOFError, KeyError, NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error)


def read_dataset(args: Import) -> MetaDataset:
    """Import npz files."""
    return read_tables(args, Format((".npz",), _names, _read))


def _names(path: Path) -> list[str]:
    """The arrays' names, from their headers alone."""
    names = []
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                with archive.open(member) as file:
                    version = np.lib.format.read_magic(file)
                    read_header = np.lib.format.read_array_header_1_0
                    if version != (1, 0):
                        read_header = np.lib.format.read_array_header_2_0
                    shape, _, dtype = read_header(file)
                name = member.removesuffix(".npy")
                if dtype.hasobject:
                    raise OmrlError(f"{path}: array {name!r} carries pickled objects, which are not read")
                if shape:  # a scalar is no column
                    names.append(name)
    except _DAMAGE as error:
        raise OmrlError(f"{path} cannot be read as npz: {error}") from error
    return names


def _read(path: Path, names: Sequence[str]) -> dict[str, Column]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in names}
    except _DAMAGE as error:
        raise OmrlError(f"{path} cannot be read as npz: {error}") from error
