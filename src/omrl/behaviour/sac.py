"""Soft actor-critic (Haarnoja et al., 2018) for one agent, as one pure loss: the behaviour policies come from it.

Twin critics with target copies, a tanh-squashed Gaussian actor, a learned temperature. Only true terminations stop
bootstrapping: a time limit is not an end of the task.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from omrl.behaviour.config import SACConfig
from omrl.learning.engine import Batch, Info, Params, call, detached
from omrl.learning.nets import MLP, squashed_gaussian

# Raw log-std output that gives an untrained policy unit standard deviation: it explores all of the action range.
UNIT_STD_BIAS = 0.4581


class SACNets(nn.Module):
    """The trained parts of one agent: actor, twin critics, log temperature."""

    def __init__(self, obs_dim: int, act_dim: int, config: SACConfig, generator: torch.Generator) -> None:
        super().__init__()
        self.actor = MLP(obs_dim, config.actor_hidden, 2 * act_dim, generator=generator, last_scale=0.01)
        self.critic = MLP(obs_dim + act_dim, config.critic_hidden, 1, generator=generator, copies=2)
        self.log_temperature = nn.Parameter(torch.tensor(config.initial_temperature).log())
        with torch.no_grad():
            self.actor.bias[-1][..., act_dim:] = UNIT_STD_BIAS


class SAC:
    """Losses of one agent. `batch` has obs, act, rew, next_obs, term; `noise` has one draw for s and one for s'."""

    def __init__(self, nets: SACNets, config: SACConfig) -> None:
        self.nets = nets
        self.config = config

    def act(self, params: Params, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """A sampled action and its log-density."""
        return squashed_gaussian(call(self.nets, params, "actor", obs), noise)

    def q(self, params: Params, obs: Tensor, act: Tensor) -> Tensor:
        """Both critics: [2, B]."""
        return call(self.nets, params, "critic", torch.cat([obs, act], dim=-1)).squeeze(-1)

    def critic_loss(self, params: Params, targets: Params, batch: Batch, noise: Batch) -> tuple[Tensor, Info]:
        """Squared Bellman error against the smaller target critic, entropy included."""
        detached_params = detached(params)
        next_act, next_log_prob = self.act(detached_params, batch["next_obs"], noise["next_act"])
        next_q = (
            self.q(targets, batch["next_obs"], next_act).amin(0)
            - detached_params["log_temperature"].exp() * next_log_prob
        )
        target = self.config.reward_scale * batch["rew"] + self.config.gamma * (1.0 - batch["term"]) * next_q
        q = self.q(params, batch["obs"], batch["act"])
        return (q - target.detach()).square().mean(-1).sum(), {"q": q.mean()}

    def actor_loss(self, params: Params, batch: Batch, noise: Batch) -> tuple[Tensor, Tensor]:
        """Entropy-regularised value of the actor's own actions; also returns their log-densities."""
        detached_params = detached(params)
        act, log_prob = self.act(params, batch["obs"], noise["act"])
        value = self.q(detached_params, batch["obs"], act).amin(0)
        return (detached_params["log_temperature"].exp() * log_prob - value).mean(), log_prob

    def temperature_loss(self, params: Params, log_prob: Tensor, act_dim: int) -> Tensor:
        """Raises the temperature while the entropy is under its target."""
        return -params["log_temperature"] * (log_prob.detach() + self.config.target_entropy * act_dim).mean()

    def loss(self, params: Params, targets: Params, batch: Batch, noise: Batch) -> tuple[Tensor, Info]:
        """The sum: each part moves only its own network, so one backward gives each its own gradient."""
        critic, info = self.critic_loss(params, targets, batch, noise)
        actor, log_prob = self.actor_loss(params, batch, noise)
        temperature = self.temperature_loss(params, log_prob, batch["act"].shape[-1])
        info |= {
            "critic_loss": critic,
            "actor_loss": actor,
            "entropy": -log_prob.mean(),
            "temperature": params["log_temperature"].exp(),
        }
        return critic + actor + temperature, {key: value.detach() for key, value in info.items()}


def build(obs_dim: int, act_dim: int, config: SACConfig, seeds: Sequence[int]) -> tuple[list[nn.Module], SAC]:
    """One agent's networks per seed, and the losses they share."""
    learners: list[nn.Module] = [
        SACNets(obs_dim, act_dim, config, torch.Generator().manual_seed(seed)) for seed in seeds
    ]
    template = learners[0]
    assert isinstance(template, SACNets)
    return learners, SAC(template, config)
