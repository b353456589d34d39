"""An algorithm of another package, unlike omrl's own: a recurrent network reads stretches of episodes as contexts, a
task is the nearest of some learnt prototypes, and a first stage learns each task's mean reward.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from omrl import Algorithm, BatchSpec, MetaConfig, settings
from omrl.algorithms.algorithm import Stage
from omrl.learning.engine import Batch, Info, Params, call
from omrl.learning.nets import MLP
from omrl.schema import AtLeastOne, Layers, Positive


@settings
class PrototypesConfig(MetaConfig):
    """Hyperparameters; each is a flag."""

    width: AtLeastOne = 16
    """Numbers that the recurrent network remembers."""
    prototypes: AtLeastOne = 8
    """How many kinds of tasks there are at most."""
    hidden: Layers = (32,)
    """Widths of the policy."""
    step_size: Positive = 1e-3
    """Adam step size."""
    reward_steps: AtLeastOne = 20
    """Updates of the first stage."""


class PrototypesNets(nn.Module):
    """The trained parts of one learner."""

    def __init__(self, obs_dim: int, act_dim: int, config: PrototypesConfig, generator: torch.Generator) -> None:
        super().__init__()
        row = 2 * obs_dim + act_dim + 1
        self.remember = MLP(row + config.width, (config.width,), config.width, generator=generator)
        self.choose = MLP(config.width, (config.width,), config.prototypes, generator=generator)
        self.prototypes = nn.Parameter(torch.randn(config.prototypes, config.latent_dim, generator=generator))
        self.policy = MLP(obs_dim + config.latent_dim, config.hidden, act_dim, generator=generator)
        self.reward = MLP(config.latent_dim, (), 1, generator=generator)


class MeanReward(nn.Module):
    """What the first stage learns of a task."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(()))


class Prototypes(Algorithm[PrototypesConfig]):
    """Losses of one learner, and what it knows how to do."""

    Config = PrototypesConfig
    Nets = PrototypesNets

    @property
    def learning_rate(self) -> dict[str, float]:
        """One for all."""
        return {"": self.config.step_size}

    @property
    def batch_spec(self) -> BatchSpec:
        """One stretch of an episode of each task, and rows of another task."""
        return BatchSpec(consecutive=True, other_tasks=True)

    def stages(self, varies: str) -> list[Stage]:
        """The mean reward of each task."""

        def loss(params: Params, targets: Params, batch: Batch, noise: Batch) -> tuple[Tensor, Info]:
            error = (batch["rew"] - params["mean"]).square().mean()
            return error, {"error": error}

        return [
            Stage(
                name="mean-reward",
                build=lambda _: MeanReward(),
                loss=loss,
                noise=lambda *_: {},
                result=lambda params: {"mean_reward": params["mean"]},
                lr=0.1,
                batch_size=16,
                steps=self.config.reward_steps,
            )
        ]

    def infer(self, params: Params, context: Tensor) -> Tensor:
        """A mixture of the prototypes, after reading the context from its first row to its last."""
        state = context.new_zeros(*context.shape[:-2], self.config.width)
        for row in context.unbind(-2):
            state = torch.tanh(call(self.nets, params, "remember", torch.cat([row, state], -1)))
        return call(self.nets, params, "choose", state).softmax(-1) @ params["prototypes"]

    def act(self, params: Params, obs: Tensor, z: Tensor) -> Tensor:
        """Actions in [-1, 1]."""
        return torch.tanh(call(self.nets, params, "policy", torch.cat([obs, z], -1)))

    def loss(self, params: Params, targets: Params, batch: Batch, noise: Batch) -> tuple[Tensor, Info]:
        """Imitate the log, foretell the task's mean reward, and do not imitate what another task did."""
        z = self.infer(params, batch["context"][:, 0])
        rows = z[:, None].expand(-1, batch["obs"].shape[1], -1)
        imitation = (self.act(params, batch["obs"], rows) - batch["act"]).square().mean()
        foreign = (self.act(params, batch["other.obs"], rows) - batch["other.act"]).square().mean()
        reward = (call(self.nets, params, "reward", z).squeeze(-1) - batch["mean_reward"]).square().mean()
        return imitation + reward - 0.01 * foreign.clamp(max=1.0), {"imitation": imitation, "reward_error": reward}
