"""Offline meta-reinforcement learning: many tasks' logs in, one policy that adapts out.

Public names are loaded when they are used, so that importing omrl is quick. Where gymnasium is installed its ids
(`omrl/HalfCheetahVel-v0`, ...) are registered; there is no other side effect.
"""

from __future__ import annotations

from importlib import import_module, util
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omrl.algorithms.algorithm import Algorithm, BatchSpec, MetaConfig
    from omrl.behaviour.collect import collect
    from omrl.data import MetaDataset
    from omrl.errors import OmrlError
    from omrl.evaluation.testing import evaluate
    from omrl.exporting.command import export
    from omrl.families import FAMILIES, Task, TaskFamily
    from omrl.learning.starting import train
    from omrl.reporting.command import report
    from omrl.runs.calibrating import calibrate
    from omrl.runs.model import load
    from omrl.runs.policy import Policy
    from omrl.runs.records import Scores
    from omrl.runs.run import Run
    from omrl.schema import settings
    from omrl.selecting.choosing import select
    from omrl.studies.definitions import Study

__version__ = "0.1.0"
__all__ = [
    "FAMILIES",
    "Algorithm",
    "BatchSpec",
    "MetaConfig",
    "MetaDataset",
    "OmrlError",
    "Policy",
    "Run",
    "Scores",
    "Study",
    "Task",
    "TaskFamily",
    "calibrate",
    "collect",
    "evaluate",
    "export",
    "load",
    "report",
    "select",
    "settings",
    "train",
]

_HOME = {
    "FAMILIES": "omrl.families",
    "Algorithm": "omrl.algorithms.algorithm",
    "BatchSpec": "omrl.algorithms.algorithm",
    "MetaConfig": "omrl.algorithms.algorithm",
    "MetaDataset": "omrl.data",
    "OmrlError": "omrl.errors",
    "Policy": "omrl.runs.policy",
    "Run": "omrl.runs.run",
    "Scores": "omrl.runs.records",
    "Study": "omrl.studies.definitions",
    "Task": "omrl.families",
    "TaskFamily": "omrl.families",
    "calibrate": "omrl.runs.calibrating",
    "collect": "omrl.behaviour.collect",
    "evaluate": "omrl.evaluation.testing",
    "export": "omrl.exporting.command",
    "load": "omrl.runs.model",
    "report": "omrl.reporting.command",
    "select": "omrl.selecting.choosing",
    "settings": "omrl.schema",
    "train": "omrl.learning.starting",
}


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'omrl' has no attribute {name!r}")


if util.find_spec("gymnasium") is not None:
    from omrl.families import register

    register()
