"""Files appear whole or not at all: they are written beside their target under a temporary name and renamed once."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from omrl.errors import OmrlError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; when the block ends well, it takes the place of `path`."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write readable JSON atomically."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # bytes that are no text are a ValueError, too
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise OmrlError(f"{path} is not JSON ({reason}).") from error
    if not isinstance(value, dict):
        raise OmrlError(f"{path} is not a JSON object.")
    return value


def harmless(cell: object) -> str:
    """A cell that no spreadsheet takes for a formula: what begins like one is quoted, unless it is plainly a number."""
    text = str(cell)
    begins = text.startswith(("=", "+", "-", "@", "\t", "\r"))
    # With its interval, as tables have it: -1.5 [-2.0, -1.0].
    return f"'{text}" if begins and not re.fullmatch(r"[-+][\d.,eE%\[\] +-]*", text) else text


def write_rows(path: Path, rows: Iterable[Sequence[Any]]) -> None:
    """Write a CSV file atomically."""
    with replacing(path) as temporary, temporary.open("w", newline="") as file:
        csv.writer(file).writerows(rows)


def write_tensors(
    path: Path, arrays: Mapping[str, np.ndarray[Any, Any]], metadata: Mapping[str, str] | None = None
) -> None:
    """Write a safetensors file atomically."""
    # Not safetensors' own `save_file`: it hides a full disk behind an error of its own, and its files are private.
    whole = {name: np.require(array, requirements="C") for name, array in arrays.items()}
    data = save(whole, metadata=dict(metadata) if metadata else None)
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def sync_folder(folder: Path) -> None:
    """Make sure that names in a folder outlast a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def versions(*packages: str) -> dict[str, str | None]:
    """What a result was made with; None for a package that is not installed, such as a simulator that nobody needed."""
    found: dict[str, str | None] = {}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found
