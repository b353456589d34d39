"""Comma-separated text with a header line."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from omrl.data.commands import Import
from omrl.data.dataset import MetaDataset
from omrl.data.interchange.tables import Column, Format, read_tables
from omrl.errors import OmrlError

# "007" is a name: read as a number it would come back as 7.
_NUMBER = re.compile(r"[+-]?(nan|inf(inity)?|(0|[1-9]\d*)?(\.\d*)?(e[+-]?\d+)?)", re.IGNORECASE)


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
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            next(reader)
            first = next(reader, None)
        if first is None:
            raise OmrlError(f"{path} holds no rows")
        if len(first) != len(available):
            raise OmrlError(f"{path}, row 0 has {len(first)} values for {len(available)} columns")
        numeric = [name for name in names if _is_number(first[available.index(name)])]
        table = dict(zip(numeric, _columns(path, [available.index(name) for name in numeric], np.float64), strict=True))
        text = [name for name in names if name not in numeric]
        return table | dict(zip(text, _columns(path, [available.index(name) for name in text], str), strict=True))
    except (OSError, ValueError, csv.Error) as error:
        # numpy counts columns, people name them
        reason = re.sub(r"column (\d+)", lambda match: f"column {available[int(match[1]) - 1]!r}", str(error))
        raise OmrlError(f"{path} cannot be read as csv: {reason}") from error


def _is_number(text: str) -> bool:
    return bool(text.strip()) and _NUMBER.fullmatch(text.strip()) is not None


def _columns(path: Path, positions: list[int], kind: type) -> list[Column]:
    if not positions:
        return []
    with path.open(newline="", encoding="utf-8-sig") as file:
        values: Column = np.loadtxt(
            file, dtype=kind, delimiter=",", quotechar='"', comments=None, skiprows=1, usecols=positions, ndmin=2
        )
    return list(values.T)
