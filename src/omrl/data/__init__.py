"""Meta-datasets: logged transitions of many tasks, on disk and in memory."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omrl.data.dataset import MetaDataset, Tensors
    from omrl.data.writer import MetaDatasetWriter

__all__ = ["MetaDataset", "MetaDatasetWriter", "Tensors"]

# Loaded at first use: the command line imports `omrl.data.commands` to show its help and should not wait for numpy.
_HOMES = {"MetaDataset": "dataset", "Tensors": "dataset", "MetaDatasetWriter": "writer"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
