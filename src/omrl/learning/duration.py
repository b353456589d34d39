"""About how long a run will take: what updates were measured to cost, scaled to the networks and rows of the run."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch
from torch import nn

from omrl import schema
from omrl.algorithms import about, get_algorithm
from omrl.algorithms.algorithm import Algorithm, MetaConfig
from omrl.learning.own_logs import TASKS
from omrl.runs.config import RunConfig

# Of every algorithm, beside what its own small sizes name.
ROWS = ("meta_batch", "batch_size", "context_size")


def expected_seconds(config: RunConfig, tasks: int, varies: str) -> float | None:
    """Of a run on so many training tasks, first stages included; None where nobody measured the algorithm."""
    cost: Any = about(config.algorithm, "cost").get("small" if config.cpu else "full")
    if cost is None:
        return None
    kind = get_algorithm(config.algorithm)
    own = schema.read(kind.Config, config.hyperparameters, config.algorithm)
    dims = config.observation_dim, config.action_dim
    (nets, *_), algorithm = kind.build(*dims, own, [0])
    (usual_nets, *_), usual = kind.build(*dims, _measured_at(config, own), [0])
    # What a further seed costs is work, which grows with networks and rows; the rest of the first one's is not.
    share = _work(algorithm, nets) / _work(usual, usual_nets)
    update = cost["first"] - cost["further"] + cost["further"] * config.seeds * share
    milliseconds = config.steps * update
    if stages := algorithm.stages(varies):
        # An update of the first stage was measured; those of others are told by their work beside it.
        first = usual.stages(varies)[0]
        unit = _weights(first.build(torch.Generator())) * first.batch_size
        work = sum(stage.steps * _weights(stage.build(torch.Generator())) * stage.batch_size for stage in stages)
        milliseconds += cost["stage"] * config.seeds * tasks * work / unit
    return float(milliseconds / 1_000)


def _measured_at(config: RunConfig, own: MetaConfig) -> MetaConfig:
    """The run's hyperparameters with the sizes at which its algorithm's cost was measured."""
    small, defaults = about(config.algorithm, "small"), type(own)()
    names = {*ROWS, *small} & {field.name for field in fields(own)}
    sizes = {name: getattr(defaults, name) for name in names}
    if config.cpu:
        sizes |= {**small, "meta_batch": TASKS}
    return schema.changed(own, sizes, config.algorithm)


def _work(algorithm: Algorithm[MetaConfig], nets: nn.Module) -> float:
    """Multiplications of an update, but for a factor: every weight meets every row."""
    config = algorithm.config
    rows = config.batch_size + algorithm.batch_spec.context_sets * config.context_size
    return float(_weights(nets) * config.meta_batch * rows)


def _weights(nets: nn.Module) -> int:
    return sum(parameter.numel() for parameter in nets.parameters())
