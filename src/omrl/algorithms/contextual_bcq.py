"""Contextual BCQ: BCQ (Fujimoto, Meger, Precup; ICML 2019) on the state [s, z], FOCAL's second baseline.

The form is that of the baseline in MBML (Li et al., NeurIPS 2020). A probabilistic encoder maps a context to a Gaussian
over z, the product of one Gaussian per transition. It is trained by the critic's Bellman error and by the loss of the
autoencoder that imitates the logged actions, both through a sample of z. The policy generates candidate actions with
the autoencoder's decoder, perturbs each a little, and takes the one of the largest Q. Every loss is a pure function for
one learner; those of BCQ itself are in `bcq.py`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from omrl.algorithms import bcq
from omrl.algorithms.algorithm import Algorithm, BatchSpec, MetaConfig, Recipe
from omrl.algorithms.common import (
    drawn,
    encode,
    first_q,
    gaussian_evidence,
    per_row,
    posterior,
    task_reward,
    transition_dim,
    twin_q,
)
from omrl.learning.engine import Batch, Info, Params
from omrl.learning.nets import MLP
from omrl.schema import Fraction, Layers, NotNegative, Positive, settings


@settings
class ContextualBCQConfig(MetaConfig):
    """Hyperparameters; each is a flag."""

    encoder_hidden: Layers = (200, 200, 200)
    """Widths of the context encoder."""
    actor_hidden: Layers = (300, 300, 300)
    """Widths of the perturbation network."""
    critic_hidden: Layers = (300, 300, 300)
    """Widths of the critics."""
    vae_hidden: Layers = (300, 300, 300)
    """Widths of the autoencoder's encoder and decoder."""
    next_obs_in_context: bool = True
    """Whether a context transition is (s, a, r, s') or (s, a, r)."""
    perturbation: NotNegative = 0.05
    """How far a candidate action is moved at most."""
    soft_clipping: Fraction = 0.75
    """Weight of the smaller of the two target critics; the larger has the rest."""
    gamma: Fraction = 0.99
    """Discount."""
    reward_scale: Positive = 1.0
    """Factor on rewards in the critic's target."""
    dense_reward: bool = False
    """Train the critic on `rewards_dense`; contexts keep the logged reward."""
    tau: Fraction = 0.005
    """Step of the target critics and the target perturbation."""
    actor_lr: Positive = 3e-4
    """Adam step size of the perturbation network."""
    critic_lr: Positive = 3e-4
    """Adam step size of the critics."""
    vae_lr: Positive = 3e-4
    """Adam step size of the autoencoder."""
    encoder_lr: Positive = 3e-4
    """Adam step size of the context encoder."""


class ContextualBCQNets(bcq.BCQNets):
    """The trained parts of one learner: those of BCQ on [s, z], and the context encoder."""

    def __init__(self, obs_dim: int, act_dim: int, config: ContextualBCQConfig, generator: torch.Generator) -> None:
        super().__init__(
            obs_dim + config.latent_dim,
            act_dim,
            actor_hidden=config.actor_hidden,
            critic_hidden=config.critic_hidden,
            vae_hidden=config.vae_hidden,
            generator=generator,
        )
        transition = transition_dim(obs_dim, act_dim, config.next_obs_in_context)
        codes = 2 * config.latent_dim
        self.encoder = MLP(transition, config.encoder_hidden, codes, generator=generator)


class ContextualBCQ(Algorithm[ContextualBCQConfig]):
    """Losses of one learner, and what it knows how to do: `infer` a task, `act` in it. Shapes: M tasks, B rows."""

    Config = ContextualBCQConfig
    Nets = ContextualBCQNets
    targets = ("actor", "critic")
    has_values = True

    def __init__(self, nets: ContextualBCQNets, config: ContextualBCQConfig) -> None:
        super().__init__(nets, config)
        self._latents = bcq.act_latents(nets.act_dim)

    @property
    def tau(self) -> float:
        """Step of the target networks."""
        return self.config.tau

    @property
    def batch_spec(self) -> BatchSpec:
        """One context set of each task."""
        return BatchSpec(dense_rewards=self.config.dense_reward)

    @property
    def learning_rate(self) -> dict[str, float]:
        """Step size by network."""
        config = self.config
        return {
            "encoder": config.encoder_lr,
            "actor": config.actor_lr,
            "critic": config.critic_lr,
            "vae": config.vae_lr,
        }

    def noise(self, batch: Batch, generator: torch.Generator) -> dict[str, Tensor]:
        """The random numbers of one update of all learners: batch [P, M, B, ...]."""
        shape = (*batch["act"].shape[:2], self.config.latent_dim)
        z = torch.randn(shape, generator=generator, device=batch["act"].device)
        return {"z": z, **bcq.noise(batch, generator)}

    # -- the task --------------------------------------------------------------------------------------------------

    def infer(self, params: Params, context: Tensor, noise: Tensor | None = None) -> Tensor:
        """z of each context set [..., C, transition]: a sample of the posterior, or its mean without noise."""
        return drawn(*posterior(encode(self.nets, params, context)), noise)

    def evidence(self, params: Params, context: Tensor) -> tuple[Tensor, Tensor]:
        """Means and precisions of the transitions' Gaussians."""
        return gaussian_evidence(encode(self.nets, params, context))

    # -- control ---------------------------------------------------------------------------------------------------

    def act(self, params: Params, obs: Tensor, z: Tensor) -> Tensor:
        """The best of a fixed set of candidates by the first critic: deterministic, as scores and users want it."""
        state = torch.cat([obs, z], -1)
        acts, states = bcq.candidates(self.nets, params, state, self._latents, self.config.perturbation)
        return bcq.best(acts, first_q(self.nets, params, states, acts))

    @property
    def recipe(self) -> Recipe:
        """The best of the same candidates."""
        return Recipe("gaussians", False, "candidates", self.config.perturbation, bcq.bounded(self._latents))

    def q(self, params: Params, obs: Tensor, z: Tensor, act: Tensor) -> Tensor:
        """Both critics [2, ...]."""
        return twin_q(self.nets, params, obs, z, act)

    # -- the update ------------------------------------------------------------------------------------------------

    def loss(self, params: Params, targets: Params, batch: Batch, noise: Batch) -> tuple[Tensor, Info]:
        """The sum of all losses; critic and autoencoder move the encoder too, the actor its own network alone."""
        z = per_row(self.infer(params, batch["context"][:, 0], noise["z"]), batch)
        state = {"state": torch.cat([batch["obs"], z], -1), "next_state": torch.cat([batch["next_obs"], z], -1)}
        reward = self.config.reward_scale * task_reward(self.config, batch)
        return bcq.loss(self.nets, params, targets, batch, noise, **state, reward=reward, config=self.config)
