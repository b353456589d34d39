"""Batch PEARL: PEARL (Rakelly et al., ICML 2019) trained on logged data alone, FOCAL's first baseline.

A probabilistic encoder maps a context to a Gaussian over z, the product of one Gaussian per transition. It is trained
by the Bellman error of the critic, through a sample of z, and by a KL divergence to the prior N(0, 1). Actor and critic
are those of soft actor-critic, conditioned on z; behaviour regularisation, which makes the stronger variant in FOCAL's
paper of it, is a config value. Every loss is a pure function for one learner.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from omrl.algorithms.algorithm import Recipe
from omrl.algorithms.common import drawn, encode, gaussian_evidence, kl, posterior
from omrl.algorithms.soft_actor_critic import SoftActorCritic, SoftActorCriticConfig, SoftActorCriticNets
from omrl.learning.engine import Batch, Info, Params
from omrl.schema import NotNegative, Positive, settings


@settings
class BatchPEARLConfig(SoftActorCriticConfig):
    """Hyperparameters beside those of its control; each is a flag."""

    regularisation: Literal["policy", "value", "none"] = "none"
    """Divergence in the actor's loss alone, also in the critic's target, or nowhere."""
    kl_weight: NotNegative = 0.1
    """Weight of the encoder's KL to its N(0, 1) prior, summed over the tasks of a batch."""
    encoder_lr: Positive = 1e-3
    """Adam step size of the encoder."""


class BatchPEARLNets(SoftActorCriticNets):
    """The trained parts of one learner."""

    def __init__(self, obs_dim: int, act_dim: int, config: BatchPEARLConfig, generator: torch.Generator) -> None:
        super().__init__(obs_dim, act_dim, 2 * config.latent_dim, config, generator)


class BatchPEARL(SoftActorCritic[BatchPEARLConfig]):
    """Losses of one learner, and what it knows how to do: `infer` a task, `act` in it. Shapes: M tasks, B rows."""

    Config = BatchPEARLConfig
    Nets = BatchPEARLNets
    critic_trains_encoder = True
    recipe = Recipe("gaussians", squashed=False, actions="gaussian")

    @property
    def learning_rate(self) -> dict[str, float]:
        """Step size by network."""
        return {"encoder": self.config.encoder_lr, **super().learning_rate}

    def noise(self, batch: Batch, generator: torch.Generator) -> dict[str, Tensor]:
        """The random numbers of one update of all learners: batch [P, M, B, ...]."""
        shape = (*batch["act"].shape[:2], self.config.latent_dim)
        control = super().noise(batch, generator)
        return {**control, "z": torch.randn(shape, generator=generator, device=batch["act"].device)}

    # -- the task --------------------------------------------------------------------------------------------------

    def posterior(self, params: Params, context: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of q(z | c): the product of one Gaussian per transition."""
        return posterior(encode(self.nets, params, context))

    def infer(self, params: Params, context: Tensor, noise: Tensor | None = None) -> Tensor:
        """z of each context set [..., C, transition]: a sample of the posterior, or its mean without noise."""
        return drawn(*self.posterior(params, context), noise)

    def evidence(self, params: Params, context: Tensor) -> tuple[Tensor, Tensor]:
        """Means and precisions of the transitions' Gaussians."""
        return gaussian_evidence(encode(self.nets, params, context))

    def task(self, params: Params, batch: Batch, noise: Batch) -> tuple[Tensor, Tensor, Info]:
        """The KL to the prior, and a sample of the posterior, through which the critic trains the encoder too."""
        mean, variance = self.posterior(params, batch["context"][:, 0])  # [M, l]
        L_kl = kl(mean, variance).sum()
        return self.config.kl_weight * L_kl, drawn(mean, variance, noise["z"]), {"kl": L_kl / len(mean)}

    # -- control: `policy`, `act`, `q`, `D`, `L_g`, `L_critic` and `L_actor` of SoftActorCritic, whose `loss` is the sum
