"""Contextual BCQ: BCQ (Fujimoto, Meger, Precup; ICML 2019) on the state [s, z], FOCAL's second baseline.

The form is that of the baseline in MBML (Li et al., NeurIPS 2020). A probabilistic encoder maps a context to a Gaussian
over z, the product of one Gaussian per transition. It is trained by the critic's Bellman error and by the loss of the
autoencoder that imitates the logged actions, both through a sample of z. The policy generates candidate actions with
the autoencoder's decoder, perturbs each a little, and takes the one of the largest Q. Every loss is a pure function for
one learner; those of BCQ itself are in `bcq.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from omrl.algorithms import bcq
from omrl.algorithms.common import (
    at_least_one,
    drawn,
    encode,
    per_row,
    posterior,
    task_reward,
    transition_dim,
    twin_q,
    within_ranges,
)
from omrl.engine import Batch, Info, Loss, Params
from omrl.nets import MLP


@dataclass(frozen=True)
class ContextualBCQConfig:
    """Hyperparameters; each is a flag."""

    latent_dim: int = 20
    """Length of the task embedding."""
    encoder_hidden: tuple[int, ...] = (200, 200, 200)
    """Widths of the context encoder."""
    actor_hidden: tuple[int, ...] = (300, 300, 300)
    """Widths of the perturbation network."""
    critic_hidden: tuple[int, ...] = (300, 300, 300)
    """Widths of the critics."""
    vae_hidden: tuple[int, ...] = (300, 300, 300)
    """Widths of the autoencoder's encoder and decoder."""
    half: bool = False
    """Networks compute in bfloat16 while they learn: faster on a GPU. Weights keep single precision."""
    next_obs_in_context: bool = True
    """Whether a context transition is (s, a, r, s') or (s, a, r)."""
    perturbation: float = 0.05
    """How far a candidate action is moved at most."""
    soft_clipping: float = 0.75
    """Weight of the smaller of the two target critics; the larger has the rest."""
    gamma: float = 0.99
    """Discount."""
    reward_scale: float = 1.0
    """Factor on rewards in the critic's target."""
    dense_reward: bool = False
    """Train the critic on `rewards_dense`; contexts keep the logged reward."""
    tau: float = 0.005
    """Step of the target critics and the target perturbation."""
    actor_lr: float = 3e-4
    """Adam step size of the perturbation network."""
    critic_lr: float = 3e-4
    """Adam step size of the critics."""
    vae_lr: float = 3e-4
    """Adam step size of the autoencoder."""
    encoder_lr: float = 3e-4
    """Adam step size of the context encoder."""
    meta_batch: int = 16
    """Tasks in a batch."""
    batch_size: int = 256
    """Transitions per task for all but the context."""
    context_size: int = 100
    """Transitions per context set."""

    def __post_init__(self) -> None:
        at_least_one(self, "latent_dim", "meta_batch", "batch_size", "context_size")
        within_ranges(self)


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


class ContextualBCQ:
    """Losses of one learner, and what it knows how to do: `infer` a task, `act` in it.

    Shapes: M tasks, B rows, C context transitions. `batch` has obs, act, rew, next_obs, term [M, B, ...] and context
    [M, 2, C, ...], of whose two sets per task the first is used.
    """

    Config = ContextualBCQConfig
    targets = ("actor", "critic")
    plain = ()
    before: Sequence[tuple[str, Loss]] = ()

    def __init__(self, nets: ContextualBCQNets, config: ContextualBCQConfig) -> None:
        self.nets = nets
        self.config = config
        self._latents = bcq.act_latents(nets.act_dim)

    @classmethod
    def build(
        cls, obs_dim: int, act_dim: int, config: ContextualBCQConfig, seeds: Sequence[int]
    ) -> tuple[list[nn.Module], ContextualBCQ]:
        """One learner's networks per seed, and the losses they share."""
        nets = [ContextualBCQNets(obs_dim, act_dim, config, torch.Generator().manual_seed(seed)) for seed in seeds]
        return list(nets), cls(nets[0], config)

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

    # -- control ---------------------------------------------------------------------------------------------------

    def act(self, params: Params, obs: Tensor, z: Tensor) -> Tensor:
        """The best of a fixed set of candidates by the first critic: deterministic, as scores and users want it."""
        state = torch.cat([obs, z], -1)
        acts, states = bcq.candidates(self.nets, params, state, self._latents, self.config.perturbation)
        return bcq.best(acts, twin_q(self.nets, params, states, acts)[0])

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
