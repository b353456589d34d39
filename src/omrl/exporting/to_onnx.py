"""A policy as two ONNX graphs: the encoder, context [N, C, (s, a, r, s')] to z, and the actor, obs and z to actions."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from omrl.errors import OmrlError, needs_extra
from omrl.exporting.description import describe
from omrl.runs.model import Model
from omrl.storage.files import replacing

with needs_extra("onnx", "Exporting to ONNX"):
    import onnx
    import onnxscript  # noqa: F401  torch's exporter needs it

# Of the operators: the oldest that torch writes without converting, so that older runtimes read it too.
OPSET = 18
# Rows and transitions of the example that is traced; any other number works, and none that a network has by itself.
ROWS, TRANSITIONS = 3, 5


def write(model: Model, seed: int, folder: Path) -> list[Path]:
    """Both graphs into a folder."""
    rows, transitions = (torch.export.Dim(name) for name in ("rows", "transitions"))
    encoder, actor = Encoder(model, seed), Actor(model, seed)
    context = torch.zeros(ROWS, TRANSITIONS, 2 * model.obs_dim + model.act_dim + 1)
    obs, z = torch.zeros(ROWS, model.obs_dim), torch.zeros(ROWS, model.hyperparameters.latent_dim)
    graphs = {
        "encoder.onnx": _graph(encoder, {"context": context}, "z", {"context": {0: rows, 1: transitions}}),
        "actor.onnx": _graph(actor, {"obs": obs, "z": z}, "action", {"obs": {0: rows}, "z": {0: rows}}),
    }
    for name, graph in graphs.items():
        graph.metadata_props.add(key="omrl", value=json.dumps(describe(model, seed)))
        with replacing(folder / name) as temporary:
            temporary.write_bytes(graph.SerializeToString())
    return [folder / name for name in graphs]


class _Part(nn.Module):
    """A learner's parameters as constants of a graph, and the units of the logs."""

    mean: Tensor
    std: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, model: Model, seed: int) -> None:
        super().__init__()
        self.algorithm, self.obs_dim, self.act_dim = model.algorithm, model.obs_dim, model.act_dim
        choices = model.run.config.choices
        self.choices = None if choices is None else [torch.tensor(one["values"]) for one in choices]
        # Names of parameters have dots, which names of buffers must not.
        self.names = {name: name.replace(".", "__") for name in model.params(seed)}
        for name, value in model.params(seed).items():
            self.register_buffer(self.names[name], value.detach().cpu())
        units = {"mean": model.normalise.mean.cpu(), "std": model.normalise.std.cpu()}
        units |= {"low": torch.from_numpy(model.action_low), "high": torch.from_numpy(model.action_high)}
        for name, value in units.items():
            self.register_buffer(name, value)

    def params(self) -> dict[str, Tensor]:
        return {name: getattr(self, own) for name, own in self.names.items()}

    def normalised(self, obs: Tensor) -> Tensor:
        return (obs - self.mean) / self.std


class Encoder(_Part):
    """z [N, l] of contexts [N, C, (s, a, r, s')] as they were logged."""

    def forward(self, context: Tensor) -> Tensor:
        obs, act, rew, next_obs = torch.split(context, [self.obs_dim, self.act_dim, 1, self.obs_dim], -1)
        unit = ((act - self.low) * (2.0 / (self.high - self.low)) - 1.0).clamp(-1.0, 1.0)
        rows = torch.cat([self.normalised(obs), unit, rew, self.normalised(next_obs)], -1)
        return self.algorithm.infer(self.params(), rows)


class Actor(_Part):
    """Actions [N, A] in the log's units at observations [N, S] in the tasks z [N, l]."""

    def forward(self, obs: Tensor, z: Tensor) -> Tensor:
        unit = self.algorithm.act(self.params(), self.normalised(obs), z)
        actions = self.low + (unit + 1.0) * 0.5 * (self.high - self.low)
        if self.choices is None:
            return actions
        # Of each number the level that was logged, and not one that rounding made.
        nearest = [
            levels[(actions[:, place, None] - levels).abs().argmin(-1)] for place, levels in enumerate(self.choices)
        ]
        return torch.stack(nearest, -1)


def _graph(part: nn.Module, example: Mapping[str, Tensor], output: str, free: Mapping[str, Mapping[int, Any]]) -> Any:
    """The checked ONNX model of a part whose free lengths may be any."""
    with _quiet():
        try:
            # First to torch's own graph: it refuses a part that holds for the example's lengths alone.
            program = torch.export.export(part.eval(), (), dict(example), dynamic_shapes=dict(free), strict=False)
            exported = torch.onnx.export(
                program,
                input_names=list(example),
                output_names=[output],
                opset_version=OPSET,
                dynamo=True,
                verbose=False,
            )
        except Exception as error:  # torch raises many kinds
            name = type(part.algorithm).__name__
            raise OmrlError(f"{name} cannot be written as a graph ({str(error).strip().splitlines()[0]}).") from error
    assert exported is not None
    graph = exported.model_proto
    onnx.checker.check_model(graph, full_check=True)
    opsets = {opset.domain: opset.version for opset in graph.opset_import}
    if opsets != {"": OPSET}:
        raise OmrlError(f"torch {torch.__version__} wrote operators of {opsets} where {OPSET} was asked for.")
    return graph


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's remarks on packages and names that do not matter here."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
