"""Checkpoints: tensors in a safetensors file, with a checksum: one wrong bit would change what a policy does."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor

from omrl.errors import OmrlError
from omrl.storage.files import write_tensors

CHECKSUM = "sha256"
# One key for all: safetensors writes several in any order, and equal checkpoints are to be equal files.
NOTES = "checkpoint"
# No step of anything is beyond it: as many digits as a double has.
LARGEST_COUNT = 10**15


def save_checkpoint(path: Path, tensors: Mapping[str, Tensor], notes: Mapping[str, int]) -> None:
    """Write tensors and some numbers about them."""
    arrays = {name: value.detach().cpu().numpy() for name, value in tensors.items()}
    write_tensors(path, arrays, {NOTES: json.dumps({**notes, CHECKSUM: _checksum(arrays, notes)})})


def load_checkpoint(path: Path, hint: str = "") -> tuple[dict[str, Tensor], dict[str, int]]:
    """Tensors and numbers as they were saved; those of an older omrl have no checksum, which is said."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        checked = NOTES in metadata
        said = json.loads(metadata[NOTES]) if checked else {"step": metadata["step"]}
        wanted = said.pop(CHECKSUM) if checked else None
        notes = {name: int(value) for name, value in said.items()}
        found = _checksum({name: value.numpy() for name, value in tensors.items()}, notes)
        if "step" not in notes or not all(0 <= value < LARGEST_COUNT for value in notes.values()):
            raise ValueError("its steps are no counts")
    except Exception as error:  # safetensors raises its own kinds
        what = "damaged" if path.is_file() else "missing"
        raise OmrlError(f"{path} is {what} ({error}){hint}.") from error
    if not checked:
        _note_unchecked(path)
    elif wanted != found:
        raise OmrlError(f"{path} is damaged: its content does not match its checksum{hint}.")
    return tensors, notes


@cache
def _note_unchecked(path: Path) -> None:
    """Once for each file."""
    print(f"note: {path} has no checksum, as an older omrl wrote it: damage in it is not noticed.", file=sys.stderr)


def check_fits(tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor], path: Path, hint: str = "") -> None:
    """Refuse tensors that are not like those wanted, in name, type and shape: the settings beside them are others."""
    for name, like in wanted.items():
        check_shape(tensors, name, like.shape, like.dtype, path, hint)
    generator = torch.Generator()
    drawn = tensors.get("generator")
    if drawn is not None and drawn.shape == generator.get_state().shape:
        try:
            generator.set_state(drawn)
        except RuntimeError as error:  # torch looks at what is in it
            raise OmrlError(f"{path} has random numbers that cannot be gone on with ({error}){hint}.") from error


def check_shape(
    tensors: Mapping[str, Tensor], name: str, shape: tuple[int, ...], dtype: torch.dtype, path: Path, hint: str = ""
) -> None:
    """Refuse a tensor that has another shape or type, or is not there; the one wanted need not exist."""
    if name not in tensors:
        raise OmrlError(f"{path} has no {name}, which is needed{hint}.")
    found = tensors[name]
    if (found.shape, found.dtype) != (shape, dtype):
        both = ((found.dtype, found.shape), (dtype, shape))
        is_, should = (f"{str(kind).removeprefix('torch.')} {list(size)}" for kind, size in both)
        raise OmrlError(f"{path} does not fit its settings: {name} is {is_} and should be {should}{hint}.")


def _checksum(arrays: Mapping[str, np.ndarray[Any, Any]], notes: Mapping[str, int]) -> str:
    """Of names, types, shapes and bytes, and of what is noted."""
    digest = hashlib.sha256(repr(sorted(notes.items())).encode())
    for name, array in sorted(arrays.items()):
        digest.update(repr((name, array.dtype.str, array.shape)).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
