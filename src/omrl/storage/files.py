"""Files appear whole or not at all: they are written beside their target under a temporary name and renamed once."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from omrl.errors import OmrlError
from omrl.words import shortened


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a new, empty file beside `path`; when the block ends well, it takes the place of `path`."""
    temporary = path.with_name(f".{path.name}.tmp")
    _make(temporary)
    try:
        yield temporary
        try:
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
        except FileNotFoundError:
            raise OmrlError(f"{path} could not be written: another process writes it, or removed its folder.") from None
    finally:
        temporary.unlink(missing_ok=True)


def _make(temporary: Path) -> None:
    """A file that was not there before: what a kill left goes, and so does a link, whose target is somebody else's."""
    while True:
        temporary.unlink(missing_ok=True)
        try:
            os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666))
        except FileExistsError:  # of another process, which began at the same moment
            continue
        return


def as_path(given: object, what: str) -> Path:
    """The path that somebody gave; what pathlib says of other things does not name them."""
    if not isinstance(given, str | os.PathLike):
        raise OmrlError(f"{what} is given by its path, not by {given!r}.")
    return Path(given)


def write_text(path: Path, text: str) -> None:
    """Write a file of text atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Mapping[str, object]) -> None:
    """Write readable JSON atomically."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def read_json(path: Path) -> dict[str, object]:
    """A JSON object."""
    value = _json(path)
    if not isinstance(value, dict):
        raise OmrlError(f"{path} is not a JSON object.")
    return value


def read_json_list(path: Path) -> list[dict[str, object]]:
    """A list of JSON objects."""
    value = _json(path)
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise OmrlError(f"{path} is not a list of JSON objects.")
    return value


def parse_json(data: str | bytes, finite: bool = False) -> object:
    """What JSON says; a ValueError where it says nothing that can be written again.

    With `finite` NaN and infinities are refused, and numbers that are as good as infinite: JSON knows none.
    """
    text = data if isinstance(data, str) else data.decode("utf-8")
    value: object = json.loads(text, parse_float=_finite, parse_constant=_finite) if finite else json.loads(text)
    if "\\ud" in text.lower():  # half a character, perhaps, which no file and no terminal can show
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    return value


def _finite(word: str) -> float:
    if not math.isfinite(value := float(word)):
        raise ValueError(f"{word} is not JSON")
    return value


def _json(path: Path) -> object:
    try:
        return parse_json(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:  # bytes that are no text are a ValueError, too
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise OmrlError(f"{path} is not JSON ({reason}).") from error


def harmless(cell: object) -> str:
    """A cell that no spreadsheet takes for a formula: what begins like one is quoted; `read_rows` takes it back."""
    text = str(cell)
    return f"'{text}" if _like_a_formula(text.lstrip("'")) else text


def _as_it_was(cell: str) -> str:
    """What `harmless` was given. Names that were written before it are the same: none begins with such a quote."""
    return cell[1:] if cell.startswith("'") and _like_a_formula(cell.lstrip("'")) else cell


def _like_a_formula(text: str) -> bool:
    begins = text.startswith(("=", "+", "-", "@", "\t", "\r"))
    # Plainly a number, with its interval, as tables have it: -1.5 [-2.0, -1.0].
    return begins and not re.fullmatch(r"[-+]([\d.,eE%\[\] +-]*|inf|nan)", text)


def write_rows(path: Path, rows: Iterable[Sequence[object]]) -> None:
    """Write a CSV file atomically."""
    with replacing(path) as temporary, temporary.open("w", newline="") as file:
        csv.writer(file).writerows(rows)


def read_rows(path: Path, columns: Sequence[str], appended: bool = False) -> list[dict[str, str]]:
    """Rows of a CSV file with these columns; a row that an interrupted run left half written is not one."""
    text = read_text(path, appended) if path.is_file() else ""
    if not text:
        return []
    rows = csv.DictReader(io.StringIO(text, newline=""))
    try:
        if not set(columns) <= set(rows.fieldnames or ()):
            raise OmrlError(f"{path} must have the columns {', '.join(columns)}.")
        whole = [row for row in rows if None not in row.values() and None not in row]
        return [{name: _as_it_was(cell) for name, cell in row.items()} for row in whole]
    except csv.Error as error:
        raise OmrlError(f"{path} is not a table ({error}).") from error


def whole(cell: str, path: Path) -> int:
    """A count in a cell of a table."""
    if not re.fullmatch(r"[0-9]{1,15}", cell):  # as many digits as a double has
        raise OmrlError(f"{path} has {shortened(cell)} where a whole number belongs.")
    return int(cell)


def number(cell: str, path: Path) -> float:
    """A number in a cell of a table; it need not be finite."""
    try:
        return float(cell)
    except ValueError:
        raise OmrlError(f"{path} has {shortened(cell)} where a number belongs.") from None


def read_text(path: Path, appended: bool = False) -> str:
    """What a file says; of one that is appended to, up to the last whole line."""
    try:
        text = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OmrlError(f"{path} cannot be read ({error}).") from error
    return text[: text.rfind("\n") + 1] if appended else text


def write_tensors(
    path: Path, arrays: Mapping[str, NDArray[np.generic]], metadata: Mapping[str, str] | None = None
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
