"""Checkpoints: tensors in a safetensors file, with a checksum: one wrong bit would change what a policy does."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors import safe_open
from torch import Tensor

from omrl.errors import OmrlError
from omrl.files import write_tensors

CHECKSUM = "sha256"


def save_checkpoint(path: Path, tensors: Mapping[str, Tensor], notes: Mapping[str, int]) -> None:
    """Write tensors and some numbers about them."""
    arrays = {name: value.detach().cpu().numpy() for name, value in tensors.items()}
    metadata = {name: str(value) for name, value in notes.items()}
    write_tensors(path, arrays, {**metadata, CHECKSUM: _checksum(arrays, metadata)})


def load_checkpoint(path: Path, hint: str = "") -> tuple[dict[str, Tensor], dict[str, int]]:
    """Tensors and numbers as they were saved; those of an older omrl have no checksum and open as ever."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = dict(file.metadata())
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        wanted = metadata.pop(CHECKSUM, None)
        notes = {name: int(value) for name, value in metadata.items()}
        step = notes["step"]
    except Exception as error:  # safetensors raises its own kinds
        raise OmrlError(f"{path} is missing or damaged ({error}){hint}.") from error
    found = _checksum({name: value.numpy() for name, value in tensors.items()}, metadata)
    if wanted not in (None, found) or step < 0:
        raise OmrlError(f"{path} is damaged: its content does not match its checksum{hint}.")
    return tensors, notes


def _checksum(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> str:
    """Of names, types, shapes and bytes, and of what is noted."""
    digest = hashlib.sha256(repr(sorted(metadata.items())).encode())
    for name, array in sorted(arrays.items()):
        digest.update(repr((name, array.dtype.str, array.shape)).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
