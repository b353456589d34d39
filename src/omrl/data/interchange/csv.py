"""Comma-separated text with a header line."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from omrl.commands.data import Import
from omrl.data.dataset import MetaDataset
from omrl.data.interchange.flat import Format, read_tables, texts
from omrl.data.interchange.survey import Column
from omrl.errors import OmrlError

# What a number could be made of and should not: "007" is a name, and read as a number it would come back as 7.
_NAMES = re.compile(r"^[+-]?0\d+$|_", re.MULTILINE)
# What stands in a column of numbers where there is none. In a column of words, only an empty cell is no word.
_MISSING = ("", "nan", "na", "n/a", "null", "none")
_BLOCK = 50_000


def read_dataset(args: Import) -> MetaDataset:
    """Import csv files."""
    return read_tables(args, Format((".csv",), _names, _read))


def _names(path: Path) -> list[str]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            names = [name.strip() for name in next(csv.reader(file), [])]
    except (OSError, ValueError, csv.Error) as error:
        raise OmrlError(f"{path} cannot be read as csv: {error}") from error
    if len(set(names)) != len(names):
        raise OmrlError(f"{path} has two columns of the same name")
    return names


def _read(path: Path, names: Sequence[str]) -> dict[str, Column]:
    available = _names(path)
    positions = {name: available.index(name) for name in names}
    parts: dict[str, list[Column]] = {name: [] for name in names}
    try:
        for block in _blocks(path, len(available)):
            for name, at in positions.items():
                cells = [row[at].strip() for row in block]
                numbers = _numbers(cells)
                parts[name].append(texts(cells, name, path) if numbers is None else numbers)
        # Whether a column holds numbers is known after its last row: where words come late, it is read again as words.
        late = [name for name, found in parts.items() if len({part.dtype.kind for part in found}) > 1]
        parts |= {name: [] for name in late}
        for block in _blocks(path, len(available)) if late else ():
            for name in late:
                parts[name].append(texts([row[positions[name]].strip() for row in block], name, path))
    except (OSError, ValueError, csv.Error) as error:
        raise OmrlError(f"{path} cannot be read as csv: {error}") from error
    if not next(iter(parts.values())):
        raise OmrlError(f"{path} holds no rows")
    return {name: np.concatenate(found) for name, found in parts.items()}


def _blocks(path: Path, width: int) -> Iterator[list[list[str]]]:
    """The rows, some at a time: as text they take much more room than as numbers."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = filter(None, csv.reader(file))
        next(rows, None)
        first = 0
        while block := list(islice(rows, _BLOCK)):
            for row, cells in enumerate(block, first):
                if len(cells) != width:
                    raise OmrlError(f"{path}, row {row} has {len(cells)} values for {width} columns")
            yield block
            first += len(block)


def _numbers(cells: list[str]) -> Column | None:
    """The cells as numbers, NaN where one is missing; None if they are words."""
    if _NAMES.search("\n".join(cells)):
        return None
    try:
        return np.array(cells, np.float64)
    except ValueError:
        pass
    try:
        return np.array([math.nan if cell.lower() in _MISSING else float(cell) for cell in cells], np.float64)
    except ValueError:
        return None
