"""Contextual behaviour cloning: FOCAL's encoder, and a policy that imitates the log; no reinforcement learning.

What remains of FOCAL when nothing is improved: whoever is not better than this has learnt nothing from rewards but
which task it is. A deterministic encoder is trained by FOCAL's distance-metric loss (see `focal.py`), a Gaussian policy
on [s, z] by the likelihood of the logged actions, cut off from the encoder's gradients. Every loss is a pure function
for one learner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from omrl.algorithms.common import at_least_one, encode, per_row, saturated, transition_dim, within_ranges
from omrl.algorithms.focal import Power, distance_metric_loss
from omrl.divergences import behaviour_loss
from omrl.engine import Batch, Info, Loss, Params, call
from omrl.nets import MLP, gaussian


@dataclass(frozen=True)
class ContextualBCConfig:
    """Hyperparameters; each is a flag. FOCAL's symbol stands in brackets."""

    latent_dim: int = 20
    """Length of the task embedding [l]."""
    encoder_hidden: tuple[int, ...] = (200, 200, 200)
    """Widths of the context encoder."""
    hidden: tuple[int, ...] = (300, 300, 300)
    """Widths of the policy."""
    half: bool = False
    """Networks compute in bfloat16 while they learn: faster on a GPU. Weights keep single precision."""
    next_obs_in_context: bool = True
    """Whether a context transition is (s, a, r, s') or (s, a, r)."""
    power: Power = "inverse-square"
    """How different tasks repel [n]."""
    beta: float = 1.0
    """Weight of the repulsion, on top of the power's own [beta]."""
    epsilon: float = 0.1
    """Softening of the inverse powers [epsilon]."""
    actor_lr: float = 1e-3
    """Adam step size of the policy [alpha_2]."""
    dml_lr: float = 1e-3
    """Adam step size of the encoder [alpha_1]."""
    meta_batch: int = 16
    """Tasks in a batch [M]."""
    batch_size: int = 256
    """Transitions per task for the policy."""
    context_size: int = 100
    """Transitions per context set."""

    def __post_init__(self) -> None:
        at_least_one(self, "latent_dim", "meta_batch", "batch_size", "context_size")
        within_ranges(self)


class ContextualBCNets(nn.Module):
    """The trained parts of one learner."""

    def __init__(self, obs_dim: int, act_dim: int, config: ContextualBCConfig, generator: torch.Generator) -> None:
        super().__init__()
        transition = transition_dim(obs_dim, act_dim, config.next_obs_in_context)
        self.encoder = MLP(transition, config.encoder_hidden, config.latent_dim, generator=generator)
        self.actor = MLP(obs_dim + config.latent_dim, config.hidden, 2 * act_dim, generator=generator, last_scale=0.01)


class ContextualBC:
    """Losses of one learner, and what it knows how to do: `infer` a task, `act` in it.

    Shapes: M tasks, B rows, C context transitions. `batch` has obs, act [M, B, ...] and context [M, 2, C, ...]: two
    independent sets per task, so that every task meets its positive pair in every step.
    """

    Config = ContextualBCConfig
    targets = ()
    plain = ()
    before: Sequence[tuple[str, Loss]] = ()

    def __init__(self, nets: ContextualBCNets, config: ContextualBCConfig) -> None:
        self.nets = nets
        self.config = config

    @classmethod
    def build(
        cls, obs_dim: int, act_dim: int, config: ContextualBCConfig, seeds: Sequence[int]
    ) -> tuple[list[nn.Module], ContextualBC]:
        """One learner's networks per seed, and the losses they share."""
        nets = [ContextualBCNets(obs_dim, act_dim, config, torch.Generator().manual_seed(seed)) for seed in seeds]
        return list(nets), cls(nets[0], config)

    @property
    def learning_rate(self) -> dict[str, float]:
        """Step size by network."""
        return {"encoder": self.config.dml_lr, "actor": self.config.actor_lr}

    def noise(self, batch: Batch, generator: torch.Generator) -> dict[str, Tensor]:
        """Nothing here is drawn."""
        return {}

    def infer(self, params: Params, context: Tensor) -> Tensor:
        """z of each context set [..., C, transition]; the order of its transitions does not matter."""
        return torch.tanh(encode(self.nets, params, context)).mean(-2)

    def policy(self, params: Params, obs: Tensor, z: Tensor) -> Tensor:
        """Mean and raw log-std of the actions before tanh."""
        return call(self.nets, params, "actor", torch.cat([obs, z], -1))

    def act(self, params: Params, obs: Tensor, z: Tensor) -> Tensor:
        """The deterministic action tanh(mean)."""
        mean, _ = gaussian(self.policy(params, obs, z))
        return torch.tanh(mean)

    def loss(self, params: Params, targets: Params, batch: Batch, noise: Batch) -> tuple[Tensor, Info]:
        """The sum of both losses, each of which moves its own network alone."""
        config = self.config
        z_pair = self.infer(params, batch["context"])  # [M, 2, l]
        L_dml = distance_metric_loss(z_pair[:, 0], z_pair[:, 1], config.power, config.beta, config.epsilon)
        policy = self.policy(params, batch["obs"], per_row(z_pair[:, 0], batch).detach())
        actor = behaviour_loss(policy, batch["act"])
        mean, _ = gaussian(policy)
        info = {"dml_loss": L_dml, "actor_loss": actor, **saturated(torch.tanh(mean), batch["act"])}
        return L_dml + actor, info
