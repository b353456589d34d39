"""Meta-datasets: logged transitions of many tasks, on disk and in memory."""

from __future__ import annotations

from omrl.data.dataset import MetaDataset, Tensors
from omrl.data.writer import MetaDatasetWriter

__all__ = ["MetaDataset", "MetaDatasetWriter", "Tensors"]
