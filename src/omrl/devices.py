"""Where to compute."""

from __future__ import annotations

import torch

from omrl.errors import OmrlError


def choose_device(name: str) -> str:
    """`auto` is a GPU where there is one; a device that is not there is an error."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name not in ("cpu", "cuda"):
        raise OmrlError(f"There is no device {name!r}; it is auto, cpu or cuda (CUDA_VISIBLE_DEVICES says which GPU).")
    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError) as error:
        raise OmrlError(f"There is no device {name!r} here ({str(error).splitlines()[0].rstrip('.')}).") from error
    return name
