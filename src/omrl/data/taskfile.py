"""The file of one task: a safetensors file, written from arrays and read as views of a memory map."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omrl.data.arrays import ARRAYS, BOOL, FLOAT, INT, OPTIONAL, Arrays, Place, shape_of
from omrl.data.manifest import Header, TaskEntry, parse_object
from omrl.errors import OmrlError

# The safetensors format: 8 bytes header length, a JSON header, then the arrays' bytes. Writing it here makes a task's
# bytes depend on nothing but its arrays, reading it here gives views of a memory map; the library does neither.
_CODES = {"F32": FLOAT, "I32": INT, "BOOL": BOOL}
_NAMES = {dtype: code for code, dtype in _CODES.items()}


def to_bytes(arrays: Arrays) -> bytes:
    """A task's arrays as the bytes of its safetensors file."""
    header: dict[str, Any] = {}
    offset = 0
    for name in ARRAYS:
        if name in arrays:
            array = arrays[name]
            spec = {"dtype": _NAMES[array.dtype], "shape": array.shape, "data_offsets": [offset, offset + array.nbytes]}
            header[name] = spec
            offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that every array lies at a multiple of its item size
    parts = [len(text).to_bytes(8, "little"), text, *(arrays[name].tobytes() for name in header)]
    return b"".join(parts)


def header_size(start: bytes, file_bytes: int, where: str) -> int:
    """Where the arrays begin, from a file's first 8 bytes."""
    size = 8 + int.from_bytes(start[:8], "little")
    if len(start) < 8 or size > file_bytes:
        raise OmrlError(f"{where}: it is not a whole safetensors file")
    return size


def layout(head: bytes, file_bytes: int, rows: int, header: Header, place: Place) -> dict[str, int]:
    """The offset of every array in the file, after checking names, dtypes, shapes and offsets against the manifest."""
    specs: dict[str, Any] = parse_object(head[8:], place.file)
    specs.pop("__metadata__", None)
    end, offsets = len(head), {}
    for name in specs:
        if name not in ARRAYS:
            raise place.error(name, "the file holds an array that the format does not know")
    for name, (dtype, _) in ARRAYS.items():
        if name not in specs:
            if name in OPTIONAL:
                continue
            raise place.error(name, "the array is missing from the file")
        shape = shape_of(name, rows, header)
        if not isinstance(specs[name], dict) or specs[name].get("dtype") != _NAMES[dtype]:
            raise place.error(name, f"its dtype is not {_NAMES[dtype]}")
        if specs[name].get("shape") != list(shape):
            raise place.error(name, f"its shape is {specs[name].get('shape')} but the manifest says {list(shape)}")
        size = int(np.prod(shape)) * dtype.itemsize
        begin = end - len(head)
        if specs[name].get("data_offsets") != [begin, begin + size]:
            raise place.error(name, "its bytes do not lie where they should")
        offsets[name] = end
        end += size
    if end != file_bytes:
        raise OmrlError(f"{place.file}: task {place.task!r}: it has {file_bytes} bytes but its arrays need {end}")
    return offsets


def views(buffer: NDArray[np.uint8], offsets: dict[str, int], rows: int, header: Header) -> Arrays:
    """Arrays that share the buffer's memory."""
    result = {}
    for name, offset in offsets.items():
        dtype, shape = ARRAYS[name][0], shape_of(name, rows, header)
        size = int(np.prod(shape)) * dtype.itemsize
        result[name] = buffer[offset : offset + size].view(dtype).reshape(shape)
    return result


class TaskFile:
    """The arrays of one task: in a file that is mapped and verified at first touch, or the same bytes in memory."""

    def __init__(self, entry: TaskEntry, header: Header, data: Path | bytes) -> None:
        """Check size and header; read no row."""
        self._entry, self._header, self._data = entry, header, data
        self.place = Place(str(data) if isinstance(data, Path) else "arrays", entry.name)
        try:
            size, head = _head(data, self.place.file)
        except OSError as error:
            raise self._unreadable(error) from error
        if size != entry.bytes:
            raise OmrlError(
                f"{self.place.file}: the file of task {entry.name!r} has {size} bytes, the manifest says {entry.bytes}"
            )
        self._offsets = layout(head, size, entry.rows, header, self.place)
        self._arrays: Arrays | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The arrays that the file holds."""
        return tuple(self._offsets)

    def arrays(self) -> Arrays:
        """All rows, sharing memory with the file, which is verified the first time."""
        if self._arrays is None:
            entry = self._entry
            try:
                if isinstance(self._data, Path):
                    mapped = np.memmap(self._data, np.uint8, "r", shape=(entry.bytes,))
                    buffer: NDArray[np.uint8] = mapped.view(np.ndarray)
                else:
                    buffer = np.frombuffer(self._data, np.uint8)
            except (OSError, ValueError) as error:
                raise self._unreadable(error) from error
            if hashlib.sha256(buffer.data).hexdigest() != entry.sha256:
                raise OmrlError(
                    f"{self.place.file}: the file of task {entry.name!r} does not match its checksum, it is damaged"
                )
            self._arrays = views(buffer, self._offsets, entry.rows, self._header)
        return self._arrays

    def _unreadable(self, error: Exception) -> OmrlError:
        return OmrlError(f"{self.place.file}: the file of task {self._entry.name!r} cannot be read: {error}")


def _head(data: Path | bytes, where: str) -> tuple[int, bytes]:
    """Size and safetensors header, without reading rows."""
    if isinstance(data, bytes):
        return len(data), data[: header_size(data[:8], len(data), where)]
    with data.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(8)
        return size, start + file.read(header_size(start, size, where) - 8)
