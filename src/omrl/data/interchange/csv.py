"""Comma-separated text with a header line."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from omrl.data.commands import Import
from omrl.data.dataset import MetaDataset
from omrl.data.interchange.survey import Column
from omrl.data.interchange.tables import Format, read_tables, texts
from omrl.errors import OmrlError

# "007" is a name: read as a number it would come back as 7.
_NUMBER = re.compile(r"[+-]?(inf(inity)?|((0|[1-9]\d*)(\.\d*)?|\.\d+)(e[+-]?\d+)?)", re.IGNORECASE | re.ASCII)
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
    try:
        # Twice through the file: whether a column holds numbers is known after its last row.
        numeric = dict.fromkeys(names, True)
        for block in _blocks(path, len(available)):
            for name in names:
                cells = (row[positions[name]].strip() for row in block)
                numeric[name] = numeric[name] and all(map(_is_number, cells))
        parts: dict[str, list[Column]] = {name: [] for name in names}
        for block in _blocks(path, len(available)):
            for name in names:
                cells_of = [row[positions[name]].strip() for row in block]
                parts[name].append(_numbers(cells_of) if numeric[name] else texts(cells_of, name, path))
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


def _is_number(text: str) -> bool:
    return text.lower() in _MISSING or _NUMBER.fullmatch(text) is not None


def _numbers(cells: list[str]) -> Column:
    return np.array([math.nan if cell.lower() in _MISSING else float(cell) for cell in cells], np.float64)
