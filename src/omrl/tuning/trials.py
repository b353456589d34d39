"""Learners that differ in hyperparameters, as one population: as fast as learners that differ in their seeds alone."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from omrl.algorithms.algorithm import Algorithm, BatchSpec, MetaConfig, Stage
from omrl.learning.engine import Batch, Info, Loss, Mode, Params, Population
from omrl.runs.model import population_of
from omrl.schema import with_values

PREFIX = "trial."


class Trials(Algorithm[MetaConfig]):
    """An algorithm whose learners each have their own values of some hyperparameters.

    The values lie among a learner's parameters, where nothing moves them, so that losses and actions of a population
    find them as they find its weights.
    """

    def __init__(self, algorithm: Algorithm[MetaConfig], tried: Sequence[str]) -> None:
        super().__init__(algorithm.nets, algorithm.config)
        self.algorithm, self.tried = algorithm, tried
        self.targets, self.plain_descent = algorithm.targets, algorithm.plain_descent
        self.has_values, self.discrete_actions = algorithm.has_values, algorithm.discrete_actions

    def told(self, params: Params) -> Algorithm[MetaConfig]:
        """The algorithm with the values that a learner's parameters hold."""
        own = {name: params[PREFIX + name].detach() for name in self.tried}
        return _with_config(self.algorithm, with_values(self.algorithm.config, own))

    @property
    def learning_rate(self) -> Mapping[str, float]:
        """What is tried stays as it is."""
        return {**self.algorithm.learning_rate, PREFIX: 0.0}

    @property
    def tau(self) -> float:
        """The same for all."""
        return self.algorithm.tau

    @property
    def batch_spec(self) -> BatchSpec:
        """The same for all."""
        return self.algorithm.batch_spec

    @property
    def child_steps(self) -> Sequence[tuple[str, Loss]]:
        """Each with its learner's own values."""
        # One function for equal steps: the engine compiles it once.
        told = {step: self._told_step(place) for place, step in reversed(list(enumerate(self.algorithm.child_steps)))}
        return [(child, told[child, loss]) for child, loss in self.algorithm.child_steps]

    def _told_step(self, place: int) -> Loss:
        def loss(params: Params, targets: Params, batch: Batch, noise: Batch) -> tuple[Tensor, Info]:
            _, own = self.told(params).child_steps[place]
            return own(params, targets, batch, noise)

        return loss

    def noise(self, batch: Batch, generator: torch.Generator) -> Mapping[str, Tensor]:
        """The same for all."""
        return self.algorithm.noise(batch, generator)

    def loss(self, params: Params, targets: Params, batch: Batch, noise: Batch) -> tuple[Tensor, Info]:
        """With the learner's own values."""
        return self.told(params).loss(params, targets, batch, noise)

    def stages(self, varies: str) -> Sequence[Stage]:
        """Those of all trials: what is tried is no part of them."""
        return self.algorithm.stages(varies)

    def infer(self, params: Params, context: Tensor) -> Tensor:
        """With the learner's own values."""
        return self.told(params).infer(params, context)

    def act(self, params: Params, obs: Tensor, z: Tensor) -> Tensor:
        """With the learner's own values."""
        return self.told(params).act(params, obs, z)

    def q(self, params: Params, obs: Tensor, z: Tensor, act: Tensor) -> Tensor:
        """With the learner's own values."""
        return self.told(params).q(params, obs, z, act)


def together(configs: Sequence[MetaConfig]) -> list[list[int]]:
    """Which trials fit into one population: those that differ in nothing but decimal numbers."""
    groups: dict[Any, list[int]] = {}
    for place, config in enumerate(configs):
        rest = tuple((name, value) for name, value in asdict(config).items() if not isinstance(value, float))
        groups.setdefault(rest, []).append(place)
    return list(groups.values())


def populate_trials(
    kind: type[Algorithm[MetaConfig]],
    obs_dim: int,
    act_dim: int,
    configs: Sequence[MetaConfig],
    seeds: Sequence[int],
    device: str,
    tried: Sequence[str],
    mode: Mode | None = None,
) -> tuple[Algorithm[MetaConfig], Population]:
    """One learner per config and seed, in pairs; the configs have to fit together.

    `tried` are the names of what each learner has its own of, whether it is another in each or not.
    """
    assert len(together(configs)) == 1, "trials that differ in more than decimal numbers need populations of their own"
    learners: list[nn.Module] = []
    for config, seed in zip(configs, seeds, strict=True):
        module: nn.Module = kind.Nets(obs_dim, act_dim, config, torch.Generator().manual_seed(seed))
        # Under a name that no algorithm has, in the order of the alphabet.
        values = {name: nn.Parameter(torch.tensor(getattr(config, name))) for name in tried}
        module.add_module(PREFIX.rstrip("."), nn.ParameterDict(values))
        learners.append(module)
    algorithm = kind(learners[0], configs[0])
    trials = Trials(algorithm, tried)
    population = population_of(trials, learners, seeds[0], device, mode)
    rates = [Trials(_with_config(algorithm, config), tried).learning_rate for config in configs]
    population.set_rates(rates)
    return trials, population


def _with_config(algorithm: Algorithm[MetaConfig], config: MetaConfig) -> Algorithm[MetaConfig]:
    other = copy.copy(algorithm)
    other.config = config
    return other
