"""Numpy archives. Arrays that need pickle are refused: unpickling runs code."""

from __future__ import annotations

import math
import tokenize
import zipfile
import zlib
from collections.abc import Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import IO

import numpy as np

from omrl.commands.data import Import
from omrl.data.dataset import MetaDataset
from omrl.data.interchange.flat import Format, read_tables
from omrl.data.interchange.limits import Limit
from omrl.data.interchange.survey import Column
from omrl.errors import OmrlError

# Numpy itself reads no longer ones.
MAX_HEADER = 16_384
_DAMAGE = (OSError, ValueError, EOFError, KeyError, NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error)


def read_dataset(args: Import) -> MetaDataset:
    """Import npz files."""
    return read_tables(args, Format((".npz",), _names, partial(_read, Limit(args.max_gb))))


def _names(path: Path) -> list[str]:
    """The arrays' names, from their headers alone."""
    return [name for name, (shape, _) in _headers(path).items() if shape]  # a scalar is no column


def _headers(path: Path) -> dict[str, tuple[tuple[int, ...], int]]:
    """Shape and bytes of every array."""
    headers = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                name = member.filename.removesuffix(".npy")
                with archive.open(member) as file:
                    headers[name] = read_header(file, member.file_size, f"{path}: array {name!r}")
    except _DAMAGE as error:
        raise OmrlError(f"{path} cannot be read as npz: {error}") from error
    return headers


def read_header(file: IO[bytes], size: int, where: str) -> tuple[tuple[int, ...], int]:
    """Shape and bytes that an .npy file of that size claims, refused if it cannot hold them."""
    shape, dtype = shape_and_type(file)
    if dtype.hasobject:
        raise OmrlError(f"{where} carries pickled objects, which are not read")
    claimed = math.prod(shape) * dtype.itemsize
    if claimed > size - file.tell():
        raise OmrlError(
            f"{where} claims {claimed:,} bytes, but {max(size - file.tell(), 0):,} are there: it is damaged"
        )
    return shape, claimed


def shape_and_type(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[np.generic]]:
    """What an .npy file says first; a ValueError if it says nothing that makes sense."""
    # From memory: a file that is asked for as long a header as it claims to have takes that much first.
    head = BytesIO(file.read(MAX_HEADER))
    version = np.lib.format.read_magic(head)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    try:
        shape, _, dtype = read(head)
    except (tokenize.TokenError, SyntaxError, TypeError) as error:  # numpy parses it as Python
        raise ValueError(f"its header cannot be read ({error})") from error
    file.seek(head.tell())
    return tuple(shape), dtype


def _read(limit: Limit, path: Path, names: Sequence[str]) -> dict[str, Column]:
    headers = _headers(path)
    limit.check(path, sum(headers[name][1] for name in names))
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in names}
    except _DAMAGE as error:
        raise OmrlError(f"{path} cannot be read as npz: {error}") from error
