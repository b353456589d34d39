"""Where units are done: what `--on` and `--storage` say."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from omrl.errors import OmrlError
from omrl.families.batched import usable_cores
from omrl.learning.devices import choose_device
from omrl.units.local import Inline, Processes
from omrl.units.schedule import Executor

LOCAL = "local"


def check(on: str, at_once: int, storage: Path | None = None) -> None:
    """Refuse what makes no sense, before anything is done."""
    if at_once < 1:
        raise OmrlError(f"--at-once must be at least 1, not {at_once}.")
    if on == LOCAL:
        if storage is not None:
            raise OmrlError("--storage is a folder that the nodes of a cluster share; it needs --on ray.")
        return
    if on != "ray" and not re.fullmatch(r"(ray://)?[^/\s]+:\d+", on):
        raise OmrlError(f"--on is local, ray, ray://HOST:PORT or HOST:PORT, not {on!r}.")
    if find_spec("ray") is None:
        raise OmrlError("Ray is not installed: pip install 'omrl[ray]'.")
    if storage is not None and not storage.is_dir():
        raise OmrlError(f"There is no folder {storage}, which --storage should name.")


def stored(path: Path, storage: Path | None) -> Path:
    """An output's place: in the folder that all nodes share, where there is one."""
    if storage is None:
        return path
    found = Path(os.path.normpath(storage.absolute() / path))
    if not found.is_relative_to(os.path.normpath(storage.absolute())):
        raise OmrlError(f"{path} does not lie in {storage}, the folder of --storage, which is all that nodes see.")
    return found


@contextmanager
def executor(on: str, at_once: int, storage: Path | None = None) -> Iterator[Executor]:
    """Who does units, as long as the block lasts."""
    check(on, at_once, storage)
    found: Executor
    if on != LOCAL:
        from omrl.units.on_ray import OnRay  # an extra

        found = OnRay(on, direct=storage is not None)
    else:
        found = Inline() if at_once == 1 else Processes(at_once)
    try:
        yield found
    finally:
        found.close()


@dataclass(frozen=True)
class Means:
    """What every unit is given."""

    threads: int | None
    gpu: float
    """Share of a GPU of those units that use one."""
    device: str


def given(doing: Executor, on: str, at_once: int, threads: int | None, device: str) -> Means:
    """What the machines have for each unit."""
    if on == LOCAL:
        share = 1 / at_once if choose_device(device) == "cuda" else 0.0
        return Means(threads or (max(1, usable_cores() // at_once) if at_once > 1 else None), share, device)
    from omrl.units.on_ray import OnRay

    assert isinstance(doing, OnRay)
    gpus = doing.gpus()
    if device == "cuda" and not gpus:
        raise OmrlError(f"The cluster at {on} has no GPU.")
    device = "cuda" if gpus and device != "cpu" else "cpu"
    # Units beside one another on machines that nobody has seen: one core each, unless somebody says more.
    return Means(threads or 1, 1 / at_once if device == "cuda" else 0.0, device)
