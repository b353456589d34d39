"""Where to compute, and on a CPU how: by how many threads, eagerly or compiled.

Both follow from the work and the machine by a fixed rule and never from the load of the moment, so that the same seed
gives the same bytes; a run stores them and goes on as it began. docs/speed.md has the measurements behind the rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from omrl.algorithms.algorithm import MetaConfig
from omrl.errors import OmrlError
from omrl.families.batched import usable_cores
from omrl.learning.compiling import keep_compiled_programs
from omrl.runs.config import OnCPU


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


# Numbers in the largest layer of all learners that are worth a thread: with fewer, threads wait for one another.
NUMBERS_PER_THREAD = 32_768
# Compiling takes half a minute on two cores, which small networks have won back after this many updates.
UPDATES_WORTH_COMPILING = 4_000


def on_cpu(hyperparameters: MetaConfig, seeds: int, updates: int, threads: int | None = None) -> OnCPU:
    """How to train so many seeds for so many updates; `threads` is the user's own word on it."""
    widths = [width for name, layers in vars(hyperparameters).items() if name.endswith("hidden") for width in layers]
    numbers = seeds * hyperparameters.meta_batch * hyperparameters.batch_size * max(widths, default=1)
    wanted = min(usable_cores(), max(1, numbers // NUMBERS_PER_THREAD))
    pays = updates >= UPDATES_WORTH_COMPILING and has_compiler()
    return {"threads": threads or wanted, "mode": "compiled" if pays else "eager"}


def has_compiler() -> bool:
    """Whether torch finds the C++ compiler that it needs to compile for a CPU."""
    keep_compiled_programs()  # before torch decides on a place of its own, which it does when this is imported
    from torch._inductor.cpp_builder import get_cpp_compiler

    try:
        return bool(get_cpp_compiler())
    except Exception:  # torch raises kinds of its own where there is none
        return False


@contextmanager
def limited_threads(count: int | None) -> Iterator[None]:
    """Compute with so many threads, or with as many as before; afterwards as before."""
    usual = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(usual)
